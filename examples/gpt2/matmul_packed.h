// SPDX-License-Identifier: Apache-2.0
/*
 * What an instruction set does of a packed product: operands widened to fp32
 * and laid out in stripes, and one piece of the result in registers. Every set
 * gives the same bits: an element is one chain of fused multiply-adds in order
 * of k.
 */
#ifndef EXAMPLES_GPT2_MATMUL_PACKED_H
#define EXAMPLES_GPT2_MATMUL_PACKED_H

#include "examples/gpt2/matmul_kind.h"

/* Of the result, at once: twelve registers of AVX2, with three left for what is multiplied. */
#define PIECE_ROWS 6
#define PIECE_COLS 16

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
    /* Stripes of PIECE_ROWS rows (pack_a) or PIECE_COLS columns (pack_b): each k outermost,
     * padded with zeros, k * width from the next. May write PACK_BEYOND floats past the last. */
    void (*pack_a)(const struct panel *panel, float *out);
    void (*pack_b)(const struct panel *panel, float *out);
    /* c (PIECE_ROWS, PIECE_COLS), rows ldc apart, = stripe of A times stripe of B, or += */
    void (*multiply)(int k, const float *a, const float *b, bool add, float *c, int ldc);
};

#define PACK_BEYOND 16

extern const struct pieces pieces_plain;
const struct pieces *pieces_avx2(void); /* NULL: not on this CPU */
const struct pieces *pieces_neon(void); /* the same */

/* Of pieces_plain, for sets that pack no faster. */
void plain_pack_a(const struct panel *panel, float *out);
void plain_pack_b(const struct panel *panel, float *out);

void packed_multiply(const struct pieces *pieces, const struct matmul *p, bool add, float *c,
                     int ldc, void *scratch);

#endif
