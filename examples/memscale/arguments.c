// SPDX-License-Identifier: Apache-2.0
#include "examples/memscale/arguments.h"

#include <string.h>

#include "examples/common/choices.h"
#include "examples/common/models.h"
#include "examples/common/refuse.h"

static const struct option_choice stages[] = {{.name = "0", .value = 0},
                                              {.name = "1", .value = 1},
                                              {.name = "2", .value = 2},
                                              {.name = "3", .value = 3},
                                              {.name = NULL}};

#define OPTIONS_OF struct arguments

static const struct option table[] = {
    {"device", CHOICE(device, device_choices), .initial = "cpu",
     .help = WITH_CUDA("what the engines are for: the CPU, or a GPU for each rank of a node, in "
                       "turn")},
    {"stage", LIST(stage_list), .value = "STAGE...", .shown = "0 1 2 3", .help = "stages to try"},
    {"offload", LIST(offload_list), .value = "PLACE...", .shown = "none cpu nvme",
     .help = "places to try for what can be offloaded: none, cpu, nvme"},
    {"model", LIST(model_list), .value = "NAME...", .shown = "d4 d6 d12; with --find-largest d12",
     .help = "shapes to try, as build/gpt2 --help describes them"},
    {"layers", WHOLE(layers, 1, 10000), .value = "L", .shown = "12",
     .help = "instead of --model: blocks"},
    {"channels", WHOLE(channels, 1, 65536), .value = "C", .shown = "768",
     .help = "instead of --model: width"},
    {"find-largest", FLAG(find_largest),
     .help = "how many layers of a shape's width fit, at each stage and place: the most are run, "
             "one more is refused"},
    {"device-memory", SIZE(memory[0], 1, 0x1p50), .value = "SIZE",
     .shown = "$ZERO_DEVICE_MEMORY on the CPU, else as much as there is",
     .help = "of each rank's device, at most"},
    {"host-memory", SIZE(memory[1], 1, 0x1p50), .value = "SIZE", .shown = "as the machine has",
     .help = "of each rank in host memory, at most"},
    {"nvme-space", SIZE(memory[2], 1, 0x1p50), .value = "SIZE", .shown = "as the disk has",
     .help = "of each rank in files, at most"},
    {"state", CHOICE(state, state_choices), .initial = "fp32", .help = STATE_HELP},
    {"grad-dtype", CHOICE(grad_dtype, grad_dtype_choices), .initial = "fp32",
     .help = "of gradient sums at rest"},
    {"nvme-path", TEXT(nvme_path), .value = NVME_PATH_VALUE, .shown = NVME_PATH_SHOWN,
     .help = NVME_PATH_HELP},
    {"chunk", SIZE(chunk, 64, 0x1p30), .value = "ELEMENTS",
     .shown = "128K in files, else 1M, with --device cuda 4M", .help = CHUNK_HELP},
    {"slots", WHOLE(slots, 2, 64), .value = "K", .shown = SLOTS_SHOWN, .help = SLOTS_HELP},
    {"steps", WHOLE(steps, 1, 1000000), .value = "S", .initial = "3",
     .help = "that are timed, after a first one that is not"},
    {"threads", WHOLE(threads, 1, 1024), .value = "K",
     .shown = "the node's CPUs, or a quota's, divided by the ranks that share them",
     .help = "of the engine"},
    {"deadline", WHOLE(deadline, 1, 1e9), .value = "SECONDS", .initial = "300",
     .help = "how long a rank waits for another one"},
    {"csv", TEXT(csv), .value = "FILE", .shown = "none",
     .help = "a row of numbers per configuration"},
    {"svg", TEXT(svg), .value = "FILE", .shown = "none",
     .help = "a plot: memory of a rank by the model's size"},
    {"help", FLAG(help), .help = "print this and end"},
};
enum { OPTIONS = sizeof(table) / sizeof(*table) };

static bool was_given(const bool *given, const char *name)
{
    return given[options_index(table, OPTIONS, name)];
}

/* The value of one word of a list, or -1 with a sentence. */
static int word_value(const char *option, const char *word, const struct option_choice *choices,
                      struct sink sink)
{
    char all[256];
    const struct option_choice *c = options_choice(choices, word);
    if (c)
        return c->value;
    options_choices_join(choices, ", ", ", ", all, sizeof(all));
    return refuse(sink, "--%s cannot be '%s'. Give some of %s.", option, word, all);
}

