// SPDX-License-Identifier: Apache-2.0
/*
 * Commands and the lines they stand in.
 *
 * Who owns what: the calling thread appends commands; one engine thread starts
 * and completes them through struct queue_ops. A command stays where it is
 * until it and all before it in its queue are done.
 *
 * What order is guaranteed: a queue starts its commands in the order they were
 * appended, each when everything it waits for is done; several may be under
 * way. Nothing else decides: not time, not which queue was faster.
 *
 * What shutdown does: queues_stop ends the thread between two commands; what
 * is under way is the owner's to wait for. The first failure ends the thread
 * too: nothing is started or looked at any more, and every wait returns it.
 */
#ifndef SRC_QUEUE_H
#define SRC_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "src/error.h"

enum queue_id {
    QUEUE_COMM,
    QUEUE_PARAM_DISK, /* parameters on their way to a gather */
    QUEUE_STATE_DISK, /* the update's records, read and written */
    QUEUE_UPDATE,
    QUEUE_TO_DEVICE, /* copies from host to device memory */
    QUEUE_TO_HOST,
    QUEUE_MARK, /* not the engine's own work: places in the program's stream */
    QUEUES,
};

#define QUEUE_MARKS 256 /* appended and not done, at most: then an append waits */

/* A command, for those who wait for it; all: and every one before it in its
 * queue. sequence 0: nothing to wait for. Small, because commands hold many. */
struct ref {
    uint64_t sequence : 60;
    uint64_t queue : 3; /* enum queue_id */
    uint64_t all : 1;
};

/* ref, and every command before it in its queue. */
static inline struct ref ref_up_to(struct ref ref)
{
    ref.all = true;
    return ref;
}

enum command_kind {
    /* QUEUE_COMM */
    COMMAND_GATHER,      /* a unit's parameters, from all ranks */
    COMMAND_ACCUMULATE,  /* a unit's gradients into this rank's own sums (ZERO_LOCAL) */
    COMMAND_REDUCE,      /* a unit's gradients: the ordered sum of this rank's shard */
    COMMAND_GATHER_SUMS, /* stage 0: a unit's gradient sums, from all ranks */
    COMMAND_SUM,         /* integers over all ranks: verdict, mean, digest */
    COMMAND_BROADCAST,   /* bytes from one rank */
    COMMAND_EXCHANGE,    /* bytes from every rank, at creation and end */
    /* disks */
    COMMAND_PARAM_READ, /* one segment of a unit's shard into its staging slot */
    COMMAND_STATE_READ,
    COMMAND_STATE_WRITE,
    COMMAND_PARAM_WRITE, /* a chunk's new parameters */
    COMMAND_PARAM_FETCH, /* a chunk's parameters, for its update */
    /* QUEUE_UPDATE */
    COMMAND_UPDATE,
    /* copies */
    COMMAND_COPY_PARAM,   /* a unit's shard into its gather slot */
    COMMAND_COPY_SUM_IN,  /* a unit's sums so far to the device */
    COMMAND_COPY_SUM_OUT, /* and back to their resting place in host memory */
    COMMAND_COPY_GRAD,    /* a chunk's gradient sums to where Adam runs */
    COMMAND_COPY_FETCH,   /* a chunk's parameters to where Adam runs */
    COMMAND_COPY_PUBLISH, /* a chunk's new parameters to where they rest */
    /* QUEUE_MARK */
    COMMAND_MARK, /* what the program's stream was given before */
    COMMANDS,
};

#define COMMAND_WAITS 10

struct command {
    enum command_kind kind;
    int unit;      /* -1: none */
    int64_t chunk; /* -1: none */
    int slot;      /* -1: none */
    int64_t bytes; /* moved, as planned */
    /* What a kind needs beside these: */
    int part;         /* PARAM_READ: segment. GATHER: enum part_kind. ACCUMULATE, REDUCE: bit 0
                         first, bit 1 last micro-step. COPY_SUM_OUT: 1: the whole unit.
                         UPDATE: enum walk_kind. BROADCAST: root */
    int64_t step;     /* that asked for it */
    void *data;       /* SUM, BROADCAST, EXCHANGE: the caller's */
    const char *name; /* of the call, in messages */
    uint64_t arguments;

    struct ref wait[COMMAND_WAITS];
    int waits;

    /* the queue's own */
    enum queue_id queue;
    uint64_t sequence;
    bool done;
    /* the executor's own */
    int resource; /* of those between ranks: the operation; of copies: how many */
    double started;
};

/* Of what every command has; the rest is zero. */
static inline struct command command_make(enum command_kind kind, int unit, int64_t chunk, int slot,
                                          int64_t bytes)
{
    return (struct command){
        .kind = kind, .unit = unit, .chunk = chunk, .slot = slot, .bytes = bytes};
}

struct queues;

struct queue_ops {
    /* Whether the command can be started now (a resource may be taken: then it is asked again). */
    bool (*ready)(void *arg, const struct command *c);
    int (*start)(void *arg, struct command *c, struct error *error);
    int (*test)(void *arg, struct command *c, bool *done, struct error *error);
    /* Called before commands are tested, while any is under way. */
    void (*poll)(void *arg);
    /* Called once, by the engine thread, on the first failure and before waits
     * return it: ends what touches memory that is not the engine's own. */
    void (*failed)(void *arg);
};

/* With room for a walk over so many chunks: one over more waits for room as it is appended. */
int queues_create(struct queues **queues, int64_t chunks, struct error *error);

/* Starts the engine thread. */
int queues_start(struct queues *queues, const struct queue_ops *ops, void *arg,
                 struct error *error);
/* Ends the engine thread; with drain, once everything appended is done, has
 * failed, or seconds have passed. */
void queues_stop(struct queues *queues, bool drain, int seconds);
void queues_destroy(struct queues *queues);

/* An eventfd that wakes the engine thread. */
int queues_event(const struct queues *queues);

/* Appends a copy of command; blocks only while the queue is full. */
struct ref queues_append(struct queues *queues, enum queue_id queue, const struct command *command);

/* Adds a wait to a command under construction. */
void command_wait(struct command *command, struct ref ref);

/* Waits until ref is done. The first failure's status, and its sentence in error. */
int queues_wait(struct queues *queues, struct ref ref, struct error *error);
int queues_status(struct queues *queues,
                  struct error *error); /* of the first failure; no waiting */

/* The last command appended to a queue, and all before it. */
struct ref queues_tail(const struct queues *queues, enum queue_id queue);

double queues_waited(const struct queues *queues);   /* seconds spent in appends and waits */
bool queues_waited_for(const struct queues *queues); /* now; any thread may ask */

/* Every append is reported to observe from now on, in order (tests, traces). */
void queues_observe(struct queues *queues, void (*observe)(void *arg, const struct command *c),
                    void *arg);

/* Runs without a thread, for tests: the next command that may start, oldest
 * queue first from queue 'from' on, or NULL; and its completion. */
struct command *queues_dry_next(struct queues *queues, enum queue_id from);
void queues_dry_complete(struct queues *queues, struct command *command);

const char *queue_name(enum queue_id queue);
const char *command_name(enum command_kind kind);

#endif
