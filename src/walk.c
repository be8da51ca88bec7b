// SPDX-License-Identifier: Apache-2.0
/* The update becomes commands: a walk in which chunk after chunk is read, changed and
 * written. Chunks share slots: most of what is here says who must be gone before the next
 * one comes. Moves no data, and waits for nothing but room in a queue. */
#include "src/schedule.h"

#include <assert.h>

/* A walk under construction. What its first update waits for: whoever may still
 * read parameters that change, and the sums it uses. */
struct walk {
    enum walk_kind kind;
    struct ref marked;  /* what the program's stream reads and writes */
    struct ref reduced; /* gathers, with the reads and copies before them, and reductions */
    struct ref summed;  /* sums copied to host memory */
    struct ref last;    /* the last update appended */
};

/* How many chunks before c are in the file, or frozen. */
static int64_t chunks_far(const struct plan *p, int64_t c)
{
    return c - plan_chunks_near(p, c);
}

/* Chunks in the file pass through a slot; so do those in memory when gradients or
 * parameters must. Each takes the same slot in every walk: a chunk is read behind
 * its last write. The first in the file, which are read early, have slots of their own; the
 * others take turns in a window of them. -1: none. */
static int slot_of(const struct plan *p, int64_t c)
{
    int64_t far = chunks_far(p, c);
    assert(p->chunk_window <= p->chunk_slots);
    if (!plan_chunk_slotted(p, c))
        return -1;
    if (plan_chunk_near(p, c))
        return (int)(plan_chunks_near(p, c) % p->chunk_slots);
    return (int)(far < p->chunk_slots ? far : (far - p->chunk_slots) % p->chunk_window);
}

/* Those of chunks [c, that) that are in the file have slots of their own each; at most last. */
static int64_t slots_end(const struct plan *p, int64_t c, int64_t last)
{
    int64_t far = chunks_far(p, c), end = c;
    far = far < p->chunk_slots ? p->chunk_slots : far + p->chunk_window;
    while (end < last && chunks_far(p, end + 1) <= far)
        end++;
    return end;
}

static void read_chunk(struct schedule *s, int64_t c)
{
    struct command read =
        command_make(COMMAND_STATE_READ, -1, c, slot_of(s->plan, c), plan_record(s->plan, c).bytes);
    struct chunk_slot *slot = &s->chunk[read.slot];
    command_wait(&read, slot->read);  /* in vain: the step was skipped */
    command_wait(&read, slot->used);  /* the last record was, and its parameters are gone, */
    command_wait(&read, slot->write); /* and it was written: the slot changes hands */
    slot->read = schedule_append(s, QUEUE_STATE_DISK, &read);
}

/* Reads the records of chunks [c, end). Returns the first chunk whose record is not on its way. */
static int64_t read_ahead(struct schedule *s, int64_t c, int64_t end)
{
    for (; c < end; c++)
        if (plan_chunk_in_file(s->plan, c))
            read_chunk(s, c);
    return c;
}

void schedule_read_early(struct schedule *s)
{
    s->early = read_ahead(s, s->early, slots_end(s->plan, 0, s->plan->live));
}

/* A chunk's parameters to where Adam runs, where they are half of the master or
 * the chunk is frozen. */
static void fetch_chunk(struct schedule *s, int64_t c)
{
    const struct plan *p = s->plan;
    struct chunk_slot *slot = &s->chunk[slot_of(p, c)];
    bool device = p->compute == ZERO_DEVICE;
    struct ref from = s->published[c];
    if (p->set.param == ZERO_NVME) {
        struct command read =
            command_make(COMMAND_PARAM_FETCH, -1, c, slot_of(p, c), plan_param_bytes(p, c));
        command_wait(&read, from);          /* they are in the file */
        command_wait(&read, slot->update);  /* the slot's last parameters were used, */
        command_wait(&read, slot->publish); /* and are gone */
        from = slot->fetch = schedule_append(s, QUEUE_STATE_DISK, &read);
        if (!p->slot_via_host)
            return;
    }
    struct command copy =
        command_make(COMMAND_COPY_FETCH, -1, c, slot_of(p, c), plan_chunk_count(p, c) * p->element);
    command_wait(&copy, from);          /* they are where they rest, or in the bounce buffer */
    command_wait(&copy, slot->update);  /* the slot's last parameters were used, */
    command_wait(&copy, slot->publish); /* and are gone */
    slot->fetch = schedule_append(s, device ? QUEUE_TO_DEVICE : QUEUE_TO_HOST, &copy);
}

