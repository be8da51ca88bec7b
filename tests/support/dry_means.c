// SPDX-License-Identifier: Apache-2.0
/* What each command touches and means, from the command and the plan's offsets
 * alone: the same addresses as in params.c, grads.c and update.c, by other
 * hands. Knows nothing of order. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/dry.h"

enum what {
    WHAT_PARAM = 1,
    WHAT_MASTER,
    WHAT_REMAINDER, /* with the parameter it is the master */
    WHAT_MOMENT1,
    WHAT_MOMENT2,
    WHAT_GRAD,
    WHAT_OWN, /* this rank's own sum */
    WHAT_SUM, /* over ranks */
};

/* ------------------------------------------------- bytes and what they are */

static void touch(struct dry *d, struct dry_address at, int64_t bytes, bool write)
{
    struct dry_task *t = d->asked;
    if (t->count == t->room) {
        t->room = t->room ? 2 * t->room : 16;
        t->access = realloc(t->access, (size_t)t->room * sizeof(*t->access));
    }
    t->access[t->count++] = (struct dry_access){at, bytes, write};
    if (at.offset % DRY_CELL || (at.offset + bytes) / DRY_CELL > d->tag_count[at.space])
        dry_fault(d, t->command, "out of bounds: space %d, %lld bytes at %lld", (int)at.space,
                  (long long)bytes, (long long)at.offset);
}

static uint64_t tag(enum what what, int64_t element, int64_t version)
{
    return (uint64_t)what << 56 | (uint64_t)version << 32 | (uint64_t)element / 64;
}

static uint64_t *tags_at(struct dry *d, struct dry_address at)
{
    return d->tags[at.space] + at.offset / DRY_CELL;
}

/* Elements [element, element + count) of the model, size bytes each, come to lie at at. */
static void put(struct dry *d, struct dry_address at, int64_t size, enum what what, int64_t element,
                int64_t count, int64_t version)
{
    if (!count)
        return;
    if (!d->acting) {
        touch(d, at, count * size, true);
        return;
    }
    uint64_t *tags = tags_at(d, at);
    for (int64_t i = 0; i < count * size / DRY_CELL; i++)
        tags[i] = tag(what, element + i * DRY_CELL / size, version);
}

/* They are used. */
static void expect(struct dry *d, const struct command *c, struct dry_address at, int64_t size,
                   enum what what, int64_t element, int64_t count, int64_t version)
{
    if (!count)
        return;
    if (!d->acting) {
        touch(d, at, count * size, false);
        return;
    }
    const uint64_t *tags = tags_at(d, at);
    for (int64_t i = 0; i < count * size / DRY_CELL; i++) {
        uint64_t right = tag(what, element + i * DRY_CELL / size, version);
        if (tags[i] != right) {
            dry_fault(d, c, "%016llx where %016llx is expected (kind, version, element / 64)",
                      (unsigned long long)tags[i], (unsigned long long)right);
            return;
        }
    }
}

static void move(struct dry *d, struct dry_address to, struct dry_address from, int64_t bytes)
{
    if (d->acting) {
        memcpy(tags_at(d, to), tags_at(d, from), (size_t)(bytes / DRY_CELL) * sizeof(uint64_t));
        return;
    }
    touch(d, from, bytes, false);
    touch(d, to, bytes, true);
}

static struct dry_address on_device(int64_t offset)
{
    return (struct dry_address){DRY_DEVICE, offset};
}

static struct dry_address in_host(int64_t offset)
{
    return (struct dry_address){DRY_HOST, offset};
}

static struct dry_address in_file(int64_t offset)
{
    return (struct dry_address){DRY_FILE, offset};
}

static struct dry_address behind(struct dry_address at, int64_t bytes)
{
    at.offset += bytes;
    return at;
}

/* ------------------------------------------------------ where things rest */

