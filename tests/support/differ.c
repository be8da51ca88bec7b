// SPDX-License-Identifier: Apache-2.0
#include "tests/support/differ.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/toy.h"

#define DEADLINE 60 /* seconds: a case that ends so has hung */

static const struct zero_adam adam = {.lr = 0.05, .beta1 = .9, .beta2 = .95, .eps = 1e-8};

static const char *wrong(const char *format, ...)
{
    static _Thread_local char text[768];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return text;
}

/* ------------------------------------------------------------ at creation */

struct model {
    struct zero_param params[TOY_TENSORS];
    int count;
    struct zero_config config;
};

static void fewer(struct model *m)
{
    m->count--;
}

static void shape(struct model *m) /* as many elements */
{
    m->params[0].shape[0] = 40;
    m->params[0].shape[1] = 37;
}

static void dimensions(struct model *m) /* as many elements */
{
    m->params[1].ndim = 2;
    m->params[1].shape[1] = 1;
}

static void larger(struct model *m)
{
    m->params[3].shape[0]++;
}

static void order(struct model *m)
{
    struct zero_param p = m->params[1];
    m->params[1] = m->params[7];
    m->params[7] = p;
}

static void name(struct model *m)
{
    m->params[2].name = "block.weights";
}

static void unit(struct model *m)
{
    m->params[7].unit = 1;
}

static void group(struct model *m)
{
    m->params[2].group = 1;
}

static void decay(struct model *m)
{
    m->params[2].flags = ZERO_NO_DECAY;
}

static void frozen(struct model *m)
{
    m->params[2].flags = ZERO_FROZEN;
}

static void no_fill(struct model *m)
{
    m->params[2].fill = NULL;
}

/* Gives the third tensor a fill of its own, for a change. */
static struct zero_normal *own_fill(struct model *m)
{
    static struct zero_normal own;
    own = *(struct zero_normal *)m->params[2].fill_arg;
    m->params[2].fill_arg = &own;
    return &own;
}

static void fill(struct model *m)
{
    own_fill(m)->seed++;
}

static void mean(struct model *m)
{
    own_fill(m)->mean = 0.25f;
}

static void deviation(struct model *m)
{
    own_fill(m)->std *= 2;
}

static void dtype(struct model *m)
{
    m->config.dtype = ZERO_FP32;
}

static void stage(struct model *m)
{
    m->config.stage = 2;
}

static void device(struct model *m)
{
    m->config.device = ZERO_CUDA;
}

static void place(struct model *m)
{
    m->config.offload = ZERO_HOST;
}

static void place_of_params(struct model *m)
{
    m->config.offload_param = ZERO_DEVICE;
}

static void place_of_grads(struct model *m)
{
    m->config.offload_grad = ZERO_DEVICE;
}

static void state(struct model *m)
{
    m->config.state = ZERO_STATE_SPLIT;
}

static void grad_dtype(struct model *m)
{
    m->config.grad_dtype = ZERO_BF16;
}

static void micro_steps(struct model *m)
{
    m->config.accumulate = 2;
}

static void loss_scale(struct model *m)
{
    m->config.loss_scale = 2;
}

#ifdef HAVE_XXHASH
static void verify_spill(struct model *m)
{
    m->config.verify_spill = true;
}
#endif

static void host_bytes(struct model *m)
{
    m->config.host_bytes = 1 << 20;
}

static void chunk(struct model *m)
{
    m->config.chunk = 64;
}

static void chunk_slots(struct model *m)
{
    m->config.chunk_slots = 5;
}

static void gather_slots(struct model *m)
{
    m->config.gather_slots = 2;
}

static void grad_slots(struct model *m)
{
    m->config.grad_slots = 2;
}

#define MODEL "another model" /* the words say how two ranks describe one tensor */

