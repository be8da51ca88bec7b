// SPDX-License-Identifier: Apache-2.0
/*
 * What the model computes on a GPU besides its matrix products. Each call appends
 * kernels to a stream and returns at once; the calling thread's current device is
 * the stream's. Every pointer is to memory of that device. Meaning, shapes and
 * rounding are those of layers.h, attention.h and head.h: operands and gradients
 * in dtype (numeric.h), the rest fp32, gradients added to.
 *
 * Results depend on the arguments alone, not on the number of multiprocessors or
 * on what ends first: no atomics on numbers, sums in fixed trees. They are not
 * the CPU's bits: sums have another order, exponentials another polynomial.
 *
 * Any sizes >= 0 are right; none is launched for no rows. Fast are arrays that
 * begin at 16 bytes and rows that are multiples of 16 bytes. Less aligned than an
 * element is nothing.
 *
 * cudaErrorInvalidValue: a size below 0, a dtype that is none, or what a call
 * says. Any other error is the launch's; what goes wrong later the stream says.
 */
#ifndef EXAMPLES_GPT2_CUDA_LAUNCH_H
#define EXAMPLES_GPT2_CUDA_LAUNCH_H

#include <stdint.h>

#include "include/zero.h"
#include "kernels/cuda/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Room for sums over blocks of rows, between the kernels of one call: floats of
 * the argument "partial" of any call for these rows and widths up to 4 channels.
 * One array does for all calls of a stream. */
#define GPT_PARTIAL_ROWS 32
static inline int64_t gpt_partial_floats(int rows, int channels)
{
    return ((int64_t)rows + GPT_PARTIAL_ROWS - 1) / GPT_PARTIAL_ROWS * 2 * channels +
           4 * (int64_t)channels;
}

/* -------------------------------------------------------------- embeddings */

/* x (rows, C) fp32 = wte[tokens] + wpe[row % seq] */
cudaError_t gpt_launch_embed(cudaStream_t stream, enum zero_dtype dtype, int rows, int seq,
                             int channels, const int32_t *tokens /* (rows), in [0, V) */,
                             const void *wte /* (V, C) */, const void *wpe /* (seq, C) */,
                             float *x);

/* dwte[tokens] += dx, dwpe[row % seq] += dx; each row of them is rounded once.
 * order: gpt_embed_ints(rows) ints for its own use. rows is a multiple of seq. */
static inline int64_t gpt_embed_ints(int rows)
{
    return 3 * (int64_t)rows + 2;
}
cudaError_t gpt_launch_embed_backward(cudaStream_t stream, enum zero_dtype dtype, int rows, int seq,
                                      int channels, int vocab, const int32_t *tokens,
                                      const float *dx /* (rows, C) */, int32_t *order, void *dwte,
                                      void *dwpe);

/* -------------------------------------------------------------- layer norm */

/* out (rows, C) operand; stats (rows, 2): mean, 1 / deviation */
cudaError_t gpt_launch_norm(cudaStream_t stream, enum zero_dtype dtype, int rows, int channels,
                            const float *x, const void *weight, const void *bias, float *stats,
                            void *out);
/* Adds to dx (rows, C) fp32, dweight and dbias (C). */
cudaError_t gpt_launch_norm_backward(cudaStream_t stream, enum zero_dtype dtype, int rows,
                                     int channels, const float *x, const float *stats,
                                     const void *weight, const float *dout /* (rows, C) */,
                                     float *dx, float *partial, void *dweight, void *dbias);

/* ------------------------------------------------ what surrounds the products
 * y and dwide hold what a matrix product left. */

/* y (rows, width) fp32 = residual + (y + bias); bias (width) operand */
cudaError_t gpt_launch_residual(cudaStream_t stream, enum zero_dtype dtype, int rows, int width,
                                const void *bias, const float *residual, float *y);
/* active (n) operand = GELU of wide (n) operand */
cudaError_t gpt_launch_gelu(cudaStream_t stream, enum zero_dtype dtype, int64_t n, const void *wide,
                            void *active);

/* dwide (rows, width) operand *= GELU's slope at wide; dbias (width) += its sum over rows, taken
 * before it was rounded. */
cudaError_t gpt_launch_gelu_backward(cudaStream_t stream, enum zero_dtype dtype, int rows,
                                     int width, const void *wide, void *dwide, float *partial,
                                     void *dbias);
/* out (rows, width) operand = dx; dbias (width) += sum of dx over rows. */
cudaError_t gpt_launch_residual_backward(cudaStream_t stream, enum zero_dtype dtype, int rows,
                                         int width, const float *dx, void *out, float *partial,
                                         void *dbias);
/* dbias (width) += sum of dout (rows, width) operand over rows. */
cudaError_t gpt_launch_bias_backward(cudaStream_t stream, enum zero_dtype dtype, int rows,
                                     int width, const void *dout, float *partial, void *dbias);

/* --------------------------------------------------------------- attention
 * Causal, softmax of scores / sqrt(size), size = channels of a head. Of the T x T
 * scores only tiles exist, in registers. Products are in tensor cores for 16-bit
 * operands with size a multiple of 8 up to 128 (64 and 128 fill them) in arrays that
 * begin at 16 bytes, else plain fp32 arithmetic. size > 256: cudaErrorInvalidValue. */

/* qkv (B, T, 3C), out (B, T, C) operands, C = heads * size; lse (B, heads, T) */
cudaError_t gpt_launch_attention(cudaStream_t stream, enum zero_dtype dtype, int batch, int seq,
                                 int heads, int size, const void *qkv, float *lse, void *out);
/* Sets dqkv (B, T, 3C) from dout (B, T, C). delta (B, heads, T) is for its own use. */
cudaError_t gpt_launch_attention_backward(cudaStream_t stream, enum zero_dtype dtype, int batch,
                                          int seq, int heads, int size, const void *qkv,
                                          const float *lse, const void *out, const void *dout,
                                          float *delta, void *dqkv);

/* -------------------------------------------------------------------- loss
 * Cross entropy over chunks of the vocabulary: logits (rows, stride) fp32, of which the
 * first count columns are those of tokens first .. first + count - 1; count >= 1. */

/* What is known of a row's softmax so far. */
struct gpt_softmax {
    double sum;   /* of exp(logit - max) */
    float max;    /* NaN is ignored here and shows in sum */
    float chosen; /* the target's logit */
};

/* Takes a chunk into softmax (rows); the one with first = 0 comes before all others. */
cudaError_t gpt_launch_softmax(cudaStream_t stream, int rows, int first, int count, int stride,
                               const float *logits, const int32_t *targets /* (rows) */,
                               struct gpt_softmax *softmax);
/* After all chunks: lse (rows) = log of the sum of exp(logit), *loss = mean over the rows of lse
 * less the target's logit; losses (rows) is for its own use. rows >= 1. */
cudaError_t gpt_launch_loss(cudaStream_t stream, int rows, const struct gpt_softmax *softmax,
                            float *lse, double *losses, double *loss);
/* dlogits (rows, stride) operand = (exp(logit - lse) - [token is target]) * scale for a chunk, and
 * 0 in the columns from count to stride. */
cudaError_t gpt_launch_dlogits(cudaStream_t stream, enum zero_dtype dtype, int rows, int first,
                               int count, int stride, const float *logits, const float *lse,
                               const int32_t *targets, float scale, void *dlogits);

#ifdef __cplusplus
}
#endif

#endif
