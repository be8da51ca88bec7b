// SPDX-License-Identifier: Apache-2.0
#include "examples/common/usage.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int64_t usage_peak(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    int64_t kib = 0;
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmHWM: %" SCNd64 " kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib * 1024;
}

int64_t usage_memory(const void *within)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];
    uintptr_t from, to, at = (uintptr_t)within;
    int64_t kib, sum = 0;
    bool meant = false;
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
            meant = !within || (from <= at && at < to);
        else if (meant && sscanf(line, "Anonymous: %" SCNd64 " kB", &kib) == 1)
            sum += kib * 1024;
    if (f)
        fclose(f);
    return sum;
}

/* Whether one of folders is on that file system. */
static bool holds_folder(dev_t system, const char *folders)
{
    char name[1024];
    for (size_t n; *folders; folders += n + (folders[n] == ':')) {
        struct stat here;
        n = strcspn(folders, ":");
        snprintf(name, sizeof(name), "%.*s", (int)n, folders);
        if (stat(name, &here) == 0 && here.st_dev == system)
            return true;
    }
    return false;
}

int64_t usage_files(const char *folders)
{
    struct stat st;
    DIR *d = *folders ? opendir("/proc/self/fd") : NULL;
    int64_t bytes = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        if (fstatat(dirfd(d), e->d_name, &st, 0) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0 &&
            holds_folder(st.st_dev, folders))
            bytes += (int64_t)st.st_blocks * 512;
    if (d)
        closedir(d);
    return bytes;
}

/* The first line of a file of a thread. */
static bool thread_line(const char *thread, const char *name, char *line, size_t size)
{
    char path[300];
    snprintf(path, sizeof(path), "/proc/self/task/%s/%s", thread, name);
    FILE *f = fopen(path, "r");
    bool read = f && fgets(line, (int)size, f);
    if (f)
        fclose(f);
    return read;
}

void usage_cpu(struct usage_cpu *program, struct usage_cpu *library)
{
    DIR *d = opendir("/proc/self/task");
    *program = *library = (struct usage_cpu){0};
    for (struct dirent *e; d && (e = readdir(d));) {
        char name[64], times[128];
        double ran, ready;
        if (e->d_name[0] == '.' || !thread_line(e->d_name, "comm", name, sizeof(name)) ||
            !thread_line(e->d_name, "schedstat", times, sizeof(times)) ||
            sscanf(times, "%lf %lf", &ran, &ready) != 2)
            continue;
        bool mine = strncmp(name, "libzero", 7) != 0 && strncmp(name, "iou-", 4) != 0;
        struct usage_cpu *of = mine ? program : library;
        of->ran += 1e-9 * ran;
        of->ready += 1e-9 * ready;
    }
    if (d)
        closedir(d);
}
