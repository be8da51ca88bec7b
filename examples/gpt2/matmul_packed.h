// SPDX-License-Identifier: Apache-2.0
/*
 * What an instruction set does of a packed product: operands laid out in
 * stripes, and one piece of the result in registers. Every set gives the same
 * bits: an element is one chain of fused multiply-adds in order of k. But the
 * instructions for bf16 take values below 2^-126 for zeros, and AMX has an order of
 * its own: of each 32 products the even ones are a chain and the odd ones another, and
 * their sum is added to the element; with terms six times, once for each product of
 * terms.
 */
#ifndef EXAMPLES_GPT2_MATMUL_PACKED_H
#define EXAMPLES_GPT2_MATMUL_PACKED_H

#include "examples/gpt2/matmul.h"

#define PIECE_ROWS 6    /* of all sets but AVX-512 and AMX */
#define PIECE_MOST 1024 /* elements */
#define PARTS_MOST 3    /* of a piece */
#define PANEL_DEEP 288  /* words of k of a slice of a long sum, at most: a multiple of .words */

/* Rows of op(A), or columns of op(B). */
struct panel {
    enum zero_dtype dtype;
    const void *from;
    int ld;
    bool along; /* k runs along a stored row */
    int count;  /* rows or columns */
    int k;
};

typedef void pack_fn(const struct panel *panel, float *out);

struct pieces {
    const char *name;
    int rows, cols; /* of a piece, which all registers but a few hold */
    int part;       /* columns; the last piece of a row has as many parts of cols as it needs */
    /* So many values of k are packed as so many words, the last ones padded with zeros: 1 as 1,
     * widened to fp32; 2 of bf16 as 1, the first one high; for tiles 32 as 16, the first of two
     * low, or as 48, three terms each. */
    int values, words;
    int uncut; /* a sum of so many words of k is one slice, although more than PANEL_DEEP, which is
                * the most that plain_pack_a and plain_pack_b take */
    /* Stripes of rows (pack_a) or of columns (pack_b): for each word of k, a word of every row
     * or column, or in what order multiply wants them; padded with zeros. May write PACK_BEYOND
     * words past the last. */
    pack_fn *pack_a, *pack_b;
    /* c (rows, part), (rows, 2 part) ..., rows ldc apart, = stripe of A times stripe of B, or += */
    void (*multiply[PARTS_MOST])(int words, const float *a, const float *b, bool add, float *c,
                                 int ldc);
    /* The same, with rows of A as they are stored, k along them, lda elements apart: they begin at
     * cache lines, and are whole pieces and whole values. NULL: A is always packed. */
    void (*multiply_stored)(int words, const void *a, int lda, const float *b, bool add, float *c,
                            int ldc);
    void (*begin)(void), (*end)(void); /* before a thread's pieces, and behind; or NULL */
};

#define PACK_BEYOND 16

extern const struct pieces pieces_plain;
const struct pieces *pieces_avx512(void); /* NULL: not on this CPU */
const struct pieces *pieces_avx2(void);   /* the same */
const struct pieces *pieces_neon(void);   /* the same */
/* With AVX-512's instructions for bf16, of that alone, and with AMX. */
const struct pieces *pieces_bf16(void);
const struct pieces *pieces_amx(void);
bool pairs_are_slow(void); /* AVX-512's for bf16 take longer than the two of fp32 they stand for */
const struct pieces *pieces_best(enum zero_dtype dtype); /* of all these */
/* Of fp32 alone, as three terms of bf16, by AMX; or NULL. */
const struct pieces *pieces_terms(void);

/* Of pieces_plain, for sets that pack no faster. */
pack_fn plain_pack_a, plain_pack_b;

/* Sums are computed in slices: p's product over as many values from k on as one takes. The next one
 * begins slice.k further on. Of a slice it is the slice. */
struct matmul packed_slice(const struct pieces *pieces, const struct matmul *p, int k);

/* Packs a slice's op(A); NULL: it is taken as it is stored. Bytes enough for every slice of a sum
 * that is no longer. */
const float *packed_a_make(const struct pieces *pieces, const struct matmul *slice, float *room);
int64_t packed_a_bytes(const struct pieces *pieces, int m, int k);

/* Packs all slices of op(B). Floats from the room's begin to the slice that begins at k, and there
 * to column col, a multiple of .cols; p->n as it was packed. */
void packed_b_make(const struct pieces *pieces, const struct matmul *p, float *room);
int64_t packed_b_at(const struct pieces *pieces, const struct matmul *p, int k, int col);
int64_t packed_b_bytes(const struct pieces *pieces, int n, int k);

/* c = the slice's product, or +=, of operands so packed, of which B may have more columns. */
void packed_multiply(const struct pieces *pieces, const struct matmul *slice, const float *a,
                     const float *b, bool add, float *c, int ldc);

#endif
