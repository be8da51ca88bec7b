// SPDX-License-Identifier: Apache-2.0
/* All options, their ranges and defaults in one table; after it, what single
 * options cannot know: which of them contradict each other. */
#include "examples/gpt2/arguments.h"

#include <assert.h>
#include <float.h>
#include <string.h>

#include "examples/common/choices.h"
#include "examples/common/counter.h"
#include "examples/common/models.h"
#include "examples/common/refuse.h"

static const struct option_choice grad_places[] = {
    {.name = "none", .value = ZERO_DEVICE},
    {.name = "device", .value = ZERO_DEVICE, .hidden = true},
    {.name = "cpu", .value = ZERO_HOST},
    {.name = "host", .value = ZERO_HOST, .hidden = true},
    {.name = NULL},
};
static const struct option_choice rings[] = {{.name = "auto", .value = ZERO_RING_AUTO},
                                             {.name = "uring", .value = ZERO_RING_URING},
                                             {.name = "posix", .value = ZERO_RING_POSIX},
                                             {.name = NULL}};
static const struct option_choice reductions[] = {{.name = "ordered", .value = ZERO_REDUCE_ORDERED},
                                                  {.name = "nccl", .value = ZERO_REDUCE_NCCL},
                                                  {.name = NULL}};

#define OPTIONS_OF      struct arguments
#define NEARLY_ONE      0x1.fffffffffffffp-1
#define NOT_NEGATIVE    .max = DBL_MAX, .range = "a number of at least 0"
#define BELOW_ONE       .max = NEARLY_ONE, .range = "a number of at least 0 and below 1"
#define IN_FP32         .max = FLT_MAX, .range = "a number from 0 to 3.4e38"
#define ABOVE_0_IN_FP32 .min = FLT_MIN, .max = FLT_MAX, .range = "1.2e-38 to 3.4e38"

