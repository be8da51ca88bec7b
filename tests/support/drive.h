// SPDX-License-Identifier: Apache-2.0
/* For tests that measure a drive: whether a folder's files are on one. */
#ifndef TESTS_SUPPORT_DRIVE_H
#define TESTS_SUPPORT_DRIVE_H

#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "offload/spill.h"

/* False, with a line that says so: they are in memory, or move through the page cache alone. */
static inline bool drive_under(const char *folder)
{
    char type[SPILL_TYPE] = "";
    int fd = spill_open(folder);
    bool direct = fd >= 0 && spill_direct(fd);
    if (fd >= 0) {
        spill_type_read(fd, type);
        close(fd);
    }
    direct = direct && !spill_type_is_memory(type);
    if (!direct)
        printf("skipped: %s (%s) is on no drive that can be measured\n", folder, type);
    return direct;
}

#endif
