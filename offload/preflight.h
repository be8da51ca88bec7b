// SPDX-License-Identifier: Apache-2.0
/*
 * Whether all ranks of a node together fit: memory against every limit that
 * holds for them, free space of every file system their files are on. Each rank
 * collects its facts before anything is allocated, the ranks exchange them (not
 * here: this file talks to nobody), and each judges all of them, so that all
 * come to the same answer.
 */
#ifndef OFFLOAD_PREFLIGHT_H
#define OFFLOAD_PREFLIGHT_H

#include "offload/memory.h"
#include "offload/spill.h"

#define PREFLIGHT_NODE   64
#define PREFLIGHT_NAME   96
#define PREFLIGHT_LIMITS (MEMORY_BOUNDS + STRIPES_FILES)
#define PREFLIGHT_TEXT   400

/* Something of which the ranks that share it must not need more than there is: those of a node, or
 * of a network's folder, by its name, those of all nodes. */
struct preflight_limit {
    uint64_t id; /* equal for ranks of one node that share it */
    int64_t available;
    int64_t need;              /* this rank's */
    char name[PREFLIGHT_NAME]; /* of what: a cgroup, a folder; its end when it is long */
    char type[SPILL_TYPE];     /* the file system; "" for a limit of memory */
};

/* Bytes that one rank will take. */
struct preflight_need {
    int64_t arena;
    int64_t device; /* where device memory is host memory */
    int64_t program;
    int64_t files;
};

/* One rank's; without pointers, so that it can be sent. */
struct preflight_facts {
    uint64_t node;             /* equal for ranks of one machine */
    char name[PREFLIGHT_NODE]; /* of the node */
    struct preflight_need need;
    int64_t memory_files; /* the part of need.files that is on tmpfs or ramfs */
    int64_t limits;
    struct preflight_limit limit[PREFLIGHT_LIMITS];
};

/* Asks the machine. A folder that cannot be asked has no limit here: making the
 * file will say why. root: as in memory_bounds. paths may be NULL when no files
 * are needed. */
void preflight_collect(struct preflight_facts *facts, const char *root,
                       const struct preflight_need *need, const struct spill_paths *paths,
                       int64_t stripe);

/* As if a rank's arena took so many bytes less. */
void preflight_shrink(struct preflight_facts *facts, int64_t bytes);

/* The facts of count ranks, each stride bytes after the one before. */
struct preflight_ranks {
    const struct preflight_facts *first;
    size_t stride;
    int count;
};

/* ZERO_ERR_MEMORY or ZERO_ERR_IO, in the same words on every rank, about the
 * limit that most is lacking of. Facts of zeros need nothing. */
int preflight_judge(const struct preflight_ranks *ranks, struct error *error);

bool preflight_same_node(const struct preflight_facts *a, const struct preflight_facts *b);

/* Whether the files of two ranks of a node are on the same file systems. */
bool preflight_same_folders(const struct preflight_facts *a, const struct preflight_facts *b);

/* What is worth a warning although it fits: files in memory, or on a network's server. False:
 * nothing. */
bool preflight_warning(const struct preflight_facts *facts, char text[PREFLIGHT_TEXT]);

#endif
