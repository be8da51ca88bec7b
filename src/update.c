// SPDX-License-Identifier: Apache-2.0
/*
 * What happens to a chunk of optimizer state: an Adam step, initial values, a
 * write or read of a tensor's elements, a digest. One job of the pool at a
 * time, cut into tasks of fixed size (but for fills of the program's own); a
 * task visits the runs of tensors that lie in its elements and touches nothing
 * else, so padding stays zero.
 */
#include "src/engine.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define TASK ((int64_t)1 << 15) /* elements */

char *update_record(const struct zero *z, int64_t chunk, int slot)
{
    const struct plan *p = &z->plan;
    if (plan_chunk_in_file(p, chunk))
        return z->arena.base + p->host.record[slot];
    char *base = p->set.state == ZERO_DEVICE ? z->device_memory + p->device.state
                                             : z->arena.base + p->host.state;
    return base + plan_record_offset(p, chunk);
}

/* Whether the device makes the step by itself, behind the host's back. */
static bool on_device(const struct zero *z, enum walk_kind kind)
{
    return kind == WALK_ADAM && z->plan.device_apart && z->plan.compute == ZERO_DEVICE;
}

/* Elements of one tensor in the chunk under way, wherever they are. */
struct piece {
    int64_t count;
    const struct tensor *tensor;
    int64_t first;      /* element of the tensor */
    int64_t position;   /* in state order */
    float *master;      /* NULL: param and remainder, or param alone */
    int16_t *remainder; /* NULL but for split state */
    float *m, *v;       /* NULL: frozen */
    char *param;        /* NULL: the master is the parameter */
};

/* Where a chunk's parameters are while they are apart from all others: its slot's,
 * or on the host's side of a device; or NULL. */
static char *chunk_params(const struct zero *z)
{
    const struct update *u = &z->update;
    if (u->bounced)
        return bounce_params(z);
    bool slotted = z->plan.slot_param && plan_chunk_apart(&z->plan, u->chunk);
    return slotted ? slot_params(z, u->slot) : NULL;
}

static char *piece_params(const struct zero *z, const struct tensor *t, int64_t position)
{
    const struct plan *p = &z->plan;
    char *chunk = chunk_params(z);
    if (chunk)
        return chunk + (position - z->update.chunk * p->chunk) * p->element;
    if (p->set.param == ZERO_NVME) /* the master in the record is the parameter */
        return NULL;
    return params_at_rest(z, t->unit, position);
}

static struct piece make_piece(const struct zero *z, const struct run *run, int64_t from,
                               int64_t to)
{
    const struct plan *p = &z->plan;
    int64_t chunk = z->update.chunk, inside = from - chunk * p->chunk;
    struct piece piece = {.count = to - from,
                          .tensor = &z->layout.tensors[run->tensor],
                          .first = run->first + from - run->begin,
                          .position = from};
    piece.param = piece_params(z, piece.tensor, from);
    if (plan_chunk_frozen(p, chunk))
        return piece;
    char *record = z->update.bounced ? bounce_record(z) : update_record(z, chunk, z->update.slot);
    struct record r = plan_record(p, chunk);
    piece.m = (float *)(void *)(record + r.m + inside * 4);
    piece.v = (float *)(void *)(record + r.v + inside * 4);
    if (p->set.split)
        piece.remainder = (int16_t *)(void *)(record + inside * 2);
    else
        piece.master = (float *)(void *)(p->master ? record + inside * 4 : piece.param);
    if (p->shared)
        piece.param = NULL;
    return piece;
}

/* ----------------------------------------------- masters, however they are kept */

#define BLOCK 2048 /* elements that pass through a buffer in the first cache */

/* Masters [at, at + n) of a piece: where they are, or in buffer. */
static float *masters(const struct zero *z, const struct piece *piece, int64_t at, int64_t n,
                      float *buffer)
{
    if (piece->master)
        return piece->master + at;
    const uint16_t *half = (const uint16_t *)(void *)piece->param + at;
    if (piece->remainder)
        z->kernels->join(n, half, piece->remainder + at, buffer);
    else if (z->plan.set.dtype == ZERO_BF16)
        z->kernels->from_bf16(n, half, buffer);
    else if (z->plan.set.dtype == ZERO_FP16)
        z->kernels->from_fp16(n, half, buffer);
    else
        return (float *)(void *)piece->param + at; /* frozen */
    return buffer;
}

/* The parameters of masters [at, at + n), which are at 'from', and what else is
 * kept of them. */
