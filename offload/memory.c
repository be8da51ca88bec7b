// SPDX-License-Identifier: Apache-2.0
#include "offload/memory.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "offload/groups.h"

/* The files of a control group: names differ between the versions. */
static const struct files {
    const char *limit, *usage;
    const char *high; /* beyond it whoever takes memory is made to wait, as good as for ever */
    /* What can be dropped: keys of memory.stat, and by what they are divided. Of its own caches
     * the kernel counts on half. */
    struct {
        const char *key;
        int64_t by;
    } cache[3];
} files[] = {
    [1] = {.limit = "memory.limit_in_bytes",
           .usage = "memory.usage_in_bytes",
           .cache = {{"total_inactive_file", 1}, {"total_active_file", 1}}},
    [2] = {.limit = "memory.max",
           .usage = "memory.current",
           .high = "memory.high",
           .cache = {{"inactive_file", 1}, {"active_file", 1}, {"slab_reclaimable", 2}}},
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

static void group_bound(void *arg, const char *folder, int version)
{
    const struct files *f = &files[version];
    int64_t limit, high, usage;
    if (!groups_number(folder, f->limit, NULL, &limit))
        limit = INT64_MAX;
    if (f->high != NULL && groups_number(folder, f->high, NULL, &high) && high < limit)
        limit = high;
    if (limit == INT64_MAX || !groups_number(folder, f->usage, NULL, &usage))
        return;
    for (int i = 0; i < 3 && f->cache[i].key != NULL; i++) {
        int64_t cache;
        if (!groups_number(folder, "memory.stat", f->cache[i].key, &cache))
            continue;
        cache /= f->cache[i].by;
        usage -= cache < usage ? cache : usage;
    }
    bound_add(arg, groups_id(folder), limit, limit > usage ? limit - usage : 0, folder);
}

int memory_bounds(const char *root, struct memory_bound bound[MEMORY_BOUNDS])
{
    struct bounds bounds = {.bound = bound};
    char path[PATH_MAX];
    int64_t kib;
    snprintf(path, sizeof(path), "%s/proc", root);
    if (groups_number(path, "meminfo", "MemAvailable:", &kib) && kib <= INT64_MAX / 1024)
        bound_add(&bounds, 0, 0, kib * 1024, "MemAvailable");
    groups_each(root, "memory", group_bound, &bounds);
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
