// SPDX-License-Identifier: Apache-2.0
/*
 * cuBLASLt for tests: the calls of examples/gpt2/cuda/cublas.h on the streams of
 * fake_cuda.h, by plain loops that add in fp32, in the order of the summed index.
 *
 * A product that cuBLASLt would refuse, or that would not do what it seems to, is
 * reported (FAKE_CUDA_PRODUCT) and refused: leading dimensions shorter than a column,
 * sizes that do not fit, types that are not combined, an algorithm chosen for other
 * sizes, types or alignments, a workspace that is too small or not aligned, results
 * that overlap operands. Memory outside of allocations is reported as for kernels.
 * Each product fills the workspace that its algorithm asks for, so that products at
 * once in one workspace are a race.
 */
#ifndef TESTS_SUPPORT_FAKE_CUBLAS_H
#define TESTS_SUPPORT_FAKE_CUBLAS_H

#include <stdbool.h>

/* Handles, layouts, descriptions and preferences that were not given back, of all threads. */
int fake_cublas_alive(void);

/* How often a heuristic was asked since the program's start. */
int fake_cublas_asked(void);

/* From now on no algorithm is found, for this reason (a cublasStatus_t); 0: all are. */
void fake_cublas_refuse(int status);

#endif
