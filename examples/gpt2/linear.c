// SPDX-License-Identifier: Apache-2.0
/*
 * Linear layers: a product in tiles, and what happens to each finished tile while it
 * is in cache. Each weight's gradient is one product, rounded to the model's dtype once.
 */
#include <assert.h>
#include <string.h>

#include "examples/gpt2/layers.h"
#include "examples/gpt2/numeric.h"
#include "examples/gpt2/rows.h"

#define AHEAD 4 /* rows, in whose time memory answers */

/* --------------------------------------------------------------- finishers */

/* The target's bias for the columns of a tile, or NULL. */
static const float *tile_bias(const struct tile_target *target, const struct tile *tile)
{
    return target->bias
               ? operand_view(target->dtype, target->bias, tile->col, tile->cols, tile->spare)
               : NULL;
}

/* Where row r of a tile lies in a tensor so wide. */
static int64_t tile_at(const struct tile *tile, int width, int r)
{
    return (int64_t)(tile->row + r) * width + tile->col;
}

/* Fetches what row r + AHEAD of a tile will need of a tensor. */
static void row_fetch(const struct tile *tile, int r, enum zero_dtype dtype, const void *tensor,
                      int width)
{
    operand_fetch(dtype, tensor, tile_at(tile, width, r + AHEAD), tile->cols);
}

void tile_to_operand(void *arg, const struct tile *tile)
{
    const struct tile_target *t = arg;
    const float *bias = tile_bias(t, tile);
    for (int r = 0; r < tile->rows; r++) {
        row_fetch(tile, r, t->dtype, t->to, t->width);
        rows_best()->store(t->dtype, tile->cols, tile_line(tile, r), bias, NULL,
                           operand_at(t->dtype, t->to, tile_at(tile, t->width, r)));
    }
}

void tile_to_float(void *arg, const struct tile *tile)
{
    const struct tile_target *t = arg;
    const float *bias = tile_bias(t, tile);
    for (int r = 0; r < tile->rows; r++) {
        int64_t at = tile_at(tile, t->width, r);
        row_fetch(tile, r, ZERO_FP32, t->to, t->width);
        if (t->residual)
            row_fetch(tile, r, ZERO_FP32, t->residual, t->width);
        rows_best()->store(ZERO_FP32, tile->cols, tile_line(tile, r), bias,
                           t->residual ? t->residual + at : NULL, (float *)t->to + at);
    }
}

void tile_to_gradient(void *arg, const struct tile *tile)
{
    const struct tile_target *t = arg;
    for (int r = 0; r < tile->rows; r++) {
        row_fetch(tile, r, t->dtype, t->to, t->width);
        operand_add(t->dtype, t->to, tile_at(tile, t->width, r), tile->cols, tile_line(tile, r));
    }
}

/* Bias, kept for backward, GELU, kept for the next product. */
struct gelu_target {
    struct tile_target wide;
    void *active;
};

static void tile_to_gelu(void *arg, const struct tile *tile)
{
    const struct gelu_target *g = arg;
    const struct tile_target *t = &g->wide;
    const float *bias = tile_bias(t, tile);
    assert(bias);
    for (int r = 0; r < tile->rows; r++) {
        int64_t at = tile_at(tile, t->width, r);
        row_fetch(tile, r, t->dtype, t->to, t->width);
        row_fetch(tile, r, t->dtype, g->active, t->width);
        rows_best()->gelu(t->dtype, tile->cols, tile_line(tile, r), bias,
                          operand_at(t->dtype, t->to, at), operand_at(t->dtype, g->active, at));
    }
}

/* Tiles of the gradient after GELU become those before it; their column sums,
 * for the bias, are a line of partial per ROWS_PER_TASK rows. */
struct gelu_backward {
    const struct compute *c;
    int width;
    const void *wide;
    void *dwide;
};

static void tile_gelu_backward(void *arg, const struct tile *tile)
{
    const struct gelu_backward *g = arg;
    enum zero_dtype dtype = g->c->dtype;
    float *sum = NULL;
    _Static_assert(TILE_ROWS_LEAST % ROWS_PER_TASK == 0, "no two tiles write one line");
    for (int r = 0; r < tile->rows; r++) {
        int64_t at = tile_at(tile, g->width, r), line = (tile->row + r) / ROWS_PER_TASK;
        if (r % ROWS_PER_TASK == 0)
            sum = memset(g->c->partial + line * g->width + tile->col, 0,
                         (size_t)tile->cols * sizeof(*sum));
        row_fetch(tile, r, dtype, g->wide, g->width);
        row_fetch(tile, r, dtype, g->dwide, g->width);
        rows_best()->gelu_backward(dtype, tile->cols, operand_at(dtype, g->wide, at),
                                   tile_line(tile, r), operand_at(dtype, g->dwide, at), sum);
    }
}

/* ------------------------------------------------------------------ layers */

/* (rows, out) = x (rows, in) weight */
static void forward(const struct compute *c, const void *x, const void *weight, int in, int out,
                    tile_finish_fn *finish, void *arg)
{
    struct matmul p = {c->dtype, false, false, compute_rows(c), out, in, x, in, weight, out};
    matmul_tiles(c->workers, &p, finish, arg);
}

/* (rows, in) = dout (rows, out) weight^T */
static void backward(const struct compute *c, const void *dout, const void *weight, int in, int out,
                     tile_finish_fn *finish, void *arg)
{
    struct matmul p = {c->dtype, false, true, compute_rows(c), in, out, dout, out, weight, out};
    matmul_tiles(c->workers, &p, finish, arg);
}

void linear_forward(const struct compute *c, const void *x, const void *weight, const void *bias,
                    int in, int out, void *y)
{
    struct tile_target to = {c->dtype, out, bias, NULL, y};
    forward(c, x, weight, in, out, tile_to_operand, &to);
}

void linear_residual(const struct compute *c, const void *x, const void *weight, const void *bias,
                     int in, int out, const float *residual, float *y)
{
    struct tile_target to = {c->dtype, out, bias, residual, y};
    forward(c, x, weight, in, out, tile_to_float, &to);
}

void linear_gelu(const struct compute *c, const void *x, const void *weight, const void *bias,
                 int in, int out, void *wide, void *active)
{
    struct gelu_target to = {{c->dtype, out, bias, NULL, wide}, active};
    forward(c, x, weight, in, out, tile_to_gelu, &to);
}

void linear_backward_weight(const struct compute *c, const void *x, const void *dout, int in,
                            int out, void *dweight)
{
    struct matmul p = {c->dtype, true, false, in, out, compute_rows(c), x, in, dout, out};
    struct tile_target target = {.dtype = c->dtype, .width = out, .to = dweight};
    matmul_tiles(c->workers, &p, tile_to_gradient, &target);
}

void linear_backward(const struct compute *c, const void *dout, const void *weight, int in, int out,
                     void *dx)
{
    struct tile_target to = {.dtype = c->dtype, .width = in, .to = dx};
    backward(c, dout, weight, in, out, tile_to_operand, &to);
}

void linear_backward_float(const struct compute *c, const void *dout, const void *weight, int in,
                           int out, float *dx)
{
    struct tile_target to = {.dtype = c->dtype, .width = in, .to = dx};
    backward(c, dout, weight, in, out, tile_to_float, &to);
}

void linear_backward_gelu(const struct compute *c, const void *dout, const void *weight, int in,
                          int out, const void *wide, void *dwide, void *dbias)
{
    struct gelu_backward to = {c, in, wide, dwide};
    backward(c, dout, weight, in, out, tile_gelu_backward, &to);
    partial_join(c, partial_lines(c), in, dbias);
}
