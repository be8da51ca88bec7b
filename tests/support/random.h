// SPDX-License-Identifier: Apache-2.0
/* Single random numbers for tests: each depends on (seed, stream, index) alone, as those of
 * kernels/random.h do, which defines them. */
#ifndef TESTS_SUPPORT_RANDOM_H
#define TESTS_SUPPORT_RANDOM_H

#include "kernels/random.h"

static inline uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index)
{
    return random_word(random_key(seed, stream), index);
}

/* In (0, 1). */
static inline double random_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return random_unit(random_bits(seed, stream, index));
}

/* Mean 0, variance 1. */
static inline double random_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    double pair[2];
    random_normals(random_key(seed, stream), index & ~(uint64_t)1, 1, pair);
    return pair[index & 1];
}

#endif
