// SPDX-License-Identifier: Apache-2.0
/*
 * Queries are taken in blocks of QUERIES; block after block sees only the keys
 * up to its last query, so the upper triangle costs little. Gradients of keys
 * and values are summed over the blocks in order, in fp32.
 */
#include "examples/gpt2/attention.h"

#include <string.h>

#include "examples/gpt2/numeric.h"
#include "examples/gpt2/rows.h"

#define QUERIES 128
#define VECTOR  32 /* elements: whole vectors of any set */
#define AHEAD   8  /* rows, in whose time memory answers */

struct attention {
    const struct compute *c;
    const void *qkv;
    float *lse;
    const void *out; /* forward writes it */
    const void *dout;
    void *dqkv;
    int size;    /* channels of a head */
    float scale; /* of scores: 1 / sqrt(size) */
};

/* What one task computes in; sizes for the longest sequence. */
struct room {
    float *scores;     /* (QUERIES, T) */
    float *dweights;   /* (QUERIES, T): gradients of weights */
    void *weights;     /* (QUERIES, T) operand: softmax of scores */
    void *dscores;     /* (QUERIES, T) operand: gradients of scores, scaled */
    float *piece;      /* (QUERIES, size) */
    float *dkey;       /* (T, size) */
    float *dvalue;     /* (T, size) */
    float *spare[2];   /* (size) */
    void *matmul;
};

/* One head of one sequence. */
struct head {
    const struct attention *a;
    int64_t row; /* first of the sequence */
    int channel; /* first of the head */
    float *lse;
    struct room room;
};

/* Of the products below, the one that needs most. */
static int64_t products_scratch(enum zero_dtype dtype, int seq, int size)
{
    int64_t scores = matmul_scratch(dtype, QUERIES, seq, size);
    int64_t mixed = matmul_scratch(dtype, QUERIES, size, seq);
    int64_t dkey = matmul_scratch(dtype, seq, size, QUERIES);
    int64_t most = scores > mixed ? scores : mixed;
    return most > dkey ? most : dkey;
}

static int64_t room_carve(struct room *r, void *base, enum zero_dtype dtype, int seq, int size)
{
    int64_t floats = sizeof(float), square = (int64_t)QUERIES * seq;
    struct carve carve = {base, 0};
    r->scores = carve_take(&carve, square * floats);
    r->dweights = carve_take(&carve, square * floats);
    r->weights = carve_take(&carve, square * operand_bytes(dtype));
    r->dscores = carve_take(&carve, square * operand_bytes(dtype));
    r->piece = carve_take(&carve, (int64_t)QUERIES * size * floats);
    r->dkey = carve_take(&carve, (int64_t)seq * size * floats);
    r->dvalue = carve_take(&carve, (int64_t)seq * size * floats);
    r->spare[0] = carve_take(&carve, size * floats);
    r->spare[1] = carve_take(&carve, size * floats);
    r->matmul = carve_take(&carve, products_scratch(dtype, seq, size));
    return carve.used;
}

int64_t attention_scratch(enum zero_dtype dtype, int seq, int size)
{
    struct room room;
    return room_carve(&room, NULL, dtype, seq, size);
}

static struct head head_of(const struct attention *a, int64_t index, void *scratch)
{
    const struct compute *c = a->c;
    struct head h = {.a = a,
                     .row = index / c->heads * c->seq,
                     .channel = (int)(index % c->heads) * a->size,
                     .lse = a->lse + index * c->seq};
    room_carve(&h.room, scratch, c->dtype, c->seq, a->size);
    return h;
}

/* Position of the head's first channel in row t of the sequence: which is 0
 * for queries, 1 for keys, 2 for values in a (B, T, 3C) tensor. */
static int64_t qkv_at(const struct head *h, int which, int t)
{
    int64_t channels = h->a->c->channels;
    return (h->row + t) * 3 * channels + which * channels + h->channel;
}

static int64_t out_at(const struct head *h, int t)
{
    return (h->row + t) * h->a->c->channels + h->channel;
}

static const void *qkv_of(const struct head *h, int which, int t)
{
    return operand_at(h->a->c->dtype, h->a->qkv, qkv_at(h, which, t));
}