static const struct part *part_of(const struct dry *d, int unit, enum part_kind kind)
{
    return &d->layout.unit[unit].part[kind];
}

static enum part_kind kind_of(const struct dry *d, int64_t chunk)
{
    return plan_chunk_frozen(&d->plan, chunk) ? PART_FROZEN : PART_LIVE;
}

static int64_t begin_of(const struct dry *d, int unit, enum part_kind kind)
{
    return plan_part_begin(&d->plan, &d->layout, unit, kind);
}

/* The element of the model where a part begins, and where what this rank holds of it does. */
static int64_t part_element(const struct dry *d, int unit, enum part_kind kind)
{
    return d->layout.unit[unit].begin + part_of(d, unit, kind)->offset;
}

static int64_t element_at(const struct dry *d, int unit, enum part_kind kind, int64_t position)
{
    int64_t own = d->plan.whole_state ? 0 : d->rank * part_of(d, unit, kind)->shard;
    return part_element(d, unit, kind) + own + position - begin_of(d, unit, kind);
}

static struct dry_address params_at(const struct dry *d, int unit, enum part_kind kind,
                                    int64_t position)
{
    const struct plan *p = &d->plan;
    int64_t index = plan_param_index(p, position) * p->element;
    if (p->set.param == ZERO_HOST)
        return in_host(p->host.params + index);
    if (p->whole_params)
        index = element_at(d, unit, kind, position) * p->element;
    return on_device(p->device.params + index);
}

static struct dry_address all_grads(const struct dry *d)
{
    return d->plan.set.grad == ZERO_DEVICE ? on_device(d->plan.device.grads)
                                           : in_host(d->plan.host.grads);
}

/* Of a position in state order. */
static struct dry_address grads_at(const struct dry *d, int unit, int64_t position)
{
    const struct plan *p = &d->plan;
    const struct part *live = part_of(d, unit, PART_LIVE);
    if (p->set.local && !p->whole_state) /* this rank's shard of whole sums */
        position += live->begin - live->begin / p->ranks + d->rank * live->shard;
    return behind(all_grads(d), position * p->grad);
}

static struct dry_address record_at(const struct dry *d, int64_t chunk, int slot)
{
    const struct plan *p = &d->plan;
    if (plan_chunk_in_file(p, chunk) && slot >= 0)
        return in_host(p->host.record[slot]);
    int64_t offset = 0;
    for (int64_t c = 0; c < chunk; c++)
        offset += plan_chunk_in_file(p, c) ? 0 : plan_chunk_count(p, c) * (p->master + 8);
    return p->set.state == ZERO_DEVICE ? on_device(p->device.state + offset)
                                       : in_host(p->host.state + offset);
}

static struct dry_address chunk_param_at(const struct dry *d, int slot)
{
    const struct plan *p = &d->plan;
    return p->compute == ZERO_DEVICE ? on_device(p->device.chunk_param[slot])
                                     : in_host(p->host.chunk_param[slot]);
}

static struct dry_address chunk_grad_at(const struct dry *d, int slot)
{
    const struct plan *p = &d->plan;
    return p->compute == ZERO_DEVICE ? on_device(p->device.chunk_grad[slot])
                                     : in_host(p->host.chunk_grad[slot]);
}

static struct dry_address usable_at(const struct dry *d, int unit, enum part_kind kind, int slot)
{
    const struct plan *p = &d->plan;
    int64_t whole = p->device.params + d->layout.unit[unit].begin * p->element;
    return behind(on_device(slot < 0 ? whole : p->device.gather[slot]),
                  part_of(d, unit, kind)->offset * p->element);
}

/* ------------------------------------------------------ what commands mean */

/* Shards of size bytes an element, put at at by all ranks but this one. */
static void put_others(struct dry *d, struct dry_address at, int64_t size, enum what what,
                       int64_t element, int64_t shard, int64_t version)
{
    int64_t own = d->rank * shard, behind_own = own + shard;
    put(d, at, size, what, element, own, version);
    put(d, behind(at, behind_own * size), size, what, element + behind_own,
        d->plan.ranks * shard - behind_own, version);
}

