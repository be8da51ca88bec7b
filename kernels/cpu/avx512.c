// SPDX-License-Identifier: Apache-2.0
/*
 * The kernels with sixteen fp32 lanes: scalar.c operation by operation. No
 * fused multiply-add, no approximate reciprocals, and not the bf16 conversion
 * of the CPU, which flushes denormals; tails go through the scalar element.
 */
#include <immintrin.h>

#include "kernels/adam.h"
#include "kernels/bf16.h"
#include "kernels/cpu/cpu.h"

#define LANES 16
#define VECTORS (KERNELS_BLOCK / LANES) /* registers of one block */

/* ---- Adam */

struct constants {
    __m512 grad_scale, decay, beta1, one_minus_beta1, beta2, one_minus_beta2;
    __m512 step_size, root_scale, eps;
};

static inline struct constants constants_load(const struct adam *k)
{
    return (struct constants){
        .grad_scale = _mm512_set1_ps(k->grad_scale),
        .decay = _mm512_set1_ps(k->decay),
        .beta1 = _mm512_set1_ps(k->beta1),
        .one_minus_beta1 = _mm512_set1_ps(k->one_minus_beta1),
        .beta2 = _mm512_set1_ps(k->beta2),
        .one_minus_beta2 = _mm512_set1_ps(k->one_minus_beta2),
        .step_size = _mm512_set1_ps(k->step_size),
        .root_scale = _mm512_set1_ps(k->root_scale),
        .eps = _mm512_set1_ps(k->eps),
    };
}

/* The new masters of one vector; stores them and the moments. */
static inline __m512 adam_vector(const struct constants *k, const float *grad, float *master,
                                 float *m, float *v)
{
    __m512 g = _mm512_mul_ps(_mm512_loadu_ps(grad), k->grad_scale);
    __m512 p = _mm512_mul_ps(_mm512_loadu_ps(master), k->decay);
    __m512 m1 = _mm512_add_ps(_mm512_mul_ps(k->beta1, _mm512_loadu_ps(m)),
                              _mm512_mul_ps(k->one_minus_beta1, g));
    __m512 v1 = _mm512_add_ps(_mm512_mul_ps(k->beta2, _mm512_loadu_ps(v)),
                              _mm512_mul_ps(_mm512_mul_ps(k->one_minus_beta2, g), g));
    __m512 root = _mm512_add_ps(_mm512_mul_ps(_mm512_sqrt_ps(v1), k->root_scale), k->eps);
    p = _mm512_sub_ps(p, _mm512_mul_ps(k->step_size, _mm512_div_ps(m1, root)));
    _mm512_storeu_ps(m, m1);
    _mm512_storeu_ps(v, v1);
    _mm512_storeu_ps(master, p);
    return p;
}

/* ---- bf16 */

/* Sixteen rounded values as 16-bit integers. */
static inline __m256i bf16_round(__m512 x)
{
    __m512i bits = _mm512_castps_si512(x);
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x8000)), 16);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    rounded = _mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(BF16_NAN));
    return _mm512_cvtepi32_epi16(rounded);
}

static inline __m512 bf16_widen(const uint16_t *in)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)in));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static void avx512_adam(int64_t n, const struct adam *constants, const float *restrict grad,
                        float *restrict master, float *restrict m, float *restrict v,
                        uint16_t *restrict bf16)
{
    const struct constants k = constants_load(constants);
    int64_t i = 0;
    if (bf16) {
        for (; i + LANES <= n; i += LANES) {
            __m512 p = adam_vector(&k, grad + i, master + i, m + i, v + i);
            _mm256_storeu_si256((__m256i *)(void *)(bf16 + i), bf16_round(p));
        }
    } else {
        for (; i + LANES <= n; i += LANES)
            adam_vector(&k, grad + i, master + i, m + i, v + i);
    }
    for (; i < n; i++) {
        adam_element(constants, grad[i], &master[i], &m[i], &v[i]);
        if (bf16)
            bf16[i] = bf16_from_float(master[i]);
    }
}

static void avx512_to_bf16(int64_t n, const float *restrict in, uint16_t *restrict out)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_si256((__m256i *)(void *)(out + i), bf16_round(_mm512_loadu_ps(in + i)));
    for (; i < n; i++)
        out[i] = bf16_from_float(in[i]);
}

static void avx512_from_bf16(int64_t n, const uint16_t *restrict in, float *restrict out)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm512_storeu_ps(out + i, bf16_widen(in + i));
    for (; i < n; i++)
        out[i] = bf16_to_float(in[i]);
}

/* ---- sums over ranks */

static inline void block_begin(__m512 *sum, const float *acc, bool fresh)
{
    for (int q = 0; q < VECTORS; q++)
        sum[q] = fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(acc + q * LANES);
}

static inline double block_square(const __m512 *sum)
{
    __m512d eight = _mm512_setzero_pd();
    for (int q = 0; q < VECTORS; q++) {
        __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(sum[q]));
        __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(sum[q], 1));
        eight = _mm512_add_pd(eight, _mm512_mul_pd(a, a));
        eight = _mm512_add_pd(eight, _mm512_mul_pd(b, b));
    }
    __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd(eight, 1));
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

static inline void block_end(const __m512 *sum, float *acc, double *square)
{
    for (int q = 0; q < VECTORS; q++)
        _mm512_storeu_ps(acc + q * LANES, sum[q]);
    if (square)
        *square = block_square(sum);
}

static void avx512_sum_f32(int64_t n, int ranks, const float *const *parts, bool fresh, float *acc,
                           double *squares)
{
    for (int64_t at = 0; at < n; at += KERNELS_BLOCK) {
        __m512 sum[VECTORS];
        block_begin(sum, acc + at, fresh);
        for (int r = 0; r < ranks; r++) {
            const float *part = parts[r] + at;
            for (int q = 0; q < VECTORS; q++)
                sum[q] = _mm512_add_ps(sum[q], _mm512_loadu_ps(part + q * LANES));
        }
        block_end(sum, acc + at, squares ? squares + at / KERNELS_BLOCK : NULL);
    }
}

static void avx512_sum_bf16(int64_t n, int ranks, const uint16_t *const *parts, bool fresh,
                            float *acc, double *squares)
{
    for (int64_t at = 0; at < n; at += KERNELS_BLOCK) {
        __m512 sum[VECTORS];
        block_begin(sum, acc + at, fresh);
        for (int r = 0; r < ranks; r++) {
            const uint16_t *part = parts[r] + at;
            for (int q = 0; q < VECTORS; q++)
                sum[q] = _mm512_add_ps(sum[q], bf16_widen(part + q * LANES));
        }
        block_end(sum, acc + at, squares ? squares + at / KERNELS_BLOCK : NULL);
    }
}

const struct kernels kernels_avx512 = {
    .isa = "avx512",
    .adam = avx512_adam,
    .to_bf16 = avx512_to_bf16,
    .from_bf16 = avx512_from_bf16,
    .sum_f32 = avx512_sum_f32,
    .sum_bf16 = avx512_sum_bf16,
};
