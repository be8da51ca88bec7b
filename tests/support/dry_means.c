// SPDX-License-Identifier: Apache-2.0
/* What each command touches and means, from the command and the plan's offsets
 * alone: the same addresses as in params.c, grads.c and update.c, by other
 * hands. Knows nothing of order. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/dry.h"

enum what { WHAT_PARAM = 1, WHAT_MASTER, WHAT_MOMENT1, WHAT_MOMENT2, WHAT_GRAD, WHAT_SUM };

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

static int64_t begin_of(const struct dry *d, int unit)
{
    return plan_unit_begin(&d->plan, &d->layout, unit);
}

/* The element of the model at position in state order. */
static int64_t element_at(const struct dry *d, int unit, int64_t position)
{
    const struct unit *u = &d->layout.unit[unit];
    int64_t own = d->plan.whole_state ? 0 : d->rank * u->shard;
    return u->begin + own + position - begin_of(d, unit);
}

static struct dry_address params_at(const struct dry *d, int unit, int64_t position)
{
    const struct plan *p = &d->plan;
    if (p->set.param == ZERO_HOST)
        return in_host(p->host.params + position * p->element);
    if (p->whole_params)
        return on_device(p->device.params + element_at(d, unit, position) * p->element);
    return on_device(p->device.params + position * p->element);
}

static struct dry_address grads_at(const struct dry *d, int64_t position)
{
    return d->plan.set.grad == ZERO_DEVICE ? on_device(d->plan.device.grads + position * 4)
                                           : in_host(d->plan.host.grads + position * 4);
}

