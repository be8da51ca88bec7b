// SPDX-License-Identifier: Apache-2.0
/*
 * What an instruction set does of a packed product: operands laid out in
 * stripes, and one piece of the result in registers. Every set gives the same
 * bits: an element is one chain of fused multiply-adds in order of k. But the
 * instructions for bf16 take values below 2^-126 for zeros.
 */
#ifndef EXAMPLES_GPT2_MATMUL_PACKED_H
#define EXAMPLES_GPT2_MATMUL_PACKED_H

#include "examples/gpt2/matmul.h"

#define PIECE_ROWS      6
#define PIECE_COLS_MOST 64

/* Rows of op(A), or columns of op(B). */
struct panel {
    enum zero_dtype dtype;
    const void *from;
    int ld;
    bool along; /* k runs along a stored row */
    int count;  /* rows or columns */
    int k;
};

struct pieces {
    const char *name;
    int cols; /* of a piece, which all registers but a few hold */
    int per;  /* values in a word: 1, widened to fp32, or 2 of bf16, of which the first is high */
    /* Stripes of PIECE_ROWS rows (pack_a) or cols columns (pack_b): for each word of k, a word of
     * every row or column; padded with zeros. May write PACK_BEYOND words past the last. */
    void (*pack_a)(const struct panel *panel, float *out);
    void (*pack_b)(const struct panel *panel, float *out);
    /* c (PIECE_ROWS, cols), rows ldc apart, = stripe of A times stripe of B, or += */
    void (*multiply)(int words, const float *a, const float *b, bool add, float *c, int ldc);
};

#define PACK_BEYOND 16

extern const struct pieces pieces_plain;
const struct pieces *pieces_avx512(void); /* NULL: not on this CPU */
const struct pieces *pieces_avx2(void);   /* the same */
const struct pieces *pieces_neon(void);   /* the same */
/* With AVX-512's instructions for bf16, of that alone. */
const struct pieces *pieces_bf16(void);
const struct pieces *pieces_best(enum zero_dtype dtype); /* of all these */

/* Of pieces_plain, for sets that pack no faster. */
void plain_pack_a(const struct panel *panel, float *out);
void plain_pack_b(const struct panel *panel, float *out);

/* All of op(B) (k, n), for products with any rows of op(A). */
int64_t packed_bytes(const struct pieces *pieces, int n, int k);
void packed_make(const struct pieces *pieces, const struct matmul *p, float *packed);

/* c = op(A) times what p's op(B) was packed to, or += */
void packed_multiply(const struct pieces *pieces, const struct matmul *p, const float *packed,
                     bool add, float *c, int ldc, void *scratch);
/* Bytes, enough for fewer rows and shorter sums too. */
int64_t packed_scratch(const struct pieces *pieces, int m, int k);

#endif
