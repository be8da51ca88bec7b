// SPDX-License-Identifier: Apache-2.0
/*
 * Goto's scheme (Goto and van de Geijn 2008, Anatomy of high-performance matrix
 * multiplication): DEPTH of the sum at a time, a panel of B and one of A are
 * packed, and each stripe of B stays in the first cache while those of A pass,
 * which stay in the second. 16-bit operands are widened while they are packed.
 */
#include "examples/gpt2/matmul_packed.h"

#include <string.h>

#include "examples/gpt2/numeric.h"

#define DEPTH 256               /* of the sum: a stripe of B is 16 KiB */
#define ROWS  (43 * PIECE_ROWS) /* of A at a time: 258 KiB, and a tile's 256 fit */

/* Tiles of one task, 3 MiB of memory: the more, the less often an operand is packed. */
#define GROUP_DOWN   2
#define GROUP_ACROSS 4

static int stripes(int n, int width)
{
    return (n + width - 1) / width;
}

/* ---------------------------------------------------------------- plain pieces */

/* One stripe, a stored row at a time. What is not there stays zero. */
static void stripe_pack(const struct panel *s, int first, int width, float *out)
{
    float row[DEPTH];
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
    for (int first = 0; first < panel->count; first += PIECE_COLS)
        stripe_pack(panel, first, PIECE_COLS, out + (int64_t)first * panel->k);
}

static void plain_multiply(int k, const float *a, const float *b, bool add, float *c, int ldc)
{
    for (int i = 0; i < PIECE_ROWS; i++) {
        float sums[PIECE_COLS] = {0};
        if (add)
            memcpy(sums, c + (int64_t)i * ldc, sizeof(sums));
        for (int p = 0; p < k; p++)
            for (int j = 0; j < PIECE_COLS; j++)
                sums[j] = __builtin_fmaf(a[p * PIECE_ROWS + i], b[p * PIECE_COLS + j], sums[j]);
        memcpy(c + (int64_t)i * ldc, sums, sizeof(sums));
    }
}

const struct pieces pieces_plain = {"packed panels, plain", plain_pack_a, plain_pack_b,
                                    plain_multiply};

/* ------------------------------------------------------------------- a product */

/* DEPTH at most, in parts of one size. */
static int depth_of(int k)
{
    int parts = stripes(k, DEPTH);
    return stripes(stripes(k, parts), 8) * 8;
}

static int64_t panel_floats(int count, int width, int k)
{
    return (int64_t)stripes(count, width) * width * k + PACK_BEYOND;
}

static int rows_of(int m)
{
    return m < ROWS ? m : ROWS;
}

/* The packed panels: B's, then A's, which is what is left. */
static int64_t packed_scratch(enum zero_dtype dtype, int m, int n, int k)
{
    struct carve carve = {NULL, 0};
    (void)dtype;
    carve_take(&carve, panel_floats(n, PIECE_COLS, depth_of(k)) * (int64_t)sizeof(float));
    carve_take(&carve, panel_floats(rows_of(m), PIECE_ROWS, depth_of(k)) * (int64_t)sizeof(float));
    return carve.used;
}

/* A piece at the edge of the result is computed beside it. */
static void edge_multiply(const struct pieces *pieces, int k, const float *a, const float *b,
                          bool add, int rows, int cols, float *c, int ldc)
{
    float piece[PIECE_ROWS * PIECE_COLS] = {0};
    for (int i = 0; add && i < rows; i++)
        memcpy(piece + i * PIECE_COLS, c + (int64_t)i * ldc, (size_t)cols * sizeof(float));
    pieces->multiply(k, a, b, add, piece, PIECE_COLS);
    for (int i = 0; i < rows; i++)
        memcpy(c + (int64_t)i * ldc, piece + i * PIECE_COLS, (size_t)cols * sizeof(float));
}

/* c (m, n) from packed panels that are k deep. */
static void panels_multiply(const struct pieces *pieces, int m, int n, int k, const float *a,
                            const float *b, bool add, float *c, int ldc)
{
    for (int j = 0; j < n; j += PIECE_COLS)
        for (int i = 0; i < m; i += PIECE_ROWS) {
            const float *left = a + (int64_t)i * k, *right = b + (int64_t)j * k;
            float *to = c + (int64_t)i * ldc + j;
            int rows = m - i < PIECE_ROWS ? m - i : PIECE_ROWS;
            int cols = n - j < PIECE_COLS ? n - j : PIECE_COLS;
            if (rows == PIECE_ROWS && cols == PIECE_COLS)
                pieces->multiply(k, left, right, add, to, ldc);
            else
                edge_multiply(pieces, k, left, right, add, rows, cols, to, ldc);
        }
}

void packed_multiply(const struct pieces *pieces, const struct matmul *p, bool add, float *c,
                     int ldc, void *scratch)
{
    int deep = depth_of(p->k);
    struct carve carve = {scratch, 0};
    float *b = carve_take(&carve, panel_floats(p->n, PIECE_COLS, deep) * (int64_t)sizeof(float));
    float *a = (float *)((char *)scratch + carve.used);
    for (int k = 0; k < p->k; k += deep) {
        int depth = p->k - k < deep ? p->k - k : deep;
        int64_t at = p->tb ? k : (int64_t)k * p->ldb;
        struct panel right = {p->dtype, operand_at(p->dtype, p->b, at), p->ldb, p->tb, p->n, depth};
        pieces->pack_b(&right, b);
        for (int i = 0; i < p->m; i += ROWS) {
            int rows = rows_of(p->m - i);
            at = p->ta ? (int64_t)k * p->lda + i : (int64_t)i * p->lda + k;
            struct panel left = {p->dtype, operand_at(p->dtype, p->a, at), p->lda, !p->ta, rows,
                                 depth};
            pieces->pack_a(&left, a);
            panels_multiply(pieces, rows, p->n, depth, a, b, add || k > 0, c + (int64_t)i * ldc,
                            ldc);
        }
    }
}

/* ---------------------------------------------------------------------- kind */

static const struct pieces *pieces_here(void)
{
    const struct pieces *vectors = pieces_avx2() ? pieces_avx2() : pieces_neon();
    return vectors ? vectors : &pieces_plain;
}

static const char *packed_name(void)
{
    return pieces_here()->name;
}

static void packed_thread_init(void)
{
}

static void multiply(const struct matmul *p, bool add, float *c, int ldc, void *scratch)
{
    packed_multiply(pieces_here(), p, add, c, ldc, scratch);
}

const struct matmul_kind *matmul_packed(void)
{
    static const struct matmul_kind kind = {packed_name,  packed_thread_init, 0,       GROUP_DOWN,
                                            GROUP_ACROSS, packed_scratch,     multiply};
    return &kind;
}
