// SPDX-License-Identifier: Apache-2.0
/*
 * The files that hold what does not fit in memory: per rank one in each folder,
 * without a name (O_TMPFILE, or created and unlinked where that is refused), so
 * the kernel frees them however the process ends. Space is allocated up front,
 * so a full disk is an error at creation. Together they are one linear space
 * (offload/stripes.h).
 */
#ifndef OFFLOAD_SPILL_H
#define OFFLOAD_SPILL_H

#include <stdbool.h>
#include <stdint.h>

#include "offload/stripes.h"
#include "src/error.h"

#define SPILL_ALIGN 4096 /* of offsets, lengths and memory */
#define SPILL_PATH  256  /* longest folder's name, with its end */
#define SPILL_TYPE  32

/* Folders and how the bytes are shared among them. */
struct spill_paths {
    int count;
    char path[STRIPES_FILES][SPILL_PATH];
    double weight[STRIPES_FILES]; /* as in stripes_deal */
};

struct spill_file {
    int64_t bytes;
    bool direct; /* O_DIRECT is in use */
    char path[SPILL_PATH];
    char type[SPILL_TYPE]; /* the file system: "ext4", "tmpfs", ... */
};

struct spill {
    int64_t bytes; /* of all files; 0: none */
    struct stripes stripes;
    struct spill_file file[STRIPES_FILES];
    bool direct;                           /* of all files that have bytes */
    char type[STRIPES_FILES * SPILL_TYPE]; /* of all, with ':' between them */
};

/* Takes a list of folders with ':' between them apart; weights are 0, which is
 * equal shares. ZERO_ERR_ARGUMENT: too many, too long, or an empty one. */
int spill_paths_split(struct spill_paths *paths, const char *list, struct error *error);

/*
 * stripe: bytes, a multiple of SPILL_ALIGN; of no meaning with one path.
 * ZERO_ERR_IO with path, what was refused and, when space lacks, bytes asked
 * and bytes free. ZERO_ERR_MEMORY: more on tmpfs or ramfs than there is memory for.
 * O_DIRECT refused: goes on without (direct false).
 */
int spill_create(struct spill *spill, const struct spill_paths *paths, int64_t stripe,
                 int64_t bytes, struct error *error);
void spill_destroy(struct spill *spill);

/* One such file, open and empty; -1 with errno. */
int spill_open(const char *folder);

/* Switches O_DIRECT on, tried with a page of zeros at the file's start; false: it is off. */
bool spill_direct(int fd);

/* The name of the file system that an open file or folder is on. */
void spill_type_read(int fd, char type[SPILL_TYPE]);

bool spill_type_is_memory(const char *type);
bool spill_type_is_network(const char *type); /* NFS and the like: one for all nodes */

/* Bytes that a file of this process may have (ulimit -f). */
uint64_t spill_size_limit(void);

/* Bytes that its file system has room for; INT64_MAX where it does not say, or has no limit. */
int64_t spill_space(int fd);

#endif
