// SPDX-License-Identifier: Apache-2.0
/*
 * What the model is computed by: its layers as a table with two implementations, the
 * CPU (layers.h, attention.h, head.h), which defines the meaning, and an NVIDIA GPU
 * (cuda/). block.c and model.c say in which order layers come, once for both.
 *
 * Shapes: B sequences of T positions, rows = B * T, C channels, V tokens, whose wte
 * has gpt_padded_vocab(V) rows. "Operand" is a tensor in the model's dtype
 * (numeric.h); the rest is fp32. Parameters and gradients are operands; gradients are
 * added to. Sums over rows and products are made in fp32, and rounded once where not
 * said otherwise.
 *
 * On a GPU all pointers but those said to be the host's are to its memory, and every
 * call appends to its stream and returns at once; what goes wrong failure tells.
 */
#ifndef EXAMPLES_GPT2_DEVICE_H
#define EXAMPLES_GPT2_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "examples/gpt2/numeric.h"
#include "include/zero.h"

struct workers;
struct head_room;
struct gpu;
struct cuda_room;

/* What every layer needs besides its tensors. */
struct compute {
    const struct layers *layers;
    enum zero_dtype dtype;
    int batch, seq, channels, heads, vocab;
    /* the CPU's */
    struct workers *workers;
    float *partial; /* (blocks of ROWS_PER_TASK rows, 4C): sums of blocks, between two jobs */
    int32_t *chain; /* (V + rows), embed_backward's own */
    struct head_room *head; /* head.h */
    /* the GPU's */
    struct gpu *gpu;
    struct cuda_room *room; /* cuda/room.h */
};

static inline int compute_rows(const struct compute *c)
{
    return c->batch * c->seq;
}

struct layers {
    /* The host's count tokens where layers read them: may be written again when a loss or
     * logits of them were read. targets: a second place. */
    const int32_t *(*tokens)(const struct compute *c, const int32_t *tokens, int count,
                             bool targets);
    void (*clear)(const struct compute *c, void *memory, int64_t bytes);

    /* x (rows, C) = wte[tokens] + wpe[position] */
    void (*embed_forward)(const struct compute *c, const int32_t *tokens /* (rows) */,
                          const void *wte, const void *wpe, float *x);
    void (*embed_backward)(const struct compute *c, const int32_t *tokens, const float *dx,
                           void *dwte, void *dwpe);

    /* out (rows, C) operand */
    void (*norm_forward)(const struct compute *c, const float *x, const void *weight,
                         const void *bias, float *stats /* (rows, 2) */, void *out);
    /* Adds to dx (rows, C), which is not dout. */
    void (*norm_backward)(const struct compute *c, const float *x, const float *stats,
                          const void *weight, const float *dout, float *dx, void *dweight,
                          void *dbias);

    /* Linear layers: x (rows, in) operand, weight (in, out), bias (out). */

    /* y (rows, out) operand = x weight + bias */
    void (*linear)(const struct compute *c, const void *x, const void *weight, const void *bias,
                   int in, int out, void *y);
    /* y (rows, out) fp32 = residual + (x weight + bias) */
    void (*linear_residual)(const struct compute *c, const void *x, const void *weight,
                            const void *bias, int in, int out, const float *residual, float *y);
    /* wide (rows, out) operand = x weight + bias; active operand = GELU of it. (A GPU takes it
     * of the rounded numbers: half of the memory traffic.) */
    void (*linear_gelu)(const struct compute *c, const void *x, const void *weight,
                        const void *bias, int in, int out, void *wide, void *active);
    /* dweight (in, out) += x^T dout; dout (rows, out) operand */
    void (*linear_backward_weight)(const struct compute *c, const void *x, const void *dout, int in,
                                   int out, void *dweight);
    /* dx (rows, in) operand = dout weight^T; in fp32 likewise */
    void (*linear_backward)(const struct compute *c, const void *dout, const void *weight, int in,
                            int out, void *dx);
    void (*linear_backward_float)(const struct compute *c, const void *dout, const void *weight,
                                  int in, int out, float *dx);
    /* dwide (rows, in) operand = dout weight^T times GELU's slope at wide, dbias (in) += its sum
     * over rows. (A GPU rounds the product first.) */
    void (*linear_backward_gelu)(const struct compute *c, const void *dout, const void *weight,
                                 int in, int out, const void *wide, void *dwide, void *dbias);
    /* out (rows, C) operand = dx; dbias (C) += sum of dx over rows */
    void (*residual_backward)(const struct compute *c, const float *dx, void *out, void *dbias);
    /* dbias (width) += sum of dout (rows, width) operand over rows */
    void (*bias_backward)(const struct compute *c, const void *dout, int width, void *dbias);

