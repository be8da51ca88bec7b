// SPDX-License-Identifier: Apache-2.0
/*
 * The walk: acquire a unit, compute with it, release it, reduce it when its
 * gradients are complete. All arithmetic is in the layers (device.h); all memory
 * is one allocation, laid out at creation.
 */
#include "examples/gpt2/model.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/clock.h"
#include "examples/common/huge.h"
#include "examples/gpt2/attention.h"
#include "examples/gpt2/block.h"
#include "examples/gpt2/cuda/room.h"
#include "examples/gpt2/device.h"
#include "examples/gpt2/head.h"
#include "examples/gpt2/layers.h"
#include "examples/gpt2/tensors.h"

/* -------------------------------------------------------------- activations */

struct gpt {
    struct gpt_shape shape;
    struct compute compute; /* of a whole micro-batch */
    bool on_gpu;
    void *memory;
    int64_t bytes, pinned_bytes;
    gpt_span_fn *span; /* or NULL */
    void *span_arg;
    bool recompute;            /* layers share all of saved but x; backward fills it again */
    struct block_saved *saved; /* (layers) */
    struct block_room room;
    struct head_room head;  /* the CPU's */
    struct cuda_room cuda;  /* the GPU's */
    float *x;               /* (rows, C): what the last block gave */
    float *final_stats;     /* (rows, 2) */
    void *final;            /* (rows, C) operand: x after the final norm */
    float *dx;              /* (rows, C): the gradient on its way back */
    struct gpt_times times; /* not yet taken */
};

/* All but x. */
static void saved_carve(struct block_saved *s, struct carve *carve, const struct compute *c)
{
    int64_t rows = compute_rows(c), floats = rows * (int64_t)sizeof(float);
    int64_t row = rows * c->channels * operand_bytes(c->dtype);
    s->mid = carve_take(carve, floats * c->channels);
    s->stats1 = carve_take(carve, floats * 2);
    s->stats2 = carve_take(carve, floats * 2);
    s->lse = carve_take(carve, floats * c->heads);
    s->norm1 = carve_take(carve, row);
    s->qkv = carve_take(carve, row * 3);
    s->mixed = carve_take(carve, row);
    s->norm2 = carve_take(carve, row);
    s->wide = carve_take(carve, row * 4);
    s->active = carve_take(carve, row * 4);
}

/* What backward needs of each block: with recompute its input alone, and one
 * place for the rest. */
static void blocks_carve(struct gpt *m, struct carve *carve)
{
    const struct compute *c = &m->compute;
    int64_t x = (int64_t)compute_rows(c) * c->channels * (int64_t)sizeof(float);
    struct block_saved s = {0};
    for (int layer = 0; layer < m->shape.layers; layer++) {
        if (layer == 0 || !m->recompute)
            saved_carve(&s, carve, c);
        s.x = carve_take(carve, x);
        if (m->saved)
            m->saved[layer] = s;
    }
}

/* What the layers on the CPU need. */
static void cpu_carve(struct gpt *m, struct carve *carve)
{
    struct compute *c = &m->compute;
    int64_t rows = compute_rows(c), lines = partial_lines(c);
    c->partial = carve_take(carve, lines * 4 * c->channels * (int64_t)sizeof(float));
    c->chain = carve_take(carve, (c->vocab + rows) * (int64_t)sizeof(int32_t));
    head_carve(&m->head, carve, c->dtype, (int)rows, c->vocab);
}

/* Lays out the model's memory from base, and the host's from pinned; returns its bytes. Without
 * m->saved it only counts. */
static int64_t memory_carve(struct gpt *m, void *base, void *pinned)
{
    struct compute *c = &m->compute;
    struct carve carve = {base, 0}, host = {pinned, 0};
    int64_t rows = compute_rows(c), floats = rows * (int64_t)sizeof(float);
    int64_t row = rows * c->channels * operand_bytes(c->dtype);

    blocks_carve(m, &carve);
    m->x = carve_take(&carve, floats * c->channels);
    m->final_stats = carve_take(&carve, floats * 2);
    m->final = carve_take(&carve, row);
    m->dx = carve_take(&carve, floats * c->channels);
    m->room.dout = carve_take(&carve, row);
    m->room.dwide = carve_take(&carve, row * 4);
    m->room.dnorm = carve_take(&carve, floats * c->channels);
    if (m->on_gpu)
        room_carve(&m->cuda, &carve, &host, c, !m->recompute);
    else
        cpu_carve(m, &carve);
    m->pinned_bytes = host.used;
    return carve.used;
}

