// SPDX-License-Identifier: Apache-2.0
/*
 * Eight fp32 lanes, with F16C for fp16.
 */
#include <immintrin.h>
#include <stdint.h>

#include "kernels/bf16.h"
#include "kernels/fp16.h"
#include "kernels/kernels.h"

#define VECTOR        __m256
#define LANES         8
#define VECTOR_PAIRS    /* packing works on two registers */
#define LATER         1 /* sixteen registers keep no more */
#define MOMENTS_AHEAD 128
#define REST_AHEAD    128
#define FAR_CPUS      (CPU_INTEL | CPU_ZEN5) /* the latter where ZERO_ISA asks for this set */

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

/* The bits of two vectors, with one NaN for all. That there is one is rare, and
 * one comparison sees it in both. */
static inline void bits_of(VECTOR a, VECTOR b, __m256i *x, __m256i *y)
{
    *x = _mm256_castps_si256(a);
    *y = _mm256_castps_si256(b);
    if (__builtin_expect(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)), 0)) {
        *x = _mm256_blendv_epi8(*x, _mm256_set1_epi32(BF16_NAN << 16), vector_nans(a));
        *y = _mm256_blendv_epi8(*y, _mm256_set1_epi32(BF16_NAN << 16), vector_nans(b));
    }
}

/* Of two registers both lower lanes, and both upper ones: one operation each, where a
 * permutation of four parts takes two on AMD's CPUs. */
static inline void lanes_pair(__m256i x, __m256i y, __m256i out[2])
{
    out[0] = _mm256_permute2x128_si256(x, y, 0x20);
    out[1] = _mm256_permute2x128_si256(x, y, 0x31);
}

static inline __m256i round_up(__m256i bits)
{
    return _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x8000)), 16);
}

static inline void bf16_store2(uint16_t *out, VECTOR a, VECTOR b)
{
    __m256i x, y, part[2];
    bits_of(a, b, &x, &y);
    lanes_pair(x, y, part);
    _mm256_storeu_si256((void *)out, _mm256_packus_epi32(round_up(part[0]), round_up(part[1])));
}

/* Eight words, each above a zero one: a broadcast load and one shuffle. */
static inline VECTOR bf16_widen(const uint16_t *in)
{
    const __m256i order =
        _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7, /* low lane */
                         -1, -1, 8, 9, -1, -1, 10, 11, -1, -1, 12, 13, -1, -1, 14, 15);
    __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)in));
    return _mm256_castsi256_ps(_mm256_shuffle_epi8(twice, order));
}

static inline void bf16_widen2(const uint16_t *in, VECTOR out[2])
{
    out[0] = bf16_widen(in);
    out[1] = bf16_widen(in + LANES);
}

/* The remainder is the lower half; the weight the upper, and one where that is
 * negative as a signed number. */
static inline void split_store2(uint16_t *weight, int16_t *remainder, VECTOR a, VECTOR b)
{
    const __m256i halves = /* of a lane: four upper, four lower */
        _mm256_setr_epi8(2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9, 12, 13, /* low lane */
                         2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9, 12, 13);
    __m256i x, y, part[2];
    bits_of(a, b, &x, &y);
    lanes_pair(_mm256_shuffle_epi8(x, halves), _mm256_shuffle_epi8(y, halves), part);
    __m256i upper = _mm256_unpacklo_epi64(part[0], part[1]);
    __m256i lower = _mm256_unpackhi_epi64(part[0], part[1]);
    upper = _mm256_sub_epi16(upper, _mm256_srai_epi16(lower, 15));
    _mm256_storeu_si256((void *)weight, upper);
    _mm256_storeu_si256((void *)remainder, lower);
}

static inline void split_load2(const uint16_t *weight, const int16_t *remainder, VECTOR out[2])
{
    __m256i lower = _mm256_loadu_si256((const void *)remainder), part[2];
    __m256i upper = _mm256_loadu_si256((const void *)weight);
    upper = _mm256_add_epi16(upper, _mm256_srai_epi16(lower, 15));
    lanes_pair(_mm256_unpacklo_epi16(lower, upper), _mm256_unpackhi_epi16(lower, upper), part);
    out[0] = _mm256_castsi256_ps(part[0]);
    out[1] = _mm256_castsi256_ps(part[1]);
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
