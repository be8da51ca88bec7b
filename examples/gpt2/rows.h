// SPDX-License-Identifier: Apache-2.0
/*
 * Arithmetic over rows of numbers. The bits of a result depend on the numbers
 * alone: no libm but sqrtf, fused multiply-adds only where they are written,
 * sums in 16 lanes joined in a fixed tree, so every instruction set agrees. What
 * is written overlaps nothing else that a call is given. Knows no threads and no
 * model.
 */
#ifndef EXAMPLES_GPT2_ROWS_H
#define EXAMPLES_GPT2_ROWS_H

#include <stdint.h>

#include "include/zero.h"

/* The loops of an instruction set. n elements; what is of a type that a call names is an
 * operand (numeric.h), all else fp32. */
struct rows {
    const char *isa;
    void (*view)(enum zero_dtype dtype, int64_t n, const void *in, float *out); /* widens */
    /* out, an operand, = in + bias + residual, of which either may be NULL. */
    void (*store)(enum zero_dtype dtype, int64_t n, const float *in, const float *bias,
                  const float *residual, void *out);
    /* out, an operand, = in * factor. */
    void (*store_scaled)(enum zero_dtype dtype, int64_t n, const float *in, float factor,
                         void *out);
    void (*add_to_operand)(enum zero_dtype dtype, int64_t n, const float *in, void *out); /* += */
    void (*add_operand)(enum zero_dtype dtype, int64_t n, const void *in, float *out);    /* += */
    void (*add)(int64_t n, const float *in, float *out);                                  /* += */
    float (*max)(int64_t n, const float *x); /* NaN where x[0] is, else of numbers; n >= 1 */
    float (*sum)(int64_t n, const float *x);
    float (*dot)(int64_t n, const float *x, const float *y);

    /* x becomes exp(x * scale - shift); the sum of it. exp is within 2e-7 of exact down to
     * exp(-87), 0 from exp(-88) down, and no larger than exp(88). */
    float (*exp)(int64_t n, float scale, float shift, float *x);
    /* x becomes exp(x * scale - shift), and out, an operand, that times factor. */
    void (*softmax)(enum zero_dtype dtype, int64_t n, float scale, float shift, float factor,
                    float *x, void *out);
    /* out = shift + log(x), in double until then. */
    void (*log)(int64_t n, const float *shift, const float *x, float *out);
    /* Gradient of softmax: out, an operand, = p * (dp - mean) * scale. */
    void (*softmax_backward)(enum zero_dtype dtype, int64_t n, const float *p, float mean,
                             float scale, const float *dp, void *out);

    /* GELU with tanh (Hendrycks and Gimpel, arXiv 1606.08415), of numbers up to 1e9: in the form
     * x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). Operands: wide = x + bias and active,
     * its GELU; and from wide dwide, which is added to sum too. */
    void (*gelu)(enum zero_dtype dtype, int64_t n, const float *x, const float *bias, void *wide,
                 void *active);
    void (*gelu_backward)(enum zero_dtype dtype, int64_t n, const void *wide, const float *dactive,
                          void *dwide, float *sum);

    /* Layer norm (arXiv 1607.06450), eps 1e-5; stats takes mean and 1/deviation. The gradient
     * is added to dx, dweight and dbias. */
    void (*norm)(enum zero_dtype dtype, int64_t n, const float *x, const float *weight,
                 const float *bias, float stats[2], void *out);
    void (*norm_backward)(int64_t n, const float *x, const float *weight, const float stats[2],
                          const float *dout, float *dx, float *dweight, float *dbias);
};

/* The loops that this CPU runs, 0 the best; NULL beyond the last, which is rows_scalar. */
const struct rows *rows_of(int index);
const struct rows *rows_best(void); /* rows_of(0), asked of the CPU once */

extern const struct rows rows_scalar;
extern const struct rows rows_avx2, rows_avx512; /* for rows.c, on x86-64 */

#endif
