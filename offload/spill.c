// SPDX-License-Identifier: Apache-2.0
/*
 * Makes the file and finds out what its file system can do by trying: a
 * nameless file, O_DIRECT, allocation. Every way a user's folder can be wrong
 * ends in a sentence with the folder in it.
 */
#include "offload/spill.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define ALLOCATE_TRIES 100 /* tmpfs starts over after a signal, of a profiler say */

static const struct {
    uint32_t magic;
    const char *name;
} file_systems[] = {
    {0xEF53, "ext4"},           {0x58465342, "xfs"},     {0x01021994, "tmpfs"},
    {0x9123683E, "btrfs"},      {0x794C7630, "overlayfs"}, {0x6969, "nfs"},
    {0x0BD00BD0, "lustre"},     {0x65735546, "fuse"},    {0x858458F6, "ramfs"},
    {0x2FC12FC1, "zfs"},        {0x47504653, "gpfs"},    {0x00C36400, "ceph"},
    {0x19830326, "beegfs"},     {0xF2F52010, "f2fs"},    {0xCA451A4E, "bcachefs"},
    {0xFF534D42, "cifs"},       {0xFE534D42, "smb"},     {0x01021997, "9p"},
    {0x4D44, "vfat"},
};

static void type_read(struct spill *spill)
{
    struct statfs fs;
    if (fstatfs(spill->fd, &fs) != 0) {
        snprintf(spill->type, sizeof(spill->type), "unknown");
        return;
    }
    uint32_t magic = (uint32_t)fs.f_type;
    snprintf(spill->type, sizeof(spill->type), "0x%" PRIX32, magic);
    for (size_t i = 0; i < sizeof(file_systems) / sizeof(file_systems[0]); i++)
        if (file_systems[i].magic == magic)
            snprintf(spill->type, sizeof(spill->type), "%s", file_systems[i].name);
}

/* Every failure of spill_create: the folder, what was done, errno's text. */
static int spill_fail(struct spill *spill, const char *what, int errnum, struct error *error)
{
    char text[64];
    error_set(error, ZERO_ERR_IO,
              "Cannot %s in %s: %s. Choose a writable folder on a local disk (--nvme-path, "
              ".nvme_path).",
              what, spill->path, strerror_r(errnum, text, sizeof(text)));
    spill_destroy(spill);
    return error->status;
}

static int spill_lacks(struct spill *spill, int64_t bytes, int64_t available, struct error *error)
{
    error_set(error, ZERO_ERR_IO,
              "%s (%s) has not enough space: %" PRId64 " bytes are needed, %" PRId64
              " are free. Free some, choose another folder (--nvme-path, .nvme_path), or use more "
              "ranks.",
              spill->path, spill->type, bytes, available);
    spill_destroy(spill);
    return error->status;
}

static int64_t space_free(const struct spill *spill)
{
    struct statvfs fs;
    if (fstatvfs(spill->fd, &fs) != 0 || fs.f_blocks == 0) /* ramfs does not count */
        return INT64_MAX;
    return (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
}

/* An open file without a name, or -1 with errno. */
static int file_open(const char *folder)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    char name[sizeof(((struct spill *)0)->path) + sizeof("/zero-spill-XXXXXX")];
    snprintf(name, sizeof(name), "%s/zero-spill-XXXXXX", folder);
    fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0)
        unlink(name);
    return fd;
}

/* Switches O_DIRECT on and tries it: some file systems accept the flag and
 * refuse the transfer. */
static bool direct_try(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT) != 0)
        return false;
    void *page = NULL;
    if (posix_memalign(&page, SPILL_ALIGN, SPILL_ALIGN) == 0) {
        memset(page, 0, SPILL_ALIGN);
        ssize_t written = pwrite(fd, page, SPILL_ALIGN, 0);
        free(page);
        if (written == SPILL_ALIGN)
            return true;
    }
    fcntl(fd, F_SETFL, flags);
    return false;
}

/* 0 or an errno. */
static int space_take(const struct spill *spill, int64_t bytes)
{
    int rc = EINTR;
    for (int tries = 0; rc == EINTR && tries < ALLOCATE_TRIES; tries++)
        rc = fallocate(spill->fd, 0, 0, bytes) != 0 ? errno : 0;
    if (rc != EOPNOTSUPP && rc != ENOSYS)
        return rc;
    /* A file system without allocation: its free space is all there is to ask. */
    if (bytes > space_free(spill))
        return ENOSPC;
    return ftruncate(spill->fd, bytes) != 0 ? errno : 0;
}

int spill_create(struct spill *spill, const char *path, int64_t bytes, struct error *error)
{
    assert(bytes > 0 && bytes % SPILL_ALIGN == 0);
    *spill = (struct spill){.fd = -1};
    size_t length = strlen(path);
    if (length >= sizeof(spill->path))
        return error_set(error, ZERO_ERR_IO,
                         "The path %.64s... has %zu characters, at most %zu are possible. Use a "
                         "shorter one, for example a symbolic link.",
                         path, length, sizeof(spill->path) - 1);
    memcpy(spill->path, path, length + 1);

    /* Going beyond this limit would raise SIGXFSZ in the program's thread. */
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && (rlim_t)bytes > limit.rlim_cur)
        return error_set(error, ZERO_ERR_IO,
                         "A file of %" PRId64 " bytes is needed in %s, the limit on file sizes is "
                         "%llu. Raise it (ulimit -f).",
                         bytes, path, (unsigned long long)limit.rlim_cur);

    spill->fd = file_open(path);
    if (spill->fd < 0)
        return spill_fail(spill, "create a file", errno, error);
    type_read(spill);
    int64_t available = space_free(spill);
    int rc = space_take(spill, bytes);
    if (rc == ENOSPC)
        return spill_lacks(spill, bytes, available, error);
    if (rc != 0) {
        char what[64];
        snprintf(what, sizeof(what), "allocate a file of %" PRId64 " bytes", bytes);
        return spill_fail(spill, what, rc, error);
    }
    spill->direct = direct_try(spill->fd);
    spill->bytes = bytes;
    return ZERO_OK;
}

void spill_destroy(struct spill *spill)
{
    if (spill->path[0] != '\0' && spill->fd >= 0) /* all zeros is no file, not standard input */
        close(spill->fd);
    spill->fd = -1;
    spill->bytes = 0;
}
