// SPDX-License-Identifier: Apache-2.0
/* Attention of kernels and CPU against plain loops in double, each element within a bound
 * of its error that is computed beside it. */
#ifndef TESTS_SUPPORT_GPT2_ATTENTION_H
#define TESTS_SUPPORT_GPT2_ATTENTION_H

#include "tests/support/gpt2_kernels.h"

/* Shapes as in examples/gpt2/attention.h; channels are heads * size. */
struct attention_case {
    enum zero_dtype dtype;
    int batch, seq, heads, size;
    struct twin *qkv, *lse, *out, *dout, *delta, *dqkv;
};

/* lse and out are right, from qkv. */
void attention_forward_check(const struct attention_case *a);
/* dqkv is, from qkv, dout, and lse and out as they were before. */
void attention_backward_check(const struct attention_case *a);

#endif
