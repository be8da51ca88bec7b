// SPDX-License-Identifier: Apache-2.0
#include "tests/support/tree.h"

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void tree_make(char root[TREE_ROOT])
{
    snprintf(root, TREE_ROOT, "/var/tmp/zero-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
}

void tree_write(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, count, file), count);
    ck_assert_int_eq(fclose(file), 0);
}

void tree_put(const char *root, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *slash = strchr(full + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        ck_assert(mkdir(full, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    tree_write(full, text, strlen(text));
}

static int entry_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

void tree_remove(const char *root)
{
    ck_assert_int_eq(nftw(root, entry_remove, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT), 0);
}