/* Queries [first, first + count) against the keys they may see, [0, keys). */
struct span {
    int first, count, keys;
};

static int64_t spans(const struct compute *c)
{
    return (c->seq + QUERIES - 1) / QUERIES;
}

static struct span span_of(const struct head *h, int first)
{
    int left = h->a->c->seq - first, count = left < QUERIES ? left : QUERIES;
    return (struct span){first, count, first + count};
}

/* room.scores (count, keys) = queries keys^T */
static void scores_compute(const struct head *h, struct span s)
{
    const struct compute *c = h->a->c;
    struct matmul p = {c->dtype, false, true, s.count, s.keys, h->a->size,
                       qkv_of(h, 0, s.first), 3 * c->channels, qkv_of(h, 1, 0), 3 * c->channels};
    matmul(&p, false, h->room.scores, s.keys, h->room.matmul);
}

/* How many keys row r sees. */
static int seen_of(struct span s, int r)
{
    return s.first + r + 1;
}

/* Those and more up to a whole vector, if there are so many. */
static int seen_padded(struct span s, int r)
{
    int whole = (seen_of(s, r) + VECTOR - 1) / VECTOR * VECTOR;
    return whole < s.keys ? whole : s.keys;
}

/* Scores become exp(scale * score - shift), unseen keys 0, whatever softmax made of theirs. */
static void weights_compute(const struct head *h, struct span s, int r, float shift)
{
    enum zero_dtype dtype = h->a->c->dtype;
    float *row = h->room.scores + (int64_t)r * s.keys;
    char *weights = operand_at(dtype, h->room.weights, (int64_t)r * s.keys);
    int seen = seen_of(s, r), unseen = s.keys - seen;
    rows_best()->softmax(dtype, seen_padded(s, r), h->a->scale, shift, 1.0f, row, weights);
    memset(row + seen, 0, (size_t)unseen * sizeof(float));
    memset(operand_at(dtype, weights, seen), 0, (size_t)unseen * (size_t)operand_bytes(dtype));
}

static void forward_span(const struct head *h, struct span s)
{
    const struct attention *a = h->a;
    const struct compute *c = a->c;
    const struct rows *rows = rows_best();
    float shifts[QUERIES], sums[QUERIES];
    scores_compute(h, s);
    for (int r = 0; r < s.count; r++) {
        float *row = h->room.scores + (int64_t)r * s.keys;
        shifts[r] = rows->max(seen_of(s, r), row) * a->scale;
        weights_compute(h, s, r, shifts[r]);
        sums[r] = rows->sum(seen_padded(s, r), row);
    }
    rows->log(s.count, shifts, sums, h->lse + s.first);
    struct matmul p = {c->dtype, false, false, s.count, a->size, s.keys,
                       h->room.weights, s.keys, qkv_of(h, 2, 0), 3 * c->channels};
    matmul(&p, false, h->room.piece, a->size, h->room.matmul);
    for (int r = 0; r < s.count; r++)
        rows->store_scaled(c->dtype, a->size, h->room.piece + (int64_t)r * a->size, 1.0f / sums[r],
                           operand_at(c->dtype, a->out, out_at(h, s.first + r)));
}

/* Spans of all heads, those of most keys first. */
static void forward_task(void *arg, int64_t index, void *scratch)
{
    const struct attention *a = arg;
    int64_t heads = (int64_t)a->c->batch * a->c->heads, span = spans(a->c) - 1 - index / heads;
    struct head h = head_of(a, index % heads, scratch);
    forward_span(&h, span_of(&h, (int)span * QUERIES));
}

