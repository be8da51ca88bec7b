// SPDX-License-Identifier: Apache-2.0
/* What happened when, in Chrome's trace format (chrome://tracing, Perfetto): the
 * engine's spans and the program's, kept in memory of a fixed size and written
 * at the end. One event a line, so that awk can read it too. It refuses to
 * judge: sums and shares are for whoever reads the file. */
#ifndef EXAMPLES_GPT2_TRACE_H
#define EXAMPLES_GPT2_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "include/zero.h"

#define TRACE_SPANS ((int64_t)1 << 20) /* of a rank; what comes later is dropped */

/* The program's lanes, after the engine's. */
enum trace_lane {
    TRACE_STEP = ZERO_LANES, /* zero_step to zero_step */
    TRACE_PASS,              /* forward, backward of a micro-step */
    TRACE_COMPUTE,           /* of one unit */
    TRACE_LANES,
};

struct trace;

/* Room for spans; NULL: no memory. */
struct trace *trace_create(int64_t spans);
void trace_destroy(struct trace *t); /* NULL is fine */
int64_t trace_plan_bytes(int64_t spans);

/* Any thread. lane: enum zero_lane or enum trace_lane; name: a constant string;
 * step: zero_step calls before it; seconds of CLOCK_MONOTONIC. */
void trace_add(struct trace *t, int lane, const struct zero_span *span);

/* A zero_trace_fn; arg: struct trace. */
void trace_engine(void *arg, const struct zero_span *span);

/* What was added so far belongs to no step: the engine's creation. */
void trace_created(struct trace *t);

int64_t trace_dropped(struct trace *t);
double trace_first(struct trace *t, double otherwise); /* the earliest begin */

/*
 * Writes the spans of one rank as process rank, times counted from zero
 * (seconds). Overlapping spans of a lane go to as many numbered lanes as it
 * takes, so that in none of them any overlap. The step of an event is the log's:
 * 1 for what was asked for before the first zero_step, 0 for the creation. The parts of ranks 0, 1,
 * ... make a file between trace_begin and trace_end. ferror tells of failure.
 */
extern const char trace_beginning[]; /* of the file */
void trace_begin(FILE *f);
int trace_write(struct trace *t, FILE *f, int rank, double zero); /* -1: no memory */
void trace_end(FILE *f);

#endif
