// SPDX-License-Identifier: Apache-2.0
/* Products of every kind of operand, by the pieces of every instruction set: against sums in
 * double, against each other's bits, and against the order in which AMX adds. */
#include <check.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "examples/common/counter.h"
#include "examples/gpt2/matmul_packed.h"
#include "examples/gpt2/numeric.h"
#include "examples/gpt2/rows.h"
#include "include/zero.h"
#include "tests/support/suite.h"

static uint64_t mix(uint64_t index)
{
    return counter_bits(1, 2, index);
}

static void *zeros(size_t count, size_t size)
{
    void *x = calloc(count, size);
    ck_assert_ptr_nonnull(x);
    return x;
}

/* Memory full of NaN. */
static void *used(size_t bytes)
{
    return memset(zeros(bytes, 1), 0xFF, bytes);
}

/* Memory of zeros behind which nothing can be read. */
struct fenced {
    char *map;
    size_t size; /* whole pages and the fence */
    void *at;
};

static struct fenced fenced(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    char *map =
        mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert(map != MAP_FAILED && mprotect(map + whole, page, PROT_NONE) == 0);
    return (struct fenced){map, whole + page, map + whole - bytes};
}

/* A stored matrix with gaps between rows, and nothing behind the last. */
static size_t stored(int rows, int cols, int ld)
{
    return (size_t)(rows - 1) * (size_t)ld + (size_t)cols;
}

static const enum zero_dtype dtypes[] = {ZERO_FP32, ZERO_BF16, ZERO_FP16};

/* c = a product, then += it: by packed panels, or with NULL as gpt2 does. */
static void twice(const struct pieces *pieces, const struct matmul *p, float *c, int ldc)
{
    void *scratch = used((size_t)matmul_scratch(p->dtype, p->m, p->n, p->k));
    for (int add = 0; add < 2 && !pieces; add++)
        matmul(p, add, c, ldc, scratch);
    free(scratch);
    if (!pieces)
        return;
    float *room_a = used((size_t)packed_a_bytes(pieces, p->m, p->k));
    float *room_b = used((size_t)packed_b_bytes(pieces, p->n, p->k));
    struct matmul slice;
    packed_b_make(pieces, p, room_b);
    for (int add = 0; add < 2; add++)
        for (int k = 0; k < p->k; k += slice.k) {
            slice = packed_slice(pieces, p, k);
            packed_multiply(pieces, &slice, packed_a_make(pieces, &slice, room_a),
                            room_b + packed_b_at(pieces, p, k, 0), add || k > 0, c, ldc);
        }
    free(room_a), free(room_b);
}

/* Each way to multiply and to store operands, at sizes around those of pieces
 * and panels, against a sum in double: widened, as gpt2 does, and fp32 by terms. */
