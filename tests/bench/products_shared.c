// SPDX-License-Identifier: Apache-2.0
/* gpt2's matrix products as a shared object for tests/bench/products.py: one thread, in tiles,
 * stored as a layer stores them. Not the library. */
#include <stdlib.h>

#include "examples/gpt2/matmul.h"
#include "examples/gpt2/numeric.h"
#include "examples/gpt2/rows.h"

#define EXPORT __attribute__((visibility("default")))

struct target {
    enum zero_dtype dtype;
    int width;
    void *to;
};

static void store(void *arg, const struct tile *tile)
{
    const struct target *t = arg;
    for (int r = 0; r < tile->rows; r++)
        rows_best()->store(
            t->dtype, tile->cols, tile_line(tile, r), NULL, NULL,
            operand_at(t->dtype, t->to, (int64_t)(tile->row + r) * t->width + tile->col));
}

EXPORT struct workers *products_open(int bf16, int k);
EXPORT const char *products_backend(int bf16);
EXPORT void products_run(struct workers *w, int bf16, int ta, int tb, int m, int n, int k,
                         const void *a, const void *b, void *c);

static enum zero_dtype dtype_of(int bf16)
{
    return bf16 ? ZERO_BF16 : ZERO_FP32;
}

/* For sums over at most k. */
struct workers *products_open(int bf16, int k)
{
    char error[256];
    return workers_create(1, matmul_tiles_scratch(dtype_of(bf16), k), NULL, error, sizeof(error));
}

const char *products_backend(int bf16)
{
    return matmul_backend(dtype_of(bf16));
}

/* c (m, n) = op(a) op(b), whose stored rows follow each other. */
void products_run(struct workers *w, int bf16, int ta, int tb, int m, int n, int k, const void *a,
                  const void *b, void *c)
{
    struct target target = {dtype_of(bf16), n, c};
    struct matmul p = {.dtype = dtype_of(bf16),
                       .ta = ta,
                       .tb = tb,
                       .m = m,
                       .n = n,
                       .k = k,
                       .a = a,
                       .lda = ta ? m : k,
                       .b = b,
                       .ldb = tb ? k : n};
    matmul_tiles(w, &p, store, &target);
}
