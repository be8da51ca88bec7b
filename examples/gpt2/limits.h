// SPDX-License-Identifier: Apache-2.0
/* What a run has done and in which time, and what this machine could have done: the
 * figures of roofline.h, taken from the engine, the products and short measurements
 * in memory that is there already. */
#ifndef EXAMPLES_GPT2_LIMITS_H
#define EXAMPLES_GPT2_LIMITS_H

#include "examples/gpt2/roofline.h"
#include "examples/gpt2/train.h"

/* Local. What was done so far. */
int limits_mark(struct run *r, struct run_mark *mark);

/* Moves r->begun on by what was done between two marks, so that it does not count: held-out text
 * was measured. Of an update under way meanwhile its time is left out, and bytes in proportion. */
void limits_leave_out(struct run *r, const struct run_mark *from, const struct run_mark *to);

/* COLLECTIVE. The figures of the steps between r->begun and r->ended. measure: also
 * the limits that are not known from elsewhere, in about 0.2 s on all ranks at once.
 * 0, or -1 with r->error set. */
int limits_find(struct run *r, bool measure, struct roofline *roofline);

#endif
