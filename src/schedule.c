// SPDX-License-Identifier: Apache-2.0
/* Calls become commands: gathers and reductions; the update is in walk.c. Moves no data,
 * and waits for nothing but room in a queue. */
#include "src/schedule.h"

#include <assert.h>
#include <stdlib.h>

#include "kernels/random.h"

struct ref schedule_append(struct schedule *s, enum queue_id queue, struct command *c)
{
    c->arguments = s->calls;
    c->step = s->step;
    return queues_append(s->queues, queue, c);
}

/* The units' segments. False: no memory. */
static bool cut(struct schedule *s)
{
    const struct plan *p = s->plan;
    int units = p->set.param == ZERO_NVME ? s->layout->units : 0, *begin = s->segments_begin;
    for (int u = 0; u < units; u++)
        begin[u + 1] = begin[u] + plan_segments(p, s->layout, u, NULL, NULL);
    s->segments = calloc((size_t)begin[units] + 1, sizeof(*s->segments));
    for (int u = 0; s->segments && u < units; u++)
        plan_segments(p, s->layout, u, s->segments + begin[u], NULL);
    return s->segments;
}

int schedule_create(struct schedule *s, const struct plan *plan, const struct layout *layout,
                    struct queues *queues, struct error *error)
{
    *s = (struct schedule){
        .plan = plan, .layout = layout, .queues = queues, .accumulate = plan->set.accumulate};
    s->order_max = 8 * layout->units + 16;
    s->units = calloc((size_t)layout->units, sizeof(*s->units));
    s->published = calloc((size_t)plan->chunks, sizeof(*s->published));
    s->predicted = calloc((size_t)s->order_max, sizeof(int));
    s->recorded = calloc((size_t)s->order_max, sizeof(int));
    s->segments_begin = calloc((size_t)layout->units + 1, sizeof(int));
    if (!s->units || !s->published || !s->predicted || !s->recorded || !s->segments_begin ||
        !cut(s))
        return error_set(error, ZERO_ERR_MEMORY,
                         "No memory for the schedule of %d units." ERROR_FREE_MEMORY,
                         layout->units);
    for (int u = 0; u < layout->units; u++)
        s->units[u].slot = s->units[u].grad = -1;
    for (int i = 0; i < PLAN_SLOTS_MAX; i++)
        s->gather[i].unit = -1;
    /* Before there is a micro-step to go by: forward, then backward. */
    for (int u = 0; u < layout->units; u++) {
        s->predicted[u] = u;
        s->predicted[2 * layout->units - 1 - u] = u;
    }
    s->predicted_count = 2 * layout->units;
    return ZERO_OK;
}

void schedule_destroy(struct schedule *s)
{
    free(s->units);
    free(s->published);
    free(s->predicted);
    free(s->recorded);
    free(s->segments);
    free(s->segments_begin);
    *s = (struct schedule){0};
}

void schedule_call(struct schedule *s, const char *name, int64_t a, int64_t b)
{
    for (; *name; name++)
        s->calls = random_mix(s->calls ^ (uint64_t)*name);
    s->calls = random_mix(s->calls ^ (uint64_t)a);
    s->calls = random_mix(s->calls ^ (uint64_t)b);
}

struct ref schedule_mark(struct schedule *s)
{
    if (!s->plan->device_apart)
        return (struct ref){0};
    struct command c = command_make(COMMAND_MARK, -1, -1, (int)(s->marks++ % (QUEUE_MARKS + 1)), 0);
    if (s->mark)
        s->mark(s->mark_arg, c.slot);
    return schedule_append(s, QUEUE_MARK, &c);
}

/* ------------------------------------------------------------- prediction */

/* How many acquires from now unit is needed next: 0 is the next acquire. */
static int next_use(const struct schedule *s, int unit)
{
    const int never = s->order_max + s->layout->units;
    if (s->phase == ZERO_EVAL)
        return (unit - s->position + s->layout->units) % s->layout->units;
    if (s->position < 0)
        return never;
    for (int i = s->position; i < s->predicted_count; i++)
        if (s->predicted[i] == unit)
            return i - s->position;
    return never - 1 - unit; /* in the next micro-step: lowest first */
}

