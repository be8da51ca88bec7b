// SPDX-License-Identifier: Apache-2.0
/*
 * Goto's scheme (Goto and van de Geijn 2008, Anatomy of high-performance matrix
 * multiplication): B is packed, and of A a panel, a slice of the sum deep,
 * which stays in the second cache while the stripes of B pass, one after the other.
 * 16-bit operands are widened while they are packed, or paired, and fp32 is split for AMX, which
 * also takes A as it is stored.
 */
#include "examples/gpt2/matmul_packed.h"

#include <assert.h>
#include <string.h>

#include "examples/gpt2/numeric.h"

#define PLAIN_COLS 16
#define LINE       16 /* floats of a cache line */

static int stripes(int n, int width)
{
    return (n + width - 1) / width;
}

/* ---------------------------------------------------------------- plain pieces */

/* One stripe, a stored row at a time. What is not there stays zero. */
static void stripe_pack(const struct panel *s, int first, int width, float *out)
{
    float row[PANEL_DEEP];
    assert(s->k <= PANEL_DEEP);
    int count = s->count - first < width ? s->count - first : width;
    memset(out, 0, (size_t)s->k * (size_t)width * sizeof(float));
    for (int k = 0; !s->along && k < s->k; k++) {
        int64_t at = (int64_t)k * s->ld + first;
        memcpy(out + (int64_t)k * width, operand_view(s->dtype, s->from, at, count, row),
               (size_t)count * sizeof(float));
    }
    for (int i = 0; s->along && i < count; i++) {
        int64_t at = (int64_t)(first + i) * s->ld;
        const float *in = operand_view(s->dtype, s->from, at, s->k, row);
        for (int k = 0; k < s->k; k++)
            out[(int64_t)k * width + i] = in[k];
    }
}

void plain_pack_a(const struct panel *panel, float *out)
{
    for (int first = 0; first < panel->count; first += PIECE_ROWS)
        stripe_pack(panel, first, PIECE_ROWS, out + (int64_t)first * panel->k);
}

void plain_pack_b(const struct panel *panel, float *out)
{
    for (int first = 0; first < panel->count; first += PLAIN_COLS)
        stripe_pack(panel, first, PLAIN_COLS, out + (int64_t)first * panel->k);
}

static void plain_multiply(int k, const float *a, const float *b, bool add, float *c, int ldc)
{
    for (int i = 0; i < PIECE_ROWS; i++) {
        float sums[PLAIN_COLS] = {0};
        if (add)
            memcpy(sums, c + (int64_t)i * ldc, sizeof(sums));
        for (int p = 0; p < k; p++)
            for (int j = 0; j < PLAIN_COLS; j++)
                sums[j] = number_fused(a[p * PIECE_ROWS + i], b[p * PLAIN_COLS + j], sums[j]);
        memcpy(c + (int64_t)i * ldc, sums, sizeof(sums));
    }
}

const struct pieces pieces_plain = {.name = "packed panels, plain",
                                    .rows = PIECE_ROWS,
                                    .cols = PLAIN_COLS,
                                    .part = PLAIN_COLS,
                                    .values = 1,
                                    .words = 1,
                                    .pack_a = plain_pack_a,
                                    .pack_b = plain_pack_b,
                                    .multiply = {plain_multiply}};

const struct pieces *pieces_best(enum zero_dtype dtype)
{
    const struct pieces *best = NULL;
    if (dtype == ZERO_BF16 && !(best = pieces_amx()) && !pairs_are_slow())
        best = pieces_bf16();
    best = best ? best : pieces_avx512();
    best = best ? best : pieces_avx2();
    best = best ? best : pieces_neon();
    return best ? best : &pieces_plain;
}

/* -------------------------------------------------------------------- packing */

static int words(const struct pieces *pieces, int k)
{
    return stripes(k, pieces->values) * pieces->words;
}

/* Words from a panel's k to its next. */
static int64_t padded(int count, int width)
{
    return (int64_t)stripes(count, width) * width;
}

/* Of a slice; the last one may be less. */
static int depth_of(const struct pieces *pieces, int k)
{
    assert(PANEL_DEEP % pieces->words == 0);
    if (words(pieces, k) <= pieces->uncut)
        return k;
    int slices = stripes(k, PANEL_DEEP / pieces->words * pieces->values);
    int step = pieces->values > 8 ? pieces->values : 8;
    return stripes(stripes(k, slices), step) * step;
}

struct matmul packed_slice(const struct pieces *pieces, const struct matmul *p, int k)
{
    struct matmul slice = *p;
    int deep = depth_of(pieces, p->k);
    slice.a = operand_at(p->dtype, p->a, p->ta ? (int64_t)k * p->lda : k);
    slice.b = operand_at(p->dtype, p->b, p->tb ? k : (int64_t)k * p->ldb);
    slice.k = p->k - k < deep ? p->k - k : deep;
    return slice;
}

