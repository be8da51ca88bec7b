// SPDX-License-Identifier: Apache-2.0
/*
 * NCCL for tests: the calls of src/comm/nccl_api.h among ranks that are threads of
 * this process or processes of this machine, on the fake GPUs of tests/support/fake_cuda.h, one
 * for each rank. (Between processes data is read by process_vm_readv.)
 *
 * What enters a stream is an operation of it, which waits there for the peers' as
 * NCCL's kernels do: ranks that call in different orders are stuck. The ranks' streams
 * are ordered as the data that moves between them demands, and TSan sees no other order.
 * Communicators do not block: what was asked for enters the stream some looks at
 * ncclCommGetAsyncError later, not before. ncclReduceScatter adds the ranks' parts up as a ring
 * would: the one behind the receiver's first, its own last, each sum rounded to the type.
 */
#ifndef TESTS_SUPPORT_FAKE_NCCL_H
#define TESTS_SUPPORT_FAKE_NCCL_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/support/fault.h"

struct fake_nccl_options {
    uint64_t seed; /* of how many looks find a communicator in progress; 0: one */
    int64_t bytes; /* of its GPU's memory that a communicator takes; -1: of the host's, in vain */
    int seconds;   /* that an operation waits for others until it is stuck; 0: 60 */
    bool settings; /* beginning a communicator finds a file that makes it block */
    bool together; /* ncclCommAbort returns when all ranks have called it or are gone */
    struct fault *fault; /* FAULT_NCCL_*; NULL: none */
};

/* Before NCCL's first call; a program that does not call it has the defaults. */
void fake_nccl_start(const struct fake_nccl_options *options);

/* After the fake GPUs have stopped: reports leaks and gives everything back. What was
 * reported stays until the next start. */
void fake_nccl_stop(void);

/* What is wrong with the program, though the call may succeed. Each is printed. */
enum fake_nccl_report {
    FAKE_NCCL_DEVICE,   /* a call with another current GPU than its communicator's */
    FAKE_NCCL_PROGRESS, /* a call on a communicator that is in progress */
    FAKE_NCCL_DIFFER,   /* what meets is of different kinds or lengths; ranks that cannot be */
    FAKE_NCCL_STUCK,    /* an operation waited too long for others */
    FAKE_NCCL_GONE,     /* a communicator is used after its end, or ended with work under way */
    FAKE_NCCL_WRONG,    /* anything else that NCCL refuses */
    FAKE_NCCL_LEAK,     /* not given back when the fake stops */
    FAKE_NCCL_REPORTS,
};

/* How many of a kind since the start; of FAKE_NCCL_REPORTS: all. */
int fake_nccl_reported(enum fake_nccl_report kind);

/* Groups of calls that have entered streams since the start. */
int64_t fake_nccl_groups(void);

#endif
