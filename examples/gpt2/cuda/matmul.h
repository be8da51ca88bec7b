// SPDX-License-Identifier: Apache-2.0
/*
 * Matrix products on a GPU, by cuBLASLt: the one place that knows its column-major
 * world. For each shape the library's heuristic is asked once, and the first
 * algorithm that it names is kept; workspace and alignments that it is told, a
 * bias's among them, are the same wherever the matrices lie, and partial sums stay
 * fp32: so the bits are those of the GPU's type and of the version of cuBLASLt.
 * Knows no model.
 */
#ifndef EXAMPLES_GPT2_CUDA_MATMUL_H
#define EXAMPLES_GPT2_CUDA_MATMUL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "examples/gpt2/cuda/cublas.h"
#include "include/zero.h"

/* What matrices, and rows of them that products begin at, are aligned to at least, where
 * their tensors are: the engine's parameters and the model's activations. */
#define MATMUL_ALIGN 64

/* c (m, n) = op(a) (m, k) op(b) (k, n) + bias; all row-major, rows lda, ldb, ldc elements
 * apart. ta: a is stored (k, m); tb: b is stored (n, k). */
struct product {
    enum zero_dtype dtype; /* of a, b and bias */
    bool ta, tb;
    int m, n, k;
    const void *a;
    int64_t lda;
    const void *b;
    int64_t ldb;
    enum zero_dtype type; /* of c: dtype, or fp32 */
    bool add;             /* c += */
    const void *bias;     /* (n), added before c is rounded; only where c is of dtype. NULL: none */
    void *c;
    int64_t ldc;
};

struct matmul_plans;

/* tf32: operands in fp32 may be rounded to TF32. NULL: status says why. workspace_bytes is of every
 * product. */
struct matmul_plans *matmul_plans_create(bool tf32, int64_t workspace_bytes,
                                         cublasStatus_t *status);
void matmul_plans_destroy(struct matmul_plans *plans); /* NULL is fine */

/* Appends a product. The stream's products have one workspace among them (256-byte aligned). */
cublasStatus_t cuda_matmul(struct matmul_plans *plans, cudaStream_t stream, void *workspace,
                           const struct product *product);

double matmul_plans_flops(const struct matmul_plans *plans); /* of all products so far */
void matmul_plans_print(const struct matmul_plans *plans, FILE *out);

#endif