static int predicted_unit(const struct schedule *s, int distance)
{
    if (s->phase == ZERO_EVAL)
        return (s->position + distance) % s->layout->units;
    if (s->position < 0 || s->position + distance >= s->predicted_count)
        return -1;
    return s->predicted[s->position + distance];
}

/* Moves on past an acquire of unit. */
static void record(struct schedule *s, int unit)
{
    if (s->phase == ZERO_EVAL) {
        s->position = (unit + 1) % s->layout->units;
        return;
    }
    if (s->recorded_count < s->order_max)
        s->recorded[s->recorded_count++] = unit;
    if (s->position < 0)
        return;
    while (s->position < s->predicted_count && s->predicted[s->position] != unit)
        s->position++;
    s->position = s->position < s->predicted_count ? s->position + 1 : -1;
}

static void end_micro_step(struct schedule *s)
{
    int *last = s->predicted;
    s->predicted = s->recorded;
    s->predicted_count = s->recorded_count;
    s->recorded = last;
    s->recorded_count = 0;
    s->position = 0;
    s->reduces = 0;
    s->micro++;
    for (int u = 0; u < s->layout->units; u++)
        s->units[u].reduced = false;
}

void schedule_phase(struct schedule *s, enum zero_phase phase)
{
    s->phase = phase;
    s->position = 0;
    s->recorded_count = 0;
}

/* ---------------------------------------------------------------- gathers */

static bool slot_fits(const struct schedule *s, int slot, int unit)
{
    return s->plan->gather_elements[slot] >= s->layout->unit[unit].elements;
}

static bool slot_acquired(const struct schedule *s, int slot)
{
    int unit = s->gather[slot].unit;
    return unit >= 0 && s->units[unit].acquired > 0;
}

/* Elements of the smallest slot that fits. */
static int64_t smallest_fit(const struct schedule *s, int unit)
{
    int slot = s->plan->gather_slots - 1;
    while (slot > 0 && !slot_fits(s, slot, unit))
        slot--;
    return s->plan->gather_elements[slot];
}

/* Of the smallest slots that fit and are not acquired, the one whose content is
 * needed last, and later than distance acquires from now; -1: none. A larger
 * slot is kept for the units that fit in no other: only an acquire (distance -1)
 * may take it, and its release gives it back. */
static int choose_slot(const struct schedule *s, int unit, int distance)
{
    const int64_t *elements = s->plan->gather_elements;
    int best = -1, best_use = distance;
    int64_t smallest = distance < 0 ? INT64_MAX : smallest_fit(s, unit);
    for (int i = s->plan->gather_slots - 1; i >= 0; i--) {
        if (!slot_fits(s, i, unit) || slot_acquired(s, i) || elements[i] > smallest)
            continue;
        smallest = elements[i];
        int use = s->gather[i].unit < 0 ? INT32_MAX : next_use(s, s->gather[i].unit);
        if (use > best_use) {
            best = i;
            best_use = use;
        }
    }
    return best;
}

bool schedule_can_acquire(const struct schedule *s, int unit)
{
    return s->plan->whole_params || s->units[unit].slot >= 0 || choose_slot(s, unit, -1) >= 0;
}

/* What must be done before a part of a unit's parameters is read where it rests
 * in memory: all of its chunks are published through one queue, which is in order, so the
 * highest sequence stands for all. */
static struct ref published_in_memory(const struct schedule *s, int unit, enum part_kind kind)
{
    int64_t begin = plan_part_begin(s->plan, s->layout, unit, kind);
    int64_t end = begin + plan_part_count(s->plan, s->layout, unit, kind);
    struct ref last = {0};
    for (int64_t c = begin / s->plan->chunk; c * s->plan->chunk < end; c++)
        if (s->published[c].sequence > last.sequence)
            last = s->published[c];
    return ref_up_to(last);
}

static struct gathered *gathered_at(struct schedule *s, int unit, int slot)
{
    return slot < 0 ? &s->units[unit].gathered : &s->gather[slot].gathered;
}

