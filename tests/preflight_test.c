// SPDX-License-Identifier: Apache-2.0
/*
 * Whether the ranks of a node fit: the judgment on made-up facts, the facts of
 * a made-up machine, and what zero_create says on every rank before it has
 * allocated anything.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "offload/preflight.h"
#include "src/engine.h"
#include "tests/support/deny.h"
#include "tests/support/must.h"
#include "tests/support/ranks.h"
#include "tests/support/suite.h"
#include "tests/support/tree.h"

#define MIB ((int64_t)1 << 20)
#define GB  ((int64_t)1000000000)

/* ------------------------------------------------------------- the judgment */

enum { RANKS = 4 };

/* As the engine has them: among other things. */
static struct {
    char before[24];
    struct preflight_facts facts;
    char after[8];
} ranks[RANKS];

static int judge(int count, struct error *error)
{
    const struct preflight_ranks all = {&ranks[0].facts, sizeof(ranks[0]), count};
    *error = (struct error){0};
    return preflight_judge(&all, error);
}

static struct preflight_limit *limit_add(int rank, uint64_t id, const char *type, int64_t need,
                                         int64_t available)
{
    struct preflight_facts *f = &ranks[rank].facts;
    struct preflight_limit *limit = &f->limit[f->limits++];
    *limit = (struct preflight_limit){.id = id, .need = need, .available = available};
    snprintf(limit->type, sizeof(limit->type), "%s", type);
    snprintf(limit->name, sizeof(limit->name), "name%d", (int)id);
    return limit;
}

/* Ranks 0 and 1 on node a, 2 and 3 on node b. Each needs 10 GB of memory, 4 of
 * them device memory. */
static void ranks_make(void)
{
    memset(ranks, 0xff, sizeof(ranks));
    for (int r = 0; r < RANKS; r++) {
        ranks[r].facts = (struct preflight_facts){.node = 1 + (uint64_t)r / 2,
                                                  .need = {.arena = 6 * GB, .device = 4 * GB}};
        strcpy(ranks[r].facts.name, r < 2 ? "a" : "b");
        limit_add(r, 0, "", 10 * GB, 20 * GB);
    }
}

START_TEST(judge_sums_over_a_node)
{
    struct error error;
    ranks_make();
    ck_assert_int_eq(judge(RANKS, &error), ZERO_OK); /* exactly */
    ranks[3].facts.limit[0].available--;             /* one rank has seen less */
    ck_assert_int_eq(judge(3, &error), ZERO_OK);
    ck_assert_int_eq(judge(RANKS, &error), ZERO_ERR_MEMORY);
    has(error.text, "The 2 ranks on node b need 20.000 GB of host memory (host 12.000 GB, device "
                    "8.000 GB), but only 20.000 GB are available (name0)");
    has(error.text, "(name0). Offload more to files (--offload nvme, .offload), shard more "
                    "(--stage, .stage), use more nodes");
    ranks[3].facts.limit[0].available++;
    ranks[2].facts.limit[0].available--; /* whichever */
    ck_assert_int_eq(judge(RANKS, &error), ZERO_ERR_MEMORY);
    ranks[2].facts.limit[0].available++;
    ranks[2].facts.limit[0].need++;
    ck_assert_int_eq(judge(RANKS, &error), ZERO_ERR_MEMORY);
    has(error.text, "node b");
    /* One that takes a byte less than it has told, but of its files. */
    limit_add(2, 77, "ext4", 5, 5);
    preflight_shrink(&ranks[2].facts, 1);
    ck_assert_int_eq(judge(RANKS, &error), ZERO_OK);
    ck_assert_int_eq(ranks[2].facts.limit[1].need, 5);
    ck_assert_int_eq(ranks[2].facts.need.arena, 6 * GB - 1);
    /* What programs will take is told apart. */
    ranks[2].facts.need.program = GB;
    ranks[2].facts.limit[0].need += GB;
    ck_assert_int_eq(judge(RANKS, &error), ZERO_ERR_MEMORY);
    has(error.text, ", program 1.000 GB), ");
    has(error.text, "(--offload nvme, .offload), shard more (--stage, .stage), use smaller batches "
                    "(--batch, .program_bytes), ");
    /* A rank that needs nothing of it has no say. */
    ranks_make();
    ranks[1].facts.limit[0].need = 0;
    ranks[0].facts.limit[0].need = 21 * GB;
    ck_assert_int_eq(judge(RANKS, &error), ZERO_ERR_MEMORY);
    has(error.text, "A rank on node a needs 21.000 GB");
}
END_TEST

