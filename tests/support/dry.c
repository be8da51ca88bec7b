// SPDX-License-Identifier: Apache-2.0
/* One rank without data: what commands touch and mean, and a random order for
 * them. Knows the plan's offsets and nothing of the schedule's waits. */
#include "tests/support/dry.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "src/random.h"

#define CELL  128  /* bytes under one tag: 64 elements of 2 bytes */
#define NOTES 1024 /* commands of a queue between its first that is not done and its last */
#define TASKS 256

enum what { WHAT_PARAM = 1, WHAT_MASTER, WHAT_MOMENT1, WHAT_MOMENT2, WHAT_GRAD, WHAT_SUM };

int dry_random(struct dry *d, int n)
{
    d->random++;
    return (int)(random_mix(d->random) % (uint64_t)n);
}

static void fault(struct dry *d, const struct command *c, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void fault(struct dry *d, const struct command *c, const char *format, ...)
{
    if (d->fault[0])
        return;
    FILE *out = fmemopen(d->fault, sizeof(d->fault), "w");
    va_list args;
    va_start(args, format);
    vfprintf(out, format, args);
    va_end(args);
    if (c) {
        fputs(": ", out);
        command_print(out, c);
    }
    fclose(out);
}

/* ------------------------------------------------- bytes and what they are */

static void touch(struct dry *d, struct dry_address at, int64_t bytes, bool write)
{
    struct dry_task *t = d->asked;
    if (t->count == t->room) {
        t->room = t->room ? 2 * t->room : 16;
        t->access = realloc(t->access, (size_t)t->room * sizeof(*t->access));
    }
    t->access[t->count++] = (struct dry_access){at, bytes, write};
    if (at.offset % CELL || (at.offset + bytes) / CELL > d->tag_count[at.space])
        fault(d, t->command, "out of bounds: space %d, %lld bytes at %lld", (int)at.space,
              (long long)bytes, (long long)at.offset);
}

static uint64_t tag(enum what what, int64_t element, int64_t version)
{
    return (uint64_t)what << 56 | (uint64_t)version << 32 | (uint64_t)element / 64;
}

static uint64_t *tags_at(struct dry *d, struct dry_address at)
{
    return d->tags[at.space] + at.offset / CELL;
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
    for (int64_t i = 0; i < count * size / CELL; i++)
        tags[i] = tag(what, element + i * CELL / size, version);
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
    for (int64_t i = 0; i < count * size / CELL; i++) {
        uint64_t right = tag(what, element + i * CELL / size, version);
        if (tags[i] != right) {
            fault(d, c, "%016llx where %016llx is expected (kind, version, element / 64)",
                  (unsigned long long)tags[i], (unsigned long long)right);
            return;
        }
    }
}

static void move(struct dry *d, struct dry_address to, struct dry_address from, int64_t bytes)
{
    if (d->acting) {
        memcpy(tags_at(d, to), tags_at(d, from), (size_t)(bytes / CELL) * sizeof(uint64_t));
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

static struct dry_note *note_of(struct dry *d, const struct command *c)
{
    return &d->notes[c->queue][c->sequence % NOTES];
}

/* One array of a record: used as it was before the walk, left as after it. */
static void pass_array(struct dry *d, const struct command *c, struct dry_address at,
                       enum what what, int unit, int64_t a, int64_t b)
{
    const struct dry_note *n = note_of(d, c);
    if (c->part != WALK_FILL)
        expect(d, c, at, 4, what, element_at(d, unit, a), b - a, n->before[unit]);
    if (c->part != WALK_LOAD && c->part != WALK_DIGEST)
        put(d, at, 4, what, element_at(d, unit, a), b - a, n->version[unit]);
}

static void update_unit(struct dry *d, const struct command *c, int unit, int64_t a, int64_t b)
{
    const struct plan *p = &d->plan;
    const struct dry_note *n = note_of(d, c);
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
        fault(d, c, "Adam with the constants of step %lld instead of %lld", (long long)d->constants,
              (long long)n->constants);
}

static void carry_out(struct dry *d, const struct command *c)
{
    const struct plan *p = &d->plan;
    const struct dry_note *n = note_of(d, c);
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

/* -------------------------------------------------- who uses what at once */

static void clash(struct dry *d, const struct dry_task *a, const struct dry_task *b)
{
    for (int i = 0; i < a->count; i++)
        for (int j = 0; j < b->count; j++) {
            const struct dry_access *x = &a->access[i], *y = &b->access[j];
            if (x->at.space != y->at.space || !(x->write || y->write) ||
                x->at.offset >= y->at.offset + y->bytes || y->at.offset >= x->at.offset + x->bytes)
                continue;
            const struct command *other = b->command;
            fault(d, a->command, "%s %llu (%s) uses space %d, offset %lld too",
                  other ? queue_name(other->queue) : "the caller",
                  other ? (unsigned long long)other->sequence : 0,
                  other ? command_name(other->kind) : "", (int)x->at.space,
                  (long long)x->at.offset);
        }
}

static void clash_with_caller(struct dry *d, const struct dry_task *t)
{
    for (int u = 0; u < d->layout.units; u++) {
        clash(d, t, &d->params[u]);
        clash(d, t, &d->grads[u]);
    }
}

static void clash_with_commands(struct dry *d, const struct dry_task *t)
{
    for (int i = 0; i < d->under_way; i++)
        if (&d->tasks[i] != t && !d->tasks[i].parked)
            clash(d, t, &d->tasks[i]);
}

/* ----------------------------------------------------- the order of things */

static bool done(struct dry *d, struct ref ref)
{
    return ref.sequence <= d->head[ref.queue] ||
           (!ref.all && d->notes[ref.queue][ref.sequence % NOTES].done);
}

/* A chunk in the file owns its slot from its read until its last write has
 * landed (offload/pipeline.h). */
static bool owns_slot(const struct dry *d, const struct command *c)
{
    bool moves = c->kind == COMMAND_STATE_READ || c->kind == COMMAND_STATE_WRITE ||
                 c->kind == COMMAND_PARAM_WRITE || c->kind == COMMAND_UPDATE;
    return moves && c->chunk >= d->plan.resident;
}

static void take_slot(struct dry *d, const struct command *c)
{
    bool enters = c->kind == COMMAND_STATE_READ || c->kind == COMMAND_UPDATE;
    if (owns_slot(d, c) && enters && d->landing[c->slot])
        fault(d, c, "%d writes of the slot's last chunk have not landed", d->landing[c->slot]);
}

static void leave_slot(struct dry *d, const struct command *c)
{
    const struct plan *p = &d->plan;
    if (!owns_slot(d, c))
        return;
    if (c->kind == COMMAND_STATE_WRITE || c->kind == COMMAND_PARAM_WRITE)
        d->landing[c->slot]--;
    if (c->kind == COMMAND_UPDATE && c->part != WALK_LOAD && c->part != WALK_DIGEST)
        d->landing[c->slot] = 1 + (p->slot_param && p->set.param == ZERO_NVME);
}

static void begin(struct dry *d, struct dry_task *t)
{
    d->asked = t;
    d->acting = false;
    carry_out(d, t->command);
    take_slot(d, t->command);
    clash_with_commands(d, t);
    clash_with_caller(d, t);
}

/* An update that the queue lets start waits for the one before: the engine has
 * one set of threads for them. */
static bool start_one(struct dry *d)
{
    if (d->under_way == d->limit)
        return false;
    struct command *c = queues_dry_next(d->queues, (enum queue_id)dry_random(d, QUEUES));
    if (!c)
        return false;
    struct dry_task *t = &d->tasks[d->under_way++];
    t->command = c;
    t->count = 0;
    t->parked = c->kind == COMMAND_UPDATE && d->updating;
    d->updating |= c->kind == COMMAND_UPDATE;
    if (!t->parked)
        begin(d, t);
    return true;
}

/* The update that was started first, of those that wait for the one before. */
static void begin_parked(struct dry *d)
{
    struct dry_task *first = NULL;
    for (int i = 0; i < d->under_way; i++) {
        struct dry_task *t = &d->tasks[i];
        if (t->parked && (!first || t->command->sequence < first->command->sequence))
            first = t;
    }
    d->updating = first != NULL;
    if (!first)
        return;
    first->parked = false;
    begin(d, first);
}

static bool complete_one(struct dry *d, bool slow_too)
{
    int chosen = -1, seen = 0;
    for (int i = 0; i < d->under_way; i++)
        if (!d->tasks[i].parked && (slow_too || !(d->slow >> d->tasks[i].command->queue & 1)) &&
            dry_random(d, ++seen) == 0)
            chosen = i;
    if (chosen < 0)
        return false;
    struct dry_task *t = &d->tasks[chosen], last = d->tasks[--d->under_way];
    struct command *c = t->command;
    enum queue_id q = c->queue;
    bool update = c->kind == COMMAND_UPDATE;
    d->acting = true;
    carry_out(d, c);
    leave_slot(d, c);
    note_of(d, c)->done = true;
    queues_dry_complete(d->queues, c);
    while (d->head[q] < d->tail[q] && d->notes[q][(d->head[q] + 1) % NOTES].done)
        d->head[q]++;
    d->tasks[d->under_way] = *t; /* its room is used again */
    d->tasks[chosen] = last;
    if (update)
        begin_parked(d);
    return true;
}

static bool act(struct dry *d)
{
    if (dry_random(d, 100) < d->eager)
        return start_one(d) || complete_one(d, false) || complete_one(d, true);
    return complete_one(d, false) || start_one(d) || complete_one(d, true);
}

static void wait_for(struct dry *d, struct ref ref)
{
    while (!done(d, ref))
        if (!act(d)) {
            fault(d, NULL, "nothing can start, but %s %llu is waited for", queue_name(ref.queue),
                  (unsigned long long)ref.sequence);
            return;
        }
}

static void drift(struct dry *d)
{
    for (int n = d->drift ? dry_random(d, d->drift) : 0; n > 0; n--)
        act(d);
}

void dry_finish(struct dry *d)
{
    while (act(d))
        ;
    for (int q = 0; q < QUEUES; q++)
        if (d->head[q] < d->tail[q])
            fault(d, NULL, "%s stopped at %llu of %llu", queue_name((enum queue_id)q),
                  (unsigned long long)d->head[q], (unsigned long long)d->tail[q]);
}

/* ------------------------------------------------------------------- calls */

static void observe(void *arg, const struct command *c)
{
    struct dry *d = arg;
    struct dry_note *n = &d->notes[c->queue][c->sequence % NOTES];
    if (c->sequence - d->head[c->queue] >= NOTES)
        abort();
    *n = (struct dry_note){.micro = d->micro, .constants = d->constants};
    memcpy(n->before, d->before, sizeof(n->before));
    memcpy(n->version, d->version, sizeof(n->version));
    d->tail[c->queue] = c->sequence;
    d->commands[c->kind]++;
    d->bytes[c->kind] += c->bytes;
    char line[512] = "";
    FILE *out = fmemopen(line, sizeof(line), "w");
    command_print(out, c);
    fclose(out);
    for (const char *s = line; *s; s++)
        d->text = random_mix(d->text ^ (uint64_t)*s);
    if (c->queue == QUEUE_COMM)
        d->collectives = random_mix(d->collectives ^ (uint64_t)c->kind << 56 ^
                                    (uint64_t)(c->unit + 1) << 40 ^ (uint64_t)c->bytes);
    if (d->log)
        fputs(line, d->log);
}

/* The caller checks, and uses until its release, what acquire promised. */
static void use_params(struct dry *d, int unit)
{
    const struct unit *u = &d->layout.unit[unit];
    struct dry_address at = usable_at(d, unit, d->schedule.units[unit].slot);
    d->asked = &d->params[unit];
    for (int acting = 0; acting < 2; acting++) {
        d->acting = acting;
        expect(d, NULL, at, d->plan.element, WHAT_PARAM, u->begin, u->elements, d->version[unit]);
    }
    clash_with_commands(d, &d->params[unit]);
}

bool dry_acquire(struct dry *d, int unit)
{
    if (!schedule_can_acquire(&d->schedule, unit))
        return false;
    wait_for(d, schedule_acquire(&d->schedule, unit));
    if (d->schedule.units[unit].acquired == 1)
        use_params(d, unit);
    drift(d);
    return true;
}

void dry_release(struct dry *d, int unit)
{
    schedule_release(&d->schedule, unit);
    if (!d->schedule.units[unit].acquired)
        d->params[unit].count = 0;
    drift(d);
}

bool dry_grad(struct dry *d, int unit)
{
    struct ref ready;
    const struct unit *u = &d->layout.unit[unit];
    bool fresh = d->schedule.units[unit].grad < 0;
    int slot = schedule_grad_slot(&d->schedule, unit, &ready);
    if (slot < 0 || !fresh)
        return slot >= 0;
    wait_for(d, ready);
    d->asked = &d->grads[unit];
    for (int acting = 0; acting < 2; acting++) {
        d->acting = acting;
        put(d, on_device(d->plan.device.grad[slot]), d->plan.element, WHAT_GRAD, u->begin,
            u->elements, d->micro);
    }
    clash_with_commands(d, &d->grads[unit]);
    drift(d);
    return true;
}

bool dry_reduce(struct dry *d, int unit)
{
    if (!dry_grad(d, unit))
        return false;
    d->grads[unit].count = 0;
    schedule_reduce(&d->schedule, unit);
    d->micro += d->schedule.reduces == 0; /* it was the last */
    drift(d);
    return true;
}

static void walk_all(struct dry *d, enum walk_kind kind)
{
    for (int u = 0; u < d->layout.units; u++)
        d->version[u]++;
    schedule_walk(&d->schedule, kind, 0, d->plan.chunks);
    memcpy(d->before, d->version, sizeof(d->before));
}

void dry_step(struct dry *d, bool skip)
{
    wait_for(d, d->schedule.last_reduce);
    wait_for(d, schedule_sum(&d->schedule, "verdict", 0, NULL, 200));
    if (!skip) {
        wait_for(d, queues_tail(d->queues, QUEUE_UPDATE));
        d->constants++;
        walk_all(d, WALK_ADAM);
    }
    schedule_next_step(&d->schedule);
    drift(d);
}

void dry_phase(struct dry *d, enum zero_phase phase)
{
    schedule_phase(&d->schedule, phase);
}

/* Waits as the engine does, whose updates are done in order. */
static void walk_some(struct dry *d, enum walk_kind kind, int64_t begin, int64_t end)
{
    struct ref last =
        schedule_walk(&d->schedule, kind, begin / d->plan.chunk, (end - 1) / d->plan.chunk + 1);
    last.all = true;
    wait_for(d, last);
}

void dry_read(struct dry *d, int unit, int64_t first, int64_t count)
{
    const struct unit *u = &d->layout.unit[unit];
    for (int r = 0; r < d->plan.ranks; r++) {
        int64_t own = d->plan.whole_state ? 0 : r * u->shard;
        int64_t from = first > own ? first : own, to = first + count;
        int64_t end = own + plan_unit_count(&d->plan, &d->layout, unit);
        to = to < end ? to : end;
        if (from >= to)
            continue;
        int64_t shift = begin_of(d, unit) - own;
        if (r == d->rank || d->plan.whole_state)
            walk_some(d, WALK_LOAD, from + shift, to + shift);
        if (d->plan.whole_state)
            return;
        wait_for(d, schedule_broadcast(&d->schedule, r, NULL, (to - from) * 4));
    }
    drift(d);
}

void dry_write(struct dry *d, int unit)
{
    d->version[unit]++;
    walk_some(d, WALK_ASSIGN, begin_of(d, unit),
              begin_of(d, unit) + plan_unit_count(&d->plan, &d->layout, unit));
    wait_for(d, queues_tail(d->queues, QUEUE_TO_DEVICE));
    d->before[unit] = d->version[unit];
    schedule_forget(&d->schedule, unit);
    drift(d);
}

void dry_digest(struct dry *d)
{
    walk_some(d, WALK_DIGEST, 0, d->plan.state);
    wait_for(d, schedule_sum(&d->schedule, "zero_digest", 0, NULL, 24));
}

/* -------------------------------------------------------- create, destroy */

static void make_memory(struct dry *d)
{
    const int64_t bytes[] = {d->plan.device.total, d->plan.host.total, d->plan.file.total};
    for (int s = 0; s < DRY_SPACES; s++) {
        d->tag_count[s] = bytes[s] / CELL;
        d->tags[s] = calloc((size_t)d->tag_count[s] + 1, sizeof(uint64_t));
    }
    for (int q = 0; q < QUEUES; q++)
        d->notes[q] = calloc(NOTES, sizeof(struct dry_note));
    d->tasks = calloc(TASKS, sizeof(*d->tasks));
    d->segments = calloc((size_t)plan_segments_max(&d->plan, &d->layout), sizeof(*d->segments));
}

int dry_create(struct dry *d, const struct zero_param *params, int count,
               const struct zero_config *config, int ranks, int rank, uint64_t random)
{
    *d = (struct dry){.rank = rank, .random = random << 20};
    if (settings_resolve(&d->set, config, &d->error) ||
        layout_create(&d->layout, params, count, ranks, &d->error) ||
        plan_make(&d->plan, &d->layout, &d->set, &d->error) ||
        queues_create(&d->queues, d->plan.chunks, &d->error) ||
        schedule_create(&d->schedule, &d->plan, &d->layout, d->queues, &d->error))
        return d->error.status;
    if (d->layout.units > DRY_UNITS_MAX)
        return error_set(&d->error, ZERO_ERR_UNSUPPORTED, "%d units.", d->layout.units);
    make_memory(d);
    d->slow = (unsigned)dry_random(d, 1 << QUEUES);
    d->limit = dry_random(d, 3) ? TASKS : 1 + dry_random(d, 8);
    d->eager = dry_random(d, 101);
    d->drift = dry_random(d, 3) ? dry_random(d, 40) : 0;
    queues_observe(d->queues, observe, d);
    walk_all(d, WALK_FILL);
    dry_finish(d);
    return ZERO_OK;
}

void dry_destroy(struct dry *d)
{
    for (int s = 0; s < DRY_SPACES; s++)
        free(d->tags[s]);
    for (int q = 0; q < QUEUES; q++)
        free(d->notes[q]);
    for (int i = 0; d->tasks && i < TASKS; i++)
        free(d->tasks[i].access);
    for (int u = 0; u < DRY_UNITS_MAX; u++) {
        free(d->params[u].access);
        free(d->grads[u].access);
    }
    free(d->tasks);
    free(d->segments);
    schedule_destroy(&d->schedule);
    queues_destroy(d->queues);
    layout_destroy(&d->layout);
}