START_TEST(products)
{
    static const int sizes[][3] = {{1, 1, 1},     {3, 17, 5},     {40, 64, 33},
                                   {16, 80, 31},  {130, 20, 257}, {261, 9, 520},
                                   {34, 40, 768}, {33, 20, 1300}, {33, 20, 769}};
    enum zero_dtype dtype = dtypes[_i % 12 / 4];
    bool ta = _i & 1, tb = _i & 2;
    for (size_t size = 0; size < sizeof(sizes) / sizeof(*sizes); size++) {
        int m = sizes[size][0], n = sizes[size][1], k = sizes[size][2], gap = 3;
        int lda = (ta ? m : k) + gap, ldb = (tb ? k : n) + gap, ldc = n + gap;
        size_t an = ta ? stored(k, m, lda) : stored(m, k, lda);
        size_t bn = tb ? stored(n, k, ldb) : stored(k, n, ldb);
        size_t bytes = (size_t)operand_bytes(dtype);
        float *a = zeros(an, 4), *b = zeros(bn, 4), *c = zeros((size_t)(m * ldc), 4);
        struct fenced ao = fenced(an * bytes), bo = fenced(bn * bytes);
        for (size_t i = 0; i < an; i++)
            a[i] = (float)((int)(mix(i) % 255) - 127);
        for (size_t i = 0; i < bn; i++)
            b[i] = (float)((int)(mix(i + an) % 255) - 127);
        operand_store(dtype, ao.at, 0, (int64_t)an, a);
        operand_store(dtype, bo.at, 0, (int64_t)bn, b);
        struct matmul p = {dtype, ta, tb, m, n, k, ao.at, lda, bo.at, ldb};
        ck_assert(matmul_by_terms(_i >= 24));
        twice(_i < 12 ? pieces_best(ZERO_FP32) : NULL, &p, c, ldc);
        ck_assert(matmul_by_terms(false));
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++) { /* small integers: exact */
                double sum = 0;
                for (int q = 0; q < k; q++)
                    sum += (double)(ta ? a[q * lda + i] : a[i * lda + q]) *
                           (double)(tb ? b[j * ldb + q] : b[q * ldb + j]);
                ck_assert_double_eq((double)c[i * ldc + j], 2 * sum);
            }
        for (int i = 0; i < m; i++)
            for (int j = n; j < ldc; j++)
                ck_assert(c[i * ldc + j] == 0.0f);
        munmap(ao.map, ao.size), munmap(bo.map, bo.size);
        free(a), free(b), free(c);
    }
}
END_TEST

/* A product of random values whose sums round, at edges of pieces and panels. */
struct random_product {
    size_t bytes; /* of the result */
    void *a, *b;
    struct matmul p;
};

static struct random_product random_product(enum zero_dtype dtype, bool ta, bool tb, int n)
{
    int m = 265, k = 535;
    float *a = zeros((size_t)(m * k), 4), *b = zeros((size_t)(k * n), 4);
    for (int i = 0; i < m * k; i++)
        a[i] = (float)((int)(mix((uint64_t)i) >> 40) - (1 << 23)) * 1e-6f;
    for (int i = 0; i < k * n; i++)
        b[i] = (float)((int)(mix((uint64_t)i) >> 41) - (1 << 22)) * 1e-6f;
    void *ao = zeros((size_t)(m * k), 4), *bo = zeros((size_t)(k * n), 4);
    operand_store(dtype, ao, 0, (int64_t)m * k, a);
    operand_store(dtype, bo, 0, (int64_t)k * n, b);
    free(a), free(b);
    return (struct random_product){(size_t)(m * n) * sizeof(float),
                                   ao,
                                   bo,
                                   {dtype, ta, tb, m, n, k, ao, ta ? m : k, bo, tb ? k : n}};
}

/* Vectors give the bits of the plain loops, whatever part of a piece the last columns take. */
START_TEST(pieces_agree)
{
    static const int columns[] = {150, 160, 170, 176, 185};
    enum zero_dtype dtype = dtypes[_i % 12 / 4];
    const struct pieces *all[] = {&pieces_plain, pieces_avx2(), pieces_avx512(), pieces_neon(),
                                  dtype == ZERO_BF16 ? pieces_bf16() : NULL};
    struct random_product r = random_product(dtype, _i & 1, _i & 2, columns[_i / 12]);
    float *plain = zeros(r.bytes, 1), *c = zeros(r.bytes, 1);
    twice(all[0], &r.p, plain, r.p.n);
    for (size_t i = 1; i < sizeof(all) / sizeof(*all); i++)
        if (all[i]) {
            twice(all[i], &r.p, c, r.p.n);
            ck_assert_msg(memcmp(plain, c, r.bytes) == 0, "%s", all[i]->name);
        }
    free(r.a), free(r.b), free(plain), free(c);
}
END_TEST

/* The first, second or third term of bf16 that a value is the sum of, to nearest, ties away from
 * zero. */
static float term_of(float x, int which)
{
    float term = 0;
    for (int i = 0; i <= which; i++) {
        uint32_t bits;
        x -= term;
        memcpy(&bits, &x, sizeof(bits));
        bits = (bits + 0x8000) & 0xFFFF0000;
        memcpy(&term, &bits, sizeof(term));
    }
    return term;
}

