// SPDX-License-Identifier: Apache-2.0
/*
 * One rank without data: plan, layout, queues and schedule are the engine's,
 * what carries commands out is not. It starts and completes whatever may be,
 * in a random order, and keeps for every 128 bytes of device memory, host
 * memory and file a tag that says what would lie there. It notes a fault when
 * a command starts while another, or the caller, uses the same bytes (and one
 * of them writes), and when something is used that is not what the calls mean:
 * parameters of another step, sums without this micro-step, a record unread.
 *
 * What a command touches is derived from the command and the plan. What it
 * waits for is the schedule's affair and is never looked at here.
 */
#ifndef TESTS_SUPPORT_DRY_H
#define TESTS_SUPPORT_DRY_H

#include <stdio.h>

#include "src/schedule.h"

#define DRY_UNITS_MAX 8

enum dry_space { DRY_DEVICE, DRY_HOST, DRY_FILE, DRY_SPACES };

struct dry_address {
    enum dry_space space;
    int64_t offset;
};

struct dry_access {
    struct dry_address at;
    int64_t bytes;
    bool write;
};

/* A command under way, or what the caller uses between two of its calls. */
struct dry_task {
    struct command *command; /* NULL: the caller */
    bool parked;             /* an update that others must be done before */
    struct dry_access *access;
    int count, room;
};

/* What the program's stream was given and may still use, until a mark is done. */
struct dry_use {
    struct dry_task task;
    uint64_t mark;
};

/* What a command means, taken down when it is appended. */
struct dry_note {
    bool done;
    int64_t micro;     /* micro-steps completed before it */
    int64_t constants; /* of Adam */
    /* of units' parts, before and after the walk */
    int32_t before[DRY_UNITS_MAX][PARTS], version[DRY_UNITS_MAX][PARTS];
};

struct dry {
    struct settings set;
    struct layout layout;
    struct plan plan;
    struct queues *queues;
    struct schedule schedule;
    int rank;
    struct error error;

    /* the order of things */
    uint64_t random;
    unsigned slow; /* queues whose commands take longest, one bit each */
    int limit;     /* of commands under way */
    int eager;     /* in 100: how often starting comes before completing */
    int drift;     /* at most so many starts and completions behind each call */
    struct dry_task *tasks;
    int under_way;
    int updating;           /* updates under way and not parked, */
    enum walk_kind walking; /* of this kind of walk */
    struct dry_note *notes[QUEUES];
    uint64_t head[QUEUES], tail[QUEUES]; /* all done up to here; appended */

    /* what is where */
    uint64_t *tags[DRY_SPACES];
    int64_t tag_count[DRY_SPACES];
    int landing[PLAN_SLOTS_MAX]; /* writes that a chunk slot's owner in the file still owes */
    struct dry_task params[DRY_UNITS_MAX], grads[DRY_UNITS_MAX]; /* the caller's */
    struct dry_use *uses;                                        /* of a device that is apart */
    bool acting; /* commands are carried out, not only asked what they touch */
    struct dry_task *asked;

    /* what the calls mean */
    int64_t micro, constants;
    int32_t before[DRY_UNITS_MAX][PARTS], version[DRY_UNITS_MAX][PARTS];

    /* what was seen */
    uint64_t text;        /* hash of all commands as text */
    uint64_t collectives; /* of kind, unit and bytes of those in QUEUE_COMM */
    int64_t bytes[COMMANDS];
    int now[COMMANDS], most[COMMANDS]; /* of a kind under way, and ever at once */
    char fault[600];                   /* the first; "": none */
};

/* A command as a line of text. */
void command_print(FILE *out, const struct command *c);

/* The engine's zero_create on one of ranks ranks; random: the order of things. */
int dry_create(struct dry *d, const struct zero_param *params, int count,
               const struct zero_config *config, int ranks, int rank, uint64_t random);
void dry_destroy(struct dry *d);

/* The public calls, as src/zero.c makes them of the schedule. False: refused. */
bool dry_acquire(struct dry *d, int unit);
void dry_release(struct dry *d, int unit);
bool dry_grad(struct dry *d, int unit);
bool dry_reduce(struct dry *d, int unit);
void dry_step(struct dry *d, bool skip);
void dry_discard(struct dry *d);
void dry_phase(struct dry *d, enum zero_phase phase);
/* Elements of a unit's part. */
void dry_read(struct dry *d, int unit, enum part_kind kind, int64_t first, int64_t count);
void dry_read_grads(struct dry *d, int unit); /* after a step's last reduce, or the step */
/* What rank owner has of it; -1: all. */
void dry_write(struct dry *d, int unit, enum part_kind kind, int owner);
void dry_digest(struct dry *d);

/* Carries out all that was appended; a fault when that cannot be. */
void dry_finish(struct dry *d);

/* A number below n. */
int dry_random(struct dry *d, int n);

/* ------------------------------------ between dry.c and dry_means.c, its other half */

#define DRY_CELL 128 /* bytes under one tag: 64 elements of 2 bytes */

/* Keeps the first. c may be NULL. */
void dry_fault(struct dry *d, const struct command *c, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

struct dry_note *dry_note_of(struct dry *d, const struct command *c);

/* Carries out c, or the caller's use of a unit's parameters, gradient slot or sums; or,
 * unless d->acting, adds to d->asked what that touches. */
void dry_carry_out(struct dry *d, const struct command *c);
void dry_carry_params(struct dry *d, int unit);
void dry_carry_grads(struct dry *d, int unit, int slot);
void dry_carry_sums(struct dry *d, int unit);

#endif
