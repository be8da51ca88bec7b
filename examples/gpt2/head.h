// SPDX-License-Identifier: Apache-2.0
/*
 * The tied head and the loss: logits = x wte^T, cross entropy. The (rows, V)
 * logits never exist whole: forward reduces each tile to a maximum and a sum a
 * row, backward computes them again, HEAD_COLUMNS of the vocabulary at a time.
 * That costs a third product of three and saves gigabytes at V = 50257. Rows
 * of wte past V, its padding, are never read.
 */
#ifndef EXAMPLES_GPT2_HEAD_H
#define EXAMPLES_GPT2_HEAD_H

#include "examples/gpt2/layers.h"

#define HEAD_COLUMNS 3840 /* a multiple of TILE_COLS */

/* The head's own memory, for up to rows rows. */
struct head_room {
    float *tiles;   /* (rows, tiles of the vocabulary, 2): maximum, sum of exp(logit - maximum) */
    float *chosen;  /* (rows): the target's logit */
    float *lse;     /* (rows): log of the sum of exp(logit) */
    double *losses; /* (rows) */
    void *dlogits;  /* (rows, min(V, HEAD_COLUMNS)) operand */
};

void head_carve(struct head_room *room, struct carve *carve, enum zero_dtype dtype, int rows,
                int vocab);

/* Of -log softmax(x wte^T)[target] over the rows; x (rows, C) operand, wte (>= V, C). head_mean
 * is their mean. */
void head_loss(const struct compute *c, const void *x, const void *wte,
               const int32_t *targets /* (rows) */);
double head_mean(const struct compute *c);

/* After head_loss: the gradient of loss_scale times the mean. dx (rows, C) fp32
 * is set, dwte added to. */
void head_backward(const struct compute *c, double loss_scale, const void *x, const void *wte,
                   const int32_t *targets, float *dx, void *dwte);

/* logits (V) of one row. */
void head_logits(const struct compute *c, const void *x, int64_t row, const void *wte,
                 float *logits);

#endif
