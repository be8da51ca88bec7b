// SPDX-License-Identifier: Apache-2.0
/*
 * What a drive can do: the choice among points, the cache with everything that
 * can be wrong with it, the names of devices, one real measurement, and what a
 * ring over several folders makes of it.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "include/zero.h"
#include "offload/probe.h"
#include "src/clock.h"
#include "tests/support/allocations.h"
#include "tests/support/deny.h"
#include "tests/support/drive.h"
#include "tests/support/held.h"
#include "tests/support/suite.h"
#include "tests/support/tree.h"

#define KEY "device nvme0n1 size 12 model X type ext4"

static char home[TREE_ROOT];
static const char *host = "node";

int gethostname(char *name, size_t size)
{
    snprintf(name, size, "%s", host);
    return 0;
}

static uint32_t told_type; /* of the file system that files are said to be on; 0: the truth */

int fstatfs(int fd, struct statfs *fs)
{
    int rc = (int)syscall(SYS_fstatfs, fd, fs);
    fs->f_type = told_type ? told_type : fs->f_type;
    return rc;
}

static struct error why; /* nothing could be measured */

static void home_make(void)
{
    tree_make(home);
    setenv("XDG_CACHE_HOME", home, 1);
}

static void home_remove(void)
{
    umount2(home, MNT_DETACH);
    tree_remove(home);
}

/* The only file of the cache, by its name's end. */
static void cache_file(char *path, size_t size, const char *end)
{
    char folder[TREE_ROOT + 16];
    snprintf(folder, sizeof(folder), "%s/libzero", home);
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    int found = 0;
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        size_t length = strlen(e->d_name), tail = strlen(end);
        if (e->d_name[0] == '.' || length < tail || strcmp(e->d_name + length - tail, end) != 0 ||
            (tail == 0 && strchr(e->d_name, '.') != NULL))
            continue;
        snprintf(path, size, "%s/%s", folder, e->d_name);
        found++;
    }
    closedir(dir);
    ck_assert_int_eq(found, 1);
}

/* --------------------------------------------------------------- the choice */

START_TEST(choice_is_the_smallest_near_the_best)
{
    struct probe p[] = {
        {1 << 20, 16, 4.00e9, 4.00e9, 4.00e9},  /* deeper */
        {1 << 20, 8, 3.95e9, 3.95e9, 3.95e9},   /* within 3 % */
        {1 << 20, 4, 3.80e9, 3.80e9, 3.80e9},   /* 5 % off */
        {256 << 10, 8, 9.00e9, 9.00e9, 3.00e9}, /* fast one way at a time */
        {4 << 20, 8, 4.05e9, 4.00e9, 4.02e9},   /* larger */
        {256 << 10, 1, 0, 0, 0},                /* not measured */
    };
    ck_assert_int_eq(probe_choose(p, 6), 1);
    ck_assert_int_eq(probe_choose(p + 2, 2), 0);
    p[5].both = 5e9;
    ck_assert_int_eq(probe_choose(p, 6), 5);
}
END_TEST

/* ---------------------------------------------------------------- the cache */

static const struct probe sound = {512 << 10, 12, 3.2e9, 1.5e9, 2.5e9};

START_TEST(cache_keeps)
{
    struct probe p = {0};
    ck_assert(!probe_load(&p, KEY));
    ck_assert(probe_store(&sound, KEY));
    ck_assert(probe_load(&p, KEY));
    ck_assert(p.block == sound.block && p.depth == sound.depth);
    ck_assert(p.read > 3.19e9 && p.read < 3.21e9 && p.write > 1.49e9 && p.write < 1.51e9);
    ck_assert(p.both > 2.49e9 && p.both < 2.51e9);
    ck_assert(!probe_load(&p, KEY " "));
    struct probe other = sound;
    other.depth = 5;
    ck_assert(probe_store(&other, KEY)); /* renewed */
    ck_assert(probe_load(&p, KEY) && p.depth == 5);
    char path[512];
    cache_file(path, sizeof(path), "");

    /* Nothing is left of what cannot be renamed into its place. */
    ck_assert(unlink(path) == 0 && mkdir(path, 0700) == 0);
    ck_assert(!probe_store(&sound, KEY));
    ck_assert_int_eq(rmdir(path), 0);
    *strrchr(path, '/') = '\0';
    ck_assert_int_eq(rmdir(path), 0);

    /* Without XDG_CACHE_HOME, or with a relative one, it is ~/.cache. */
    for (int i = 0; i < 2; i++) {
        char below[TREE_ROOT + 8];
        snprintf(below, sizeof(below), "%s/%d", home, i);
        mkdir(below, 0700);
        setenv("HOME", below, 1);
        if (i == 0)
            unsetenv("XDG_CACHE_HOME");
        else
            setenv("XDG_CACHE_HOME", "relative", 1);
        ck_assert(!probe_load(&p, KEY) && probe_store(&sound, KEY) && probe_load(&p, KEY));
        snprintf(path, sizeof(path), "%s/.cache/libzero", below);
        ck_assert_int_eq(access(path, F_OK), 0);
    }
    setenv("HOME", "", 1);
    ck_assert(!probe_load(&p, KEY) && !probe_store(&sound, KEY) && probe_lock(KEY) < 0);
}
END_TEST

