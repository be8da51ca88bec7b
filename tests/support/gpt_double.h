// SPDX-License-Identifier: Apache-2.0
/*
 * GPT-2 in double precision and plain loops, forward and backward: what the
 * model of examples/gpt2 must compute. Written from the formulas, shares
 * nothing with it but the order of the tensors (wte, wpe, twelve per block,
 * ln_f's two). No speed.
 */
#ifndef TESTS_SUPPORT_GPT_DOUBLE_H
#define TESTS_SUPPORT_GPT_DOUBLE_H

#include <stdint.h>

struct gpt_double {
    int layers, channels, heads, seq, vocab, batch;
    double **params; /* one per tensor, weights (in, out) */
    double **grads;  /* likewise, added to; NULL: forward alone */
    double *logits;  /* (B, T, V), written; NULL: not wanted */
};

/* The mean loss over B * T targets. */
double gpt_double_loss(const struct gpt_double *g, const int32_t *tokens, const int32_t *targets);

#endif
