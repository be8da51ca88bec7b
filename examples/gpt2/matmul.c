// SPDX-License-Identifier: Apache-2.0
/*
 * Products by the best pieces that this CPU has, what they have done, and tiles.
 */
#include "examples/gpt2/matmul.h"

#include <assert.h>
#include <limits.h>
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

/* op(B) packed, then a panel of A. */
int64_t matmul_scratch(enum zero_dtype dtype, int m, int n, int k)
{
    struct carve carve = {NULL, 0};
    carve_take(&carve, packed_bytes(pieces_of(dtype), n, k));
    carve_take(&carve, packed_scratch(pieces_of(dtype), m, k));
    return carve.used;
}

/* ----------------------------------------------------------------- counting */

static atomic_int_fast64_t done_flops, done_ns; /* of the process */

static void count(const struct matmul *p, double begin)
{
    int64_t ns = (int64_t)(1e9 * (clock_now() - begin));
    atomic_fetch_add_explicit(&done_flops, 2 * (int64_t)p->m * p->n * p->k, memory_order_relaxed);
    atomic_fetch_add_explicit(&done_ns, ns, memory_order_relaxed);
}

void matmul(const struct matmul *p, bool add, float *c, int ldc, void *scratch)
{
    const struct pieces *pieces = pieces_of(p->dtype);
    struct carve carve = {scratch, 0};
    double begin = clock_now();
    float *packed = carve_take(&carve, packed_bytes(pieces, p->n, p->k));
    packed_make(pieces, p, packed);
    packed_multiply(pieces, p, packed, add, c, ldc, (char *)scratch + carve.used);
    count(p, begin);
}

struct matmul_done matmul_flops_done(void)
{
    return (struct matmul_done){
        (double)atomic_load_explicit(&done_flops, memory_order_relaxed),
        1e-9 * (double)atomic_load_explicit(&done_ns, memory_order_relaxed),
    };
}

/* ------------------------------------------------------- a product in tiles */

/* A task is a strip: tiles one below the other and side by side, computed a row at a time, for
 * which their part of op(B) is packed once. */
struct strips {
    const struct matmul *product;
    int down, across; /* tiles of a strip */
    int side_by_side; /* strips */
    tile_finish_fn *finish;
    void *arg;
};

#define ACROSS      3 /* tiles side by side, which pieces of 48 fill: A is packed once for them */
#define PACKED_MOST ((int64_t)16 << 20) /* bytes before padding, of several tiles side by side */
#define GAP         16 /* floats between lines of a row, which otherwise fall into one cache set */

enum { TASKS_PER_THREAD = 4 }; /* at least, where there are so many tiles */

static int parts(int whole, int part)
{
    return (whole + part - 1) / part;
}

static int part_at(int whole, int first, int part)
{
    return whole - first < part ? whole - first : part;
}

/* The longest sum for which a strip may be so wide. */
static int sum_most(int across)
{
    return across > 1 ? (int)(PACKED_MOST / (across * TILE * (int64_t)sizeof(float))) : INT_MAX;
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
    float *values; /* of a row of tiles */
    float *spare;
    float *packed;
    void *scratch;
};

static int64_t room_carve(struct strip_room *r, void *base, enum zero_dtype dtype, int across,
                          int k)
{
    struct carve carve = {base, 0};
    const struct pieces *pieces = pieces_of(dtype);
    int64_t floats = sizeof(float);
    r->values = carve_take(&carve, TILE * (across * TILE + GAP) * floats);
    r->spare = carve_take(&carve, 2 * TILE * floats);
    r->packed = carve_take(&carve, packed_bytes(pieces, across * TILE, k));
    r->scratch = carve_take(&carve, packed_scratch(pieces, TILE, k));
    return carve.used;
}

static void row_multiply(const struct matmul *p, const struct strip_room *room,
                         const struct tile *row)
{
    packed_multiply(pieces_of(p->dtype), p, room->packed, false, row->values, row->ld,
                    room->scratch);
}