/* Parameters in host memory or in the file: into the slot's own parts. */
static struct ref bring_shard(struct schedule *s, int unit, int slot)
{
    const struct plan *p = s->plan;
    struct gather_slot *g = &s->gather[slot];
    int64_t shard = s->layout->unit[unit].elements / p->ranks;
    struct command copy = command_make(COMMAND_COPY_PARAM, unit, -1, slot, shard * p->element);
    command_wait(&copy, g->gathered.made); /* the last gather into this slot has read its parts, */
    command_wait(&copy, g->gathered.read); /* and the program what it brought */
    if (p->set.param == ZERO_HOST) {
        command_wait(&copy, published_in_memory(s, unit, PART_LIVE));
        command_wait(&copy, published_in_memory(s, unit, PART_FROZEN));
    } else {
        struct ref read = {0}, update = {0};
        int n;
        const struct segment *part = schedule_segments(s, unit, &n);
        for (int i = 0; i < n; i++, part++) {
            if (part->in_ram) { /* the master is the parameter */
                if (s->published[part->chunk].sequence > update.sequence)
                    update = s->published[part->chunk];
                continue;
            }
            struct command c =
                command_make(COMMAND_PARAM_READ, unit, part->chunk, slot, part->bytes);
            c.part = i;
            command_wait(&c, s->published[part->chunk]); /* it is in the file */
            command_wait(&c, g->copy);                   /* the staging buffer was copied out */
            read = schedule_append(s, QUEUE_PARAM_DISK, &c);
        }
        command_wait(&copy, ref_up_to(read));
        command_wait(&copy, ref_up_to(update));
    }
    return g->copy = schedule_append(s, QUEUE_TO_DEVICE, &copy);
}

/* The parts of unit that are not usable, from all ranks into slot (stage 3) or
 * in place. Returns the last gather. */
static struct ref gather_parts(struct schedule *s, int unit, int slot, struct ref here)
{
    const struct plan *p = s->plan;
    struct ref last = {0};
    for (enum part_kind kind = PART_LIVE; kind < PARTS; kind++) {
        int64_t bytes = s->layout->unit[unit].part[kind].shard * p->element;
        if (bytes == 0 || s->units[unit].fresh[kind])
            continue;
        struct command c = command_make(COMMAND_GATHER, unit, -1, slot, bytes * (p->ranks - 1));
        c.name = "gather";
        c.part = (int)kind;
        command_wait(&c, here);
        command_wait(&c, gathered_at(s, unit, slot)->read);
        if (p->set.param == ZERO_DEVICE)
            command_wait(&c, published_in_memory(s, unit, kind));
        last = schedule_append(s, QUEUE_COMM, &c);
    }
    return ref_up_to(last);
}

/* Appends the gather of unit into slot (stage 3), or in place. */
static void gather(struct schedule *s, int unit, int slot)
{
    struct unit_state *u = &s->units[unit];
    struct ref *made = &gathered_at(s, unit, slot)->made;
    struct ref here = *made; /* what it goes to is still being written */
    s->gathers++;
    u->used = false;
    if (slot >= 0 && s->gather[slot].unit >= 0)
        schedule_forget(s, s->gather[slot].unit, PART_LIVE);
    if (s->plan->set.param != ZERO_DEVICE && s->layout->unit[unit].elements > 0)
        here = bring_shard(s, unit, slot);
    struct ref last = gather_parts(s, unit, slot, here);
    *made = last.sequence ? last : here; /* a part that is stale may be empty */
    u->slot = slot;
    if (slot < 0)
        u->fresh[PART_LIVE] = u->fresh[PART_FROZEN] = true;
    else
        s->gather[slot].unit = unit;
}

/* Whether unit's parameters are usable, or will be when what was appended is done. */
static bool is_here(const struct schedule *s, int unit)
{
    const struct unit_state *u = &s->units[unit];
    return s->plan->whole_params ? u->fresh[PART_LIVE] && u->fresh[PART_FROZEN] : u->slot >= 0;
}

/* The units that come next, as far ahead as slots allow without giving up what
 * is needed sooner. */
static void prefetch(struct schedule *s)
{
    const struct plan *p = s->plan;
    int ahead = p->gather_slots > 3 ? p->gather_slots - 2 : 1;
    for (int d = 0; d < ahead; d++) {
        int unit = predicted_unit(s, d);
        if (unit < 0)
            return;
        if (is_here(s, unit))
            continue;
        int slot = p->whole_params ? -1 : choose_slot(s, unit, d);
        if (slot < 0 && !p->whole_params)
            return;
        gather(s, unit, slot);
    }
}

