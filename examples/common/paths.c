// SPDX-License-Identifier: Apache-2.0
/* Folders are read in the order in which the system lists them; sorting makes
 * it ours. */
#include "examples/common/paths.h"

#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/common/refuse.h"

static int paths_add(struct paths *p, char *path, struct sink sink)
{
    if (path && p->count == p->room) {
        int room = p->room ? 2 * p->room : 64;
        char **items = realloc(p->items, (size_t)room * sizeof(*items));
        if (items) {
            p->items = items;
            p->room = room;
        }
    }
    if (!path || p->count == p->room) {
        free(path);
        return refuse(sink, "No memory is left for the list of %d files. Give fewer with --data.",
                      p->count);
    }
    p->items[p->count++] = path;
    return 0;
}

void paths_free(struct paths *p)
{
    for (int i = 0; i < p->count; i++)
        free(p->items[i]);
    free(p->items);
    *p = (struct paths){0};
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All files that one path of the command line stands for, sorted. */
static int collect(struct paths *files, const char *path, struct sink sink)
{
    struct stat st;
    if (stat(path, &st) < 0 || access(path, R_OK) < 0)
        return refuse(sink,
                      "'%s' cannot be read: %s. Give --data files and folders that can be read.",
                      path, strerror(errno));
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return refuse(sink, "'%s' is neither a file nor a folder. Give --data files and folders.",
                      path);
    char *const roots[] = {(char *)path, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
    int first = files->count, status = walk ? 0 : paths_add(files, NULL, sink);
    for (FTSENT *e; status == 0 && (e = fts_read(walk));) {
        if (e->fts_info == FTS_F)
            status = paths_add(files, strdup(e->fts_path), sink);
        files->unreadable += e->fts_info == FTS_DNR;
        files->passed_over += e->fts_info != FTS_F && e->fts_info != FTS_D && e->fts_info != FTS_DP;
    }
    if (status == 0 && walk && errno)
        status = paths_add(files, NULL, sink);
    if (walk)
        fts_close(walk);
    if (files->count > first)
        qsort(files->items + first, (size_t)(files->count - first), sizeof(char *), compare);
    return status;
}

int paths_collect(struct paths *files, const char *const *paths, int count, char *error,
                  size_t error_size)
{
    int status = 0;
    *files = (struct paths){0};
    for (int i = 0; status == 0 && i < count; i++)
        status = collect(files, paths[i], (struct sink){error, error_size});
    return status;
}
