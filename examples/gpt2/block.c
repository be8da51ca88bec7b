// SPDX-License-Identifier: Apache-2.0
/*
 * The order of the layers of a block, and the two finishers that GELU needs.
 * Each weight's gradient is one product, rounded to the model's dtype once.
 */
#include "examples/gpt2/block.h"

#include "examples/gpt2/attention.h"
#include "examples/gpt2/numeric.h"

/* fc's tiles: bias, kept for backward, GELU, kept for the next product. */
struct gelu_target {
    struct tile_target wide;
    void *active;
};

static void tile_to_gelu(void *arg, const struct tile *tile)
{
    const struct gelu_target *g = arg;
    const struct tile_target *t = &g->wide;
    tile_add_bias(t, tile);
    for (int r = 0; r < tile->rows; r++) {
        int64_t at = (int64_t)(tile->row + r) * t->width + tile->col;
        float *values = tile_line(tile, r);
        operand_store(t->dtype, t->to, at, tile->cols, values);
        row_gelu(tile->cols, values, values);
        operand_store(t->dtype, g->active, at, tile->cols, values);
    }
}

/* Tiles of the gradient after GELU become those before it; their column sums,
 * for fc's bias, are a line of partial per row of tiles. */
struct gelu_backward {
    const struct compute *c;
    const void *wide;
    void *dwide;
};

static void tile_gelu_backward(void *arg, const struct tile *tile)
{
    const struct gelu_backward *g = arg;
    enum zero_dtype dtype = g->c->dtype;
    int width = 4 * g->c->channels;
    float *sum = g->c->partial + (int64_t)(tile->row / TILE) * width + tile->col;
    for (int r = 0; r < tile->rows; r++) {
        int64_t at = (int64_t)(tile->row + r) * width + tile->col;
        float *values = tile_line(tile, r);
        row_gelu_backward(tile->cols, operand_view(dtype, g->wide, at, tile->cols, tile->spare),
                          values);
        operand_store(dtype, g->dwide, at, tile->cols, values);
        if (r > 0)
            row_add(tile->cols, values, sum);
        else
            operand_store(ZERO_FP32, sum, 0, tile->cols, values);
    }
}

void block_forward(const struct compute *c, const void *const params[BLOCK_TENSORS],
                   const struct block_saved *saved, float *y)
{
    int n = c->channels;
    struct tile_target qkv = {c->dtype, 3 * n, params[QKV_BIAS], NULL, saved->qkv};
    struct tile_target mid = {c->dtype, n, params[PROJ_BIAS], saved->x, saved->mid};
    struct gelu_target wide = {{c->dtype, 4 * n, params[FC_BIAS], NULL, saved->wide},
                               saved->active};
    struct tile_target out = {c->dtype, n, params[OUT_BIAS], saved->mid, y};

    norm_forward(c, saved->x, params[LN1_WEIGHT], params[LN1_BIAS], saved->stats1, saved->norm1);
    linear_forward(c, saved->norm1, params[QKV_WEIGHT], n, 3 * n, tile_to_operand, &qkv);
    attention_forward(c, saved->qkv, saved->lse, saved->mixed);
    linear_forward(c, saved->mixed, params[PROJ_WEIGHT], n, n, tile_to_float, &mid);
    norm_forward(c, saved->mid, params[LN2_WEIGHT], params[LN2_BIAS], saved->stats2, saved->norm2);
    linear_forward(c, saved->norm2, params[FC_WEIGHT], n, 4 * n, tile_to_gelu, &wide);
    if (y)
        linear_forward(c, saved->active, params[OUT_WEIGHT], 4 * n, n, tile_to_float, &out);
}

static void mlp_backward(const struct compute *c, const void *const params[BLOCK_TENSORS],
                         void *const grads[BLOCK_TENSORS], const struct block_saved *saved,
                         const struct block_room *room, float *dx)
{
    int n = c->channels;
    struct gelu_backward gelu = {c, saved->wide, room->dwide};
    struct tile_target dnorm = {.dtype = c->dtype, .width = n, .to = room->dnorm};

    residual_backward(c, dx, room->dout, grads[OUT_BIAS]);
    linear_backward_weight(c, saved->active, room->dout, 4 * n, n, grads[OUT_WEIGHT]);
    linear_backward_input(c, room->dout, params[OUT_WEIGHT], 4 * n, n, tile_gelu_backward, &gelu);
    partial_join(c, (compute_rows(c) + TILE - 1) / TILE, 4 * n, grads[FC_BIAS]);
    linear_backward_weight(c, saved->norm2, room->dwide, n, 4 * n, grads[FC_WEIGHT]);
    linear_backward_input(c, room->dwide, params[FC_WEIGHT], n, 4 * n, tile_to_float, &dnorm);
    norm_backward(c, saved->mid, saved->stats2, params[LN2_WEIGHT], room->dnorm, dx,
                  grads[LN2_WEIGHT], grads[LN2_BIAS]);
}

void block_backward(const struct compute *c, const void *const params[BLOCK_TENSORS],
                    void *const grads[BLOCK_TENSORS], const struct block_saved *saved,
                    const struct block_room *room, float *dx)
{
    int n = c->channels;
    /* dwide holds dqkv behind room for the gradient of what attention gave. */
    void *dmixed = room->dwide;
    void *dqkv = operand_at(c->dtype, room->dwide, (int64_t)compute_rows(c) * n);
    struct tile_target mixed = {.dtype = c->dtype, .width = n, .to = dmixed};
    struct tile_target dnorm = {.dtype = c->dtype, .width = n, .to = room->dnorm};

    mlp_backward(c, params, grads, saved, room, dx);
    residual_backward(c, dx, room->dout, grads[PROJ_BIAS]);
    linear_backward_weight(c, saved->mixed, room->dout, n, n, grads[PROJ_WEIGHT]);
    linear_backward_input(c, room->dout, params[PROJ_WEIGHT], n, n, tile_to_operand, &mixed);
    attention_backward(c, saved->qkv, saved->lse, saved->mixed, dmixed, dqkv);
    bias_backward(c, dqkv, 3 * n, grads[QKV_BIAS]);
    linear_backward_weight(c, saved->norm1, dqkv, n, 3 * n, grads[QKV_WEIGHT]);
    linear_backward_input(c, dqkv, params[QKV_WEIGHT], n, 3 * n, tile_to_float, &dnorm);
    norm_backward(c, saved->x, saved->stats1, params[LN1_WEIGHT], room->dnorm, dx,
                  grads[LN1_WEIGHT], grads[LN1_BIAS]);
}
