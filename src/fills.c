// SPDX-License-Identifier: Apache-2.0
/* The ready-made fills of tensors. */
#include "kernels/random.h"

#include "include/zero.h"
#include "kernels/kernels.h"

int zero_fill_normal(void *arg, int64_t first, int64_t count, float *out)
{
    const struct zero_normal *normal = arg;
    if (!normal || first < 0)
        return ZERO_ERR_ARGUMENT;
    struct random_key key = random_key(normal->seed, normal->stream);
    kernels_best()->normal(count, &key, (uint64_t)first, (double)normal->mean, (double)normal->std,
                           out);
    return 0;
}

int zero_fill_constant(void *arg, int64_t first, int64_t count, float *out)
{
    const float *value = arg;
    if (!value || first < 0)
        return ZERO_ERR_ARGUMENT;
    for (int64_t i = 0; i < count; i++)
        out[i] = *value;
    return 0;
}
