// SPDX-License-Identifier: Apache-2.0
/* Processors, what this process may use of them, and the kernels chosen. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/common/launch.h"
#include "examples/zero/info.h"
#include "kernels/kernels.h"
#include "offload/groups.h"

/* Cores: CPUs that are the first of their siblings. 0: the kernel does not say. */
static int cores_count(int cpus)
{
    char path[128], line[256];
    int cores = 0;
    for (int i = 0; i < cpus; i++) {
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                 i);
        if (info_line(path, line, sizeof(line)) && atoi(line) == i)
            cores++;
    }
    return cores;
}

static void counts_print(void)
{
    int cpus = (int)sysconf(_SC_NPROCESSORS_CONF), online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int cores = cores_count(cpus);
    if (cores)
        info_fact("CPUs", "%d online, on %d cores", online, cores);
    else
        info_fact("CPUs", "%d online", online);
    char list[1024] = "unknown";
    info_value("/proc/self/status", "Cpus_allowed_list", list, sizeof(list));
    info_fact("affinity mask", "%d CPUs: %s", launch_cpus(), list);
    uint64_t group;
    int quota = groups_cpus("", &group);
    if (quota)
        info_fact("quota of time", "%d CPUs' worth, rounded up, by a control group", quota);
    else
        info_fact("quota of time", "none");
}

static void numa_print(void)
{
    char nodes[256] = "", allowed[256] = "";
    if (!info_line("/sys/devices/system/node/online", nodes, sizeof(nodes))) {
        info_fact("NUMA nodes", "the kernel does not say");
        return;
    }
    info_value("/proc/self/status", "Mems_allowed_list", allowed, sizeof(allowed));
    info_fact("NUMA nodes", "%s; memory allowed on %s", nodes, *allowed ? allowed : "unknown");
}

static void isa_print(void)
{
    static const char *const names[] = {"scalar", "avx2", "avx512", "neon"};
    char text[64] = "";
    struct error error = {0};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct error unused = {0};
        if (kernels_select(names[i], &unused)) {
            strcat(text, *text ? " " : "");
            strcat(text, names[i]);
        }
    }
    info_fact("instruction sets", "%s", text);
    const struct kernels *chosen = kernels_select(NULL, &error);
    const char *forced = getenv("ZERO_ISA");
    if (chosen)
        info_fact("kernels chosen", "%s%s", chosen->isa,
                  forced && *forced ? " (ZERO_ISA)" : " (the best)");
    else
        info_fact("kernels chosen", "none: %s", error.text);
}

void info_cpu(void)
{
    char model[256];
    puts("processor");
    if (!info_value("/proc/cpuinfo", "model name", model, sizeof(model)))
        snprintf(model, sizeof(model), "the kernel does not say");
    info_fact("model", "%s", model);
    counts_print();
    numa_print();
    isa_print();
}
