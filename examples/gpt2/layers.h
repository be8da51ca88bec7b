// SPDX-License-Identifier: Apache-2.0
/*
 * The layers of GPT-2 but attention, on plain pointers: embeddings, layer norm,
 * linear layers, and the sums over rows that biases need. Work is cut by rows
 * (or by columns of a gradient) into tasks of fixed size; partial sums over
 * blocks of rows join in a fixed tree. Knows no engine: parameters and
 * gradients are pointers in the model's dtype, gradients are added to.
 *
 * Shapes: B sequences of T positions, rows = B * T, C channels. "Operand" is a
 * tensor in the model's dtype (numeric.h); the rest is fp32.
 */
#ifndef EXAMPLES_GPT2_LAYERS_H
#define EXAMPLES_GPT2_LAYERS_H

#include <stdint.h>

#include "examples/common/workers.h"
#include "examples/gpt2/matmul.h"
#include "include/zero.h"

#define ROWS_PER_TASK 64

/* What every layer needs besides its tensors. */
struct compute {
    struct workers *workers;
    enum zero_dtype dtype;
    int batch, seq, channels, heads;
    float *partial; /* (blocks of ROWS_PER_TASK rows, 4C): sums of blocks, between two jobs */
};

static inline int compute_rows(const struct compute *c)
{
    return c->batch * c->seq;
}

/* Scratch bytes of a worker for the tasks of this header. */
int64_t layers_scratch(enum zero_dtype dtype, int channels, int rows);

/* x (rows, C) = wte[tokens] + wpe[position]; wte (V, C), wpe (T, C). */
void embed_forward(const struct compute *c, const int32_t *tokens /* (rows) */, const void *wte,
                   const void *wpe, float *x);
/* chain (V + rows) is memory for its own use. */
void embed_backward(const struct compute *c, const int32_t *tokens, int vocab, const float *dx,
                    int32_t *chain, void *dwte, void *dwpe);

/* out (rows, C) operand, or fp32 (out_f32) where that is not NULL. */
void norm_forward(const struct compute *c, const float *x, const void *weight, const void *bias,
                  float *stats /* (rows, 2) */, void *out);
/* Adds to dx (rows, C). */
void norm_backward(const struct compute *c, const float *x, const float *stats,
                   const void *weight, const float *dout, float *dx, void *dweight, void *dbias);

/* out (rows, C) operand = dx; dbias (C) += sum of dx over rows. */
void residual_backward(const struct compute *c, const float *dx, void *out, void *dbias);
/* dbias (width) += sum of dout (rows, width) operand over rows. */
void bias_backward(const struct compute *c, const void *dout, int width, void *dbias);
/* grad (width) += sum over blocks of c->partial (blocks, width), in a fixed tree. */
void partial_join(const struct compute *c, int blocks, int width, void *grad);

/* ----------------------------------------------------------- linear layers
 * weight (in, out). What happens to a finished tile is the finisher's. */

/* (rows, out) = x (rows, in) weight */
void linear_forward(const struct compute *c, const void *x, const void *weight, int in, int out,
                    tile_finish_fn *finish, void *arg);
/* (rows, in) = dout (rows, out) weight^T */
void linear_backward_input(const struct compute *c, const void *dout, const void *weight, int in,
                           int out, tile_finish_fn *finish, void *arg);
/* dweight (in, out) += x^T dout */
void linear_backward_weight(const struct compute *c, const void *x, const void *dout, int in,
                            int out, void *dweight);

/* Finishers, and their arg: */
struct tile_target {
    enum zero_dtype dtype; /* of bias and operands */
    int width;             /* columns of the tensors */
    const void *bias;      /* (width), added to each row first; NULL: none */
    const float *residual; /* tile_to_float: (rows, width), added; NULL: none */
    void *to;              /* (rows, width) */
};
void tile_to_operand(void *target, const struct tile *tile);    /* to = tile */
void tile_to_float(void *target, const struct tile *tile);      /* to, fp32, = residual + tile */
void tile_to_gradient(void *target, const struct tile *tile);   /* to += tile */

/* Adds the target's bias to the rows of a tile: the start of a finisher. */
void tile_add_bias(const struct tile_target *target, const struct tile *tile);

#endif
