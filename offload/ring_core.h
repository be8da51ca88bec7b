// SPDX-License-Identifier: Apache-2.0
/*
 * What the implementations of offload/ring.h share: requests become blocks, at
 * most depth of them out at once; results become finished requests. No
 * system call, but to say why a write failed, and no lock: an implementation
 * sees to it that one thread at a time is in here.
 *
 * An implementation takes blocks from ring_core_next, moves them, gives each
 * result to ring_core_complete, and answers reap with ring_core_take.
 */
#ifndef OFFLOAD_RING_CORE_H
#define OFFLOAD_RING_CORE_H

#include "offload/ring.h"

/* Attempts in a row that move nothing before a block fails. */
#define RING_TRIES 100

/* One operation. */
struct ring_block {
    struct ring_request *request;
    int64_t start;           /* of what is left of the block, within the request */
    int64_t bytes;           /* left to move */
    int file, fd;            /* where, of the ring's files */
    int64_t offset;          /* in that file */
    int tries;               /* attempts in a row that moved nothing */
    struct ring_block *next; /* the list it is in */
};

struct ring_list {
    struct ring_request *first, *last;
};

struct ring_core {
    struct ring ring; /* first */
    /* Reads and writes that are not wholly cut into blocks; only the first of each may be
     * partly cut. */
    struct ring_list queued[2];
    int out[2]; /* blocks of each that are out */
    struct ring_list done;
    int requests; /* queued, under way or done */
    struct ring_block blocks[RING_DEPTH_MAX];
    struct ring_block *free;
};

/* Of options files, block and depth are read. */
void ring_core_init(struct ring_core *core, const struct ring_ops *ops,
                    const struct ring_options *options);

/* The queue call of every implementation. */
void ring_core_queue(struct ring *ring, struct ring_request *request);

/* The next block to move: of reads and of writes each in queue order, of both as many as of the
 * other where both wait. NULL: none, or depth are out. */
struct ring_block *ring_core_next(struct ring_core *core);

/* Takes a block's result: bytes moved, or -errno. True: the block is to be
 * moved again, for what is left. False: it is gone. */
bool ring_core_complete(struct ring_core *core, struct ring_block *block, int64_t result);

/* Hands out finished requests, in the order they finished. */
int ring_core_take(struct ring_core *core, struct ring_request **done, int max);

#endif