static int64_t scratch_bytes(const struct gpt *m)
{
    const struct compute *c = &m->compute;
    int sums = m->shape.vocab < HEAD_COLUMNS ? m->shape.vocab : HEAD_COLUMNS;
    sums = sums > compute_rows(c) ? sums : compute_rows(c);
    int64_t layers = layers_scratch(c->dtype, c->channels, sums);
    int64_t attention = attention_scratch(c->dtype, c->seq, c->channels / c->heads);
    return layers > attention ? layers : attention;
}

static int cpu_memory_create(struct gpt *m, char *error, size_t error_size)
{
    m->memory = huge_alloc((size_t)m->bytes);
    if (m->memory) {
        memory_carve(m, m->memory, NULL);
        return 0;
    }
    snprintf(error, error_size,
             "Cannot allocate %lld bytes of activations for %d sequences of %d positions. "
             "Give a smaller --batch%s.",
             (long long)m->bytes, m->compute.batch, m->shape.seq,
             m->recompute ? "" : ", or --recompute");
    return -1;
}

/* Of a micro-step: around each unit in forward and in backward, where the head is one more. */
static int marks_most(const struct gpt_shape *shape)
{
    int units = shape->layers + 2;
    return 3 + 2 * (2 * units + 2);
}

static int gpu_memory_create(struct gpt *m, const struct gpt_config *config, char *error,
                             size_t error_size)
{
    struct gpu *gpu = m->compute.gpu;
    assert(gpu && config->stream);
    const struct gpu_start start = {.stream = config->stream,
                                    .tf32 = config->tf32,
                                    .marks = marks_most(&m->shape),
                                    .bytes = m->bytes,
                                    .pinned_bytes = m->pinned_bytes};
    void *memory, *pinned;
    if (gpu->plugin->start(gpu, &start, &memory, &pinned, error, error_size))
        return -1;
    memory_carve(m, memory, pinned);
    return 0;
}

static bool config_valid(const struct gpt_config *g)
{
    return tensors_shape_valid(&g->shape) && g->batch >= 1 && g->threads >= 1 &&
           g->threads <= 4096 && (int64_t)g->batch * g->shape.seq <= GPT_TOKENS_MAX &&
           (g->device == ZERO_CPU || g->shape.channels / g->shape.heads <= GPT_GPU_HEAD_MAX);
}

static void config_take(struct gpt *m, const struct gpt_config *config)
{
    const struct gpt_shape *shape = &config->shape;
    m->shape = *shape;
    m->recompute = config->recompute;
    m->on_gpu = config->device == ZERO_CUDA;
    m->span = m->on_gpu ? NULL : config->span;
    m->span_arg = config->span_arg;
    m->compute = (struct compute){.layers = &layers_cpu,
                                  .dtype = config->dtype,
                                  .batch = config->batch,
                                  .seq = shape->seq,
                                  .channels = shape->channels,
                                  .heads = shape->heads,
                                  .vocab = shape->vocab,
                                  .head = &m->head};
    if (m->on_gpu && config->gpu) {
        m->compute.layers = config->gpu->plugin->table;
        m->compute.gpu = config->gpu;
        m->compute.room = &m->cuda;
    }
}

static int cpu_create(struct gpt *m, int threads, char *error, size_t error_size)
{
    if (cpu_memory_create(m, error, error_size))
        return -1;
    m->compute.workers = workers_create(threads, scratch_bytes(m), NULL, error, error_size);
    return m->compute.workers ? 0 : -1;
}

