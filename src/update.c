// SPDX-License-Identifier: Apache-2.0
/*
 * What happens to a chunk of optimizer state: an Adam step, initial values, a
 * write or read of a tensor's elements, a digest. One job of the pool at a
 * time, cut into tasks of fixed size; a task visits the runs of tensors that
 * lie in its elements and touches nothing else, so padding stays zero.
 */
#include "src/engine.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "src/random.h"

#define TASK ((int64_t)1 << 15) /* elements */

int64_t update_array_bytes(const struct zero *z, int64_t chunk)
{
    return chunk < z->plan.resident ? plan_chunk_count(&z->plan, chunk) * 4
                                    : plan_array_bytes(&z->plan, chunk);
}

char *update_record(const struct zero *z, int64_t chunk, int slot)
{
    const struct plan *p = &z->plan;
    if (chunk >= p->resident)
        return z->arena.base + p->host.record[slot];
    char *base = p->set.state == ZERO_DEVICE ? z->device_memory + p->device.state
                                             : z->arena.base + p->host.state;
    return base + chunk * p->chunk * 4 * p->arrays;
}

/* Elements of one tensor in the chunk under way, wherever they are. */
struct piece {
    int64_t count;
    const struct tensor *tensor;
    int64_t first;    /* element of the tensor */
    int64_t position; /* in state order */
    float *master, *m, *v;
    char *param; /* where the new parameters go; NULL: the master is the parameter */
};

static struct piece make_piece(const struct zero *z, const struct run *run, int64_t from,
                               int64_t to)
{
    const struct plan *p = &z->plan;
    const struct update *u = &z->update;
    int64_t inside = from - u->chunk * p->chunk;
    struct piece piece = {.count = to - from,
                          .tensor = &z->layout.tensors[run->tensor],
                          .first = run->first + from - run->begin,
                          .position = from};
    char *record = update_record(z, u->chunk, u->slot) + inside * 4;
    int64_t array = update_array_bytes(z, u->chunk);
    char *rest = NULL;
    if (!p->slot_param && p->set.param != ZERO_NVME)
        rest = params_at_rest(z, piece.tensor->unit, from);
    if (p->arrays == 3) {
        piece.master = (float *)record;
        record += array;
    } else {
        piece.master = (float *)rest;
    }
    piece.m = (float *)record;
    piece.v = (float *)(record + array);
    if (p->slot_param)
        rest = slot_params(z, u->slot) + inside * p->element;
    piece.param = p->shared ? NULL : rest;
    return piece;
}

static const float *chunk_grads(const struct zero *z, int64_t position)
{
    const struct plan *p = &z->plan;
    const struct update *u = &z->update;
    if (!p->slot_grad)
        return grads_at_rest(z, position);
    return slot_grads(z, u->slot) + position - u->chunk * p->chunk;
}

/* ------------------------------------------------------------- the walks */

static void round_params(const struct zero *z, const struct piece *piece)
{
    if (!piece->param)
        return;
    if (z->plan.set.dtype == ZERO_BF16)
        z->kernels->to_bf16(piece->count, piece->master, (uint16_t *)piece->param);
    else
        memcpy(piece->param, piece->master, (size_t)piece->count * 4);
}

static void adam_piece(const struct zero *z, const struct piece *piece)
{
    struct adam k = z->update.adam[piece->tensor->group];
    if (!piece->tensor->decay)
        k.decay = 1, k.l2 = 0;
    bool bf16 = z->plan.set.dtype == ZERO_BF16;
    z->kernels->adam(piece->count, &k, chunk_grads(z, piece->position), piece->master, piece->m,
                     piece->v, bf16 ? (uint16_t *)piece->param : NULL);
    if (!bf16)
        round_params(z, piece);
}

static int fill_piece(const struct zero *z, const struct piece *piece, struct error *error)
{
    const struct tensor *t = piece->tensor;
    size_t bytes = (size_t)piece->count * 4;
    if (error->status)
        return error->status;
    memset(piece->master, 0, bytes);
    memset(piece->m, 0, bytes);
    memset(piece->v, 0, bytes);
    int rc = t->fill ? t->fill(t->fill_arg, piece->first, piece->count, piece->master) : 0;
    if (rc)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "The fill of tensor %s returned %d for elements %lld to %lld.", t->name,
                         rc, (long long)piece->first, (long long)(piece->first + piece->count - 1));
    for (int64_t i = 0; i < piece->count; i++)
        if (!isfinite(piece->master[i]))
            return error_set(error, ZERO_ERR_ARGUMENT,
                             "The fill of tensor %s wrote %g to element %lld. Initial values must "
                             "be finite.",
                             t->name, (double)piece->master[i], (long long)(piece->first + i));
    round_params(z, piece);
    return ZERO_OK;
}

