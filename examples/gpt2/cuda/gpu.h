// SPDX-License-Identifier: Apache-2.0
/* A GPU that a model computes on, as the files of the plugin share it. */
#ifndef EXAMPLES_GPT2_CUDA_GPU_H
#define EXAMPLES_GPT2_CUDA_GPU_H

#include <stdbool.h>

#include "examples/gpt2/cuda/matmul.h"
#include "examples/gpt2/device.h"
#include "kernels/cuda/runtime.h"

enum { GPU_TURNS = 2 }; /* micro-steps whose marks are kept: one may be under way */

/* A micro-step's marks, in the order of the stream. */
struct gpu_turn {
    cudaEvent_t *events;
    enum gpu_mark *what;
    int count; /* 0: none has begun, or it was read */
};

struct gpu_cuda {
    struct gpu gpu;
    char failure[512]; /* the first; "": none */
    /* of a model */
    cudaStream_t stream;
    struct matmul_plans *plans;
    double attention_flops; /* of attention's products so far */
    void *memory, *pinned;
    int64_t bytes;
    cudaEvent_t loss; /* behind the copy of it */
    struct gpu_turn turns[GPU_TURNS];
    int turn, marks; /* the next one's, at most so many each */
};

/* Whether a call has succeeded; else the first sentence is kept. What: "copy tokens". */
bool gpu_good(struct gpu_cuda *g, cudaError_t rc, const char *what);

/* Keeps what kept a product from being made. */
void gpu_product_failed(struct gpu_cuda *g, const struct product *product, cublasStatus_t status);

extern const struct layers layers_cuda;

#endif