/* Whether A need not be packed. */
static bool takes_stored(const struct pieces *pieces, const struct matmul *p)
{
    int64_t row = p->lda * operand_bytes(p->dtype), line = LINE * sizeof(float);
    return pieces->multiply_stored && !p->ta && p->m % pieces->rows == 0 &&
           p->k % pieces->values == 0 && row % line == 0 && (intptr_t)p->a % line == 0;
}

const float *packed_a_make(const struct pieces *pieces, const struct matmul *slice, float *room)
{
    struct panel panel = {slice->dtype, slice->a, slice->lda, !slice->ta, slice->m, slice->k};
    if (takes_stored(pieces, slice))
        return NULL;
    pieces->pack_a(&panel, room);
    return room;
}

int64_t packed_a_bytes(const struct pieces *pieces, int m, int k)
{
    int deep = words(pieces, k);
    int most = pieces->uncut > PANEL_DEEP ? pieces->uncut : PANEL_DEEP;
    deep = deep < most ? deep : most;
    return (padded(m, pieces->rows) * deep + PACK_BEYOND) * (int64_t)sizeof(float);
}

/* A panel for each slice, one behind the other. */
void packed_b_make(const struct pieces *pieces, const struct matmul *p, float *room)
{
    struct matmul slice;
    for (int k = 0; k < p->k; k += slice.k) {
        slice = packed_slice(pieces, p, k);
        struct panel panel = {p->dtype, slice.b, p->ldb, p->tb, p->n, slice.k};
        pieces->pack_b(&panel, room + packed_b_at(pieces, p, k, 0));
    }
}

int64_t packed_b_at(const struct pieces *pieces, const struct matmul *p, int k, int col)
{
    assert(col % pieces->cols == 0);
    return words(pieces, k) * padded(p->n, pieces->cols) +
           (int64_t)words(pieces, packed_slice(pieces, p, k).k) * col;
}

int64_t packed_b_bytes(const struct pieces *pieces, int n, int k)
{
    return (padded(n, pieces->cols) * words(pieces, k) + PACK_BEYOND) * (int64_t)sizeof(float);
}

/* ------------------------------------------------------------------- a product */

/* Operands, A packed or as it is stored. */
struct sides {
    const struct matmul *slice;
    const float *a; /* NULL: stored */
    const float *b;
    int words; /* of k */
};

/* A piece that begins at (row, col). */
static void piece_multiply(const struct pieces *pieces, const struct sides *s, int row, int col,
                           int parts, bool add, float *c, int ldc)
{
    const struct matmul *p = s->slice;
    const float *b = s->b + (int64_t)col * s->words;
    if (s->a)
        pieces->multiply[parts - 1](s->words, s->a + (int64_t)row * s->words, b, add, c, ldc);
    else
        pieces->multiply_stored(s->words, operand_at(p->dtype, p->a, (int64_t)row * p->lda), p->lda,
                                b, add, c, ldc);
}

/* The piece, or as much of it as there is: what no part fills is computed beside the result. */
static void piece_compute(const struct pieces *pieces, const struct sides *s, int row, int col,
                          bool add, float *c, int ldc)
{
    int rows = s->slice->m - row < pieces->rows ? s->slice->m - row : pieces->rows;
    int cols = s->slice->n - col < pieces->cols ? s->slice->n - col : pieces->cols;
    int parts = stripes(cols, pieces->part);
    assert(parts <= PARTS_MOST && pieces->rows * pieces->cols <= PIECE_MOST);
    if (rows == pieces->rows && cols == parts * pieces->part) {
        piece_multiply(pieces, s, row, col, parts, add, c, ldc);
        return;
    }
    float piece[PIECE_MOST] = {0};
    for (int i = 0; add && i < rows; i++)
        memcpy(piece + i * pieces->cols, c + (int64_t)i * ldc, (size_t)cols * sizeof(float));
    piece_multiply(pieces, s, row, col, parts, add, piece, pieces->cols);
    for (int i = 0; i < rows; i++)
        memcpy(c + (int64_t)i * ldc, piece + i * pieces->cols, (size_t)cols * sizeof(float));
}

/* A piece of the result that is added to next, while another is computed. */
static void piece_fetch(const struct pieces *pieces, const float *c, int ldc)
{
    for (int i = 0; i < pieces->rows; i++)
        for (int j = 0; j < pieces->cols; j += LINE)
            __builtin_prefetch(c + (int64_t)i * ldc + j, 1);
}

void packed_multiply(const struct pieces *pieces, const struct matmul *slice, const float *a,
                     const float *b, bool add, float *c, int ldc)
{
    struct sides sides = {slice, a, b, words(pieces, slice->k)};
    int height = pieces->rows;
    if (pieces->begin)
        pieces->begin();
    for (int j = 0; j < slice->n; j += pieces->cols)
        for (int i = 0; i < slice->m; i += height) {
            float *to = c + (int64_t)i * ldc + j;
            if (add && slice->m - i >= 2 * height)
                piece_fetch(pieces, to + (int64_t)height * ldc, ldc);
            piece_compute(pieces, &sides, i, j, add, to, ldc);
        }
    if (pieces->end)
        pieces->end();
}