static const struct option table[] = {
    {"stage", WHOLE(stage, 0, 3), .value = "0..3", .initial = "0",
     .help = "what is sharded over the ranks: 0 nothing, 1 optimizer state, 2 gradients too, "
             "3 parameters too"},
    {"offload", CHOICE(offload, place_choices), .initial = "none",
     .help = "where optimizer state and gradients rest, at stage 3 parameters too (with nvme, "
             "gradients rest in host memory)"},
    {"offload-optimizer", CHOICE(offload_optimizer, place_choices), .shown = "as --offload",
     .help = "optimizer state alone"},
    {"offload-param", CHOICE(offload_param, place_choices),
     .shown = "as --offload at stage 3, else none",
     .help = "parameters alone; other than none needs --stage 3"},
    {"offload-grad", CHOICE(offload_grad, grad_places),
     .shown = "none with --offload none or --accumulate-in local, else cpu",
     .help = "gradients alone"},
    {"state", CHOICE(state, state_choices), .initial = "fp32", .help = STATE_HELP},
    {"grad-dtype", CHOICE(grad_dtype, grad_dtype_choices), .initial = "fp32",
     .help = GRAD_DTYPE_HELP},
    {"accumulate-in", CHOICE(accumulate_in, accumulate_choices), .initial = "shard",
     .help = ACCUMULATE_IN_HELP},
    {"nvme-path", TEXT(nvme_path), .value = NVME_PATH_VALUE, .shown = NVME_PATH_SHOWN,
     .help = NVME_PATH_HELP},
    {"host-bytes", SIZE(host_bytes, 0, 0x1p50), .value = "SIZE", .initial = "0",
     .help = "per rank: how much optimizer state stays in host memory although its place is nvme"},
    {"chunk", SIZE(chunk, 64, 0x1p30), .value = "ELEMENTS",
     .shown = "128K in files, else 1M, with --device cuda 4M", .help = CHUNK_HELP},
    {"slots", WHOLE(slots, 2, 64), .value = "K", .shown = SLOTS_SHOWN, .help = SLOTS_HELP},
    {"ring", CHOICE(ring, rings), .initial = "auto",
     .help = "engine for files: io_uring, or pread and pwrite; auto: io_uring where it works"},
    {"verify-spill", FLAG(verify_spill),
     .help = WITH_XXHASH("check every page that is read from files against a checksum of what was "
                         "written; takes memory of 0.2 % of the files")},
    {"data", LIST(data), .value = "PATH...", .initial = "/usr/include",
     .help = "files and folders of text, or token files of llm.c (then the vocabulary is GPT-2's), "
             "up to the next option; every 20th file is held out, of fewer the last 20th of all, "
             "links in folders are left out"},
    {"eval-data", LIST(eval_data), .value = "PATH...", .shown = "a part of --data",
     .help = "held out instead: files and folders of the same kind, which are not trained on where "
             "--data names them as well"},
    {"tokenizer", TEXT(tokenizer), .value = "FILE", .shown = "none",
     .help = "with token files: gpt2_tokenizer.bin of llm.c, to print the sample as text"},
    {"model", CHOICE(model, model_choices), .initial = "d4",
     .help = "size, layers x channels: d4 4x256, d6 6x384, d12 12x768, 1B 20x2048, 2B 40x2048, 3B "
             "60x2048, 4B 64x2304; with GPT-2's vocabulary gpt2 12x768, gpt2-medium 24x1024, "
             "gpt2-large 36x1280, gpt2-xl 48x1600"},
    {"layers", WHOLE(layers, 1, 1024), .value = "L", .shown = "of d4",
     .help = "instead of --model: blocks"},
    {"channels", WHOLE(channels, 1, 65536), .value = "C", .shown = "of d4",
     .help = "instead of --model: width"},
    {"heads", WHOLE(heads, 1, 1024), .value = "H",
     .shown = "channels / 64, or the next fewer that divide them",
     .help = "instead of --model: attention heads, which divide the channels"},
    {"seq", WHOLE(seq, 1, 65536), .value = "T",
     .shown = "d12 256; d4, d6 and own shapes 128; others 1024",
     .help = "tokens (of text: bytes) of a sequence"},
    {"dtype", CHOICE(dtype, dtype_choices), .initial = "bf16",
     .help = "of parameters and gradients; optimizer state is fp32"},
    {"loss-scale", REAL(loss_scale), NOT_NEGATIVE, .value = "X", .initial = "0",
     .help = "what the loss is multiplied by before backward; 0: adapted with fp16, else 1"},
    {"batch", WHOLE(batch, 1, 65536), .value = "B",
     .shown = "d12 4; d4, d6 and own shapes 8; others 1",
     .help = "sequences per rank and micro-step"},
    {"accumulate", WHOLE(accumulate, 1, 65536), .value = "A", .initial = "1",
     .help = "micro-steps per step"},
    {"steps", WHOLE(steps, 1, 1e9), .value = "S", .initial = "100", .help = "updates to make"},
    {"lr", REAL(lr), IN_FP32, .value = "X", .initial = "1e-3", .help = "highest learning rate"},
    {"warmup", WHOLE(warmup, 0, 1e9), .value = "S", .shown = "a tenth of --decay, at most 100",
     .help = "steps over which the learning rate rises"},
    {"decay", WHOLE(decay, 1, 1e9), .value = "S", .shown = "as --steps",
     .help = "step at which the learning rate has fallen, along a cosine, to --final-lr"},
    {"final-lr", REAL(final_lr), .max = 1, .range = "a number from 0 to 1", .value = "F",
     .initial = "0.1", .help = "fraction of --lr that is left at --decay"},
    {"clip", REAL(clip), NOT_NEGATIVE, .value = "X", .initial = "1",
     .help = "gradient norm to clip to; 0: no clipping"},
    {"weight-decay", REAL(weight_decay), IN_FP32, .value = "X", .initial = "0.1",
     .help = "decoupled, of matrices and embeddings"},
    {"l2", FLAG(l2), .help = "weight decay joins the gradient: Adam with L2 instead of AdamW"},
    {"beta1", REAL(beta1), BELOW_ONE, .value = "X", .initial = "0.9",
     .help = "Adam: memory of the mean"},
    {"beta2", REAL(beta2), BELOW_ONE, .value = "X", .initial = "0.95",
     .help = "Adam: memory of the square"},
    {"eps", REAL(eps), ABOVE_0_IN_FP32, .value = "X", .initial = "1e-8",
     .help = "Adam: added to the root of the square"},
    {"seed", SIZE(seed, 0, 0x1p53), .value = "K", .initial = "1",
     .help = "of initial parameters, choice of sequences, and sample"},
    {"recompute", FLAG(recompute),
     .help = "compute each block's forward again in backward, and on a GPU the logits: less "
             "memory, a quarter more time, the same bits"},
    {"device", CHOICE(device, device_choices), .initial = "cpu",
     .help = WITH_CUBLAS("what computes: the CPU, or an NVIDIA GPU for each rank of a node, in "
                         "turn")},
    {"tf32", FLAG(tf32),
     .help = WITH_CUBLAS("with --device cuda and --dtype fp32: products round their operands to "
                         "TF32, which is faster")},
    {"bf16x3", FLAG(bf16x3),
     .help = "with --dtype fp32 on a CPU with AMX: products of three terms of bf16 for each "
             "operand, faster while the cores are yours, as accurate, with bits of their own"},
    {"reduction", CHOICE(reduction, reductions), .initial = "ordered",
     .help = WITH_CUBLAS("who adds gradients up over ranks with --device cuda: the library, in "
                         "their order, or NCCL, in an order and with bits of its own")},
    {"threads", WHOLE(threads, 1, 1024), .value = "K",
     .shown = "the node's CPUs, or a quota's, divided by the ranks that share them",
     .help = "of the model and of the engine, each"},
    {"deadline", WHOLE(deadline, 1, 1e9), .value = "SECONDS", .initial = "300",
     .help = "how long a rank waits for another one"},
    {"eval-every", WHOLE(eval_every, 0, 1e9), .value = "K", .initial = "0",
     .help = "measure the loss of 8 micro-batches of the held-out text, the same ones each time, "
             "every K steps and behind the last; 0, or more than --steps: never"},
    {"log", TEXT(log), .value = "FILE.csv", .shown = "none", .help = "a row of numbers per step"},
    {"trace", TEXT(trace), .value = "FILE.json", .shown = "none",
     .help = "what happened when, on all ranks, but for what GPUs compute, in Chrome's trace "
             "format; in a folder that all nodes share, FILE.json.part until it is whole"},
    {"checkpoint", TEXT(checkpoint), .value = "FILE", .shown = "none",
     .help = "all that the run is goes there at its end and when a signal stops it, 12 bytes a "
             "parameter as safetensors, and where FILE is, the run goes on from it, on any number "
             "of ranks, at any stage and place; FILE.part until it is whole, in a folder that all "
             "nodes share"},
    {"checkpoint-every", WHOLE(checkpoint_every, 0, 1e9), .value = "K", .initial = "0",
     .help = "write --checkpoint every K steps, too; 0: never"},
    {"sample", WHOLE(sample, 0, 1e6), .value = "N", .initial = "160",
     .help = "tokens to write at the end"},
    {"temperature", REAL(temperature), NOT_NEGATIVE, .value = "X", .initial = "0.8",
     .help = "of the sample; 0: always the likeliest token"},
    {"plan", FLAG(plan),
     .help = "print what this job would need, with as many ranks as it is started with, and end; "
             "zero plan says whether a model fits"},
    {"quiet", FLAG(quiet), .help = "print the last line (the digest) only"},
    {"help", FLAG(help), .help = "print this and end"},
};
enum { OPTIONS = sizeof(table) / sizeof(*table) };

