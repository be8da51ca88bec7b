// SPDX-License-Identifier: Apache-2.0
/* The layers on the CPU: each is done when it returns, in the host's own memory, and
 * nothing fails. */
#include <string.h>

#include "examples/gpt2/attention.h"
#include "examples/gpt2/device.h"
#include "examples/gpt2/head.h"
#include "examples/gpt2/layers.h"

static const int32_t *tokens_here(const struct compute *c, const int32_t *tokens, int count,
                                  bool targets)
{
    (void)c, (void)count, (void)targets;
    return tokens;
}

static void clear(const struct compute *c, void *memory, int64_t bytes)
{
    (void)c;
    memset(memory, 0, (size_t)bytes);
}

static const char *no_failure(const struct compute *c)
{
    (void)c;
    return NULL;
}

const struct layers layers_cpu = {
    .tokens = tokens_here,
    .clear = clear,
    .embed_forward = embed_forward,
    .embed_backward = embed_backward,
    .norm_forward = norm_forward,
    .norm_backward = norm_backward,
    .linear = linear_forward,
    .linear_residual = linear_residual,
    .linear_gelu = linear_gelu,
    .linear_backward_weight = linear_backward_weight,
    .linear_backward = linear_backward,
    .linear_backward_float = linear_backward_float,
    .linear_backward_gelu = linear_backward_gelu,
    .residual_backward = residual_backward,
    .bias_backward = bias_backward,
    .attention_forward = attention_forward,
    .attention_backward = attention_backward,
    .head_loss = head_loss,
    .head_backward = head_backward,
    .head_logits = head_logits,
    .loss = head_mean,
    .failure = no_failure,
};