/* Groups of their own are judged apart, and what is above them together. */
START_TEST(judge_nested_groups)
{
    struct error error;
    ranks_make();
    for (int r = 0; r < RANKS; r++)
        limit_add(r, 100 + (uint64_t)r, "", 10 * GB, 10 * GB);
    ck_assert_int_eq(judge(RANKS, &error), ZERO_OK);
    for (int r = 0; r < RANKS; r++)
        limit_add(r, 50, "", 10 * GB, r < 2 ? 20 * GB : 15 * GB); /* not one on two nodes */
    ck_assert_int_eq(judge(2, &error), ZERO_OK);
    ck_assert_int_eq(judge(RANKS, &error), ZERO_ERR_MEMORY);
    has(error.text, "The 2 ranks on node b");
    has(error.text, "15.000 GB are available (name50)");
    /* The limit that most is lacking of is the one that is named. */
    ranks[3].facts.limit[1].available = GB;
    ck_assert_int_eq(judge(RANKS, &error), ZERO_ERR_MEMORY);
    has(error.text, "A rank on node b needs 10.000 GB");
    has(error.text, "1.000 GB are available (name103)");
}
END_TEST

START_TEST(judge_space)
{
    struct error error;
    ranks_make();
    for (int r = 0; r < RANKS; r++)
        limit_add(r, 7, "ext4", 300 * GB, 500 * GB);
    ck_assert_int_eq(judge(1, &error), ZERO_OK);
    ck_assert_int_eq(judge(RANKS, &error), ZERO_ERR_IO);
    has(error.text,
        "The 2 ranks on node a need 600.000 GB in name7 (ext4), but only 500.000 GB are free");
    has(error.text, "--nvme-path");
    /* The same number of another kind is something else. */
    ranks_make();
    limit_add(0, 0, "xfs", 19 * GB, 19 * GB);
    ck_assert_int_eq(judge(RANKS, &error), ZERO_OK);
    ranks[0].facts.limit[1].available--;
    ck_assert_int_eq(judge(RANKS, &error), ZERO_ERR_IO);
}
END_TEST

/* A network's folder is one for all nodes, and slow for all of them. */
START_TEST(judge_space_of_a_network)
{
    struct error error;
    char text[PREFLIGHT_TEXT];
    static const char *const networks[] = {"nfs",    "lustre", "gpfs", "ceph",
                                           "beegfs", "cifs",   "smb"};
    for (int i = 0; i < 7; i++) {
        ranks_make();
        for (int r = 0; r < RANKS; r++)
            limit_add(r, 7, networks[i], 300 * GB, 1200 * GB);
        ck_assert_int_eq(judge(RANKS, &error), ZERO_OK);
        ranks[3].facts.limit[1].available--;
        ck_assert_int_eq(judge(RANKS, &error), ZERO_ERR_IO);
        has(error.text, "The 4 ranks need 1200.000 GB in name7 (");
        has(error.text, "), which is the same for all nodes, but only 1200.000 GB are free. Free");
        has(error.text, networks[i]);
        ck_assert(preflight_warning(&ranks[2].facts, text));
        has(text, "name7 is on a server (");
        has(text, "each rank 300.000 GB in every step");
        ranks[2].facts.limit[1].need = 0;
        ck_assert(!preflight_warning(&ranks[2].facts, text));
        /* Another folder there, and one number on two nodes. */
        ranks_make();
        for (int r = 0; r < RANKS; r++)
            limit_add(r, r < 2 ? 8 : 7, networks[i], 300 * GB, r < 2 ? 700 * GB : 500 * GB);
        ck_assert_int_eq(judge(RANKS, &error), ZERO_ERR_IO);
        has(error.text, "The 2 ranks need 600.000 GB in name7 (");
        /* On a node it is its number that counts, so two names of one folder are one. */
        snprintf(ranks[3].facts.limit[1].name, PREFLIGHT_NAME, "another");
        ck_assert_int_eq(judge(RANKS, &error), ZERO_ERR_IO);
        has(error.text, "The 2 ranks need 600.000 GB in name7 (");
        /* On each node a mount has a number of its own. */
        ranks_make();
        for (int r = 0; r < RANKS; r++)
            snprintf(limit_add(r, r < 2 ? 8 : 7, networks[i], 300 * GB, 1000 * GB)->name,
                     PREFLIGHT_NAME, "/scratch");
        ck_assert_int_eq(judge(RANKS, &error), ZERO_ERR_IO);
        has(error.text, "The 4 ranks need 1200.000 GB in /scratch (");
    }
    ck_assert(!spill_type_is_network("ext4"));
}
END_TEST