/* Where the sentence goes, and which options appeared. */
struct check {
    const bool *given;
    struct sink sink;
};

static bool was_given(const struct check *c, const char *name)
{
    return c->given[options_index(table, OPTIONS, name)];
}

static int resolve_shape(struct arguments *a, struct check *c)
{
    const char *parts[] = {"layers", "channels", "heads"};
    for (int i = 0; i < 3; i++)
        if (was_given(c, "model") && was_given(c, parts[i]))
            return refuse(c->sink,
                          "--model %s and --%s contradict each other. Give the model's name, or "
                          "--layers, --channels and --heads.",
                          models[a->model].name, parts[i]);
    const struct model *m = &models[a->model];
    int channels = a->channels ? a->channels : m->channels;
    int heads = a->heads ? a->heads : model_heads(m, channels);
    if (channels % heads)
        return refuse(c->sink,
                      "--channels %d cannot be divided among %d heads. Give --channels a "
                      "multiple of --heads.",
                      channels, heads);
    a->shape = (struct gpt_shape){.layers = a->layers ? a->layers : m->layers,
                                  .channels = channels,
                                  .heads = heads,
                                  .seq = a->seq ? a->seq : m->seq,
                                  .vocab = m->vocab};
    if (!a->batch)
        a->batch = m->batch;
    int64_t tokens = (int64_t)a->batch * a->shape.seq;
    if (tokens > GPT_TOKENS_MAX)
        return refuse(c->sink,
                      "--batch %d of --seq %d are %lld tokens at once, but at most %d are "
                      "possible. Give a smaller --batch and a larger --accumulate.",
                      a->batch, a->shape.seq, (long long)tokens, GPT_TOKENS_MAX);
    return 0;
}