static void rewrite(const char *path, const char *text, size_t length)
{
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, length, file), length);
    fclose(file);
}

/* Whatever is changed or cut: it is not taken. */
START_TEST(cache_corrupt)
{
    char path[512], text[600];
    struct probe p, untouched = {7, 7, 7, 7, 7};
    ck_assert(probe_store(&sound, KEY));
    cache_file(path, sizeof(path), "");
    FILE *file = fopen(path, "re");
    size_t length = fread(text, 1, sizeof(text), file);
    fclose(file);
    for (size_t cut = 0; cut < length; cut++) {
        p = untouched;
        rewrite(path, text, cut);
        ck_assert(!probe_load(&p, KEY));
        ck_assert(memcmp(&p, &untouched, sizeof(p)) == 0);
    }
    for (size_t i = 0; i < length; i++) { /* a digit more or less may be sound, a letter is not */
        char changed[600];
        memcpy(changed, text, length);
        changed[i] = changed[i] == 'x' ? 'y' : 'x';
        rewrite(path, changed, length);
        ck_assert_msg(!probe_load(&p, KEY), "at %zu", i);
    }
    static const char *const wrong[] = {
        "block 0 depth 8 read 5 write 5 both 5",     "block 1000 depth 8 read 5 write 5 both 5",
        "block 5000 depth 8 read 5 write 5 both 5",  "block 8388608 depth 8 read 5 write 5 both 5",
        "block 4096 depth 0 read 5 write 5 both 5",  "block 4096 depth 33 read 5 write 5 both 5",
        "block 4096 depth 8 read 0 write 5 both 5",  "block 4096 depth 8 read 5 write -5 both 5",
        "block 4096 depth 8 read 5 write 5 both 0",  "block 4096 depth 8 read 5 write 5",
        "block 4096 depth 8 read 5 write 5 both 5 ",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        int n = snprintf(text, sizeof(text), "libzero io 4\n%s\n%s\nend\n", KEY, wrong[i]);
        rewrite(path, text, (size_t)n);
        ck_assert_msg(!probe_load(&p, KEY), "%s", wrong[i]);
    }
    int n = snprintf(text, sizeof(text),
                     "libzero io %d\n%s\nblock 4096 depth 8 read 5 write 5 both 5\nend\n", 4, KEY);
    rewrite(path, text, (size_t)n);
    ck_assert(probe_load(&p, KEY)); /* what the others differ from */
    text[11] = '2';                 /* another format */
    rewrite(path, text, (size_t)n);
    ck_assert(!probe_load(&p, KEY));
}
END_TEST

/* What else may stand at a name that can be foreseen: a pipe, which has no writer, and a
 * link to another file. */