START_TEST(judge_files_in_memory)
{
    struct error error;
    ranks_make();
    for (int r = 0; r < 2; r++) {
        ranks[r].facts.memory_files = 500000;
        ranks[r].facts.limit[0].need += 500000;
    }
    ck_assert_int_eq(judge(RANKS, &error), ZERO_ERR_MEMORY);
    has(error.text, "files on tmpfs 1.000 MB");
    has(error.text, "Name folders on a disk");
}
END_TEST

/* Containers of one machine may have host names of their own. */
START_TEST(a_boot_is_a_node)
{
    ranks_make();
    strcpy(ranks[1].facts.name, "another");
    strcpy(ranks[2].facts.name, "a");
    ck_assert(preflight_same_node(&ranks[0].facts, &ranks[1].facts));
    ck_assert(!preflight_same_node(&ranks[0].facts, &ranks[2].facts));
}
END_TEST

/* Limits of memory, which have no type, do not count. */
START_TEST(folders_are_the_same)
{
    const struct preflight_facts *a = &ranks[0].facts, *b = &ranks[1].facts;
    ck_assert(preflight_same_folders(a, b)); /* none */
    limit_add(0, 7, "ext4", GB, GB);
    ck_assert(!preflight_same_folders(a, b));
    ck_assert(!preflight_same_folders(b, a));
    limit_add(1, 7, "ext4", 2 * GB, GB);
    ck_assert(preflight_same_folders(a, b));
    limit_add(0, 3, "", GB, GB);
    ck_assert(preflight_same_folders(a, b));
    ck_assert(preflight_same_folders(b, a));
    ranks[1].facts.limit[0].id = 8;
    ck_assert(!preflight_same_folders(a, b));
}
END_TEST

/* Ranks that have failed send zeros. */
START_TEST(judge_without_facts)
{
    struct error error;
    memset(ranks, 0, sizeof(ranks));
    ck_assert_int_eq(judge(RANKS, &error), ZERO_OK);
    ranks_make();
    ranks[1].facts = (struct preflight_facts){0};
    ranks[0].facts.limit[0].available = 10 * GB;
    ck_assert_int_eq(judge(RANKS, &error), ZERO_OK);
}
END_TEST

/* ---------------------------------------------------------------- the facts */

static const struct preflight_limit *limit_named(const struct preflight_facts *f, const char *part)
{
    for (int i = 0; i < f->limits; i++)
        if (strstr(f->limit[i].name, part) != NULL)
            return &f->limit[i];
    ck_abort_msg("no limit %s", part);
    return NULL;
}

static struct spill_paths paths_of(const char *a, const char *b)
{
    struct spill_paths paths = {.count = b ? 2 : 1};
    snprintf(paths.path[0], SPILL_PATH, "%s", a);
    if (b)
        snprintf(paths.path[1], SPILL_PATH, "%s", b);
    return paths;
}

static char root[TREE_ROOT];

static void machine_make(void)
{
    tree_make(root);
    tree_put(root, "/proc/meminfo", "MemAvailable: 1000 kB\n");
    tree_put(root, "/proc/self/cgroup", "0::/job\n");
    tree_put(root, "/sys/fs/cgroup/job/memory.max", "500000\n");
    tree_put(root, "/sys/fs/cgroup/job/memory.current", "100000\n");
    setenv("XDG_CACHE_HOME", root, 1);
    tree_put(root, "/disk/x", "");
    tree_put(root, "/tmpfs/x", "");
}

static void machine_remove(void)
{
    char tmpfs[TREE_ROOT + 8];
    snprintf(tmpfs, sizeof(tmpfs), "%s/tmpfs", root);
    umount2(tmpfs, MNT_DETACH);
    tree_remove(root);
}