static int check_loss_scale(const struct arguments *a, struct check *c)
{
    if (a->loss_scale == 0 || (a->loss_scale >= 0x1p-64 && a->loss_scale <= 0x1p64))
        return 0;
    return refuse(c->sink,
                  "--loss-scale is %g, and can be 2^-64 (5.4e-20) to 2^64 (1.8e19), or 0 for one "
                  "that is adapted with fp16 and 1 otherwise. Give one of these.",
                  a->loss_scale);
}

int arguments_state_place(const struct arguments *a)
{
    return a->offload_optimizer ? a->offload_optimizer : a->offload;
}

bool arguments_ask_for_files(const struct arguments *a)
{
    int param = a->offload_param ? a->offload_param : a->offload;
    return arguments_state_place(a) == ZERO_NVME || (a->stage == 3 && param == ZERO_NVME);
}

/* The option that puts optimizer state into files, beside those that were given. */
static const char *option_of_files(const struct arguments *a)
{
    return a->offload_optimizer ? "--offload-optimizer" : "--offload";
}

static int check_engine(const struct arguments *a, struct check *c)
{
    int state = arguments_state_place(a);
    if (a->stage < 3 && a->offload_param > ZERO_DEVICE)
        return refuse(c->sink,
                      "--offload-param %s contradicts --stage %d, where every rank keeps whole "
                      "parameters. Give --stage 3, or leave --offload-param out.",
                      options_choice_name(place_choices, a->offload_param), a->stage);
    if (a->host_bytes > 0 && state != ZERO_NVME)
        return refuse(c->sink,
                      "--host-bytes %lld is for optimizer state on nvme, but its place is %s. "
                      "Give %s nvme, or leave --host-bytes out.",
                      (long long)a->host_bytes, options_choice_name(place_choices, state),
                      option_of_files(a));
    if (a->state == ZERO_STATE_SPLIT && a->dtype != ZERO_BF16)
        return refuse(c->sink,
                      "--state split keeps half of the master in a bf16 weight, but --dtype is %s. "
                      "Give --dtype bf16, or leave --state out.",
                      arguments_dtype(a));
    if (a->accumulate_in == ZERO_LOCAL && a->stage > 1)
        return refuse(c->sink,
                      "--accumulate-in local contradicts --stage %d, where no rank has room for "
                      "whole gradient sums. Give --stage 0 or 1, or leave --accumulate-in out.",
                      a->stage);
    if (a->accumulate_in == ZERO_LOCAL && a->offload_grad == ZERO_HOST)
        return refuse(c->sink, "--accumulate-in local keeps whole gradient sums on the device, and "
                               "--offload-grad is cpu. Leave one of them out.");
    if (a->tf32 && (a->device != ZERO_CUDA || a->dtype != ZERO_FP32))
        return refuse(c->sink,
                      "--tf32 is for products of fp32 on a GPU, but --device is %s and --dtype %s. "
                      "Give --device cuda --dtype fp32, or leave --tf32 out.",
                      a->device == ZERO_CUDA ? "cuda" : "cpu", arguments_dtype(a));
    if (a->bf16x3 && (a->device != ZERO_CPU || a->dtype != ZERO_FP32))
        return refuse(c->sink,
                      "--bf16x3 is for products of fp32 on a CPU, but --device is %s and --dtype "
                      "%s. Give --device cpu --dtype fp32, or leave --bf16x3 out.",
                      a->device == ZERO_CUDA ? "cuda" : "cpu", arguments_dtype(a));
    if (a->reduction == ZERO_REDUCE_NCCL && a->device == ZERO_CPU)
        return refuse(c->sink,
                      "--reduction nccl is for gradients on GPUs, but --device is cpu. Give "
                      "--device cuda, or leave --reduction out.");
    if (a->device == ZERO_CUDA && a->shape.channels / a->shape.heads > GPT_GPU_HEAD_MAX)
        return refuse(
            c->sink,
            "--heads %d have %d channels each, but on a GPU at most %d are possible. Give more "
            "--heads, or --device cpu.",
            a->shape.heads, a->shape.channels / a->shape.heads, GPT_GPU_HEAD_MAX);
    const char *const written[][2] = {
        {"log", a->log}, {"trace", a->trace}, {"checkpoint", a->checkpoint}};
    for (int i = 0; i < 3; i++) {
        const char *const *one = written[i], *const *other = written[(i + 1) % 3];
        if (one[1] && other[1] && !strcmp(one[1], other[1]))
            return refuse(c->sink, "--%s and --%s are both %s. Give each a file of its own.",
                          one[0], other[0], one[1]);
    }
    if (a->checkpoint_every && !a->checkpoint)
        return refuse(c->sink,
                      "--checkpoint-every %d says how often, but --checkpoint is missing. Give it "
                      "a file, or leave --checkpoint-every out.",
                      a->checkpoint_every);
    if (a->chunk % 64)
        return refuse(c->sink, "--chunk %lld is not a multiple of 64. Give %lld.",
                      (long long)a->chunk, (long long)(a->chunk / 64 * 64));
    return 0;
}

