// SPDX-License-Identifier: Apache-2.0
/*
 * Causal self-attention, one task per sequence and head. Of the T x T scores
 * nothing is kept: a block of queries at a time is computed, and computed again
 * in backward from the logarithm of each row's sum (as FlashAttention does,
 * arXiv 2205.14135). Does not include the linear layers around it.
 */
#ifndef EXAMPLES_GPT2_ATTENTION_H
#define EXAMPLES_GPT2_ATTENTION_H

#include "examples/gpt2/layers.h"

/* qkv (B, T, 3C) and out (B, T, C) operands, a head's channels side by side;
 * lse (B, heads, T). */
void attention_forward(const struct compute *c, const void *qkv, float *lse, void *out);

/* dqkv (B, T, 3C) operand, from dout (B, T, C) operand. */
void attention_backward(const struct compute *c, const void *qkv, const float *lse,
                        const void *out, const void *dout, void *dqkv);

/* Scratch bytes of a worker; size is the number of channels of a head. */
int64_t attention_scratch(enum zero_dtype dtype, int seq, int size);

#endif
