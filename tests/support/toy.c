// SPDX-License-Identifier: Apache-2.0
/* The toy model and its training loop over thread ranks. */
#include "tests/support/toy.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/fp16.h"
#include "tests/support/random.h"
#include "tests/support/ranks.h"

#define FILL(stream)                                                                               \
    {                                                                                              \
        7, stream, 0, 0.5f                                                                         \
    }
static struct zero_normal fills[TOY_TENSORS_ALL] = {FILL(0), FILL(1), FILL(2),  FILL(3),
                                                    FILL(4), FILL(5), FILL(6),  FILL(7),
                                                    FILL(8), FILL(9), FILL(10), FILL(11)};

static const struct zero_param shapes[TOY_TENSORS_ALL] = {
    {.name = "embed", .unit = 0, .ndim = 2, .shape = {37, 40}},
    {.name = "embed.bias", .unit = 0, .ndim = 1, .shape = {77}, .flags = ZERO_NO_DECAY},
    {.name = "block.weight", .unit = 1, .ndim = 3, .shape = {5, 13, 20}},
    {.name = "block.bias", .unit = 1, .ndim = 1, .shape = {64}, .flags = ZERO_NO_DECAY},
    {.name = "block.scale", .unit = 1, .ndim = 0},
    {.name = "head.bias", .unit = 2, .ndim = 1, .shape = {3}, .group = 1, .flags = ZERO_NO_DECAY},
    {.name = "head.weight", .unit = 2, .ndim = 2, .shape = {40, 25}, .group = 1},
    {.name = "late", .unit = 0, .ndim = 1, .shape = {130}}, /* declared after other units' */
    {.name = "block.frozen", .unit = 1, .ndim = 2, .shape = {9, 31}, .flags = ZERO_FROZEN},
    {.name = "empty", .unit = 2, .ndim = 2, .shape = {0, 5}},
    {.name = "table", .unit = 3, .ndim = 1, .shape = {1500}, .flags = ZERO_FROZEN},
    {.name = "embed.frozen", .unit = 0, .ndim = 1, .shape = {65}, .flags = ZERO_FROZEN},
};

static void describe(struct zero_param *params, int count)
{
    memcpy(params, shapes, (size_t)count * sizeof(*shapes));
    for (int i = 0; i < count; i++) {
        params[i].fill = zero_fill_normal;
        params[i].fill_arg = &fills[i];
    }
}

void toy_describe(struct zero_param params[TOY_TENSORS])
{
    describe(params, TOY_TENSORS);
}

void toy_describe_all(struct zero_param params[TOY_TENSORS_ALL])
{
    describe(params, TOY_TENSORS_ALL);
}

static int64_t elements(int tensor)
{
    int64_t n = 1;
    for (int d = 0; d < shapes[tensor].ndim; d++)
        n *= shapes[tensor].shape[d];
    return n;
}

static float load(const void *data, enum zero_dtype dtype, int64_t i)
{
    if (dtype == ZERO_FP32)
        return ((const float *)data)[i];
    uint16_t half = ((const uint16_t *)data)[i];
    return dtype == ZERO_BF16 ? bf16_to_float(half) : fp16_to_float(half);
}

static void store(void *data, enum zero_dtype dtype, int64_t i, float x)
{
    if (dtype == ZERO_BF16)
        ((uint16_t *)data)[i] = bf16_from_float(x);
    else if (dtype == ZERO_FP16)
        ((uint16_t *)data)[i] = fp16_from_float(x);
    else
        ((float *)data)[i] = x;
}

/* In [-0.5, 0.5), different for each element and micro-batch. */
static float noise(int64_t batch, int tensor, int64_t i)
{
    return (float)(random_mix((uint64_t)batch << 40 ^ (uint64_t)tensor << 32 ^ (uint64_t)i) >> 40) *
               0x1p-24f -
           0.5f;
}

#define HEAD ((int64_t)1 << 20) /* added to the micro-batch's number for the tied head's part */

const struct toy_apart *toy_apart;

