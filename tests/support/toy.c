// SPDX-License-Identifier: Apache-2.0
/* The toy model and its training loop over thread ranks. */
#include "tests/support/toy.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/bf16.h"
#include "src/random.h"
#include "tests/support/ranks.h"

#define FILL(stream) {7, stream, 0, 0.5f}
static struct zero_normal fills[TOY_TENSORS] = {FILL(0), FILL(1), FILL(2), FILL(3),
                                                FILL(4), FILL(5), FILL(6), FILL(7)};

static const struct zero_param shapes[TOY_TENSORS] = {
    {.name = "embed", .unit = 0, .ndim = 2, .shape = {37, 40}},
    {.name = "embed.bias", .unit = 0, .ndim = 1, .shape = {77}, .flags = ZERO_NO_DECAY},
    {.name = "block.weight", .unit = 1, .ndim = 3, .shape = {5, 13, 20}},
    {.name = "block.bias", .unit = 1, .ndim = 1, .shape = {64}, .flags = ZERO_NO_DECAY},
    {.name = "block.scale", .unit = 1, .ndim = 0},
    {.name = "head.bias", .unit = 2, .ndim = 1, .shape = {3}, .group = 1, .flags = ZERO_NO_DECAY},
    {.name = "head.weight", .unit = 2, .ndim = 2, .shape = {40, 25}, .group = 1},
    {.name = "late", .unit = 0, .ndim = 1, .shape = {130}}, /* declared after other units' */
};

void toy_describe(struct zero_param params[TOY_TENSORS])
{
    memcpy(params, shapes, sizeof(shapes));
    for (int i = 0; i < TOY_TENSORS; i++) {
        params[i].fill = zero_fill_normal;
        params[i].fill_arg = &fills[i];
    }
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
    return dtype == ZERO_BF16 ? bf16_to_float(((const uint16_t *)data)[i])
                              : ((const float *)data)[i];
}

static void store(void *data, enum zero_dtype dtype, int64_t i, float x)
{
    if (dtype == ZERO_BF16)
        ((uint16_t *)data)[i] = bf16_from_float(x);
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

/* Adds this micro-batch's gradient of one tensor, which depends on its gathered
 * parameters: small in every other twelve, so that clipping is active in some
 * steps. */
static int add_gradient(struct zero *z, int tensor, int64_t batch, bool poison)
{
    enum zero_dtype dtype = z->set.dtype;
    const void *w = zero_param_data(z, tensor);
    void *g = zero_grad_data(z, tensor);
    if (!w || !g)
        return z->error.status;
    float size = batch % HEAD / 12 % 2 ? 0.002f : 0.5f;
    for (int64_t i = 0; i < elements(tensor); i++) {
        float h = noise(batch, tensor, i);
        store(g, dtype, i, load(g, dtype, i) + size * (h + load(w, dtype, i) * h * h));
    }
    if (poison)
        store(g, dtype, elements(tensor) / 2, __builtin_inff());
    return ZERO_OK;
}

static int forward_unit(struct zero *z, int unit, int64_t batch, double *loss)
{
    int status = zero_acquire(z, unit);
    for (int t = 0; !status && t < TOY_TENSORS; t++) {
        if (shapes[t].unit != unit)
            continue;
        const void *w = zero_param_data(z, t);
        for (int64_t i = 0; w && i < elements(t); i += 7)
            *loss += load(w, z->set.dtype, i) * noise(batch, t, i);
    }
    return status ? status : zero_release(z, unit);
}

static int backward_unit(struct zero *z, int unit, int64_t batch, bool poison)
{
    int status = zero_acquire(z, unit);
    for (int t = 0; !status && t < TOY_TENSORS; t++)
        if (shapes[t].unit == unit && t != 1) /* tensor 1 never asks for its gradient */
            status = add_gradient(z, t, batch, poison && t == 2);
    return status ? status : zero_release(z, unit);
}

int toy_micro_step(struct zero *z, int64_t batch, bool poison, double *loss)
{
    int status = 0;
    for (int u = 0; !status && u < TOY_UNITS; u++)
        status = forward_unit(z, u, batch, loss);
    if (!status) /* a tied head: unit 0 again, its gradient slot held to the end */
        status = backward_unit(z, 0, batch + HEAD, false);
    for (int u = TOY_UNITS - 1; !status && u >= 0; u--) {
        status = backward_unit(z, u, batch, poison);
        if (!status)
            status = zero_reduce(z, u);
    }
    return status;
}

/* ------------------------------------------------------------------- a run */

struct rank {
    struct toy *toy;
    int rank;
    struct zero_digest digest;
    struct zero_stats stats;
    double norm[TOY_STEPS_MAX], mean[TOY_STEPS_MAX];
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
        status = toy_micro_step(z, batch, poison, &losses[a]);
    }
    struct zero_step_info info;
    if (!status)
        status = zero_mean(z, losses, t->accumulate, &r->mean[step]);
    if (!status)
        status = zero_step(z, &info);
    if (!status) {
        r->norm[step] = info.norm;
        r->clipped += info.factor < 1;
        r->skipped += info.skipped;
    }
    return status;
}

static int train(struct rank *r, struct zero *z)
{
    const struct zero_adam adam[] = {
        {.lr = 0.05, .beta1 = .9, .beta2 = .95, .eps = 1e-8, .weight_decay = .1},
        {.lr = 0.02, .beta1 = .8, .beta2 = .99, .eps = 1e-6, .weight_decay = .01},
    };
    int status = 0;
    for (int g = 0; !status && g < 2; g++)
        status = zero_set_adam(z, g, &adam[g]);
    if (!status)
        status = zero_set_clip(z, 1.0);
    if (!status)
        status = zero_set_accumulate(z, r->toy->accumulate);
    for (int s = 0; !status && s < r->toy->steps; s++)
        status = train_step(r, z, s);
    if (!status)
        status = zero_digest(z, &r->digest);
    if (!status)
        status = zero_stats(z, &r->stats);
    return status;
}

static void rank_main(int rank, struct zero_comm *comm, void *arg)
{
    struct rank *r = (struct rank *)arg + rank;
    struct zero_param params[TOY_TENSORS];
    struct zero_config config = r->toy->config;
    struct zero *z;
    toy_describe(params);
    config.size = sizeof(config);
    config.comm = comm;
    const struct engine_seams *seams =
        r->toy->seams ? r->toy->seams(r->toy->seams_arg, r->rank) : NULL;
    int status = engine_create(&z, params, TOY_TENSORS, &config, seams);
    if (!status)
        status = train(r, z);
    if (status)
        error_set(&r->error, status, "%s", zero_last_error(z));
    zero_destroy(z);
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

int toy_run(struct toy *t)
{
    struct rank *ranks = calloc((size_t)t->ranks, sizeof(*ranks));
    for (int r = 0; r < t->ranks; r++)
        ranks[r] = (struct rank){.toy = t, .rank = r};
    ranks_run(t->ranks, rank_main, ranks);
    compare(t, ranks);
    t->digest = ranks[0].digest;
    t->stats = ranks[0].stats;
    t->clipped = ranks[0].clipped;
    t->skipped = ranks[0].skipped;
    memcpy(t->norm, ranks[0].norm, sizeof(t->norm));
    memcpy(t->mean, ranks[0].mean, sizeof(t->mean));
    free(ranks);
    return t->error.status;
}
