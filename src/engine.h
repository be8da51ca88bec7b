// SPDX-License-Identifier: Apache-2.0
/*
 * The engine: everything one rank owns, in one struct.
 *
 * Who owns what: the calling thread owns the schedule and everything under
 * "the caller's"; the engine thread (src/queue.h) owns what commands touch
 * between their start and their completion: communicator, ring, device copies,
 * update. They meet in the queues alone: what a caller reads after
 * queues_wait, a command wrote before it was done, and nothing else writes.
 *
 * What shutdown does, in this order: the ranks meet and queues drain (not a failed engine's);
 * the thread ends; NCCL, which moves the device's memory, the pool, the ring and the device end
 * what they do; then the engine's own MPI; then memory is freed. None of it waits for another rank
 * after a failure.
 */
#ifndef SRC_ENGINE_H
#define SRC_ENGINE_H

#include <sched.h>
#include <stdio.h>

#include "kernels/kernels.h"
#include "offload/arena.h"
#include "offload/numa.h"
#include "offload/pipeline.h"
#include "offload/preflight.h"
#include "offload/probe.h"
#include "src/clock.h"
#include "src/config.h"
#include "src/device/device.h"
#include "src/layout.h"
#include "src/norm.h"
#include "src/plan.h"
#include "src/pool.h"
#include "src/scaler.h"
#include "src/schedule.h"

/* Replacements for what the engine makes itself, for tests, as long as it lives. NULL: the
 * real one. */
struct engine_seams {
    int (*device)(struct device **device, const struct device_options *options,
                  struct error *error);
    int (*link)(struct device_link *link, struct error *error);
    int (*ring)(void *arg, struct ring **ring, const struct ring_options *options,
                struct error *error);
    void *ring_arg;
    void (*observe)(void *arg, const struct command *c); /* every command appended */
    void *observe_arg;
    double (*seconds)(void); /* the clock of deadlines between ranks */
    bool hasty;              /* no pause before a transfer's last attempt */
};

/* A chunk under way: a job of the pool, or a step of the device's own. */
struct chunk_job {
    struct zero *engine;
    enum job_state { JOB_FREE, JOB_IN, JOB_RUNS, JOB_OUT } state;
    enum walk_kind kind;
    int64_t chunk;
    int slot;
    int64_t task;            /* elements of one */
    bool failed;             /* a fill, in one task of several: atomic */
    int64_t number;          /* the pool's */
    struct device_copy mark; /* behind a step of the device's own */
};

/* What an update walk works with. */
struct update {
    /* constant while one is under way */
    struct adam *adam; /* per group, for tensors with decay; grad_scale included */
    /* ASSIGN and LOAD: elements of one tensor, from or to the caller's memory */
    enum zero_what what;
    struct run range;
    const float *in;
    float *out;
    /* what it comes to */
    struct zero_digest digest;
    struct error error; /* of a fill */
    bool refused;       /* there is one, the engine thread knows */
    /* chunks under way */
    struct chunk_job job[POOL_JOBS];
    int jobs;            /* not free */
    enum walk_kind kind; /* theirs */
    int bounces;         /* copies that take one to the host or back */
};

#define RETRIES_NOTED 16 /* sentences that wait for the caller's next wait */

/* Transfers that were tried again: the engine thread's notes for the caller's log. */
struct retries {
    int64_t noted, lost;     /* the engine thread's */
    int64_t told, lost_told; /* the caller's */
    char text[RETRIES_NOTED][sizeof(((struct error *)0)->text)];
};

#define STEPS_KEPT 4 /* steps whose bytes are told apart: three are asked for or under way */

/* What a queue has done. */
struct lane {
    int under_way; /* the engine thread's, as is the next */
    double since;  /* when the time under way that is not counted yet began */
    int64_t bytes, busy_ns;
};

/* A collective under way and what its sums go to: src/collective.c. */
struct operation {
    struct zero_collective collective;
    enum operation_state { OPERATION_FREE, OPERATION_OUT, OPERATION_MOVES, OPERATION_IN } state;
    struct zero *engine;
    char *sum;
    bool fresh, last;
    bool added; /* a REDUCE, by the communicator */
    int relay;  /* that it passes through, or -1 */
    char *data; /* then: where in device memory */
    struct device_copy copies[2];
};