/* The gradient depends on the gathered parameters, and is small in every other twelve
 * micro-batches, so that clipping is active in some steps. */
static void backward(const struct toy_task *t)
{
    float size = t->batch % HEAD / 12 % 2 ? 0.002f : 0.5f;
    for (int64_t i = 0; i < t->elements; i++) {
        float h = noise(t->batch, t->tensor, i);
        float d = size * (h + load(t->w, t->dtype, i) * h * h);
        store(t->g, t->dtype, i, load(t->g, t->dtype, i) + t->scale * d);
    }
    if (t->poison)
        store(t->g, t->dtype, t->elements / 2, __builtin_inff());
}

int toy_create(struct zero **z, struct zero_comm *comm, struct zero_config config, bool rare,
               const struct zero_adam *adam)
{
    struct zero_param params[TOY_TENSORS_ALL];
    if (rare)
        toy_describe_all(params);
    else
        toy_describe(params);
    config.size = sizeof(config);
    config.comm = comm;
    config.threads = 1;
    int status = zero_create(z, params, rare ? TOY_TENSORS_ALL : TOY_TENSORS, &config);
    for (int g = 0; !status && g < 2; g++)
        status = zero_set_adam(*z, g, adam);
    return status;
}

void toy_compute(const struct toy_task *t)
{
    if (t->g)
        backward(t);
    for (int64_t i = 0; t->loss && i < t->elements; i += 7)
        *t->loss += load(t->w, t->dtype, i) * noise(t->batch, t->tensor, i);
}

/* Where the device does. */
static void compute(struct zero *z, struct toy_task t)
{
    t.dtype = z->plan.set.dtype;
    t.elements = elements(t.tensor);
    t.scale = (float)zero_loss_scale(z);
    if (z->plan.device_apart)
        toy_apart->compute(z, &t);
    else
        toy_compute(&t);
}

/* Adds this micro-batch's gradient of one tensor. */
static int add_gradient(struct zero *z, int tensor, int64_t batch, bool poison)
{
    const void *w = zero_param_data(z, tensor);
    void *g = zero_grad_data(z, tensor);
    if (!w || !g)
        return z->error.status;
    compute(z,
            (struct toy_task){.tensor = tensor, .batch = batch, .poison = poison, .w = w, .g = g});
    return ZERO_OK;
}

static bool rare(const struct zero *z)
{
    return z->layout.count == TOY_TENSORS_ALL;
}

/* Which tensors a micro-batch touches: without rarities all but one. */
static bool touched(const struct zero *z, int tensor, int64_t batch)
{
    bool unit = batch % 5 || shapes[tensor].unit != 2; /* sometimes a unit not at all */
    bool always = !rare(z) || (unit && (batch % 3 || tensor != 3));
    return tensor != 1 && !(shapes[tensor].flags & ZERO_FROZEN) && always;
}

static int forward_unit(struct zero *z, int unit, int64_t batch, double *loss)
{
    int status = zero_acquire(z, unit);
    for (int t = 0; !status && t < z->layout.count; t++) {
        if (shapes[t].unit != unit)
            continue;
        const void *w = zero_param_data(z, t);
        if (w)
            compute(z, (struct toy_task){.tensor = t, .batch = batch, .w = w, .loss = loss});
    }
    return status ? status : zero_release(z, unit);
}

static int backward_unit(struct zero *z, int unit, int64_t batch, bool poison)
{
    int status = zero_acquire(z, unit);
    for (int t = 0; !status && t < z->layout.count; t++)
        if (shapes[t].unit == unit && touched(z, t, batch % HEAD))
            status = add_gradient(z, t, batch, poison && t == 2);
    return status ? status : zero_release(z, unit);
}

/* The i-th unit whose gradients are complete, in micro-step number of all ranks. */
static int nth_complete(enum toy_order order, int64_t number, int i, int units)
{
    switch (order) {
    case TOY_FIRST_TO_LAST: return i;
    case TOY_IN_TURN: return (int)((number + i) % units);
    default: return units - 1 - i;
    }
}

