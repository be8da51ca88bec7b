// SPDX-License-Identifier: Apache-2.0
/*
 * The kernels for any vector register: scalar.c, so many lanes at a time. Each
 * instruction set includes this once, behind what differs between them:
 *
 *   VECTOR, LANES                   a register of fp32, on which + - * / work
 *   vector_load/store/set/sqrt      unaligned; all lanes equal; correctly rounded
 *   bf16_store, bf16_widen          LANES bf16, rounded from or widened to fp32
 *   fp16_store, fp16_widen          the same for fp16
 *   split_store, split_load         LANES masters as weight and remainder
 *   block_square                    the squares of a block's registers, as kernels.h adds them
 *
 * No fused multiply-add, no approximate reciprocals; tails go through the
 * scalar element.
 */
#include "kernels/adam.h"
#include "kernels/bf16.h"
#include "kernels/cpu/cpu.h"
#include "kernels/fp16.h"
#include "kernels/split.h"

#define VECTORS (KERNELS_BLOCK / LANES) /* registers of one block */

/* ---- Adam */

struct constants {
    VECTOR grad_scale, decay, beta1, one_minus_beta1, beta2, one_minus_beta2;
    VECTOR step_size, root_scale, eps, l2;
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
        .l2 = vector_set(k->l2),
    };
}

/* The new masters of one vector of old ones; stores the moments. */
static inline VECTOR adam_vector(const struct constants *k, bool l2, const float *grad,
                                 VECTOR master, float *m, float *v)
{
    VECTOR g = vector_load(grad) * k->grad_scale;
    if (l2)
        g = g + k->l2 * master;
    VECTOR p = master * k->decay;
    VECTOR m1 = k->beta1 * vector_load(m) + k->one_minus_beta1 * g;
    VECTOR v1 = k->beta2 * vector_load(v) + (k->one_minus_beta2 * g) * g;
    vector_store(m, m1);
    vector_store(v, v1);
    return p - k->step_size * (m1 / (vector_sqrt(v1) * k->root_scale + k->eps));
}

static inline void adam_loop(int64_t n, const struct adam *constants, bool l2,
                             const float *restrict grad, float *restrict master, float *restrict m,
                             float *restrict v, uint16_t *restrict bf16)
{
    const struct constants k = constants_load(constants);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        VECTOR p = adam_vector(&k, l2, grad + i, vector_load(master + i), m + i, v + i);
        vector_store(master + i, p);
        if (bf16)
            bf16_store(bf16 + i, p);
    }
    for (; i < n; i++) {
        adam_element(constants, l2, grad[i], &master[i], &m[i], &v[i]);
        if (bf16)
            bf16[i] = bf16_from_float(master[i]);
    }
}

static void vector_adam(int64_t n, const struct adam *k, const float *grad, float *master, float *m,
                        float *v, uint16_t *bf16)
{
    if (k->l2 != 0)
        adam_loop(n, k, true, grad, master, m, v, bf16);
    else
        adam_loop(n, k, false, grad, master, m, v, bf16);
}

/* ---- Adam on split masters */

static inline void adam_split_loop(int64_t n, const struct adam *constants, bool l2,
                                   const float *restrict grad, uint16_t *restrict weight,
                                   int16_t *restrict remainder, float *restrict m,
                                   float *restrict v)
{
    const struct constants k = constants_load(constants);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        VECTOR p = split_load(weight + i, remainder + i);
        p = adam_vector(&k, l2, grad + i, p, m + i, v + i);
        split_store(weight + i, remainder + i, p);
    }
    for (; i < n; i++) {
        float master = join_element(weight[i], remainder[i]);
        adam_element(constants, l2, grad[i], &master, &m[i], &v[i]);
        split_element(master, &weight[i], &remainder[i]);
    }
}

static void vector_adam_split(int64_t n, const struct adam *k, const float *grad, uint16_t *weight,
                              int16_t *remainder, float *m, float *v)
{
    if (k->l2 != 0)
        adam_split_loop(n, k, true, grad, weight, remainder, m, v);
    else
        adam_split_loop(n, k, false, grad, weight, remainder, m, v);
}

static void vector_split(int64_t n, const float *restrict master, uint16_t *restrict weight,
                         int16_t *restrict remainder)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        split_store(weight + i, remainder + i, vector_load(master + i));
    for (; i < n; i++)
        split_element(master[i], &weight[i], &remainder[i]);
}

static void vector_join(int64_t n, const uint16_t *restrict weight,
                        const int16_t *restrict remainder, float *restrict master)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        vector_store(master + i, split_load(weight + i, remainder + i));
    for (; i < n; i++)
        master[i] = join_element(weight[i], remainder[i]);
}

/* ---- 16-bit formats */

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

static void vector_to_fp16(int64_t n, const float *restrict in, uint16_t *restrict out)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        fp16_store(out + i, vector_load(in + i));
    for (; i < n; i++)
        out[i] = fp16_from_float(in[i]);
}

static void vector_from_fp16(int64_t n, const uint16_t *restrict in, float *restrict out)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        vector_store(out + i, fp16_widen(in + i));
    for (; i < n; i++)
        out[i] = fp16_to_float(in[i]);
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

/* A block is read to its end before it is written: acc may be one of the parts. */
#define VECTOR_SUM(name, type, widen)                                                              \
    static void name(int64_t n, int ranks, const type *const *parts, bool fresh, float *acc,       \
                     double *squares)                                                              \
    {                                                                                              \
        for (int64_t at = 0; at < n; at += KERNELS_BLOCK) {                                        \
            VECTOR sum[VECTORS];                                                                   \
            block_begin(sum, acc + at, fresh);                                                     \
            for (int r = 0; r < ranks; r++)                                                        \
                for (int q = 0; q < VECTORS; q++)                                                  \
                    sum[q] = sum[q] + widen(parts[r] + at + q * LANES);                            \
            block_end(sum, acc + at, squares ? squares + at / KERNELS_BLOCK : NULL);               \
        }                                                                                          \
    }

VECTOR_SUM(vector_sum_f32, float, vector_load)
VECTOR_SUM(vector_sum_bf16, uint16_t, bf16_widen)
VECTOR_SUM(vector_sum_fp16, uint16_t, fp16_widen)

#define VECTOR_KERNELS(name)                                                                       \
    {                                                                                              \
        .isa = name, .adam = vector_adam, .adam_split = vector_adam_split, .split = vector_split,  \
        .join = vector_join, .to_bf16 = vector_to_bf16, .from_bf16 = vector_from_bf16,             \
        .to_fp16 = vector_to_fp16, .from_fp16 = vector_from_fp16, .sum_f32 = vector_sum_f32,       \
        .sum_bf16 = vector_sum_bf16, .sum_fp16 = vector_sum_fp16                                   \
    }
