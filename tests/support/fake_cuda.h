// SPDX-License-Identifier: Apache-2.0
/*
 * A CUDA runtime for tests: the calls of kernels/cuda/runtime.h, and those of
 * kernels/cuda/launch.h by the CPU's scalar bodies, on fake GPUs. A test that is
 * linked with it instead of libcudart has 1 to 4 of them.
 *
 * Each stream is a thread, and what is appended to it runs there, late, in order.
 * Between threads TSan sees the order that CUDA guarantees and no other:
 *
 *   what the host does before it appends    before  the operation
 *   an operation                            before  the stream's next
 *   an operation                            before  an event recorded behind it
 *   an event, as it is recorded by then     before  what is appended after a wait for it
 *   all operations so far                   before  the return of a synchronise, or of a
 *                                                   query that says so
 *
 * Nothing else orders: not the calls' own tables, nor cudaMalloc, cudaFree or
 * cudaHostUnregister, nor the default stream, in which no operation is allowed but a
 * cudaMemcpy (without .legacy). One from pageable memory to a GPU returns before it is done, as the
 * real one does; every other one is done.
 *
 * A synchronise that fails has waited all the same, so that who then gives up may free.
 *
 * A GPU's memory has addresses that the host cannot read: SIGSEGV. It is filled
 * with NaNs when it is given out and when it is given back.
 */
#ifndef TESTS_SUPPORT_FAKE_CUDA_H
#define TESTS_SUPPORT_FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/support/fault.h"

#define FAKE_CUDA_GPUS_MAX 4

struct fake_cuda_options {
    int gpus;            /* 0: a machine without a driver */
    int64_t bytes;       /* memory of each GPU; 0: 1 GiB; -1: other processes have it all */
    uint64_t seed;       /* of what operations wait before they run; 0: they do not */
    bool legacy;         /* the default stream takes operations: each waits for all that stand in
                            streams made with no flag, and what comes there later for it */
    bool captured;       /* some other thread captures a graph */
    bool alike;          /* all GPUs are of one kind, which their name says */
    struct fault *fault; /* FAULT_CUDA_*; NULL: none */
};

/* Before the runtime's first call. A program that does not call it has one GPU. */
void fake_cuda_start(const struct fake_cuda_options *options);

/* After the runtime's last call in any thread: waits for the streams, reports leaks
 * and gives everything back. What was reported stays until the next start. */
void fake_cuda_stop(void);

/* What is wrong with the program, though the call may succeed. Each is printed. */
enum fake_cuda_report {
    FAKE_CUDA_OUTSIDE,      /* beyond an allocation, or of no use to the operation: a host's
                               address where a GPU's must be */
    FAKE_CUDA_UNREGISTERED, /* an operation on host memory that is not all registered, or not
                               with one call */
    FAKE_CUDA_FREED,        /* memory, streams, events, registrations: used after they were
                               given back, or given back twice */
    FAKE_CUDA_UNRECORDED,   /* a wait for an event that was never recorded: it waits for nothing */
    FAKE_CUDA_NO_DEVICE,    /* a call for the current device, or one that opens it, in a thread
                               that has set none */
    FAKE_CUDA_OTHER_DEVICE, /* a stream, event or memory of another GPU than the call's */
    FAKE_CUDA_DEFAULT,      /* an operation in the default stream */
    FAKE_CUDA_SPINS,        /* a wait for an event that was not made with cudaEventBlockingSync:
                               a CPU that others could use spins */
    FAKE_CUDA_WITHIN,       /* a call in a function that cudaLaunchHostFunc runs */
    FAKE_CUDA_LEAK,         /* not given back when the fake stops */
    FAKE_CUDA_PRODUCT,      /* a matrix product that is none: fake_cublas.h */
    FAKE_CUDA_REPORTS,
};

/* How many of a kind since the start; of FAKE_CUDA_REPORTS: all. */
int fake_cuda_reported(enum fake_cuda_report kind);

/* The latest of a kind, a sentence; NULL: none. Until the next start. */
const char *fake_cuda_report(enum fake_cuda_report kind);

#endif
