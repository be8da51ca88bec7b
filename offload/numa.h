// SPDX-License-Identifier: Apache-2.0
/*
 * Which NUMA nodes this machine has, which of them hold the CPUs that a thread
 * may run on, and a wish that memory come from those. A wish: memory that lacks
 * there comes from elsewhere, and a kernel or site that refuses changes nothing
 * but speed. It moves no thread.
 */
#ifndef OFFLOAD_NUMA_H
#define OFFLOAD_NUMA_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define NUMA_NODES 256 /* numbers below it; others are not seen */

struct numa {
    int nodes;                           /* that have memory; 0: the machine does not say */
    int mine;                            /* of them, those that hold some of the CPUs */
    uint64_t mine_mask[NUMA_NODES / 64]; /* of mine, one bit each */
};

/* For the CPUs of a set; NULL: those the calling thread may run on. root is put
 * before /sys: "" outside of tests. */
void numa_read(struct numa *numa, const char *root, const cpu_set_t *cpus);

/* Asks for the pages of [base, base + bytes), not yet touched, to come from
 * mine. True: the kernel will try. False: it refuses, or there is nothing to
 * choose. base is a multiple of the page size. */
bool numa_prefer(const struct numa *numa, void *base, int64_t bytes);

#endif