static void put_masters(const struct zero *z, const struct piece *piece, int64_t at, int64_t n,
                        const float *from)
{
    if (!piece->param)
        return;
    uint16_t *half = (uint16_t *)(void *)piece->param + at;
    float *whole = (float *)(void *)piece->param + at;
    if (piece->remainder)
        z->kernels->split(n, from, half, piece->remainder + at);
    else if (z->plan.set.dtype == ZERO_BF16)
        z->kernels->to_bf16(n, from, half);
    else if (z->plan.set.dtype == ZERO_FP16)
        z->kernels->to_fp16(n, from, half);
    else if (whole != from)
        memcpy(whole, from, (size_t)n * 4);
}

/* ------------------------------------------------------------- the walks */

static const char *chunk_grads(const struct zero *z, const struct piece *piece)
{
    const struct plan *p = &z->plan;
    if (!p->slot_grad)
        return grads_at_rest(z, piece->tensor->unit, piece->position);
    return slot_grads(z, z->update.slot) + (piece->position - z->update.chunk * p->chunk) * p->grad;
}

static void adam_piece(const struct zero *z, const struct piece *piece)
{
    const char *rest = chunk_grads(z, piece);
    struct adam_stretch stretch = {.count = piece->count,
                                   .constants = z->update.adam[piece->tensor->group],
                                   .master = piece->master,
                                   .remainder = piece->remainder,
                                   .m = piece->m,
                                   .v = piece->v,
                                   .param = piece->param,
                                   .dtype = z->plan.set.dtype};
    if (!piece->tensor->decay)
        stretch.constants.decay = 1, stretch.constants.l2 = 0;
    if (z->plan.grad == 2)
        stretch.grads.bf16 = (const uint16_t *)(const void *)rest;
    else
        stretch.grads.f32 = (const float *)(const void *)rest;
    if (z->plan.compute == ZERO_DEVICE)
        z->device->ops->adam(z->device, &stretch);
    else
        adam_step(z->kernels, &stretch);
}

static int fill_block(const struct tensor *t, float limit, int64_t first, int64_t n, float *out,
                      struct error *error)
{
    memset(out, 0, (size_t)n * 4);
    int rc = t->fill ? t->fill(t->fill_arg, first, n, out) : 0;
    kernels_thread_init();
    if (rc)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "The fill of tensor %s returned %d for elements %lld to %lld. Make it "
                         "return 0, or look for why it fails (ready-made fills need a fill_arg).",
                         t->name, rc, (long long)first, (long long)(first + n - 1));
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(out[i]) <= limit))
            return error_set(error, ZERO_ERR_ARGUMENT,
                             "The fill of tensor %s wrote %.9g to element %lld. Write values that "
                             "are finite, also when rounded to parameters: at most %.9g.",
                             t->name, (double)out[i], (long long)(first + i), (double)limit);
    return ZERO_OK;
}

/* Fills the piece, unless an error is recorded already. */
static void fill_piece(const struct zero *z, const struct piece *piece, struct error *error)
{
    float buffer[BLOCK];
    size_t bytes = (size_t)piece->count * 4;
    if (piece->m) {
        memset(piece->m, 0, bytes);
        memset(piece->v, 0, bytes);
    }
    for (int64_t at = 0; at < piece->count && !error->status; at += BLOCK) {
        int64_t n = piece->count - at < BLOCK ? piece->count - at : BLOCK;
        float *out = piece->master ? piece->master + at : buffer;
        if (!fill_block(piece->tensor, dtype_limit(z->plan.set.dtype), piece->first + at, n, out,
                        error))
            put_masters(z, piece, at, n, out);
    }
}

/* A single task keeps its error for zero_create, and no fill is called any more. Of several each
 * only says that it failed, and update_test then fills the chunk once more by a single one. */
static void fill(struct zero *z, const struct piece *piece)
{
    struct update *u = &z->update;
    struct error error = {0};
    if (u->error.status)
        return;
    if (u->whole) {
        fill_piece(z, piece, &u->error);
    } else if (!__atomic_load_n(&u->failed, __ATOMIC_RELAXED)) {
        fill_piece(z, piece, &error);
        if (error.status)
            __atomic_store_n(&u->failed, true, __ATOMIC_RELAXED);
    }
}

/* Whether no fill of the chunk under way is the program's own function: what the others write
 * depends on the element alone. */
static bool ready_made(const struct zero *z)
{
    int64_t begin = z->update.chunk * z->plan.chunk;
    int64_t end = begin + plan_chunk_count(&z->plan, z->update.chunk);
    for (int i = plan_run_at(z->runs, z->run_count, begin); i < z->run_count; i++) {
        if (z->runs[i].begin >= end)
            break;
        zero_fill_fn *f = z->layout.tensors[z->runs[i].tensor].fill;
        if (f && f != zero_fill_normal && f != zero_fill_constant)
            return false;
    }
    return true;
}

