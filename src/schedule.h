// SPDX-License-Identifier: Apache-2.0
/*
 * Calls become commands. The schedule remembers what every slot holds and
 * which command made it so, and appends to the queues what a call needs; it
 * moves no data, waits for nothing but room in a queue, and looks at no clock. So
 * the commands are a function of the calls and the plan alone: equal on all ranks,
 * and testable without data for any number of them.
 *
 * Every dependency is a ref, named where it is added after both its sides: what
 * is about to be written and who may still be reading it, or what is about to
 * be read and who writes it.
 */
#ifndef SRC_SCHEDULE_H
#define SRC_SCHEDULE_H

#include "src/layout.h"
#include "src/plan.h"
#include "src/queue.h"

/* What an update command does with the elements of its chunk. */
enum walk_kind {
    WALK_ADAM,   /* one optimizer step */
    WALK_FILL,   /* initial values */
    WALK_ASSIGN, /* zero_write */
    WALK_LOAD,   /* zero_read */
    WALK_DIGEST,
};

/* Whether the device makes a walk's steps by itself, in order, behind the host's back. */
static inline bool walk_on_device(const struct plan *p, enum walk_kind kind)
{
    return p->device_apart && p->compute == ZERO_DEVICE && kind == WALK_ADAM;
}

/* Whether chunks come to the host and go back, as it cannot read them where they rest. */
static inline bool walk_bounces(const struct plan *p, enum walk_kind kind)
{
    return p->device_apart && p->compute == ZERO_DEVICE && kind != WALK_ADAM;
}

/* Whether chunks are under way one at a time: fills keep an order, and there is one pair of
 * buffers between host and device. */
static inline bool walk_alone(const struct plan *p, enum walk_kind kind)
{
    return kind == WALK_FILL || walk_bounces(p, kind);
}

static inline bool walk_writes(enum walk_kind kind)
{
    return kind == WALK_ADAM || kind == WALK_FILL || kind == WALK_ASSIGN;
}

/* Where a unit's whole parameters are made: a gather slot, or at stages 1 and 2 in place. */
struct gathered {
    struct ref made; /* what made them; the next gather into the place waits for that */
    struct ref read; /* what the program's stream last read of them */
};

struct gather_slot {
    int unit; /* -1: nothing usable */
    struct gathered gathered;
    struct ref copy; /* the last copy out of the slot's staging buffer */
};

struct grad_slot {
    bool held;          /* from the first zero_grad_data to the reduce */
    struct ref reduced; /* the gradients are read: the slot least recently reduced is next */
    struct ref summed;  /* the sum slot is read */
};

struct chunk_slot {
    struct ref fetch, update, publish; /* of the last chunk that passed through */
    struct ref read, used, write;      /* of the last one in the file: its record */
};

struct unit_state {
    int64_t acquired;         /* how often, now */
    int slot;                 /* gather slot that holds it, or -1 */
    bool used;                /* acquired since it was gathered */
    bool fresh[PARTS];        /* whole parameters (stages 0-2) are those after the last update */
    struct gathered gathered; /* stages 1-2 */
    bool reduced;             /* in this micro-step */
    int grad;                 /* gradient slot held, or -1 */
    struct ref sums;          /* who used its gradient sums last: a reduction, or an update */
};

struct schedule {
    const struct plan *plan;
    const struct layout *layout;
    struct queues *queues;
    void (*mark)(void *arg, int slot); /* makes the mark, 0 .. QUEUE_MARKS, that is appended then */
    void *mark_arg;

    struct unit_state *units;
    struct gather_slot gather[PLAN_SLOTS_MAX];
    struct grad_slot grad[PLAN_SLOTS_MAX];
    struct chunk_slot chunk[PLAN_SLOTS_MAX];
    struct ref *published;    /* per chunk: what made its parameters readable */
    struct segment *segments; /* parameters on NVMe: of all units, one after the other, */
    int *segments_begin;      /* (units + 1) where each unit's begin */
    uint64_t marks;           /* so far */
    struct ref last_reduce;   /* owner of the receive buffers */

    uint64_t calls; /* a hash of all collective calls so far */
    int64_t step;   /* zero_step calls done */
    enum zero_phase phase;
    int accumulate, micro; /* micro-steps a step, done */
    int reduces;           /* in this micro-step */
    int64_t early;    /* those of chunks [0, early) in the file were read ahead of the verdict */
    struct ref moved; /* the last step's last transfer of state */

    /* The acquires of the last micro-step predict those of this one. */
    int *predicted, *recorded;
    int predicted_count, recorded_count, order_max;
    int position; /* of the next acquire in predicted; -1: lost until the next micro-step */

    int64_t acquires, gathers, served, missed;
};

int schedule_create(struct schedule *s, const struct plan *plan, const struct layout *layout,
                    struct queues *queues, struct error *error);
void schedule_destroy(struct schedule *s);

/* Appends c as part of the call under way. */
struct ref schedule_append(struct schedule *s, enum queue_id queue, struct command *c);

/* A unit's segments, n of them; constant. */
static inline const struct segment *schedule_segments(const struct schedule *s, int unit, int *n)
{
    *n = s->segments_begin[unit + 1] - s->segments_begin[unit];
    return s->segments + s->segments_begin[unit];
}

/* Mixes a public call and what its ranks must agree on into the hash that all
 * further messages carry. */
void schedule_call(struct schedule *s, const char *name, int64_t a, int64_t b);

/* Each schedule_ call has been checked by its caller in zero.c. */
void schedule_phase(struct schedule *s, enum zero_phase phase);

/* What the program's stream was given so far, as release and reduce append it; where the
 * device is not apart that is done. */
struct ref schedule_mark(struct schedule *s);

/* Whether unit can be acquired: a slot for it is or can be made free. */
bool schedule_can_acquire(const struct schedule *s, int unit);
/* Returns what to wait for before the parameters are usable. */
struct ref schedule_acquire(struct schedule *s, int unit);
void schedule_release(struct schedule *s, int unit);

/* The gradient slot for unit, or -1 when all hold units that were not reduced;
 * *ready is what to wait for before it may be zeroed. */
int schedule_grad_slot(struct schedule *s, int unit, struct ref *ready);
/* The unit has a gradient slot, or nothing to train. */
void schedule_reduce(struct schedule *s, int unit);
/* Forgets the step's micro-steps and gradients. */
void schedule_discard(struct schedule *s);
bool schedule_grads_held(const struct schedule *s);    /* of a unit that is not reduced yet */
bool schedule_step_open(const struct schedule *s);     /* between first reduce and step */
bool schedule_step_complete(const struct schedule *s); /* all micro-steps are reduced */

/* Integers over all ranks. */
struct ref schedule_sum(struct schedule *s, const char *name, void *data, int64_t bytes);
struct ref schedule_broadcast(struct schedule *s, int root, void *data, int64_t bytes);

/* In walk.c: reads the first records of the next ADAM walk while backward still runs. */
void schedule_read_early(struct schedule *s);
/* Passes chunks [first, last) through the update; returns all updates up to the last. ADAM
 * takes all trainable chunks, FILL all; both make every copy of what they change
 * stale. */
struct ref schedule_walk(struct schedule *s, enum walk_kind kind, int64_t first, int64_t last);

/* Copies of a part of a unit's parameters are stale. */
void schedule_forget(struct schedule *s, int unit, enum part_kind kind);

/* After the verdict: the next micro-step is the first of a step. */
void schedule_next_step(struct schedule *s);

#endif