/* --nvme-path may stand in every job file of a site: what is without files passes it over. */
static int check_files(const struct arguments *a, struct check *c)
{
    const char *ring = a->ring == ZERO_RING_POSIX   ? "--ring posix"
                       : a->ring == ZERO_RING_URING ? "--ring uring"
                                                    : NULL;
    const char *given = ring ? ring : a->verify_spill ? "--verify-spill" : NULL;
    if (given && !arguments_ask_for_files(a))
        return refuse(c->sink,
                      "%s is for files, but neither optimizer state nor parameters are on nvme. "
                      "Give %s nvme, or leave %.*s out.",
                      given, option_of_files(a), (int)strcspn(given, " "), given);
    return 0;
}

static int check_eval(const struct arguments *a, struct check *c)
{
    if (a->eval_every || !a->eval_data.count)
        return 0;
    return refuse(c->sink, "--eval-data is for --eval-every, but that is 0. Give --eval-every K, "
                           "or leave --eval-data out.");
}

static int resolve_schedule(struct arguments *a, struct check *c)
{
    if (!was_given(c, "decay"))
        a->decay = a->steps;
    if (!was_given(c, "warmup"))
        a->warmup = a->decay / 10 < 100 ? a->decay / 10 : 100;
    if (a->warmup > a->decay)
        return refuse(c->sink,
                      "--warmup %d goes beyond step %d, where --decay ends. Give a shorter "
                      "--warmup or a longer --decay.",
                      a->warmup, a->decay);
    return 0;
}

