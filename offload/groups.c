// SPDX-License-Identifier: Apache-2.0
#include "offload/groups.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define KEY_MAX 64

/* A container may show a path that is not there: the walk then meets the mount's own root. */
static void each_above(const char *mount, char *group, int version, groups_fn *visit, void *arg)
{
    for (;;) {
        char folder[PATH_MAX];
        if (snprintf(folder, sizeof(folder), "%s%s", mount, group) < (int)sizeof(folder))
            visit(arg, folder, version);
        char *slash = strrchr(group, '/');
        if (slash == NULL)
            return;
        *slash = '\0';
    }
}

/* Lines of /proc/self/cgroup are id:controllers:path; version 2 has none of the middle. */
static void each_of_line(const char *root, char *line, const char *controller, groups_fn *visit,
                         void *arg)
{
    line[strcspn(line, "\n")] = '\0';
    char mount[PATH_MAX], *controllers = strchr(line, ':');
    char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL)
        return;
    *group++ = '\0';
    controllers++;
    snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup", root);
    if (*controllers == '\0')
        each_above(mount, group, 2, visit, arg);
    snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup/%s", root, controller);
    for (char *save, *name = strtok_r(controllers, ",", &save); name != NULL;
         name = strtok_r(NULL, ",", &save))
        if (strcmp(name, controller) == 0)
            each_above(mount, group, 1, visit, arg);
}

void groups_each(const char *root, const char *controller, groups_fn *visit, void *arg)
{
    char path[PATH_MAX], line[PATH_MAX];
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    while (fgets(line, sizeof(line), file) != NULL)
        each_of_line(root, line, controller, visit, arg);
    fclose(file);
}

uint64_t groups_id(const char *folder)
{
    struct stat st = {0};
    stat(folder, &st);
    return (uint64_t)st.st_dev * 0x9E3779B97F4A7C15u + (uint64_t)st.st_ino;
}

static FILE *file_of(const char *folder, const char *name)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
        return NULL;
    return fopen(path, "re");
}

bool groups_number(const char *folder, const char *name, const char *key, int64_t *number)
{
    FILE *file = file_of(folder, name);
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

/* "max 100000" where there is none. */
static bool quota_read(const char *folder, int64_t *quota, int64_t *period)
{
    FILE *file = file_of(folder, "cpu.max");
    bool found = file != NULL && fscanf(file, "%" SCNd64 " %" SCNd64, quota, period) == 2;
    if (file != NULL)
        fclose(file);
    return found;
}

struct quota {
    int cpus;
    uint64_t group;
};

static void take_quota(void *arg, const char *folder, int version)
{
    struct quota *tightest = arg;
    int64_t quota, period;
    bool found = version == 2 ? quota_read(folder, &quota, &period)
                              : groups_number(folder, "cpu.cfs_quota_us", NULL, &quota) &&
                                    groups_number(folder, "cpu.cfs_period_us", NULL, &period);
    if (!found || quota <= 0 || period <= 0)
        return;
    int64_t cpus = quota / period + (quota % period > 0);
    if (cpus < INT_MAX && (tightest->cpus == 0 || cpus < tightest->cpus))
        *tightest = (struct quota){(int)cpus, groups_id(folder)};
}

int groups_cpus(const char *root, uint64_t *group)
{
    struct quota tightest = {0};
    groups_each(root, "cpu", take_quota, &tightest);
    *group = tightest.group;
    return tightest.cpus;
}
