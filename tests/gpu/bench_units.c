// SPDX-License-Identifier: Apache-2.0
/*
 * What a step costs beside arithmetic and bytes: a model of tiny tensors on a GPU, used as a
 * program uses it, computes nothing. Two numbers of units give the cost of a step and of a
 * unit. There is no limit to compare with: the kernels of a unit of a real model take
 * milliseconds.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "examples/common/clock.h"
#include "src/engine.h"
#include "tests/gpu/bench.h"

enum { ELEMENTS = 256, FEW = 4, TURNS = 3 }; /* of which the fastest counts */

static void ok(const struct zero *z, int status)
{
    if (status)
        bench_fail("%s", zero_last_error(z));
}

static void step(struct zero *z, int units)
{
    for (int u = 0; u < units; u++) {
        ok(z, zero_acquire(z, u));
        ok(z, zero_release(z, u));
    }
    for (int u = units - 1; u >= 0; u--) {
        ok(z, zero_acquire(z, u));
        if (!zero_grad_data(z, u))
            bench_fail("%s", zero_last_error(z));
        ok(z, zero_release(z, u));
        ok(z, zero_reduce(z, u));
    }
    ok(z, zero_step(z, NULL));
}

/* Seconds of a step with so many units, of the fastest turn. */
static double seconds(const struct bench *b, int stage, enum zero_place offload, int units)
{
    const struct zero_adam adam = {.lr = 1e-3, .beta1 = .9, .beta2 = .95, .eps = 1e-8};
    const struct zero_config config = {.size = sizeof(config),
                                       .stage = stage,
                                       .offload = offload,
                                       .dtype = ZERO_BF16,
                                       .device = ZERO_CUDA,
                                       .threads = 1};
    const struct engine_seams seams = {.device = device_cuda_create};
    struct zero_param *params = calloc((size_t)units, sizeof(*params));
    char(*names)[16] = calloc((size_t)units, sizeof(*names));
    struct zero_stats stats;
    struct zero *z;
    for (int u = 0; u < units; u++) {
        snprintf(names[u], sizeof(names[u]), "unit%d", u);
        params[u] =
            (struct zero_param){.name = names[u], .unit = u, .ndim = 1, .shape = {ELEMENTS}};
    }
    ok(z, engine_create(&z, params, units, &config, &seams));
    ok(z, zero_set_adam(z, 0, &adam));
    for (int s = 0; s < 3; s++)
        step(z, units);
    ok(z, zero_wait(z));
    double least = INFINITY;
    for (int turn = 0; turn < TURNS; turn++) {
        double start = clock_now();
        for (int s = 0; s < b->steps; s++)
            step(z, units);
        ok(z, zero_wait(z));
        least = fmin(least, (clock_now() - start) / b->steps);
    }
    ok(z, zero_stats(z, &stats));
    if (stats.steps != TURNS * b->steps + 3)
        bench_fail("%lld steps were made, not %d.", (long long)stats.steps, TURNS * b->steps + 3);
    zero_destroy(z);
    free(names);
    free(params);
    return least;
}

void bench_units(const struct bench *b)
{
    static const struct {
        const char *name;
        int stage;
        enum zero_place offload;
    } rows[] = {{"stage0", 0, ZERO_DEVICE},
                {"stage3", 3, ZERO_DEVICE},
                {"stage0_cpu", 0, ZERO_HOST},
                {"stage3_cpu", 3, ZERO_HOST}};
    for (int i = 0; i < 4; i++) {
        double few = seconds(b, rows[i].stage, rows[i].offload, FEW);
        double many = seconds(b, rows[i].stage, rows[i].offload, FEW + b->units);
        double unit = (many - few) / b->units;
        printf("fixed_%s_step %.1f us\nfixed_%s_unit %.2f us\n", rows[i].name,
               1e6 * (few - unit * FEW), rows[i].name, 1e6 * unit);
        fflush(stdout);
    }
}
