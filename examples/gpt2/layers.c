// SPDX-License-Identifier: Apache-2.0
/*
 * Each layer is a task function over one block of rows and a function that
 * runs it. Sums over rows go through c->partial: a block writes its own line,
 * partial_join adds the lines up.
 */
#include "examples/gpt2/layers.h"

#include <assert.h>
#include <string.h>

#include "examples/gpt2/numeric.h"
#include "examples/gpt2/rows.h"

#define JOIN_COLUMNS 256  /* of a gradient, per task */
#define CHAINS_PER_TASK 16 /* tokens of the vocabulary */

int64_t layers_scratch(enum zero_dtype dtype, int channels, int rows)
{
    /* Products need more than the two rows of C that norms view. */
    return matmul_tiles_scratch(dtype, rows > 4 * channels ? rows : 4 * channels);
}

/* The rows of one task: [first, first + count). */
struct block {
    int first, count;
};

static struct block block_of(const struct compute *c, int64_t index)
{
    int rows = compute_rows(c), first = (int)index * ROWS_PER_TASK;
    return (struct block){first, rows - first < ROWS_PER_TASK ? rows - first : ROWS_PER_TASK};
}

int partial_lines(const struct compute *c)
{
    return (compute_rows(c) + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
}

/* -------------------------------------------------------------- embeddings */

struct embed {
    const struct compute *c;
    const int32_t *tokens;
    const void *wte, *wpe;
    float *x;
};

static void embed_task(void *arg, int64_t index, void *scratch)
{
    const struct embed *e = arg;
    const struct compute *c = e->c;
    struct block b = block_of(c, index);
    int n = c->channels;
    for (int row = b.first; row < b.first + b.count; row++) {
        float *x = e->x + (int64_t)row * n;
        memcpy(x, operand_view(c->dtype, e->wte, (int64_t)e->tokens[row] * n, n, scratch),
               (size_t)n * sizeof(float));
        const float *place =
            operand_view(c->dtype, e->wpe, (int64_t)(row % c->seq) * n, n, scratch);
        rows_best()->add(n, place, x);
    }
}

void embed_forward(const struct compute *c, const int32_t *tokens, const void *wte,
                   const void *wpe, float *x)
{
    struct embed e = {c, tokens, wte, wpe, x};
    workers_run(c->workers, embed_task, &e, partial_lines(c));
}

/* The rows that read one row of a table, summed in order and added to its
 * gradient once: first -> next[first] -> ... until -1. */
struct scatter {
    const struct compute *c;
    int vocab;
    const int32_t *first; /* (V) */
    const int32_t *next;  /* (rows) */
    const float *dx;
    void *dwte, *dwpe;
};

static void scatter_token_task(void *arg, int64_t index, void *scratch)
{
    const struct scatter *s = arg;
    int n = s->c->channels, begin = (int)index * CHAINS_PER_TASK;
    int end = begin + CHAINS_PER_TASK < s->vocab ? begin + CHAINS_PER_TASK : s->vocab;
    float *sum = scratch;
    for (int v = begin; v < end; v++) {
        if (s->first[v] < 0)
            continue;
        memset(sum, 0, (size_t)n * sizeof(float));
        for (int32_t row = s->first[v]; row >= 0; row = s->next[row])
            rows_best()->add(n, s->dx + (int64_t)row * n, sum);
        operand_add(s->c->dtype, s->dwte, (int64_t)v * n, n, sum);
    }
}

static void scatter_position_task(void *arg, int64_t index, void *scratch)
{
    const struct scatter *s = arg;
    const struct compute *c = s->c;
    int n = c->channels;
    float *sum = scratch;
    memset(sum, 0, (size_t)n * sizeof(float));
    for (int b = 0; b < c->batch; b++)
        rows_best()->add(n, s->dx + ((int64_t)b * c->seq + index) * n, sum);
    operand_add(c->dtype, s->dwpe, index * n, n, sum);
}

void embed_backward(const struct compute *c, const int32_t *tokens, const float *dx, void *dwte,
                    void *dwpe)
{
    int vocab = c->vocab;
    int32_t *first = c->chain, *next = c->chain + vocab;
    memset(first, 0xFF, (size_t)vocab * sizeof(*first));
    for (int row = compute_rows(c) - 1; row >= 0; row--) { /* backwards: chains ascend */
        next[row] = first[tokens[row]];
        first[tokens[row]] = row;
    }
    struct scatter s = {c, vocab, first, next, dx, dwte, dwpe};
    workers_run(c->workers, scatter_token_task, &s,
                (vocab + CHAINS_PER_TASK - 1) / CHAINS_PER_TASK);
    workers_run(c->workers, scatter_position_task, &s, c->seq);
}

/* -------------------------------------------------------------- layer norm */

struct norm {
    const struct compute *c;
    const float *x;
    const void *weight, *bias;
    float *stats;
    void *out;
    const float *dout;
    float *dx;
};

static void norm_task(void *arg, int64_t index, void *scratch)
{
    const struct norm *a = arg;
    const struct compute *c = a->c;
    struct block b = block_of(c, index);
    int n = c->channels;
    float *spare = scratch;
    const float *weight = operand_view(c->dtype, a->weight, 0, n, spare);
    const float *bias = operand_view(c->dtype, a->bias, 0, n, spare + n);
    for (int row = b.first; row < b.first + b.count; row++) {
        int64_t at = (int64_t)row * n;
        rows_best()->norm(c->dtype, n, a->x + at, weight, bias, a->stats + 2 * (int64_t)row,
                          operand_at(c->dtype, a->out, at));
    }
}

void norm_forward(const struct compute *c, const float *x, const void *weight, const void *bias,
                  float *stats, void *out)
{
    struct norm a = {.c = c, .x = x, .weight = weight, .bias = bias, .stats = stats, .out = out};
    workers_run(c->workers, norm_task, &a, partial_lines(c));
}

static void norm_backward_task(void *arg, int64_t index, void *scratch)
{
    const struct norm *a = arg;
    const struct compute *c = a->c;
    struct block b = block_of(c, index);
    int n = c->channels;
    const float *weight = operand_view(c->dtype, a->weight, 0, n, scratch);
    float *dweight = c->partial + index * n;
    float *dbias = c->partial + (partial_lines(c) + index) * n;
    memset(dweight, 0, (size_t)n * sizeof(float));
    memset(dbias, 0, (size_t)n * sizeof(float));
    for (int row = b.first; row < b.first + b.count; row++) {
        int64_t at = (int64_t)row * n;
        rows_best()->norm_backward(n, a->x + at, weight, a->stats + 2 * (int64_t)row,
                                   a->dout + at, a->dx + at, dweight, dbias);
    }
}

void norm_backward(const struct compute *c, const float *x, const float *stats,
                   const void *weight, const float *dout, float *dx, void *dweight, void *dbias)
{
    struct norm a = {.c = c, .x = x, .weight = weight, .stats = (float *)stats, .dout = dout,
                     .dx = dx};
    struct compute second = *c; /* dbias has the second half of partial */
    int blocks = partial_lines(c);
    second.partial += (int64_t)blocks * c->channels;
    workers_run(c->workers, norm_backward_task, &a, blocks);
    partial_join(c, blocks, c->channels, dweight);
    partial_join(&second, blocks, c->channels, dbias);
}

/* ----------------------------------------------------------- sums over rows */

struct join {
    const struct compute *c;
    int blocks, width;
    void *grad;
};

static void join_task(void *arg, int64_t index, void *scratch)
{
    const struct join *j = arg;
    int64_t col = index * JOIN_COLUMNS;
    int64_t n = j->width - col < JOIN_COLUMNS ? j->width - col : JOIN_COLUMNS;
    float *lines = j->c->partial + col;
    (void)scratch;
    for (int step = 1; step < j->blocks; step *= 2)
        for (int i = 0; i + step < j->blocks; i += 2 * step)
            rows_best()->add(n, lines + (int64_t)(i + step) * j->width,
                             lines + (int64_t)i * j->width);
    operand_add(j->c->dtype, j->grad, col, n, lines);
}

void partial_join(const struct compute *c, int blocks, int width, void *grad)
{
    struct join j = {c, blocks, width, grad};
    workers_run(c->workers, join_task, &j, (width + JOIN_COLUMNS - 1) / JOIN_COLUMNS);
}

struct rows_sum {
    const struct compute *c;
    int width;
    const float *dx;  /* residual_backward */
    const void *dout; /* bias_backward */
    void *out;
};

static void rows_sum_task(void *arg, int64_t index, void *scratch)
{
    const struct rows_sum *s = arg;
    const struct compute *c = s->c;
    struct block b = block_of(c, index);
    int n = s->width;
    float *sum = c->partial + index * n;
    (void)scratch;
    memset(sum, 0, (size_t)n * sizeof(float));
    for (int row = b.first; row < b.first + b.count; row++) {
        int64_t at = (int64_t)row * n;
        if (s->dx) {
            rows_best()->add(n, s->dx + at, sum);
            operand_store(c->dtype, s->out, at, n, s->dx + at);
        } else {
            rows_best()->add_operand(c->dtype, n, operand_at(c->dtype, s->dout, at), sum);
        }
    }
}

void residual_backward(const struct compute *c, const float *dx, void *out, void *dbias)
{
    struct rows_sum s = {.c = c, .width = c->channels, .dx = dx, .out = out};
    workers_run(c->workers, rows_sum_task, &s, partial_lines(c));
    partial_join(c, partial_lines(c), c->channels, dbias);
}

void bias_backward(const struct compute *c, const void *dout, int width, void *dbias)
{
    struct rows_sum s = {.c = c, .width = width, .dout = dout};
    assert(width <= 4 * c->channels);
    workers_run(c->workers, rows_sum_task, &s, partial_lines(c));
    partial_join(c, partial_lines(c), width, dbias);
}