/* Elements that zero_read or zero_write moves, between piece and caller. */
static void exchange_piece(const struct zero *z, const struct piece *piece)
{
    const struct update *u = &z->update;
    bool in = u->kind == WALK_ASSIGN;
    if (piece->tensor == &z->layout.tensors[u->tensor]) {
        int64_t from = piece->first > u->first ? piece->first : u->first;
        int64_t to = piece->first + piece->count;
        to = to < u->first + u->count ? to : u->first + u->count;
        float *array = u->what == ZERO_MASTER    ? piece->master
                       : u->what == ZERO_MOMENT1 ? piece->m
                                                 : piece->v;
        if (from < to && in)
            memcpy(array + from - piece->first, u->in + from - u->first, (size_t)(to - from) * 4);
        else if (from < to)
            memcpy(u->out + from - u->first, array + from - piece->first, (size_t)(to - from) * 4);
    }
    if (in)
        round_params(z, piece); /* all of the chunk passes through the slot again */
}

static uint64_t digest_array(const float *x, uint64_t global, int64_t n)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        sum += random_mix((global + (uint64_t)i) * 0x9E3779B97F4A7C15u + bits);
    }
    return sum;
}

/* Only this rank's own shard, where it holds more. */
static void digest_piece(struct zero *z, const struct piece *piece)
{
    const struct tensor *t = piece->tensor;
    int64_t from = piece->first, to = piece->first + piece->count;
    if (z->plan.whole_state) {
        int64_t shard = z->layout.unit[t->unit].shard, begin = z->rank * shard - t->offset;
        from = from > begin ? from : begin;
        to = to < begin + shard ? to : begin + shard;
    }
    if (from >= to)
        return;
    int64_t skip = from - piece->first;
    uint64_t global = (uint64_t)(t->global + from);
    struct zero_digest *d = &z->update.digest;
    __atomic_fetch_add(&d->master, digest_array(piece->master + skip, global, to - from),
                       __ATOMIC_RELAXED);
    __atomic_fetch_add(&d->moment1, digest_array(piece->m + skip, global, to - from),
                       __ATOMIC_RELAXED);
    __atomic_fetch_add(&d->moment2, digest_array(piece->v + skip, global, to - from),
                       __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------------ tasks */

static void visit(struct zero *z, const struct piece *piece)
{
    switch (z->update.kind) {
    case WALK_ADAM: adam_piece(z, piece); break;
    case WALK_FILL: fill_piece(z, piece, &z->update.error); break;
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
    int64_t inside = from - u->chunk * p->chunk;
    if (from >= to || u->slot < 0)
        return;
    if (u->kind == WALK_FILL && u->chunk >= p->resident)
        for (int a = 0; a < 3; a++)
            memset(update_record(z, u->chunk, u->slot) + a * update_array_bytes(z, u->chunk) +
                       inside * 4,
                   0, (size_t)(to - from) * 4);
    if (p->slot_param && u->kind != WALK_LOAD && u->kind != WALK_DIGEST)
        memset(slot_params(z, u->slot) + inside * p->element, 0,
               (size_t)((to - from) * p->element));
}

static void task(void *arg, int64_t index)
{
    struct zero *z = arg;
    int64_t begin = z->update.chunk * z->plan.chunk;
    int64_t end = begin + plan_chunk_count(&z->plan, z->update.chunk);
    int64_t from = begin, to = end;
    if (z->update.kind != WALK_FILL) {
        from = begin + index * TASK;
        to = from + TASK < end ? from + TASK : end;
    }
    int64_t seen = from;
    for (int i = layout_run_at(z->runs, z->run_count, from); i < z->run_count; i++) {
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

void update_start(struct zero *z, const struct command *c)
{
    struct update *u = &z->update;
    assert(!u->running);
    u->kind = (enum walk_kind)c->part;
    u->chunk = c->chunk;
    u->slot = c->slot;
    u->running = true;
    u->started = queue_seconds();
    if (c->chunk >= z->plan.resident)
        pipeline_stepping(&z->pipeline.slots[c->slot], c->chunk);
    /* Fills are the caller's functions: one thread at a time. */
    int64_t tasks = (plan_chunk_count(&z->plan, c->chunk) + TASK - 1) / TASK;
    pool_start(z->pool, task, z, u->kind == WALK_FILL ? 1 : tasks);
}

int update_finish(struct zero *z, const struct command *c, struct error *error)
{
    struct update *u = &z->update;
    u->running = false;
    count(&z->update_ns, (int64_t)(1e9 * (queue_seconds() - u->started)));
    if (c->chunk >= z->plan.resident) {
        bool writes = u->kind != WALK_LOAD && u->kind != WALK_DIGEST;
        bool params = z->plan.slot_param && z->plan.set.param == ZERO_NVME;
        pipeline_stepped(&z->pipeline.slots[c->slot], writes ? 1 + params : 0);
    }
    if (u->error.status)
        error_set(error, u->error.status, "%s", u->error.text);
    return error->status;
}