static struct dry_address record_at(const struct dry *d, int64_t chunk, int slot)
{
    const struct plan *p = &d->plan;
    if (chunk >= p->resident && slot >= 0)
        return in_host(p->host.record[slot]);
    int64_t offset = chunk * p->chunk * 4 * p->arrays;
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

static struct dry_address usable_at(const struct dry *d, int unit, int slot)
{
    const struct plan *p = &d->plan;
    return on_device(slot < 0 ? p->device.params + d->layout.unit[unit].begin * p->element
                              : p->device.gather[slot]);
}

/* ------------------------------------------------------ what commands mean */

static void gather(struct dry *d, const struct command *c, const struct dry_note *n)
{
    const struct plan *p = &d->plan;
    const struct unit *u = &d->layout.unit[c->unit];
    struct dry_address at = usable_at(d, c->unit, c->slot);
    int64_t own = d->rank * u->shard, rest = u->elements - own - u->shard;
    if (c->slot >= 0 && p->set.param == ZERO_DEVICE)
        move(d, behind(at, own * p->element), params_at(d, c->unit, begin_of(d, c->unit)),
             u->shard * p->element);
    else
        expect(d, c, behind(at, own * p->element), p->element, WHAT_PARAM, u->begin + own, u->shard,
               n->version[c->unit]);
    put(d, at, p->element, WHAT_PARAM, u->begin, own, n->version[c->unit]);
    put(d, behind(at, (own + u->shard) * p->element), p->element, WHAT_PARAM,
        u->begin + own + u->shard, rest, n->version[c->unit]);
}

/* Where this rank's part of a unit's sums grows, and their first element. */
static struct dry_address sums_at(const struct dry *d, const struct command *c)
{
    return d->plan.set.grad == ZERO_DEVICE ? grads_at(d, begin_of(d, c->unit))
                                           : on_device(d->plan.device.sum[c->slot]);
}

static void reduce(struct dry *d, const struct command *c, const struct dry_note *n)
{
    const struct plan *p = &d->plan;
    const struct unit *u = &d->layout.unit[c->unit];
    int64_t own = d->rank * u->shard;
    struct dry_address sums = behind(sums_at(d, c), p->whole_state ? own * 4 : 0);
    expect(d, c, on_device(p->device.grad[c->slot]), p->element, WHAT_GRAD, u->begin, u->elements,
           n->micro);
    if (!(c->part & 1))
        expect(d, c, sums, 4, WHAT_SUM, u->begin + own, u->shard, n->micro - 1);
    put(d, sums, 4, WHAT_SUM, u->begin + own, u->shard, n->micro);
    if (p->ranks > 1 && !d->acting)
        touch(d, on_device(p->device.scratch), 2 * (p->ranks - 1) * p->piece_bytes, true);
}

static void gather_sums(struct dry *d, const struct command *c, const struct dry_note *n)
{
    const struct unit *u = &d->layout.unit[c->unit];
    int64_t own = d->rank * u->shard, rest = u->elements - own - u->shard;
    struct dry_address at = sums_at(d, c);
    expect(d, c, behind(at, own * 4), 4, WHAT_SUM, u->begin + own, u->shard, n->micro);
    put(d, at, 4, WHAT_SUM, u->begin, own, n->micro);
    put(d, behind(at, (own + u->shard) * 4), 4, WHAT_SUM, u->begin + own + u->shard, rest,
        n->micro);
}

static void copy_sums(struct dry *d, const struct command *c)
{
    const struct unit *u = &d->layout.unit[c->unit];
    int64_t own = d->plan.whole_state && !c->part ? d->rank * u->shard : 0;
    int64_t bytes = (d->plan.whole_state && c->part ? u->elements : u->shard) * 4;
    struct dry_address slot = behind(sums_at(d, c), own * 4);
    struct dry_address rest = grads_at(d, begin_of(d, c->unit) + own);
    bool in = c->kind == COMMAND_COPY_SUM_IN;
    move(d, in ? slot : rest, in ? rest : slot, bytes);
}

static void copy_param(struct dry *d, const struct command *c)
{
    const struct plan *p = &d->plan;
    const struct unit *u = &d->layout.unit[c->unit];
    struct dry_address own =
        behind(usable_at(d, c->unit, c->slot), d->rank * u->shard * p->element);
    if (p->set.param == ZERO_HOST) {
        move(d, own, params_at(d, c->unit, begin_of(d, c->unit)), u->shard * p->element);
        return;
    }
    int n = plan_segments(p, &d->layout, c->unit, d->segments);
    for (int i = 0; i < n; i++) {
        const struct segment *s = &d->segments[i];
        int64_t inside = (s->begin - s->chunk * p->chunk) * p->element;
        struct dry_address from = s->in_ram
                                      ? behind(record_at(d, s->chunk, -1), inside)
                                      : in_host(p->host.staging[c->slot] + s->staging + s->skip);
        move(d, behind(own, (s->begin - begin_of(d, c->unit)) * p->element), from,
             s->count * p->element);
    }
}

static void param_read(struct dry *d, const struct command *c)
{
    plan_segments(&d->plan, &d->layout, c->unit, d->segments);
    const struct segment *s = &d->segments[c->part];
    move(d, in_host(d->plan.host.staging[c->slot] + s->staging), in_file(s->file_offset), s->bytes);
}

/* Calls visit for the part of each unit that lies in chunk. */
static void each_unit(struct dry *d, const struct command *c,
                      void (*visit)(struct dry *d, const struct command *c, int unit, int64_t a,
                                    int64_t b))
{
    int64_t begin = c->chunk * d->plan.chunk, end = begin + plan_chunk_count(&d->plan, c->chunk);
    for (int u = 0; u < d->layout.units; u++) {
        int64_t a = begin_of(d, u), b = a + plan_unit_count(&d->plan, &d->layout, u);
        a = a > begin ? a : begin;
        b = b < end ? b : end;
        if (a < b)
            visit(d, c, u, a, b);
    }
}

static void publish_unit(struct dry *d, const struct command *c, int unit, int64_t a, int64_t b)
{
    const struct plan *p = &d->plan;
    move(d, params_at(d, unit, a),
         behind(chunk_param_at(d, c->slot), (a - c->chunk * p->chunk) * p->element),
         (b - a) * p->element);
}

static void publish(struct dry *d, const struct command *c)
{
    const struct plan *p = &d->plan;
    if (p->slot_bounce)
        move(d, in_host(p->host.chunk_param[c->slot]), chunk_param_at(d, c->slot),
             plan_chunk_count(p, c->chunk) * p->element);
    else
        each_unit(d, c, publish_unit);
}

/* One array of a record: used as it was before the walk, left as after it. */
static void pass_array(struct dry *d, const struct command *c, struct dry_address at,
                       enum what what, int unit, int64_t a, int64_t b)
{
    const struct dry_note *n = dry_note_of(d, c);
    if (c->part != WALK_FILL)
        expect(d, c, at, 4, what, element_at(d, unit, a), b - a, n->before[unit]);
    if (c->part != WALK_LOAD && c->part != WALK_DIGEST)
        put(d, at, 4, what, element_at(d, unit, a), b - a, n->version[unit]);
}

static void update_unit(struct dry *d, const struct command *c, int unit, int64_t a, int64_t b)
{
    const struct plan *p = &d->plan;
    const struct dry_note *n = dry_note_of(d, c);
    int64_t inside = a - c->chunk * p->chunk;
    int64_t array =
        c->chunk < p->resident ? plan_chunk_count(p, c->chunk) * 4 : plan_array_bytes(p, c->chunk);
    struct dry_address record = behind(record_at(d, c->chunk, c->slot), inside * 4);
    struct dry_address master = p->arrays == 3 ? record : params_at(d, unit, a);
    if (p->arrays == 3)
        record = behind(record, array);
    pass_array(d, c, master, p->shared ? WHAT_PARAM : WHAT_MASTER, unit, a, b);
    pass_array(d, c, record, WHAT_MOMENT1, unit, a, b);
    pass_array(d, c, behind(record, array), WHAT_MOMENT2, unit, a, b);
    if (c->part == WALK_ADAM)
        expect(d, c, p->slot_grad ? behind(chunk_grad_at(d, c->slot), inside * 4) : grads_at(d, a),
               4, WHAT_SUM, element_at(d, unit, a), b - a, n->micro - 1);
    if (c->part == WALK_LOAD || c->part == WALK_DIGEST || p->shared)
        return;
    put(d,
        p->slot_param ? behind(chunk_param_at(d, c->slot), inside * p->element)
                      : params_at(d, unit, a),
        p->element, WHAT_PARAM, element_at(d, unit, a), b - a, n->version[unit]);
}

static void update(struct dry *d, const struct command *c, const struct dry_note *n)
{
    each_unit(d, c, update_unit);
    if (d->acting && c->part == WALK_ADAM && n->constants != d->constants)
        dry_fault(d, c, "Adam with the constants of step %lld instead of %lld",
                  (long long)d->constants, (long long)n->constants);
}

void dry_carry_out(struct dry *d, const struct command *c)
{
    const struct plan *p = &d->plan;
    const struct dry_note *n = dry_note_of(d, c);
    switch (c->kind) {
    case COMMAND_GATHER: gather(d, c, n); break;
    case COMMAND_REDUCE: reduce(d, c, n); break;
    case COMMAND_GATHER_SUMS: gather_sums(d, c, n); break;
    case COMMAND_SUM:
    case COMMAND_BROADCAST:
    case COMMAND_EXCHANGE: break;
    case COMMAND_PARAM_READ: param_read(d, c); break;
    case COMMAND_STATE_READ:
        move(d, record_at(d, c->chunk, c->slot), in_file(plan_record_offset(p, c->chunk)),
             plan_record_bytes(p, c->chunk));
        break;
    case COMMAND_STATE_WRITE:
        move(d, in_file(plan_record_offset(p, c->chunk)), record_at(d, c->chunk, c->slot),
             plan_record_bytes(p, c->chunk));
        break;
    case COMMAND_PARAM_WRITE:
        move(d, in_file(plan_param_offset(p, c->chunk)), in_host(p->host.chunk_param[c->slot]),
             plan_param_bytes(p, c->chunk));
        break;
    case COMMAND_UPDATE: update(d, c, n); break;
    case COMMAND_COPY_PARAM: copy_param(d, c); break;
    case COMMAND_COPY_SUM_IN:
    case COMMAND_COPY_SUM_OUT: copy_sums(d, c); break;
    case COMMAND_COPY_GRAD:
        move(d, chunk_grad_at(d, c->slot), grads_at(d, c->chunk * p->chunk),
             plan_chunk_count(p, c->chunk) * 4);
        break;
    case COMMAND_COPY_PUBLISH: publish(d, c); break;
    }
}

/* ------------------------------------------------- what the caller's use means */

void dry_carry_params(struct dry *d, int unit)
{
    const struct unit *u = &d->layout.unit[unit];
    struct dry_address at = usable_at(d, unit, d->schedule.units[unit].slot);
    expect(d, NULL, at, d->plan.element, WHAT_PARAM, u->begin, u->elements, d->version[unit]);
}

void dry_carry_grads(struct dry *d, int unit, int slot)
{
    const struct unit *u = &d->layout.unit[unit];
    put(d, on_device(d->plan.device.grad[slot]), d->plan.element, WHAT_GRAD, u->begin, u->elements,
        d->micro);
}