static int micro_step(struct zero *z, int64_t batch, bool poison, enum toy_order order,
                      double *loss)
{
    int status = 0, units = rare(z) ? TOY_UNITS_ALL : TOY_UNITS;
    for (int u = 0; !status && u < units; u++)
        status = forward_unit(z, u, batch, loss);
    if (!status) /* a tied head: unit 0 again, its gradient slot held to the end */
        status = backward_unit(z, 0, batch + HEAD, false);
    for (int i = 0; !status && i < units; i++) {
        int u = nth_complete(order, batch / zero_size(z), i, units);
        status = backward_unit(z, u, batch, poison);
        if (!status)
            status = zero_reduce(z, u);
    }
    return status;
}

int toy_micro_step(struct zero *z, int64_t batch, bool poison, double *loss)
{
    return micro_step(z, batch, poison, TOY_LAST_TO_FIRST, loss);
}

void toy_wait(struct zero *z)
{
    if (z->plan.device_apart)
        toy_apart->wait(z);
}

/* ------------------------------------------------------------------- a run */

struct rank {
    struct toy *toy;
    int rank;
    struct zero_digest digest;
    struct zero_stats stats;
    double norm[TOY_STEPS_MAX], mean[TOY_STEPS_MAX], scale;
    int clipped, skipped;
    struct error error;
};

static int train_step(struct rank *r, struct zero *z, int step)
{
    const struct toy *t = r->toy;
    double losses[64] = {0};
    int status = 0;
    for (int a = 0; !status && a < t->accumulate; a++) {
        int64_t batch = ((int64_t)step * t->accumulate + a) * t->ranks + r->rank;
        bool poison = step + 1 == t->poison_step && a == 0 && r->rank == t->ranks - 1;
        status = micro_step(z, batch, poison, t->order, &losses[a]);
    }
    struct zero_step_info info;
    if (!status)
        status = zero_step(z, &info);
    if (!status) {
        r->norm[step] = info.norm;
        r->clipped += info.factor < 1;
        r->skipped += info.skipped;
    }
    toy_wait(z); /* not before the step: that waits for what it needs */
    return status ? status : zero_mean(z, losses, t->accumulate, &r->mean[step]);
}

/* A step's micro-steps, with all of the last one or with some of its units reduced
 * and some not: none of it may be seen later. */
static int discarded(struct rank *r, struct zero *z)
{
    int status = 0;
    bool all = r->toy->discard % 2;
    double loss = 0;
    for (int a = 0; !status && a < r->toy->accumulate - !all; a++)
        status = micro_step(z, 999 + a, true, r->toy->order, &loss);
    for (int u = 2; !status && !all && u > 0; u--) {
        status = backward_unit(z, u, 7, false);
        if (!status && u == 2)
            status = zero_reduce(z, u);
    }
    if (!status)
        status = zero_discard(z);
    toy_wait(z);
    return status;
}

static int train(struct rank *r, struct zero *z)
{
    bool l2 = r->toy->l2;
    double lr = r->toy->lr > 0 ? r->toy->lr : 0.05;
    const struct zero_adam adam[] = {
        {.lr = lr, .beta1 = .9, .beta2 = .95, .eps = 1e-8, .weight_decay = .1, .l2 = l2},
        {.lr = 0.02, .beta1 = .8, .beta2 = .99, .eps = 1e-6, .weight_decay = .01, .l2 = l2},
    };
    int status = 0;
    for (int g = 0; !status && g < 2; g++)
        status = zero_set_adam(z, g, &adam[g]);
    if (!status)
        status = zero_set_clip(z, 1.0);
    if (!status)
        status = zero_set_accumulate(z, r->toy->accumulate);
    for (int s = 0; !status && s < r->toy->steps; s++) {
        if (s + 1 == r->toy->discard)
            status = discarded(r, z);
        if (!status)
            status = train_step(r, z, s);
    }
    r->scale = zero_loss_scale(z);
    if (!status)
        status = zero_digest(z, &r->digest);
    if (!status)
        status = zero_stats(z, &r->stats);
    return status;
}

