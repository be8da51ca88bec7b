// SPDX-License-Identifier: Apache-2.0
/*
 * The kernels in plain C: they define what every other file of this folder
 * computes, and run where nothing better does. No intrinsics; the compiler may
 * vectorise, which changes no bit.
 */
#include "kernels/adam.h"
#include "kernels/bf16.h"
#include "kernels/cpu/cpu.h"

static void scalar_adam(int64_t n, const struct adam *constants, const float *restrict grad,
                        float *restrict master, float *restrict m, float *restrict v,
                        uint16_t *restrict bf16)
{
    const struct adam k = *constants;
    if (!bf16) {
        for (int64_t i = 0; i < n; i++)
            adam_element(&k, grad[i], &master[i], &m[i], &v[i]);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        adam_element(&k, grad[i], &master[i], &m[i], &v[i]);
        bf16[i] = bf16_from_float(master[i]);
    }
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

static void scalar_sum_f32(int64_t n, int ranks, const float *const *parts, bool fresh, float *acc,
                           double *squares)
{
    for (int64_t at = 0; at < n; at += KERNELS_BLOCK) {
        float sum[KERNELS_BLOCK];
        block_begin(sum, acc + at, fresh);
        for (int r = 0; r < ranks; r++) {
            for (int i = 0; i < KERNELS_BLOCK; i++)
                sum[i] += parts[r][at + i];
        }
        block_end(sum, acc + at, squares ? squares + at / KERNELS_BLOCK : NULL);
    }
}

static void scalar_sum_bf16(int64_t n, int ranks, const uint16_t *const *parts, bool fresh,
                            float *acc, double *squares)
{
    for (int64_t at = 0; at < n; at += KERNELS_BLOCK) {
        float sum[KERNELS_BLOCK];
        block_begin(sum, acc + at, fresh);
        for (int r = 0; r < ranks; r++) {
            for (int i = 0; i < KERNELS_BLOCK; i++)
                sum[i] += bf16_to_float(parts[r][at + i]);
        }
        block_end(sum, acc + at, squares ? squares + at / KERNELS_BLOCK : NULL);
    }
}

const struct kernels kernels_scalar = {
    .isa = "scalar",
    .adam = scalar_adam,
    .to_bf16 = scalar_to_bf16,
    .from_bf16 = scalar_from_bf16,
    .sum_f32 = scalar_sum_f32,
    .sum_bf16 = scalar_sum_bf16,
};