struct gpt *gpt_create(const struct gpt_config *config, char *error, size_t error_size)
{
    const struct gpt_shape *shape = &config->shape;
    if (!config_valid(config)) {
        snprintf(error, error_size,
                 "No such model: %d layers, %d channels, %d heads, %d positions, vocabulary %d, "
                 "batch %d, %d threads. All must be positive, channels a multiple of heads%s.",
                 shape->layers, shape->channels, shape->heads, shape->seq, shape->vocab,
                 config->batch, config->threads,
                 config->device == ZERO_CPU ? "" : ", at most 256 for each head on a GPU");
        return NULL;
    }
    struct gpt *m = calloc(1, sizeof(*m));
    if (m)
        m->saved = calloc((size_t)shape->layers, sizeof(*m->saved));
    if (!m || !m->saved) {
        snprintf(error, error_size, "Out of memory for the model.");
        gpt_destroy(m);
        return NULL;
    }
    config_take(m, config);
    m->bytes = memory_carve(m, NULL, NULL);
    if (m->on_gpu ? gpu_memory_create(m, config, error, error_size)
                  : cpu_create(m, config->threads, error, error_size)) {
        gpt_destroy(m);
        return NULL;
    }
    return m;
}

void gpt_destroy(struct gpt *m)
{
    if (!m)
        return;
    if (m->compute.gpu)
        m->compute.gpu->plugin->stop(m->compute.gpu);
    workers_destroy(m->compute.workers);
    free(m->memory);
    free(m->saved);
    free(m);
}

/* The model before it is: nothing of it may be freed. 0, or -1: no such model. */
static int plan(struct gpt *m, const struct gpt_config *config)
{
    *m = (struct gpt){0};
    if (!config_valid(config))
        return -1;
    config_take(m, config);
    m->bytes = memory_carve(m, NULL, NULL);
    return 0;
}

int64_t gpt_plan_bytes(const struct gpt_config *config)
{
    struct gpt m;
    if (plan(&m, config))
        return 0;
    return m.on_gpu ? m.bytes : m.bytes + workers_plan_bytes(config->threads, scratch_bytes(&m));
}

int64_t gpt_plan_pinned(const struct gpt_config *config)
{
    struct gpt m;
    return plan(&m, config) ? 0 : m.pinned_bytes;
}

const char *gpt_last_error(const struct gpt *m)
{
    const char *failure = m->compute.layers->failure(&m->compute);
    return failure ? failure : "";
}

void *gpt_memory(const struct gpt *m, int64_t *bytes)
{
    *bytes = m->on_gpu ? 0 : m->bytes;
    return m->memory;
}

struct workers *gpt_workers(const struct gpt *m)
{
    return m->compute.workers;
}

/* ------------------------------------------------------------------ the walk */

#define TRY(call)                                                                                  \
    do {                                                                                           \
        int try_status = (call);                                                                   \
        if (try_status != ZERO_OK)                                                                 \
            return try_status;                                                                     \
    } while (0)

/* What one walk computes with; sizes of its compute may be smaller than m's. */
struct walk {
    struct gpt *m;
    struct zero *z;
    struct compute c;
    const int32_t *tokens, *targets; /* where layers read them */
};

/* What has begun by now; what a walk has appended to the GPU's stream is timed there. */
static double mark(const struct walk *w, enum gpu_mark which)
{
    if (w->c.gpu)
        w->c.gpu->plugin->mark(w->c.gpu, which);
    return clock_now();
}

/* What began at begin is done. */
static void span(const struct walk *w, const char *name, int unit, double begin)
{
    double end = mark(w, GPU_RESTS);
    if (w->m->span)
        w->m->span(w->m->span_arg, name, unit, begin, end);
}

/* A micro-step's seconds: the host's, or what of the GPU's has been measured by now. */
static void times_add(struct gpt *m, double forward, double backward)
{
    if (m->compute.gpu) {
        m->compute.gpu->plugin->seconds(m->compute.gpu, false, &m->times);
        return;
    }
    m->times.forward += forward;
    m->times.backward += backward;
    m->times.busy += forward + backward;
}

struct gpt_times gpt_times_take(struct gpt *m)
{
    if (m->compute.gpu)
        m->compute.gpu->plugin->seconds(m->compute.gpu, true, &m->times);
    struct gpt_times times = m->times;
    m->times = (struct gpt_times){0};
    return times;
}

static int params_get(struct zero *z, int first, int count, const void **params)
{
    for (int i = 0; i < count; i++) {
        params[i] = zero_param_data(z, first + i);
        if (!params[i])
            return ZERO_ERR_STATE;
    }
    return ZERO_OK;
}

static int grads_get(struct zero *z, int first, int count, void **grads)
{
    for (int i = 0; i < count; i++) {
        grads[i] = zero_grad_data(z, first + i);
        if (!grads[i])
            return ZERO_ERR_STATE;
    }
    return ZERO_OK;
}

