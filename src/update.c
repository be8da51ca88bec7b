// SPDX-License-Identifier: Apache-2.0
/*
 * What happens to a chunk of optimizer state: an Adam step, initial values, a
 * write or read of a tensor's elements, a digest. A chunk is a job of the pool,
 * cut into tasks of fixed size (but for fills of the program's own); a task
 * visits the runs of tensors that lie in its elements and touches nothing else,
 * so padding stays zero.
 */
#include "src/engine.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Elements of a task. Two threads that go through memory side by side read ahead into what the
 * other one writes, so there tasks are long; where a file waits for a chunk, or all other chunks
 * do, or there would be too few for all threads, they are short. */
#define TASK_LONG  ((int64_t)1 << 17)
#define TASK_SHORT ((int64_t)1 << 15)

char *update_record(const struct zero *z, int64_t chunk, int slot)
{
    const struct plan *p = &z->plan;
    if (plan_chunk_in_file(p, chunk))
        return z->arena.base + p->host.record[slot];
    char *base = p->set.state == ZERO_DEVICE ? z->device_memory + p->device.state
                                             : z->arena.base + p->host.state;
    return base + plan_record_offset(p, chunk);
}

static bool on_device(const struct chunk_job *j)
{
    return walk_on_device(&j->engine->plan, j->kind);
}

/* In host memory, although it rests on a device: src/bounce.c. */
static bool bounced(const struct chunk_job *j)
{
    return walk_bounces(&j->engine->plan, j->kind);
}

/* Elements of one tensor in a chunk under way, wherever they are. */
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
static char *chunk_params(const struct chunk_job *j)
{
    const struct zero *z = j->engine;
    if (bounced(j))
        return bounce_params(z);
    bool slotted = z->plan.slot_param && plan_chunk_apart(&z->plan, j->chunk);
    return slotted ? slot_params(z, j->slot) : NULL;
}

static char *piece_params(const struct chunk_job *j, const struct tensor *t, int64_t position)
{
    const struct zero *z = j->engine;
    const struct plan *p = &z->plan;
    char *chunk = chunk_params(j);
    if (chunk)
        return chunk + (position - j->chunk * p->chunk) * p->element;
    if (p->set.param == ZERO_NVME) /* the master in the record is the parameter */
        return NULL;
    return params_at_rest(z, t->unit, position);
}

