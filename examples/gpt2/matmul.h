// SPDX-License-Identifier: Apache-2.0
/*
 * Matrix products: one single-threaded product, and a large one cut into tiles
 * of fixed size, some to a task. No sum is shared between tasks, so the bits
 * do not depend on the number of threads. All matrices are row-major. The same bits
 * on every CPU, but by AMX, which adds in another order, and of values below 2^-126, which
 * instructions for bf16 take for zeros.
 */
#ifndef EXAMPLES_GPT2_MATMUL_H
#define EXAMPLES_GPT2_MATMUL_H

#include <stdbool.h>
#include <stdint.h>

#include "examples/common/workers.h"
#include "include/zero.h"

/* op(A) (m, k) times op(B) (k, n), both operands (numeric.h). ta: A is stored
 * (k, m); tb: B is stored (n, k). lda, ldb: elements between stored rows. */
struct matmul {
    enum zero_dtype dtype;
    bool ta, tb;
    int m, n, k;
    const void *a;
    int lda;
    const void *b;
    int ldb;
};

/* With terms, products of fp32 are made by AMX from now on, each operand as three terms of bf16:
 * half as fast again as by AVX-512 while the core is ours, no less exact, in bits of their own.
 * Infinities and values from 3.396e38 on give NaN, values below 1e-30 lose their last terms,
 * results below 2^-126 are zeros. For the process: before threads and any other call of these.
 * False: this CPU has no AMX, or Linux or the compiler knows none. */
bool matmul_by_terms(bool terms);

/* "packed panels, AVX2" and so on. */
const char *matmul_backend(enum zero_dtype dtype);
/* Whether it adds up in tiles, and so in bits of its own. */
bool matmul_in_tiles(enum zero_dtype dtype);

/* c (m, n), rows ldc apart, = product, or += with add. */
void matmul(const struct matmul *p, bool add, float *c, int ldc, void *scratch);
/* Bytes, enough for all that are no larger. */
int64_t matmul_scratch(enum zero_dtype dtype, int m, int n, int k);

/* All products of this process so far, on all its threads. Seconds are clock time
 * inside products, conversions of operands included, what finishes tiles not. */
struct matmul_done {
    double flops; /* 2 m n k of each */
    double seconds;
};
struct matmul_done matmul_flops_done(void);

/* flop/s that the calling thread reaches with one tile's operands, in cache: the best of
 * a tenth of a second. Not counted above. Takes megabytes for its time. 0: there are none. */
double matmul_peak(enum zero_dtype dtype);

/* ------------------------------------------------------- a product in tiles */

#define TILE_ROWS       256
#define TILE_ROWS_LEAST 64 /* tiles of few are cut to a half or a quarter, for more threads */
#define TILE_COLS       192 /* whole pieces of any set; a tile and slices of operands: 700 KiB */
/* Floats from row to row. By 192 rows 16 apart would be 12 KiB apart, and loads from one would wait
 * for stores to the other, as their addresses agree in the last 12 bits. */
#define TILE_LD (TILE_COLS + 16)

struct tile {
    int row, col;   /* of the product */
    int rows, cols; /* <= TILE_ROWS, TILE_COLS; row is a multiple of TILE_ROWS_LEAST */
    float *values;  /* (rows, cols), rows TILE_LD apart; the finisher may change them */
    float *spare;   /* (TILE_COLS), for the finisher */
};

static inline float *tile_line(const struct tile *tile, int row)
{
    return tile->values + (int64_t)row * TILE_LD;
}

/* Stores a finished tile; on any thread, once per tile. */
typedef void tile_finish_fn(void *arg, const struct tile *tile);

void matmul_tiles(struct workers *workers, const struct matmul *p, tile_finish_fn *finish,
                  void *arg);
/* Scratch bytes of a worker for tiles of products that sum over at most k. */
int64_t matmul_tiles_scratch(enum zero_dtype dtype, int k);

#endif
