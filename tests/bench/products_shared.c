// SPDX-License-Identifier: Apache-2.0
/* gpt2's matrix products as a shared object for tests/bench/products.py: one thread, in tiles,
 * stored as a layer stores them. Not the library. */
#include "examples/gpt2/layers.h"
#include "examples/gpt2/matmul.h"

#define EXPORT __attribute__((visibility("default")))

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
    struct tile_target target = {.dtype = dtype_of(bf16), .width = n, .to = c};
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
    matmul_tiles(w, &p, tile_to_operand, &target);
}
