// SPDX-License-Identifier: Apache-2.0
/*
 * What the layers on a GPU need of its memory beside the activations, and of the
 * host's. The program lays it out, with a plugin or without: so it is planned where
 * there is no GPU.
 */
#ifndef EXAMPLES_GPT2_CUDA_ROOM_H
#define EXAMPLES_GPT2_CUDA_ROOM_H

#include "examples/gpt2/cuda/launch.h"
#include "examples/gpt2/device.h"
#include "examples/gpt2/model.h"

/* Columns of the vocabulary at once, as head.h has them: logits are gigabytes, and are kept where
 * activations are; their gradients never exist whole. */
#define ROOM_COLUMNS 4096

/* Of every product, one size for all: the algorithm that is chosen depends on it. 32 MiB are
 * what NVIDIA recommends for GPUs since Hopper. */
#define ROOM_WORKSPACE ((int64_t)32 << 20)

struct cuda_room {
    int32_t *tokens[2];          /* (rows): tokens, targets */
    int32_t *order;              /* (gpt_embed_ints(rows)) */
    float *partial;              /* (gpt_partial_floats(rows, C)) */
    float *delta;                /* (B, heads, T) */
    bool keeps_logits;           /* from forward to backward: every part of them has its place */
    float *logits;               /* (rows, room_stride(V, first)) of one part, or of each */
    void *dlogits;               /* (rows, room_stride(V, 0)) operand */
    struct gpt_softmax *softmax; /* (rows) */
    float *lse;                  /* (rows) */
    double *losses;              /* (rows) */
    double *loss;                /* (1) */
    void *workspace;
    /* registered memory of the host */
    int32_t *tokens_from[2]; /* (rows) */
    double *loss_to;
    float *logits_to; /* (V) */
};

/* Columns of logits from token first on: rows of wte past V are multiplied too, and what comes of
 * them is not used. */
static inline int room_stride(int vocab, int first)
{
    int left = gpt_padded_vocab(vocab) - first;
    return left < ROOM_COLUMNS ? left : ROOM_COLUMNS;
}

static inline void room_carve(struct cuda_room *r, struct carve *carve, struct carve *pinned,
                              const struct compute *c, bool keep_logits)
{
    int64_t rows = compute_rows(c), columns = rows * room_stride(c->vocab, 0);
    int64_t logits = keep_logits ? rows * gpt_padded_vocab(c->vocab) : columns;
    int64_t four = sizeof(float), eight = sizeof(double);
    for (int i = 0; i < 2; i++) {
        r->tokens[i] = carve_take(carve, rows * four);
        r->tokens_from[i] = carve_take(pinned, rows * four);
    }
    r->order = carve_take(carve, gpt_embed_ints((int)rows) * four);
    r->partial = carve_take(carve, gpt_partial_floats((int)rows, c->channels) * four);
    r->delta = carve_take(carve, rows * c->heads * four);
    r->keeps_logits = keep_logits;
    r->logits = carve_take(carve, logits * four);
    r->dlogits = carve_take(carve, columns * operand_bytes(c->dtype));
    r->softmax = carve_take(carve, rows * (int64_t)sizeof(*r->softmax));
    r->lse = carve_take(carve, rows * four);
    r->losses = carve_take(carve, rows * eight);
    r->loss = carve_take(carve, eight);
    carve->used = (carve->used + 255) / 256 * 256; /* as aligned as the whole */
    r->workspace = carve_take(carve, ROOM_WORKSPACE);
    r->loss_to = carve_take(pinned, eight);
    r->logits_to = carve_take(pinned, c->vocab * four);
}

#endif
