// SPDX-License-Identifier: Apache-2.0
/*
 * Where shards rest: the arena, and the spill file on the
 * file systems a site may have (mounted here, as root) and refuse.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "offload/arena.h"
#include "offload/memory.h"
#include "offload/ring.h"
#include "offload/spill.h"
#include "tests/support/allocations.h"
#include "tests/support/deny.h"
#include "tests/support/held.h"
#include "tests/support/must.h"
#include "tests/support/suite.h"
#include "tests/support/tree.h"

#define MIB ((int64_t)1 << 20)

/* ------------------------------------------------------------------ arena */

static int64_t resident_bytes(const struct arena *arena)
{
    int64_t pages = (arena->bytes + 4095) / 4096, resident = 0;
    unsigned char *in = malloc((size_t)pages);
    ck_assert_ptr_nonnull(in);
    ck_assert_int_eq(mincore(arena->base, (size_t)(pages * 4096), in), 0);
    for (int64_t i = 0; i < pages; i++)
        resident += (in[i] & 1) * 4096;
    free(in);
    return resident;
}

static void arena_holds(int64_t bytes, int threads)
{
    struct error error = {0};
    struct arena arena;
    must(arena_create(&arena, bytes, threads, &error), &error);
    ck_assert_int_eq(arena.bytes, bytes);
    ck_assert_uint_eq((uintptr_t)arena.base % (uintptr_t)(2 * MIB), 0);
    ck_assert_int_ge(resident_bytes(&arena), bytes);
    for (int64_t i = 0; i < bytes; i++)
        if (arena.base[i] != 0)
            ck_abort_msg("byte %" PRId64 " is not zero", i);
    memset(arena.base, 1, (size_t)bytes);
    arena_destroy(&arena);
    ck_assert_ptr_null(arena.base);
    arena_destroy(&arena);
}

START_TEST(arena_sizes)
{
    static const int64_t sizes[] = {1, 4096, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 37 * MIB + 5};
    for (int i = 0; i < 6; i++)
        arena_holds(sizes[i], 1);
}
END_TEST

/* Pieces of 8 MiB, the last one shorter; more threads than pieces, and than
 * there may be. */
START_TEST(arena_touched_by_threads)
{
    static const int threads[] = {0, 2, 3, 7};
    for (int i = 0; i < 4; i++)
        arena_holds(130 * MIB + 5, threads[i]);
    arena_holds(10 * MIB, 1000);
    arena_holds(300 * MIB, 1000);
}
END_TEST

/* Without them it only takes longer. */
START_TEST(arena_threads_refused)
{
    ck_assert(deny_call(SYS_clone3, 0, 0, 0, EAGAIN));
    ck_assert(deny_call(SYS_clone, 0, CLONE_THREAD, CLONE_THREAD, EAGAIN));
    arena_holds(130 * MIB, 4);
}
END_TEST

/* A thread's refusal is the arena's. */
START_TEST(arena_thread_fails)
{
    ck_assert(deny_call(SYS_madvise, 1, ~0u, (2 * MIB), ENOMEM)); /* the last piece's length */
    struct error error = {0};
    struct arena arena;
    ck_assert_int_eq(arena_create(&arena, 194 * MIB, 4, &error), ZERO_ERR_MEMORY);
    has(error.text, "touching it: Cannot allocate memory");
    ck_assert_ptr_null(arena.base);
}
END_TEST

START_TEST(arena_touches_by_hand)
{
    ck_assert(deny_call(SYS_madvise, 2, ~0u, 23, EINVAL)); /* MADV_POPULATE_WRITE */
    ck_assert(deny_call(SYS_madvise, 2, ~0u, MADV_HUGEPAGE, EINVAL));
    arena_holds(5 * MIB + 7, 1);
}
END_TEST

START_TEST(arena_empty)
{
    struct error error = {0};
    struct arena arena;
    must(arena_create(&arena, 0, 1, &error), &error);
    ck_assert_ptr_null(arena.base);
    ck_assert_int_eq(arena_huge_bytes(&arena), 0);
    arena_destroy(&arena);
}
END_TEST

