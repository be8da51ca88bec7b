// SPDX-License-Identifier: Apache-2.0
/*
 * How near a run came to each of the machine's limits, and which of them its steps
 * wait for: a table and a sentence, made of figures. Arithmetic and printing alone.
 */
#ifndef EXAMPLES_GPT2_ROOFLINE_H
#define EXAMPLES_GPT2_ROOFLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum roofline_kind {
    ROOFLINE_COMPUTE, /* matrix products */
    ROOFLINE_MEMORY,  /* the update kernels */
    ROOFLINE_NETWORK, /* collectives */
    ROOFLINE_DISK,    /* files */
    ROOFLINE_ROWS,
};

struct roofline_row {
    double done;    /* flop or bytes of a step, all ranks together */
    double seconds; /* of a step in which that was under way, of a rank on average; 0: none */
    double limit;   /* flop or bytes per second that all ranks together reach; 0: not known */
    char of[64];    /* what the limit is, or why it is not known */
};

struct roofline {
    struct roofline_row row[ROOFLINE_ROWS];
    bool layers;   /* compute's seconds are of all the model's kernels on GPUs, not of products */
    double step;   /* seconds of one, all that belongs to it included */
    double waited; /* of them: a rank's program waited for its engine, on average */
};

/* The last line: which of the rows bounds the step. */
void roofline_verdict(const struct roofline *r, char *text, size_t size);

void roofline_print(const struct roofline *r, FILE *out);

#endif
