// SPDX-License-Identifier: Apache-2.0
/*
 * The types an operand comes in, the logarithm, and how memory is cut. The bits of a result
 * depend on the numbers alone.
 */
#ifndef EXAMPLES_GPT2_NUMERIC_H
#define EXAMPLES_GPT2_NUMERIC_H

#include <stdint.h>
#include <string.h>

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

/* Has n elements come near, to be read or written soon; where no memory is nothing happens. Rows
 * that are short and far apart want it: the CPU by itself foresees nothing there. */
static inline void operand_fetch(enum zero_dtype dtype, const void *base, int64_t at, int64_t n)
{
    const uintptr_t line = 64, size = (uintptr_t)operand_bytes(dtype);
    uintptr_t from = (uintptr_t)base + (uintptr_t)at * size, end = from + (uintptr_t)n * size;
    for (from = from / line * line; from < end; from += line)
        __builtin_prefetch((const void *)from, 1);
}

/* a * b + c, rounded once, as every instruction set with such an instruction has it. Without one
 * the product is exact in double, and its sum with c is rounded there to the neighbour whose last
 * bit is odd, which no second rounding can mistake for a tie or an exact sum. */
static inline float number_fused(float a, float b, float c)
{
#if defined(__x86_64__) && !defined(__FMA__) && !defined(__AVX512F__)
    double product = (double)a * (double)b, sum = product + (double)c, part = sum - product;
    double error = (product - (sum - part)) + ((double)c - part);
    uint64_t bits, error_bits, even;
    memcpy(&bits, &sum, sizeof(bits));
    memcpy(&error_bits, &error, sizeof(error_bits));
    even = ~bits & ((error < 0) | (error > 0)); /* not that of infinities, which is NaN */
    bits += even - (even << 1 & (uint64_t)((int64_t)(bits ^ error_bits) >> 63));
    memcpy(&sum, &bits, sizeof(sum));
    return (float)sum;
#else
    return __builtin_fmaf(a, b, c);
#endif
}

/* log(x), x normal and > 0; NaN and infinity come back as they are. x = m 2^k with m in
 * [sqrt(1/2), sqrt(2)); log m = 2 artanh((m-1)/(m+1)). */
static inline double number_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    int32_t k = (int32_t)((bits - 0x3FE6A09E667F3BCDull) >> 52);
    k = k >= 2048 ? k - 4096 : k; /* the exponent field is 12 bits with its sign */
    bits -= (uint64_t)(int64_t)k << 52;
    double m;
    memcpy(&m, &bits, sizeof(m));
    double f = (m - 1.0) / (m + 1.0), square = f * f, series = 0;
    for (int term = 19; term >= 1; term -= 2)
        series = series * square + 1.0 / term;
    double log = (double)k * 0.69314718055994530942 + 2.0 * f * series;
    return x > 0 && x <= 1.7e308 ? log : x;
}

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
