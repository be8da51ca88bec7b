// SPDX-License-Identifier: Apache-2.0
/*
 * Packed products with NEON: a piece takes 24 of its 32 registers. Panels are
 * packed by the plain loops, which the compiler makes vectors of.
 */
#include "examples/gpt2/matmul_packed.h"

#include <stddef.h>

#ifdef __aarch64__

#include <arm_neon.h>

#define COLS   16
#define WIDTH  4
#define ACROSS (COLS / WIDTH)

static void piece_multiply(int k, const float *a, const float *b, bool add, float *c, int ldc)
{
    float32x4_t s[PIECE_ROWS][ACROSS];
#pragma GCC unroll 6
    for (int i = 0; i < PIECE_ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < ACROSS; j++)
            s[i][j] = add ? vld1q_f32(c + (int64_t)i * ldc + j * WIDTH) : vdupq_n_f32(0);
    for (int p = 0; p < k; p++, a += PIECE_ROWS, b += COLS) {
#pragma GCC unroll 6
        for (int i = 0; i < PIECE_ROWS; i++)
#pragma GCC unroll 4
            for (int j = 0; j < ACROSS; j++)
                s[i][j] = vfmaq_n_f32(s[i][j], vld1q_f32(b + j * WIDTH), a[i]);
    }
#pragma GCC unroll 6
    for (int i = 0; i < PIECE_ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < ACROSS; j++)
            vst1q_f32(c + (int64_t)i * ldc + j * WIDTH, s[i][j]);
}

#endif

const struct pieces *pieces_neon(void)
{
#ifdef __aarch64__
    static const struct pieces neon = {.name = "packed panels, NEON",
                                       .rows = PIECE_ROWS,
                                       .cols = COLS,
                                       .part = COLS,
                                       .values = 1,
                                       .words = 1,
                                       .pack_a = plain_pack_a,
                                       .pack_b = plain_pack_b,
                                       .multiply = {piece_multiply}};
    return &neon;
#else
    return NULL;
#endif
}