/* An element by AMX's order: of each 32 values so many products of terms, one after the other,
 * begun with what is there. */
static float tiles_sum(const struct matmul *p, const int (*order)[2], int count, float *a[3],
                       float *b[3], int row, int col, float sum)
{
    for (int k = 0; k < p->k; k += 32)
        for (int i = 0; i < count; i++) {
            const float *left = a[order[i][0]], *right = b[order[i][1]];
            float part[2] = {0};
            for (int q = k; q < k + 32 && q < p->k; q++)
                part[q % 2] = fmaf(left[p->ta ? q * p->lda + row : row * p->lda + q],
                                   right[p->tb ? col * p->ldb + q : q * p->ldb + col], part[q % 2]);
            sum += part[0] + part[1];
        }
    return sum;
}

static void terms_of(enum zero_dtype dtype, int count, const void *operand, float *terms[3])
{
    float spare;
    for (int i = 0; i < 3; i++) {
        terms[i] = zeros((size_t)count, sizeof(float));
        for (int j = 0; j < count; j++)
            terms[i][j] = term_of(*operand_view(dtype, operand, j, 1, &spare), i);
    }
}

/* Of bf16, whose first term is all of it, and of fp32. */
START_TEST(tiles_add_in_order)
{
    static const int terms[6][2] = {{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 0}, {0, 2}},
                     one[1][2] = {0};
    enum zero_dtype dtype = _i < 4 ? ZERO_BF16 : ZERO_FP32;
    struct random_product r = random_product(dtype, _i & 1, _i & 2, _i < 4 ? 150 : 70);
    const int(*order)[2] = _i < 4 ? one : terms;
    int count = _i < 4 ? 1 : 6;
    float *a[3], *b[3], *c = zeros(r.bytes, 1);
    terms_of(dtype, r.p.m * r.p.k, r.a, a);
    terms_of(dtype, r.p.k * r.p.n, r.b, b);
    ck_assert(matmul_by_terms(true));
    twice(NULL, &r.p, c, r.p.n);
    ck_assert(matmul_by_terms(false));
    for (int i = 0; i < r.p.m; i++)
        for (int j = 0; j < r.p.n; j++) {
            float sum = tiles_sum(&r.p, order, count, a, b, i, j, 0);
            sum = tiles_sum(&r.p, order, count, a, b, i, j, sum);
            ck_assert_msg(c[i * r.p.n + j] == sum, "(%d, %d) is %.9g, not %.9g", i, j,
                          (double)c[i * r.p.n + j], (double)sum);
        }
    for (int i = 0; i < 3; i++)
        free(a[i]), free(b[i]);
    free(r.a), free(r.b), free(c);
}
END_TEST

static bool packs(const struct pieces *pieces, const struct matmul *p)
{
    float *room = used((size_t)packed_a_bytes(pieces, p->m, p->k));
    bool packs = packed_a_make(pieces, p, room);
    free(room);
    return packs;
}

/* Rows of A that are used as they are stored give the bits of those that are packed; sums that do
 * not end with a tile's words are packed. */
START_TEST(tiles_as_stored)
{
    enum { M = 288, LD = 576 };
    int n = _i & 1 ? 150 : 96;
    size_t bytes = (size_t)(M * n) * sizeof(float), stored = M * LD * sizeof(uint16_t);
    struct random_product r = random_product(ZERO_BF16, false, true, n);
    uint16_t *even = aligned_alloc(64, stored + 64), *odd = even + 1;
    float *expected = zeros(bytes, 1), *c = zeros(bytes, 1);
    r.p.m = M, r.p.k = _i & 2 ? 534 : 544, r.p.lda = LD, r.p.ldb = 530; /* rows of B that overlap */
    memset(even, 0, stored + 64);
    memcpy(odd, r.a, 265 * 535 * sizeof(uint16_t));
    r.p.a = odd;
    twice(pieces_amx(), &r.p, expected, n);
    memmove(even, odd, stored);
    for (int i = 0; i < M; i++) /* NaN between rows */
        memset(even + i * LD + r.p.k, 0xFF, (size_t)(LD - r.p.k) * sizeof(*even));
    r.p.a = even;
    twice(pieces_amx(), &r.p, c, n);
    ck_assert_mem_eq(c, expected, bytes);
    ck_assert(packs(pieces_amx(), &r.p) == (r.p.k == 534));
    ck_assert(c[0] != 0.0f && c[(M - 50) * n - 1] != 0.0f);
    free(even), free(expected), free(c), free(r.a), free(r.b);
}
END_TEST

