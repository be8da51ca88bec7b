// SPDX-License-Identifier: Apache-2.0
/*
 * Eight fp32 lanes.
 */
#include <immintrin.h>
#include <stdint.h>

#include "kernels/bf16.h"
#include "kernels/kernels.h"

#define VECTOR __m256
#define LANES  8

static inline VECTOR vector_load(const float *in)
{
    return _mm256_loadu_ps(in);
}

static inline void vector_store(float *out, VECTOR x)
{
    _mm256_storeu_ps(out, x);
}

static inline VECTOR vector_set(float x)
{
    return _mm256_set1_ps(x);
}

static inline VECTOR vector_sqrt(VECTOR x)
{
    return _mm256_sqrt_ps(x);
}

static inline void bf16_store(uint16_t *out, VECTOR x)
{
    __m256i bits = _mm256_castps_si256(x);
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x8000)), 16);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    rounded = _mm256_blendv_epi8(rounded, _mm256_set1_epi32(BF16_NAN), nan);
    __m128i low = _mm256_castsi256_si128(rounded), high = _mm256_extracti128_si256(rounded, 1);
    _mm_storeu_si128((__m128i *)(void *)out, _mm_packus_epi32(low, high));
}

static inline VECTOR bf16_widen(const uint16_t *in)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)in));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline double block_square(const VECTOR *sum)
{
    __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd(); /* lanes 0-3, 4-7 */
    for (int q = 0; q < KERNELS_BLOCK / LANES; q++) {
        __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(sum[q]));
        __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(sum[q], 1));
        low = _mm256_add_pd(low, _mm256_mul_pd(a, a));
        high = _mm256_add_pd(high, _mm256_mul_pd(b, b));
    }
    __m256d four = _mm256_add_pd(low, high);
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

#include "kernels/cpu/vector.h"

const struct kernels kernels_avx2 = VECTOR_KERNELS("avx2");