static void gather(struct dry *d, const struct command *c, const struct dry_note *n)
{
    const struct plan *p = &d->plan;
    enum part_kind kind = (enum part_kind)c->part;
    const struct part *part = part_of(d, c->unit, kind);
    struct dry_address at = usable_at(d, c->unit, kind, c->slot);
    int64_t own = d->rank * part->shard, element = part_element(d, c->unit, kind);
    int32_t version = n->version[c->unit][kind];
    if (c->slot >= 0 && p->set.param == ZERO_DEVICE)
        move(d, behind(at, own * p->element),
             params_at(d, c->unit, kind, begin_of(d, c->unit, kind)), part->shard * p->element);
    else
        expect(d, c, behind(at, own * p->element), p->element, WHAT_PARAM, element + own,
               part->shard, version);
    put_others(d, at, p->element, WHAT_PARAM, element, part->shard, version);
}

/* Where a unit's sums grow: all of them, or this rank's shard. */
static struct dry_address sums_at(const struct dry *d, const struct command *c)
{
    const struct plan *p = &d->plan;
    const struct part *live = part_of(d, c->unit, PART_LIVE);
    if (p->set.grad == ZERO_HOST)
        return on_device(p->device.sum[c->slot]);
    return behind(all_grads(d), (p->whole_grads ? live->begin : live->begin / p->ranks) * p->grad);
}

static void accumulate(struct dry *d, const struct command *c, const struct dry_note *n)
{
    const struct plan *p = &d->plan;
    const struct part *live = part_of(d, c->unit, PART_LIVE);
    int64_t element = part_element(d, c->unit, PART_LIVE);
    expect(d, c, on_device(p->device.grad[c->slot]), p->element, WHAT_GRAD, element, live->elements,
           n->micro);
    if (!(c->part & 1))
        expect(d, c, sums_at(d, c), 4, WHAT_OWN, element, live->elements, n->micro - 1);
    put(d, sums_at(d, c), 4, WHAT_OWN, element, live->elements, n->micro);
}

static void reduce(struct dry *d, const struct command *c, const struct dry_note *n)
{
    const struct plan *p = &d->plan;
    const struct part *live = part_of(d, c->unit, PART_LIVE);
    int64_t own = d->rank * live->shard, element = part_element(d, c->unit, PART_LIVE);
    struct dry_address sums = behind(sums_at(d, c), p->whole_grads ? own * p->grad : 0);
    if (p->set.local)
        expect(d, c, sums_at(d, c), 4, WHAT_OWN, element, live->elements, n->micro);
    else
        expect(d, c, on_device(p->device.grad[c->slot]), p->element, WHAT_GRAD, element,
               live->elements, n->micro);
    if (!(c->part & 1))
        expect(d, c, sums, p->grad, WHAT_SUM, element + own, live->shard, n->micro - 1);
    put(d, sums, p->grad, WHAT_SUM, element + own, live->shard, n->micro);
    if (p->ranks > 1 && !d->acting)
        touch(d, on_device(p->device.scratch),
              (p->via_host ? 1 : 2) * (p->ranks - 1) * p->piece_bytes, true);
}

static void gather_sums(struct dry *d, const struct command *c, const struct dry_note *n)
{
    const struct plan *p = &d->plan;
    const struct part *live = part_of(d, c->unit, PART_LIVE);
    int64_t own = d->rank * live->shard, element = part_element(d, c->unit, PART_LIVE);
    struct dry_address at = sums_at(d, c);
    expect(d, c, behind(at, own * p->grad), p->grad, WHAT_SUM, element + own, live->shard,
           n->micro);
    put_others(d, at, p->grad, WHAT_SUM, element, live->shard, n->micro);
}