START_TEST(collects_memory)
{
    struct preflight_facts f, g;
    const struct preflight_need need = {.arena = 300, .device = 20, .program = 4};
    preflight_collect(&f, root, &need, NULL, MIB);
    ck_assert_int_eq(f.limits, 2);
    ck_assert_str_ne(f.name, "");
    ck_assert_int_eq(limit_named(&f, "MemAvailable")->available, 1024000);
    ck_assert_int_eq(limit_named(&f, "/job")->available, 400000);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(f.limit[i].need, 324);
        ck_assert_str_eq(f.limit[i].type, "");
    }
    /* Another boot is another machine. */
    tree_put(root, "/proc/sys/kernel/random/boot_id", "1234-5\n");
    preflight_collect(&f, root, &f.need, NULL, MIB);
    preflight_collect(&g, root, &f.need, NULL, MIB);
    ck_assert(f.node == g.node);
    tree_put(root, "/proc/sys/kernel/random/boot_id", "1234-6\n");
    preflight_collect(&g, root, &f.need, NULL, MIB);
    ck_assert(f.node != g.node);
}
END_TEST

START_TEST(collects_space)
{
    char disk[TREE_ROOT + 16], text[PREFLIGHT_TEXT];
    snprintf(disk, sizeof(disk), "%s/disk", root);
    struct preflight_facts f;
    const struct preflight_need need = {.arena = 100, .files = 128 * MIB};
    struct spill_paths paths = paths_of(root, disk); /* one file system */
    preflight_collect(&f, root, &need, &paths, MIB);
    ck_assert_int_eq(f.limits, 3);
    const struct preflight_limit *space = limit_named(&f, root);
    ck_assert_int_eq(space->need, 128 * MIB);
    ck_assert_int_gt(space->available, 0);
    ck_assert_str_ne(space->type, "");
    ck_assert_int_eq(limit_named(&f, "/job")->need, 100);
    ck_assert(!preflight_warning(&f, text));

    /* What cannot be asked is left to the file's making. */
    paths = paths_of("/nowhere/at/all", disk);
    preflight_collect(&f, root, &need, &paths, MIB);
    ck_assert_int_eq(f.limits, 3);
    ck_assert_int_eq(limit_named(&f, root)->need, 64 * MIB);
}
END_TEST

START_TEST(collects_files_in_memory)
{
    char disk[TREE_ROOT + 16], tmpfs[TREE_ROOT + 16], text[PREFLIGHT_TEXT];
    snprintf(disk, sizeof(disk), "%s/disk", root);
    snprintf(tmpfs, sizeof(tmpfs), "%s/tmpfs", root);
    if (mount("none", tmpfs, "tmpfs", 0, "size=16m") != 0) {
        printf("skipped: cannot mount tmpfs\n");
        return;
    }
    struct preflight_facts f;
    const struct preflight_need need = {.arena = 100, .device = 7, .files = 64 * MIB};
    struct spill_paths paths = paths_of(disk, tmpfs);
    paths.weight[0] = 3;
    paths.weight[1] = 1;
    preflight_collect(&f, root, &need, &paths, MIB);
    ck_assert_int_eq(f.limits, 4);
    const struct preflight_limit *space = limit_named(&f, "/tmpfs");
    ck_assert_str_eq(space->type, "tmpfs");
    ck_assert_int_eq(space->available, 16 * MIB);
    ck_assert_int_eq(space->need, 16 * MIB);
    ck_assert_int_eq(limit_named(&f, "/disk")->need, 48 * MIB);
    ck_assert_int_eq(f.memory_files, 16 * MIB);
    ck_assert_int_eq(limit_named(&f, "/job")->need, 107 + 16 * MIB);
    ck_assert(preflight_warning(&f, text));
    has(text, tmpfs);
    has(text, "16.777 MB of files");

    paths = paths_of(tmpfs, tmpfs);
    preflight_collect(&f, root, &need, &paths, MIB);
    ck_assert_int_eq(f.memory_files, 64 * MIB);
    ck_assert_int_eq(limit_named(&f, "/job")->need, 107 + 64 * MIB);

    /* Too little for both folders. */
    const struct preflight_need little = {.files = MIB};
    paths = paths_of(disk, tmpfs);
    preflight_collect(&f, root, &little, &paths, MIB);
    ck_assert_int_eq(f.memory_files, 0);
    ck_assert(!preflight_warning(&f, text));
}
END_TEST