const char *toy_check_memory(const struct zero *z)
{
    const struct zero_plan *p = &z->plan.report;
    if (z->arena.bytes != p->host.total)
        return "the arena is not what the plan says";
    if (z->spill.bytes != p->nvme.total)
        return "the file is not what the plan says";
    const struct zero_bytes *places[] = {&p->device, &p->host, &p->nvme};
    for (int i = 0; i < 3; i++)
        if (places[i]->params + places[i]->grads + places[i]->state + places[i]->checks +
                places[i]->slots !=
            places[i]->total)
            return "the plan's parts are not its total";
    return NULL;
}

static void rank_main(int rank, struct zero_comm *comm, void *arg)
{
    struct rank *r = (struct rank *)arg + rank;
    struct zero_param params[TOY_TENSORS_ALL];
    struct zero_config config = r->toy->config;
    struct zero *z;
    int count = r->toy->rare ? TOY_TENSORS_ALL : TOY_TENSORS;
    describe(params, count);
    if (config.device != ZERO_CPU)
        toy_apart->begin(rank);
    config.accumulate = r->toy->accumulate;
    config.size = sizeof(config);
    config.comm = comm;
    struct engine_seams seams = {0};
    if (r->toy->seams)
        seams = *r->toy->seams(r->toy->seams_arg, r->rank);
    else if (config.device != ZERO_CPU)
        seams = (struct engine_seams){.device = toy_apart->device, .link = toy_apart->link};
    int status = engine_create(&z, params, count, &config, &seams);
    if (!status)
        status = train(r, z);
    if (status)
        error_set(&r->error, status, "%s", zero_last_error(z));
    else if (toy_check_memory(z))
        error_set(&r->error, ZERO_ERR_MEMORY, "%s", toy_check_memory(z));
    zero_destroy(z);
    if (config.device != ZERO_CPU)
        toy_apart->end();
}

static void compare(struct toy *t, const struct rank *ranks)
{
    for (int r = 0; r < t->ranks; r++)
        if (ranks[r].error.status)
            error_set(&t->error, ranks[r].error.status, "rank %d: %s", r, ranks[r].error.text);
    for (int r = 1; r < t->ranks; r++)
        if (memcmp(&ranks[r].digest, &ranks[0].digest, sizeof(ranks[0].digest)) ||
            memcmp(ranks[r].norm, ranks[0].norm, sizeof(ranks[0].norm)) ||
            memcmp(ranks[r].mean, ranks[0].mean, sizeof(ranks[0].mean)))
            error_set(&t->error, ZERO_ERR_MISMATCH, "ranks %d and 0 differ", r);
}

static struct rank *ranks_new(struct toy *t)
{
    struct rank *ranks = calloc((size_t)t->ranks, sizeof(*ranks));
    for (int r = 0; r < t->ranks; r++)
        ranks[r] = (struct rank){.toy = t, .rank = r};
    return ranks;
}

static void take(struct toy *t, const struct rank *r)
{
    t->digest = r->digest;
    t->stats = r->stats;
    t->scale = r->scale;
    t->clipped = r->clipped;
    t->skipped = r->skipped;
    memcpy(t->norm, r->norm, sizeof(t->norm));
    memcpy(t->mean, r->mean, sizeof(t->mean));
}

int toy_run(struct toy *t)
{
    struct rank *ranks = ranks_new(t);
    ranks_run(t->ranks, rank_main, ranks);
    compare(t, ranks);
    take(t, &ranks[0]);
    free(ranks);
    return t->error.status;
}

int toy_run_rank(struct toy *t, struct zero_comm *comm)
{
    struct rank *ranks = ranks_new(t), *mine = &ranks[comm->rank];
    rank_main(comm->rank, comm, ranks);
    take(t, mine);
    t->error = mine->error;
    free(ranks);
    return t->error.status;
}
