// SPDX-License-Identifier: Apache-2.0
/* A model that computes nothing, for benches of what the engine does with it. Functions that
 * return an int print what went wrong. */
#ifndef EXAMPLES_ZERO_BENCH_MODEL_H
#define EXAMPLES_ZERO_BENCH_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "include/zero.h"

enum { MODEL_UNITS = 16, MODEL_UNITS_MAX = 32, MODEL_CHECKED = 1 << 18 };

struct model {
    struct zero *z;
    struct zero_param params[MODEL_UNITS_MAX];
    struct zero_normal normal[MODEL_UNITS_MAX];
    char names[MODEL_UNITS_MAX][16];
    int units;
    int64_t unit; /* elements */
};

void model_describe(struct model *m, int units, int64_t elements);
int model_create(struct model *m, const struct zero_config *config);
int model_fail(struct model *m); /* with the engine's sentence */

/* A forward and a backward: gradients are 2^-7 or so. */
int model_micro_step(struct model *m);

/* Of MODEL_CHECKED elements after three steps. */
int model_digest(const struct zero_config *config, struct zero_digest *digest);

/* The sum over ranks of what each brings. */
int model_sum(struct model *m, double mine, double *all);
/* What is decided by a clock is decided for all ranks. */
int model_any(struct model *m, bool mine, bool *one);
/* Waits until no rank has anything under way. */
int model_done(struct model *m);

/* A micro-step, until nothing of it is under way; and then seconds of its zero_step, to the end of
 * all ranks'. */
int model_ready(struct model *m);
int model_step(struct model *m, double *seconds);

#endif