/* The end of a long folder's name is what tells it from others. */
START_TEST(collects_long_names)
{
    char path[SPILL_PATH], name[170];
    memset(name, 'd', sizeof(name));
    memcpy(name, "/", 1);
    strcpy(name + 160, "end/x");
    tree_put(root, name, "");
    snprintf(path, sizeof(path), "%s%.163s", root, name);
    struct preflight_facts f;
    struct spill_paths paths = paths_of(path, NULL);
    preflight_collect(&f, root, &(struct preflight_need){.files = MIB}, &paths, MIB);
    const char *short_name = limit_named(&f, "dddend")->name;
    ck_assert_int_eq(strncmp(short_name, "...dd", 5), 0);
    ck_assert_uint_eq(strlen(short_name), PREFLIGHT_NAME - 1);
}
END_TEST

/* --------------------------------------------------------------- the engine */

static int64_t elements;
static struct zero_config config;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char said[2][512];
static int status[2];

static void create(int rank, struct zero_comm *comm, void *arg)
{
    (void)arg;
    struct zero_param param = {.name = "w", .ndim = 1, .shape = {elements}};
    struct zero_config c = config;
    struct zero *z;
    c.comm = comm;
    c.size = sizeof(c);
    status[rank] = zero_create(&z, &param, 1, &c);
    pthread_mutex_lock(&lock);
    snprintf(said[rank], sizeof(said[rank]), "%s", zero_last_error(z));
    pthread_mutex_unlock(&lock);
    ck_assert_ptr_null(z->device); /* nothing is allocated */
    zero_destroy(z);
}

/* More than this machine has, but not for one rank alone: the sum is refused,
 * in the same words on both. */
START_TEST(engines_refuse_together)
{
    char source[256];
    int64_t available = memory_available("", source, sizeof(source));
    config = (struct zero_config){.stage = 0, .offload = ZERO_HOST, .threads = 1};
    elements = available / 16 / 10 * 7; /* fp32: 4 on the device, 12 in the arena */
    ranks_run(2, create, NULL);
    for (int r = 0; r < 2; r++) {
        ck_assert_msg(status[r] == ZERO_ERR_MEMORY, "%s", said[r]);
        has(said[r], "The 2 ranks on node");
        ck_assert_str_eq(said[r], said[0]);
    }
}
END_TEST

/* One step of a model whose state is several stripes; the state's digest. */
static struct zero_digest trained(const char *list, enum zero_ring ring)
{
    static struct zero_normal normal = {1, 1, 0, 1};
    const int64_t n = 3 * MIB / 2 + 5;
    struct zero_param param = {
        .name = "w", .ndim = 1, .shape = {n}, .fill = zero_fill_normal, .fill_arg = &normal};
    struct zero_config c = {.size = sizeof(c),
                            .stage = 3,
                            .offload = ZERO_NVME,
                            .chunk = MIB / 4,
                            .threads = 1,
                            .nvme_path = list,
                            .ring = ring,
                            .log_level = ZERO_LOG_SILENT};
    const struct zero_adam adam = {.lr = .1, .beta1 = .9, .beta2 = .99, .eps = 1e-8};
    struct zero_digest digest = {0};
    struct zero_stats stats;
    struct zero *z;
    int rc = zero_create(&z, &param, 1, &c);
    ck_assert_msg(rc == ZERO_OK, "%s", zero_last_error(z));
    const char *at = list; /* the folders, each with its file */
    for (int i = 0; i < z->spill.stripes.files; i++) {
        const char *path = z->spill.file[i].path;
        ck_assert_int_eq(strncmp(at, path, strlen(path)), 0);
        at += strlen(path) + (at[strlen(path)] == ':');
    }
    ck_assert_str_eq(at, "");
    ck_assert_int_eq(zero_stats(z, &stats), ZERO_OK);
    ck_assert_str_eq(stats.nvme_path, list);
    ck_assert_int_eq(zero_set_adam(z, 0, &adam), ZERO_OK);
    for (int step = 0; step < 2; step++) {
        ck_assert_int_eq(zero_acquire(z, 0), ZERO_OK);
        const float *w = zero_param_data(z, 0);
        float *g = zero_grad_data(z, 0);
        for (int64_t i = 0; i < n; i++)
            g[i] = w[i] * 1e-3f;
        ck_assert_int_eq(zero_release(z, 0), ZERO_OK);
        ck_assert_int_eq(zero_reduce(z, 0), ZERO_OK);
        rc = zero_step(z, NULL);
        ck_assert_msg(rc == ZERO_OK, "%s", zero_last_error(z));
    }
    ck_assert_int_eq(zero_digest(z, &digest), ZERO_OK);
    zero_destroy(z);
    return digest;
}

