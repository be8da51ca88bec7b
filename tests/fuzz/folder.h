// SPDX-License-Identifier: Apache-2.0
/* A folder for a fuzz target, removed when the target ends by itself; tests/fuzz.sh removes what
 * one that fails leaves in $TMPDIR. */
#ifndef TESTS_FUZZ_FOLDER_H
#define TESTS_FUZZ_FOLDER_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>

#include "tests/fuzz/input.h"

static char folder[256];

static int folder_entry_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static inline void folder_remove(void)
{
    nftw(folder, folder_entry_remove, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static inline void folder_make(void)
{
    const char *above = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/zero-fuzz-XXXXXX", above ? above : "/tmp");
    REQUIRE(mkdtemp(folder));
    atexit(folder_remove);
}

/* A file below the folder, open, with the folders above it. */
static inline int folder_file(const char *path)
{
    char full[512];
    snprintf(full, sizeof(full), "%s%s", folder, path);
    for (char *slash = strchr(full + strlen(folder) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        REQUIRE(mkdir(full, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    int fd = open(full, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    return fd;
}

#endif