static int embed_unit_forward(struct walk *w)
{
    const void *params[2];
    TRY(zero_acquire(w->z, 0));
    TRY(params_get(w->z, WTE, 2, params));
    double begin = mark(w, GPU_WORKS);
    w->c.layers->embed_forward(&w->c, w->tokens, params[WTE], params[WPE], w->m->saved[0].x);
    span(w, "forward", 0, begin);
    return zero_release(w->z, 0);
}

static int block_unit_forward(struct walk *w, int layer)
{
    struct gpt *m = w->m;
    const void *params[BLOCK_TENSORS];
    float *y = layer + 1 < m->shape.layers ? m->saved[layer + 1].x : m->x;
    TRY(zero_acquire(w->z, layer + 1));
    TRY(params_get(w->z, tensors_block(layer, 0), BLOCK_TENSORS, params));
    double begin = mark(w, GPU_WORKS);
    block_forward(&w->c, params, &m->saved[layer], y);
    span(w, "forward", layer + 1, begin);
    return zero_release(w->z, layer + 1);
}

static int final_unit_forward(struct walk *w)
{
    struct gpt *m = w->m;
    const void *params[2];
    int unit = m->shape.layers + 1;
    TRY(zero_acquire(w->z, unit));
    TRY(params_get(w->z, tensors_final(&m->shape), 2, params));
    double begin = mark(w, GPU_WORKS);
    w->c.layers->norm_forward(&w->c, m->x, params[0], params[1], m->final_stats, m->final);
    span(w, "forward", unit, begin);
    return zero_release(w->z, unit);
}

/* Everything up to the head. */
static int walk_forward(struct walk *w)
{
    TRY(embed_unit_forward(w));
    for (int layer = 0; layer < w->m->shape.layers; layer++)
        TRY(block_unit_forward(w, layer));
    return final_unit_forward(w);
}

/* Loss, then the head's gradients: one acquire serves both. *middle takes the
 * time between them. */
static int head_unit_train(struct walk *w, double *middle)
{
    struct gpt *m = w->m;
    const void *wte;
    void *dwte;
    TRY(zero_acquire(w->z, 0));
    TRY(params_get(w->z, WTE, 1, &wte));
    double begin = mark(w, GPU_WORKS);
    w->c.layers->head_loss(&w->c, m->final, wte, w->targets);
    span(w, "head forward", 0, begin);
    *middle = mark(w, GPU_BACKWARD);
    TRY(grads_get(w->z, WTE, 1, &dwte));
    begin = mark(w, GPU_WORKS);
    w->c.layers->head_backward(&w->c, zero_loss_scale(w->z), m->final, wte, w->targets,
                               m->room.dnorm, dwte);
    span(w, "head backward", 0, begin);
    return zero_release(w->z, 0);
}

static int final_unit_backward(struct walk *w)
{
    struct gpt *m = w->m;
    const void *params[2];
    void *grads[2];
    int unit = m->shape.layers + 1, first = tensors_final(&m->shape);
    TRY(zero_acquire(w->z, unit));
    TRY(params_get(w->z, first, 2, params));
    TRY(grads_get(w->z, first, 2, grads));
    double begin = mark(w, GPU_WORKS);
    w->c.layers->clear(&w->c, m->dx,
                       (int64_t)compute_rows(&w->c) * w->c.channels * (int64_t)sizeof(float));
    w->c.layers->norm_backward(&w->c, m->x, m->final_stats, params[0], m->room.dnorm, m->dx,
                               grads[0], grads[1]);
    span(w, "backward", unit, begin);
    TRY(zero_release(w->z, unit));
    return zero_reduce(w->z, unit);
}

static int block_unit_backward(struct walk *w, int layer)
{
    struct gpt *m = w->m;
    const void *params[BLOCK_TENSORS];
    void *grads[BLOCK_TENSORS];
    int first = tensors_block(layer, 0);
    TRY(zero_acquire(w->z, layer + 1));
    TRY(params_get(w->z, first, BLOCK_TENSORS, params));
    TRY(grads_get(w->z, first, BLOCK_TENSORS, grads));
    double begin = mark(w, GPU_WORKS);
    if (m->recompute && layer < m->shape.layers - 1) /* the last one's is still there */
        block_forward(&w->c, params, &m->saved[layer], NULL);
    block_backward(&w->c, params, grads, &m->saved[layer], &m->room, m->dx);
    span(w, "backward", layer + 1, begin);
    TRY(zero_release(w->z, layer + 1));
    return zero_reduce(w->z, layer + 1);
}

