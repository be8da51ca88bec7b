// SPDX-License-Identifier: Apache-2.0
/* Single random numbers, and the ready-made fills of tensors. */
#include "src/random.h"

#include "include/zero.h"
#include "kernels/kernels.h"

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index)
{
    return random_word(random_key(seed, stream), index);
}

double random_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return random_unit(random_bits(seed, stream, index));
}

double random_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    double pair[2];
    random_normals(random_key(seed, stream), index & ~(uint64_t)1, 1, pair);
    return pair[index & 1];
}

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