/* Of a configuration says names the field, and two ranks have these values. */
static const struct creation {
    const char *says;
    void (*differ)(struct model *m);
    const char *odd, *usual;
} creations[] = {
    {MODEL, fewer, "'missing'",
     "late (130), unit 0, group 0, fill normal, seed 7, stream 7, mean 0, std 0.5"},
    {MODEL, shape, "embed (40, 37)", "embed (37, 40)"},
    {MODEL, dimensions, "embed.bias (77, 1)", "embed.bias (77)"},
    {MODEL, larger, "block.bias (65)", "block.bias (64)"},
    {MODEL, order, "params[1] is ", "embed.bias (77)"},
    {MODEL, name, "block.weights (", "block.weight ("},
    {MODEL, unit, "late (130), unit 1", "late (130), unit 0"},
    {MODEL, group, "unit 1, group 1", "unit 1, group 0"},
    {MODEL, decay, "group 0, no decay, fill", "group 0, fill"},
    {MODEL, frozen, "group 0, frozen, fill", "group 0, fill"},
    {MODEL, no_fill, "fill none", "fill normal"},
    {MODEL, fill, "seed 8", "seed 7"},
    {MODEL, mean, "mean 0.25", "mean 0,"},
    {MODEL, deviation, "std 1", "std 0.5"},
    {".dtype", dtype, "fp32", "bf16"},
    {".stage", stage, "2", "3"},
    {".device", device, "cuda", "cpu"},
    {"the place of optimizer state", place, "host", "nvme"},
    {"the place of parameters", place_of_params, "device", "nvme"},
    {".chunk", chunk, "64", "128"},
    {"the place of gradients", place_of_grads, "device", "host"},
    {".chunk_slots", chunk_slots, "5", "32"},
    {".host_bytes", host_bytes, "1048576", "0"},
    {".gather_slots", gather_slots, "2", "3"},
    {".grad_slots", grad_slots, "2", "3"},
    {".state", state, "split", "fp32"},
    {".grad_dtype", grad_dtype, "bf16", "fp32"},
    {".accumulate", micro_steps, "2", "1"},
    {".loss_scale", loss_scale, "2", "1"},
#ifdef HAVE_XXHASH
    {".verify_spill", verify_spill, "true", "false"},
#endif
};
const int differ_creations = sizeof(creations) / sizeof(*creations);

const char *differ_create(struct zero_comm *comm, int i, bool odd, bool *named)
{
    const struct creation *c = &creations[i];
    struct model m = {.count = TOY_TENSORS,
                      .config = {.size = sizeof(m.config),
                                 .stage = 3,
                                 .offload = ZERO_NVME,
                                 .dtype = ZERO_BF16,
                                 .chunk = 128,
                                 .threads = 1,
                                 .comm = comm,
                                 .deadline_seconds = DEADLINE}};
    struct zero *z;
    const char *bad = NULL;
    toy_describe(m.params);
    if (odd)
        c->differ(&m);
    int status = zero_create(&z, m.params, m.count, &m.config);
    bool model = strcmp(c->says, MODEL) == 0;
    char says[96], mine[48];
    snprintf(says, sizeof(says), "%s%s", model ? "" : "Ranks differ in ", c->says);
    snprintf(mine, sizeof(mine), ", rank %d has %s. Make it equal", comm->rank,
             odd ? c->odd : c->usual);
    *named = strstr(zero_last_error(z), says) &&
             (model ? strstr(zero_last_error(z), c->odd) && strstr(zero_last_error(z), c->usual)
                    : strstr(zero_last_error(z), mine) != NULL);
    if (status != ZERO_ERR_MISMATCH || !*named)
        bad = wrong("creation %d: %s: '%s', not '%s'", i, zero_status_name(status),
                    zero_last_error(z), says);
    zero_destroy(z);
    return bad;
}

/* ------------------------------------------------------------- in the calls */

static int reduce_all(struct zero *z)
{
    int status = ZERO_OK;
    for (int u = TOY_UNITS - 1; !status && u >= 0; u--)
        status = zero_reduce(z, u);
    return status;
}

static int unit_acquired(struct zero *z, bool odd)
{
    int u = odd ? 1 : 0, status = zero_acquire(z, u);
    return status ? status : zero_release(z, u);
}

static int release_left_out(struct zero *z, bool odd)
{
    int status = zero_acquire(z, 0);
    if (!status)
        status = zero_acquire(z, 0);
    if (!status)
        status = zero_release(z, 0);
    return status || odd ? status : zero_release(z, 0);
}

static int reduced_unit(struct zero *z, bool odd)
{
    return zero_reduce(z, odd ? 2 : 1);
}

static int one_more_reduce(struct zero *z, bool odd)
{
    int status = reduce_all(z);
    return status || !odd ? status : zero_reduce(z, 2);
}

static int step_or_digest(struct zero *z, bool odd)
{
    struct zero_digest digest;
    int status = zero_set_accumulate(z, 1);
    if (!status && !odd)
        status = reduce_all(z);
    if (!status)
        status = odd ? zero_digest(z, &digest) : zero_step(z, NULL);
    return status;
}

static int step_or_read(struct zero *z, bool odd)
{
    float x;
    int status = zero_set_accumulate(z, 1);
    if (!status)
        status = reduce_all(z);
    if (!status)
        status = odd ? zero_read(z, 0, ZERO_GRAD, 0, 1, &x) : zero_step(z, NULL);
    return status;
}

/* The odd rank's hyper-parameters of a group differ in one field. */
#define ADAM_DIFFERS(field, group, value)                                                          \
    static int field(struct zero *z, bool odd)                                                     \
    {                                                                                              \
        struct zero_adam other = adam;                                                             \
        other.field = value;                                                                       \
        return zero_set_adam(z, group, odd ? &other : &adam);                                      \
    }