static bool huge_pages_enabled(void)
{
    char text[64] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    if (file == NULL)
        return false;
    bool enabled = fgets(text, sizeof(text), file) != NULL && strstr(text, "[never]") == NULL;
    fclose(file);
    return enabled;
}

/* Neighbours are counted apart. */
START_TEST(arena_counts_huge_pages)
{
    if (!huge_pages_enabled()) {
        printf("skipped: transparent huge pages are off\n");
        return;
    }
    struct error error = {0};
    struct arena arenas[3];
    for (int i = 0; i < 3; i++)
        must(arena_create(&arenas[i], (4 + i) * 4 * MIB, 1, &error), &error);
    for (int i = 0; i < 3; i++) {
        int64_t huge = arena_huge_bytes(&arenas[i]);
        ck_assert_int_gt(huge, 0);
        ck_assert_int_le(huge, arenas[i].bytes);
    }
    madvise(arenas[1].base, (size_t)arenas[1].bytes, MADV_DONTNEED);
    ck_assert_int_eq(arena_huge_bytes(&arenas[1]), 0);
    ck_assert_int_gt(arena_huge_bytes(&arenas[0]), 0);
    for (int i = 0; i < 3; i++)
        arena_destroy(&arenas[i]);
}
END_TEST

/* A child that had registered memory's copy would take as much again. */
START_TEST(arena_stays_here)
{
    struct arena arena;
    struct error error = {0};
    unsigned char there;
    int status = 0;
    ck_assert_int_eq(arena_create(&arena, 4 << 20, 1, &error), ZERO_OK);
    arena.base[0] = 7;
    ck_assert_int_eq(mincore(arena.base, 4096, &there), 0);
    pid_t child = fork();
    if (child == 0)
        _exit(mincore(arena.base, 4096, &there) == 0 ? 1 : errno == ENOMEM ? 0 : 2);
    ck_assert(child > 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(arena.base[0], 7);
    arena_destroy(&arena);
}
END_TEST

START_TEST(arena_absurd)
{
    static const int64_t sizes[] = {(int64_t)1 << 50, INT64_MAX};
    static const char *const texts[] = {"1125899906842624 bytes", "9223372036854775807 bytes"};
    for (int i = 0; i < 2; i++) {
        struct error error = {0};
        struct arena arena;
        ck_assert_int_eq(arena_create(&arena, sizes[i], 1, &error), ZERO_ERR_MEMORY);
        has(error.text, texts[i]);
        has(error.text, "available");
        ck_assert_ptr_null(arena.base);
        arena_destroy(&arena);
    }
}
END_TEST

/* The kernel's own refusals become an error, and nothing stays mapped. */
START_TEST(arena_refused)
{
    static const struct {
        long call;
        int argument;
        uint32_t mask, value;
        const char *text;
    } calls[] = {
        {SYS_madvise, 2, ~0u, 23, "touching it: Cannot allocate memory"},
        {SYS_mprotect, 2, ~0u, PROT_READ | PROT_WRITE, "touching it: Cannot allocate memory"},
        {SYS_mmap, 2, ~0u, PROT_NONE, "mmap: Cannot allocate memory"},
    };
    ck_assert(
        deny_call(calls[_i].call, calls[_i].argument, calls[_i].mask, calls[_i].value, ENOMEM));
    struct error error = {0};
    struct arena arena;
    struct held before = held_now();
    ck_assert_int_eq(arena_create(&arena, 3 * MIB, 1, &error), ZERO_ERR_MEMORY);
    held_expect(&before, "an arena that was refused");
    has(error.text, "3145728 bytes");
    has(error.text, calls[_i].text);
    ck_assert_ptr_null(arena.base);
}
END_TEST

/* ------------------------------------------------------------------ spill */

static char folder[TREE_ROOT]; /* of the running test */

static void folder_make(void)
{
    tree_make(folder);
}

static void folder_remove(void)
{
    umount2(folder, MNT_DETACH);
    rmdir(folder);
}

static bool mounted(const char *type, const char *options)
{
    if (mount("none", folder, type, 0, options) == 0)
        return true;
    printf("skipped: cannot mount %s: %s\n", type, strerror(errno));
    return false;
}

static int files_in(const char *path)
{
    DIR *dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    int count = 0;
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count - 2;
}

static int spill_make(struct spill *spill, const char *list, int64_t bytes, struct error *error)
{
    struct spill_paths paths;
    return spill_paths_split(&paths, list, error) || spill_create(spill, &paths, MIB, bytes, error)
               ? error->status
               : ZERO_OK;
}

/* A spill of bytes works: it holds what is written, and has no name. */
static void spill_holds(struct spill *spill, const char *path, int64_t bytes)
{
    struct error error = {0};
    must(spill_make(spill, path, bytes, &error), &error);
    int fd = spill->stripes.fd[0];
    ck_assert_int_eq(spill->bytes, bytes);
    ck_assert_str_eq(spill->file[0].path, path);
    ck_assert_str_ne(spill->type, "");
    ck_assert_int_eq((fcntl(fd, F_GETFL) & O_DIRECT) != 0, spill->direct);
    struct stat stat;
    ck_assert_int_eq(fstat(fd, &stat), 0);
    ck_assert_int_eq(stat.st_size, bytes);
    ck_assert_uint_eq(stat.st_nlink, 0);
    ck_assert_int_eq(stat.st_mode & 077, 0);
    static char page[SPILL_ALIGN] __attribute__((aligned(SPILL_ALIGN)));
    memset(page, 7, SPILL_ALIGN);
    ck_assert_int_eq(pwrite(fd, page, SPILL_ALIGN, bytes - SPILL_ALIGN), SPILL_ALIGN);
    memset(page, 0, SPILL_ALIGN);
    ck_assert_int_eq(pread(fd, page, SPILL_ALIGN, bytes - SPILL_ALIGN), SPILL_ALIGN);
    ck_assert_int_eq(page[SPILL_ALIGN - 1], 7);
    ck_assert_int_eq(files_in(path), 0);
}

static void spill_refused(const char *path, int64_t bytes, struct error *error)
{
    struct spill spill = {0};
    ck_assert_int_eq(spill_make(&spill, path, bytes, error), ZERO_ERR_IO);
    ck_assert_int_eq(spill.bytes, 0);
    ck_assert_int_eq(spill.stripes.files, 0);
    spill_destroy(&spill);
}

START_TEST(spill_on_disk)
{
    struct spill spill;
    spill_holds(&spill, folder, 16 * MIB);
    struct stat stat;
    ck_assert_int_eq(fstat(spill.stripes.fd[0], &stat), 0);
    ck_assert_int_ge(stat.st_blocks * 512, 16 * MIB); /* allocated, not sparse */
    if (strcmp(spill.type, "ext4") == 0 || strcmp(spill.type, "xfs") == 0)
        ck_assert(spill.direct);
    int fd = spill.stripes.fd[0];
    spill_destroy(&spill);
    ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
    spill_destroy(&spill);
}
END_TEST

/* A struct of zeros is nobody's file. */
START_TEST(spill_never_created)
{
    struct spill spill = {0};
    spill_destroy(&spill);
    ck_assert_int_ne(fcntl(0, F_GETFD), -1);
}
END_TEST

/* A program without standard input, output or error, whose bits _i has, does not print into the
 * file. */
START_TEST(spill_without_standard)
{
    struct spill spill;
    int kept[3] = {dup(0), dup(1), dup(2)}, there[3];
    for (int i = 0; i < 3; i++)
        if (_i >> i & 1)
            close(i);
    spill_holds(&spill, folder, MIB);
    int fd = spill.stripes.fd[0];
    spill_destroy(&spill);
    for (int i = 0; i < 3; i++) {
        there[i] = fcntl(i, F_GETFD);
        dup2(kept[i], i);
        close(kept[i]);
    }
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(there[i], _i >> i & 1 ? -1 : 0);
    ck_assert_int_gt(fd, STDERR_FILENO);
}
END_TEST

/* Nor does a ring take one of their numbers, which what opens them later would close. */
START_TEST(ring_without_standard)
{
    struct error error = {0};
    struct ring *ring = NULL;
    int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const struct stripes files = {.files = 1, .fd = {event}};
    const struct ring_options options = {.event_fd = event, .files = &files};
    int kept[3] = {dup(0), dup(1), dup(2)}, there[3];
    for (int i = 0; i < 3; i++)
        if (_i >> i & 1)
            close(i);
    int status = ring_uring_create(&ring, &options, &error);
    for (int i = 0; i < 3; i++) {
        there[i] = fcntl(i, F_GETFD);
        dup2(kept[i], i);
        close(kept[i]);
    }
    if (status == ZERO_OK)
        ring->ops->destroy(ring);
    close(event);
    ck_assert(status == ZERO_OK || status == ZERO_ERR_UNSUPPORTED);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(there[i], _i >> i & 1 ? -1 : 0);
}
END_TEST

START_TEST(spill_wrong_folder)
{
    char path[128];
    struct error error = {0};
    snprintf(path, sizeof(path), "%s/missing", folder);
    spill_refused(path, MIB, &error);
    has(error.text, path);
    has(error.text, strerror(ENOENT));

    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    fclose(file);
    error = (struct error){0};
    spill_refused(path, MIB, &error);
    has(error.text, path);
    has(error.text, strerror(ENOTDIR));
    unlink(path);
}
END_TEST

START_TEST(spill_lists)
{
    struct spill_paths paths;
    struct error error = {0};
    must(spill_paths_split(&paths, "/a", &error), &error);
    ck_assert(paths.count == 1 && strcmp(paths.path[0], "/a") == 0);
    must(spill_paths_split(&paths, "/a:/b:/a", &error), &error);
    ck_assert_int_eq(paths.count, 3);
    ck_assert_str_eq(paths.path[1], "/b");
    ck_assert_str_eq(paths.path[2], "/a");
    ck_assert(!(paths.weight[0] > 0));

    static const char *const wrong[] = {"", ":", "/a:", ":/a", "/a::/b", "1:2:3:4:5:6:7:8:9"};
    for (int i = 0; i < 6; i++) {
        error = (struct error){0};
        ck_assert_int_eq(spill_paths_split(&paths, wrong[i], &error), ZERO_ERR_ARGUMENT);
        has(error.text, wrong[i]);
        has(error.text, i < 5 ? "an empty name" : "more than 8 folders");
    }
    char longer[400];
    memset(longer, 'x', 399);
    longer[399] = '\0';
    longer[2] = ':';
    error = (struct error){0};
    ck_assert_int_eq(spill_paths_split(&paths, longer, &error), ZERO_ERR_ARGUMENT);
    has(error.text, "396 characters");
    longer[3 + 256] = '\0';
    error = (struct error){0};
    ck_assert_int_eq(spill_paths_split(&paths, longer, &error), ZERO_ERR_ARGUMENT);
    has(error.text, "256 characters, at most 255");
    longer[3 + 255] = '\0';
    error = (struct error){0};
    must(spill_paths_split(&paths, longer, &error), &error);
    ck_assert_uint_eq(strlen(paths.path[1]), 255);
}
END_TEST

/* Two folders, one of them a file system of its own: the bytes are shared by
 * weight, and what is wrong with one of them is said of that one. */
START_TEST(spill_on_two)
{
    char tmpfs[80], list[200];
    snprintf(tmpfs, sizeof(tmpfs), "%s/second", folder);
    ck_assert_int_eq(mkdir(tmpfs, 0700), 0);
    snprintf(list, sizeof(list), "%s:%s", folder, tmpfs);
    struct error error = {0};
    struct spill_paths paths;
    struct spill spill;
    must(spill_paths_split(&paths, list, &error), &error);
    paths.weight[0] = 3;
    paths.weight[1] = 1;
    bool mount_works = mount("none", tmpfs, "tmpfs", 0, "size=16m") == 0;
    must(spill_create(&spill, &paths, MIB, 64 * MIB, &error), &error);
    ck_assert_str_eq(spill.file[0].path, folder);
    ck_assert_str_eq(spill.file[1].path, tmpfs);
    for (int i = 0; i < 2; i++) {
        struct stat stat;
        ck_assert_int_eq(fstat(spill.stripes.fd[i], &stat), 0);
        ck_assert_int_eq(stat.st_size, i == 0 ? 48 * MIB : 16 * MIB);
        ck_assert_int_eq(stat.st_size, spill.file[i].bytes);
    }
    int fds[] = {spill.stripes.fd[0], spill.stripes.fd[1]}, kept = dup(fds[0]);
    if (mount_works) {
        char types[96];
        snprintf(types, sizeof(types), "%s:tmpfs", spill.file[0].type);
        ck_assert_str_eq(spill.type, types);
    }
    spill_destroy(&spill);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(fcntl(fds[i], F_GETFD), -1);
    struct stat stat; /* of one that a child, say, still has: it takes no space */
    ck_assert(kept >= 0 && fstat(kept, &stat) == 0 && stat.st_blocks == 0);
    close(kept);

    if (mount_works) {
        ck_assert_int_eq(spill_create(&spill, &paths, MIB, 128 * MIB, &error), ZERO_ERR_IO);
        has(error.text, tmpfs);
        has(error.text, "33554432 bytes are needed, 16777216 are free");
        ck_assert_int_eq(fcntl(fds[0], F_GETFD), -1); /* the first is not left behind */
    }
    /* So little that the second has none of it. */
    error = (struct error){0};
    must(spill_create(&spill, &paths, MIB, SPILL_ALIGN, &error), &error);
    ck_assert_int_eq(spill.file[1].bytes, 0);
    ck_assert(spill.direct == spill.file[0].direct);
    spill_destroy(&spill);
    umount2(tmpfs, MNT_DETACH);
    ck_assert_int_eq(rmdir(tmpfs), 0);
    error = (struct error){0};
    ck_assert_int_eq(spill_create(&spill, &paths, MIB, SPILL_ALIGN, &error), ZERO_ERR_IO);
    has(error.text, tmpfs);
    has(error.text, strerror(ENOENT));
}
END_TEST

START_TEST(spill_unwritable)
{
    ck_assert_int_eq(chmod(folder, 0555), 0);
    uid_t user = geteuid();
    if (user == 0) /* root writes everywhere */
        ck_assert_int_eq(seteuid(65534), 0);
    struct error error = {0};
    spill_refused(folder, MIB, &error);
    ck_assert_int_eq(seteuid(user), 0);
    has(error.text, folder);
    has(error.text, strerror(EACCES));
}
END_TEST

START_TEST(spill_file_limit)
{
    struct rlimit limit = {MIB, MIB};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    struct error error = {0};
    spill_refused(folder, 2 * MIB, &error);
    has(error.text, "2097152 bytes");
    has(error.text, "is 1048576");
    struct spill spill;
    spill_holds(&spill, folder, MIB);
    spill_destroy(&spill);
}
END_TEST

START_TEST(spill_on_tmpfs)
{
    if (!mounted("tmpfs", "size=16m"))
        return;
    struct spill spill;
    spill_holds(&spill, folder, 12 * MIB);
    ck_assert_str_eq(spill.type, "tmpfs");
    struct error error = {0};
    spill_refused(folder, 8 * MIB, &error);
    has(error.text, folder);
    has(error.text, "tmpfs");
    has(error.text, "8388608 bytes are needed, 4194304 are free");
    spill_destroy(&spill);
    spill_holds(&spill, folder, 16 * MIB); /* the space came back */
    spill_destroy(&spill);
}
END_TEST

START_TEST(spill_on_ramfs)
{
    if (!mounted("ramfs", NULL))
        return;
    struct spill spill;
    spill_holds(&spill, folder, 4 * MIB);
    ck_assert_str_eq(spill.type, "ramfs");
    ck_assert(!spill.direct);
    spill_destroy(&spill);
}
END_TEST

START_TEST(spill_without_tmpfile)
{
    ck_assert(deny_call(SYS_openat, 2, __O_TMPFILE, __O_TMPFILE, EOPNOTSUPP));
    struct spill spill;
    spill_holds(&spill, folder, 4 * MIB);
    spill_destroy(&spill);
}
END_TEST

START_TEST(spill_without_allocation)
{
    ck_assert(deny_call(SYS_fallocate, 0, 0, 0, EOPNOTSUPP));
    struct spill spill;
    spill_holds(&spill, folder, 4 * MIB);
    spill_destroy(&spill);
    struct error error = {0};
    spill_refused(folder, (int64_t)1 << 50, &error);
    has(error.text, "1125899906842624 bytes are needed");
}
END_TEST

static fsblkcnt_t told_free; /* blocks; 0: the truth */

/* Of linux/fs.h, which does not go with sys/mount.h before glibc 2.36. */
enum { FS_COMPR_FL = 0x4, FS_NOATIME_FL = 0x80, FS_NOCOMP_FL = 0x400, FS_NOCOW_FL = 0x800000 };
#define FS_IOC_GETFLAGS _IOR('f', 1, long)
#define FS_IOC_SETFLAGS _IOW('f', 2, long)

static uint32_t told_type; /* of the file system that files are said to be on; 0: the truth */
static int told_flags;     /* that such a file has */

int fstatfs(int fd, struct statfs *fs)
{
    int rc = (int)syscall(SYS_fstatfs, fd, fs);
    if (told_type)
        fs->f_type = told_type;
    return rc;
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list rest;
    va_start(rest, request);
    int *flags = va_arg(rest, int *);
    va_end(rest);
    bool compression = (told_flags | *flags) & (FS_COMPR_FL | FS_NOCOMP_FL);
    if (request == FS_IOC_GETFLAGS)
        *flags = told_flags;
    else if (request == FS_IOC_SETFLAGS && lseek(fd, 0, SEEK_END) == 0 && /* of empty files alone */
             !(*flags & FS_NOCOW_FL && compression)) /* fs/btrfs/ioctl.c, check_fsflags */
        told_flags = *flags;
    else
        return errno = EINVAL, -1;
    return 0;
}

int fstatvfs(int fd, struct statvfs *fs)
{
    struct statfs real;
    int rc = fstatfs(fd, &real);
    *fs = (struct statvfs){.f_frsize = (unsigned long)real.f_frsize,
                           .f_blocks = real.f_blocks,
                           .f_bavail = told_free > 0 ? told_free : real.f_bavail};
    return rc;
}

/* More than there is memory for; were it not refused, then the allocation would be, here. */
START_TEST(spill_beyond_memory)
{
    char source[256];
    struct error error = {0};
    int64_t bytes = memory_available("", source, sizeof(source)) / MIB * MIB + 1024 * MIB;
    told_type = 0x01021994;
    told_free = (fsblkcnt_t)1 << 30;
    ck_assert(deny_call(SYS_fallocate, 0, 0, 0, ENOSPC));
    struct spill spill;
    ck_assert_int_eq(spill_make(&spill, folder, bytes, &error), ZERO_ERR_MEMORY);
    has(error.text, "which is memory (tmpfs)");
    has(error.text, source);
}
END_TEST

/* A file system without allocation that says what is no amount: that it has no limit. */
START_TEST(spill_without_limit)
{
    ck_assert(deny_call(SYS_fallocate, 0, 0, 0, EOPNOTSUPP));
    struct spill spill;
    told_free = ~(fsblkcnt_t)0;
    spill_holds(&spill, folder, 4 * MIB);
    ck_assert_int_eq(spill_space(spill.stripes.fd[0]), INT64_MAX);
    told_free = 1000;
    ck_assert_int_lt(spill_space(spill.stripes.fd[0]), 1000 * MIB);
    spill_destroy(&spill);
}
END_TEST

/* Writes in place, also in a folder whose files are compressed, or must not be; elsewhere nothing
 * is asked for. */
START_TEST(spill_on_btrfs)
{
    struct spill spill;
    const int inherited[] = {0, FS_COMPR_FL, FS_NOCOMP_FL};
    for (int i = 0; i < 3; i++) {
        told_type = 0xEF53;
        told_flags = inherited[i] | FS_NOATIME_FL;
        spill_holds(&spill, folder, 4 * MIB);
        ck_assert_int_eq(told_flags, inherited[i] | FS_NOATIME_FL);
        spill_destroy(&spill);
        told_type = 0x9123683E;
        spill_holds(&spill, folder, 4 * MIB);
        ck_assert_int_eq(told_flags, FS_NOCOW_FL | FS_NOATIME_FL);
        ck_assert_str_eq(spill.type, "btrfs");
        spill_destroy(&spill);
    }
}
END_TEST

START_TEST(spill_interrupted)
{
    ck_assert(deny_call(SYS_fallocate, 0, 0, 0, EINTR)); /* for ever */
    struct error error = {0};
    spill_refused(folder, 4 * MIB, &error);
    has(error.text, "allocate a file of 4194304 bytes");
    has(error.text, strerror(EINTR));
}
END_TEST

/* A file system that takes the flag and refuses the transfer. */
START_TEST(spill_direct_pretended)
{
    ck_assert(deny_call(SYS_pwrite64, 0, 0, 0, EINVAL));
    struct error error = {0};
    struct spill spill;
    must(spill_make(&spill, folder, MIB, &error), &error);
    ck_assert(!spill.direct);
    ck_assert_int_eq(fcntl(spill.stripes.fd[0], F_GETFL) & O_DIRECT, 0);
    spill_destroy(&spill);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("offload");
    TCase *arena = tcase_create("arena");
    tcase_set_timeout(arena, 60);
    tcase_add_test(arena, arena_sizes);
    tcase_add_test(arena, arena_touched_by_threads);
    tcase_add_test(arena, arena_threads_refused);
    tcase_add_test(arena, arena_thread_fails);
    tcase_add_test(arena, arena_touches_by_hand);
    tcase_add_test(arena, arena_empty);
    tcase_add_test(arena, arena_counts_huge_pages);
    tcase_add_test(arena, arena_stays_here);
    tcase_add_test(arena, arena_absurd);
    tcase_add_loop_test(arena, arena_refused, 0, 3);
    suite_add_tcase(suite, arena);

    TCase *spill = tcase_create("spill");
    tcase_set_timeout(spill, 60);
    tcase_add_checked_fixture(spill, folder_make, folder_remove);
    tcase_add_test(spill, spill_on_disk);
    tcase_add_test(spill, spill_never_created);
    tcase_add_loop_test(spill, spill_without_standard, 1, 8);
    tcase_add_loop_test(spill, ring_without_standard, 1, 8);
    tcase_add_test(spill, spill_wrong_folder);
    tcase_add_test(spill, spill_lists);
    tcase_add_test(spill, spill_on_two);
    tcase_add_test(spill, spill_unwritable);
    tcase_add_test(spill, spill_file_limit);
    tcase_add_test(spill, spill_on_tmpfs);
    tcase_add_test(spill, spill_beyond_memory);
    tcase_add_test(spill, spill_on_ramfs);
    tcase_add_test(spill, spill_without_tmpfile);
    tcase_add_test(spill, spill_without_allocation);
    tcase_add_test(spill, spill_without_limit);
    tcase_add_test(spill, spill_interrupted);
    tcase_add_test(spill, spill_on_btrfs);
    tcase_add_test(spill, spill_direct_pretended);
    suite_add_tcase(suite, spill);
    return suite_run_all(suite);
}
