// SPDX-License-Identifier: Apache-2.0
/* One rank without data: a random order for its commands, who uses what at once,
 * and the calls. What a command touches is dry_means.c's to say. */
#include "tests/support/dry.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/random.h"

#define NOTES 4096 /* commands of a queue between its first that is not done and its last */
#define TASKS 256
#define USES  256 /* of the program's stream, whose marks are at most half of it */

int dry_random(struct dry *d, int n)
{
    d->random++;
    return (int)(random_mix(d->random) % (uint64_t)n);
}

void dry_fault(struct dry *d, const struct command *c, const char *format, ...)
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

struct dry_note *dry_note_of(struct dry *d, const struct command *c)
{
    return &d->notes[c->queue][c->sequence % NOTES];
}

void command_print(FILE *out, const struct command *c)
{
    fprintf(out, "%s %llu %s", queue_name(c->queue), (unsigned long long)c->sequence,
            command_name(c->kind));
    if (c->name)
        fprintf(out, " (%s)", c->name);
    if (c->unit >= 0)
        fprintf(out, " unit %d", c->unit);
    if (c->chunk >= 0)
        fprintf(out, " chunk %lld", (long long)c->chunk);
    if (c->slot >= 0)
        fprintf(out, " slot %d", c->slot);
    fprintf(out, " bytes %lld", (long long)c->bytes);
    for (int i = 0; i < c->waits; i++)
        fprintf(out, "%s %s%s%llu", i ? "," : " after", queue_name(c->wait[i].queue),
                c->wait[i].all ? " <=" : " ", (unsigned long long)c->wait[i].sequence);
    fputc('\n', out);
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
            dry_fault(d, a->command, "%s %llu (%s) uses space %d, offset %lld too",
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
    for (int i = 0; i < USES; i++)
        clash(d, t, &d->uses[i].task);
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
    return moves && plan_chunk_in_file(&d->plan, c->chunk);
}

static void take_slot(struct dry *d, const struct command *c)
{
    bool enters = c->kind == COMMAND_STATE_READ || c->kind == COMMAND_UPDATE;
    if (owns_slot(d, c) && enters && d->landing[c->slot])
        dry_fault(d, c, "%d writes of the slot's last chunk have not landed", d->landing[c->slot]);
}

static void leave_slot(struct dry *d, const struct command *c)
{
    const struct plan *p = &d->plan;
    if (!owns_slot(d, c))
        return;
    if (c->kind == COMMAND_STATE_WRITE || c->kind == COMMAND_PARAM_WRITE)
        d->landing[c->slot]--;
    if (c->kind == COMMAND_UPDATE && c->part != WALK_LOAD && c->part != WALK_DIGEST)
        d->landing[c->slot] = 1 + (p->set.param == ZERO_NVME && plan_chunk_apart(p, c->chunk));
}

static void begin(struct dry *d, struct dry_task *t)
{
    d->asked = t;
    d->acting = false;
    dry_carry_out(d, t->command);
    take_slot(d, t->command);
    clash_with_commands(d, t);
    clash_with_caller(d, t);
}

/* An update that the queue lets start may be under way with others of its walk, or with none. */
static bool must_wait(const struct dry *d, const struct command *c)
{
    return d->updating > 0 &&
           ((enum walk_kind)c->part != d->walking || walk_alone(&d->plan, d->walking));
}

/* Updates begin in the order in which the queue started them. */
static void begin_parked(struct dry *d)
{
    for (;;) {
        struct dry_task *first = NULL;
        for (int i = 0; i < d->under_way; i++) {
            struct dry_task *t = &d->tasks[i];
            if (t->parked && (!first || t->command->sequence < first->command->sequence))
                first = t;
        }
        if (!first || must_wait(d, first->command))
            return;
        first->parked = false;
        d->updating++;
        d->walking = (enum walk_kind)first->command->part;
        begin(d, first);
    }
}

static bool start_one(struct dry *d)
{
    if (d->under_way == d->limit)
        return false;
    struct command *c = queues_dry_next(d->queues, (enum queue_id)dry_random(d, QUEUES));
    if (!c)
        return false;
    struct dry_task *t = &d->tasks[d->under_way++];
    int now = ++d->now[c->kind];
    d->most[c->kind] = now > d->most[c->kind] ? now : d->most[c->kind];
    t->command = c;
    t->count = 0;
    t->parked = c->kind == COMMAND_UPDATE;
    if (t->parked)
        begin_parked(d);
    else
        begin(d, t);
    return true;
}

/* A stream does what it was given in order. */
static bool may_complete(const struct dry *d, const struct dry_task *t)
{
    const struct command *c = t->command;
    bool ordered = c->kind == COMMAND_MARK ||
                   (c->kind == COMMAND_UPDATE && walk_on_device(&d->plan, (enum walk_kind)c->part));
    return !t->parked && (!ordered || c->sequence == d->head[c->queue] + 1);
}

static void end_uses(struct dry *d, const struct command *mark)
{
    for (int i = 0; i < USES; i++)
        if (d->uses[i].mark <= mark->sequence)
            d->uses[i].task.count = 0;
}

static bool complete_one(struct dry *d, bool slow_too)
{
    int chosen = -1, seen = 0;
    for (int i = 0; i < d->under_way; i++)
        if (may_complete(d, &d->tasks[i]) &&
            (slow_too || !(d->slow >> d->tasks[i].command->queue & 1)) &&
            dry_random(d, ++seen) == 0)
            chosen = i;
    if (chosen < 0)
        return false;
    struct dry_task *t = &d->tasks[chosen], last = d->tasks[--d->under_way];
    struct command *c = t->command;
    enum queue_id q = c->queue;
    bool update = c->kind == COMMAND_UPDATE;
    d->now[c->kind]--;
    d->acting = true;
    dry_carry_out(d, c);
    leave_slot(d, c);
    if (c->kind == COMMAND_MARK)
        end_uses(d, c);
    dry_note_of(d, c)->done = true;
    queues_dry_complete(d->queues, c);
    while (d->head[q] < d->tail[q] && d->notes[q][(d->head[q] + 1) % NOTES].done)
        d->head[q]++;
    d->tasks[d->under_way] = *t; /* its room is used again */
    d->tasks[chosen] = last;
    d->updating -= update;
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
            dry_fault(d, NULL, "nothing can start, but %s %llu is waited for",
                      queue_name(ref.queue), (unsigned long long)ref.sequence);
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
            dry_fault(d, NULL, "%s stopped at %llu of %llu", queue_name((enum queue_id)q),
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
    /* So nothing can wait in a circle, whatever the queues' order adds. */
    for (int i = 0; i < c->waits; i++)
        if (c->wait[i].sequence > d->tail[c->wait[i].queue])
            dry_fault(d, c, "it waits for what comes later");
    d->tail[c->queue] = c->sequence;
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
}

/* The caller checks, and uses until its release, what acquire promised. */
static void use_params(struct dry *d, int unit)
{
    d->asked = &d->params[unit];
    for (int acting = 0; acting < 2; acting++) {
        d->acting = acting;
        dry_carry_params(d, unit);
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

/* The caller is done with something; its stream may not be, until the next mark. */
static void leave_to_stream(struct dry *d, struct dry_task *t)
{
    int i = 0;
    while (d->tail[QUEUE_MARK] - d->head[QUEUE_MARK] > USES / 2 && act(d))
        ;
    while (d->plan.device_apart && d->uses[i].task.count)
        i++;
    if (d->plan.device_apart) {
        struct dry_task room = d->uses[i].task;
        d->uses[i] = (struct dry_use){*t, d->tail[QUEUE_MARK] + 1};
        *t = room;
    }
    t->count = 0;
}

void dry_release(struct dry *d, int unit)
{
    if (d->schedule.units[unit].acquired == 1)
        leave_to_stream(d, &d->params[unit]);
    schedule_release(&d->schedule, unit);
    drift(d);
}

bool dry_grad(struct dry *d, int unit)
{
    struct ref ready;
    bool fresh = d->schedule.units[unit].grad < 0;
    int slot = schedule_grad_slot(&d->schedule, unit, &ready);
    if (slot < 0 || !fresh)
        return slot >= 0;
    wait_for(d, ready);
    d->asked = &d->grads[unit];
    for (int acting = 0; acting < 2; acting++) {
        d->acting = acting;
        dry_carry_grads(d, unit, slot);
    }
    clash_with_commands(d, &d->grads[unit]);
    drift(d);
    return true;
}

bool dry_reduce(struct dry *d, int unit)
{
    if (d->layout.unit[unit].part[PART_LIVE].elements > 0 && !dry_grad(d, unit))
        return false;
    leave_to_stream(d, &d->grads[unit]);
    schedule_reduce(&d->schedule, unit);
    d->micro += d->schedule.reduces == 0; /* it was the last */
    drift(d);
    return true;
}

static void walk_all(struct dry *d, enum walk_kind kind)
{
    for (int u = 0; u < d->layout.units; u++) {
        d->version[u][PART_LIVE]++;
        d->version[u][PART_FROZEN] += kind == WALK_FILL;
    }
    schedule_walk(&d->schedule, kind, 0, kind == WALK_FILL ? d->plan.chunks : d->plan.live);
    memcpy(d->before, d->version, sizeof(d->before));
}

/* The engine also waits for the last walk's writes, to count their bytes; the schedule
 * must not need that. */
void dry_step(struct dry *d, bool skip)
{
    wait_for(d, d->schedule.last_reduce);
    wait_for(d, schedule_sum(&d->schedule, "zero_step", NULL, 200));
    if (!skip) {
        wait_for(d, queues_tail(d->queues, QUEUE_UPDATE));
        d->constants++;
        walk_all(d, WALK_ADAM);
    }
    schedule_next_step(&d->schedule);
    drift(d);
}

/* The engine also waits for the last reduce, which adds to the norm. */
void dry_discard(struct dry *d)
{
    for (int u = 0; u < d->layout.units; u++)
        leave_to_stream(d, &d->grads[u]);
    schedule_discard(&d->schedule);
    d->micro++; /* of what was left in slots and sums nothing may be used */
    drift(d);
}

void dry_phase(struct dry *d, enum zero_phase phase)
{
    schedule_phase(&d->schedule, phase);
}

static void walk_some(struct dry *d, enum walk_kind kind, int64_t begin, int64_t end)
{
    int64_t first = begin / d->plan.chunk, last = (end - 1) / d->plan.chunk;
    wait_for(d, schedule_walk(&d->schedule, kind, first, last + 1));
}

/* The range of a part that rank r holds, in its state order; false: nothing. */
static bool held_range(const struct dry *d, int unit, enum part_kind kind, int r, int64_t *from,
                       int64_t *to)
{
    int64_t begin = plan_part_begin(&d->plan, &d->layout, unit, kind);
    int64_t count = plan_part_count(&d->plan, &d->layout, unit, kind);
    int64_t own = d->plan.whole_state ? 0 : r * d->layout.unit[unit].part[kind].shard;
    *from = begin + (*from > own ? *from - own : 0);
    *to = begin + (*to < own + count ? *to - own : count);
    return *from < *to;
}

void dry_read(struct dry *d, int unit, enum part_kind kind, int64_t first, int64_t count)
{
    for (int r = 0; r < d->plan.ranks; r++) {
        int64_t from = first, to = first + count;
        if (!held_range(d, unit, kind, r, &from, &to))
            continue;
        if (r == d->rank || d->plan.whole_state)
            walk_some(d, WALK_LOAD, from, to);
        if (d->plan.whole_state)
            return;
        wait_for(d, schedule_broadcast(&d->schedule, r, NULL, (to - from) * 4));
    }
    drift(d);
}

void dry_read_grads(struct dry *d, int unit)
{
    struct dry_task use = {0};
    wait_for(d, queues_tail(d->queues, QUEUE_COMM));
    wait_for(d, queues_tail(d->queues, QUEUE_TO_HOST));
    d->asked = &use;
    for (int acting = 0; acting < 2; acting++) {
        d->acting = acting;
        dry_carry_sums(d, unit);
    }
    clash_with_commands(d, &use);
    free(use.access);
    for (int r = 0; r < d->plan.ranks && !d->plan.whole_state; r++)
        wait_for(d, schedule_broadcast(&d->schedule, r, NULL,
                                       4 * d->layout.unit[unit].part[PART_LIVE].shard));
    drift(d);
}

void dry_write(struct dry *d, int unit, enum part_kind kind, int owner)
{
    int64_t begin = plan_part_begin(&d->plan, &d->layout, unit, kind);
    int64_t count = plan_part_count(&d->plan, &d->layout, unit, kind);
    bool holds = owner < 0 || owner == d->rank || d->plan.whole_state;
    d->version[unit][kind] += holds;
    if (holds && count > 0)
        walk_some(d, WALK_ASSIGN, begin, begin + count);
    wait_for(d, queues_tail(d->queues, QUEUE_TO_DEVICE));
    d->before[unit][kind] = d->version[unit][kind];
    schedule_forget(&d->schedule, unit, kind);
    drift(d);
}

/* Of so few chunks: ranks meet once. */
void dry_digest(struct dry *d)
{
    walk_some(d, WALK_DIGEST, 0, d->plan.chunks * d->plan.chunk);
    wait_for(d, schedule_sum(&d->schedule, "zero_digest", NULL, 24));
}

/* -------------------------------------------------------- create, destroy */

static void make_memory(struct dry *d)
{
    const int64_t bytes[] = {d->plan.device.total, d->plan.host.total, d->plan.file.total};
    for (int s = 0; s < DRY_SPACES; s++) {
        d->tag_count[s] = bytes[s] / DRY_CELL;
        d->tags[s] = calloc((size_t)d->tag_count[s] + 1, sizeof(uint64_t));
    }
    for (int q = 0; q < QUEUES; q++)
        d->notes[q] = calloc(NOTES, sizeof(struct dry_note));
    d->tasks = calloc(TASKS, sizeof(*d->tasks));
    d->uses = calloc(USES, sizeof(*d->uses));
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
    for (int i = 0; d->uses && i < USES; i++)
        free(d->uses[i].task.access);
    free(d->uses);
    free(d->tasks);
    schedule_destroy(&d->schedule);
    queues_destroy(d->queues);
    layout_destroy(&d->layout);
}
