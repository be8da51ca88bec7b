// SPDX-License-Identifier: Apache-2.0
/*
 * The mapping lies between two inaccessible margins: they align it, keep the
 * kernel from merging it with a neighbour (so its huge pages can be counted),
 * and catch whoever runs over the end. Nothing is given back before the end.
 */
#include "offload/arena.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "offload/memory.h"
#include "offload/numa.h"
#include "src/thread.h"

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

#define HUGE_PAGE     ((int64_t)2 << 20)
#define SMALL_PAGE    4096
#define TOUCH_PIECE   (4 * HUGE_PAGE)
#define TOUCH_THREADS 32
#define TOUCH_TRIES   1000 /* a signal, of a profiler say, ends one; what it took stays */

static int arena_refused(int64_t bytes, const char *what, int errnum, struct error *error)
{
    return error_set(error, ZERO_ERR_MEMORY,
                     "%" PRId64 " bytes of host memory were refused (%s: %s). Shard more (--stage, "
                     ".stage), offload to files (--offload nvme, .offload), use more ranks, or "
                     "raise the limit (ulimit -v, ulimit -d, vm.overcommit_memory).",
                     bytes, what, strerror(errnum));
}

/* Takes the pages now: later there would be nobody to tell. 0 or an errno. */
static int pages_touch(char *base, int64_t bytes)
{
    int64_t pages = (bytes + SMALL_PAGE - 1) / SMALL_PAGE;
    int rc = EINTR;
    for (int tries = 0; (rc == EINTR || rc == EAGAIN) && tries < TOUCH_TRIES; tries++)
        rc = madvise(base, (size_t)(pages * SMALL_PAGE), MADV_POPULATE_WRITE) != 0 ? errno : 0;
    if (rc != EINVAL)
        return rc;
    /* The kernel does not know the call. */
    for (int64_t page = 0; page < pages; page++)
        ((volatile char *)base)[page * SMALL_PAGE] = 0;
    return 0;
}

/* Pieces of a range, touched by whoever comes. */
struct touch {
    char *base;
    int64_t bytes;
    int64_t next; /* offset of the first piece that nobody has; atomic */
    int refused;  /* an errno; atomic */
};

static void *touch_run(void *arg)
{
    struct touch *t = arg;
    int64_t from;
    while ((from = __atomic_fetch_add(&t->next, TOUCH_PIECE, __ATOMIC_RELAXED)) < t->bytes) {
        int64_t left = t->bytes - from;
        int rc = pages_touch(t->base + from, left < TOUCH_PIECE ? left : TOUCH_PIECE);
        if (rc != 0) {
            __atomic_store_n(&t->refused, rc, __ATOMIC_RELAXED);
            break;
        }
    }
    return NULL;
}

/* The caller takes part, so threads that cannot be had only cost time. */
static int range_touch(char *base, int64_t bytes, int threads)
{
    struct touch t = {.base = base, .bytes = bytes};
    pthread_t thread[TOUCH_THREADS];
    int64_t pieces = (bytes + TOUCH_PIECE - 1) / TOUCH_PIECE;
    int most = threads < TOUCH_THREADS ? threads : TOUCH_THREADS, count = 0;
    while (count + 1 < most && count + 1 < pieces &&
           thread_start(&thread[count], touch_run, &t) == 0)
        count++;
    assert(count < TOUCH_THREADS);
    touch_run(&t);
    for (int i = 0; i < count; i++)
        pthread_join(thread[i], NULL);
    return t.refused;
}

int arena_create(struct arena *arena, int64_t bytes, int threads, struct error *error)
{
    assert(bytes >= 0);
    memset(arena, 0, sizeof(*arena));
    if (bytes == 0)
        return ZERO_OK;

    char source[256];
    int64_t available = memory_available("", source, sizeof(source));
    if (bytes > available || bytes > INT64_MAX / 2)
        return error_set(error, ZERO_ERR_MEMORY,
                         "%" PRId64 " bytes of host memory are needed, %" PRId64
                         " are available (%s). Shard more (--stage, .stage), offload to files "
                         "(--offload nvme, .offload), use more ranks, or ask for more memory.",
                         bytes, available, source);

    int64_t rounded = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    int64_t mapping_bytes = rounded + 2 * HUGE_PAGE;
    char *mapping =
        mmap(NULL, (size_t)mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED)
        return arena_refused(bytes, "mmap", errno, error);
    int64_t margin = HUGE_PAGE - (int64_t)((uintptr_t)mapping % (uintptr_t)HUGE_PAGE);
    char *base = mapping + margin;
    assert(margin > 0 && margin + rounded < mapping_bytes);

    int refused = mprotect(base, (size_t)rounded, PROT_READ | PROT_WRITE) != 0 ? errno : 0;
    if (refused == 0) {
        madvise(base, (size_t)rounded, MADV_HUGEPAGE); /* advice: some kernels have none */
        /* Of registered memory fork gives the child a copy, and leaves small pages here. */
        madvise(base, (size_t)rounded, MADV_DONTFORK);
        struct numa numa;
        numa_read(&numa, "", NULL);
        numa_prefer(&numa, base, rounded); /* else wherever there is room */
        refused = range_touch(base, bytes, threads);
    }
    if (refused != 0) {
        munmap(mapping, (size_t)mapping_bytes);
        return arena_refused(bytes, "touching it", refused, error);
    }
    *arena = (struct arena){base, bytes, mapping, mapping_bytes};
    return ZERO_OK;
}

void arena_destroy(struct arena *arena)
{
    if (arena->mapping != NULL)
        munmap(arena->mapping, (size_t)arena->mapping_bytes);
    memset(arena, 0, sizeof(*arena));
}

int64_t arena_huge_bytes(const struct arena *arena)
{
    if (arena->base == NULL)
        return 0;
    FILE *file = fopen("/proc/self/smaps", "re");
    if (file == NULL)
        return 0;
    char *line = NULL;
    size_t size = 0;
    int64_t total = 0;
    bool ours = false;
    while (getline(&line, &size, file) > 0) {
        uintptr_t from, to;
        int64_t kib;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
            ours = from >= (uintptr_t)arena->mapping &&
                   to <= (uintptr_t)arena->mapping + (uintptr_t)arena->mapping_bytes;
        else if (ours && sscanf(line, "AnonHugePages: %" SCNd64, &kib) == 1)
            total += kib * 1024;
    }
    free(line);
    fclose(file);
    return total;
}