static void row_finish(const struct strips *t, const struct tile *row)
{
    for (int col = 0; col < row->cols; col += TILE) {
        struct tile tile = *row;
        tile.col += col;
        tile.cols = part_at(row->cols, col, TILE);
        tile.values = row->values + col;
        t->finish(t->arg, &tile);
    }
}

static void strip_task(void *arg, int64_t index, void *scratch)
{
    const struct strips *t = arg;
    const struct matmul *whole = t->product;
    struct matmul p = *whole;
    struct strip_room room = {0};
    int first = (int)(index / t->side_by_side) * t->down * TILE;
    int end = first + part_at(whole->m, first, t->down * TILE);
    struct tile row = {.col = (int)(index % t->side_by_side) * t->across * TILE};

    room_carve(&room, scratch, p.dtype, t->across, p.k);
    p.n = row.cols = part_at(whole->n, row.col, t->across * TILE);
    p.b = operand_at(p.dtype, whole->b, p.tb ? (int64_t)row.col * p.ldb : row.col);
    row.values = room.values;
    row.spare = room.spare;
    row.ld = row.cols + GAP;
    double begin = clock_now();
    packed_make(pieces_of(p.dtype), &p, room.packed);
    for (row.row = first; row.row < end; row.row += TILE) {
        p.m = row.rows = part_at(end, row.row, TILE);
        p.a = operand_at(p.dtype, whole->a, p.ta ? row.row : (int64_t)row.row * p.lda);
        row_multiply(&p, &room, &row);
        count(&p, begin);
        row_finish(t, &row);
        begin = clock_now();
    }
}

void matmul_tiles(struct workers *workers, const struct matmul *p, tile_finish_fn *finish,
                  void *arg)
{
    int rows = parts(p->m, TILE), cols = parts(p->n, TILE);
    int enough = workers_threads(workers) > 1 ? TASKS_PER_THREAD * workers_threads(workers) : 1;
    struct strips t = {p, rows, across_most(p->k), 0, finish, arg};
    assert(p->m >= 1 && p->n >= 1 && p->k >= 1);
    while (t.down * t.across > 1 && parts(rows, t.down) * parts(cols, t.across) < enough)
        if (t.down >= t.across)
            t.down = parts(t.down, 2);
        else
            t.across--;
    t.side_by_side = parts(cols, t.across);
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
#define PEAK_COLS    192 /* whole pieces of any set */
#define PEAK_SECONDS 0.1

double matmul_peak(enum zero_dtype dtype)
{
    struct strip_room room = {0};
    int64_t operand = (int64_t)TILE * PEAK_SUM * operand_bytes(dtype);
    size_t bytes = (size_t)(2 * operand + room_carve(&room, NULL, dtype, 1, PEAK_SUM));
    char *memory = huge_alloc(bytes);
    if (!memory)
        return 0;
    memset(memory, 0, bytes);
    room_carve(&room, memory + 2 * operand, dtype, 1, PEAK_SUM);
    struct tile row = {
        .rows = TILE, .cols = PEAK_COLS, .values = room.values, .ld = PEAK_COLS + GAP};
    struct matmul p = {.dtype = dtype, .m = TILE, .n = PEAK_COLS, .k = PEAK_SUM};
    p.a = memory, p.lda = PEAK_SUM;
    p.b = memory + operand, p.ldb = PEAK_COLS;
    packed_make(pieces_of(dtype), &p, room.packed);
    double least = PEAK_SECONDS, start = clock_now();
    for (double now = start; now - start < PEAK_SECONDS;) {
        double begin = now;
        row_multiply(&p, &room, &row);
        now = clock_now();
        least = now - begin < least ? now - begin : least;
    }
    free(memory);
    return 2.0 * TILE * PEAK_COLS * PEAK_SUM / least;
}