/* Elements [at, at + n) of a piece that zero_read or zero_write moves, between
 * it and the caller. */
static void exchange_block(const struct zero *z, const struct piece *piece, int64_t at, int64_t n)
{
    const struct update *u = &z->update;
    const struct run *range = &u->range;
    bool in = u->kind == WALK_ASSIGN;
    float buffer[BLOCK];
    float *array = u->what == ZERO_MASTER    ? masters(z, piece, at, n, buffer)
                   : u->what == ZERO_MOMENT1 ? piece->m + at
                                             : piece->v + at;
    int64_t first = piece->first + at;
    int64_t from = first > range->first ? first : range->first, end = range->first + range->count;
    int64_t to = first + n < end ? first + n : end;
    if (piece->tensor == &z->layout.tensors[range->tensor] && from < to) {
        size_t bytes = (size_t)(to - from) * 4;
        if (in)
            memcpy(array + from - first, u->in + from - range->first, bytes);
        else
            memcpy(u->out + from - range->first, array + from - first, bytes);
    }
    if (!in)
        return;
    if (u->what != ZERO_MASTER) /* all of the chunk passes through the slot again */
        array = masters(z, piece, at, n, buffer);
    put_masters(z, piece, at, n, array);
}

static void exchange_piece(const struct zero *z, const struct piece *piece)
{
    for (int64_t at = 0; at < piece->count; at += BLOCK)
        exchange_block(z, piece, at, piece->count - at < BLOCK ? piece->count - at : BLOCK);
}