static int resolve_lists(struct arguments *a, struct sink sink)
{
    for (int i = 0; i < a->stage_list.count; i++)
        if ((a->stages[i] = word_value("stage", a->stage_list.items[i], stages, sink)) < 0)
            return -1;
    for (int i = 0; i < a->offload_list.count; i++) {
        int place = word_value("offload", a->offload_list.items[i], place_choices, sink);
        if (place < 0)
            return -1;
        a->offloads[i] = (enum zero_place)place;
    }
    return 0;
}

/* Heads change no bytes: one will do. */
static void size_add(struct arguments *a, const struct model *m, const char *name)
{
    struct size *s = &a->sizes[a->size_count++];
    s->shape = (struct gpt_shape){m->layers, m->channels, 1, m->seq, m->vocab};
    if (name)
        snprintf(s->name, sizeof(s->name), "%s", name);
    else
        snprintf(s->name, sizeof(s->name), "%dx%d", m->layers, m->channels);
}

static int resolve_sizes(struct arguments *a, const bool *given, struct sink sink)
{
    static const struct option_list some = {{"d4", "d6", "d12"}, 3}, one = {{"d12"}, 1};
    bool own = a->layers || a->channels;
    if (own && was_given(given, "model"))
        return refuse(sink,
                      "--model and --%s contradict each other. Give names, or --layers and "
                      "--channels.",
                      a->layers ? "layers" : "channels");
    if (a->layers && a->find_largest)
        return refuse(sink, "--layers and --find-largest contradict each other: it finds how many "
                            "layers fit. Leave one of them out.");
    if (own) {
        struct model m = models[word_value("model", "d12", model_choices, sink)];
        m.layers = a->layers ? a->layers : m.layers;
        m.channels = a->channels ? a->channels : m.channels;
        size_add(a, &m, NULL);
        return 0;
    }
    const struct option_list *words = a->model_list.count ? &a->model_list
                                      : a->find_largest   ? &one
                                                          : &some;
    for (int i = 0; i < words->count; i++) {
        int model = word_value("model", words->items[i], model_choices, sink);
        if (model < 0)
            return -1;
        size_add(a, &models[model], models[model].name);
    }
    return 0;
}

int arguments_parse(struct arguments *a, int argc, char **argv, char *error, size_t error_size)
{
    struct sink sink = {error, error_size};
    bool given[OPTIONS];
    *a = (struct arguments){.stage_list = {{"0", "1", "2", "3"}, 4},
                            .offload_list = {{"none", "cpu", "nvme"}, 3}};
    if (options_parse(table, OPTIONS, argc, argv, a, given, error, error_size))
        return a->help ? 0 : -1;
    if (a->help)
        return 0;
    if (resolve_lists(a, sink) || resolve_sizes(a, given, sink))
        return -1;
    if (a->chunk % 64)
        return refuse(sink, "--chunk %lld is not a multiple of 64. Give %lld.", (long long)a->chunk,
                      (long long)(a->chunk / 64 * 64));
    if (a->csv && a->svg && strcmp(a->csv, a->svg) == 0)
        return refuse(sink, "--csv and --svg are both %s. Give each a file of its own.", a->csv);
    return 0;
}

void arguments_help(FILE *out)
{
    fputs(
        "usage: mpirun -n RANKS build/memscale [options]\n\n"
        "The memory-scaling test: makes a fresh engine for each stage, place and model (bf16 with "
        "Adam),\n"
        "steps it, and prints what a rank planned and has in its device's memory, in host memory "
        "and in\n"
        "files, and the seconds of a step. What does not fit is said, and so is what fails, which "
        "makes the\n"
        "exit status 1; the test goes on.\n\n",
        out);
    options_help(table, OPTIONS, out);
}

struct zero_config arguments_config(const struct arguments *a, int stage, enum zero_place offload)
{
    return (struct zero_config){
        .size = sizeof(struct zero_config),
        .stage = stage,
        .dtype = ZERO_BF16,
        .device = (enum zero_device)a->device,
        .offload = offload,
        .state = (enum zero_state)a->state,
        .grad_dtype = (enum zero_dtype)a->grad_dtype,
        .nvme_path = a->nvme_path,
        .chunk = a->chunk,
        .chunk_slots = a->slots,
        .threads = a->threads,
        .deadline_seconds = a->deadline,
    };
}

const char *arguments_offload(enum zero_place place)
{
    return options_choice_name(place_choices, (int)place);
}
