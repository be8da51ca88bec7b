// SPDX-License-Identifier: Apache-2.0
/* Reads /sys/devices/system/node; asks by mbind itself, so no library is
 * needed. */
#include "offload/numa.h"

#include <ctype.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PREFERRED_MANY 5 /* MPOL_PREFERRED_MANY, Linux 5.15 */
#define SETS           8 /* of CPU_SETSIZE: kernels may be for more CPUs than one has */

/* The kernel's lists of numbers: "0-3,8". False: no such file, or it holds something
 * else. */
static bool list_read(const char *path, cpu_set_t numbers[SETS])
{
    char text[4096];
    FILE *file = fopen(path, "re");
    memset(numbers, 0, SETS * sizeof(*numbers));
    if (file == NULL)
        return false;
    size_t length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = '\0';
    for (char *at = text; isdigit((unsigned char)*at);) {
        long first = strtol(at, &at, 10), last = first;
        if (*at == '-')
            last = strtol(at + 1, &at, 10);
        for (long n = first; n <= last && n < (long)SETS * CPU_SETSIZE; n++)
            CPU_SET_S((size_t)n, SETS * sizeof(*numbers), numbers);
        at += *at == ',';
    }
    return text[0] == '\n' || isdigit((unsigned char)text[0]);
}

void numa_read(struct numa *numa, const char *root, const cpu_set_t *cpus)
{
    char path[PATH_MAX];
    cpu_set_t own[SETS] = {0}, nodes[SETS], list[SETS];
    memset(numa, 0, sizeof(*numa));
    if (cpus == NULL)
        sched_getaffinity(0, sizeof(own), own);
    else
        own[0] = *cpus;
    snprintf(path, sizeof(path), "%s/sys/devices/system/node/has_memory", root);
    if (!list_read(path, nodes)) {
        snprintf(path, sizeof(path), "%s/sys/devices/system/node/online", root);
        list_read(path, nodes);
    }
    for (int node = 0; node < NUMA_NODES; node++) {
        if (!CPU_ISSET((size_t)node, nodes))
            continue;
        numa->nodes++;
        snprintf(path, sizeof(path), "%s/sys/devices/system/node/node%d/cpulist", root, node);
        list_read(path, list);
        CPU_AND_S(sizeof(list), list, list, own);
        if (CPU_COUNT_S(sizeof(list), list) > 0) {
            numa->mine_mask[node / 64] |= (uint64_t)1 << node % 64;
            numa->mine++;
        }
    }
}

bool numa_prefer(const struct numa *numa, void *base, int64_t bytes)
{
    if (numa->mine == 0 || numa->mine == numa->nodes)
        return false;
    /* Not MPOL_BIND: it would have the process killed for want of memory that
     * other nodes have. */
    unsigned long mask[NUMA_NODES / (8 * sizeof(long))];
    memcpy(mask, numa->mine_mask, sizeof(mask));
    if (syscall(SYS_mbind, base, (size_t)bytes, PREFERRED_MANY, mask, NUMA_NODES + 1, 0) == 0)
        return true;
    return numa->mine == 1 &&
           syscall(SYS_mbind, base, (size_t)bytes, MPOL_PREFERRED, mask, NUMA_NODES + 1, 0) == 0;
}
