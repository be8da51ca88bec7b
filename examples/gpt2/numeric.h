// SPDX-License-Identifier: Apache-2.0
/*
 * Arithmetic over rows of numbers, and the types an operand comes in. The
 * bits of a result depend on the numbers alone: no libm, no contraction, sums
 * in 16 lanes joined in a fixed tree, so every instruction set agrees. Knows
 * no threads and no model.
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

/* -------------------------------------------------------------------- rows
 * What is written overlaps nothing else that a call is given. */

void row_add(int64_t n, const float *in, float *out); /* out += in */
void row_add_operand(enum zero_dtype dtype, int64_t n, const void *in, float *out);
/* out, an operand, = in + bias + residual, of which either may be NULL. */
void row_store(enum zero_dtype dtype, int64_t n, const float *in, const float *bias,
               const float *residual, void *out);
void row_scale(int64_t n, float factor, float *x); /* x *= factor */
float row_max(int64_t n, const float *x);          /* ignores NaN; n >= 1 */
float row_sum(int64_t n, const float *x);
float row_dot(int64_t n, const float *x, const float *y);
/* out = exp(x * scale - shift), and the sum of it; out may be x. exp is within
 * 2e-7 of exact, 0 below exp(-87), and no larger than exp(88). */
float row_exp(int64_t n, const float *x, float scale, float shift, float *out);

/* x becomes exp(x * scale - shift), and out, an operand, that times factor. */
void row_softmax(enum zero_dtype dtype, int64_t n, float scale, float shift, float factor, float *x,
                 void *out);
/* Gradient of softmax: out, an operand, = p * (dp - mean) * scale. */
void row_softmax_backward(enum zero_dtype dtype, int64_t n, const float *p, float mean, float scale,
                          const float *dp, void *out);

/* GELU with tanh (Hendrycks and Gimpel, arXiv 1606.08415): in the form
 * x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). Operands: wide = x + bias and active, its
 * GELU; and from wide dwide, which is added to sum too. */
void row_gelu(enum zero_dtype dtype, int64_t n, const float *x, const float *bias, void *wide,
              void *active);
void row_gelu_backward(enum zero_dtype dtype, int64_t n, const void *wide, const float *dactive,
                       void *dwide, float *sum);

/* Layer norm (arXiv 1607.06450), eps 1e-5; stats takes mean and 1/deviation. */
void row_norm(enum zero_dtype dtype, int64_t n, const float *x, const float *weight,
              const float *bias, float stats[2], void *out);
/* Adds to dx, dweight and dbias, which overlap nothing else: with six arrays compilers do not
 * check that, and would stay with scalars. */
void row_norm_backward(int64_t n, const float *x, const float *weight, const float stats[2],
                       const float *dout, float *restrict dx, float *restrict dweight,
                       float *restrict dbias);

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

/* A function compiled for several instruction sets, chosen when the program
 * loads. Not under sanitizers, as the choice runs before their start code; not
 * by clang, which gives the result a name that other files do not know. gcc
 * before 12 knows no levels; its 16-bit loops take up to twice as long. */
#if !defined(__x86_64__) || !defined(__gnu_linux__) || defined(__clang__) ||                       \
    defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define VECTORISED
#elif __GNUC__ >= 12
#define VECTORISED __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define VECTORISED __attribute__((target_clones("default", "avx2", "avx512f")))
#endif

#endif
