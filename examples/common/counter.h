// SPDX-License-Identifier: Apache-2.0
/* Random numbers of the programs: each depends on (seed, stream, index) alone,
 * so every rank draws the same ones without a message. */
#ifndef EXAMPLES_COMMON_COUNTER_H
#define EXAMPLES_COMMON_COUNTER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A bijective finaliser: Stafford's 13th variant, as in splitmix64. */
static inline uint64_t counter_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* A hash of what came before (hash) and of these bytes, by words of 8; the last is filled up
 * with zeros, so that texts are hashed with their end. */
static inline uint64_t counter_hash(uint64_t hash, const void *bytes, size_t count)
{
    for (size_t at = 0; at < count; at += 8) {
        uint64_t word = 0;
        memcpy(&word, (const char *)bytes + at, count - at < 8 ? count - at : 8);
        hash = counter_mix(hash ^ word) + 0x9E3779B97F4A7C15u;
    }
    return hash;
}

static inline uint64_t counter_bits(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint64_t key = counter_mix(seed ^ counter_mix(stream + 0x9E3779B97F4A7C15u));
    return counter_mix(counter_mix(index + key) ^ key);
}

/* In [0, 1). */
static inline double counter_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)(counter_bits(seed, stream, index) >> 11) * 0x1p-53;
}

#endif
