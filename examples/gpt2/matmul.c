// SPDX-License-Identifier: Apache-2.0
/*
 * The choice between the two ways to multiply, what they have done, and tiles.
 */
#include "examples/gpt2/matmul.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "examples/common/clock.h"
#include "examples/gpt2/matmul_kind.h"
#include "examples/gpt2/numeric.h"

static const struct matmul_kind *kind(void)
{
    return matmul_dnnl_leads() ? matmul_dnnl() : matmul_packed();
}

const char *matmul_backend(void)
{
    return kind()->name();
}

void matmul_thread_init(void)
{
    kind()->thread_init();
}

bool matmul_has_room(int threads, int64_t *bytes)
{
    *bytes = (1 + threads) * kind()->thread_bytes;
    if (*bytes == 0)
        return true;
    void *room = mmap(NULL, (size_t)*bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return room != MAP_FAILED && munmap(room, (size_t)*bytes) == 0;
}

int64_t matmul_scratch(enum zero_dtype dtype, int m, int n, int k)
{
    return kind()->scratch(dtype, m, n, k);
}

static void multiply(const struct matmul *p, bool add, float *c, int ldc, void *scratch)
{
    kind()->multiply(p, add, c, ldc, scratch);
}

/* ----------------------------------------------------------------- counting */

static atomic_int_fast64_t done_flops, done_ns; /* of the process, as oneDNN's state is */

void matmul(const struct matmul *p, bool add, float *c, int ldc, void *scratch)
{
    double begin = clock_now();
    multiply(p, add, c, ldc, scratch);
    int64_t ns = (int64_t)(1e9 * (clock_now() - begin));
    atomic_fetch_add_explicit(&done_flops, 2 * (int64_t)p->m * p->n * p->k, memory_order_relaxed);
    atomic_fetch_add_explicit(&done_ns, ns, memory_order_relaxed);
}

struct matmul_done matmul_flops_done(void)
{
    return (struct matmul_done){
        (double)atomic_load_explicit(&done_flops, memory_order_relaxed),
        1e-9 * (double)atomic_load_explicit(&done_ns, memory_order_relaxed),
    };
}

#define PEAK_SUM     384 /* k: both operands of a tile in fp32 are 768 KiB */
#define PEAK_SECONDS 0.1

double matmul_peak(enum zero_dtype dtype)
{
    int64_t operand = (int64_t)TILE * PEAK_SUM * operand_bytes(dtype);
    struct carve carve = {NULL, 0};
    carve_take(&carve, 2 * operand + TILE * TILE * (int64_t)sizeof(float));
    int64_t scratch = carve.used;
    carve_take(&carve, matmul_scratch(dtype, TILE, TILE, PEAK_SUM));
    char *memory = aligned_alloc(64, (size_t)carve.used);
    if (!memory)
        return 0;
    memset(memory, 0, (size_t)carve.used);
    struct matmul p = {
        dtype, false, false, TILE, TILE, PEAK_SUM, memory, PEAK_SUM, memory + operand, TILE};
    double least = PEAK_SECONDS, start = clock_now();
    for (double now = start; now - start < PEAK_SECONDS;) {
        double begin = now;
        multiply(&p, false, (float *)(memory + 2 * operand), TILE, memory + scratch);
        now = clock_now();
        least = now - begin < least ? now - begin : least;
    }
    free(memory);
    return 2.0 * TILE * TILE * PEAK_SUM / least;
}

/* ------------------------------------------------------- a product in tiles */

/* A task is a group of neighbouring tiles, computed as one product and finished one by one. */
struct tiles {
    const struct matmul *product;
    int down, across; /* tiles of a group */
    int groups_across;
    tile_finish_fn *finish;
    void *arg;
};

#define GAP 16 /* floats between lines of a group, which otherwise are all of one cache set */

enum { TASKS_PER_THREAD = 4 }; /* at least, where there are so many tiles */

static int parts(int whole, int part)
{
    return (whole + part - 1) / part;
}

static int part_at(int whole, int first, int part)
{
    return whole - first < part ? whole - first : part;
}

static void group_finish(const struct tiles *t, const struct tile *group)
{
    for (int row = 0; row < group->rows; row += TILE)
        for (int col = 0; col < group->cols; col += TILE) {
            struct tile tile = *group;
            tile.row += row;
            tile.col += col;
            tile.rows = part_at(group->rows, row, TILE);
            tile.cols = part_at(group->cols, col, TILE);
            tile.values = tile_line(group, row) + col;
            t->finish(t->arg, &tile);
        }
}

static int64_t group_bytes(int down, int across)
{
    return (int64_t)down * TILE * (across * TILE + GAP) * (int64_t)sizeof(float);
}

static void group_task(void *arg, int64_t index, void *scratch)
{
    const struct tiles *t = arg;
    struct matmul p = *t->product;
    struct tile group = {.row = (int)(index / t->groups_across) * t->down * TILE,
                         .col = (int)(index % t->groups_across) * t->across * TILE};
    struct carve carve = {scratch, 0};

    group.rows = part_at(p.m, group.row, t->down * TILE);
    group.cols = part_at(p.n, group.col, t->across * TILE);
    group.ld = group.cols + GAP;
    group.values = carve_take(&carve, group_bytes(t->down, t->across));
    group.spare = carve_take(&carve, 2 * TILE * sizeof(float));
    p.a = operand_at(p.dtype, p.a, p.ta ? group.row : (int64_t)group.row * p.lda);
    p.b = operand_at(p.dtype, p.b, p.tb ? (int64_t)group.col * p.ldb : group.col);
    p.m = group.rows;
    p.n = group.cols;
    matmul(&p, false, group.values, group.ld, (char *)scratch + carve.used);
    group_finish(t, &group);
}

void matmul_tiles(struct workers *workers, const struct matmul *p, tile_finish_fn *finish,
                  void *arg)
{
    struct tiles t = {p, kind()->down, kind()->across, 0, finish, arg};
    int rows = parts(p->m, TILE), cols = parts(p->n, TILE);
    int enough = workers_threads(workers) > 1 ? TASKS_PER_THREAD * workers_threads(workers) : 1;
    assert(p->m >= 1 && p->n >= 1 && p->k >= 1);
    while (t.down * t.across > 1 && parts(rows, t.down) * parts(cols, t.across) < enough)
        if (t.down >= t.across)
            t.down /= 2;
        else
            t.across /= 2;
    t.groups_across = parts(cols, t.across);
    workers_run(workers, group_task, &t, (int64_t)parts(rows, t.down) * t.groups_across);
}

int64_t matmul_tiles_scratch(enum zero_dtype dtype, int k)
{
    const struct matmul_kind *best = kind();
    return group_bytes(best->down, best->across) + 2 * TILE * (int64_t)sizeof(float) +
           matmul_scratch(dtype, best->down * TILE, best->across * TILE, k);
}
