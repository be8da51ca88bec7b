// SPDX-License-Identifier: Apache-2.0
/*
 * Makes the files and finds out what their file systems can do by trying: a
 * nameless file, O_DIRECT, allocation. Every way a user's folder can be wrong
 * ends in a sentence with the folder in it.
 */
#include "offload/spill.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "offload/memory.h"
#include "src/thread.h"

#define ALLOCATE_TRIES 100 /* tmpfs starts over after a signal, of a profiler say */

static const struct {
    uint32_t magic;
    const char *name;
} file_systems[] = {
    {0xEF53, "ext4"},       {0x58465342, "xfs"},       {0x01021994, "tmpfs"},
    {0x9123683E, "btrfs"},  {0x794C7630, "overlayfs"}, {0x6969, "nfs"},
    {0x0BD00BD0, "lustre"}, {0x65735546, "fuse"},      {0x858458F6, "ramfs"},
    {0x2FC12FC1, "zfs"},    {0x47504653, "gpfs"},      {0x00C36400, "ceph"},
    {0x19830326, "beegfs"}, {0xF2F52010, "f2fs"},      {0xCA451A4E, "bcachefs"},
    {0xFF534D42, "cifs"},   {0xFE534D42, "smb"},       {0x01021997, "9p"},
    {0x4D44, "vfat"},
};

void spill_type_read(int fd, char type[SPILL_TYPE])
{
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0) {
        snprintf(type, SPILL_TYPE, "unknown");
        return;
    }
    uint32_t magic = (uint32_t)fs.f_type;
    snprintf(type, SPILL_TYPE, "0x%" PRIX32, magic);
    for (size_t i = 0; i < sizeof(file_systems) / sizeof(file_systems[0]); i++)
        if (file_systems[i].magic == magic)
            snprintf(type, SPILL_TYPE, "%s", file_systems[i].name);
}

bool spill_type_is_memory(const char *type)
{
    return strcmp(type, "tmpfs") == 0 || strcmp(type, "ramfs") == 0;
}

bool spill_type_is_network(const char *type)
{
    static const char *const network[] = {"nfs", "lustre", "gpfs", "ceph", "beegfs", "cifs", "smb"};
    for (size_t i = 0; i < sizeof(network) / sizeof(*network); i++)
        if (strcmp(type, network[i]) == 0)
            return true;
    return false;
}

/* Every failure of a file: the folder, what was done, errno's text. */
static int file_refused(const struct spill_file *file, const char *what, int errnum,
                        struct error *error)
{
    const char *advice = "Choose a writable folder on a local disk (--nvme-path, .nvme_path)";
    if (errnum == EMFILE || errnum == ENFILE)
        advice = "Raise the limit on open files (ulimit -n)";
    return error_set(error, ZERO_ERR_IO, "Cannot %s in %s: %s. %s.", what, file->path,
                     strerror(errnum), advice);
}

static int file_lacks(const struct spill_file *file, int64_t available, struct error *error)
{
    return error_set(error, ZERO_ERR_IO,
                     "%s (%s) has not enough space: %" PRId64 " bytes are needed, %" PRId64
                     " are free. Free some, choose another folder (--nvme-path, .nvme_path), or "
                     "use more nodes (at stage 0: a higher stage, --stage, .stage).",
                     file->path, file->type, file->bytes, available);
}

/* Files in memory are asked about as an arena is: who takes more is killed. */
static int memory_lacks(const struct spill_file *file, struct error *error)
{
    char source[256];
    int64_t available = INT64_MAX;
    if (spill_type_is_memory(file->type))
        available = memory_available("", source, sizeof(source));
    if (file->bytes <= available)
        return ZERO_OK;
    return error_set(error, ZERO_ERR_MEMORY,
                     "A file of %" PRId64 " bytes is needed in %s, which is memory (%s): %" PRId64
                     " bytes are available. Name a folder on a disk (--nvme-path, .nvme_path), or "
                     "ask for more memory (%s).",
                     file->bytes, file->path, file->type, available, source);
}

int64_t spill_space(int fd)
{
    struct statvfs fs;
    int64_t bytes;
    /* ramfs does not count, and some file systems say "no limit" by the largest number. */
    if (fstatvfs(fd, &fs) != 0 || fs.f_blocks == 0 ||
        __builtin_mul_overflow(fs.f_bavail, fs.f_frsize, &bytes))
        return INT64_MAX;
    return bytes;
}

/* btrfs writes into new space each time, beyond what was allocated, and for its checksums' sake
 * (since Linux 6.15) through the page cache, unless an empty file is told that it need not. What
 * the folder says of compression has to go first: the kernel takes no change to both at once. */
static void write_in_place(int fd)
{
    int flags = 0;
    char type[SPILL_TYPE];
    spill_type_read(fd, type);
    if (strcmp(type, "btrfs") != 0 || ioctl(fd, FS_IOC_GETFLAGS, &flags) != 0)
        return;
    flags &= ~(FS_COMPR_FL | FS_NOCOMP_FL);
    if (ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0) {
        flags |= FS_NOCOW_FL;
        (void)ioctl(fd, FS_IOC_SETFLAGS, &flags); /* refused: it is slower */
    }
}

/* A file without a name, or one that has lost it. */
static int file_open(const char *folder)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd_not_standard(fd);
    char name[PATH_MAX];
    if (snprintf(name, sizeof(name), "%s/zero-spill-XXXXXX", folder) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0)
        unlink(name);
    return fd_not_standard(fd);
}

