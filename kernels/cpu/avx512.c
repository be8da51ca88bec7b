// SPDX-License-Identifier: Apache-2.0
/*
 * Sixteen fp32 lanes. The bf16 conversion is in integers: the CPU's own flushes
 * denormals.
 */
#include <immintrin.h>
#include <stdint.h>

#include "kernels/bf16.h"
#include "kernels/fp16.h"
#include "kernels/kernels.h"

#define VECTOR __m512
#define LANES  16

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

static inline void store16(void *out, __m512i x)
{
    _mm256_storeu_si256(out, _mm512_cvtepi32_epi16(x));
}

static inline void bf16_store(uint16_t *out, VECTOR x)
{
    __m512i bits = _mm512_castps_si512(x);
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x8000)), 16);
    store16(out, _mm512_mask_mov_epi32(rounded, vector_nans(x), _mm512_set1_epi32(BF16_NAN)));
}

static inline VECTOR bf16_widen(const uint16_t *in)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)in));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline void split_store(uint16_t *weight, int16_t *remainder, VECTOR x)
{
    __m512i bits = _mm512_castps_si512(x);
    bf16_store(weight, x);
    store16(remainder, _mm512_mask_mov_epi32(bits, vector_nans(x), _mm512_setzero_si512()));
}

static inline VECTOR split_load(const uint16_t *weight, const int16_t *remainder)
{
    __m512i upper = _mm512_castps_si512(bf16_widen(weight));
    __m512i lower = _mm512_cvtepi16_epi32(_mm256_loadu_si256((const void *)remainder));
    return _mm512_castsi512_ps(_mm512_add_epi32(upper, lower));
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
