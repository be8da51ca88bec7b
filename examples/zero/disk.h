// SPDX-License-Identifier: Apache-2.0
/* A folder as a place for files: its file system, device, free space, and
 * whether direct I/O works there (tried, in a file without a name). */
#ifndef EXAMPLES_ZERO_DISK_H
#define EXAMPLES_ZERO_DISK_H

#include <stdbool.h>
#include <stdint.h>

#define DISK_PATH 1024

struct disk {
    char path[DISK_PATH];
    char type[64];    /* "ext4", "tmpfs"; "unknown" without /proc */
    char device[256]; /* as mounted, such as /dev/nvme0n1p2 */
    int64_t free;     /* for this user; INT64_MAX: it does not count */
    uint64_t id;      /* of the file system: equal for two folders of one */
    bool memory;      /* tmpfs or ramfs: its files are in RAM */
    bool network;     /* NFS and the like: one for all nodes */
    bool direct;
    int refused; /* errno of what could not be done first; 0: all could */
};

void disk_look(struct disk *d, const char *path);

/* The folder that --offload nvme uses when none is named, and the variable it
 * came from (NULL: none), of these the first that is set. */
const char *disk_default(const char **variable);
/* Those that are meant: given, with ':' between them, or where that is NULL the default, which is
 * one. NULL: it is none, as was said. */
const char *disk_folders(const char *given);
#define DISK_VARIABLES 2
extern const char *const disk_variables[DISK_VARIABLES];

#endif
