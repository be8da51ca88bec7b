// SPDX-License-Identifier: Apache-2.0
/*
 * One transformer block on plain pointers (pre-norm, as GPT-2):
 *   mid = x + proj(attention(norm(x)));  y = mid + proj(gelu(fc(norm(mid))))
 * Knows no engine and no other block.
 */
#ifndef EXAMPLES_GPT2_BLOCK_H
#define EXAMPLES_GPT2_BLOCK_H

#include "examples/gpt2/device.h"

/* A block's tensors, in the order of their declaration. */
enum block_tensor {
    LN1_WEIGHT,  /* (C) */
    LN1_BIAS,    /* (C) */
    QKV_WEIGHT,  /* (C, 3C) */
    QKV_BIAS,    /* (3C) */
    PROJ_WEIGHT, /* (C, C) */
    PROJ_BIAS,   /* (C) */
    LN2_WEIGHT,  /* (C) */
    LN2_BIAS,    /* (C) */
    FC_WEIGHT,   /* (C, 4C) */
    FC_BIAS,     /* (4C) */
    OUT_WEIGHT,  /* (4C, C) */
    OUT_BIAS,    /* (C) */
    BLOCK_TENSORS,
};

/* What backward needs of forward; operands where not said. */
struct block_saved {
    float *x;      /* (rows, C) fp32: the block's input */
    float *mid;    /* (rows, C) fp32 */
    float *stats1; /* (rows, 2) fp32 */
    float *stats2; /* (rows, 2) fp32 */
    float *lse;    /* (B, heads, T) fp32 */
    void *norm1;   /* (rows, C) */
    void *qkv;     /* (rows, 3C) */
    void *mixed;   /* (rows, C): what attention gave */
    void *norm2;   /* (rows, C) */
    void *wide;    /* (rows, 4C): before GELU */
    void *active;  /* (rows, 4C): after it */
};

/* Backward's own memory. */
struct block_room {
    void *dout;   /* (rows, C) operand */
    void *dwide;  /* (rows, 4C) operand */
    float *dnorm; /* (rows, C) fp32 */
};

/* y (rows, C) from saved->x. NULL: y is not computed, only what backward needs. */
void block_forward(const struct compute *c, const void *const params[BLOCK_TENSORS],
                   const struct block_saved *saved, float *y);
/* dx (rows, C) comes as the gradient of y and leaves as that of saved->x. */
void block_backward(const struct compute *c, const void *const params[BLOCK_TENSORS],
                    void *const grads[BLOCK_TENSORS], const struct block_saved *saved,
                    const struct block_room *room, float *dx);

#endif
