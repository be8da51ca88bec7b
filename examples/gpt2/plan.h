// SPDX-License-Identifier: Apache-2.0
/* What a run will need before it needs it: the engine's plan and the program's
 * own bytes; report.h compares. */
#ifndef EXAMPLES_GPT2_PLAN_H
#define EXAMPLES_GPT2_PLAN_H

#include "examples/common/data.h"
#include "examples/gpt2/arguments.h"
#include "include/zero.h"

/* Bytes of one rank that are the program's and not the engine's. */
struct own_bytes {
    int64_t gpu;     /* of its memory: activations, scratch, workspace; not in the total */
    int64_t model;   /* activations, and scratch of the workers; with a GPU what it copies from */
    int64_t data;    /* text that was read, as token files take none */
    int64_t buffers; /* of batches, losses, the sample, the trace */
    int64_t total;
};
struct own_bytes own_planned(const struct arguments *a, const struct data *data, int threads);

void plan_print_task(const struct arguments *a, const struct data *data, int ranks);
void plan_print(const struct arguments *a, const struct zero_plan *p, const struct own_bytes *own);

/* --plan: prints both for this job, and how long an update takes, for which it measures this
 * machine's memory. 0, or -1 with a sentence in error. Local: for one rank to call. */
int plan_run(struct arguments *a, char *error, size_t error_size);

#endif
