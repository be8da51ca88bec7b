// SPDX-License-Identifier: Apache-2.0
/*
 * What a folder's drive can do: bandwidth over a small grid of block sizes and
 * depths, measured in about two seconds on a file of its own that is written
 * first, and kept in the user's cache folder under the block device's name. A
 * cache that cannot be read or written costs time, never an error.
 */
#ifndef OFFLOAD_PROBE_H
#define OFFLOAD_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "offload/ring.h"
#include "offload/spill.h"

#define PROBE_FILE  ((int64_t)256 << 20) /* bytes that are written and read */
#define PROBE_ALONE (4 * PROBE_FILE)     /* one folder that holds less is not worth the time */
#define PROBE_KEY   512

struct probe {
    int block, depth;   /* the smallest within 3 % of the best */
    double read, write; /* bytes per second with these; 0: not measured */
    double both;        /* half of them read, half written, at once: an update's */
};

/* Bytes of one file at a time, where there are several; a block lies in one of them. */
static inline int64_t probe_stripe(const struct probe *probe)
{
    return probe->block > RING_BLOCK ? probe->block : RING_BLOCK;
}

/* Measures for about seconds (0: the default, 2). A drive that moves less than 50 MB/s
 * takes longer: at least 110 MB are moved. Errors are those of spill_create and
 * arena_create, ZERO_ERR_UNSUPPORTED where files move through the page cache alone, and ZERO_ERR_IO
 * where the drive fails or answers nothing for 30 s: what is under way then keeps its memory. */
int probe_run(struct probe *probe, const char *folder, double seconds, struct error *error);

/* One line that names what folder's files are on, the same on every start:
 * drive, size, model or mapping, file system. Without a block device, where the file system
 * begins, and the node if it is no network's. root is put before /sys: "" outside of tests.
 * False: folder cannot be asked. */
bool probe_key(char key[PROBE_KEY], const char *root, const char *folder);

/* Whether two keys name one drive, whatever file systems it has. */
bool probe_keys_one_drive(const char *key, const char *other);

/* Whether two folders share what one drive, or one file system, can do. */
bool probe_one_drive(const char *folder, const char *other);

/* The cache, in $XDG_CACHE_HOME/libzero or ~/.cache/libzero. False: there is
 * nothing sound under this key; it could not be written. */
bool probe_load(struct probe *probe, const char *key);
bool probe_store(const struct probe *probe, const char *key);

/* An open file to hold a lock on while what a key names is measured: this node's drive, of which
 * nodes that share a home have one each, or a network's folder, which is one for all of them. -1:
 * there is no cache to put one in. */
int probe_lock(const char *key);

/* The index of the smallest point (block times depth) within 3 % of the best. */
int probe_choose(const struct probe *points, int count);

enum probe_when {
    PROBE_NEVER,  /* the defaults */
    PROBE_CACHED, /* what the cache has; measured once where much is to be moved */
    PROBE_NOW,    /* measured, and the cache is renewed */
};

/* What ZERO_PROBE asks for; PROBE_CACHED where it is not set. */
int probe_asked(enum probe_when *when, struct error *error);

/*
 * For a ring over all of paths, which hold bytes: sets their weights and what
 * the ring should use. What cannot be measured has the defaults, and then
 * shares are equal; why has the sentence. One rank of a machine measures, the others wait for it;
 * where nothing can be cached they measure a folder one after the other. A rank that has waited
 * for 30 s measures beside another, and what it finds is not cached.
 */
void probe_paths(struct probe *probe, struct spill_paths *paths, int64_t bytes,
                 enum probe_when when, struct error *why);

#endif
