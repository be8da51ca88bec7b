// SPDX-License-Identifier: Apache-2.0
/*
 * What the kernel says of a machine, in files below a root: memory, control groups, NUMA nodes,
 * drives. An input holds the files in the order of the list below, with a zero byte between them.
 */
#include <sys/sysmacros.h>

#include "offload/numa.h"
#include "offload/preflight.h"
#include "offload/probe.h"
#include "tests/fuzz/folder.h"

#define V2    "/sys/fs/cgroup/job/"
#define V1    "/sys/fs/cgroup/memory/job/"
#define NODES "/sys/devices/system/node/"

static const char *const names[] = {
    "/proc/meminfo",
    "/proc/self/cgroup",
    V2 "memory.max",
    V2 "memory.current",
    V2 "memory.stat",
    V1 "memory.limit_in_bytes",
    V1 "memory.usage_in_bytes",
    V1 "memory.stat",
    NODES "has_memory",
    NODES "online",
    NODES "node0/cpulist",
    NODES "node1/cpulist",
    "/proc/sys/kernel/random/boot_id",
};
enum { FILES = sizeof(names) / sizeof(*names), DRIVE = 3 };

static int fds[FILES], drive[DRIVE];

static void machine_make(void)
{
    static const char *const parts[DRIVE] = {"uevent", "size", "device/model"};
    struct stat st;
    char path[128];
    folder_make();
    for (int i = 0; i < FILES; i++)
        fds[i] = folder_file(names[i]);
    REQUIRE(stat(folder, &st) == 0);
    for (int i = 0; i < DRIVE; i++) {
        snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s", major(st.st_dev), minor(st.st_dev),
                 parts[i]);
        drive[i] = folder_file(path);
    }
}

static void memory_check(void)
{
    struct memory_bound bounds[MEMORY_BOUNDS];
    char source[64];
    int count = memory_bounds(folder, bounds);
    int64_t least = INT64_MAX;
    REQUIRE(count >= 0 && count <= MEMORY_BOUNDS);
    for (int i = 0; i < count; i++) {
        REQUIRE(bounds[i].available >= 0);
        REQUIRE(strnlen(bounds[i].source, sizeof(bounds[i].source)) < sizeof(bounds[i].source));
        least = bounds[i].available < least ? bounds[i].available : least;
    }
    REQUIRE(memory_available(folder, source, sizeof(source)) == least);
}

static void nodes_check(void)
{
    struct numa numa;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(0, &cpus);
    CPU_SET(5, &cpus);
    numa_read(&numa, folder, &cpus);
    REQUIRE(numa.nodes >= 0 && numa.nodes <= NUMA_NODES);
    REQUIRE(numa.mine >= 0 && numa.mine <= numa.nodes);
}

static void facts_check(void)
{
    static struct preflight_facts facts[2];
    const struct preflight_need need = {.arena = 1000, .device = 1000};
    struct error error = {0};
    for (int r = 0; r < 2; r++)
        preflight_collect(&facts[r], folder, &need, NULL, 4096);
    REQUIRE(facts[0].node && facts[0].node == facts[1].node);
    const struct preflight_ranks ranks = {&facts[0], sizeof(facts[0]), 2};
    REQUIRE((preflight_judge(&ranks, &error) == ZERO_OK) == (error.text[0] == '\0'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    char key[PROBE_KEY];
    if (!folder[0])
        machine_make();
    for (int i = 0; i < FILES; i++)
        file_set(fds[i], take_until(&input, 0));
    for (int i = 0; i < DRIVE; i++)
        file_set(drive[i], take_until(&input, 0));
    memory_check();
    nodes_check();
    facts_check();
    if (probe_key(key, folder, folder))
        REQUIRE(strnlen(key, PROBE_KEY) < PROBE_KEY);
    return 0;
}