/* Gradients of weights, which are those of what they mix, and of scores. */
static void dscores_compute(const struct head *h, struct span s)
{
    const struct attention *a = h->a;
    const struct compute *c = a->c;
    const struct rows *rows = rows_best();
    struct matmul p = {c->dtype, false, true, s.count, s.keys, a->size,
                       operand_at(c->dtype, a->dout, out_at(h, s.first)), c->channels,
                       qkv_of(h, 2, 0), 3 * c->channels};
    matmul(&p, false, h->room.dweights, s.keys, h->room.matmul);
    for (int r = 0; r < s.count; r++) {
        int64_t at = out_at(h, s.first + r), soon = out_at(h, s.first + r + AHEAD);
        operand_fetch(c->dtype, a->out, soon, a->size);
        operand_fetch(c->dtype, a->dout, soon, a->size);
        const float *out = operand_view(c->dtype, a->out, at, a->size, h->room.spare[0]);
        const float *dout = operand_view(c->dtype, a->dout, at, a->size, h->room.spare[1]);
        int64_t row = (int64_t)r * s.keys;
        rows->softmax_backward(c->dtype, s.keys, h->room.scores + row,
                               rows->dot(a->size, out, dout), a->scale, h->room.dweights + row,
                               operand_at(c->dtype, h->room.dscores, row));
    }
}

static void backward_span(const struct head *h, struct span s)
{
    const struct attention *a = h->a;
    const struct compute *c = a->c;
    const struct room *room = &h->room;
    int wide = 3 * c->channels;
    scores_compute(h, s);
    for (int r = 0; r < s.count; r++)
        weights_compute(h, s, r, h->lse[s.first + r]);
    dscores_compute(h, s);

    struct matmul dvalue = {c->dtype, true, false, s.keys, a->size, s.count, room->weights, s.keys,
                            operand_at(c->dtype, a->dout, out_at(h, s.first)), c->channels};
    struct matmul dkey = {c->dtype, true, false, s.keys, a->size, s.count, room->dscores, s.keys,
                          qkv_of(h, 0, s.first), wide};
    struct matmul dquery = {c->dtype, false, false, s.count, a->size, s.keys, room->dscores,
                            s.keys, qkv_of(h, 1, 0), wide};
    matmul(&dvalue, true, room->dvalue, a->size, room->matmul);
    matmul(&dkey, true, room->dkey, a->size, room->matmul);
    matmul(&dquery, false, room->piece, a->size, room->matmul);
    for (int r = 0; r < s.count; r++) {
        operand_fetch(c->dtype, a->dqkv, qkv_at(h, 0, s.first + r + AHEAD), a->size);
        operand_store(c->dtype, a->dqkv, qkv_at(h, 0, s.first + r), a->size,
                      room->piece + (int64_t)r * a->size);
    }
}

static void backward_task(void *arg, int64_t index, void *scratch)
{
    struct head h = head_of(arg, index, scratch);
    const struct compute *c = h.a->c;
    size_t bytes = (size_t)c->seq * (size_t)h.a->size * sizeof(float);
    memset(h.room.dkey, 0, bytes);
    memset(h.room.dvalue, 0, bytes);
    for (int first = 0; first < c->seq; first += QUERIES)
        backward_span(&h, span_of(&h, first));
    for (int t = 0; t < c->seq; t++) {
        int64_t at = (int64_t)t * h.a->size;
        operand_fetch(c->dtype, h.a->dqkv, qkv_at(&h, 1, t + AHEAD), h.a->size);
        operand_fetch(c->dtype, h.a->dqkv, qkv_at(&h, 2, t + AHEAD), h.a->size);
        operand_store(c->dtype, h.a->dqkv, qkv_at(&h, 1, t), h.a->size, h.room.dkey + at);
        operand_store(c->dtype, h.a->dqkv, qkv_at(&h, 2, t), h.a->size, h.room.dvalue + at);
    }
}

static void attention_run(struct attention *a, workers_task_fn *task, int64_t per_head)
{
    a->size = a->c->channels / a->c->heads;
    a->scale = (float)(1.0 / __builtin_sqrt((double)a->size));
    workers_run(a->c->workers, task, a, (int64_t)a->c->batch * a->c->heads * per_head);
}

void attention_forward(const struct compute *c, const void *qkv, float *lse, void *out)
{
    struct attention a = {.c = c, .qkv = qkv, .lse = lse, .out = out};
    attention_run(&a, forward_task, spans(c));
}

void attention_backward(const struct compute *c, const void *qkv, const float *lse,
                        const void *out, const void *dout, void *dqkv)
{
    struct attention a = {.c = c, .qkv = qkv, .lse = (float *)lse, .out = out, .dout = dout,
                          .dqkv = dqkv};
    attention_run(&a, backward_task, 1);
}