static struct piece make_piece(const struct chunk_job *j, const struct run *run, int64_t from,
                               int64_t to)
{
    const struct zero *z = j->engine;
    const struct plan *p = &z->plan;
    int64_t inside = from - j->chunk * p->chunk;
    struct piece piece = {.count = to - from,
                          .tensor = &z->layout.tensors[run->tensor],
                          .first = run->first + from - run->begin,
                          .position = from};
    piece.param = piece_params(j, piece.tensor, from);
    if (plan_chunk_frozen(p, j->chunk))
        return piece;
    char *record = bounced(j) ? bounce_record(z) : update_record(z, j->chunk, j->slot);
    struct record r = plan_record(p, j->chunk);
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

static const char *chunk_grads(const struct chunk_job *j, const struct piece *piece)
{
    const struct zero *z = j->engine;
    const struct plan *p = &z->plan;
    if (!p->slot_grad)
        return grads_at_rest(z, piece->tensor->unit, piece->position);
    return slot_grads(z, j->slot) + (piece->position - j->chunk * p->chunk) * p->grad;
}

static void adam_piece(const struct chunk_job *j, const struct piece *piece)
{
    const struct zero *z = j->engine;
    const char *rest = chunk_grads(j, piece);
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

static bool one_task(const struct chunk_job *j)
{
    return j->task >= plan_chunk_count(&j->engine->plan, j->chunk);
}

/* A single task keeps its error for zero_create, and no fill is called any more. Of several each
 * only says that it failed, and update_test then fills the chunk once more by a single one. */
static void fill(struct chunk_job *j, const struct piece *piece)
{
    struct error *first = &j->engine->update.error, error = {0};
    if (first->status)
        return;
    if (one_task(j)) {
        fill_piece(j->engine, piece, first);
    } else if (!__atomic_load_n(&j->failed, __ATOMIC_RELAXED)) {
        fill_piece(j->engine, piece, &error);
        if (error.status)
            __atomic_store_n(&j->failed, true, __ATOMIC_RELAXED);
    }
}

/* Whether no fill of the chunk is the program's own function: what the others write depends on
 * the element alone. */
static bool ready_made(const struct zero *z, int64_t chunk)
{
    int64_t begin = chunk * z->plan.chunk, end = begin + plan_chunk_count(&z->plan, chunk);
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
static void exchange_block(const struct chunk_job *j, const struct piece *piece, int64_t at,
                           int64_t n)
{
    const struct zero *z = j->engine;
    const struct update *u = &z->update;
    const struct run *range = &u->range;
    bool in = j->kind == WALK_ASSIGN;
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

static void exchange_piece(const struct chunk_job *j, const struct piece *piece)
{
    for (int64_t at = 0; at < piece->count; at += BLOCK)
        exchange_block(j, piece, at, piece->count - at < BLOCK ? piece->count - at : BLOCK);
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

static void visit(struct chunk_job *j, const struct piece *piece)
{
    switch (j->kind) {
    case WALK_ADAM: adam_piece(j, piece); break;
    case WALK_FILL: fill(j, piece); break;
    case WALK_ASSIGN:
    case WALK_LOAD: exchange_piece(j, piece); break;
    case WALK_DIGEST: digest_piece(j->engine, piece); break;
    }
}

/* Padding in slots, which last held another chunk. */
static void clear_gap(const struct chunk_job *j, int64_t from, int64_t to)
{
    const struct zero *z = j->engine;
    const struct plan *p = &z->plan;
    int64_t inside = from - j->chunk * p->chunk, n = to - from;
    if (n <= 0 || (j->slot < 0 && !bounced(j)))
        return;
    if (j->kind == WALK_FILL && plan_chunk_in_file(p, j->chunk)) {
        struct record r = plan_record(p, j->chunk);
        char *record = update_record(z, j->chunk, j->slot);
        memset(record + inside * p->master, 0, (size_t)(n * p->master));
        memset(record + r.m + inside * 4, 0, (size_t)n * 4);
        memset(record + r.v + inside * 4, 0, (size_t)n * 4);
    }
    char *params = chunk_params(j);
    if (!params || j->kind == WALK_LOAD || j->kind == WALK_DIGEST)
        return;
    if (on_device(j))
        z->device->ops->clear(z->device, DEVICE_UPDATE, params + inside * p->element,
                              n * p->element);
    else
        memset(params + inside * p->element, 0, (size_t)(n * p->element));
}

/* Elements [from, to) of state order, all in the chunk. */
static void walk(struct chunk_job *j, int64_t from, int64_t to)
{
    const struct zero *z = j->engine;
    int64_t seen = from;
    for (int i = plan_run_at(z->runs, z->run_count, from); i < z->run_count; i++) {
        const struct run *run = &z->runs[i];
        if (run->begin >= to)
            break;
        int64_t a = run->begin > from ? run->begin : from;
        int64_t b = run->begin + run->count < to ? run->begin + run->count : to;
        clear_gap(j, seen, a);
        struct piece piece = make_piece(j, run, a, b);
        visit(j, &piece);
        seen = b;
    }
    clear_gap(j, seen, to);
}

static void task(void *arg, int64_t index)
{
    struct chunk_job *j = arg;
    const struct plan *p = &j->engine->plan;
    int64_t begin = j->chunk * p->chunk, end = begin + plan_chunk_count(p, j->chunk);
    int64_t from = begin + index * j->task;
    walk(j, from, from + j->task < end ? from + j->task : end);
}

/* ------------------------------------------------------- chunks under way
 *
 * As many as there is room for, of one walk: the pool's threads go from one to the next, and a
 * device is asked for its own steps ahead. */

static struct chunk_job *job_of(struct zero *z, const struct command *c)
{
    return &z->update.job[c->sequence % POOL_JOBS];
}

bool update_ready(const struct zero *z, const struct command *c)
{
    const struct update *u = &z->update;
    enum walk_kind kind = (enum walk_kind)c->part;
    if (u->jobs == 0)
        return true;
    if (kind != u->kind || walk_alone(&z->plan, kind) ||
        u->job[c->sequence % POOL_JOBS].state != JOB_FREE)
        return false;
    return walk_on_device(&z->plan, kind) || u->jobs < z->threads + 2 * POOL_QUIET;
}

/* Elements of a task, where one task has not all of the chunk. */
static int64_t task_size(const struct zero *z, const struct chunk_job *j, int64_t count)
{
    int64_t chunks = j->slot < 0 ? z->plan.chunks : z->plan.chunk_slots; /* that may be at once */
    bool few = chunks * ((count + TASK_LONG - 1) / TASK_LONG) < z->threads;
    bool awaited = walk_alone(&z->plan, j->kind) || plan_chunk_in_file(&z->plan, j->chunk);
    return few || awaited ? TASK_SHORT : TASK_LONG;
}

/* Whether the engine need not hear at once that the chunk is done: nothing waits for its slot, and
 * no unit ends in it, which the program may wait for. */
static bool quiet(const struct zero *z, const struct chunk_job *j)
{
    int64_t begin = j->chunk * z->plan.chunk, end = begin + plan_chunk_count(&z->plan, j->chunk);
    int from = plan_run_at(z->runs, z->run_count, begin);
    int to = plan_run_at(z->runs, z->run_count, end);
    return j->slot < 0 && !bounced(j) && to < z->run_count &&
           z->layout.tensors[z->runs[from].tensor].unit ==
               z->layout.tensors[z->runs[to].tensor].unit;
}

/* The program's own fills are called by one thread at a time, in order. */
static void pool_walk(struct chunk_job *j, bool whole)
{
    const struct zero *z = j->engine;
    int64_t count = plan_chunk_count(&z->plan, j->chunk);
    whole |= j->kind == WALK_FILL && !ready_made(z, j->chunk);
    j->state = JOB_RUNS;
    j->task = whole ? count : task_size(z, j, count);
    j->failed = false;
    j->number = pool_start(z->pool, task, j, (count + j->task - 1) / j->task, quiet(z, j));
}

static void device_step(struct chunk_job *j)
{
    struct zero *z = j->engine;
    int64_t begin = j->chunk * z->plan.chunk;
    walk(j, begin, begin + plan_chunk_count(&z->plan, j->chunk));
    z->device->ops->mark(z->device, DEVICE_UPDATE, &j->mark);
}

void update_start(struct zero *z, const struct command *c)
{
    struct chunk_job *j = job_of(z, c);
    assert(j->state == JOB_FREE);
    *j = (struct chunk_job){.engine = z,
                            .state = JOB_RUNS,
                            .kind = (enum walk_kind)c->part,
                            .chunk = c->chunk,
                            .slot = c->slot};
    z->update.kind = j->kind;
    z->update.jobs++;
    if (on_device(j)) {
        device_step(j);
        return;
    }
    if (plan_chunk_in_file(&z->plan, c->chunk))
        pipeline_enter(&z->pipeline.slots[c->slot], PIPELINE_STEPPING, c->chunk);
    if (!bounced(j)) {
        pool_walk(j, false);
        return;
    }
    j->state = JOB_IN;
    bounce_start(z, c, false);
}

static void finish(struct chunk_job *j)
{
    struct zero *z = j->engine;
    struct update *u = &z->update;
    j->state = JOB_FREE;
    u->jobs--;
    if (on_device(j))
        return;
    u->refused = u->error.status != ZERO_OK;
    if (plan_chunk_in_file(&z->plan, j->chunk)) {
        bool params = !z->plan.shared && z->plan.set.param == ZERO_NVME;
        pipeline_stepped(&z->pipeline.slots[j->slot], walk_writes(j->kind) ? 1 + params : 0);
    }
}

/* Of what the host does: whether it is done, or what comes next. */
static bool advance(struct chunk_job *j, const struct command *c)
{
    struct zero *z = j->engine;
    if (j->state != JOB_RUNS && !bounce_copied(z))
        return false;
    switch (j->state) {
    case JOB_IN: pool_walk(j, false); return false;
    case JOB_RUNS:
        if (!pool_done(z->pool, j->number))
            return false;
        if (j->failed) { /* again in order, for the first error, whatever the threads */
            pool_walk(j, true);
            return false;
        }
        if (!bounced(j) || !walk_writes(j->kind) || z->update.error.status)
            return true;
        j->state = JOB_OUT;
        bounce_start(z, c, true);
        return false;
    case JOB_OUT: return true;
    case JOB_FREE: break;
    }
    assert(false);
    return true;
}

int update_test(struct zero *z, const struct command *c, bool *done, struct error *error)
{
    struct chunk_job *j = job_of(z, c);
    *done = on_device(j) ? z->device->ops->copied(z->device, &j->mark) : advance(j, c);
    if (*done)
        finish(j);
    else if (bounced(j) || on_device(j))
        return z->device->ops->status(z->device, error);
    return ZERO_OK;
}
