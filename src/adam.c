// SPDX-License-Identifier: Apache-2.0
#include "src/adam.h"

#include <string.h>

#define BLOCK 2048 /* elements that are copied or rounded while the first cache has them */

static struct grads grads_at(const struct adam_stretch *s, int64_t at)
{
    return (struct grads){.f32 = s->grads.f32 ? s->grads.f32 + at : NULL,
                          .bf16 = s->grads.bf16 ? s->grads.bf16 + at : NULL};
}

static void step_block(const struct kernels *kernels, const struct adam_stretch *s, int64_t at,
                       int64_t n)
{
    const struct adam *k = &s->constants;
    float *m = s->m + at, *v = s->v + at;
    uint16_t *half = s->param ? (uint16_t *)s->param + at : NULL;
    if (s->remainder) {
        kernels->adam_split(n, k, grads_at(s, at), half, s->remainder + at, m, v);
        return;
    }
    float *master = s->master + at;
    bool bf16 = s->dtype == ZERO_BF16;
    kernels->adam(n, k, grads_at(s, at), master, m, v, bf16 ? half : NULL);
    if (s->dtype == ZERO_FP16)
        kernels->to_fp16(n, master, half);
    else if (s->param && !bf16)
        memcpy((float *)s->param + at, master, (size_t)n * 4);
}

void adam_step(const struct kernels *kernels, const struct adam_stretch *s)
{
    bool once = s->remainder || !s->param || s->dtype == ZERO_BF16;
    int64_t most = once ? s->count : BLOCK;
    for (int64_t at = 0; at < s->count; at += most)
        step_block(kernels, s, at, s->count - at < most ? s->count - at : most);
}