#define ENGINE_TABLES  14
#define ENGINE_PASSING (1 << 18) /* elements that ranks read at once of what one of them has */

struct zero {
    struct error error;
    struct error failure; /* for good, found by the caller's thread */
    struct layout layout;
    struct plan plan;
    pid_t process; /* that made it: a fork of it has no threads */
    int rank, size;
    int threads;
    struct queues *queues;
    struct schedule schedule;
    const struct kernels *kernels;

    /* what the engine thread works with */
    struct zero_comm *comm;
    struct zero_comm *control; /* that comm is made over, or NULL */
    bool owns_comm;            /* the one that is not made over another */
    struct device_link link;   /* to GPUs of other ranks */
    bool linked;               /* what ranks have chosen: it is used */
    struct operation operations[ZERO_COLLECTIVES];
    struct patience with_ranks, with_disk;
    uint64_t oldest;    /* collective's command that ranks are waited for in; 0: it is done */
    int deadline;       /* zero_set_deadline's, from any thread; 0: the configuration's */
    const void **parts; /* room for one pointer per rank */
    struct device *device;
    char *device_memory;
    struct arena arena;
    struct spill_paths paths;
    struct probe probe; /* of paths together */
    struct spill spill;
    struct pipeline pipeline;
    struct transfer *param_reads;           /* per gather slot and segment */
    struct device_copy *param_copies;       /* likewise; elsewhere than NVMe, and part */
    int segments_max;                       /* of either */
    struct device_copy *chunk_param_copies; /* per chunk slot and unit */
    struct device_copy *chunk_grad_copies;  /* likewise */
    struct device_copy *sum_copies;         /* per gradient slot: in, out */
    struct device_copy *marks;              /* of the program's stream, in turn */
    struct device_copy *bounce_copies;      /* per unit, and one more */
    struct pool *pool;
    struct run *runs;
    int run_count;
    struct update update;
    /* counters, read by zero_stats at any time */
    int64_t sent_bytes, to_device_bytes, to_host_bytes;
    struct zero_io io, step_io[STEPS_KEPT]; /* the latter by step */
    struct retries retries;
    struct lane lanes[QUEUES], files; /* files: of both that move them */
    zero_trace_fn *trace;
    void *trace_arg;

    /* the caller's */
    zero_log_fn *log;
    void *log_arg;
    enum zero_log_level log_level;
    bool muted;                   /* by default rank 0 speaks for all */
    char (*node)[PREFLIGHT_NODE]; /* name of each rank's; NULL where all have one name */
    bool echoes;                  /* another rank warns of this one's node and folders */
    struct error unprobed;        /* why ZERO_PROBE=1 was in vain, until it is told */
    struct zero_adam *adam;       /* per group; eps 0: not set */
    double clip;
    struct scaler scaler;
    uint32_t votes;
    double grads_divisor; /* the sums at rest, divided by it, are mean gradients */
    bool grads_whole;     /* between steps: the sums at rest are the last step's */
    int64_t steps;        /* performed, by engines before this one too */
    int64_t skipped;      /* by this one */
    int64_t settled;      /* chunks for whose last change the ranks have met, or all live ones */
    int64_t *verdict;     /* room for one; other sums of the caller's go through it too, as it stays
                         where a communicator holds what it gave up */
    float *passing;       /* room for ENGINE_PASSING, or NULL where ranks have all */
    int64_t huge_bytes;
    struct numa numa;
    bool created;
    const struct engine_seams *seams;
    void *tables[ENGINE_TABLES]; /* that pointers above go to, to be freed */
    int table_count;
};

