// SPDX-License-Identifier: Apache-2.0
/*
 * What packed products by AVX2, AVX-512 and AMX share. It is compiled for what it uses, and
 * reached through the functions of the tables of pieces alone.
 */
#ifndef EXAMPLES_GPT2_MATMUL_X86_H
#define EXAMPLES_GPT2_MATMUL_X86_H

#include "examples/gpt2/matmul_packed.h"

#ifdef __x86_64__

#include <immintrin.h>

#include "examples/gpt2/numeric.h"

#define AVX2          __attribute__((target("avx2,fma,f16c")))
#define AVX512        __attribute__((target("avx512f")))
#define INLINE        AVX2 static inline __attribute__((always_inline))
#define INLINE_AVX512 AVX512 static inline __attribute__((always_inline))
#define WIDE          16
#define LINE          16 /* elements: a cache line, or half of one */
#define REACH         8  /* rows at once: all may fall into one set of the first cache */

/* AVX-512's pieces: 24 of its 32 registers are sums. */
#define ACROSS      3
#define COLS_AVX512 (ACROSS * WIDE)
#define ROWS_AVX512 8

/* What will be needed next: rows are short, and too many at once for the CPU to foresee. */
INLINE void fetch(enum zero_dtype dtype, const void *from, int64_t at)
{
    _mm_prefetch((const char *)from + at * operand_bytes(dtype), _MM_HINT_T0);
}

/* across: registers that are used of a row. */
INLINE_AVX512 void sums_begin(__m512 s[ROWS_AVX512][ACROSS], int across, bool add, const float *c,
                              int ldc)
{
#pragma GCC unroll 8
    for (int i = 0; i < ROWS_AVX512; i++)
#pragma GCC unroll 4
        for (int j = 0; j < across; j++)
            s[i][j] = add ? _mm512_loadu_ps(c + (int64_t)i * ldc + j * WIDE) : _mm512_setzero_ps();
}

INLINE_AVX512 void sums_end(__m512 s[ROWS_AVX512][ACROSS], int across, float *c, int ldc)
{
#pragma GCC unroll 8
    for (int i = 0; i < ROWS_AVX512; i++)
#pragma GCC unroll 4
        for (int j = 0; j < across; j++)
            _mm512_storeu_ps(c + (int64_t)i * ldc + j * WIDE, s[i][j]);
}

#endif
#endif
