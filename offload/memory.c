// SPDX-License-Identifier: Apache-2.0
#include "offload/memory.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define KEY_MAX 64

/* Where one version of the control groups keeps its numbers. */
struct groups {
    const char *mount;
    const char *limit;
    const char *high; /* beyond it whoever takes memory is made to wait, as good as for ever */
    const char *usage;
    const char *cache[2]; /* keys of memory.stat: file pages, which can be dropped */
};

static const struct groups groups_v1 = {
    .mount = "/sys/fs/cgroup/memory",
    .limit = "memory.limit_in_bytes",
    .usage = "memory.usage_in_bytes",
    .cache = {"total_inactive_file", "total_active_file"},
};

static const struct groups groups_v2 = {
    .mount = "/sys/fs/cgroup",
    .limit = "memory.max",
    .high = "memory.high",
    .usage = "memory.current",
    .cache = {"inactive_file", "active_file"},
};

struct bounds {
    struct memory_bound *bound;
    int count;
};

/* Takes a bound in; the loosest gives way when there is no room. */
static void bound_add(struct bounds *bounds, uint64_t id, int64_t limit, int64_t bytes,
                      const char *source)
{
    struct memory_bound *place = &bounds->bound[0];
    for (int i = 0; i < bounds->count; i++)
        if (bounds->bound[i].id == id)
            return; /* "/group/" and "/group" */
    if (bounds->count < MEMORY_BOUNDS) {
        place = &bounds->bound[bounds->count++];
    } else {
        for (int i = 1; i < MEMORY_BOUNDS; i++)
            if (bounds->bound[i].available > place->available)
                place = &bounds->bound[i];
        if (place->available <= bytes)
            return;
    }
    place->id = id;
    place->limit = limit;
    place->available = bytes;
    size_t length = strlen(source), most = sizeof(place->source) - 1; /* its end says more */
    snprintf(place->source, sizeof(place->source), "%.*s", (int)most,
             source + (length > most ? length - most : 0));
}

/* The number after key in folder/name, or the file's first when key is NULL.
 * False when there is none: no such file, "max", or what no amount can be. */
static bool number_read(const char *folder, const char *name, const char *key, int64_t *number)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
        return false;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    bool found = false;
    char line[256], word[KEY_MAX];
    if (key == NULL)
        found = fscanf(file, "%" SCNd64, number) == 1;
    while (key != NULL && !found && fgets(line, sizeof(line), file) != NULL)
        found = sscanf(line, "%63s %" SCNd64, word, number) == 2 && strcmp(word, key) == 0;
    fclose(file);
    return found && *number >= 0;
}

static void group_bound(const char *folder, const struct groups *groups, struct bounds *bounds)
{
    int64_t limit, high, usage;
    if (!number_read(folder, groups->limit, NULL, &limit))
        limit = INT64_MAX;
    if (groups->high != NULL && number_read(folder, groups->high, NULL, &high) && high < limit)
        limit = high;
    if (limit == INT64_MAX || !number_read(folder, groups->usage, NULL, &usage))
        return;
    for (int i = 0; i < 2; i++) {
        int64_t cache;
        if (number_read(folder, "memory.stat", groups->cache[i], &cache))
            usage -= cache < usage ? cache : usage;
    }
    struct stat st = {0};
    stat(folder, &st); /* a group is the same in every container that sees it */
    uint64_t id = (uint64_t)st.st_dev * 0x9E3779B97F4A7C15u + (uint64_t)st.st_ino;
    bound_add(bounds, id, limit, limit > usage ? limit - usage : 0, folder);
}

/* A group and all above it. A container may show a path that is not there: the
 * walk then meets the mount's own root. */
static void groups_bound(const char *root, char *group, const struct groups *groups,
                         struct bounds *bounds)
{
    for (;;) {
        char folder[PATH_MAX];
        if (snprintf(folder, sizeof(folder), "%s%s%s", root, groups->mount, group) <
            (int)sizeof(folder))
            group_bound(folder, groups, bounds);
        char *slash = strrchr(group, '/');
        if (slash == NULL)
            return;
        *slash = '\0';
    }
}

/* Lines of /proc/self/cgroup are id:controllers:path; version 2 has none of
 * the middle. */
static void line_bound(const char *root, char *line, struct bounds *bounds)
{
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL)
        return;
    *group++ = '\0';
    controllers++;
    if (*controllers == '\0')
        groups_bound(root, group, &groups_v2, bounds);
    for (char *save, *name = strtok_r(controllers, ",", &save); name != NULL;
         name = strtok_r(NULL, ",", &save))
        if (strcmp(name, "memory") == 0)
            groups_bound(root, group, &groups_v1, bounds);
}

int memory_bounds(const char *root, struct memory_bound bound[MEMORY_BOUNDS])
{
    struct bounds bounds = {.bound = bound};
    char path[PATH_MAX];
    int64_t kib;
    snprintf(path, sizeof(path), "%s/proc", root);
    if (number_read(path, "meminfo", "MemAvailable:", &kib) && kib <= INT64_MAX / 1024)
        bound_add(&bounds, 0, 0, kib * 1024, "MemAvailable");

    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        char line[PATH_MAX];
        while (fgets(line, sizeof(line), file) != NULL)
            line_bound(root, line, &bounds);
        fclose(file);
    }
    return bounds.count;
}

int64_t memory_available(const char *root, char *source, size_t source_size)
{
    struct memory_bound bound[MEMORY_BOUNDS];
    int count = memory_bounds(root, bound);
    int64_t least = INT64_MAX;
    snprintf(source, source_size, "nothing");
    for (int i = 0; i < count; i++)
        if (bound[i].available < least) {
            least = bound[i].available;
            snprintf(source, source_size, "%s", bound[i].source);
        }
    return least;
}