ADAM_DIFFERS(lr, 0, 0.06)
ADAM_DIFFERS(beta1, 1, 0.8)
ADAM_DIFFERS(beta2, 1, 0.8)
ADAM_DIFFERS(eps, 0, 1e-9)
ADAM_DIFFERS(weight_decay, 0, 0.1)
ADAM_DIFFERS(l2, 0, true)

static int adam_group(struct zero *z, bool odd)
{
    return zero_set_adam(z, odd ? 1 : 0, &adam);
}

static int adam_not_set(struct zero *z, bool odd)
{
    return odd ? ZERO_OK : zero_set_adam(z, 0, &adam);
}

static int clip(struct zero *z, bool odd)
{
    return zero_set_clip(z, odd ? 1 : 2);
}

static int progress(struct zero *z, bool odd)
{
    return zero_set_progress(z, &(struct zero_progress){.steps = odd ? 1 : 2, .loss_scale = 1});
}

static int progress_scale(struct zero *z, bool odd)
{
    return zero_set_progress(z, &(struct zero_progress){.steps = 1, .loss_scale = odd ? 1 : 2});
}

static int progress_forgiven(struct zero *z, bool odd)
{
    return zero_set_progress(z, &(struct zero_progress){.loss_scale = 1, .forgiven = odd});
}

static int accumulate(struct zero *z, bool odd)
{
    return zero_set_accumulate(z, odd ? 3 : 2);
}

static int phase(struct zero *z, bool odd)
{
    return odd ? zero_phase(z, ZERO_EVAL) : ZERO_OK;
}

static int discard(struct zero *z, bool odd)
{
    int status = zero_reduce(z, 2);
    return status || !odd ? status : zero_discard(z);
}

static int read_tensor(struct zero *z, bool odd)
{
    float x[4];
    return zero_read(z, odd ? 1 : 0, ZERO_MASTER, 0, 4, x);
}

static int read_what(struct zero *z, bool odd)
{
    float x[4];
    return zero_read(z, 0, odd ? ZERO_MOMENT1 : ZERO_MASTER, 0, 4, x);
}

static int read_first(struct zero *z, bool odd)
{
    float x[4];
    return zero_read(z, 0, ZERO_MASTER, odd ? 700 : 0, 4, x);
}

static int read_count(struct zero *z, bool odd)
{
    float x[1000];
    return zero_read(z, 0, ZERO_MASTER, 0, odd ? 1000 : 4, x);
}

static int write_first(struct zero *z, bool odd)
{
    return zero_write(z, 0, ZERO_MASTER, odd ? 4 : 0, 4, (const float[4]){0});
}

static int written_value(struct zero *z, bool odd)
{
    return zero_write(z, 0, ZERO_MOMENT2, 0, 1, &(float){odd ? 1 : 2});
}

static int write_or_read(struct zero *z, bool odd)
{
    float x = 1;
    return odd ? zero_write(z, 0, ZERO_MASTER, 0, 1, &x) : zero_read(z, 0, ZERO_MASTER, 0, 1, &x);
}

static int (*const calls[])(struct zero *z, bool odd) = {
    unit_acquired,
    release_left_out,
    reduced_unit,
    one_more_reduce,
    step_or_digest,
    step_or_read,
    lr,
    beta1,
    beta2,
    eps,
    weight_decay,
    l2,
    adam_group,
    adam_not_set,
    clip,
    progress,
    progress_scale,
    progress_forgiven,
    accumulate,
    phase,
    discard,
    read_tensor,
    read_what,
    read_first,
    read_count,
    write_first,
    written_value,
    write_or_read,
};
const int differ_calls = sizeof(calls) / sizeof(*calls);

const char *differ_call(struct zero_comm *comm, int stage_, int i, bool odd, bool *named)
{
    struct zero_param params[TOY_TENSORS];
    struct zero_config c = {.size = sizeof(c),
                            .stage = stage_,
                            .offload = ZERO_HOST,
                            .accumulate = 2,
                            .chunk = 128,
                            .threads = 1,
                            .comm = comm,
                            .deadline_seconds = DEADLINE};
    struct zero *z;
    const char *bad = NULL;
    char first[512];
    double mean;
    toy_describe(params);
    int status = zero_create(&z, params, TOY_TENSORS, &c);
    for (int g = 0; !status && g < 2; g++)
        status = zero_set_adam(z, g, &adam);
    if (!status)
        status = calls[i](z, odd);
    if (!status) /* the next message */
        status = zero_mean(z, &(double){1}, 1, &mean);
    snprintf(first, sizeof(first), "%s", zero_last_error(z));
    *named = status == ZERO_ERR_MISMATCH;
    if (!*named && !(status == ZERO_ERR_COMM && strstr(first, "gave up before message")))
        bad = wrong("call %d at stage %d: %s: '%s'", i, stage_, zero_status_name(status), first);
    else if (zero_acquire(z, 0) != status || strcmp(zero_last_error(z), first) != 0)
        bad = wrong("call %d: '%s' does not last", i, first);
    zero_destroy(z);
    return bad;
}
