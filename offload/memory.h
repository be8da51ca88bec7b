// SPDX-License-Identifier: Apache-2.0
/*
 * How much memory this process may still take: the kernel commits more than
 * there is and kills whom it likes when that turns out, so ask beforehand.
 */
#ifndef OFFLOAD_MEMORY_H
#define OFFLOAD_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#define MEMORY_BOUNDS 8

/* One of the limits that hold for this process. */
struct memory_bound {
    uint64_t id; /* equal for processes of one machine that share it */
    int64_t available;
    int64_t limit;    /* of a cgroup; 0 of MemAvailable */
    char source[256]; /* "MemAvailable", or a cgroup's folder */
};

/*
 * MemAvailable, and what each memory cgroup above this process (version 1 or 2)
 * has left, page cache not counted as used; of more than MEMORY_BOUNDS the
 * tightest. Returns how many. root is put before /proc and /sys: "" outside of
 * tests.
 */
int memory_bounds(const char *root, struct memory_bound bounds[MEMORY_BOUNDS]);

/* The smallest of them, INT64_MAX when none is known; source takes what set it. */
int64_t memory_available(const char *root, char *source, size_t source_size);

#endif
