// SPDX-License-Identifier: Apache-2.0
/*
 * The kernels in plain C: they define what every other file of this folder
 * computes, and run where nothing better does. No intrinsics; the compiler may
 * vectorise, which changes no bit.
 */
#include "kernels/adam.h"
#include "kernels/bf16.h"
#include "kernels/cpu/cpu.h"
#include "kernels/fp16.h"
#include "kernels/random.h"
#include "kernels/split.h"

static inline float grad_at(const struct grads *grads, int64_t i)
{
    return grads->f32 ? grads->f32[i] : bf16_to_float(grads->bf16[i]);
}

static void scalar_adam(int64_t n, const struct adam *k, struct grads grads, float *restrict master,
                        float *restrict m, float *restrict v, uint16_t *restrict bf16)
{
    const bool l2 = k->l2 != 0;
    for (int64_t i = 0; i < n; i++) {
        adam_element(k, l2, grad_at(&grads, i), &master[i], &m[i], &v[i]);
        if (bf16)
            bf16[i] = bf16_from_float(master[i]);
    }
}

static void scalar_adam_split(int64_t n, const struct adam *k, struct grads grads,
                              uint16_t *restrict weight, int16_t *restrict remainder,
                              float *restrict m, float *restrict v)
{
    const bool l2 = k->l2 != 0;
    for (int64_t i = 0; i < n; i++) {
        float master = join_element(weight[i], remainder[i]);
        adam_element(k, l2, grad_at(&grads, i), &master, &m[i], &v[i]);
        split_element(master, &weight[i], &remainder[i]);
    }
}

static void scalar_split(int64_t n, const float *restrict master, uint16_t *restrict weight,
                         int16_t *restrict remainder)
{
    for (int64_t i = 0; i < n; i++)
        split_element(master[i], &weight[i], &remainder[i]);
}

static void scalar_join(int64_t n, const uint16_t *restrict weight,
                        const int16_t *restrict remainder, float *restrict master)
{
    for (int64_t i = 0; i < n; i++)
        master[i] = join_element(weight[i], remainder[i]);
}

static void scalar_to_bf16(int64_t n, const float *restrict in, uint16_t *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = bf16_from_float(in[i]);
}

static void scalar_from_bf16(int64_t n, const uint16_t *restrict in, float *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = bf16_to_float(in[i]);
}

static void scalar_to_fp16(int64_t n, const float *restrict in, uint16_t *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = fp16_from_float(in[i]);
}

static void scalar_from_fp16(int64_t n, const uint16_t *restrict in, float *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = fp16_to_float(in[i]);
}

/* Eight lanes, because that is what one AVX-512 register of doubles adds at a
 * time. The squares are exact: 24-bit significands fit twice into 53 bits. */
static double block_square(const float *x)
{
    double lane[8] = {0};
    for (int i = 0; i < KERNELS_BLOCK; i++)
        lane[i % 8] += (double)x[i] * (double)x[i];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static void block_begin(float *sum, const float *acc, bool fresh)
{
    for (int i = 0; i < KERNELS_BLOCK; i++)
        sum[i] = fresh ? 0.0f : acc[i];
}

static void block_end(const float *sum, float *acc, double *square)
{
    for (int i = 0; i < KERNELS_BLOCK; i++)
        acc[i] = sum[i];
    if (square)
        *square = block_square(sum);
}

static inline float f32_to_float(float x)
{
    return x;
}

/* A block is read to its end before it is written: acc may be one of the parts. */
#define SUM(name, type, to_float)                                                                  \
    static void name(int64_t n, int ranks, const type *const *parts, bool fresh, float *acc,       \
                     double *squares)                                                              \
    {                                                                                              \
        for (int64_t at = 0; at < n; at += KERNELS_BLOCK) {                                        \
            float sum[KERNELS_BLOCK];                                                              \
            block_begin(sum, acc + at, fresh);                                                     \
            for (int r = 0; r < ranks; r++) {                                                      \
                for (int i = 0; i < KERNELS_BLOCK; i++)                                            \
                    sum[i] += to_float(parts[r][at + i]);                                          \
            }                                                                                      \
            block_end(sum, acc + at, squares ? squares + at / KERNELS_BLOCK : NULL);               \
        }                                                                                          \
    }

SUM(scalar_sum_f32, float, f32_to_float)
SUM(scalar_sum_bf16, uint16_t, bf16_to_float)
SUM(scalar_sum_fp16, uint16_t, fp16_to_float)

const struct kernels kernels_scalar = {
    .isa = "scalar",
    .adam = scalar_adam,
    .adam_split = scalar_adam_split,
    .split = scalar_split,
    .join = scalar_join,
    .to_bf16 = scalar_to_bf16,
    .from_bf16 = scalar_from_bf16,
    .to_fp16 = scalar_to_fp16,
    .from_fp16 = scalar_from_fp16,
    .sum_f32 = scalar_sum_f32,
    .sum_bf16 = scalar_sum_bf16,
    .sum_fp16 = scalar_sum_fp16,
    .normal = random_fill,
    .digest = random_digest,
};
