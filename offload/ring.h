// SPDX-License-Identifier: Apache-2.0
/*
 * Asynchronous file I/O. Two implementations, io_uring (uring.c) and a pool of
 * threads with pread and pwrite (posix.c), pass the same contract suite; tests
 * add more (tests/support). One thread uses a ring.
 *
 * A request moves one contiguous range of a linear space over one or several
 * files (offload/stripes.h). The ring cuts it into blocks, each of them in one
 * file, keeps a bounded number of them under way (of reads and writes that wait
 * together as many of each), continues short transfers,
 * compares what was moved with what was asked, and hands the request back from
 * reap exactly once: also after an error, and then only when none of its blocks
 * is under way any more. An end of file within a read is an error.
 */
#ifndef OFFLOAD_RING_H
#define OFFLOAD_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "offload/stripes.h"
#include "src/error.h"

/* Bytes moved by one operation, a multiple of SPILL_ALIGN, and operations under
 * way at once: the defaults, and how far they can be set. */
#define RING_BLOCK        (1 << 20)
#define RING_BLOCK_MAX    (4 << 20)
#define RING_DEPTH        8
#define RING_DEPTH_MAX    32
#define RING_REQUESTS_MAX 1024 /* requests queued or under way at once */

struct ring_request {
    bool write;
    bool urgent;  /* goes before all that is not and has not begun: somebody waits for it */
    char *buffer; /* SPILL_ALIGN aligned, as are bytes and offset */
    int64_t bytes;
    int64_t offset;     /* in the linear space */
    struct error error; /* set by the ring: path-free sentence with offset, length, errno */
    int error_file;     /* which of the ring's files it is about */
    bool error_end;     /* a read met that file's end */
    /* the ring's own */
    int64_t submitted;
    int64_t completed; /* grows while the request is under way: read it atomically then */
    int inflight;
    struct ring_request *next;
};

struct ring;

struct ring_ops {
    const char *name;
    /* Queues a request; never blocks. It may start at once, starts at the next
     * submit at the latest, and stays where it is until reaped. */
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
    const struct stripes *files;
    bool registered; /* buffers are registered */
    int block;       /* bytes */
    int depth;
};

struct ring_options {
    int event_fd;  /* an eventfd written whenever something may be ready to reap */
    void *base;    /* the memory that buffers will lie in, registered when that works: */
    int64_t bytes; /* refused registration is not an error (ring->registered false) */
    const struct stripes *files; /* that requests move, registered likewise; never NULL */
    int block, depth;            /* 0: the defaults */
};

/*
 * What options point to stays where it is as long as the ring.
 * ring_uring_create: ZERO_ERR_UNSUPPORTED when built without liburing, when the
 * kernel refuses io_uring, or would do less with it than is needed, or when it would
 * spoil the files, with the reason.
 */
int ring_uring_create(struct ring **ring, const struct ring_options *options, struct error *error);
int ring_posix_create(struct ring **ring, const struct ring_options *options, struct error *error);

#endif