static void digest_piece(struct zero *z, const struct piece *piece)
{
    struct zero_digest sum = {0};
    float buffer[BLOCK];
    for (int64_t at = 0; at < piece->count; at += BLOCK) {
        uint64_t global = (uint64_t)(piece->tensor->global + piece->first + at);
        int64_t n = piece->count - at < BLOCK ? piece->count - at : BLOCK;
        sum.master += z->kernels->digest(n, global, masters(z, piece, at, n, buffer));
        if (piece->m) {
            sum.moment1 += z->kernels->digest(n, global, piece->m + at);
            sum.moment2 += z->kernels->digest(n, global, piece->v + at);
        }
    }
    struct zero_digest *d = &z->update.digest;
    __atomic_fetch_add(&d->master, sum.master, __ATOMIC_RELAXED);
    __atomic_fetch_add(&d->moment1, sum.moment1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&d->moment2, sum.moment2, __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------------ tasks */

static void visit(struct zero *z, const struct piece *piece)
{
    switch (z->update.kind) {
    case WALK_ADAM: adam_piece(z, piece); break;
    case WALK_FILL: fill(z, piece); break;
    case WALK_ASSIGN:
    case WALK_LOAD: exchange_piece(z, piece); break;
    case WALK_DIGEST: digest_piece(z, piece); break;
    }
}

/* Padding in slots, which last held another chunk. */
static void clear_gap(const struct zero *z, int64_t from, int64_t to)
{
    const struct plan *p = &z->plan;
    const struct update *u = &z->update;
    int64_t inside = from - u->chunk * p->chunk, n = to - from;
    if (n <= 0 || (u->slot < 0 && !u->bounced))
        return;
    if (u->kind == WALK_FILL && plan_chunk_in_file(p, u->chunk)) {
        struct record r = plan_record(p, u->chunk);
        char *record = update_record(z, u->chunk, u->slot);
        memset(record + inside * p->master, 0, (size_t)(n * p->master));
        memset(record + r.m + inside * 4, 0, (size_t)n * 4);
        memset(record + r.v + inside * 4, 0, (size_t)n * 4);
    }
    char *params = chunk_params(z);
    if (!params || u->kind == WALK_LOAD || u->kind == WALK_DIGEST)
        return;
    if (on_device(z, u->kind))
        z->device->ops->clear(z->device, DEVICE_UPDATE, params + inside * p->element,
                              n * p->element);
    else
        memset(params + inside * p->element, 0, (size_t)(n * p->element));
}

/* Elements [from, to) of state order, all in the chunk under way. */
static void walk(struct zero *z, int64_t from, int64_t to)
{
    int64_t seen = from;
    for (int i = plan_run_at(z->runs, z->run_count, from); i < z->run_count; i++) {
        const struct run *run = &z->runs[i];
        if (run->begin >= to)
            break;
        int64_t a = run->begin > from ? run->begin : from;
        int64_t b = run->begin + run->count < to ? run->begin + run->count : to;
        clear_gap(z, seen, a);
        struct piece piece = make_piece(z, run, a, b);
        visit(z, &piece);
        seen = b;
    }
    clear_gap(z, seen, to);
}

static void task(void *arg, int64_t index)
{
    struct zero *z = arg;
    int64_t begin = z->update.chunk * z->plan.chunk;
    int64_t count = plan_chunk_count(&z->plan, z->update.chunk), end = begin + count;
    int64_t size = z->update.whole ? count : TASK, from = begin + index * size;
    walk(z, from, from + size < end ? from + size : end);
}

/* ------------------------------------------------------- chunks under way
 *
 * The host walks over one chunk at a time, through the pool. Of a device's own
 * steps as many are asked for at once as there are marks. */

bool update_ready(const struct zero *z, const struct command *c)
{
    const struct update *u = &z->update;
    return !u->running &&
           (on_device(z, (enum walk_kind)c->part) ? !u->mark_taken[c->sequence % UPDATE_STEPS]
                                                  : u->steps == 0);
}

static void pool_walk(struct zero *z, bool whole)
{
    struct update *u = &z->update;
    int64_t tasks = (plan_chunk_count(&z->plan, u->chunk) + TASK - 1) / TASK;
    u->state = UPDATE_RUNS;
    u->whole = whole;
    u->failed = false;
    pool_start(z->pool, task, z, whole ? 1 : tasks);
}

/* The program's own fills are called by one thread at a time, in order. */
static void first_walk(struct zero *z)
{
    pool_walk(z, z->update.kind == WALK_FILL && !ready_made(z));
}

static void device_step(struct zero *z, const struct command *c)
{
    struct update *u = &z->update;
    int64_t begin = c->chunk * z->plan.chunk;
    int i = (int)(c->sequence % UPDATE_STEPS);
    u->mark_taken[i] = true;
    u->steps++;
    walk(z, begin, begin + plan_chunk_count(&z->plan, c->chunk));
    z->device->ops->mark(z->device, DEVICE_UPDATE, &u->mark[i]);
}

void update_start(struct zero *z, const struct command *c)
{
    struct update *u = &z->update;
    assert(!u->running);
    u->kind = (enum walk_kind)c->part;
    u->chunk = c->chunk;
    u->slot = c->slot;
    u->bounced = false;
    if (on_device(z, u->kind)) {
        device_step(z, c);
        return;
    }
    u->running = true;
    if (plan_chunk_in_file(&z->plan, c->chunk))
        pipeline_enter(&z->pipeline.slots[c->slot], PIPELINE_STEPPING, c->chunk);
    u->bounced = z->plan.device_apart && z->plan.compute == ZERO_DEVICE;
    if (!u->bounced) {
        first_walk(z);
        return;
    }
    u->state = UPDATE_IN;
    bounce_start(z, c, false);
}

static void finish(struct zero *z, const struct command *c)
{
    struct update *u = &z->update;
    u->running = false;
    u->refused = u->error.status != ZERO_OK;
    if (plan_chunk_in_file(&z->plan, c->chunk)) {
        bool params = !z->plan.shared && z->plan.set.param == ZERO_NVME;
        pipeline_stepped(&z->pipeline.slots[c->slot], walk_writes(u->kind) ? 1 + params : 0);
    }
}

static int test_step(struct zero *z, const struct command *c, bool *done, struct error *error)
{
    struct update *u = &z->update;
    int i = (int)(c->sequence % UPDATE_STEPS);
    *done = z->device->ops->copied(z->device, &u->mark[i]);
    if (!*done)
        return z->device->ops->status(z->device, error);
    u->mark_taken[i] = false;
    u->steps--;
    return ZERO_OK;
}

int update_test(struct zero *z, const struct command *c, bool *done, struct error *error)
{
    struct update *u = &z->update;
    *done = false;
    if (on_device(z, (enum walk_kind)c->part))
        return test_step(z, c, done, error);
    switch (u->state) {
    case UPDATE_IN:
        if (!bounce_copied(z))
            return z->device->ops->status(z->device, error);
        first_walk(z);
        return ZERO_OK;
    case UPDATE_RUNS:
        if (!pool_idle(z->pool))
            return ZERO_OK;
        if (u->failed) { /* again in order, for the first error, whatever the threads */
            pool_walk(z, true);
            return ZERO_OK;
        }
        if (!u->bounced || !walk_writes(u->kind) || u->error.status)
            break;
        u->state = UPDATE_OUT;
        bounce_start(z, c, true);
        return ZERO_OK;
    case UPDATE_OUT:
        if (!bounce_copied(z))
            return z->device->ops->status(z->device, error);
    }
    *done = true;
    finish(z, c);
    return ZERO_OK;
}