    /* attention.h */
    void (*attention_forward)(const struct compute *c, const void *qkv, float *lse, void *out);
    void (*attention_backward)(const struct compute *c, const void *qkv, const float *lse,
                               const void *out, const void *dout, void *dqkv);

    /* head.h. The loss is there for loss to read, the logits (V) are the host's. */
    void (*head_loss)(const struct compute *c, const void *x, const void *wte,
                      const int32_t *targets /* (rows) */);
    void (*head_backward)(const struct compute *c, double loss_scale, const void *x,
                          const void *wte, const int32_t *targets, float *dx, void *dwte);
    void (*head_logits)(const struct compute *c, const void *x, int64_t row, const void *wte,
                        float *logits);
    /* Waits for the last head_loss, not for what came after it. */
    double (*loss)(const struct compute *c);

    /* The first failure, a sentence with what to do; NULL: none. */
    const char *(*failure)(const struct compute *c);
};

extern const struct layers layers_cpu;

/* -------------------------------------------------------------------- GPUs
 * The layers on GPUs are a plugin, as the engine's device is, because what they are
 * linked with costs every process that loads it. */

#define GPU_PLUGIN_FILE     "gpt2_cuda.so"
#define GPU_PLUGIN_SYMBOL   "gpt2_gpu_plugin"
#define GPU_PLUGIN_VARIABLE "GPT2_CUDA_PLUGIN" /* names a file instead */

struct gpu_start {
    void *stream; /* zero_stream's */
    bool tf32;    /* products of fp32 operands round these to 10 bits of mantissa */
    int64_t bytes, pinned_bytes;
    int marks; /* of a micro-step, at most */
};

/* Where a micro-step was at some time of the GPU's clock: where forward and backward begin, and
 * where kernels follow each other until the stream may wait for the engine again. */
enum gpu_mark { GPU_FORWARD, GPU_BACKWARD, GPU_END, GPU_WORKS, GPU_RESTS };

struct gpt_times;

struct gpu_plugin {
    const char *version; /* SOURCES, of the Makefile: the library's and a sum of the headers */
    const struct layers *table;
    /* What zero_gpu_use has found becomes the calling thread's for this copy of CUDA's runtime,
     * too. NULL with a sentence in error: it cannot. */
    struct gpu *(*open)(const struct zero_gpu *found, char *error, size_t error_size);
    void (*close)(struct gpu *gpu);
    /* Memory of the GPU for a model, and registered memory of the host. 0, or -1. */
    int (*start)(struct gpu *gpu, const struct gpu_start *start, void **memory, void **pinned,
                 char *error, size_t error_size);
    void (*stop)(struct gpu *gpu); /* ends its work and gives back what start has given */
    /* Appends a mark: of a micro-step from GPU_FORWARD to GPU_END, elsewhere nothing. Then seconds
     * adds what was measured since the last call of micro-steps that have ended, or with wait of
     * all; busy is what lies between WORKS and RESTS. */
    void (*mark)(struct gpu *gpu, enum gpu_mark mark);
    void (*seconds)(struct gpu *gpu, bool wait, struct gpt_times *times);
    /* Of all products so far: those of cuBLASLt, and attention's, of these what is not masked. */
    double (*flops)(const struct gpu *gpu);
    /* Measured now, in what is between two calls of the model's memory: flop/s of products
     * in this dtype, bytes/s that copies within it read and write. 0: not known. What fails there
     * is no failure of the model's. */
    double (*product_rate)(struct gpu *gpu, enum zero_dtype dtype);
    double (*copy_rate)(struct gpu *gpu);
    /* Prints a line for each shape that was multiplied: which algorithm was kept. */
    void (*algorithms)(const struct gpu *gpu, FILE *out);
};

struct gpu {
    const struct gpu_plugin *plugin;
    struct zero_gpu is;
    char name[96];     /* "GPU 0 of 2, NVIDIA H100 80GB HBM3" */
    char products[96]; /* what multiplies: "cuBLASLt 13.0.2" */
};

/* NULL with a sentence in error where there is none. It stays open. */
const struct gpu_plugin *gpu_plugin_open(char *error, size_t error_size);

#endif