/* Needs no parameters, so nothing is acquired. */
static int embed_unit_backward(struct walk *w)
{
    struct gpt *m = w->m;
    void *grads[2];
    TRY(grads_get(w->z, WTE, 2, grads));
    double begin = mark(w, GPU_WORKS);
    w->c.layers->embed_backward(&w->c, w->tokens, m->dx, grads[WTE], grads[WPE]);
    span(w, "backward", 0, begin);
    return zero_reduce(w->z, 0);
}

static bool tokens_valid(const struct gpt *m, const int32_t *tokens, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= m->shape.vocab)
            return false;
    return true;
}

/* What the host sees when a walk's work is done, or stands in the GPU's stream. */
static int walk_end(const struct walk *w, double *loss)
{
    *loss = w->c.layers->loss(&w->c);
    return w->c.layers->failure(&w->c) ? ZERO_ERR_DEVICE : ZERO_OK;
}

/* A walk over count tokens, which are valid. targets may be NULL. */
static struct walk walk_begin(struct gpt *m, struct zero *z, const int32_t *tokens,
                              const int32_t *targets, int count)
{
    struct walk w = {.m = m, .z = z, .c = m->compute};
    w.tokens = w.c.layers->tokens(&w.c, tokens, count, false);
    if (targets)
        w.targets = w.c.layers->tokens(&w.c, targets, count, true);
    return w;
}

int gpt_train(struct gpt *m, struct zero *z, const int32_t *tokens, const int32_t *targets,
              double *loss)
{
    int rows = compute_rows(&m->compute);
    if (!tokens_valid(m, tokens, rows) || !tokens_valid(m, targets, rows))
        return ZERO_ERR_ARGUMENT;
    struct walk w = walk_begin(m, z, tokens, targets, rows);
    double start = mark(&w, GPU_FORWARD), middle;
    TRY(walk_forward(&w));
    TRY(head_unit_train(&w, &middle));
    TRY(final_unit_backward(&w));
    for (int layer = m->shape.layers - 1; layer >= 0; layer--)
        TRY(block_unit_backward(&w, layer));
    TRY(embed_unit_backward(&w));
    double end = mark(&w, GPU_END);
    if (m->span) {
        m->span(m->span_arg, "forward", -1, start, middle);
        m->span(m->span_arg, "backward", -1, middle, end);
    }
    TRY(walk_end(&w, loss));
    times_add(m, middle - start, end - middle);
    return ZERO_OK;
}

int gpt_eval(struct gpt *m, struct zero *z, const int32_t *tokens, const int32_t *targets,
             double *loss)
{
    int rows = compute_rows(&m->compute);
    const void *wte;
    if (!tokens_valid(m, tokens, rows) || !tokens_valid(m, targets, rows))
        return ZERO_ERR_ARGUMENT;
    struct walk w = walk_begin(m, z, tokens, targets, rows);
    TRY(walk_forward(&w));
    TRY(zero_acquire(z, 0));
    TRY(params_get(z, WTE, 1, &wte));
    w.c.layers->head_loss(&w.c, m->final, wte, w.targets);
    TRY(zero_release(z, 0));
    return walk_end(&w, loss);
}

int gpt_logits(struct gpt *m, struct zero *z, const int32_t *tokens, int length, float *logits)
{
    const void *wte;
    if (length < 1 || length > m->shape.seq || !tokens_valid(m, tokens, length))
        return ZERO_ERR_ARGUMENT;
    struct walk w = walk_begin(m, z, tokens, NULL, length);
    w.c.batch = 1;
    w.c.seq = length;
    TRY(walk_forward(&w));
    TRY(zero_acquire(z, 0));
    TRY(params_get(z, WTE, 1, &wte));
    w.c.layers->head_logits(&w.c, m->final, length - 1, wte, logits);
    TRY(zero_release(z, 0));
    return w.c.layers->failure(&w.c) ? ZERO_ERR_DEVICE : ZERO_OK;
}
