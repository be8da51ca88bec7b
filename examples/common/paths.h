// SPDX-License-Identifier: Apache-2.0
/* The files that paths of a command line stand for: files, and folders with all
 * that is below them. What is in the files is for others to see. */
#ifndef EXAMPLES_COMMON_PATHS_H
#define EXAMPLES_COMMON_PATHS_H

#include <stddef.h>

struct paths {
    char **items;
    int count, room;
    int passed_over; /* links, pipes and devices, folders that cannot be read */
    int unreadable;  /* of them those folders */
};

/* The files of each path in bytewise order, path after path; symbolic links
 * below a folder are passed over. Returns 0, or -1 with error set: a path cannot be
 * read, or is neither. In both cases paths_free is due. */
int paths_collect(struct paths *files, const char *const *paths, int count, char *error,
                  size_t error_size);
void paths_free(struct paths *p);

#endif
