// SPDX-License-Identifier: Apache-2.0
/* The trace of a run: where its spans come from, and one file for all ranks. How
 * spans become a file is trace.h's. Without --trace all of this does nothing. */
#ifndef EXAMPLES_GPT2_TRACING_H
#define EXAMPLES_GPT2_TRACING_H

#include <stdbool.h>

#include "examples/gpt2/trace.h"
#include "examples/gpt2/train.h"

/* Local. 0, or -1 with r->error set. */
int tracing_create(struct run *r, struct zero_config *config);
void tracing_hook_model(struct run *r, struct gpt_config *config);
bool tracing_open(struct run *r);  /* rank 0 makes the file; false with r->error set */
bool tracing_begin(struct run *r); /* what a killed run left goes, and others see it; likewise */
void tracing_step(struct run *r, double begun);

/* Without a file that is not whole yet. */
void tracing_close(struct run *r);

/* COLLECTIVE, when all is created: agrees on when time begins. 0, or -1. */
int tracing_start(struct run *r);

/* COLLECTIVE: the ranks write in turn. 0, or -1 with r->error set where it failed. */
int tracing_write(struct run *r);

#endif