enum { SQUARE = 96, LONG = 1000 };

/* The mean square of what a product of (96, 1000) and (1000, 96) is off from a sum in double, as
 * a part of the sum of sizes. */
static double mean_error(const struct pieces *pieces, const float *a, const float *b)
{
    struct matmul p = {ZERO_FP32, false, false, SQUARE, SQUARE, LONG, a, LONG, b, SQUARE};
    float *c = zeros(SQUARE * SQUARE, sizeof(float));
    double squares = 0;
    twice(pieces, &p, c, SQUARE);
    for (int i = 0; i < SQUARE; i++)
        for (int j = 0; j < SQUARE; j++) {
            double sum = 0, sizes = 0;
            for (int k = 0; k < LONG; k++) {
                double product = (double)a[i * LONG + k] * (double)b[k * SQUARE + j];
                sum += 2 * product;
                sizes += 2 * fabs(product);
            }
            double part = ((double)c[i * SQUARE + j] - sum) / sizes;
            squares += part * part;
        }
    free(c);
    return squares / (SQUARE * SQUARE);
}

/* Of numbers alike in size and of numbers whose exponents are up to 40 apart, positive ones too,
 * whose errors do not cancel. */
START_TEST(terms_are_as_exact)
{
    float *a = zeros(SQUARE * LONG, 4), *b = zeros(SQUARE * LONG, 4);
    for (int i = 0; i < 2 * SQUARE * LONG; i++) {
        uint64_t draw = mix((uint64_t)i);
        float x = 1 + (float)(draw >> 40) * 0x1p-24f;
        if (_i & 1)
            x = ldexpf(x, (int)(draw % 41) - 20);
        (i % 2 ? a : b)[i / 2] = _i & 2 && draw >> 20 & 1 ? -x : x;
    }
    double terms = mean_error(pieces_terms(), a, b), chain = mean_error(&pieces_plain, a, b);
    ck_assert_msg(terms > 0 && terms <= chain, "%g, by a chain %g", sqrt(terms), sqrt(chain));
    free(a), free(b);
}
END_TEST

/* What is not finite stays so, and in its row, as does what rounds to infinity in bf16. */
START_TEST(terms_not_finite)
{
    enum { N = 40 };
    const uint32_t bits[] = {0x7F800000, 0xFF800000, 0x7FC00000,
                             0x7F800001, 0xFFFFFFFF, 0x7F7F8000};
    float a[N * N], b[N * N], clean[N * N] = {0}, c[N * N] = {0};
    struct matmul p = {ZERO_FP32, _i & 1, _i & 2, N, N, N, a, N, b, N};
    for (int i = 0; i < N * N; i++)
        a[i] = b[i] = (float)(mix((uint64_t)i) % 1000) / 7 + 1;
    twice(pieces_terms(), &p, clean, N);
    for (size_t i = 0; i < sizeof(bits) / sizeof(*bits); i++) {
        int row = 3 + 6 * (int)i, k = 35 - (int)i;
        memcpy(a + (p.ta ? k * N + row : row * N + k), bits + i, sizeof(float));
    }
    twice(pieces_terms(), &p, c, N);
    for (int i = 0; i < N * N; i++)
        ck_assert(i / N % 6 == 3 && i / N < 36 ? !isfinite(c[i]) : c[i] == clean[i]);
}
END_TEST