/* A chunk's gradient sums to where Adam runs. */
static struct ref copy_grad(struct schedule *s, int64_t c, int slot, const struct walk *w)
{
    const struct plan *p = s->plan;
    struct command copy =
        command_make(COMMAND_COPY_GRAD, -1, c, slot, plan_chunk_count(p, c) * p->grad);
    command_wait(&copy, s->chunk[slot].update); /* the last gradients were used */
    command_wait(&copy, w->reduced);
    command_wait(&copy, w->summed);
    return schedule_append(s, p->compute == ZERO_DEVICE ? QUEUE_TO_DEVICE : QUEUE_TO_HOST, &copy);
}

/* New parameters on their way from where Adam ran to where they rest. */
static struct ref publish(struct schedule *s, int64_t c, int slot, struct ref ref)
{
    const struct plan *p = s->plan;
    int64_t bytes = plan_chunk_count(p, c) * p->element;
    bool device = p->compute == ZERO_DEVICE;
    if (device || p->set.param == ZERO_DEVICE) {
        struct command copy = command_make(COMMAND_COPY_PUBLISH, -1, c, slot, bytes);
        command_wait(&copy, ref);
        ref = schedule_append(s, device ? QUEUE_TO_HOST : QUEUE_TO_DEVICE, &copy);
    }
    if (p->set.param == ZERO_NVME) {
        struct command write =
            command_make(COMMAND_PARAM_WRITE, -1, c, slot, plan_param_bytes(p, c));
        command_wait(&write, ref);
        ref = schedule_append(s, QUEUE_STATE_DISK, &write);
    }
    return ref;
}

/* Whether a chunk of a walk's has its slot to itself: nobody waits for its record to be written
 * but those who want parameters that are in it. */
static bool alone_in_slot(const struct plan *p, int64_t c)
{
    int64_t far = chunks_far(p, c);
    return !p->shared && far >= p->chunk_window && far < p->chunk_slots;
}

static void write_record(struct schedule *s, int64_t c, int slot, struct ref done)
{
    struct command write =
        command_make(COMMAND_STATE_WRITE, -1, c, slot, plan_record(s->plan, c).bytes);
    command_wait(&write, done);
    s->chunk[slot].write = schedule_append(s, QUEUE_STATE_DISK, &write);
}

static void write_chunk(struct schedule *s, int64_t c, int slot, struct ref done)
{
    const struct plan *p = s->plan;
    s->published[c] = done;
    if (plan_chunk_in_file(p, c) && !alone_in_slot(p, c)) {
        write_record(s, c, slot, done);
        if (p->shared)
            s->published[c] = s->chunk[slot].write;
    }
    if (p->slot_param && plan_chunk_apart(p, c))
        s->published[c] = s->chunk[slot].publish = publish(s, c, slot, done);
}

/* Records that can wait are written behind those that others wait for. */
static void write_alone(struct schedule *s, int64_t first, int64_t last)
{
    const struct plan *p = s->plan;
    for (int64_t c = first; c < last && chunks_far(p, c) < p->chunk_slots; c++)
        if (plan_chunk_in_file(p, c) && alone_in_slot(p, c))
            write_record(s, c, slot_of(p, c), s->chunk[slot_of(p, c)].used);
}

