// SPDX-License-Identifier: Apache-2.0
/*
 * Products by the best pieces that this CPU has, what they have done, and tiles.
 */
#include "examples/gpt2/matmul.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/clock.h"
#include "examples/common/huge.h"
#include "examples/gpt2/matmul_packed.h"
#include "examples/gpt2/numeric.h"

static const struct pieces *of_fp32; /* set before threads exist; NULL: pieces_best */

bool matmul_by_terms(bool terms)
{
    of_fp32 = terms ? pieces_terms() : NULL;
    return !terms || of_fp32;
}

static const struct pieces *pieces_of(enum zero_dtype dtype)
{
    return dtype == ZERO_FP32 && of_fp32 ? of_fp32 : pieces_best(dtype);
}

const char *matmul_backend(enum zero_dtype dtype)
{
    return pieces_of(dtype)->name;
}

bool matmul_in_tiles(enum zero_dtype dtype)
{
    return pieces_of(dtype)->begin != NULL; /* all others need nothing before */
}

static int parts(int whole, int part)
{
    return (whole + part - 1) / part;
}

static int part_at(int whole, int first, int part)
{
    return whole - first < part ? whole - first : part;
}

/* Rows of p's product from the first on, so many or as many as there are. */
static struct matmul rows_from(const struct matmul *p, int first, int count)
{
    struct matmul rows = *p;
    rows.m = part_at(p->m, first, count);
    rows.a = operand_at(p->dtype, p->a, p->ta ? first : (int64_t)first * p->lda);
    return rows;
}

/* Columns of p's product from the first on, so many or as many as there are. */
static struct matmul cols_from(const struct matmul *p, int first, int count)
{
    struct matmul cols = *p;
    cols.n = part_at(p->n, first, count);
    cols.b = operand_at(p->dtype, p->b, p->tb ? (int64_t)first * p->ldb : first);
    return cols;
}

/* What TILE_ROWS rows of a product, or fewer, are computed in. */
struct packed_room {
    float *a, *b;
};

static struct packed_room packed_carve(struct carve *carve, enum zero_dtype dtype, int m, int n,
                                       int k)
{
    const struct pieces *pieces = pieces_of(dtype);
    struct packed_room room;
    room.a = carve_take(carve, packed_a_bytes(pieces, m < TILE_ROWS ? m : TILE_ROWS, k));
    room.b = carve_take(carve, packed_b_bytes(pieces, n, k));
    return room;
}

int64_t matmul_scratch(enum zero_dtype dtype, int m, int n, int k)
{
    struct carve carve = {NULL, 0};
    packed_carve(&carve, dtype, m, n, k);
    return carve.used;
}

/* ----------------------------------------------------------------- counting */

static _Atomic(double) multiplied; /* by the process: m n k of each product; 2^64 are few weeks */
static atomic_int_fast64_t done_ns;

