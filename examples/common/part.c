// SPDX-License-Identifier: Apache-2.0
#include "examples/common/part.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/common/file.h"

enum { LINKS_MAX = 40 }; /* as in the kernel */

/* Puts what a chain of links leads to in place of its first name, be a file there or not. */
static void follow(char name[PART_PATH])
{
    char target[PART_PATH];
    for (int links = 0; links < LINKS_MAX; links++) {
        ssize_t length = readlink(name, target, sizeof(target) - 1);
        if (length < 0)
            return;
        target[length] = 0;
        char *slash = target[0] == '/' ? NULL : strrchr(name, '/');
        size_t folder = slash ? (size_t)(slash + 1 - name) : 0;
        if (folder + (size_t)length >= PART_PATH)
            return;
        memcpy(name + folder, target, (size_t)length + 1);
    }
}

bool part_whole(const char *path, char name[PART_PATH])
{
    struct stat st;
    snprintf(name, PART_PATH, "%s", path);
    if (stat(path, &st) ? errno == ELOOP : !S_ISREG(st.st_mode))
        return false;
    follow(name);
    return true;
}

const char *part_name(const char *path, char name[PART_PATH])
{
    if (part_whole(path, name))
        strncat(name, ".part", PART_PATH - 1 - strlen(name));
    return name;
}

static bool has_text(const char *part, const char *text, long at)
{
    bool same;
    FILE *f = fopen(part, "re");
    for (same = f && fseek(f, at, SEEK_SET) == 0; same && *text; text++)
        same = fgetc(f) == (unsigned char)*text;
    if (f)
        fclose(f);
    return same;
}

/* Whether what is there may be emptied: nothing, or what a killed run has left. */
static bool is_ours(const char *part, const char *text, long at)
{
    struct stat st;
    if (lstat(part, &st))
        return true;
    return S_ISREG(st.st_mode) && (st.st_size == 0 || has_text(part, text, at));
}

FILE *part_create(const char *path, const char *text, long at)
{
    char whole[PART_PATH], part[PART_PATH];
    bool apart = part_whole(path, whole);
    if (strlen(path) >= PART_PATH || strlen(whole) > PART_PATH - sizeof(".part")) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    if (apart && !is_ours(part_name(path, part), text, at)) {
        errno = EEXIST;
        return NULL;
    }
    return apart && file_taken(whole) ? NULL : file_create(part_name(path, part));
}

int part_publish(const char *path)
{
    char whole[PART_PATH], part[PART_PATH];
    if (!part_whole(path, whole))
        return 0;
    return file_taken(whole) ? -1 : rename(part_name(path, part), whole);
}

void part_folder(const char *file)
{
    char folder[PART_PATH];
    snprintf(folder, sizeof(folder), "%s", file);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0;
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

/* It goes while it is ours: closed first, it might be another run's. */
void part_abandon(const char *path, FILE *part)
{
    char name[PART_PATH];
    if (!part)
        return;
    if (part_whole(path, name))
        unlink(part_name(path, name));
    fclose(part);
}
