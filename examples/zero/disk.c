// SPDX-License-Identifier: Apache-2.0
/* Mounts come from /proc/self/mountinfo, everything else from trying. */
#include "examples/zero/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/zero/tool.h"
#include "offload/spill.h"

/* Whether the folder path lies at or below the mount point. */
static bool below(const char *path, const char *mount)
{
    size_t n = strlen(mount);
    return strncmp(path, mount, n) == 0 && (n == 1 || path[n] == 0 || path[n] == '/');
}

/* Blanks and backslashes of a name are written there as \ and three octal digits, of which a name
 * that was cut may have fewer. */
static void name_decode(char *name)
{
    char *to = name;
    for (unsigned code; *name; to++)
        if (strspn(name + (*name == '\\'), "01234567") >= 3 && sscanf(name, "\\%3o", &code) == 1) {
            *to = (char)code;
            name += 4;
        } else {
            *to = *name++;
        }
    *to = 0;
}

/* Takes type and device from one line: the mount point is its fifth word, and
 * behind a lone "-" stand type and device. */
static size_t mount_read(struct disk *d, const char *real, char *line, size_t longest)
{
    char mount[DISK_PATH], type[64], device[256];
    char *rest = strstr(line, " - ");
    if (!rest || sscanf(line, "%*s %*s %*s %*s %1023s", mount) != 1 ||
        sscanf(rest, " - %63s %255s", type, device) != 2)
        return longest;
    name_decode(mount);
    name_decode(device);
    if (!below(real, mount) || strlen(mount) < longest)
        return longest;
    memcpy(d->type, type, sizeof(type));
    memcpy(d->device, device, sizeof(device));
    return strlen(mount);
}

static void mount_find(struct disk *d)
{
    char real[PATH_MAX], line[4096];
    FILE *f = realpath(d->path, real) ? fopen("/proc/self/mountinfo", "re") : NULL;
    size_t longest = 0;
    while (f && fgets(line, sizeof(line), f))
        longest = mount_read(d, real, line, longest);
    if (f)
        fclose(f);
}

void disk_look(struct disk *d, const char *path)
{
    *d = (struct disk){.type = "unknown", .device = "unknown"};
    snprintf(d->path, sizeof(d->path), "%s", path);
    struct stat st;
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        d->refused = errno;
        if (fd >= 0)
            close(fd);
        return;
    }
    d->free = spill_space(fd);
    char type[SPILL_TYPE];
    spill_type_read(fd, type);
    d->memory = spill_type_is_memory(type);
    d->network = spill_type_is_network(type);
    close(fd);
    d->id = (uint64_t)st.st_dev;
    mount_find(d);
    fd = spill_open(path);
    if (fd < 0) {
        d->refused = errno;
        return;
    }
    d->direct = spill_direct(fd);
    close(fd);
}

const char *const disk_variables[DISK_VARIABLES] = {"SLURM_TMPDIR", "TMPDIR"};

const char *disk_default(const char **variable)
{
    for (int i = 0; i < DISK_VARIABLES; i++) {
        const char *value = getenv(disk_variables[i]);
        if (value && *value) {
            *variable = disk_variables[i];
            return value;
        }
    }
    *variable = NULL;
    return "/var/tmp";
}

const char *disk_folders(const char *given)
{
    const char *variable, *folders = given ? given : disk_default(&variable);
    if (given || !strchr(folders, ':'))
        return folders;
    tool_refuse("%s is '%.200s', of which the ':' would make two folders. Name a folder without "
                "one (--nvme-path).",
                variable, folders);
    return NULL;
}