START_TEST(cache_is_made_of_files)
{
    struct probe p = sound;
    char path[512], lock[600], other[512];
    p.read = 0; /* nor is nonsense kept */
    ck_assert(!probe_store(&p, KEY) && probe_store(&sound, KEY));
    cache_file(path, sizeof(path), "");
    ck_assert(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    ck_assert(!probe_load(&p, KEY));
    snprintf(lock, sizeof(lock), "%s.%s.lock", path, host);
    snprintf(other, sizeof(other), "%s/other", home);
    ck_assert(symlink(other, lock) == 0);
    ck_assert_int_lt(probe_lock(KEY), 0);
    ck_assert_int_ne(access(other, F_OK), 0);
}
END_TEST

START_TEST(cache_unwritable)
{
    struct probe p;
    if (mount("none", home, "tmpfs", MS_RDONLY, NULL) != 0) {
        printf("skipped: cannot mount tmpfs\n");
        return;
    }
    ck_assert(!probe_store(&sound, KEY) && !probe_load(&p, KEY) && probe_lock(KEY) < 0);
    umount2(home, MNT_DETACH);
    ck_assert_int_eq(mount("none", home, "tmpfs", 0, "size=4k,nr_inodes=2"), 0); /* no room */
    ck_assert(!probe_store(&sound, KEY) && !probe_load(&p, KEY));
}
END_TEST

/* Many writers at once: every reader sees one of them, whole. */
START_TEST(cache_parallel)
{
    ck_assert(probe_store(&sound, KEY));
    for (int c = 0; c < 4; c++)
        if (fork() == 0) {
            struct probe mine = {4096 * (c + 1), c + 1, 1e9, 1e9, 1e9};
            int lost = 0;
            for (int i = 0; i < 200; i++) {
                struct probe p;
                lost += !probe_store(&mine, KEY) || !probe_load(&p, KEY);
            }
            _exit(lost);
        }
    for (int c = 0; c < 4; c++) {
        int status;
        ck_assert_int_gt(wait(&status), 0);
        ck_assert_int_eq(status, 0);
    }
    char path[512];
    cache_file(path, sizeof(path), "");
}
END_TEST

/* ------------------------------------------------------------------ the keys */

/* Folders of one file system have one key where there is no such device: what names where it
 * begins, and the node. */
START_TEST(keys_name_file_systems)
{
    char root[TREE_ROOT], key[PROBE_KEY], other[PROBE_KEY], folder[PROBE_KEY];
    tree_make(root);
    snprintf(folder, sizeof(folder), "%s/job", home);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    told_type = 0x6969; /* one server for all */
    ck_assert(probe_key(key, root, home));
    host = "one";
    ck_assert(probe_key(other, root, folder));
    ck_assert_str_eq(key, other);
    ck_assert_ptr_nonnull(strstr(key, " of all nodes type nfs"));
    told_type = 0x9123683E;
    ck_assert(probe_key(key, root, home) && probe_key(other, root, folder));
    ck_assert_str_eq(key, other);
    ck_assert_ptr_nonnull(strstr(key, " of one type btrfs"));
    host = "node";
    ck_assert(probe_key(other, root, folder));
    ck_assert_str_ne(key, other);
    ck_assert_int_eq(rmdir(folder), 0);
    told_type = 0;
    tree_remove(root);
}
END_TEST

START_TEST(keys_name_devices)
{
    char root[TREE_ROOT], key[PROBE_KEY], device[64], path[128];
    struct stat st;
    tree_make(root);
    ck_assert_int_eq(stat(home, &st), 0);

    /* A partition: the drive's. */
    snprintf(device, sizeof(device), "/sys/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
    snprintf(path, sizeof(path), "%s/uevent", device);
    tree_put(root, path, "MAJOR=8\nDEVNAME=sda1\nPARTN=1\n");
    snprintf(path, sizeof(path), "%s/size", device);
    tree_put(root, path, "4096\n");
    ck_assert(probe_key(key, root, home));
    ck_assert_int_eq(strncmp(key, "device sda1 size 4096 model  type ", 34), 0);
    snprintf(path, sizeof(path), "%s/partition", device);
    tree_put(root, path, "1\n");
    tree_put(root, "/sys/dev/block/uevent", "MAJOR=8\nDEVNAME=sda\n");
    tree_put(root, "/sys/dev/block/size", "8192\n");
    tree_put(root, "/sys/dev/block/device/model", "FAST DRIVE   \n");
    ck_assert(probe_key(key, root, home));
    ck_assert_int_eq(strncmp(key, "device sda size 8192 model FAST DRIVE type ", 43), 0);
    ck_assert(probe_keys_one_drive(key, "device sda size 8192 model FAST DRIVE type none"));
    ck_assert(!probe_keys_one_drive(key, "device sda size 8192 model FAST type none"));
    ck_assert(!probe_keys_one_drive("folder /a type tmpfs", "folder /a type ext4"));
    ck_assert(probe_keys_one_drive("folder /a type tmpfs", "folder /a type tmpfs"));
    snprintf(path, sizeof(path), "%s/partition", device);
    tree_put(root, path, "");
    snprintf(path, sizeof(path), "%s/dm/uuid", device);
    tree_put(root, path, "LVM-abc\n");
    ck_assert(probe_key(key, root, home));
    ck_assert_ptr_nonnull(strstr(key, " model LVM-abc type "));
    tree_remove(root);
    ck_assert(!probe_key(key, "", "/nowhere/at/all"));
}
END_TEST

/* ----------------------------------------------------------- the measurement */

static atomic_int seconds_ahead; /* that nobody waits for */

int clock_gettime(clockid_t id, struct timespec *now)
{
    int status = (int)syscall(SYS_clock_gettime, id, now);
    now->tv_sec += seconds_ahead;
    return status;
}

START_TEST(measures)
{
    if (!drive_under(home))
        return;
    struct probe p = {0};
    struct error error = {0};
    double begin = seconds_now();
    ck_assert_msg(probe_run(&p, home, 0.3, &error) == ZERO_OK, "%s", error.text);
    ck_assert_msg(seconds_now() - begin < 20, "%g s", seconds_now() - begin);
    ck_assert(p.block >= 64 << 10 && p.block <= RING_BLOCK_MAX);
    ck_assert(p.depth >= 1 && p.depth <= RING_DEPTH_MAX);
    ck_assert_msg(p.read > 1e6 && p.read < 1e12 && p.write > 1e6 && p.write < 1e12 &&
                      p.both > 1e6 && p.both < 1e12,
                  "%g %g %g", p.read, p.write, p.both);
    char path[TREE_ROOT + 16];
    snprintf(path, sizeof(path), "%s/none", home);
    ck_assert_int_eq(probe_run(&p, path, 0.3, &error), ZERO_ERR_IO);
    ck_assert_ptr_nonnull(strstr(error.text, path));
    ck_assert_int_eq(rmdir(home), 0); /* nothing is left */
    ck_assert_int_eq(mkdir(home, 0700), 0);
}
END_TEST

/* What was moved, block by block: W and R. */
static char moves[1 << 16];
static int made;
static pthread_mutex_t moves_lock = PTHREAD_MUTEX_INITIALIZER;
static int regular; /* pages of those written that a drive need not keep as they are */
static int turned, hangs_at = -1; /* the drive, behind so many changes of kind */

static bool is_regular(const char *page)
{
    return !memcmp(page, page + 8, 4096 - 8);
}

static ssize_t moved(char kind, long call, int fd, void *buffer, size_t bytes, off_t offset)
{
    pthread_mutex_lock(&moves_lock);
    bool block = bytes >= 64 << 10;
    turned += block && made > 0 && moves[made - 1] != kind;
    bool hangs = block && hangs_at >= 0 && turned >= hangs_at;
    if (made < (int)sizeof(moves) && block)
        moves[made++] = kind;
    for (size_t at = 0; block && kind == 'W' && at < bytes; at += 4096)
        regular += is_regular((const char *)buffer + at);
    pthread_mutex_unlock(&moves_lock);
    for (; hangs; usleep(100000))
        seconds_ahead++;
    return (ssize_t)syscall(call, fd, buffer, bytes, offset);
}

/* The C library's, and the library's here. */
ssize_t pread(int fd, void *buffer, size_t bytes, off_t offset)
{
    return moved('R', SYS_pread64, fd, buffer, bytes, offset);
}

ssize_t pwrite(int fd, const void *buffer, size_t bytes, off_t offset)
{
    return moved('W', SYS_pwrite64, fd, (void *)buffer, bytes, offset);
}

static int longest_run(char kind, int from)
{
    int longest = 0, run = 0;
    for (int i = from; i < made; i++) {
        run = moves[i] == kind ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    return longest;
}

/* Of the first point each way has 12 blocks at least, and no other comes between. */
START_TEST(measures_reads_writes_and_both)
{
    if (!drive_under(home))
        return;
    struct probe p = {0};
    struct error error = {0};
    int changes = 0, first = 0;
    if (!deny_call(SYS_io_uring_setup, 0, 0, 0, EPERM)) {
        printf("skipped: no seccomp here\n");
        return;
    }
    made = regular = 0;
    ck_assert_msg(probe_run(&p, home, 0.3, &error) == ZERO_OK, "%s", error.text);
    ck_assert_int_eq(regular, 0);
    while (first < made && moves[first] == 'W') /* the file */
        first++;
    for (int i = 1; i < made; i++)
        changes += moves[i] != moves[i - 1];
    ck_assert_msg(longest_run('R', first) >= 12 && longest_run('W', first) >= 12 && changes >= 12,
                  "%d blocks: %d in a row are read, %d written, %d changes", made - first,
                  longest_run('R', first), longest_run('W', first), changes);
}
END_TEST

/* While its file is written, then read, written, and both: nobody waits for it for ever. */
START_TEST(measures_no_drive_that_hangs)
{
    if (!drive_under(home))
        return;
    struct probe p = {0};
    struct error error = {0};
    if (!deny_call(SYS_io_uring_setup, 0, 0, 0, EPERM)) {
        printf("skipped: no seccomp here\n");
        return;
    }
    made = turned = 0;
    hangs_at = _i;
    ck_assert_int_eq(probe_run(&p, home, 0.3, &error), ZERO_ERR_IO);
    ck_assert_msg(strstr(error.text, ": the disk has not answered for 30 s while"), "%s",
                  error.text);
    ck_assert_int_eq(rmdir(home), 0); /* nothing is left */
    ck_assert_int_eq(mkdir(home, 0700), 0);
}
END_TEST

/* The page cache would be taken for a drive. */
START_TEST(measures_no_page_cache)
{
    if (!drive_under(home))
        return;
    ck_assert(deny_call(SYS_pwrite64, 0, 0, 0, EINVAL)); /* of the page that tries O_DIRECT */
    struct probe p = {0};
    struct error error = {0};
    ck_assert_int_eq(probe_run(&p, home, 0.3, &error), ZERO_ERR_UNSUPPORTED);
    ck_assert_msg(strstr(error.text, " refuses O_DIRECT, so "), "%s", error.text);
}
END_TEST

START_TEST(measures_no_memory)
{
    if (!drive_under(home))
        return;
    ck_assert(deny_call(SYS_mprotect, 2, ~0u, PROT_READ | PROT_WRITE, ENOMEM));
    struct probe p = {0};
    struct error error = {0};
    struct held before = held_now();
    ck_assert_int_eq(probe_run(&p, home, 0.3, &error), ZERO_ERR_MEMORY);
    held_expect(&before, "a probe that got no memory");
    ck_assert_int_eq(rmdir(home), 0); /* nothing is left */
    ck_assert_int_eq(mkdir(home, 0700), 0);
}
END_TEST

static struct spill_paths paths_of(const char *a, const char *b)
{
    struct spill_paths paths = {.count = b ? 2 : 1};
    snprintf(paths.path[0], SPILL_PATH, "%s", a);
    if (b)
        snprintf(paths.path[1], SPILL_PATH, "%s", b);
    return paths;
}

/* One folder: the cache, or a measurement where it will hold much, or the defaults. */
START_TEST(one_folder)
{
    if (!drive_under("/var/tmp"))
        return;
    struct spill_paths paths = paths_of("/var/tmp", NULL);
    struct probe p;
    char key[PROBE_KEY];
    ck_assert(probe_key(key, "", "/var/tmp"));
    probe_paths(&p, &paths, PROBE_ALONE - 1, PROBE_CACHED, &why);
    ck_assert(p.block == RING_BLOCK && p.depth == RING_DEPTH && p.read < 1);
    probe_paths(&p, &paths, PROBE_ALONE, PROBE_CACHED, &why);
    ck_assert(p.read > 1e6 && probe_load(&p, key));
    ck_assert(probe_store(&sound, key));
    probe_paths(&p, &paths, SPILL_ALIGN, PROBE_CACHED, &why);
    ck_assert(p.block == sound.block && p.depth == sound.depth && p.read > 3e9);
    probe_paths(&p, &paths, (int64_t)1 << 40, PROBE_NEVER, &why);
    ck_assert(p.block == RING_BLOCK && p.depth == RING_DEPTH && p.read < 1);
    probe_paths(&p, &paths, SPILL_ALIGN, PROBE_NOW, &why);
    ck_assert(p.read > 1e6);
    struct probe kept;
    ck_assert(probe_load(&kept, key));
    ck_assert(kept.block == p.block && kept.depth == p.depth);
    ck_assert(kept.read - p.read < 1 && p.read - kept.read < 1);
}
END_TEST

/* Several: shares by bandwidth, measured when it matters, known for a drive from
 * its first folder; together as deep as each alone. */
START_TEST(several_drives)
{
    if (!drive_under(home))
        return;
    char tmpfs[TREE_ROOT + 8], key[PROBE_KEY];
    snprintf(tmpfs, sizeof(tmpfs), "%s/tmpfs", home);
    ck_assert_int_eq(mkdir(tmpfs, 0700), 0);
    if (mount("none", tmpfs, "tmpfs", 0, "size=16m") != 0) {
        printf("skipped: cannot mount tmpfs\n");
        return;
    }
    struct spill_paths paths = paths_of(home, tmpfs);
    struct probe p, slow = {64 << 10, 30, 1e9, 1e9, 1e9}, fast = {1 << 20, 12, 6e9, 2e9, 3e9};
    ck_assert(probe_key(key, "", home) && probe_store(&slow, key));
    probe_paths(&p, &paths, PROBE_FILE, PROBE_CACHED, &why); /* tmpfs is too small to measure on */
    ck_assert(p.block == RING_BLOCK && !(p.read > 0) && !(paths.weight[1] > 0));
    ck_assert(probe_key(key, "", tmpfs) && probe_store(&fast, key));
    probe_paths(&p, &paths, PROBE_FILE, PROBE_CACHED, &why);
    ck_assert(p.block == 1 << 20 && p.depth == RING_DEPTH_MAX);
    ck_assert(p.read > 6.9e9 && p.read < 7.1e9 && p.write > 2.9e9 && p.write < 3.1e9);
    ck_assert(p.both > 3.9e9 && p.both < 4.1e9);
    ck_assert(paths.weight[0] > 0.99e9 && paths.weight[0] < 1.01e9);
    ck_assert(paths.weight[1] > 2.99e9 && paths.weight[1] < 3.01e9);
    /* Two folders of a file system that is on no drive: one is known, so both are, as one. */
    char here[TREE_ROOT + 16], there[TREE_ROOT + 16];
    snprintf(here, sizeof(here), "%s/here", tmpfs);
    snprintf(there, sizeof(there), "%s/there", tmpfs);
    ck_assert(mkdir(here, 0700) == 0 && mkdir(there, 0700) == 0);
    ck_assert(probe_key(key, "", here) && probe_store(&fast, key));
    paths = paths_of(here, there);
    probe_paths(&p, &paths, PROBE_FILE, PROBE_CACHED, &why);
    ck_assert_msg(p.both > 2.9e9 && p.both < 3.1e9 && p.depth == 12, "%g, %d", p.both, p.depth);
    umount2(tmpfs, MNT_DETACH);
}
END_TEST

/* Of one drive. */
START_TEST(several_folders)
{
    if (!drive_under(home))
        return;
    struct spill_paths paths = paths_of(home, home);
    struct probe p;
    probe_paths(&p, &paths, PROBE_FILE - 1, PROBE_CACHED, &why);
    ck_assert(!(paths.weight[0] > 0) && !(p.read > 0)); /* too little to measure for */
    probe_paths(&p, &paths, PROBE_FILE, PROBE_CACHED, &why);
    ck_assert(paths.weight[0] > 0 && !(paths.weight[0] < paths.weight[1]) &&
              !(paths.weight[0] > paths.weight[1]));
    struct probe first = p;
    probe_paths(&p, &paths, PROBE_FILE, PROBE_CACHED, &why); /* not anew: to the byte a second */
    ck_assert_msg(fabs(p.read - first.read) < 1 && fabs(p.both - first.both) < 1,
                  "%g, %g then %g, %g", first.read, first.both, p.read, p.both);

    /* Together they are one drive. */
    struct probe one;
    struct spill_paths alone = paths_of(home, NULL);
    probe_paths(&one, &alone, PROBE_FILE, PROBE_CACHED, &why);
    ck_assert(p.depth == one.depth && p.read > 0.99 * one.read && p.read < 1.01 * one.read);
    ck_assert(paths.weight[0] + paths.weight[1] < 1.01 * alone.weight[0]);
}
END_TEST

/* What programs are told: what the cache has, and nothing is made or measured for it. */
START_TEST(programs_are_told)
{
    struct zero_config config = {.size = sizeof(config), .nvme_path = home};
    struct zero_probe p = {.read = 1, .write = 1};
    char key[PROBE_KEY], error[256] = "x", twice[2 * TREE_ROOT + 2];
    ck_assert_int_eq(zero_probe_known(&config, &p, error, sizeof(error)), ZERO_OK);
    ck_assert_msg(error[0] == '\0' && !(p.read > 0) && !(p.write > 0), "%s", error);
    ck_assert_int_eq(rmdir(home), 0); /* nothing was left there */
    config.nvme_path = "/there/is/none";
    ck_assert_int_eq(zero_probe_known(&config, &p, error, sizeof(error)), ZERO_OK);
    ck_assert(!(p.read > 0));
    ck_assert_int_eq(mkdir(home, 0700), 0);

    snprintf(twice, sizeof(twice), "%s:%s", home, home);
    setenv("TMPDIR", home, 1);
    unsetenv("SLURM_TMPDIR");
    const char *paths[] = {home, NULL, twice};
    ck_assert(probe_key(key, "", home) && probe_store(&sound, key));
    for (int i = 0; i < 3; i++) {
        config.nvme_path = paths[i];
        ck_assert_int_eq(zero_probe_known(&config, &p, NULL, 0), ZERO_OK);
        ck_assert_msg(llround(p.read) == 3200000000 && llround(p.write) == 1500000000 &&
                          llround(p.both) == 2500000000,
                      "%d: %g %g %g", i, p.read, p.write, p.both);
        ck_assert_str_eq(p.nvme_path, paths[i] ? paths[i] : home);
    }
    setenv("ZERO_PROBE", "0", 1); /* an engine would use none */
    ck_assert_int_eq(zero_probe_known(&config, &p, NULL, 0), ZERO_OK);
    ck_assert(!(p.read > 0) && !(p.both > 0));
    setenv("ZERO_PROBE", "2", 1);
    ck_assert_int_eq(zero_probe_known(&config, &p, error, sizeof(error)), ZERO_ERR_ARGUMENT);
    ck_assert_msg(strstr(error, "ZERO_PROBE is '2'") != NULL, "%s", error);
    unsetenv("ZERO_PROBE");
    ck_assert_int_eq(zero_probe_known(&config, NULL, error, sizeof(error)), ZERO_ERR_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(error, "zero_probe_known was given NULL"));
    config.nvme_path = "/var/tmp::/tmp";
    p.read = 5;
    ck_assert_int_eq(zero_probe_known(&config, &p, error, sizeof(error)), ZERO_ERR_ARGUMENT);
    ck_assert_msg(strstr(error, "empty name") && llround(p.read) == 5, "%s", error);
    ck_assert_int_eq(zero_probe_known(NULL, &p, NULL, 0), ZERO_ERR_ARGUMENT);
}
END_TEST

static int refused = -1;   /* where locks that are not had are told of, one byte each */
static bool folders_alone; /* as where the cache is on Lustre without locks, say */
static bool late;          /* half a minute passes when a lock is not had */

/* The C library's, and the library's here. */
int flock(int fd, int operation)
{
    struct stat st;
    if (folders_alone && fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode)) {
        errno = ENOSYS;
        return -1;
    }
    int status = (int)syscall(SYS_flock, fd, operation);
    seconds_ahead += status != 0 && late ? 31 : 0;
    if (status != 0 && refused >= 0)
        ck_assert_int_eq(write(refused, "", 1), 1);
    return status;
}

/* Nodes that share a home measure a drive each. */
START_TEST(nodes_do_not_wait)
{
    int here = probe_lock(KEY);
    ck_assert(here >= 0 && flock(here, LOCK_EX) == 0);
    host = "another";
    int there = probe_lock(KEY);
    ck_assert(there >= 0 && flock(there, LOCK_EX | LOCK_NB) == 0);
    close(there);
    close(here);
    host = "node";
}
END_TEST

/* But for a folder of a network, which is one for all of them. */
START_TEST(nodes_wait_for_a_network)
{
    static const char *const key = "folder /scratch type lustre";
    int here = probe_lock(key);
    ck_assert(here >= 0 && flock(here, LOCK_EX) == 0);
    host = "another";
    int there = probe_lock(key);
    ck_assert(there >= 0 && flock(there, LOCK_EX | LOCK_NB) != 0);
    close(there);
    close(here);
    host = "node";
}
END_TEST

/* A rank that finds another measuring waits and takes its result. */
START_TEST(ranks_measure_once)
{
    struct spill_paths paths = paths_of(home, home);
    struct probe p;
    char key[PROBE_KEY];
    ck_assert(probe_key(key, "", home));
    int lock = probe_lock(key);
    ck_assert_int_ge(lock, 0);
    ck_assert_int_eq(flock(lock, LOCK_EX), 0);
    int pipe_ends[2];
    ck_assert_int_eq(pipe(pipe_ends), 0);
    pid_t child = fork();
    if (child == 0) {
        close(lock); /* a copy would hold it */
        refused = pipe_ends[1];
        double begin = seconds_now();
        probe_paths(&p, &paths, PROBE_FILE, _i == 0 ? PROBE_CACHED : PROBE_NOW, &why);
        _exit(p.block == sound.block && seconds_now() - begin < 20 ? 0 : 1);
    }
    char here;
    close(pipe_ends[1]);
    ck_assert_int_eq(read(pipe_ends[0], &here, 1), 1); /* and then it waits for the lock */
    ck_assert(probe_store(&sound, key));
    close(lock);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
END_TEST

/* After half a minute it measures too: a part of what the drive can do, which nobody else is to
 * take for all of it. */
START_TEST(what_is_measured_beside_another_is_not_kept)
{
    if (!drive_under(home))
        return;
    struct spill_paths paths = paths_of(home, home);
    struct probe p, kept;
    char key[PROBE_KEY];
    ck_assert(probe_key(key, "", home));
    int lock = probe_lock(key);
    ck_assert(lock >= 0 && flock(lock, LOCK_EX) == 0);
    late = true;
    probe_paths(&p, &paths, PROBE_FILE, PROBE_NOW, &why);
    late = false;
    ck_assert(p.read > 0 && !probe_load(&kept, key));
    close(lock);
    probe_paths(&p, &paths, PROBE_FILE, PROBE_NOW, &why);
    ck_assert(p.read > 0 && probe_load(&kept, key));
}
END_TEST

/* Without a cache, or where that has no locks, ranks measure one after the other all the same. */
START_TEST(ranks_measure_in_turn)
{
    if (!drive_under(home))
        return;
    struct spill_paths paths = paths_of(home, home);
    struct probe p;
    char told;
    int pipe_ends[2], status, lock = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (_i == 0)
        setenv("XDG_CACHE_HOME", "/proc", 1);
    folders_alone = true;
    ck_assert(lock >= 0 && flock(lock, LOCK_EX) == 0 && pipe(pipe_ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(lock);
        refused = pipe_ends[1];
        probe_paths(&p, &paths, PROBE_FILE, PROBE_NOW, &why);
        _exit(p.read > 0 ? 0 : 1);
    }
    close(pipe_ends[1]);
    ck_assert_int_eq(read(pipe_ends[0], &told, 1), 1); /* it waits */
    close(lock);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("probe");
    TCase *c = tcase_create("probe");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, home_make, home_remove);
    tcase_add_test(c, choice_is_the_smallest_near_the_best);
    tcase_add_test(c, cache_keeps);
    tcase_add_test(c, cache_corrupt);
    tcase_add_test(c, cache_is_made_of_files);
    tcase_add_test(c, cache_unwritable);
    tcase_add_test(c, cache_parallel);
    tcase_add_test(c, keys_name_file_systems);
    tcase_add_test(c, keys_name_devices);
    tcase_add_test(c, measures);
    tcase_add_test(c, measures_reads_writes_and_both);
    tcase_add_test(c, measures_no_page_cache);
    tcase_add_loop_test(c, measures_no_drive_that_hangs, 0, 4);
    tcase_add_test(c, measures_no_memory);
    tcase_add_test(c, one_folder);
    tcase_add_test(c, several_drives);
    tcase_add_test(c, several_folders);
    tcase_add_test(c, programs_are_told);
    tcase_add_test(c, nodes_do_not_wait);
    tcase_add_test(c, nodes_wait_for_a_network);
    tcase_add_loop_test(c, ranks_measure_once, 0, 2);
    tcase_add_test(c, what_is_measured_beside_another_is_not_kept);
    tcase_add_loop_test(c, ranks_measure_in_turn, 0, 2);
    suite_add_tcase(suite, c);
    return suite_run_all(suite);
}
