// SPDX-License-Identifier: Apache-2.0
/* A GPU that a model computes on, as the files of the plugin share it. */
#ifndef EXAMPLES_GPT2_CUDA_GPU_H
#define EXAMPLES_GPT2_CUDA_GPU_H

#include <stdbool.h>

#include "examples/gpt2/cuda/matmul.h"
#include "examples/gpt2/device.h"
#include "kernels/cuda/runtime.h"

enum { GPU_TURNS = 2 }; /* micro-steps whose marks are kept: one may be under way */

struct gpu_cuda {
    struct gpu gpu;
    int number;
    char name[96], products[96];
    char failure[512]; /* the first; "": none */
    /* of a model */
    cudaStream_t stream;
    struct matmul_plans *plans;
    void *memory, *pinned;
    int64_t bytes;
    cudaEvent_t loss; /* behind the copy of it */
    cudaEvent_t marks[GPU_TURNS][GPU_MARKS];
    bool marked[GPU_TURNS]; /* to the end, and not read yet */
    int turn;
};

/* Whether a call has succeeded; else the first sentence is kept. What: "copy tokens". */
bool gpu_good(struct gpu_cuda *g, cudaError_t rc, const char *what);

/* Keeps what kept a product from being made. */
void gpu_product_failed(struct gpu_cuda *g, const struct product *product, cublasStatus_t status);

extern const struct layers layers_cuda;

#endif
