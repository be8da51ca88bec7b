// SPDX-License-Identifier: Apache-2.0
/* Runs of the toy model that must end in equal bits, and the comparison. Knows the law,
 * not which of its cases a suite takes. */
#ifndef TESTS_SUPPORT_EQUAL_H
#define TESTS_SUPPORT_EQUAL_H

#include "tests/support/toy.h"

#define EQUAL_BATCH 12 /* micro-batches a step, over all ranks */
#define EQUAL_STEPS 3

/* One rank, stage 0, everything on the CPU. */
struct toy equal_simplest(enum zero_dtype dtype, int batch);

/* Whether a run ended so: digests, every norm, every mean; if not, what differs. */
bool equal_ended(const struct toy *t, const struct toy *expected, char *text, size_t size);

/* Runs t, which must end as expected did: digests, every norm, every mean. */
void equal_expect(struct toy *t, const struct toy *expected);

/* All places and host shares for one stage: calls visit with each. Returns how many. */
int64_t equal_each_place(struct zero_config c, void (*visit)(const struct zero_config *));

/* What matters: kinds of run, and the simplest of a kind. */
#define EQUAL_MEANINGS 36
struct equal_meaning {
    int dtype, grad, l2, poison;
};
struct equal_meaning equal_meaning(int kind);
struct toy equal_meant(const struct equal_meaning *m);

/* The same with what must not matter drawn at random. */
struct toy equal_draw(uint64_t *random, const struct equal_meaning *m);
int equal_pick(uint64_t *random, int n); /* below n */

#endif
