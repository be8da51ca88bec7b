// SPDX-License-Identifier: Apache-2.0
/*
 * The kernels for any vector register: scalar.c, so many lanes at a time. Each
 * instruction set includes this once, behind what differs between them:
 *
 *   VECTOR, LANES                   a register of fp32, on which + - * / work
 *   vector_load/store/set/sqrt      unaligned; all lanes equal; correctly rounded
 *   bf16_store, bf16_widen          LANES bf16, rounded from or widened to fp32
 *   block_square                    the squares of a block's registers, as kernels.h adds them
 *
 * No fused multiply-add, no approximate reciprocals; tails go through the
 * scalar element.
 */
#include "kernels/adam.h"
#include "kernels/bf16.h"
#include "kernels/cpu/cpu.h"

#define VECTORS (KERNELS_BLOCK / LANES) /* registers of one block */

/* ---- Adam */

struct constants {
    VECTOR grad_scale, decay, beta1, one_minus_beta1, beta2, one_minus_beta2;
    VECTOR step_size, root_scale, eps;
};

static inline struct constants constants_load(const struct adam *k)
{
    return (struct constants){
        .grad_scale = vector_set(k->grad_scale),
        .decay = vector_set(k->decay),
        .beta1 = vector_set(k->beta1),
        .one_minus_beta1 = vector_set(k->one_minus_beta1),
        .beta2 = vector_set(k->beta2),
        .one_minus_beta2 = vector_set(k->one_minus_beta2),
        .step_size = vector_set(k->step_size),
        .root_scale = vector_set(k->root_scale),
        .eps = vector_set(k->eps),
    };
}

/* The new masters of one vector; stores them and the moments. */
static inline VECTOR adam_vector(const struct constants *k, const float *grad, float *master,
                                 float *m, float *v)
{
    VECTOR g = vector_load(grad) * k->grad_scale;
    VECTOR p = vector_load(master) * k->decay;
    VECTOR m1 = k->beta1 * vector_load(m) + k->one_minus_beta1 * g;
    VECTOR v1 = k->beta2 * vector_load(v) + (k->one_minus_beta2 * g) * g;
    p = p - k->step_size * (m1 / (vector_sqrt(v1) * k->root_scale + k->eps));
    vector_store(m, m1);
    vector_store(v, v1);
    vector_store(master, p);
    return p;
}

static void vector_adam(int64_t n, const struct adam *constants, const float *restrict grad,
                        float *restrict master, float *restrict m, float *restrict v,
                        uint16_t *restrict bf16)
{
    const struct constants k = constants_load(constants);
    int64_t i = 0;
    if (bf16) {
        for (; i + LANES <= n; i += LANES)
            bf16_store(bf16 + i, adam_vector(&k, grad + i, master + i, m + i, v + i));
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

/* ---- bf16 */

static void vector_to_bf16(int64_t n, const float *restrict in, uint16_t *restrict out)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        bf16_store(out + i, vector_load(in + i));
    for (; i < n; i++)
        out[i] = bf16_from_float(in[i]);
}

static void vector_from_bf16(int64_t n, const uint16_t *restrict in, float *restrict out)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        vector_store(out + i, bf16_widen(in + i));
    for (; i < n; i++)
        out[i] = bf16_to_float(in[i]);
}

/* ---- sums over ranks */

static inline void block_begin(VECTOR *sum, const float *acc, bool fresh)
{
    for (int q = 0; q < VECTORS; q++)
        sum[q] = fresh ? vector_set(0) : vector_load(acc + q * LANES);
}

static inline void block_end(const VECTOR *sum, float *acc, double *square)
{
    for (int q = 0; q < VECTORS; q++)
        vector_store(acc + q * LANES, sum[q]);
    if (square)
        *square = block_square(sum);
}

static void vector_sum_f32(int64_t n, int ranks, const float *const *parts, bool fresh, float *acc,
                           double *squares)
{
    for (int64_t at = 0; at < n; at += KERNELS_BLOCK) {
        VECTOR sum[VECTORS];
        block_begin(sum, acc + at, fresh);
        for (int r = 0; r < ranks; r++)
            for (int q = 0; q < VECTORS; q++)
                sum[q] = sum[q] + vector_load(parts[r] + at + q * LANES);
        block_end(sum, acc + at, squares ? squares + at / KERNELS_BLOCK : NULL);
    }
}

static void vector_sum_bf16(int64_t n, int ranks, const uint16_t *const *parts, bool fresh,
                            float *acc, double *squares)
{
    for (int64_t at = 0; at < n; at += KERNELS_BLOCK) {
        VECTOR sum[VECTORS];
        block_begin(sum, acc + at, fresh);
        for (int r = 0; r < ranks; r++)
            for (int q = 0; q < VECTORS; q++)
                sum[q] = sum[q] + bf16_widen(parts[r] + at + q * LANES);
        block_end(sum, acc + at, squares ? squares + at / KERNELS_BLOCK : NULL);
    }
}

#define VECTOR_KERNELS(name)                                                                       \
    {                                                                                              \
        .isa = name, .adam = vector_adam, .to_bf16 = vector_to_bf16,                               \
        .from_bf16 = vector_from_bf16, .sum_f32 = vector_sum_f32, .sum_bf16 = vector_sum_bf16      \
    }