int spill_open(const char *folder)
{
    int fd = file_open(folder);
    if (fd >= 0)
        write_in_place(fd);
    return fd;
}

/* Some file systems accept the flag and refuse the transfer. */
bool spill_direct(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT) != 0)
        return false;
    static const char page[SPILL_ALIGN] __attribute__((aligned(SPILL_ALIGN)));
    if (pwrite(fd, page, SPILL_ALIGN, 0) == SPILL_ALIGN)
        return true;
    fcntl(fd, F_SETFL, flags);
    return false;
}

/* 0 or an errno. */
static int space_take(int fd, int64_t bytes)
{
    int rc = EINTR;
    for (int tries = 0; rc == EINTR && tries < ALLOCATE_TRIES; tries++)
        rc = fallocate(fd, 0, 0, bytes) != 0 ? errno : 0;
    if (rc != EOPNOTSUPP && rc != ENOSYS)
        return rc;
    /* A file system without allocation: its free space is all there is to ask. */
    if (bytes > spill_space(fd))
        return ENOSPC;
    return ftruncate(fd, bytes) != 0 ? errno : 0;
}

uint64_t spill_size_limit(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY
               ? (uint64_t)limit.rlim_cur
               : UINT64_MAX;
}

/* Makes one file; its path and bytes are set. A file whose share of a small
 * space is nothing is opened all the same: its folder may be wrong. */
static int file_create(struct spill_file *file, int *fd, struct error *error)
{
    /* Going beyond this limit would raise SIGXFSZ in the program's thread. */
    uint64_t limit = spill_size_limit();
    if ((uint64_t)file->bytes > limit)
        return error_set(error, ZERO_ERR_IO,
                         "A file of %" PRId64 " bytes is needed in %s, the limit on file sizes is "
                         "%llu. Raise it (ulimit -f).",
                         file->bytes, file->path, (unsigned long long)limit);
    *fd = spill_open(file->path);
    if (*fd < 0)
        return file_refused(file, "create a file", errno, error);
    spill_type_read(*fd, file->type);
    if (file->bytes == 0)
        return ZERO_OK;
    if (memory_lacks(file, error))
        return error->status;
    int64_t available = spill_space(*fd);
    int rc = space_take(*fd, file->bytes);
    if (rc == ENOSPC)
        return file_lacks(file, available, error);
    if (rc != 0) {
        char what[64];
        snprintf(what, sizeof(what), "allocate a file of %" PRId64 " bytes", file->bytes);
        return file_refused(file, what, rc, error);
    }
    file->direct = spill_direct(*fd);
    return ZERO_OK;
}

int spill_create(struct spill *spill, const struct spill_paths *paths, int64_t stripe,
                 int64_t bytes, struct error *error)
{
    assert(bytes > 0 && bytes % SPILL_ALIGN == 0 && stripe % SPILL_ALIGN == 0);
    memset(spill, 0, sizeof(*spill));
    stripes_deal(&spill->stripes, paths->count, paths->weight, stripe);
    spill->direct = true;
    for (int i = 0; i < paths->count; i++) {
        struct spill_file *file = &spill->file[i];
        memcpy(file->path, paths->path[i], sizeof(file->path));
        file->bytes = stripes_file_bytes(&spill->stripes, i, bytes);
        if (file_create(file, &spill->stripes.fd[i], error) != ZERO_OK) {
            spill_destroy(spill);
            return error->status;
        }
        spill->direct &= file->direct || file->bytes == 0;
        size_t length = strlen(spill->type);
        snprintf(spill->type + length, sizeof(spill->type) - length, "%s%s", i > 0 ? ":" : "",
                 file->type);
    }
    spill->bytes = bytes;
    return ZERO_OK;
}

/* A process that was forked meanwhile has the files too: emptied, they take no space there. */
void spill_destroy(struct spill *spill)
{
    for (int i = 0; i < spill->stripes.files; i++)
        if (spill->stripes.fd[i] >= 0) {
            (void)!ftruncate(spill->stripes.fd[i], 0);
            close(spill->stripes.fd[i]);
        }
    memset(spill, 0, sizeof(*spill));
}

/* ---------------------------------------------------------------- the folders */

int spill_paths_split(struct spill_paths *paths, const char *list, struct error *error)
{
    memset(paths, 0, sizeof(*paths));
    for (const char *next = list; next != NULL;) {
        const char *path = next, *colon = strchr(path, ':');
        size_t length = colon != NULL ? (size_t)(colon - path) : strlen(path);
        next = colon != NULL ? colon + 1 : NULL;
        if (length == 0)
            return error_set(error, ZERO_ERR_ARGUMENT,
                             "The list of folders '%.200s' has an empty name in it. Leave one ':' "
                             "between two folders (--nvme-path, .nvme_path).",
                             list);
        if (length >= SPILL_PATH)
            return error_set(error, ZERO_ERR_ARGUMENT,
                             "The path %.64s... has %zu characters, at most %d are possible. Use "
                             "a shorter one, for example a symbolic link.",
                             path, length, SPILL_PATH - 1);
        if (paths->count == STRIPES_FILES)
            return error_set(error, ZERO_ERR_ARGUMENT,
                             "'%.200s' names more than %d folders. Name fewer (--nvme-path, "
                             ".nvme_path).",
                             list, STRIPES_FILES);
        memcpy(paths->path[paths->count++], path, length);
    }
    return ZERO_OK;
}
