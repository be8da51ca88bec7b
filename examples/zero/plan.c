// SPDX-License-Identifier: Apache-2.0
/* The command line of `zero plan`: one table of options, and which of them
 * contradict each other. */
#include "examples/zero/plan.h"

#include "examples/common/choices.h"
#include "examples/common/launch.h"
#include "examples/common/models.h"
#include "examples/zero/tool.h"

#define OPTIONS_OF struct plan_options

static const struct option table[] = {
    {"model", CHOICE(model, model_choices), .initial = "d4",
     .help = "a shape by name, as build/gpt2 --help describes them"},
    {"layers", WHOLE(layers, 1, 10000), .value = "L", .shown = "of --model", .help = "blocks"},
    {"channels", WHOLE(channels, 1, 1 << 20), .value = "C", .shown = "of --model", .help = "width"},
    {"heads", WHOLE(heads, 1, 16384), .value = "H", .shown = "any",
     .help = "attention heads, which divide the channels and change no bytes"},
    {"seq", WHOLE(seq, 1, 1 << 20), .value = "T", .shown = "of --model", .help = "positions"},
    {"vocab", WHOLE(vocab, 1, 1 << 24), .value = "V", .shown = "of --model",
     .help = "tokens there are"},
    {"params", SIZE(params, 1, 0x1p50), .value = "COUNT", .shown = "none",
     .help = "instead of a GPT: so many elements, in units of --unit-size"},
    {"unit-size", SIZE(unit_size, 1, 0x1p40), .value = "ELEMENTS", .initial = "16M",
     .help = "elements that are used together"},
    {"ranks", WHOLE(ranks, 1, 65536), .value = "N", .initial = "2", .help = "of the job"},
    {"ranks-per-node", WHOLE(ranks_per_node, 1, 4096), .value = "N", .shown = "all of them",
     .help = "on one node, which is taken to be this machine"},
    {"dtype", CHOICE(dtype, dtype_choices), .initial = "bf16",
     .help = "of parameters and gradients"},
    {"state", CHOICE(state, state_choices), .initial = "fp32", .help = STATE_HELP},
    {"grad-dtype", CHOICE(grad_dtype, grad_dtype_choices), .initial = "fp32",
     .help = GRAD_DTYPE_HELP},
    {"accumulate", WHOLE(accumulate, 1, 65536), .value = "A", .initial = "1",
     .help = "micro-steps per step"},
    {"accumulate-in", CHOICE(accumulate_in, accumulate_choices), .initial = "shard",
     .help = ACCUMULATE_IN_HELP},
    {"gather-slots", WHOLE(gather_slots, 1, 64), .value = "K", .initial = "3",
     .help = "stage 3: units whose parameters are whole at once"},
    {"grad-slots", WHOLE(grad_slots, 1, 64), .value = "K", .initial = "3",
     .help = "units whose gradients are whole at once"},
    {"chunk", SIZE(chunk, 64, 0x1p30), .value = "ELEMENTS",
     .shown = "128K in files, else 1M; of an engine on GPUs 4M", .help = CHUNK_HELP},
    {"slots", WHOLE(slots, 2, 64), .value = "K", .shown = SLOTS_SHOWN, .help = SLOTS_HELP},
    {"host-bytes", SIZE(host_bytes, 0, 0x1p50), .value = "SIZE", .initial = "0",
     .help = "per rank, rows of nvme: optimizer state that stays in host memory"},
    {"verify-spill", FLAG(verify_spill),
     .help = WITH_XXHASH("rows of nvme: with checksums of the files' pages, in host memory")},
    {"nvme-path", TEXT(nvme_path), .value = NVME_PATH_VALUE, .shown = NVME_PATH_SHOWN,
     .help = "folders whose free space counts"},
    {"device-memory", SIZE(device_memory, 1, 0x1p50), .value = "SIZE",
     .shown = "the CPU: no memory of its own, at most $ZERO_DEVICE_MEMORY",
     .help = "plan an engine on GPUs: memory of each rank's own, beside the machine's memory"},
    {"csv", FLAG(csv), .help = "rows of numbers, in bytes"},
    {"help", FLAG(help), .help = "print this and end"},
};
enum { OPTIONS = sizeof(table) / sizeof(*table) };

static const struct tool_options options = {
    .usage =
        "usage: zero plan [options]\n\n"
        "Prints what a model needs at every stage and place, whether it fits this machine, and\n"
        "how long an update takes here by itself. Nothing of it is allocated: the figures are\n"
        "those that zero_create would allocate.\n",
    .table = table,
    .count = OPTIONS,
};

static bool was_given(const bool *given, const char *name)
{
    return given[options_index(table, OPTIONS, name)];
}

/* 0, or the status of what was refused. */
static int contradictions(struct plan_options *o, const bool *given)
{
    static const char *const shape[] = {"model", "layers", "channels", "heads", "seq", "vocab"};
    for (int i = 0; i < 6; i++)
        if (o->params && was_given(given, shape[i]))
            return tool_refuse("--params and --%s contradict each other. Give a GPT's shape, or "
                               "--params and --unit-size.",
                               shape[i]);
    if (!o->params && was_given(given, "unit-size"))
        return tool_refuse("--unit-size is for --params, which is not given. Give --params.");
    if (!o->ranks_per_node)
        o->ranks_per_node = o->ranks;
    if (o->ranks_per_node > o->ranks)
        return tool_refuse("--ranks-per-node %d is more than --ranks %d. Give at most %d.",
                           o->ranks_per_node, o->ranks, o->ranks);
    if (o->state == ZERO_STATE_SPLIT && o->dtype != ZERO_BF16)
        return tool_refuse("--state split is for bf16 models. Give --dtype bf16, or leave --state "
                           "out.");
    if (o->chunk % 64)
        return tool_refuse("--chunk %lld is not a multiple of 64. Give %lld.", (long long)o->chunk,
                           (long long)(o->chunk / 64 * 64));
    return 0;
}

int plan_command(int argc, char **argv)
{
    struct plan_options o = {0};
    struct plan_model model;
    bool given[OPTIONS];
    char error[512] = "";
    int status = tool_parse(&options, argc, argv, &o, given, &o.help);
    if (status != TOOL_GO_ON)
        return status;
    status = contradictions(&o, given);
    if (status)
        return status;
    if (launch_find().rank > 0) /* one of the job speaks */
        return 0;
    if (plan_model_make(&model, &o, error, sizeof(error)))
        return tool_refuse("%s", error);
    status = plan_table(&o, &model);
    plan_model_free(&model);
    return status;
}
