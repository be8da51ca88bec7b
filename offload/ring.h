// SPDX-License-Identifier: Apache-2.0
/*
 * Asynchronous file I/O. Two implementations, io_uring (uring.c) and a pool of
 * threads with pread and pwrite (posix.c), pass the same contract suite; tests
 * add more (tests/support). One thread uses a ring.
 *
 * A request moves one contiguous range of one file. The ring cuts it into
 * blocks, keeps a bounded number of them under way, continues short transfers,
 * compares what was moved with what was asked, and hands the request back from
 * ring_reap exactly once: also after an error, and then only when none of its
 * blocks is under way any more. An end of file within a read is an error.
 */
#ifndef OFFLOAD_RING_H
#define OFFLOAD_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "src/error.h"

#define RING_BLOCK (1 << 20)    /* bytes moved by one operation */
#define RING_DEPTH 8            /* operations under way at once */
#define RING_REQUESTS_MAX 1024  /* requests queued or under way at once */

struct ring_request {
    int fd;
    bool write;
    char *buffer; /* SPILL_ALIGN aligned, as are bytes and offset */
    int64_t bytes;
    int64_t offset;
    struct error error; /* set by the ring: path-free sentence with offset, length, errno */
    /* the ring's own */
    int64_t submitted, completed;
    int inflight;
    struct ring_request *next;
};

struct ring;

struct ring_ops {
    const char *name;
    /* Queues a request; no system call, never blocks. The request stays where
     * it is until reaped. */
    void (*queue)(struct ring *ring, struct ring_request *request);
    /* Hands queued work to the kernel, as much as the depth allows. */
    int (*submit)(struct ring *ring, struct error *error);
    /* Takes up to max finished requests, never blocks; returns how many. Keeps
     * the pipe full: submits what the freed depth allows. */
    int (*reap)(struct ring *ring, struct ring_request **done, int max);
    /* Waits until nothing is under way (drops what was only queued), frees. */
    void (*destroy)(struct ring *ring);
};

/* Implementations embed this as their first member. */
struct ring {
    const struct ring_ops *ops;
    bool registered; /* buffers are registered */
};

/*
 * event_fd: an eventfd written whenever something may be ready to reap (>= 0).
 * base, bytes: the memory that buffers will lie in, registered when that works;
 * refused registration is not an error (ring->registered false).
 * ring_uring_create: ZERO_ERR_UNSUPPORTED when built without liburing or when
 * the kernel refuses io_uring, with the reason.
 */
int ring_uring_create(struct ring **ring, int event_fd, void *base, int64_t bytes, int fd,
                      struct error *error);
int ring_posix_create(struct ring **ring, int event_fd, void *base, int64_t bytes, int fd,
                      struct error *error);

#endif
