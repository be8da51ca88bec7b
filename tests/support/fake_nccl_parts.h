// SPDX-License-Identifier: Apache-2.0
/* Inside the fake NCCL: what the ranks of a clique share, threads or processes. */
#ifndef TESTS_SUPPORT_FAKE_NCCL_PARTS_H
#define TESTS_SUPPORT_FAKE_NCCL_PARTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "src/comm/nccl_api.h"
#include "tests/support/fake_cuda.h"

#define RANKS_MAX FAKE_CUDA_GPUS_MAX /* one on each */
#define SLOTS_MAX (1 << 13)          /* that both sides have not yet done with */
#define CALL_MAX  20                 /* letters of a call's name */

enum slot_state { SLOT_EMPTY, SLOT_READY, SLOT_TAKING, SLOT_TAKEN, SLOT_WITHDRAWN };

struct slot {
    int next;               /* of the same channel, or of the free ones, plus 1; 0: the last */
    int number;             /* in its channel */
    int done;               /* sides */
    char call[2][CALL_MAX]; /* of the sender and the receiver */
    size_t bytes[2];
    const void *from;
    pid_t owner; /* of from */
    atomic_int state;
};

/* Shared among processes: it holds no address but from. */
struct clique {
    int size;           /* 0: nobody has come */
    int gpu[RANKS_MAX]; /* plus 1; 0: has not come */
    pid_t process[RANKS_MAX];
    atomic_int joined, finalized;
    volatile int locked;               /* by this process */
    int channel[RANKS_MAX][RANKS_MAX]; /* from, to: the first slot, plus 1 */
    int free, used;                    /* the first that is free, plus 1; how many ever were not */
    struct slot slots[SLOTS_MAX];
} __attribute__((aligned(4096)));

/* Also where a process has died as it had it. */
void fake_lock(volatile int *l);
void fake_unlock(volatile int *l);

/* false: no memory for it. */
bool fake_id_make(ncclUniqueId *id);

/* The clique that a rank comes to; NULL: the process that made the id is gone, or it cannot be
 * one of its ranks. */
struct clique *fake_clique_join(const ncclUniqueId *id, int size, int rank, int gpu, bool *gone);
void fake_clique_leave(const struct clique *q);

/* The slot of number n in a channel, and what this side says of it. What the other side says
 * comes to other, "" where it has not come. */
struct slot *fake_slot_meet(struct clique *q, int *channel, int n, bool send, const char *call,
                            size_t bytes, char other[CALL_MAX], size_t *theirs);
/* What is sent. */
void fake_slot_offer(struct slot *s, const void *from);
const void *fake_slot_from(const struct slot *s, pid_t *owner);
/* One side has done with it. */
void fake_slot_done(struct clique *q, int *channel, struct slot *s);

/* Nobody uses anything any more. */
void fake_cliques_clear(void);

#endif
