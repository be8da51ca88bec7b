// SPDX-License-Identifier: Apache-2.0
/*
 * The types an operand comes in, the logarithm, and how memory is cut. The bits of a result
 * depend on the numbers alone.
 */
#ifndef EXAMPLES_GPT2_NUMERIC_H
#define EXAMPLES_GPT2_NUMERIC_H

#include <stdint.h>

#include "include/zero.h"

/* ---------------------------------------------------------------- operands
 * What products read, and what parameters and their gradients are stored as:
 * fp32, or bf16 or IEEE half as uint16_t. Positions count elements. */

static inline int64_t operand_bytes(enum zero_dtype dtype)
{
    return dtype == ZERO_FP32 ? 4 : 2;
}

static inline void *operand_at(enum zero_dtype dtype, const void *base, int64_t at)
{
    return (char *)base + at * operand_bytes(dtype);
}

/* n elements from position at on as fp32: in place, or widened into spare. */
const float *operand_view(enum zero_dtype dtype, const void *base, int64_t at, int64_t n,
                          float *spare);
/* Rounded to nearest as the engine does it: ties away from zero in bf16, to
 * even in fp16, where 65520 and more are infinite. */
void operand_store(enum zero_dtype dtype, void *base, int64_t at, int64_t n, const float *in);
void operand_add(enum zero_dtype dtype, void *base, int64_t at, int64_t n, const float *in);

/* log(x), x normal and > 0; NaN and infinity come back as they are. */
double number_log(double x);

/* ------------------------------------------------------------------ memory */

/* Cuts one piece of memory into 64-byte aligned parts. With base NULL it only
 * counts, so the same code measures and lays out. */
struct carve {
    char *base;
    int64_t used;
};

static inline void *carve_take(struct carve *c, int64_t bytes)
{
    void *part = c->base ? c->base + c->used : (void *)0;
    c->used += (bytes + 63) / 64 * 64;
    return part;
}

#endif
