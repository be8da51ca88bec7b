// SPDX-License-Identifier: Apache-2.0
/*
 * Faults: the n-th time that one rank does something, it goes wrong, once or every
 * time from then on. One struct fault says what and when, and tells what came of
 * it; six backends ask it:
 *
 *   fault_calls.c  what the program's own code asks of the C library and the kernel,
 *                  and the single operations of either ring. For programs that are
 *                  linked with -Wl,--wrap (the Makefile says which)
 *   fault_ring.c   a ring around another: whole requests
 *   fault_comm.c   a communicator around another: collectives
 *   fake_cuda.c    a GPU's runtime
 *   fake_nccl.c    what moves between GPUs
 *   fault.c        a clock that stands until somebody waits in vain
 *
 * What the program itself does wrong it asks fault_strikes for.
 *
 * A replay with n = 1, 2, ... until the fault does not strike any more has seen
 * every place.
 */
#ifndef TESTS_SUPPORT_FAULT_H
#define TESTS_SUPPORT_FAULT_H

#include <stdatomic.h>

#include "include/zero.h"
#include "src/engine.h"

enum fault_kind {
    FAULT_NONE,
    /* calls */
    FAULT_MEMORY,      /* malloc and its kin, strdup, getline, mmap, mprotect: ENOMEM */
    FAULT_PAGES,       /* madvise: ENOMEM */
    FAULT_THREAD,      /* pthread_create: EAGAIN */
    FAULT_DESCRIPTOR,  /* open, mkostemp, fopen, eventfd, io_uring_queue_init: EMFILE */
    FAULT_SPACE,       /* fallocate, ftruncate: ENOSPC */
    FAULT_NO_SPACE_OP, /* fallocate: EOPNOTSUPP */
    FAULT_SIGNAL,      /* fallocate, madvise, io_uring_submit: EINTR */
    FAULT_QUESTION,    /* what only asks: fstat, fstatfs, fstatvfs, fcntl, sched_getaffinity,
                          getrlimit: ENOSYS */
    FAULT_REGISTER,    /* io_uring_register_*: ENOMEM */
    FAULT_SUBMIT_BUSY, /* io_uring_submit: EBUSY */
    FAULT_SUBMIT,      /* io_uring_submit: EBADF */
    /* a ring's operations. What they did not move is overwritten */
    FAULT_OP_SHORT,  /* half of it is moved */
    FAULT_OP_SIGNAL, /* EINTR */
    FAULT_OP_BUSY,   /* EAGAIN */
    FAULT_OP_EIO,
    FAULT_OP_ENOSPC, /* writes alone */
    FAULT_OP_EFBIG,  /* writes alone */
    FAULT_OP_END,    /* nothing is moved, without an error */
    /* a ring's requests */
    FAULT_REQUEST_LATE,    /* is handed back after many reaps */
    FAULT_REQUEST_REORDER, /* is handed back after one that was queued later */
    FAULT_REQUEST_EIO,     /* is handed back with an error, unmoved */
    /* collectives */
    FAULT_COMM_LATE,    /* is reported done after many tests */
    FAULT_COMM_REORDER, /* is reported done after one that was started later */
    FAULT_COMM_START,   /* fails when it is started */
    FAULT_COMM_TEST,    /* fails when it is looked at */
    FAULT_COMM_LOST,    /* is never reported done */
    FAULT_COMM_STOP,    /* the rank does nothing any more, and tells nobody */
    /* a GPU's runtime: tests/support/fake_cuda.h */
    FAULT_CUDA_MEMORY,   /* cudaMalloc, cudaHostAlloc: cudaErrorMemoryAllocation */
    FAULT_CUDA_MAKE,     /* a stream or an event is made: cudaErrorMemoryAllocation */
    FAULT_CUDA_REGISTER, /* cudaHostRegister: cudaErrorNotSupported */
    FAULT_CUDA_CALL,     /* any call that may fail, these and kernels too: cudaErrorUnknown */
    FAULT_CUDA_LOST,     /* an operation, in its stream: its GPU is lost from then on */
    /* NCCL: tests/support/fake_nccl.h */
    FAULT_NCCL_CALL,  /* any call that may fail: ncclSystemError */
    FAULT_NCCL_ASYNC, /* a look at a communicator: ncclRemoteError from then on */
    FAULT_NCCL_LOST,  /* an operation, in its stream: moves nothing and does not end; the clock
                         that stands goes on */
    /* the program's own */
    FAULT_FILL,  /* a fill returns -1 */
    FAULT_NAN,   /* a fill writes one */
    FAULT_LEAVE, /* the rank goes to its end instead of making a call */
    FAULTS,
};

struct fault {
    enum fault_kind kind;
    int64_t nth; /* from 1; 0: never */
    bool again;  /* and every time from then on */
    /* what came of it */
    atomic_int_least64_t seen, struck; /* times that it could strike, and did */
};

/* Whether the next thing of a kind goes wrong; fault may be NULL. Any thread. */
bool fault_strikes(struct fault *fault, enum fault_kind kind);

/* For struct engine_seams: seconds that fault_tick has let pass. */
double fault_seconds(void);
void fault_tick(void); /* one more */

/* ------------------------------------------------------------------- calls */

/* What this thread calls from here on, and what the threads call that it starts from here
 * on: the program's own objects, not its libraries. NULL: no fault. */
void fault_calls(struct fault *fault);

/* -------------------------------------------------------------------- ring */

/* Around the ring that the configuration asks for. */
struct fault_ring {
    struct ring ring; /* first */
    struct fault *fault;
    bool uring; /* around io_uring where there is one, else around the posix ring */
    /* its own */
    struct ring *inner;
    uint64_t order, handed; /* of the latest request queued, and handed back */
    int event;
    struct fault_request {
        struct ring_request *request; /* NULL: free */
        uint64_t order;
        bool struck, finished;
        int patience; /* reaps that it is still held back, at most */
    } requests[RING_REQUESTS_MAX];
};

/* For struct engine_seams, with r, a struct fault_ring, as its argument: around what r says. */
int fault_ring(void *r, struct ring **ring, const struct ring_options *options,
               struct error *error);

/* ------------------------------------------------------------ communicator */

/* What the ranks of a run share, to end one that has stopped: its abort waits until all
 * others are gone, to their end (the test counts them) or stopped. */
struct fault_ranks {
    atomic_int gone;
};

struct fault_comm {
    struct zero_comm comm; /* first */
    struct zero_comm *inner;
    struct fault *fault;
    struct fault_ranks *ranks;
    bool stopped;
    struct fault_collective {
        struct zero_collective *collective; /* NULL: free */
        bool struck, finished;
        int patience;
    } collectives[ZERO_COLLECTIVES];
    uint64_t reported; /* sequence of the latest collective reported done */
};

/* For zero_config.comm; inner stays the caller's. */
struct zero_comm *fault_comm(struct fault_comm *c, struct zero_comm *inner, struct fault *fault,
                             struct fault_ranks *ranks);

#endif
