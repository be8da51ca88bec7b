// SPDX-License-Identifier: Apache-2.0
/*
 * One mapping of exact size, 2 MiB aligned and advised to be huge pages. The
 * plan decides all offsets beforehand, so there is nothing to allocate from
 * it later: an arena is a base address.
 */
#ifndef OFFLOAD_ARENA_H
#define OFFLOAD_ARENA_H

#include <stdint.h>

#include "src/error.h"

struct arena {
    char *base;    /* 2 MiB aligned; NULL when bytes is 0 */
    int64_t bytes; /* as asked for */
    void *mapping;
    int64_t mapping_bytes;
};

/* Maps and touches bytes zeroed bytes, on the NUMA nodes of this thread's CPUs
 * where the kernel can. Up to threads threads, which end with the call, touch
 * them: a large arena takes seconds, and most of that is the kernel's clearing of
 * pages. ZERO_ERR_MEMORY names the size and the limit that refused it where one
 * is known. */
int arena_create(struct arena *arena, int64_t bytes, int threads, struct error *error);
void arena_destroy(struct arena *arena);

/* Bytes of the arena that are in huge pages now (from /proc/self/smaps). */
int64_t arena_huge_bytes(const struct arena *arena);

#endif
