// SPDX-License-Identifier: Apache-2.0
/*
 * GPT-2, trained through libzero's public interface alone: the list
 * of its tensors, and the walk over its units. Unit 0 is the embeddings, units
 * 1 .. layers the blocks, unit layers + 1 the final norm; the head is tied, so
 * unit 0 is acquired once more for it, and its gradient slot is held from the
 * head's backward to the embeddings'. (Radford et al. 2019; tensor names as
 * Hugging Face has them, weights stored (in, out) as there.)
 *
 * The bits of losses and gradients depend on shape, dtype, batch, parameters
 * and tokens, not on the number of threads; on a GPU on its type as well, and on
 * the version of cuBLASLt.
 *
 * No dropout, no cache of keys and values for sampling.
 */
#ifndef EXAMPLES_GPT2_MODEL_H
#define EXAMPLES_GPT2_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/zero.h"

struct gpt_shape {
    int layers;
    int channels; /* C: a multiple of heads */
    int heads;
    int seq;   /* T: positions */
    int vocab; /* V: wte has gpt_padded_vocab(V) rows; those past V are never used */
};

/* Rows of wte: a multiple of 64, so that products of its last ones are as well aligned as of all
 * others. */
static inline int gpt_padded_vocab(int vocab)
{
    return (vocab + 63) / 64 * 64;
}

/*
 * The tensors for zero_create, with GPT-2's initialisation: weights normal(0,
 * 0.02), those that end in a residual sum divided by sqrt(2 layers), norms 1,
 * biases 0, each tensor its own stream of seed. One allocation, to be freed
 * after zero_create. ZERO_ERR_ARGUMENT: no such shape; ZERO_ERR_MEMORY.
 */
int gpt_params(const struct gpt_shape *shape, uint64_t seed, struct zero_param **params,
               int *count);
int64_t gpt_param_count(const struct gpt_shape *shape); /* elements, padding of wte included */

struct gpt;
struct gpu; /* device.h */

/* A piece of work of the model is done: "forward", "backward" of a unit, or with
 * unit -1 of all of them. Seconds of CLOCK_MONOTONIC. A GPU tells nothing. */
typedef void gpt_span_fn(void *arg, const char *name, int unit, double begin, double end);

#define GPT_TOKENS_MAX (1 << 24)  /* of a micro-batch */
#define GPT_GPU_HEAD_MAX 256 /* channels of a head on a GPU: cuda/launch.h */

struct gpt_config {
    struct gpt_shape shape;
    enum zero_dtype dtype;
    int batch;         /* sequences of shape.seq positions in a micro-batch */
    int threads;       /* workers, the caller included */
    bool recompute;    /* backward runs each block's forward again, so that of a block only its
                       input is kept, and on a GPU no logits: the same bits, a quarter more
                       time, less memory */
    gpt_span_fn *span; /* NULL: none */
    void *span_arg;
    enum zero_device device; /* ZERO_CUDA: threads is not looked at, and */
    bool tf32;               /* fp32 products may round their operands to TF32 */
    struct gpu *gpu;         /* borrowed (device.h); for planning NULL */
    void *stream;            /* zero_stream of the engine */
};

/* NULL with a sentence in error on failure. */
struct gpt *gpt_create(const struct gpt_config *config, char *error, size_t error_size);
void gpt_destroy(struct gpt *m); /* NULL is fine. On a GPU before zero_destroy: its stream */

/* Of its memory: activations and scratch, on a GPU what it needs there. 0: no such model. */
int64_t gpt_plan_bytes(const struct gpt_config *config);
/* Of a model on a GPU: registered memory of the host. */
int64_t gpt_plan_pinned(const struct gpt_config *config);

/* On the CPU: the model's memory but that of its workers, from a huge page's boundary on, and
 * the workers: for others to use between two calls, as nothing is kept in it. */
void *gpt_memory(const struct gpt *m, int64_t *bytes);
struct workers *gpt_workers(const struct gpt *m);

/*
 * These return a zero_status: what the engine returned, ZERO_ERR_ARGUMENT
 * when a token, target or length is out of range (nothing was done then), or
 * ZERO_ERR_DEVICE when the GPU failed, which gpt_last_error tells.
 * COLLECTIVE as the engine's calls are.
 */

/* One micro-step: forward, backward, every unit reduced. loss: mean over the
 * B * T targets, in nats. On a GPU backward may still be under way. */
int gpt_train(struct gpt *m, struct zero *z, const int32_t *tokens /* (B, T) */,
              const int32_t *targets /* (B, T) */, double *loss);

struct gpt_times {
    double forward, backward; /* seconds, waiting for the engine included, */
    double busy;              /* on GPUs not */
};

/* Of all micro-steps since the last call; waits for the last of them to end. */
struct gpt_times gpt_times_take(struct gpt *m);

const char *gpt_last_error(const struct gpt *m); /* of the GPU; "": none */

/* The loss alone, in phase ZERO_EVAL. */
int gpt_eval(struct gpt *m, struct zero *z, const int32_t *tokens, const int32_t *targets,
             double *loss);

/* The logits after the last of length tokens (1 .. T), in phase ZERO_EVAL. */
int gpt_logits(struct gpt *m, struct zero *z, const int32_t *tokens /* (length) */, int length,
               float *logits /* (V) */);

#endif