static void copy_sums(struct dry *d, const struct command *c)
{
    const struct plan *p = &d->plan;
    const struct part *live = part_of(d, c->unit, PART_LIVE);
    int64_t own = p->whole_state && !c->part ? d->rank * live->shard : 0;
    int64_t count = p->whole_state && c->part ? live->elements : live->shard;
    struct dry_address slot = behind(sums_at(d, c), own * p->grad);
    struct dry_address rest = grads_at(d, c->unit, begin_of(d, c->unit, PART_LIVE) + own);
    bool in = c->kind == COMMAND_COPY_SUM_IN;
    move(d, in ? slot : rest, in ? rest : slot, count * p->grad);
}

/* Element of a unit becomes this rank's own in the unit's slot. */
static struct dry_address own_at(const struct dry *d, const struct command *c, enum part_kind kind)
{
    return behind(usable_at(d, c->unit, kind, c->slot),
                  d->rank * part_of(d, c->unit, kind)->shard * d->plan.element);
}

static void copy_param(struct dry *d, const struct command *c)
{
    const struct plan *p = &d->plan;
    for (enum part_kind kind = PART_LIVE; p->set.param == ZERO_HOST && kind < PARTS; kind++)
        if (part_of(d, c->unit, kind)->shard > 0)
            move(d, own_at(d, c, kind), params_at(d, c->unit, kind, begin_of(d, c->unit, kind)),
                 part_of(d, c->unit, kind)->shard * p->element);
    if (p->set.param == ZERO_HOST)
        return;
    int n;
    const struct segment *s = schedule_segments(&d->schedule, c->unit, &n);
    for (int i = 0; i < n; i++, s++) {
        enum part_kind kind = kind_of(d, s->chunk);
        int64_t inside = (s->begin - s->chunk * p->chunk) * p->element;
        struct dry_address from = s->in_ram
                                      ? behind(record_at(d, s->chunk, -1), inside)
                                      : in_host(p->host.staging[c->slot] + s->staging + s->skip);
        move(d, behind(own_at(d, c, kind), (s->begin - begin_of(d, c->unit, kind)) * p->element),
             from, s->count * p->element);
    }
}

static void param_read(struct dry *d, const struct command *c)
{
    int n;
    const struct segment *s = schedule_segments(&d->schedule, c->unit, &n) + c->part;
    move(d, in_host(d->plan.host.staging[c->slot] + s->staging), in_file(s->file_offset), s->bytes);
}

/* Calls visit for the part of each unit that lies in chunk. */
static void each_unit(struct dry *d, const struct command *c,
                      void (*visit)(struct dry *d, const struct command *c, int unit, int64_t a,
                                    int64_t b))
{
    enum part_kind kind = kind_of(d, c->chunk);
    int64_t begin = c->chunk * d->plan.chunk, end = begin + plan_chunk_count(&d->plan, c->chunk);
    for (int u = 0; u < d->layout.units; u++) {
        int64_t a = begin_of(d, u, kind), b = a + plan_part_count(&d->plan, &d->layout, u, kind);
        a = a > begin ? a : begin;
        b = b < end ? b : end;
        if (a < b)
            visit(d, c, u, a, b);
    }
}

static struct dry_address in_chunk(const struct dry *d, const struct command *c,
                                   struct dry_address at, int64_t position, int64_t size)
{
    return behind(at, (position - c->chunk * d->plan.chunk) * size);
}

/* A chunk's parameters on their way out of its slot, or into it. */
static void exchange_unit(struct dry *d, const struct command *c, int unit, int64_t a, int64_t b)
{
    int64_t size = d->plan.element;
    struct dry_address rest = params_at(d, unit, kind_of(d, c->chunk), a);
    struct dry_address slot = in_chunk(d, c, chunk_param_at(d, c->slot), a, size);
    bool in = c->kind == COMMAND_COPY_FETCH;
    move(d, in ? slot : rest, in ? rest : slot, (b - a) * size);
}

