// SPDX-License-Identifier: Apache-2.0
/* A file of the probe's cache, which anybody may have written: it is passed over, or what it says
 * can be used and is what would be written for it. */
#include <dirent.h>

#include "offload/probe.h"
#include "tests/fuzz/folder.h"

#define KEY "device nvme0n1 size 12 model X type ext4"

static int cached = -1; /* the only file of the cache, open */

/* The cache names its file by the key: it makes one, and we look. */
static void cache_make(void)
{
    char path[512], name[280] = "";
    folder_make();
    setenv("XDG_CACHE_HOME", folder, 1);
    REQUIRE(probe_store(
        &(struct probe){.block = 4096, .depth = 1, .read = 1, .write = 1, .both = 1}, KEY));
    snprintf(path, sizeof(path), "%s/libzero", folder);
    DIR *dir = opendir(path);
    REQUIRE(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.')
            snprintf(name, sizeof(name), "/libzero/%s", e->d_name);
    closedir(dir);
    cached = folder_file(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct probe p = {0};
    char again[2 * PROBE_KEY];
    if (cached < 0)
        cache_make();
    file_set(cached, (struct input){data, size});
    if (!probe_load(&p, KEY))
        return 0;
    REQUIRE(p.block >= SPILL_ALIGN && p.block <= RING_BLOCK_MAX && p.block % SPILL_ALIGN == 0);
    REQUIRE(p.depth >= 1 && p.depth <= RING_DEPTH_MAX && p.read >= 1 && p.write >= 1 &&
            p.both >= 1);
    int length = snprintf(again, sizeof(again), "libzero io 4\n%s\nblock %d depth %d read ", KEY,
                          p.block, p.depth);
    REQUIRE((size_t)length < size && memcmp(again, data, (size_t)length) == 0);
    return 0;
}