int arguments_parse(struct arguments *a, int argc, char **argv, char *error, size_t error_size)
{
    bool given[OPTIONS];
    struct check c = {.given = given, .sink = {error, error_size}};
    *a = (struct arguments){0};
    if (options_parse(table, OPTIONS, argc, argv, a, given, error, error_size))
        return a->help ? 0 : -1;
    if (a->help)
        return 0;
    if (resolve_shape(a, &c) || check_loss_scale(a, &c) || check_engine(a, &c) ||
        check_files(a, &c) || check_eval(a, &c))
        return -1;
    return resolve_schedule(a, &c);
}

void arguments_help(FILE *out)
{
    fputs("usage: mpirun -n RANKS build/gpt2 [options]\n\n"
          "Trains a GPT on bytes of text or on tokens, its state sharded over the ranks, offloaded "
          "as asked.\n"
          "It gives the same bits at every stage, place, chunk size and number of threads, and on "
          "any\n"
          "number of ranks as long as ranks x accumulate, --batch and --seed stay the same. Other "
          "bits come\n"
          "from --grad-dtype bf16, --accumulate-in local, --reduction nccl, --tf32, --bf16x3, "
          "another\n"
          "type of GPU, and in bf16 a CPU with AMX instead of one without (zero help law).\n"
          "SIGTERM or SIGINT to any rank ends all after the step under way, with exit status 128 + "
          "signal;\n"
          "another, a second later or more, ends it at once.\n\n",
          out);
    options_help(table, OPTIONS, out);
}

const char *arguments_dtype(const struct arguments *a)
{
    return options_choice_name(dtype_choices, a->dtype);
}

const char *arguments_model(const struct arguments *a)
{
    return a->layers || a->channels || a->heads ? "own" : models[a->model].name;
}

bool arguments_scale_adapts(const struct arguments *a)
{
    return a->dtype == ZERO_FP16 && a->loss_scale == 0;
}

struct gpt_config arguments_model_config(const struct arguments *a, int threads)
{
    return (struct gpt_config){.shape = a->shape,
                               .dtype = (enum zero_dtype)a->dtype,
                               .batch = a->batch,
                               .threads = threads,
                               .recompute = a->recompute,
                               .device = (enum zero_device)a->device,
                               .tf32 = a->tf32};
}

struct zero_config arguments_config(const struct arguments *a)
{
    return (struct zero_config){
        .size = sizeof(struct zero_config),
        .stage = a->stage,
        .dtype = (enum zero_dtype)a->dtype,
        .device = (enum zero_device)a->device,
        .offload = (enum zero_place)a->offload,
        .offload_optimizer = (enum zero_place)a->offload_optimizer,
        .offload_param = (enum zero_place)a->offload_param,
        .offload_grad = (enum zero_place)a->offload_grad,
        .state = (enum zero_state)a->state,
        .grad_dtype = (enum zero_dtype)a->grad_dtype,
        .accumulate_in = (enum zero_accumulate)a->accumulate_in,
        .reduction = (enum zero_reduction)a->reduction,
        .accumulate = a->accumulate,
        .loss_scale = a->loss_scale,
        .nvme_path = a->nvme_path,
        .host_bytes = a->host_bytes,
        .chunk = a->chunk,
        .chunk_slots = a->slots,
        .ring = (enum zero_ring)a->ring,
        .verify_spill = a->verify_spill,
        .threads = a->threads,
        .deadline_seconds = a->deadline,
    };
}

/* From 1 to 0 as the cosine goes from 0 to pi: the square of that of half the angle, by Taylor's
 * series, as ranks must agree in the last bit and C libraries need not. */
static double half_cosine(double part)
{
    double x = 3.14159265358979323846 / 2 * part, term = 1, cosine = 1;
    for (int n = 2; n <= 22; n += 2) {
        term *= -x * x / (n * (n - 1));
        cosine += term;
    }
    return cosine * cosine;
}