static char logged[512];

static void keep_log(void *arg, enum zero_log_level level, const char *line)
{
    (void)arg;
    if (level == ZERO_LOG_WARNING)
        snprintf(logged, sizeof(logged), "%s", line);
}

/* Memory that may not be locked is a warning with the limit; all else goes on. */
START_TEST(engine_without_locked_memory)
{
    struct rlimit limit;
    char sentence[64];
    ck_assert_int_eq(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    if (limit.rlim_max > 5 << 20) /* else it cannot be raised to that either */
        limit.rlim_max = 5 << 20;
    limit.rlim_cur = limit.rlim_max;
    snprintf(sentence, sizeof(sentence), "is %ld KiB (ulimit -l", (long)limit.rlim_max >> 10);
    ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    ck_assert(deny_call(SYS_io_uring_register, 1, ~0u, 0, ENOMEM)); /* IORING_REGISTER_BUFFERS */
    struct zero_param param = {.name = "w", .ndim = 1, .shape = {1000}};
    struct zero_config c = {
        .size = sizeof(c), .offload = ZERO_NVME, .threads = 1, .nvme_path = root, .log = keep_log};
    struct zero *z;
    ck_assert_int_eq(zero_create(&z, &param, 1, &c), ZERO_OK);
    if (strcmp(z->pipeline.ring->ops->name, "uring") == 0) {
        has(logged, "could not register");
        has(logged, sentence);
    }
    zero_destroy(z);
}
END_TEST

/* A folder on tmpfs is said to be memory, once, and then used. */
START_TEST(engine_warns_of_tmpfs)
{
    char tmpfs[TREE_ROOT + 8];
    snprintf(tmpfs, sizeof(tmpfs), "%s/tmpfs", root);
    if (mount("none", tmpfs, "tmpfs", 0, "size=16m") != 0) {
        printf("skipped: cannot mount tmpfs\n");
        return;
    }
    struct zero_param param = {.name = "w", .ndim = 1, .shape = {1000}};
    struct zero_config c = {.size = sizeof(c),
                            .offload = ZERO_NVME,
                            .threads = 1,
                            .nvme_path = tmpfs,
                            .log = keep_log,
                            .ring = ZERO_RING_POSIX}; /* which has nothing to warn of */
    struct zero *z;
    ck_assert_int_eq(zero_create(&z, &param, 1, &c), ZERO_OK);
    has(logged, tmpfs);
    has(logged, "is memory (tmpfs)");
    zero_destroy(z);
}
END_TEST

/* Of two folders, the one that refuses O_DIRECT is named. */
START_TEST(engine_warns_of_page_cache)
{
    char list[2 * TREE_ROOT + 16], ramfs[TREE_ROOT + 8];
    snprintf(ramfs, sizeof(ramfs), "%s/tmpfs", root);
    snprintf(list, sizeof(list), "%s/disk:%s", root, ramfs);
    if (mount("none", ramfs, "ramfs", 0, NULL) != 0) {
        printf("skipped: cannot mount ramfs\n");
        return;
    }
    struct zero_param param = {.name = "w", .ndim = 1, .shape = {MIB}};
    struct zero_config c = {.size = sizeof(c),
                            .offload = ZERO_NVME,
                            .threads = 1,
                            .nvme_path = list,
                            .log = keep_log,
                            .ring = ZERO_RING_POSIX};
    struct zero *z;
    ck_assert_int_eq(zero_create(&z, &param, 1, &c), ZERO_OK);
    has(logged, " (ramfs) refuses O_DIRECT");
    ck_assert_int_eq(strncmp(logged, ramfs, strlen(ramfs)), 0);
    zero_destroy(z);
}
END_TEST

static void expect_ring(int block, int depth, bool measured)
{
    struct zero_param param = {.name = "w", .ndim = 1, .shape = {1000}};
    struct zero_config c = {
        .size = sizeof(c), .offload = ZERO_NVME, .threads = 1, .nvme_path = root, .log = keep_log};
    struct zero *z;
    c.ring = suite_uring() ? ZERO_RING_AUTO : ZERO_RING_POSIX; /* the log keeps one line */
    ck_assert_int_eq(zero_create(&z, &param, 1, &c), ZERO_OK);
    const struct ring *ring = z->pipeline.ring;
    ck_assert_int_eq(ring->block, block);
    ck_assert_int_eq(ring->depth, depth);
    struct zero_stats stats;
    ck_assert_int_eq(zero_stats(z, &stats), ZERO_OK);
    ck_assert_int_eq(stats.ring_block, block);
    ck_assert_int_eq(stats.ring_depth, depth);
    ck_assert(stats.ring_registered == ring->registered);
    struct zero_probe known = {0};
    ck_assert(!measured || !zero_probe_known(&c, &known, NULL, 0));
    ck_assert(stats.probe_read == known.read && (known.read > 0) == measured);
    ck_assert(stats.probe_write == known.write && (known.write > 0) == measured);
    ck_assert(stats.probe_both == known.both && (known.both > 0) == measured);
    zero_destroy(z);
}

/* The ring is set by what the cache knows, unless the environment forbids. */
START_TEST(engine_takes_the_probe)
{
    const struct probe probe = {128 << 10, 3, 2e9, 1e9, 1.5e9};
    char key[PROBE_KEY];
    ck_assert(probe_key(key, "", root));
    expect_ring(RING_BLOCK, RING_DEPTH, false);
    ck_assert(probe_store(&probe, key));
    expect_ring(128 << 10, 3, true);
    setenv("ZERO_PROBE", "0", 1);
    expect_ring(RING_BLOCK, RING_DEPTH, false);
    const struct rlimit least = {16 * MIB, 16 * MIB}; /* less than a probe's file */
    logged[0] = '\0';
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &least), 0);
    setenv("ZERO_PROBE", "1", 1);
    expect_ring(RING_BLOCK, RING_DEPTH, false);
    has(logged, "ZERO_PROBE=1, but the defaults are used: ");
    has(logged, "ulimit -f");
    setenv("ZERO_PROBE", "yes", 1);
    struct zero_param param = {.name = "w", .ndim = 1, .shape = {1000}};
    struct zero_config c = {.size = sizeof(c), .offload = ZERO_NVME};
    struct zero *z;
    ck_assert_int_eq(zero_create(&z, &param, 1, &c), ZERO_ERR_ARGUMENT);
    has(zero_last_error(z), "ZERO_PROBE is 'yes'");
    zero_destroy(z);
}
END_TEST