struct ref schedule_acquire(struct schedule *s, int unit)
{
    const struct plan *p = s->plan;
    struct unit_state *u = &s->units[unit];
    s->acquires++;
    record(s, unit);
    if (p->whole_state) {
        u->acquired++;
        s->served++;
        return published_in_memory(s, unit, PART_LIVE);
    }
    bool here = is_here(s, unit);
    s->served += here && u->used;
    if (!here)
        gather(s, unit, p->whole_params ? -1 : choose_slot(s, unit, -1));
    u->acquired++;
    u->used = true;
    struct ref ref = gathered_at(s, unit, u->slot)->made;
    prefetch(s);
    return ref;
}

void schedule_release(struct schedule *s, int unit)
{
    struct unit_state *u = &s->units[unit];
    assert(u->acquired > 0);
    bool larger = u->slot >= 0 && s->plan->gather_elements[u->slot] > smallest_fit(s, unit);
    if (--u->acquired > 0)
        return;
    /* What the program's stream does with the parameters. */
    gathered_at(s, unit, u->slot)->read = schedule_mark(s);
    if (larger)
        schedule_forget(s, unit, PART_LIVE);
}

/* In a slot both parts go; whole parameters stay where they are. */
void schedule_forget(struct schedule *s, int unit, enum part_kind kind)
{
    struct unit_state *u = &s->units[unit];
    if (!u->fresh[kind] && u->slot < 0)
        return;
    s->missed += !u->used;
    u->fresh[kind] = false;
    if (u->slot >= 0)
        s->gather[u->slot].unit = -1;
    u->slot = -1;
}

/* -------------------------------------------------------------- gradients */

int schedule_grad_slot(struct schedule *s, int unit, struct ref *ready)
{
    struct unit_state *u = &s->units[unit];
    *ready = (struct ref){0};
    if (u->grad >= 0)
        return u->grad;
    int best = -1;
    for (int i = s->plan->grad_slots - 1; i >= 0; i--) {
        const struct grad_slot *g = &s->grad[i];
        if (g->held || s->plan->grad_elements[i] < s->layout->unit[unit].part[PART_LIVE].elements)
            continue;
        /* A larger slot only when the smaller ones are held. */
        bool same = best >= 0 && s->plan->grad_elements[i] == s->plan->grad_elements[best];
        if (best < 0 || (same && g->reduced.sequence < s->grad[best].reduced.sequence))
            best = i;
    }
    if (best < 0)
        return -1;
    *ready = s->grad[best].reduced;
    s->grad[best].held = true;
    u->grad = best;
    return best;
}

/* The sum over ranks, in the shard; at stage 0 then whole again. */
static struct ref reduce(struct schedule *s, int unit, struct command *c)
{
    const struct plan *p = s->plan;
    struct unit_state *u = &s->units[unit];
    int64_t shard = s->layout->unit[unit].part[PART_LIVE].shard, others = p->ranks - 1;
    bool last = c->part & 2;
    c->name = "reduce";
    command_wait(c, s->last_reduce); /* it owns the receive buffers */
    struct ref ref = s->last_reduce = schedule_append(s, QUEUE_COMM, c);
    if (!p->set.local)
        s->grad[u->grad].reduced = ref;
    if (p->whole_state && last) {
        struct command sums =
            command_make(COMMAND_GATHER_SUMS, unit, -1, u->grad, shard * others * p->grad);
        sums.name = "gather of gradient sums";
        command_wait(&sums, ref);
        ref = schedule_append(s, QUEUE_COMM, &sums);
    }
    return ref;
}

/* Each rank's own sums, reduced in the last micro-step. */
static struct ref reduce_local(struct schedule *s, int unit, struct ref filled, bool first,
                               bool last)
{
    const struct plan *p = s->plan;
    struct unit_state *u = &s->units[unit];
    const struct part *live = &s->layout->unit[unit].part[PART_LIVE];
    struct command c = command_make(COMMAND_ACCUMULATE, unit, -1, u->grad, 0);
    c.part = first;
    command_wait(&c, u->sums);
    command_wait(&c, filled);
    struct ref own = s->grad[u->grad].reduced = schedule_append(s, QUEUE_COMM, &c);
    if (!last)
        return own;
    c = command_make(COMMAND_REDUCE, unit, -1, u->grad, live->shard * (p->ranks - 1) * 4);
    c.part = 1 + 2;
    command_wait(&c, own);
    return reduce(s, unit, &c);
}