double arguments_lr(const struct arguments *a, int64_t step)
{
    assert(step >= 0);
    if (step < a->warmup)
        return a->lr * (double)(step + 1) / a->warmup;
    if (step >= a->decay)
        return a->lr * a->final_lr;
    double part = (double)(step - a->warmup) / (a->decay - a->warmup);
    return a->lr * (a->final_lr + (1 - a->final_lr) * half_cosine(part));
}

int arguments_alike(const struct arguments *a, struct argument_value out[ARGUMENTS_ALIKE])
{
    const struct argument_value values[] = {
        {"--layers", a->shape.layers, true, ARGUMENT_OF_MODEL},
        {"--channels", a->shape.channels, true, ARGUMENT_OF_MODEL},
        {"--heads", a->shape.heads, true, ARGUMENT_OF_MODEL},
        {"--seq", a->shape.seq, true, ARGUMENT_OF_MODEL},
        {"kind of --data (vocabulary)", a->shape.vocab, true, ARGUMENT_OF_MODEL},
        {"--batch", a->batch, true, ARGUMENT_OF_STEPS},
        {"--accumulate", a->accumulate, true, ARGUMENT_OF_RUN},
        {"--steps", a->steps, true, ARGUMENT_OF_RUN},
        {"--warmup", a->warmup, true, ARGUMENT_OF_STEPS},
        {"--decay", a->decay, true, ARGUMENT_OF_STEPS},
        {"--lr", a->lr, true, ARGUMENT_OF_STEPS},
        {"--final-lr", a->final_lr, true, ARGUMENT_OF_STEPS},
        {"--clip", a->clip, true, ARGUMENT_OF_STEPS},
        {"--loss-scale", a->loss_scale, true, ARGUMENT_OF_STEPS},
        {"--weight-decay", a->weight_decay, true, ARGUMENT_OF_STEPS},
        {"--beta1", a->beta1, true, ARGUMENT_OF_STEPS},
        {"--beta2", a->beta2, true, ARGUMENT_OF_STEPS},
        {"--eps", a->eps, true, ARGUMENT_OF_STEPS},
        {"--eval-data", a->eval_data.count > 0, false, ARGUMENT_OF_RUN},
        {"--eval-every", a->eval_every, true, ARGUMENT_OF_RUN},
        {"--sample", a->sample, true, ARGUMENT_OF_RUN},
        {"--temperature", a->temperature, true, ARGUMENT_OF_RUN},
        {"--seed", (double)a->seed, true, ARGUMENT_OF_STEPS},
        {"--quiet", a->quiet, false, ARGUMENT_OF_RUN},
        {"--log", a->log != NULL, false, ARGUMENT_OF_RUN},
        {"--tokenizer", a->tokenizer != NULL, false, ARGUMENT_OF_RUN},
        {"--trace", a->trace != NULL, false, ARGUMENT_OF_RUN},
        {"--checkpoint", a->checkpoint != NULL, false, ARGUMENT_OF_RUN},
        {"--checkpoint-every", a->checkpoint_every, true, ARGUMENT_OF_RUN},
        {"--dtype", a->dtype, false, ARGUMENT_OF_STEPS},
        {"--grad-dtype", a->grad_dtype, false, ARGUMENT_OF_STEPS},
        {"--accumulate-in", a->accumulate_in, false, ARGUMENT_OF_STEPS},
        {"--reduction", a->reduction, false, ARGUMENT_OF_STEPS},
        {"--l2", a->l2, true, ARGUMENT_OF_STEPS},
        {"--device", a->device, false, ARGUMENT_OF_STEPS},
        {"--tf32", a->tf32, false, ARGUMENT_OF_STEPS},
        {"--bf16x3", a->bf16x3, false, ARGUMENT_OF_STEPS},
    };
    static_assert(sizeof(values) / sizeof(*values) == ARGUMENTS_ALIKE, "all of them");
    memcpy(out, values, sizeof(values));
    return ARGUMENTS_ALIKE;
}
