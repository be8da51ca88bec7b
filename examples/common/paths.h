// SPDX-License-Identifier: Apache-2.0
/* The files that paths of a command line stand for: files, and folders with all
 * that is below them. What is in the files is for others to see. */
#ifndef EXAMPLES_COMMON_PATHS_H
#define EXAMPLES_COMMON_PATHS_H

#include <stdbool.h>
#include <stddef.h>

struct paths {
    char **items;
    int count, room;
    int held;        /* the last so many are to be held out; 0: none was named for that */
    int passed_over; /* links, pipes and devices, folders that cannot be read */
    int unreadable;  /* of them those folders */
};

/* The files of each path of --data in bytewise order, path after path; symbolic links
 * below a folder are passed over. Returns 0, or -1 with error set: a path cannot be
 * read, or is neither. In both cases paths_free is due. */
int paths_collect(struct paths *files, const char *const *paths, int count, char *error,
                  size_t error_size);

/* Adds the files of each path of --eval-data behind those, of which the same files go, by whatever
 * name. Returns as paths_collect, or no file is there. */
int paths_hold(struct paths *files, const char *const *paths, int count, char *error,
               size_t error_size);
void paths_free(struct paths *p);

/* Whether file i was named to be held out. */
static inline bool paths_held(const struct paths *files, int i)
{
    return i >= files->count - files->held;
}

#endif