static inline void count(int64_t *counter, int64_t n)
{
    __atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

static inline int64_t counted(const int64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/* zero_create with seams (may be NULL). */
int engine_create(struct zero **z, const struct zero_param *params, int count,
                  const struct zero_config *config, const struct engine_seams *seams);

/* What is where, by now. */
int engine_plan(struct zero *z);

/* What each rank tells the others at the first door. */
struct introduction {
    struct error error; /* first: hear */
    uint64_t model;
    int tensors;
    int node_ranks; /* of its node, itself among them */
    int64_t settings[SETTINGS_SHARED];
    cpu_set_t cpus[8]; /* affinity mask: kernels may be for more CPUs than one has */
    int quota;         /* of CPU time, in CPUs; 0: none */
    uint64_t quota_group;
    struct preflight_facts facts;
    struct reach {
        int64_t asked, answers, version, gpus;
        int64_t staging; /* of host memory that units pass through, or save */
        char gpu[16];
        uint64_t place; /* of the GPU, on its node */
    } reach;
};

/* src/reach.c: how units go from rank to rank where ranks compute on GPUs. */
void reach_introduce(struct zero *z, struct reach *me);
/* Whether they go from GPU to GPU. Alike on all ranks; the log hears of it. An error where they
 * cannot go at all. */
bool reach_choose(struct zero *z, const struct introduction *all);
/* COLLECTIVE. Where they do, comm becomes one that moves them so, and the plan is made anew. */
int reach_connect(struct zero *z);

/* The start of every public call: forgets the last call's error; a failed
 * engine's stays. */
int engine_enter(struct zero *z);
/* The same for a call on one tensor, and for one that needs no step to be open. */
int engine_enter_param(struct zero *z, int param, const char *call);
int engine_enter_between_steps(struct zero *z, const char *call);

/* How long this rank waits for another, in seconds. */
static inline int engine_deadline(const struct zero *z)
{
    int seconds = __atomic_load_n(&z->deadline, __ATOMIC_RELAXED);
    return seconds ? seconds : z->plan.set.deadline_seconds;
}

/* And for a disk that moves nothing: ranks may have a short deadline, disks have their moments. */
static inline int engine_disk_deadline(const struct zero *z)
{
    int deadline = engine_deadline(z);
    return deadline < 10 ? 10 : deadline;
}

/* How much longer where it cannot tell which rank is to blame, in seconds. */
static inline int engine_grace(const struct zero *z)
{
    int deadline = engine_deadline(z);
    return deadline < 10 ? 1 : deadline / 10;
}

/* What to do where that was too short. */
static inline const char *engine_deadline_advice(const struct zero *z)
{
    return __atomic_load_n(&z->deadline, __ATOMIC_RELAXED)
               ? "raise the deadline (--deadline, zero_set_deadline)"
               : "raise the deadline (--deadline, .deadline_seconds)";
}

/* What a call that failed returns. */
static inline int engine_status(const struct zero *z)
{
    if (!z)
        return ZERO_ERR_ARGUMENT;
    return z->created || z->error.status ? z->error.status : ZERO_ERR_STATE;
}

/* Waits for a command; the engine's first failure becomes z->error. The log hears
 * what was tried again meanwhile. */
int engine_wait(struct zero *z, struct ref ref);
int engine_wait_all(struct zero *z); /* for all that was asked for */

/* What the caller asked of the device has failed: so does the engine, which tells the other
 * ranks. (A mark made after that is never done: the engine thread finds the error.) */
int engine_device_failed(struct zero *z);

/* Whether memory may still be moved from or to, by transfers that were given up. */
static inline bool engine_is_held(const struct zero *z)
{
    return (z->comm && z->comm->holds) || (z->control && z->control->holds);
}

/* src/log.c: what the log hears. A program's own log hears it on each rank, standard error once. Of
 * all ranks: rank 0 says it. */
void engine_log(const struct zero *z, enum zero_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A warning that is every rank's own affair. */
void engine_warn(const struct zero *z, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A warning of this node or of a rank's folders: the first rank that has them says it. */
void engine_warn_of_machine(const struct zero *z, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Where the program has no log of its own. */
void engine_log_to_stderr(void *arg, enum zero_log_level level, const char *line);
/* A transfer is tried again. The log is the caller's thread's, so this one leaves a note, or
 * where the caller has not read those before, counts; then the caller tells the log. */
void engine_note_retry(void *z, const char *sentence);
void engine_tell_retries(struct zero *z);
/* Says where sums are added in an order that the ranks' number changes. */
void engine_tell_order(struct zero *z);

/* src/meeting.c. In a walk that all ranks make from this chunk on: the chunk before which they meet
 * next, or the end. So a rank waits for what another one's disk is slower in one such part. */
int64_t engine_meeting_after(const struct zero *z, int64_t chunk);

/* COLLECTIVE. An update may still be under way, on one rank for longer than on others: before ranks
 * wait for each other behind its first chunks they meet part by part, so that none waits for longer
 * than one or two parts differ. */
int engine_settle(struct zero *z, const char *call, int64_t chunks);
/* At creation and end, COLLECTIVE. COMMAND_EXCHANGE of bytes between all ranks,
 * data has size parts of so many, or COMMAND_BROADCAST of rank 0's. */
int engine_exchange(struct zero *z, enum command_kind kind, const char *what, void *data,
                    int64_t bytes);
/* The ranks tell each other what they are, and whether they have failed so far. */
int engine_meet(struct zero *z);
/* All ranks learn of the first that has failed. */
int engine_agree(struct zero *z, const char *what);

/* src/execute.c */
extern const struct queue_ops engine_queue_ops;

/* Appends a copy between device memory and the host's, which way its stream says, and
 * counts its bytes. One of none is done. */
void copy_append(struct zero *z, enum device_stream stream, struct device_copy *copy, void *device,
                 void *host, int64_t bytes);
bool copies_done(const struct zero *z, const struct device_copy *copies, int n);

/* Copies between a chunk's slot on the host and where the units' own parts of it rest, one a
 * unit: the part's address at a position of state order, and bytes an element. How many. */
typedef char *rest_fn(const struct zero *z, int unit, int64_t position);
int copy_by_unit(struct zero *z, const struct command *c, struct device_copy *copies,
                 enum device_stream stream, char *slot, rest_fn *rest, int64_t element);

/* src/collective.c: between ranks. */
bool collective_ready(struct zero *z, const struct command *c);
int collective_start(struct zero *z, struct command *c, struct error *error);
int collective_test(struct zero *z, struct command *c, bool *done, struct error *error);

/* A chunk slot's gradients and new parameters, where Adam runs. */
static inline char *slot_grads(const struct zero *z, int slot)
{
    return z->plan.compute == ZERO_DEVICE ? z->device_memory + z->plan.device.chunk_grad[slot]
                                          : z->arena.base + z->plan.host.chunk_grad[slot];
}

static inline char *slot_params(const struct zero *z, int slot)
{
    return z->plan.compute == ZERO_DEVICE ? z->device_memory + z->plan.device.chunk_param[slot]
                                          : z->arena.base + z->plan.host.chunk_param[slot];
}

/* src/params.c: where parameters are, how they come and go. */
char *params_usable(const struct zero *z, int unit); /* whole, in the slot or in place; or NULL */
/* By state order; not NVMe. */
char *params_at_rest(const struct zero *z, int unit, int64_t position);
void params_gather(struct zero *z, const struct command *c, struct zero_collective *o);
/* A part from the file to its staging. */
int params_read(struct zero *z, const struct command *c, struct transfer *t, struct error *error);
/* Of copies these return how many: from the staging to the slot, and before or after an update. */
int params_copy(struct zero *z, const struct command *c, struct device_copy *copies);
int params_copy_chunk(struct zero *z, const struct command *c, struct device_copy *copies);

/* src/grads.c: gradient slots, ordered sums, where sums rest. */
char *grads_slot(const struct zero *z, int slot);
char *grads_at_rest(const struct zero *z, int unit, int64_t position); /* by state order */
void grads_accumulate(struct zero *z, const struct command *c);
void grads_reduce(struct zero *z, const struct command *c, struct operation *o);
void grads_gather_sums(struct zero *z, const struct command *c, struct zero_collective *o);
int grads_copy_sum(struct zero *z, const struct command *c, struct device_copy *copy);
int grads_copy_chunk(struct zero *z, const struct command *c, struct device_copy *copies);

/* src/update.c: what happens to a chunk. */
bool update_ready(const struct zero *z, const struct command *c);
void update_start(struct zero *z, const struct command *c);
int update_test(struct zero *z, const struct command *c, bool *done, struct error *error);
char *update_record(const struct zero *z, int64_t chunk, int slot); /* its arrays */

/* src/bounce.c: a chunk on the host's side of a device, there and back. */
char *bounce_record(const struct zero *z);
char *bounce_params(const struct zero *z);
void bounce_start(struct zero *z, const struct command *c, bool out);
bool bounce_copied(const struct zero *z);

/* src/step.c: the verdict. */
int step_finish(struct zero *z, struct zero_step_info *info);
int64_t step_verdict_words(const struct layout *l);

#endif
