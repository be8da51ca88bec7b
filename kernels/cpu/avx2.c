// SPDX-License-Identifier: Apache-2.0
/*
 * The kernels with eight fp32 lanes: scalar.c operation by operation. No fused
 * multiply-add and no approximate reciprocals, whatever they would save; tails
 * go through the scalar element. Ordinary stores: the lines were just read.
 */
#include <immintrin.h>

#include "kernels/adam.h"
#include "kernels/bf16.h"
#include "kernels/cpu/cpu.h"

#define LANES 8
#define VECTORS (KERNELS_BLOCK / LANES) /* registers of one block */

/* ---- Adam */

struct constants {
    __m256 grad_scale, decay, beta1, one_minus_beta1, beta2, one_minus_beta2;
    __m256 step_size, root_scale, eps;
};

static inline struct constants constants_load(const struct adam *k)
{
    return (struct constants){
        .grad_scale = _mm256_set1_ps(k->grad_scale),
        .decay = _mm256_set1_ps(k->decay),
        .beta1 = _mm256_set1_ps(k->beta1),
        .one_minus_beta1 = _mm256_set1_ps(k->one_minus_beta1),
        .beta2 = _mm256_set1_ps(k->beta2),
        .one_minus_beta2 = _mm256_set1_ps(k->one_minus_beta2),
        .step_size = _mm256_set1_ps(k->step_size),
        .root_scale = _mm256_set1_ps(k->root_scale),
        .eps = _mm256_set1_ps(k->eps),
    };
}

/* The new masters of one vector; stores them and the moments. */
static inline __m256 adam_vector(const struct constants *k, const float *grad, float *master,
                                 float *m, float *v)
{
    __m256 g = _mm256_mul_ps(_mm256_loadu_ps(grad), k->grad_scale);
    __m256 p = _mm256_mul_ps(_mm256_loadu_ps(master), k->decay);
    __m256 m1 = _mm256_add_ps(_mm256_mul_ps(k->beta1, _mm256_loadu_ps(m)),
                              _mm256_mul_ps(k->one_minus_beta1, g));
    __m256 v1 = _mm256_add_ps(_mm256_mul_ps(k->beta2, _mm256_loadu_ps(v)),
                              _mm256_mul_ps(_mm256_mul_ps(k->one_minus_beta2, g), g));
    __m256 root = _mm256_add_ps(_mm256_mul_ps(_mm256_sqrt_ps(v1), k->root_scale), k->eps);
    p = _mm256_sub_ps(p, _mm256_mul_ps(k->step_size, _mm256_div_ps(m1, root)));
    _mm256_storeu_ps(m, m1);
    _mm256_storeu_ps(v, v1);
    _mm256_storeu_ps(master, p);
    return p;
}

/* ---- bf16 */

/* Eight rounded values as 16-bit integers. */
static inline __m128i bf16_round(__m256 x)
{
    __m256i bits = _mm256_castps_si256(x);
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x8000)), 16);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    rounded = _mm256_blendv_epi8(rounded, _mm256_set1_epi32(BF16_NAN), nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
}

static inline __m256 bf16_widen(const uint16_t *in)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)in));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static void avx2_adam(int64_t n, const struct adam *constants, const float *restrict grad,
                      float *restrict master, float *restrict m, float *restrict v,
                      uint16_t *restrict bf16)
{
    const struct constants k = constants_load(constants);
    int64_t i = 0;
    if (bf16) {
        for (; i + LANES <= n; i += LANES) {
            __m256 p = adam_vector(&k, grad + i, master + i, m + i, v + i);
            _mm_storeu_si128((__m128i *)(void *)(bf16 + i), bf16_round(p));
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

static void avx2_to_bf16(int64_t n, const float *restrict in, uint16_t *restrict out)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm_storeu_si128((__m128i *)(void *)(out + i), bf16_round(_mm256_loadu_ps(in + i)));
    for (; i < n; i++)
        out[i] = bf16_from_float(in[i]);
}

static void avx2_from_bf16(int64_t n, const uint16_t *restrict in, float *restrict out)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(out + i, bf16_widen(in + i));
    for (; i < n; i++)
        out[i] = bf16_to_float(in[i]);
}

/* ---- sums over ranks */

static inline void block_begin(__m256 *sum, const float *acc, bool fresh)
{
    for (int q = 0; q < VECTORS; q++)
        sum[q] = fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(acc + q * LANES);
}

static inline double block_square(const __m256 *sum)
{
    __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd(); /* lanes 0-3, 4-7 */
    for (int q = 0; q < VECTORS; q++) {
        __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(sum[q]));
        __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(sum[q], 1));
        low = _mm256_add_pd(low, _mm256_mul_pd(a, a));
        high = _mm256_add_pd(high, _mm256_mul_pd(b, b));
    }
    __m256d four = _mm256_add_pd(low, high);
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

static inline void block_end(const __m256 *sum, float *acc, double *square)
{
    for (int q = 0; q < VECTORS; q++)
        _mm256_storeu_ps(acc + q * LANES, sum[q]);
    if (square)
        *square = block_square(sum);
}

static void avx2_sum_f32(int64_t n, int ranks, const float *const *parts, bool fresh, float *acc,
                         double *squares)
{
    for (int64_t at = 0; at < n; at += KERNELS_BLOCK) {
        __m256 sum[VECTORS];
        block_begin(sum, acc + at, fresh);
        for (int r = 0; r < ranks; r++) {
            const float *part = parts[r] + at;
            for (int q = 0; q < VECTORS; q++)
                sum[q] = _mm256_add_ps(sum[q], _mm256_loadu_ps(part + q * LANES));
        }
        block_end(sum, acc + at, squares ? squares + at / KERNELS_BLOCK : NULL);
    }
}

static void avx2_sum_bf16(int64_t n, int ranks, const uint16_t *const *parts, bool fresh,
                          float *acc, double *squares)
{
    for (int64_t at = 0; at < n; at += KERNELS_BLOCK) {
        __m256 sum[VECTORS];
        block_begin(sum, acc + at, fresh);
        for (int r = 0; r < ranks; r++) {
            const uint16_t *part = parts[r] + at;
            for (int q = 0; q < VECTORS; q++)
                sum[q] = _mm256_add_ps(sum[q], bf16_widen(part + q * LANES));
        }
        block_end(sum, acc + at, squares ? squares + at / KERNELS_BLOCK : NULL);
    }
}

const struct kernels kernels_avx2 = {
    .isa = "avx2",
    .adam = avx2_adam,
    .to_bf16 = avx2_to_bf16,
    .from_bf16 = avx2_from_bf16,
    .sum_f32 = avx2_sum_f32,
    .sum_bf16 = avx2_sum_bf16,
};