static void walk_chunk(struct schedule *s, struct walk *w, int64_t c)
{
    int slot = slot_of(s->plan, c);
    struct chunk_slot none = {0}, *own = slot < 0 ? &none : &s->chunk[slot];
    bool file = plan_chunk_in_file(s->plan, c);
    struct command update =
        command_make(COMMAND_UPDATE, -1, c, slot, plan_chunk_count(s->plan, c) * 4);
    update.part = (int)w->kind;
    if (!w->last.sequence) { /* the queue is in order: the first waits for all */
        command_wait(&update, w->reduced);
        command_wait(&update, w->summed);
        command_wait(&update, w->marked);
    }
    command_wait(&update, own->publish); /* the parameters of the chunk before are gone */
    command_wait(&update, own->fetch);   /* this chunk's are here, if it needs them */
    if (file) {
        command_wait(&update, own->read);
        command_wait(&update, own->write); /* so is its record, if none was read */
    }
    if (slot >= 0 && w->kind == WALK_ADAM && s->plan->slot_grad)
        command_wait(&update, copy_grad(s, c, slot, w));
    w->last = schedule_append(s, QUEUE_UPDATE, &update);
    own->update = w->last;
    own->fetch = own->publish = (struct ref){0};
    if (file) /* a chunk in memory leaves alone the record that was read ahead */
        own->read = own->write = (struct ref){0};
    if (walk_writes(w->kind))
        write_chunk(s, c, slot, w->last);
    if (file)
        own->used = own->publish.sequence ? own->publish : own->update;
}

/* Of chunks from c on, up to where there are as many in memory (near), or as many of the others,
 * as the window has slots. */
static int64_t batch_end(const struct plan *p, int64_t c, int64_t last, bool near)
{
    for (int taken = 0; c < last && (taken < p->chunk_window || !p->chunk_window); c++)
        taken += plan_chunk_near(p, c) == near;
    return c;
}

/* Those of chunks [first, end) that are in memory (near), or the others. What they need from
 * elsewhere comes first; records before chunk read are on their way. */
static void walk_batch(struct schedule *s, struct walk *w, int64_t first, int64_t end, bool near,
                       int64_t read)
{
    const struct plan *p = s->plan;
    for (int64_t c = first; c < end && w->kind != WALK_FILL; c++) {
        if (plan_chunk_near(p, c) != near)
            continue;
        if (plan_chunk_in_file(p, c) && c >= read)
            read_chunk(s, c);
        if (plan_chunk_fetched(p, c))
            fetch_chunk(s, c);
    }
    for (int64_t c = first; c < end; c++)
        if (plan_chunk_near(p, c) == near)
            walk_chunk(s, w, c);
}

/*
 * Chunks pass in batches as large as the window of slots: all of a batch is written
 * before the next is read, so that as many transfers are under way as there are
 * slots in it although the queue starts them in order. Those in memory go before the batch
 * they lie in: they are updated while the last one is written and this one is read.
 */
struct ref schedule_walk(struct schedule *s, enum walk_kind kind, int64_t first, int64_t last)
{
    const struct plan *p = s->plan;
    struct walk w = {.kind = kind,
                     .marked = queues_tail(s->queues, QUEUE_MARK),
                     .reduced = queues_tail(s->queues, QUEUE_COMM),
                     .summed = queues_tail(s->queues, QUEUE_TO_HOST)};
    int64_t read = kind == WALK_FILL ? last : kind == WALK_ADAM ? s->early : first;
    read = read_ahead(s, read, slots_end(p, first, last));
    s->early = 0;
    for (int64_t c = first, end; c < last; c = end) {
        end = batch_end(p, c, last, false);
        bool mixed = plan_chunks_near(p, end) > plan_chunks_near(p, c);
        if (mixed) /* a queue starts in order: ahead of parameters of chunks in memory */
            read = read_ahead(s, read > c ? read : c, end);
        for (int64_t near = c, next; near < end; near = next) {
            next = batch_end(p, near, end, true);
            walk_batch(s, &w, near, next, true, read);
        }
        walk_batch(s, &w, c, end, false, read);
    }
    if (walk_writes(kind))
        write_alone(s, first, last);
    for (int u = 0; (kind == WALK_ADAM || kind == WALK_FILL) && u < s->layout->units; u++) {
        s->units[u].sums = ref_up_to(w.last);
        if (s->layout->unit[u].part[PART_LIVE].elements > 0)
            schedule_forget(s, u, PART_LIVE);
        if (kind == WALK_FILL)
            schedule_forget(s, u, PART_FROZEN);
    }
    return ref_up_to(w.last);
}