START_TEST(engine_on_several_folders)
{
    char list[3 * TREE_ROOT + 64];
    snprintf(list, sizeof(list), "%s:%s/disk:%s/tmpfs", root, root, root);
    struct zero_digest one = trained(root, ZERO_RING_POSIX);
    for (int ring = ZERO_RING_AUTO; ring <= ZERO_RING_POSIX; ring += ZERO_RING_POSIX) {
        struct zero_digest three = trained(list, (enum zero_ring)ring);
        ck_assert_int_eq(memcmp(&one, &three, sizeof(one)), 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("preflight");
    TCase *judgment = tcase_create("judgment");
    tcase_add_test(judgment, judge_sums_over_a_node);
    tcase_add_test(judgment, judge_nested_groups);
    tcase_add_test(judgment, judge_space);
    tcase_add_test(judgment, judge_space_of_a_network);
    tcase_add_test(judgment, judge_files_in_memory);
    tcase_add_test(judgment, judge_without_facts);
    tcase_add_test(judgment, a_boot_is_a_node);
    tcase_add_test(judgment, folders_are_the_same);
    suite_add_tcase(suite, judgment);

    TCase *facts = tcase_create("facts");
    tcase_add_checked_fixture(facts, machine_make, machine_remove);
    tcase_add_test(facts, collects_memory);
    tcase_add_test(facts, collects_space);
    tcase_add_test(facts, collects_files_in_memory);
    tcase_add_test(facts, collects_long_names);
    suite_add_tcase(suite, facts);

    TCase *engine = tcase_create("engine");
    tcase_set_timeout(engine, 60);
    tcase_add_checked_fixture(engine, machine_make, machine_remove);
    tcase_add_test(engine, engines_refuse_together);
    tcase_add_test(engine, engine_without_locked_memory);
    tcase_add_test(engine, engine_warns_of_tmpfs);
    tcase_add_test(engine, engine_warns_of_page_cache);
    tcase_add_test(engine, engine_takes_the_probe);
    tcase_add_test(engine, engine_on_several_folders);
    suite_add_tcase(suite, engine);
    return suite_run_all(suite);
}
