// SPDX-License-Identifier: Apache-2.0
/* The order of the layers of a block. */
#include "examples/gpt2/block.h"

void block_forward(const struct compute *c, const void *const params[BLOCK_TENSORS],
                   const struct block_saved *saved, float *y)
{
    const struct layers *on = c->layers;
    int n = c->channels;
    on->norm_forward(c, saved->x, params[LN1_WEIGHT], params[LN1_BIAS], saved->stats1,
                     saved->norm1);
    on->linear(c, saved->norm1, params[QKV_WEIGHT], params[QKV_BIAS], n, 3 * n, saved->qkv);
    on->attention_forward(c, saved->qkv, saved->lse, saved->mixed);
    on->linear_residual(c, saved->mixed, params[PROJ_WEIGHT], params[PROJ_BIAS], n, n, saved->x,
                        saved->mid);
    on->norm_forward(c, saved->mid, params[LN2_WEIGHT], params[LN2_BIAS], saved->stats2,
                     saved->norm2);
    on->linear_gelu(c, saved->norm2, params[FC_WEIGHT], params[FC_BIAS], n, 4 * n, saved->wide,
                    saved->active);
    if (y)
        on->linear_residual(c, saved->active, params[OUT_WEIGHT], params[OUT_BIAS], 4 * n, n,
                            saved->mid, y);
}

static void mlp_backward(const struct compute *c, const void *const params[BLOCK_TENSORS],
                         void *const grads[BLOCK_TENSORS], const struct block_saved *saved,
                         const struct block_room *room, float *dx)
{
    const struct layers *on = c->layers;
    int n = c->channels;
    on->residual_backward(c, dx, room->dout, grads[OUT_BIAS]);
    on->linear_backward_weight(c, saved->active, room->dout, 4 * n, n, grads[OUT_WEIGHT]);
    on->linear_backward_gelu(c, room->dout, params[OUT_WEIGHT], 4 * n, n, saved->wide, room->dwide,
                             grads[FC_BIAS]);
    on->linear_backward_weight(c, saved->norm2, room->dwide, n, 4 * n, grads[FC_WEIGHT]);
    on->linear_backward_float(c, room->dwide, params[FC_WEIGHT], n, 4 * n, room->dnorm);
    on->norm_backward(c, saved->mid, saved->stats2, params[LN2_WEIGHT], room->dnorm, dx,
                      grads[LN2_WEIGHT], grads[LN2_BIAS]);
}

void block_backward(const struct compute *c, const void *const params[BLOCK_TENSORS],
                    void *const grads[BLOCK_TENSORS], const struct block_saved *saved,
                    const struct block_room *room, float *dx)
{
    const struct layers *on = c->layers;
    int n = c->channels;
    /* dwide holds dqkv behind room for the gradient of what attention gave. */
    void *dmixed = room->dwide;
    void *dqkv = operand_at(c->dtype, room->dwide, (int64_t)compute_rows(c) * n);

    mlp_backward(c, params, grads, saved, room, dx);
    on->residual_backward(c, dx, room->dout, grads[PROJ_BIAS]);
    on->linear_backward_weight(c, saved->mixed, room->dout, n, n, grads[PROJ_WEIGHT]);
    on->linear_backward(c, room->dout, params[PROJ_WEIGHT], n, n, dmixed);
    on->attention_backward(c, saved->qkv, saved->lse, saved->mixed, dmixed, dqkv);
    on->bias_backward(c, dqkv, 3 * n, grads[QKV_BIAS]);
    on->linear_backward_weight(c, saved->norm1, dqkv, n, 3 * n, grads[QKV_WEIGHT]);
    on->linear_backward_float(c, dqkv, params[QKV_WEIGHT], n, 3 * n, room->dnorm);
    on->norm_backward(c, saved->x, saved->stats1, params[LN1_WEIGHT], room->dnorm, dx,
                      grads[LN1_WEIGHT], grads[LN1_BIAS]);
}
