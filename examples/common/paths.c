// SPDX-License-Identifier: Apache-2.0
/* Folders are read in the order in which the system lists them; sorting makes
 * it ours. */
#include "examples/common/paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/common/refuse.h"

struct walker {
    struct paths *files, folders; /* found; still to be read */
    struct sink sink;
};

static int paths_add(struct walker *w, struct paths *p, char *path)
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
        return refuse(w->sink,
                      "No memory is left for the list of %d files. Give fewer with --data.",
                      w->files->count);
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

static char *join(const char *folder, const char *name)
{
    char *path;
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    return asprintf(&path, "%.*s/%s", (int)length, folder, name) < 0 ? NULL : path;
}

/* Files of one folder, and its folders for later. */
static int folder_read(struct walker *w, const char *folder)
{
    DIR *d = opendir(folder);
    if (!d) {
        w->files->passed_over++;
        w->files->unreadable++;
        return 0;
    }
    int status = 0;
    for (struct dirent *e; status == 0 && (e = readdir(d));) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            w->files->passed_over++;
        else if (S_ISDIR(st.st_mode))
            status = paths_add(w, &w->folders, join(folder, e->d_name));
        else if (S_ISREG(st.st_mode))
            status = paths_add(w, w->files, join(folder, e->d_name));
        else
            w->files->passed_over++;
    }
    closedir(d);
    return status;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All files that one path of the command line stands for, sorted. */
static int collect(struct walker *w, const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0 || access(path, R_OK) < 0)
        return refuse(w->sink, "'%s' cannot be read: %s. Give --data files and folders that exist.",
                      path, strerror(errno));
    if (S_ISREG(st.st_mode))
        return paths_add(w, w->files, strdup(path));
    if (!S_ISDIR(st.st_mode))
        return refuse(w->sink,
                      "'%s' is neither a file nor a folder. Give --data files and folders.", path);
    int first = w->files->count, status = folder_read(w, path);
    while (status == 0 && w->folders.count) {
        char *folder = w->folders.items[--w->folders.count];
        status = folder_read(w, folder);
        free(folder);
    }
    if (w->files->count > first)
        qsort(w->files->items + first, (size_t)(w->files->count - first), sizeof(char *), compare);
    return status;
}

int paths_collect(struct paths *files, const char *const *paths, int count, char *error,
                  size_t error_size)
{
    struct walker w = {.files = files, .sink = {error, error_size}};
    int status = 0;
    *files = (struct paths){0};
    for (int i = 0; status == 0 && i < count; i++)
        status = collect(&w, paths[i]);
    paths_free(&w.folders);
    return status;
}
