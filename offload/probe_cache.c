// SPDX-License-Identifier: Apache-2.0
/* Results as text files, one per device, written beside their place and renamed
 * into it: a reader sees the old or the new one, whole. */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "offload/probe.h"

#define NUMBERS(d) "block %d depth %d read %" d " write %" d " both %" d
#define FORMAT     "libzero io 4\n%s\n" NUMBERS(PRId64) "\nend\n"

/* ------------------------------------------------------------------- the key */

/* The first line of a file without blanks at its end, or "". */
static void line_read(char *line, size_t size, const char *folder, const char *name)
{
    char path[PATH_MAX + 16];
    line[0] = '\0';
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    if (fgets(line, (int)size, file) == NULL)
        line[0] = '\0';
    fclose(file);
    size_t length = strcspn(line, "\n");
    while (length > 0 && line[length - 1] == ' ')
        length--;
    line[length] = '\0';
}

static void device_name(char name[64], const char *folder)
{
    char path[PATH_MAX + 16], line[128];
    name[0] = '\0';
    snprintf(path, sizeof(path), "%s/uevent", folder);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        sscanf(line, "DEVNAME=%63s", name);
    if (file != NULL)
        fclose(file);
}

/* Where the file system that a folder is in begins: its mount point, mostly. */
static bool top_of(char top[PATH_MAX], const char *folder, dev_t device)
{
    struct stat st;
    if (realpath(folder, top) == NULL)
        return false;
    while (top[1] != '\0') {
        char *cut = strrchr(top, '/');
        cut += cut == top; /* the root keeps its own */
        char name = *cut;
        *cut = '\0';
        if (stat(top, &st) == 0 && st.st_dev == device)
            continue;
        *cut = name;
        break;
    }
    return true;
}

/* Such a name may be another drive's on each node; a network's is one for all. */
static bool top_key(char key[PROBE_KEY], const char *folder, dev_t device, const char *type)
{
    char top[PATH_MAX], node[HOST_NAME_MAX + 1] = "";
    if (!top_of(top, folder, device))
        return false;
    if (!spill_type_is_network(type))
        gethostname(node, HOST_NAME_MAX);
    return snprintf(key, PROBE_KEY, "folder %s of %s type %s", top, *node ? node : "all nodes",
                    type) < PROBE_KEY;
}

bool probe_key(char key[PROBE_KEY], const char *root, const char *folder)
{
    struct stat st;
    char type[SPILL_TYPE] = "", device[PATH_MAX], part[16], name[64], size[32], model[96];
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool known = fstat(fd, &st) == 0;
    spill_type_read(fd, type);
    close(fd);
    if (!known)
        return false;
    snprintf(device, sizeof(device), "%s/sys/dev/block/%u:%u", root, major(st.st_dev),
             minor(st.st_dev));
    line_read(part, sizeof(part), device, "partition");
    if (part[0] != '\0') /* it is as fast as its drive, and together with others no faster */
        snprintf(device + strlen(device), sizeof(device) - strlen(device), "/..");
    device_name(name, device);
    line_read(size, sizeof(size), device, "size");
    if (name[0] == '\0' || size[0] == '\0')
        return top_key(key, folder, st.st_dev, type);
    line_read(model, sizeof(model), device, "dm/uuid");
    if (model[0] == '\0')
        line_read(model, sizeof(model), device, "device/model");
    return snprintf(key, PROBE_KEY, "device %s size %s model %s type %s", name, size, model, type) <
           PROBE_KEY;
}

bool probe_keys_one_drive(const char *key, const char *other)
{
    size_t compared = strlen(key) + 1;
    if (strncmp(key, "device ", 7) == 0)
        compared = (size_t)(strrchr(key, ' ') - key); /* the type comes last */
    return strncmp(key, other, compared) == 0;
}

/* ----------------------------------------------------------------- the files */

/* The cache's folder with a key's file in it, or false. */
static bool cache_path(char *path, size_t size, const char *key)
{
    const char *base = getenv("XDG_CACHE_HOME"), *below = "";
    if (base == NULL || base[0] != '/') { /* the standard: others are to be ignored */
        base = getenv("HOME");
        below = "/.cache";
    }
    if (base == NULL || base[0] != '/')
        return false;
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char *c = key; *c != '\0'; c++)
        hash = (hash ^ (uint8_t)*c) * 1099511628211u;
    return snprintf(path, size, "%s%s/libzero/io-%016" PRIx64, base, below, hash) < (int)size;
}

static bool probe_is_sound(const struct probe *p)
{
    return p->block >= SPILL_ALIGN && p->block <= RING_BLOCK_MAX && p->block % SPILL_ALIGN == 0 &&
           p->depth >= 1 && p->depth <= RING_DEPTH_MAX && p->read >= 1 && p->write >= 1 &&
           p->both >= 1;
}

bool probe_load(struct probe *probe, const char *key)
{
    char path[PATH_MAX], text[2 * PROBE_KEY], again[2 * PROBE_KEY];
    if (!cache_path(path, sizeof(path), key))
        return false;
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe there is not waited for */
    ssize_t length = -1;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        length = read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    if (length < 0)
        return false;
    text[length] = '\0';

    struct probe p = {0};
    int64_t reads, writes, both;
    const char *numbers = strstr(text, "\nblock ");
    if (numbers == NULL ||
        sscanf(numbers, " " NUMBERS(SCNd64), &p.block, &p.depth, &reads, &writes, &both) != 5)
        return false;
    p.read = (double)reads;
    p.write = (double)writes;
    p.both = (double)both;
    /* What is written from it is what was read, so all of it is there. */
    snprintf(again, sizeof(again), FORMAT, key, p.block, p.depth, reads, writes, both);
    if (!probe_is_sound(&p) || strcmp(again, text) != 0)
        return false;
    *probe = p;
    return true;
}

/* The folders above a file. */
static void folders_make(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
}

bool probe_store(const struct probe *probe, const char *key)
{
    char path[PATH_MAX - 16], temporary[PATH_MAX];
    if (!probe_is_sound(probe) || !cache_path(path, sizeof(path), key))
        return false;
    folders_make(path);
    snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return false;
    bool written =
        dprintf(fd, FORMAT, key, probe->block, probe->depth, (int64_t)llround(probe->read),
                (int64_t)llround(probe->write), (int64_t)llround(probe->both)) > 0;
    written &= close(fd) == 0;
    if (written && rename(temporary, path) == 0)
        return true;
    unlink(temporary);
    return false;
}

int probe_lock(const char *key)
{
    char path[PATH_MAX - 16], lock[PATH_MAX + HOST_NAME_MAX], node[HOST_NAME_MAX + 2] = "";
    if (!cache_path(path, sizeof(path), key))
        return -1;
    folders_make(path);
    if (!spill_type_is_network(strrchr(key, ' ') + 1)) { /* the type comes last */
        node[0] = '.';
        gethostname(node + 1, sizeof(node) - 2);
    }
    snprintf(lock, sizeof(lock), "%s%s.lock", path, node);
    /* Its name can be foreseen: a link that somebody put there is not followed. */
    return open(lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
}