static struct ref reduce_shard(struct schedule *s, int unit, struct ref filled, bool first,
                               bool last)
{
    const struct plan *p = s->plan;
    struct unit_state *u = &s->units[unit];
    struct grad_slot *g = &s->grad[u->grad];
    const struct part *live = &s->layout->unit[unit].part[PART_LIVE];
    struct command c =
        command_make(COMMAND_REDUCE, unit, -1, u->grad, live->shard * (p->ranks - 1) * p->element);
    c.part = first + 2 * last;
    command_wait(&c, filled);
    if (p->set.grad == ZERO_DEVICE) {
        command_wait(&c, u->sums);
        return reduce(s, unit, &c);
    }
    command_wait(&c, g->summed); /* the sum slot was copied out */
    if (!first) {
        struct command in =
            command_make(COMMAND_COPY_SUM_IN, unit, -1, u->grad, live->shard * p->grad);
        command_wait(&in, g->summed);
        command_wait(&in, u->sums);
        command_wait(&c, schedule_append(s, QUEUE_TO_DEVICE, &in));
    }
    struct ref ref = reduce(s, unit, &c);
    bool whole = p->whole_state && last;
    struct command out = command_make(COMMAND_COPY_SUM_OUT, unit, -1, u->grad,
                                      (whole ? live->elements : live->shard) * p->grad);
    out.part = whole;
    command_wait(&out, ref);
    command_wait(&out, u->sums);
    return g->summed = schedule_append(s, QUEUE_TO_HOST, &out);
}

static void give_back_grads(struct schedule *s, struct unit_state *u)
{
    if (u->grad < 0)
        return;
    s->grad[u->grad].held = false;
    u->grad = -1;
}

void schedule_reduce(struct schedule *s, int unit)
{
    struct unit_state *u = &s->units[unit];
    bool first = s->micro == 0, last = s->micro == s->accumulate - 1;
    bool trains = s->layout->unit[unit].part[PART_LIVE].elements > 0;
    assert((u->grad >= 0 || !trains) && !u->reduced);
    if (s->reduces == 0) /* in later micro-steps what other walks have overwritten since */
        schedule_read_early(s);
    if (trains) {
        struct ref filled = schedule_mark(s); /* the program's stream has written the gradients */
        u->sums = s->plan->set.local ? reduce_local(s, unit, filled, first, last)
                                     : reduce_shard(s, unit, filled, first, last);
    }
    give_back_grads(s, u);
    u->reduced = true;
    if (++s->reduces == s->layout->units)
        end_micro_step(s);
}

void schedule_discard(struct schedule *s)
{
    for (int i = 0; i < s->layout->units; i++) {
        struct unit_state *u = &s->units[i];
        give_back_grads(s, u);
        u->reduced = false;
    }
    if (s->reduces > 0 || s->recorded_count > 0) { /* an unfinished micro-step predicts nothing */
        s->recorded_count = 0;
        s->position = 0;
    }
    s->reduces = 0;
    s->micro = 0;
}

bool schedule_grads_held(const struct schedule *s)
{
    bool held = false;
    for (int i = 0; i < s->plan->grad_slots; i++)
        held |= s->grad[i].held;
    return held;
}

bool schedule_step_open(const struct schedule *s)
{
    return s->reduces > 0 || s->micro > 0;
}

bool schedule_step_complete(const struct schedule *s)
{
    return s->micro == s->accumulate;
}

void schedule_next_step(struct schedule *s)
{
    s->micro = 0;
    s->step++;
    s->moved = queues_tail(s->queues, QUEUE_STATE_DISK);
}

/* ------------------------------------------------------------- small calls */

struct ref schedule_sum(struct schedule *s, const char *name, void *data, int64_t bytes)
{
    struct command c = command_make(COMMAND_SUM, -1, -1, -1, bytes);
    c.name = name;
    c.data = data;
    return schedule_append(s, QUEUE_COMM, &c);
}

struct ref schedule_broadcast(struct schedule *s, int root, void *data, int64_t bytes)
{
    struct command c = command_make(COMMAND_BROADCAST, -1, -1, -1, bytes);
    c.name = "read";
    c.part = root;
    c.data = data;
    return schedule_append(s, QUEUE_COMM, &c);
}
