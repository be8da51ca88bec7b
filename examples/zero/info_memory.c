// SPDX-License-Identifier: Apache-2.0
/* Memory, the control groups that limit it, huge pages, and the limits of the
 * process that the library can run into. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "examples/zero/info.h"
#include "examples/zero/tool.h"
#include "offload/memory.h"

/* ------------------------------------------------------------ control groups */

/* One group's limit, where it has one: version 2 writes "max", version 1 a
 * number near 2^63. */
static int group_print(const char *folder, const char *limit_name, const char *usage_name)
{
    char path[PATH_MAX + 64], line[64], usage[64];
    snprintf(path, sizeof(path), "%s/%s", folder, limit_name);
    if (!info_line(path, line, sizeof(line)) || line[0] < '0' || line[0] > '9')
        return 0;
    int64_t limit = strtoll(line, NULL, 10);
    if (limit > INT64_MAX / 2)
        return 0;
    snprintf(path, sizeof(path), "%s/%s", folder, usage_name);
    if (!info_line(path, usage, sizeof(usage)))
        snprintf(usage, sizeof(usage), "0");
    info_fact("cgroup limit", "%s, %s used: %s/%s", in_bytes(limit).text,
              in_bytes(strtoll(usage, NULL, 10)).text, folder, limit_name);
    return 1;
}

/* A group and all above it: each of them applies. high: a limit that only slows down; or NULL. */
static int groups_print(const char *mount, char *group, const char *limit, const char *high,
                        const char *usage)
{
    int found = 0;
    if (!strcmp(group, "/"))
        group++;
    for (;;) {
        char folder[PATH_MAX];
        snprintf(folder, sizeof(folder), "%s%s", mount, group);
        found += group_print(folder, limit, usage);
        found += high ? group_print(folder, high, usage) : 0;
        char *slash = strrchr(group, '/');
        if (!slash)
            return found;
        *slash = 0;
    }
}

/* Whether the list "a,b,c" has the word. */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (; list; list = strchr(list, ','), list += list != NULL)
        if (strncmp(list, word, n) == 0 && (list[n] == 0 || list[n] == ','))
            return true;
    return false;
}

/* A line of /proc/self/cgroup: number, controllers (none in version 2), group. */
static int line_print(char *line)
{
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group)
        return 0;
    *group++ = 0;
    group[strcspn(group, "\n")] = 0;
    if (has_word(controllers + 1, "memory"))
        return groups_print("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", NULL,
                            "memory.usage_in_bytes");
    if (!controllers[1])
        return groups_print("/sys/fs/cgroup", group, "memory.max", "memory.high", "memory.current");
    return 0;
}

static void cgroups_print(void)
{
    char line[PATH_MAX];
    int found = 0;
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof(line), f))
        found += line_print(line);
    if (f)
        fclose(f);
    if (!found)
        info_fact("cgroup limit", "none");
}

/* -------------------------------------------------------------------- limits */

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
    info_section("memory");
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
