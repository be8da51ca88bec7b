// SPDX-License-Identifier: Apache-2.0
/* Memory, the control groups that limit it, huge pages, and the limits of the
 * process that the library can run into. */
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "examples/zero/info.h"
#include "examples/zero/tool.h"
#include "offload/memory.h"

/* Each of them applies. Version 1 writes a number near 2^63 where there is no limit. */
static void cgroups_print(void)
{
    struct memory_bound bound[MEMORY_BOUNDS];
    int found = 0, count = memory_bounds("", bound);
    for (int i = 0; i < count; i++) {
        const struct memory_bound *b = &bound[i];
        if (!b->limit || b->limit > INT64_MAX / 2)
            continue;
        info_fact("cgroup limit", "%s, %s used: %s", in_bytes(b->limit).text,
                  in_bytes(b->limit - b->available).text, b->source);
        found++;
    }
    if (!found)
        info_fact("cgroup limit", "none");
}

static void limit_print(const char *name, unsigned resource, bool bytes, const char *use)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0)
        return;
    if (limit.rlim_cur == RLIM_INFINITY)
        info_fact(name, "unlimited (%s)", use);
    else if (bytes)
        info_fact(name, "%s (%s)", in_bytes((int64_t)limit.rlim_cur).text, use);
    else
        info_fact(name, "%llu (%s)", (unsigned long long)limit.rlim_cur, use);
}

static void huge_print(void)
{
    char line[256], size[64] = "";
    const char *file = "/sys/kernel/mm/transparent_hugepage/enabled";
    if (!info_line(file, line, sizeof(line)))
        info_fact("transparent huge pages", "the kernel does not say");
    else
        info_fact("transparent huge pages", "%s%s", line,
                  strstr(line, "[never]") ? ": transfers will be slower" : ": used");
    if (info_value("/proc/meminfo", "HugePages_Total", line, sizeof(line)) &&
        info_value("/proc/meminfo", "Hugepagesize", size, sizeof(size)))
        info_fact("reserved huge pages", "%s of %s (not needed)", line, size);
}

void info_memory(void)
{
    char text[64], source[PATH_MAX];
    puts("memory");
    if (info_value("/proc/meminfo", "MemTotal", text, sizeof(text)))
        info_fact("total", "%s", in_bytes(strtoll(text, NULL, 10) * 1024).text);
    int64_t available = memory_available("", source, sizeof(source));
    if (available == INT64_MAX)
        info_fact("available", "unknown");
    else
        info_fact("available", "%s (set by %s)", in_bytes(available).text, source);
    cgroups_print();
    huge_print();
    limit_print("RLIMIT_MEMLOCK", RLIMIT_MEMLOCK, true, "registered buffers; root ignores it");
    limit_print("RLIMIT_AS", RLIMIT_AS, true, "address space");
    limit_print("RLIMIT_FSIZE", RLIMIT_FSIZE, true, "size of a file");
    limit_print("RLIMIT_NOFILE", RLIMIT_NOFILE, false, "open files");
    limit_print("RLIMIT_NPROC", RLIMIT_NPROC, false, "threads of this user");
}
