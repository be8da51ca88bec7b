// SPDX-License-Identifier: Apache-2.0
/*
 * Sixteen fp32 lanes. The bf16 conversion is in integers: the CPU's own flushes
 * denormals.
 */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/bf16.h"
#include "kernels/fp16.h"
#include "kernels/kernels.h"

#define VECTOR        __m512
#define LANES         16
#define LATER         3
#define MOMENTS_AHEAD 96 /* from the third cache they would come late */
#define REST_AHEAD    0
#define FAR_CPUS      CPU_INTEL
#define VECTOR_PAIRS  /* of two registers' 16-bit halves one shuffle makes one */

static inline VECTOR vector_load(const float *in)
{
    return _mm512_loadu_ps(in);
}

static inline void vector_store(float *out, VECTOR x)
{
    _mm512_storeu_ps(out, x);
}

static inline VECTOR vector_set(float x)
{
    return _mm512_set1_ps(x);
}

static inline VECTOR vector_sqrt(VECTOR x)
{
    return _mm512_sqrt_ps(x);
}

static inline __mmask16 vector_nans(VECTOR x)
{
    return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
}

/* The lower (0) or upper (1) halves of two registers' lanes. (gcc before 9 has no
 * _mm512_set_epi16.) */
static inline __m512i vector_halves(__m512i a, __m512i b, short half)
{
    static const uint16_t lower[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                       22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42,
                                       44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
    __m512i from = _mm512_or_si512(_mm512_loadu_si512(lower), _mm512_set1_epi16(half));
    return _mm512_permutex2var_epi16(a, from, b);
}

/* The other way: sixteen lanes, from element first on, of lower halves and of upper ones. */
static inline __m512i vector_lanes(__m512i lower, __m512i upper, short first)
{
    static const uint16_t both[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                      8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    __m512i from = _mm512_add_epi16(_mm512_loadu_si512(both), _mm512_set1_epi16(first));
    return _mm512_permutex2var_epi16(lower, from, upper);
}

/* The same of upper halves alone. */
static inline VECTOR vector_uppers(__m512i upper, short first)
{
    static const uint16_t both[32] = {0, 0, 0, 1, 0, 2,  0, 3,  0, 4,  0, 5,  0, 6,  0, 7,
                                      0, 8, 0, 9, 0, 10, 0, 11, 0, 12, 0, 13, 0, 14, 0, 15};
    __m512i from = _mm512_add_epi16(_mm512_loadu_si512(both), _mm512_set1_epi16(first));
    return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xAAAAAAAA, from, upper));
}

static inline bool vector_no_nans2(VECTOR a, VECTOR b)
{
    return __builtin_expect(_mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q) == 0, 1);
}

static inline __mmask32 vector_numbers2(VECTOR a, VECTOR b)
{
    return _mm512_kunpackw(_mm512_cmp_ps_mask(b, b, _CMP_ORD_Q),
                           _mm512_cmp_ps_mask(a, a, _CMP_ORD_Q));
}

static inline void bf16_store2(uint16_t *out, VECTOR a, VECTOR b)
{
    const __m512i half = _mm512_set1_epi32(0x8000), nan = _mm512_set1_epi16(BF16_NAN);
    __m512i rounded = vector_halves(_mm512_add_epi32(_mm512_castps_si512(a), half),
                                    _mm512_add_epi32(_mm512_castps_si512(b), half), 1);
    if (!vector_no_nans2(a, b))
        rounded = _mm512_mask_mov_epi16(nan, vector_numbers2(a, b), rounded);
    _mm512_storeu_si512(out, rounded);
}

static inline VECTOR bf16_widen(const uint16_t *in)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)in));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline void bf16_widen2(const uint16_t *in, VECTOR out[2])
{
    __m512i upper = _mm512_loadu_si512(in);
    out[0] = vector_uppers(upper, 0);
    out[1] = vector_uppers(upper, 16);
}

static inline void split_store2(uint16_t *weight, int16_t *remainder, VECTOR a, VECTOR b)
{
    __m512i lower = vector_halves(_mm512_castps_si512(a), _mm512_castps_si512(b), 0);
    bf16_store2(weight, a, b);
    if (!vector_no_nans2(a, b))
        lower = _mm512_maskz_mov_epi16(vector_numbers2(a, b), lower);
    _mm512_storeu_si512(remainder, lower);
}

/* A negative remainder takes one from the upper half. */
static inline void split_load2(const uint16_t *weight, const int16_t *remainder, VECTOR out[2])
{
    __m512i lower = _mm512_loadu_si512(remainder), sign = _mm512_srai_epi16(lower, 15);
    __m512i upper = _mm512_add_epi16(_mm512_loadu_si512(weight), sign);
    out[0] = _mm512_castsi512_ps(vector_lanes(lower, upper, 0));
    out[1] = _mm512_castsi512_ps(vector_lanes(lower, upper, 16));
}

/* Unlike the CPU's bf16 conversion these keep denormals. */
static inline void fp16_store(uint16_t *out, VECTOR x)
{
    __m256i rounded = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    rounded = _mm256_mask_mov_epi16(rounded, vector_nans(x), _mm256_set1_epi16(FP16_NAN));
    _mm256_storeu_si256((void *)out, rounded);
}

static inline VECTOR fp16_widen(const uint16_t *in)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)in));
}

static inline double block_square(const VECTOR *sum)
{
    __m512d eight = _mm512_setzero_pd();
    for (int q = 0; q < KERNELS_BLOCK / LANES; q++) {
        __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(sum[q]));
        __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(sum[q], 1));
        eight = _mm512_add_pd(eight, _mm512_mul_pd(a, a));
        eight = _mm512_add_pd(eight, _mm512_mul_pd(b, b));
    }
    __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd(eight, 1));
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

#include "kernels/cpu/vector.h"

const struct kernels kernels_avx512 = VECTOR_KERNELS("avx512");