enum { TILED_ROWS = 3 * TILE_ROWS + 5, TILED_COLS = 5 * TILE_COLS + 9, TILED = 13 };

static void tile_keep(void *to, const struct tile *tile)
{
    ck_assert(tile->rows <= TILE_ROWS && tile->row % TILE_ROWS_LEAST == 0);
    ck_assert(tile->cols <= TILE_COLS && tile->col % TILE_COLS == 0);
    memset(tile->spare, 0, TILE_COLS * sizeof(float));
    for (int r = 0; r < tile->rows; r++)
        rows_best()->add(tile->cols, tile_line(tile, r),
                         (float *)to + (tile->row + r) * TILED_COLS + tile->col);
}

static void tile_height(void *most, const struct tile *tile)
{
    int seen = atomic_load((atomic_int *)most);
    while (seen < tile->rows &&
           !atomic_compare_exchange_weak((atomic_int *)most, &seen, tile->rows))
        ;
}

/* In tiles, each finished once, whatever the number of threads, in strips of any width and of one
 * row of tiles or more, of sums of one slice and of several, operands as they are and turned. */
START_TEST(tiles)
{
    static const struct {
        enum zero_dtype dtype;
        int threads, m, k;
    } cases[TILED] = {{ZERO_FP32, 1, TILED_ROWS, 700},    {ZERO_FP32, 2, TILE_ROWS + 5, 5500},
                      {ZERO_FP32, 3, TILED_ROWS, 33},     {ZERO_FP32, 4, TILED_ROWS, 33},
                      {ZERO_BF16, 1, 2 * TILE_ROWS, 384}, {ZERO_BF16, 1, 2 * TILE_ROWS, 768},
                      {ZERO_BF16, 3, 2 * TILE_ROWS, 800}, {ZERO_BF16, 1, TILED_ROWS, 769},
                      {ZERO_FP32, 1, TILE_ROWS, 700},     {ZERO_BF16, 1, 40, 1601},
                      {ZERO_FP16, 2, TILE_ROWS - 7, 650}, {ZERO_FP32, 3, 1, 290},
                      {ZERO_BF16, 8, TILE_ROWS + 5, 1601}};
    bool ta = _i / TILED & 1, tb = _i / TILED & 2;
    enum zero_dtype dtype = cases[_i % TILED].dtype;
    int threads = cases[_i % TILED].threads, n = TILED_COLS;
    int m = cases[_i % TILED].m, k = cases[_i % TILED].k;
    size_t a_bytes = ((size_t)(m * k) * 4 + 63) / 64 * 64;
    char error[200];
    void *a = aligned_alloc(64, a_bytes), *b = zeros((size_t)(k * n), 4);
    float *whole = zeros((size_t)(m * n), 4), *c = zeros((size_t)(m * n), 4);
    for (int i = 0; i < m * k || i < k * n; i++) {
        float x = (float)(mix((uint64_t)i) % 255) / 3, y = (float)(mix((uint64_t)i) % 255) / 7;
        if (i < m * k)
            operand_store(dtype, a, i, 1, &x);
        if (i < k * n)
            operand_store(dtype, b, i, 1, &y);
    }
    void *scratch = zeros((size_t)matmul_scratch(dtype, m, n, k), 1);
    struct matmul p = {dtype, ta, tb, m, n, k, a, ta ? m : k, b, tb ? k : n};
    struct workers *workers =
        workers_create(threads, matmul_tiles_scratch(dtype, k), NULL, error, sizeof(error));
    ck_assert_ptr_nonnull(workers);
    matmul(&p, false, whole, n, scratch);
    matmul_tiles(workers, &p, tile_keep, c);
    ck_assert_mem_eq(whole, c, (size_t)(m * n) * sizeof(float));
    workers_destroy(workers);
    free(a), free(b), free(c), free(whole), free(scratch);
}
END_TEST