static void exchange(struct dry *d, const struct command *c)
{
    const struct plan *p = &d->plan;
    if (!p->slot_via_host) {
        each_unit(d, c, exchange_unit);
        return;
    }
    struct dry_address host = in_host(p->host.chunk_param[c->slot]);
    struct dry_address slot = chunk_param_at(d, c->slot);
    bool in = c->kind == COMMAND_COPY_FETCH;
    move(d, in ? slot : host, in ? host : slot, plan_chunk_count(p, c->chunk) * p->element);
}

static void grad_unit(struct dry *d, const struct command *c, int unit, int64_t a, int64_t b)
{
    int64_t size = d->plan.grad;
    move(d, in_chunk(d, c, chunk_grad_at(d, c->slot), a, size), grads_at(d, unit, a),
         (b - a) * size);
}

/* One array of a chunk, size bytes an element: used as it was before the walk, left as
 * after it. */
static void pass_array(struct dry *d, const struct command *c, struct dry_address at, int64_t size,
                       enum what what, int unit, int64_t a, int64_t b)
{
    const struct dry_note *n = dry_note_of(d, c);
    enum part_kind kind = kind_of(d, c->chunk);
    int64_t element = element_at(d, unit, kind, a);
    if (c->part != WALK_FILL)
        expect(d, c, at, size, what, element, b - a, n->before[unit][kind]);
    if (c->part != WALK_LOAD && c->part != WALK_DIGEST)
        put(d, at, size, what, element, b - a, n->version[unit][kind]);
}

/* The record of a trainable chunk, with gradient sums. */
static void update_record(struct dry *d, const struct command *c, int unit, int64_t a, int64_t b)
{
    const struct plan *p = &d->plan;
    struct dry_address at = record_at(d, c->chunk, c->slot);
    struct record r = plan_record(p, c->chunk);
    if (p->set.split)
        pass_array(d, c, in_chunk(d, c, at, a, 2), 2, WHAT_REMAINDER, unit, a, b);
    else if (p->master)
        pass_array(d, c, in_chunk(d, c, at, a, 4), 4, p->shared ? WHAT_PARAM : WHAT_MASTER, unit, a,
                   b);
    pass_array(d, c, in_chunk(d, c, behind(at, r.m), a, 4), 4, WHAT_MOMENT1, unit, a, b);
    pass_array(d, c, in_chunk(d, c, behind(at, r.v), a, 4), 4, WHAT_MOMENT2, unit, a, b);
    if (c->part == WALK_ADAM)
        expect(d, c,
               p->slot_grad ? in_chunk(d, c, chunk_grad_at(d, c->slot), a, p->grad)
                            : grads_at(d, unit, a),
               p->grad, WHAT_SUM, element_at(d, unit, PART_LIVE, a), b - a,
               dry_note_of(d, c)->micro - 1);
}

static void update_unit(struct dry *d, const struct command *c, int unit, int64_t a, int64_t b)
{
    const struct plan *p = &d->plan;
    const struct dry_note *n = dry_note_of(d, c);
    enum part_kind kind = kind_of(d, c->chunk);
    bool frozen = kind == PART_FROZEN;
    if (!frozen)
        update_record(d, c, unit, a, b);
    if (!frozen && p->shared && p->master)
        return; /* the record's master is the parameter */
    bool slot = p->slot_param && plan_chunk_apart(p, c->chunk);
    struct dry_address param = slot ? in_chunk(d, c, chunk_param_at(d, c->slot), a, p->element)
                                    : params_at(d, unit, kind, a);
    if (frozen || p->set.split || p->shared)
        pass_array(d, c, param, p->element, WHAT_PARAM, unit, a, b);
    else if (c->part != WALK_LOAD && c->part != WALK_DIGEST) /* rounded from the master */
        put(d, param, p->element, WHAT_PARAM, element_at(d, unit, kind, a), b - a,
            n->version[unit][kind]);
}

