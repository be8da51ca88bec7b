// SPDX-License-Identifier: Apache-2.0
/* Plain loops, compiled for each instruction set; only the stores that pass the
 * caches by need intrinsics. Their results mean nothing. */
#include "examples/zero/bench_stream.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define TINY   1e-9f /* second moments stay above 0 */
#define INLINE static inline __attribute__((always_inline))

INLINE void ordinary_body(const struct stream_arrays *a, int64_t first, int64_t count)
{
    const float *restrict g = a->grad + first;
    float *restrict p = a->master + first, *restrict m = a->m + first, *restrict v = a->v + first;
    uint16_t *restrict h = a->bf16 + first;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        float x = p[i] + g[i];
        m[i] = m[i] + g[i];
        v[i] = v[i] + TINY;
        p[i] = x;
        memcpy(&bits, &x, sizeof(bits));
        h[i] = (uint16_t)(bits >> 16);
    }
}

INLINE void root_body(const struct stream_arrays *a, int64_t first, int64_t count)
{
    const float *restrict m = a->m + first, *restrict v = a->v + first;
    float *restrict p = a->master + first;
    for (int64_t i = 0; i < count; i++)
        p[i] = m[i] / (sqrtf(v[i]) + 1e-8f);
}

#define VARIANTS(isa, attribute)                                                                   \
    attribute static void ordinary_##isa(const struct stream_arrays *a, int64_t first,             \
                                         int64_t count)                                            \
    {                                                                                              \
        ordinary_body(a, first, count);                                                            \
    }                                                                                              \
    attribute static void root_##isa(const struct stream_arrays *a, int64_t first, int64_t count)  \
    {                                                                                              \
        root_body(a, first, count);                                                                \
    }

VARIANTS(plain, )

#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2")))
#ifdef __clang__
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif

VARIANTS(avx2, AVX2)
VARIANTS(avx512, AVX512)

/* Adds, stores, and returns what was stored. */
AVX2 static inline __m256 add_stream(float *to, __m256 g)
{
    __m256 sum = _mm256_add_ps(_mm256_load_ps(to), g);
    _mm256_stream_ps(to, sum);
    return sum;
}

AVX2 static void non_temporal_avx2(const struct stream_arrays *a, int64_t first, int64_t count)
{
    const __m256 tiny = _mm256_set1_ps(TINY);
    for (int64_t i = first; i < first + count; i += 16) {
        __m256 g0 = _mm256_load_ps(a->grad + i), g1 = _mm256_load_ps(a->grad + i + 8);
        add_stream(a->m + i, g0);
        add_stream(a->m + i + 8, g1);
        add_stream(a->v + i, tiny);
        add_stream(a->v + i + 8, tiny);
        __m256i p0 = _mm256_castps_si256(add_stream(a->master + i, g0));
        __m256i p1 = _mm256_castps_si256(add_stream(a->master + i + 8, g1));
        __m256i h = _mm256_packus_epi32(_mm256_srli_epi32(p0, 16), _mm256_srli_epi32(p1, 16));
        _mm256_stream_si256((__m256i *)(void *)(a->bf16 + i), _mm256_permute4x64_epi64(h, 0xD8));
    }
    _mm_sfence();
}
#endif

struct streams streams_select(void)
{
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return (struct streams){ordinary_avx512, non_temporal_avx2, root_avx512};
    if (__builtin_cpu_supports("avx2"))
        return (struct streams){ordinary_avx2, non_temporal_avx2, root_avx2};
#endif
    return (struct streams){ordinary_plain, NULL, root_plain};
}
