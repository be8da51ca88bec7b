// SPDX-License-Identifier: Apache-2.0
/*
 * Products in tiles with finishers that reduce or transform a tile while it is
 * in cache. What tiles leave behind joins in the order of the vocabulary.
 */
#include "examples/gpt2/head.h"

#include "examples/gpt2/numeric.h"
#include "examples/gpt2/rows.h"

struct head_task {
    const struct compute *c;
    const int32_t *targets;
    int first;   /* vocabulary column of the product's first one */
    int across;  /* tiles of the whole vocabulary */
    int width;   /* of dlogits */
    float scale; /* of dlogits: loss scale / rows */
};

static int tiles_across(int vocab)
{
    return (vocab + TILE_COLS - 1) / TILE_COLS;
}

static int group_width(int vocab)
{
    return vocab < HEAD_COLUMNS ? vocab : HEAD_COLUMNS;
}

void head_carve(struct head_room *room, struct carve *carve, enum zero_dtype dtype, int rows,
                int vocab)
{
    int64_t n = rows, floats = sizeof(float);
    room->tiles = carve_take(carve, n * tiles_across(vocab) * 2 * floats);
    room->chosen = carve_take(carve, n * floats);
    room->lse = carve_take(carve, n * floats);
    room->losses = carve_take(carve, n * (int64_t)sizeof(double));
    room->dlogits = carve_take(carve, n * group_width(vocab) * operand_bytes(dtype));
}

/* columns [first, first + count) of logits, for all rows */
static void logits_run(const struct compute *c, const void *x, const void *wte, int first,
                       int count, tile_finish_fn *finish, void *arg)
{
    int n = c->channels;
    const void *part = operand_at(c->dtype, wte, (int64_t)first * n);
    struct matmul p = {c->dtype, false, true, compute_rows(c), count, n, x, n, part, n};
    matmul_tiles(c->workers, &p, finish, arg);
}

static void tile_to_sums(void *arg, const struct tile *tile)
{
    const struct head_task *h = arg;
    for (int r = 0; r < tile->rows; r++) {
        float *logits = tile_line(tile, r);
        int row = tile->row + r, target = h->targets[row] - tile->col;
        float *sums = h->c->head->tiles + ((int64_t)row * h->across + tile->col / TILE_COLS) * 2;
        if (target >= 0 && target < tile->cols)
            h->c->head->chosen[row] = logits[target];
        sums[0] = rows_best()->max(tile->cols, logits);
        sums[1] = rows_best()->exp(tile->cols, 1.0f, sums[0], logits);
    }
}

static void loss_task(void *arg, int64_t index, void *scratch)
{
    const struct head_task *h = arg;
    const float *sums = h->c->head->tiles + index * h->across * 2;
    float max = sums[0];
    double sum = 0;
    (void)scratch;
    for (int i = 1; i < h->across; i++)
        max = sums[2 * i] > max ? sums[2 * i] : max;
    for (int i = 0; i < h->across; i++) {
        float factor = sums[2 * i];
        rows_best()->exp(1, 1.0f, max, &factor);
        sum += (double)sums[2 * i + 1] * (double)factor;
    }
    double lse = (double)max + number_log(sum);
    h->c->head->lse[index] = (float)lse;
    h->c->head->losses[index] = lse - (double)h->c->head->chosen[index];
}

void head_loss(const struct compute *c, const void *x, const void *wte, const int32_t *targets)
{
    const struct head_room *room = c->head;
    struct head_task h = {.c = c, .targets = targets, .across = tiles_across(c->vocab)};
    int rows = compute_rows(c);
    logits_run(c, x, wte, 0, c->vocab, tile_to_sums, &h);
    workers_run(c->workers, loss_task, &h, rows);
    for (int step = 1; step < rows; step *= 2)
        for (int i = 0; i + step < rows; i += 2 * step)
            room->losses[i] += room->losses[i + step];
}

double head_mean(const struct compute *c)
{
    return c->head->losses[0] / compute_rows(c);
}

/* softmax - [target], over the rows: the gradient of the scaled mean loss. */
static void tile_to_dlogits(void *arg, const struct tile *tile)
{
    const struct head_task *h = arg;
    enum zero_dtype dtype = h->c->dtype;
    for (int r = 0; r < tile->rows; r++) {
        float *logits = tile_line(tile, r);
        int row = tile->row + r, target = h->targets[row] - h->first - tile->col;
        void *out = operand_at(dtype, h->c->head->dlogits, (int64_t)row * h->width + tile->col);
        rows_best()->softmax(dtype, tile->cols, 1.0f, h->c->head->lse[row], h->scale, logits, out);
        if (target >= 0 && target < tile->cols) {
            float dlogit = (logits[target] - 1.0f) * h->scale;
            operand_store(dtype, out, target, 1, &dlogit);
        }
    }
}

void head_backward(const struct compute *c, double loss_scale, const void *x, const void *wte,
                   const int32_t *targets, float *dx, void *dwte)
{
    const struct head_room *room = c->head;
    int n = c->channels, rows = compute_rows(c);
    struct head_task h = {.c = c, .targets = targets, .scale = (float)(loss_scale / rows)};
    for (int first = 0; first < c->vocab; first += HEAD_COLUMNS) {
        int64_t at = (int64_t)first * n;
        h.first = first;
        h.width = group_width(c->vocab - first);
        logits_run(c, x, wte, first, h.width, tile_to_dlogits, &h);

        struct tile_target to_dx = {.dtype = ZERO_FP32, .width = n, .to = dx};
        const void *part = operand_at(c->dtype, wte, at);
        struct matmul p = {c->dtype, false,         false,   rows, n,
                           h.width,  room->dlogits, h.width, part, n};
        matmul_tiles(c->workers, &p, first > 0 ? tile_to_gradient : tile_to_float, &to_dx);
        linear_backward_weight(c, room->dlogits, x, h.width, n, operand_at(c->dtype, dwte, at));
    }
}

void head_logits(const struct compute *c, const void *x, int64_t row, const void *wte,
                 float *logits)
{
    struct compute one = *c;
    struct tile_target to = {.dtype = c->dtype, .width = c->vocab, .to = logits};
    one.batch = one.seq = 1;
    logits_run(&one, operand_at(c->dtype, x, row * c->channels), wte, 0, c->vocab, tile_to_float,
               &to);
}
