// SPDX-License-Identifier: Apache-2.0
/*
 * The layers of GPT-2 but attention, on the CPU: embeddings, layer norm,
 * linear layers, and the sums over rows that biases need. Work is cut by rows
 * (or by columns of a gradient) into tasks of fixed size; partial sums over
 * blocks of rows join in a fixed tree. Meaning and shapes are those of device.h.
 */
#ifndef EXAMPLES_GPT2_LAYERS_H
#define EXAMPLES_GPT2_LAYERS_H

#include <stdint.h>

#include "examples/common/workers.h"
#include "examples/gpt2/device.h"
#include "examples/gpt2/matmul.h"
#include "include/zero.h"

#define ROWS_PER_TASK 64

/* Scratch bytes of a worker for the tasks of this header. */
int64_t layers_scratch(enum zero_dtype dtype, int channels, int rows);

void embed_forward(const struct compute *c, const int32_t *tokens /* (rows) */, const void *wte,
                   const void *wpe, float *x);
void embed_backward(const struct compute *c, const int32_t *tokens, const float *dx, void *dwte,
                    void *dwpe);

void norm_forward(const struct compute *c, const float *x, const void *weight, const void *bias,
                  float *stats /* (rows, 2) */, void *out);
void norm_backward(const struct compute *c, const float *x, const float *stats,
                   const void *weight, const float *dout, float *dx, void *dweight, void *dbias);

void residual_backward(const struct compute *c, const float *dx, void *out, void *dbias);
void bias_backward(const struct compute *c, const void *dout, int width, void *dbias);
int partial_lines(const struct compute *c); /* of c->partial, one for ROWS_PER_TASK rows */

/* grad (width) += sum over blocks of c->partial (blocks, width), in a fixed tree. */
void partial_join(const struct compute *c, int blocks, int width, void *grad);

/* ----------------------------------------------------------- linear layers */

void linear_forward(const struct compute *c, const void *x, const void *weight, const void *bias,
                    int in, int out, void *y);
void linear_residual(const struct compute *c, const void *x, const void *weight, const void *bias,
                     int in, int out, const float *residual, float *y);
void linear_gelu(const struct compute *c, const void *x, const void *weight, const void *bias,
                 int in, int out, void *wide, void *active);
void linear_backward(const struct compute *c, const void *dout, const void *weight, int in,
                     int out, void *dx);
void linear_backward_float(const struct compute *c, const void *dout, const void *weight, int in,
                           int out, float *dx);
void linear_backward_gelu(const struct compute *c, const void *dout, const void *weight, int in,
                          int out, const void *wide, void *dwide, void *dbias);
void linear_backward_weight(const struct compute *c, const void *x, const void *dout, int in,
                            int out, void *dweight);

/* What happens to a finished tile: finishers of products, and their arg. */
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

#endif