static void count(int m, int n, int k, double begin)
{
    int64_t ns = (int64_t)(1e9 * (clock_now() - begin));
    double more = (double)m * n * k, sum = atomic_load_explicit(&multiplied, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&multiplied, &sum, sum + more,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    atomic_fetch_add_explicit(&done_ns, ns, memory_order_relaxed);
}

/* Of TILE_ROWS rows at most; B is packed. */
static void slices_multiply(const struct matmul *p, bool add, float *c, int ldc,
                            const struct packed_room *room)
{
    const struct pieces *pieces = pieces_of(p->dtype);
    struct matmul slice;
    for (int k = 0; k < p->k; k += slice.k) {
        slice = packed_slice(pieces, p, k);
        packed_multiply(pieces, &slice, packed_a_make(pieces, &slice, room->a),
                        room->b + packed_b_at(pieces, p, k, 0), add || k > 0, c, ldc);
    }
}

void matmul(const struct matmul *p, bool add, float *c, int ldc, void *scratch)
{
    struct carve carve = {scratch, 0};
    struct packed_room room = packed_carve(&carve, p->dtype, p->m, p->n, p->k);
    double begin = clock_now();
    packed_b_make(pieces_of(p->dtype), p, room.b);
    for (int row = 0; row < p->m; row += TILE_ROWS) {
        struct matmul rows = rows_from(p, row, TILE_ROWS);
        slices_multiply(&rows, add, c + (int64_t)row * ldc, ldc, &room);
    }
    count(p->m, p->n, p->k, begin);
}

struct matmul_done matmul_flops_done(void)
{
    return (struct matmul_done){
        2 * atomic_load_explicit(&multiplied, memory_order_relaxed),
        1e-9 * (double)atomic_load_explicit(&done_ns, memory_order_relaxed),
    };
}

/* ------------------------------------------------------- a product in tiles */

/* A task is a strip: tiles one below the other and side by side. Their part of op(B) is packed
 * once, that of op(A) once for a row of tiles. A strip of one row of tiles uses op(B) once: there a
 * tile's part is packed when the tile is computed, and so in cache. */
struct strips {
    const struct matmul *product;
    int rows;         /* of a tile */
    int down, across; /* tiles of a strip */
    int side_by_side; /* strips */
    tile_finish_fn *finish;
    void *arg;
};

#define ACROSS      4                   /* tiles side by side */
#define PACKED_MOST ((int64_t)16 << 20) /* bytes before padding, of several tiles side by side */

enum { TASKS_PER_THREAD = 4 }; /* at least, where there are so many tiles */
enum { PACKED_ROWS = 16 };     /* rows' time: op(B) is packed for each tile of few */

/* The longest sum for which a strip may be so wide. */
static int sum_most(int across)
{
    int64_t row = across * TILE_COLS * (int64_t)sizeof(float);
    return across > 1 ? (int)(PACKED_MOST / row) : INT_MAX;
}

static int across_most(int k)
{
    int across = ACROSS;
    while (k > sum_most(across))
        across--;
    return across;
}

/* What a strip is computed in. */
struct strip_room {
    bool one_row;  /* of tiles */
    float *values; /* of a row of tiles, one behind the other */
    float *spare;
    struct packed_room packed;
};

static int64_t room_carve(struct strip_room *r, void *base, enum zero_dtype dtype, int across,
                          int k)
{
    struct carve carve = {base, 0};
    int64_t floats = sizeof(float);
    r->values = carve_take(&carve, across * TILE_ROWS * TILE_LD * floats);
    r->spare = carve_take(&carve, TILE_COLS * floats);
    r->packed = packed_carve(&carve, dtype, TILE_ROWS, across * TILE_COLS, k);
    return carve.used;
}

/* A slice of the sums of a row of tiles, which are p's product and lie at (row, col) of the whole.
 * Where it is all of them a tile is finished before the next one takes its place, in cache.
 * Returns how many values it took. */
static int slice_compute(const struct strips *t, const struct matmul *p, int k, int row, int col,
                         const struct strip_room *room)
{
    const struct pieces *pieces = pieces_of(p->dtype);
    double begin = clock_now();
    struct matmul slice = packed_slice(pieces, p, k);
    const float *a = packed_a_make(pieces, &slice, room->packed.a);
    float *values = room->values;
    for (int at = 0; at < p->n; at += TILE_COLS) {
        struct matmul part = cols_from(&slice, at, TILE_COLS);
        const float *b = room->packed.b;
        if (room->one_row)
            packed_b_make(pieces, &part, room->packed.b); /* one slice, as part is of one */
        else
            b += packed_b_at(pieces, p, k, at);
        packed_multiply(pieces, &part, a, b, k > 0, values, TILE_LD);
        count(part.m, part.n, part.k, begin);
        if (k + slice.k == p->k) {
            struct tile tile = {row, col + at, part.m, part.n, values, room->spare};
            t->finish(t->arg, &tile);
        }
        values += slice.k < p->k ? TILE_ROWS * TILE_LD : 0;
        begin = clock_now();
    }
    return slice.k;
}

static void strip_task(void *arg, int64_t index, void *scratch)
{
    const struct strips *t = arg;
    const struct matmul *whole = t->product;
    int row = (int)(index / t->side_by_side) * t->down * t->rows;
    int col = (int)(index % t->side_by_side) * t->across * TILE_COLS;
    struct matmul p = cols_from(whole, col, t->across * TILE_COLS);
    int height = part_at(whole->m, row, t->down * t->rows);
    struct strip_room room = {.one_row = height <= t->rows};
    room_carve(&room, scratch, p.dtype, t->across, p.k);
    p.m = row + height;
    if (!room.one_row) {
        double begin = clock_now();
        packed_b_make(pieces_of(p.dtype), &p, room.packed.b);
        count(0, 0, 0, begin);
    }
    for (; row < p.m; row += t->rows) {
        struct matmul rows = rows_from(&p, row, t->rows);
        for (int k = 0; k < p.k;)
            k += slice_compute(t, &rows, k, row, col, &room);
    }
}

/* With which few tiles of m rows, so many side by side, are done first, one after the other on each
 * thread. Threads decide on rows alone, and no sum crosses rows: the bits stay. */
static int rows_of_tile(int m, int cols, int threads)
{
    int best = TILE_ROWS;
    int64_t least = INT64_MAX;
    for (int rows = TILE_ROWS; rows >= TILE_ROWS_LEAST; rows /= 2) {
        int64_t one_by_one = parts(parts(m, rows) * cols, threads);
        int64_t time = one_by_one * (part_at(m, 0, rows) + PACKED_ROWS);
        best = time < least ? rows : best;
        least = time < least ? time : least;
    }
    return best;
}

void matmul_tiles(struct workers *workers, const struct matmul *p, tile_finish_fn *finish,
                  void *arg)
{
    int rows = parts(p->m, TILE_ROWS), cols = parts(p->n, TILE_COLS);
    int threads = workers_threads(workers), enough = threads > 1 ? TASKS_PER_THREAD * threads : 1;
    struct strips t = {p, TILE_ROWS, rows, across_most(p->k), 0, finish, arg};
    assert(p->m >= 1 && p->n >= 1 && p->k >= 1);
    while (t.down * t.across > 1 && parts(rows, t.down) * parts(cols, t.across) < enough)
        if (t.down >= t.across)
            t.down = parts(t.down, 2);
        else
            t.across--;
    t.side_by_side = parts(cols, t.across);
    if (rows * cols < enough)
        t.rows = rows_of_tile(p->m, cols, threads);
    rows = parts(p->m, t.rows);
    workers_run(workers, strip_task, &t, (int64_t)parts(rows, t.down) * t.side_by_side);
}

int64_t matmul_tiles_scratch(enum zero_dtype dtype, int k)
{
    struct strip_room room = {0};
    int64_t most = 0;
    for (int across = across_most(1); across >= 1; across--) {
        int sum = k < sum_most(across) ? k : sum_most(across);
        int64_t bytes = room_carve(&room, NULL, dtype, across, sum);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* ------------------------------------------------------------------- its limit */

#define PEAK_SUM     384 /* k: both operands in fp32 are 672 KiB */
#define PEAK_SECONDS 0.1

/* With numbers as in training, all from -1/2 to 1/2: of zeros multipliers take less power, and so
 * run faster. */
static void peak_fill(enum zero_dtype dtype, int64_t count, void *operand)
{
    float row[PEAK_SUM];
    for (int64_t at = 0; at < count; at += PEAK_SUM) {
        for (int i = 0; i < PEAK_SUM; i++)
            row[i] = (float)((at + i) * 37 % 1021) / 1021 - 0.5f;
        operand_store(dtype, operand, at, PEAK_SUM, row);
    }
}

/* The shortest product of many, at the share of a CPU that the thread has meanwhile: one fits into
 * a turn of threads that take turns. */
double matmul_peak(enum zero_dtype dtype)
{
    struct strip_room room = {0};
    int64_t operand = (int64_t)TILE_ROWS * PEAK_SUM * operand_bytes(dtype);
    size_t bytes = (size_t)(2 * operand + room_carve(&room, NULL, dtype, 1, PEAK_SUM));
    char *memory = huge_alloc(bytes);
    if (!memory)
        return 0;
    memset(memory, 0, bytes);
    peak_fill(dtype, 2 * TILE_ROWS * PEAK_SUM, memory);
    room_carve(&room, memory + 2 * operand, dtype, 1, PEAK_SUM);
    struct matmul p = {.dtype = dtype, .m = TILE_ROWS, .n = TILE_COLS, .k = PEAK_SUM};
    p.a = memory, p.lda = PEAK_SUM;
    p.b = memory + operand, p.ldb = TILE_COLS;
    packed_b_make(pieces_of(dtype), &p, room.packed.b);
    double least = INFINITY, start = clock_now(), ran = -clock_ran(), now = start;
    while (now - start < PEAK_SECONDS) {
        double begin = now;
        slices_multiply(&p, false, room.values, TILE_LD, &room.packed);
        now = clock_now();
        least = now - begin < least ? now - begin : least;
    }
    ran += clock_ran();
    free(memory);
    return 2.0 * TILE_ROWS * TILE_COLS * PEAK_SUM / least * fmin(1, ran / (now - start));
}