static void update(struct dry *d, const struct command *c, const struct dry_note *n)
{
    each_unit(d, c, update_unit);
    if (d->acting && c->part == WALK_ADAM && kind_of(d, c->chunk) == PART_FROZEN)
        dry_fault(d, c, "Adam of what is frozen");
    if (d->acting && c->part == WALK_ADAM && n->constants != d->constants)
        dry_fault(d, c, "Adam with the constants of step %lld instead of %lld",
                  (long long)d->constants, (long long)n->constants);
}

/* A record, or a chunk's parameters, between file and slot. */
static void transfer(struct dry *d, bool write, struct dry_address memory, int64_t offset,
                     int64_t bytes)
{
    move(d, write ? in_file(offset) : memory, write ? memory : in_file(offset), bytes);
}

void dry_carry_out(struct dry *d, const struct command *c)
{
    const struct plan *p = &d->plan;
    const struct dry_note *n = dry_note_of(d, c);
    switch (c->kind) {
    case COMMAND_GATHER: gather(d, c, n); break;
    case COMMAND_ACCUMULATE: accumulate(d, c, n); break;
    case COMMAND_REDUCE: reduce(d, c, n); break;
    case COMMAND_GATHER_SUMS: gather_sums(d, c, n); break;
    case COMMAND_SUM:
    case COMMAND_BROADCAST:
    case COMMAND_EXCHANGE: break;
    case COMMAND_PARAM_READ: param_read(d, c); break;
    case COMMAND_STATE_READ:
    case COMMAND_STATE_WRITE:
        transfer(d, c->kind == COMMAND_STATE_WRITE, record_at(d, c->chunk, c->slot),
                 plan_record_offset(p, c->chunk), plan_record(p, c->chunk).bytes);
        break;
    case COMMAND_PARAM_FETCH:
    case COMMAND_PARAM_WRITE:
        transfer(d, c->kind == COMMAND_PARAM_WRITE, in_host(p->host.chunk_param[c->slot]),
                 plan_param_offset(p, c->chunk), plan_param_bytes(p, c->chunk));
        break;
    case COMMAND_UPDATE: update(d, c, n); break;
    case COMMAND_COPY_PARAM: copy_param(d, c); break;
    case COMMAND_COPY_SUM_IN:
    case COMMAND_COPY_SUM_OUT: copy_sums(d, c); break;
    case COMMAND_COPY_GRAD: each_unit(d, c, grad_unit); break;
    case COMMAND_COPY_FETCH:
    case COMMAND_COPY_PUBLISH: exchange(d, c); break;
    case COMMAND_MARK:
    case COMMANDS: break;
    }
}

/* ------------------------------------------------- what the caller's use means */

void dry_carry_params(struct dry *d, int unit)
{
    for (enum part_kind kind = PART_LIVE; kind < PARTS; kind++)
        expect(d, NULL, usable_at(d, unit, kind, d->schedule.units[unit].slot), d->plan.element,
               WHAT_PARAM, part_element(d, unit, kind), part_of(d, unit, kind)->elements,
               d->version[unit][kind]);
}

void dry_carry_grads(struct dry *d, int unit, int slot)
{
    put(d, on_device(d->plan.device.grad[slot]), d->plan.element, WHAT_GRAD,
        part_element(d, unit, PART_LIVE), part_of(d, unit, PART_LIVE)->elements, d->micro);
}

void dry_carry_sums(struct dry *d, int unit)
{
    int64_t begin = begin_of(d, unit, PART_LIVE);
    expect(d, NULL, grads_at(d, unit, begin), d->plan.grad, WHAT_SUM,
           element_at(d, unit, PART_LIVE, begin),
           plan_part_count(&d->plan, &d->layout, unit, PART_LIVE), d->micro - 1);
}
