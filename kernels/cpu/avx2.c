// SPDX-License-Identifier: Apache-2.0
/*
 * Eight fp32 lanes, with F16C for fp16.
 */
#include <immintrin.h>
#include <stdint.h>

#include "kernels/bf16.h"
#include "kernels/fp16.h"
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

static inline __m256i vector_nans(VECTOR x)
{
    return _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

/* Eight numbers below 2^16. */
static inline void store16(void *out, __m256i x)
{
    __m128i low = _mm256_castsi256_si128(x), high = _mm256_extracti128_si256(x, 1);
    _mm_storeu_si128(out, _mm_packus_epi32(low, high));
}

static inline void bf16_store(uint16_t *out, VECTOR x)
{
    __m256i bits = _mm256_castps_si256(x);
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x8000)), 16);
    store16(out, _mm256_blendv_epi8(rounded, _mm256_set1_epi32(BF16_NAN), vector_nans(x)));
}

static inline VECTOR bf16_widen(const uint16_t *in)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)in));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline void split_store(uint16_t *weight, int16_t *remainder, VECTOR x)
{
    __m256i lower = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0xFFFF));
    bf16_store(weight, x);
    store16(remainder, _mm256_andnot_si256(vector_nans(x), lower));
}

static inline VECTOR split_load(const uint16_t *weight, const int16_t *remainder)
{
    __m256i upper = _mm256_castps_si256(bf16_widen(weight));
    __m256i lower = _mm256_cvtepi16_epi32(_mm_loadu_si128((const void *)remainder));
    return _mm256_castsi256_ps(_mm256_add_epi32(upper, lower));
}

/* The conversions keep denormals whatever the thread's mode is. */
static inline void fp16_store(uint16_t *out, VECTOR x)
{
    __m128i rounded = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256i nans = vector_nans(x);
    __m128i narrow =
        _mm_packs_epi32(_mm256_castsi256_si128(nans), _mm256_extracti128_si256(nans, 1));
    rounded = _mm_blendv_epi8(rounded, _mm_set1_epi16(FP16_NAN), narrow);
    _mm_storeu_si128((void *)out, rounded);
}

static inline VECTOR fp16_widen(const uint16_t *in)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)in));
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
