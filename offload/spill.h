// SPDX-License-Identifier: Apache-2.0
/*
 * The file that holds what does not fit in memory: one per rank, without a
 * name (O_TMPFILE, or created and unlinked where that is refused), so the
 * kernel frees it however the process ends. Space is allocated up front, so a
 * full disk is an error at creation.
 */
#ifndef OFFLOAD_SPILL_H
#define OFFLOAD_SPILL_H

#include <stdbool.h>
#include <stdint.h>

#include "src/error.h"

#define SPILL_ALIGN 4096 /* of offsets, lengths and memory */

struct spill {
    int fd;        /* -1: none */
    int64_t bytes;
    bool direct;   /* O_DIRECT is in use */
    char path[256];
    char type[32]; /* the file system: "ext4", "tmpfs", ... */
};

/* ZERO_ERR_IO with path, what was refused and, when space lacks, bytes asked
 * and bytes free. O_DIRECT refused: goes on without (spill->direct false). */
int spill_create(struct spill *spill, const char *path, int64_t bytes, struct error *error);
void spill_destroy(struct spill *spill);

#endif