/* Of few tiles each is as high as lets all threads end soonest, of many as high as there are. */
START_TEST(tiles_for_all)
{
    static const struct {
        int threads, m, cols, rows;
    } cases[] = {{1, 256, 1, 256}, {2, 256, 1, 128},   {4, 256, 1, 64},   {8, 256, 1, 64},
                 {2, 256, 2, 256}, {2, 256, 3, 128},   {3, 256, 2, 64},   {32, 256, 4, 64},
                 {2, 40, 1, 40},   {2, 512, 4, 256},   {16, 512, 4, 128}, {12, 256, 12, 256},
                 {2, 768, 3, 256}, {64, 1024, 22, 128}};
    static float a[1024], b[22 * TILE_COLS];
    char error[200];
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct matmul p = {ZERO_FP32, false, false, cases[i].m, cases[i].cols * TILE_COLS,
                           1,         a,     1,     b,          cases[i].cols * TILE_COLS};
        atomic_int most = 0;
        struct workers *workers = workers_create(
            cases[i].threads, matmul_tiles_scratch(ZERO_FP32, 1), NULL, error, sizeof(error));
        ck_assert_ptr_nonnull(workers);
        matmul_tiles(workers, &p, tile_height, &most);
        ck_assert_msg(most == cases[i].rows, "%d rows by %d tiles on %d threads: tiles of %d",
                      cases[i].m, cases[i].cols, cases[i].threads, most);
        workers_destroy(workers);
    }
}
END_TEST

/* What suffices for a sum suffices for all shorter ones. */
START_TEST(scratch_grows)
{
    enum zero_dtype dtype = dtypes[_i % 3];
    ck_assert(matmul_by_terms(_i == 3));
    int64_t one = 0, all = 0;
    for (int k = 1; k < 20000; k += k < 2000 ? 1 : 97) {
        int64_t one_next = matmul_scratch(dtype, TILE_ROWS, TILE_COLS, k);
        int64_t all_next = matmul_tiles_scratch(dtype, k);
        ck_assert_msg(one_next >= one && all_next >= all, "a sum of %d", k);
        one = one_next;
        all = all_next;
    }
    matmul_by_terms(false);
}
END_TEST

/* What products have done is counted, what measures their speed is not. */
START_TEST(counted)
{
    static float a[7 * 5], b[5 * 3], c[7 * 3];
    struct matmul p = {ZERO_FP32, false, false, 7, 3, 5, a, 5, b, 3};
    void *scratch = zeros((size_t)matmul_scratch(ZERO_FP32, 7, 3, 5) + 1, 1);
    struct matmul_done before = matmul_flops_done();
    for (int i = 0; i < 1000; i++)
        matmul(&p, false, c, 3, scratch);
    ck_assert(matmul_peak(ZERO_FP32) > 1e6 && matmul_peak(ZERO_BF16) > 1e6);
    struct matmul_done after = matmul_flops_done();
    ck_assert_double_eq(after.flops - before.flops, 1000 * 2.0 * 7 * 3 * 5);
    ck_assert(after.seconds > before.seconds);
    free(scratch);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("matmul");
    TCase *t = tcase_create("products");
    int amx = pieces_amx() ? 4 : 0;
    printf("products by %s, of bf16 by %s\n", matmul_backend(ZERO_FP32), matmul_backend(ZERO_BF16));
    if (!amx)
        printf("skipped: products by tiles: this CPU has no AMX\n");
    tcase_add_loop_test(t, products, 0, 24 + amx);
    tcase_add_loop_test(t, pieces_agree, 0, 60);
    tcase_add_loop_test(t, tiles_add_in_order, 0, 2 * amx);
    tcase_add_loop_test(t, tiles_as_stored, 0, amx);
    tcase_add_loop_test(t, terms_are_as_exact, 0, amx);
    tcase_add_loop_test(t, terms_not_finite, 0, amx);
    tcase_add_loop_test(t, tiles, 0, 4 * TILED);
    tcase_add_test(t, tiles_for_all);
    tcase_add_loop_test(t, scratch_grows, 0, 3 + amx / 4);
    tcase_add_test(t, counted);
    suite_add_tcase(suite, t);
    return suite_run_all(suite);
}
