// SPDX-License-Identifier: Apache-2.0
/* Folders are read in the order in which the system lists them; sorting makes
 * it ours. */
#include "examples/common/paths.h"

#include <errno.h>
#include <fts.h>
#include <stdbool.h>
#include <stdint.h>
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

/* All files that one path of an option stands for, sorted. */
static int collect(struct paths *files, const char *option, const char *path, struct sink sink)
{
    struct stat st;
    if (stat(path, &st) < 0 || access(path, R_OK) < 0)
        return refuse(sink, "'%s' cannot be read: %s. Give %s files and folders that can be read.",
                      path, strerror(errno), option);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return refuse(sink, "'%s' is neither a file nor a folder. Give %s files and folders.", path,
                      option);
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
        status = collect(files, "--data", paths[i], (struct sink){error, error_size});
    return status;
}

/* ------------------------------------------------------------------ holding */

struct identity {
    uint64_t device, inode;
};

static bool identify(const char *path, struct identity *out)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return false;
    *out = (struct identity){st.st_dev, st.st_ino};
    return true;
}

static int compare_identities(const void *a, const void *b)
{
    const struct identity *x = a, *y = b;
    if (x->inode != y->inode)
        return x->inode < y->inode ? -1 : 1;
    return (x->device > y->device) - (x->device < y->device);
}

/* Drops those before number first that are the same files as one from there on. */
static int leave_out(struct paths *files, int first, struct sink sink)
{
    struct identity id, *held = malloc((size_t)(files->count - first) * sizeof(*held));
    size_t known = 0;
    int kept = 0;
    if (!held)
        return paths_add(files, NULL, sink);
    for (int i = first; i < files->count; i++)
        known += identify(files->items[i], &held[known]);
    qsort(held, known, sizeof(*held), compare_identities);
    for (int i = 0; i < files->count; i++) {
        if (i < first && identify(files->items[i], &id) &&
            bsearch(&id, held, known, sizeof(*held), compare_identities))
            free(files->items[i]);
        else
            files->items[kept++] = files->items[i];
    }
    files->count = kept;
    free(held);
    return 0;
}

int paths_hold(struct paths *files, const char *const *paths, int count, char *error,
               size_t error_size)
{
    struct sink sink = {error, error_size};
    int first = files->count, passed_over = files->passed_over, status = 0;
    for (int i = 0; status == 0 && i < count; i++)
        status = collect(files, "--eval-data", paths[i], sink);
    files->held = files->count - first;
    if (status == 0 && files->held == 0)
        status = refuse(sink,
                        "No file was found under --eval-data (links and folders passed over: %d). "
                        "Give --eval-data files, or folders with some.",
                        files->passed_over - passed_over);
    return status ? status : leave_out(files, first, sink);
}
