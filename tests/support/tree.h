// SPDX-License-Identifier: Apache-2.0
/* A folder of small files that stands for /proc and /sys: code that takes a
 * root reads them instead of this machine's. */
#ifndef TESTS_SUPPORT_TREE_H
#define TESTS_SUPPORT_TREE_H

#include <stddef.h>

#define TREE_ROOT 64

/* Makes an empty one; root takes its name. */
void tree_make(char root[TREE_ROOT]);

/* Writes a file, whose folder is there. */
void tree_write(const char *path, const void *bytes, size_t count);

/* Writes root/path, with the folders above it. */
void tree_put(const char *root, const char *path, const char *text);

void tree_remove(const char *root);

#endif
