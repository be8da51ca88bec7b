// SPDX-License-Identifier: Apache-2.0
/*
 * Memory is the plan, from the first call to the last: what an engine takes is
 * what its plan says, its device's high-water mark included; steps take nothing
 * more, open nothing and start nothing; and after zero_destroy the process is as
 * it was before, however the engine ended. Ranks are threads. Each
 * configuration runs in a process of its own.
 */
#include "tests/support/allocations.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/engine.h"
#include "tests/support/comm_threads.h"
#include "tests/support/held.h"
#include "tests/support/latch.h"
#include "tests/support/ranks.h"
#include "tests/support/suite.h"
#include "tests/support/toy.h"

#define STEPS      30
#define SETTLED    3 /* steps after which nothing is new */
#define ACCUMULATE 2

extern int mallopt(int parameter, int value);
#define ARENA_MAX (-8) /* M_ARENA_MAX */

/* ------------------------------------------------- a device that keeps accounts */

struct account {
    const struct device_ops *cpu;
    struct device_ops ops;
    int64_t used;
};

static _Thread_local struct account *account; /* of the rank that this thread is */

static void *account_alloc(struct device *device, int64_t bytes, struct error *error)
{
    struct account *a = account;
    void *memory = a->cpu->alloc(device, bytes, error);
    a->used += memory ? bytes : 0;
    return memory;
}

/* The CPU's device with other ways to memory. */
static int account_create(struct device **device, const struct device_options *options,
                          struct error *error)
{
    *account = (struct account){0};
    if (device_cpu_create(device, options, error))
        return error->status;
    account->cpu = (*device)->ops;
    account->ops = *account->cpu;
    account->ops.alloc = account_alloc;
    (*device)->ops = &account->ops;
    return ZERO_OK;
}

/* ------------------------------------------------------------ normal use */

struct job {
    struct zero_config config;
    int ranks, steps;
    bool watched; /* the steps after SETTLED are looked at */
    pthread_barrier_t barrier;
    struct held settled;
    const char *wrong[4]; /* per rank */
};

/* Between two barriers: nobody else works for the engine or against it. */
static void watch(struct job *j, struct zero *z, int step)
{
    if (!j->watched || (step != SETTLED && step != STEPS))
        return;
    struct zero_digest digest;
    pthread_barrier_wait(&j->barrier);
    atomic_store(&allocations.counting, false);
    if (zero_digest(z, &digest)) /* waits for the update */
        j->wrong[z->rank] = "no digest";
    pthread_barrier_wait(&j->barrier);
    if (z->rank == 0) {
        struct held now = held_now();
        if (step == SETTLED)
            j->settled = now;
        else if (now.descriptors != j->settled.descriptors || now.threads != j->settled.threads)
            j->wrong[0] = "steps open descriptors or start threads";
        else if (now.peak - j->settled.peak > 1 << 20)
            j->wrong[0] = "steps take more than 1 MiB";
        else if (now.mappings != j->settled.mappings)
            j->wrong[0] = "steps map memory";
        atomic_store(&allocations.counting, step == SETTLED);
    }
    pthread_barrier_wait(&j->barrier);
}

static int train(struct job *j, struct zero *z)
{
    const struct zero_adam adam = {.lr = .01, .beta1 = .9, .beta2 = .95, .eps = 1e-8};
    int status = zero_set_adam(z, 0, &adam);
    if (!status)
        status = zero_set_adam(z, 1, &adam);
    if (!status)
        status = zero_set_accumulate(z, ACCUMULATE);
    for (int s = 0; !status && s < j->steps; s++) {
        double loss = 0, mean;
        struct zero_stats stats;
        for (int a = 0; !status && a < ACCUMULATE; a++)
            status = toy_micro_step(z, (s * ACCUMULATE + a) * j->ranks + z->rank, false, &loss);
        if (!status)
            status = zero_mean(z, &loss, 1, &mean);
        if (!status)
            status = zero_step(z, NULL);
        if (!status)
            status = zero_stats(z, &stats);
        if (!status)
            watch(j, z, s + 1);
    }
    return status;
}

static void rank_body(int rank, struct zero_comm *comm, void *arg)
{
    struct job *j = arg;
    struct zero_param params[TOY_TENSORS_ALL];
    struct zero_config config = j->config;
    struct account mine;
    const struct engine_seams seams = {.device = account_create};
    struct zero *z;
    account = &mine;
    toy_describe_all(params);
    config.size = sizeof(config);
    config.comm = comm;
    config.accumulate = ACCUMULATE;
    int status = engine_create(&z, params, TOY_TENSORS_ALL, &config, &seams);
    if (!status)
        status = train(j, z);
    if (status)
        fprintf(stderr, "rank %d: %s\n", rank, zero_last_error(z));
    if (status)
        j->wrong[rank] = "the run failed";
    else if (toy_check_memory(z))
        j->wrong[rank] = toy_check_memory(z);
    else if (mine.used != z->plan.report.device.total)
        j->wrong[rank] = "the device's high-water mark is not what the plan says";
    zero_destroy(z);
}

static void run(struct job *j)
{
    pthread_barrier_init(&j->barrier, NULL, (unsigned)j->ranks);
    ranks_run(j->ranks, rank_body, j);
    pthread_barrier_destroy(&j->barrier);
    for (int r = 0; r < j->ranks; r++)
        ck_assert_msg(!j->wrong[r], "rank %d: %s", r, j->wrong[r]);
}

/* Every stage with every place, and the formats where they can be. */
static struct zero_config configuration(int i)
{
    static const struct zero_config extra[] = {
        {.stage = 0, .accumulate_in = ZERO_LOCAL, .dtype = ZERO_BF16},
        {.stage = 1, .accumulate_in = ZERO_LOCAL, .offload = ZERO_NVME},
        {.stage = 3, .state = ZERO_STATE_SPLIT, .dtype = ZERO_BF16, .offload = ZERO_NVME},
        {.stage = 3, .dtype = ZERO_FP16, .offload = ZERO_HOST},
        {.stage = 3, .state = ZERO_STATE_SPLIT, .dtype = ZERO_BF16, .offload_param = ZERO_NVME},
        {.stage = 2, .grad_dtype = ZERO_BF16, .dtype = ZERO_BF16, .offload = ZERO_NVME},
        {.stage = 3, .offload = ZERO_NVME, .offload_grad = ZERO_DEVICE, .dtype = ZERO_BF16},
    };
    struct zero_config c = {.stage = i % 4, .chunk = 256, .log_level = ZERO_LOG_SILENT};
    if (i >= 32) {
        c = extra[i - 32];
        c.chunk = 256;
        return c;
    }
    c.dtype = i / 4 % 2 ? ZERO_BF16 : ZERO_FP32;
    c.offload = i / 8 == 0 ? ZERO_DEVICE : i / 8 == 1 ? ZERO_HOST : ZERO_NVME;
    if (i / 8 == 3) { /* partly in memory, over the other ring, checked */
        c.host_bytes = 12000;
        c.ring = ZERO_RING_POSIX;
        c.verify_spill = suite_checksums();
    }
    return c;
}
#define CONFIGURATIONS 39

START_TEST(steps_take_nothing_and_the_end_leaves_nothing)
{
    struct job once = {.config = configuration(_i), .ranks = 2, .steps = 2};
    struct job again = {.config = configuration(_i), .ranks = 2, .steps = STEPS, .watched = true};
    run(&once); /* what the C library keeps for the next thread */
    struct held before = held_now();
    run(&again);
    ck_assert_msg(allocations.calls == 0, "%lld allocations, the first from %p (malloc is at %p)",
                  (long long)allocations.calls, allocations.first, (void *)(uintptr_t)malloc);
    held_expect(&before, "an engine's life");
}
END_TEST

/* ------------------------------------------------------- beside the plan */

#define BIG_UNITS  24
#define BIG_CHUNKS 3840

/* The tables of an engine with as many chunks and units as a model of a billion
 * parameters has on two ranks. */
START_TEST(tables_are_small)
{
    struct zero_param params[BIG_UNITS];
    char names[BIG_UNITS][8];
    struct zero_config config = {
        .size = sizeof(config), .stage = 3, .dtype = ZERO_BF16, .offload = ZERO_NVME, .chunk = 64};
    struct zero *z;
    for (int u = 0; u < BIG_UNITS; u++) {
        snprintf(names[u], sizeof(names[u]), "u%d", u);
        params[u] = (struct zero_param){
            .name = names[u], .unit = u, .ndim = 1, .shape = {BIG_CHUNKS / BIG_UNITS * 64}};
    }
    struct held before = held_now();
    ck_assert_int_eq(zero_create(&z, params, BIG_UNITS, &config), ZERO_OK);
    struct held after = held_now();
    ck_assert_int_eq(z->plan.chunks, BIG_CHUNKS);
    /* 11 commands of 184 bytes a chunk, 6 * 256 beside: 8.06 MB; then some tables. */
    ck_assert_int_gt(after.bytes - before.bytes, 8000000);
    ck_assert_int_lt(after.bytes - before.bytes, 9000000);
    zero_destroy(z);
}
END_TEST

/* ----------------------------------------------------------------- failures */

/* An engine that is refused, or fails in its first steps. */
struct failure {
    const char *what;
    const char *variable, *value;      /* of the environment */
    struct zero_config config, second; /* all ranks'; where it has a size, the last rank's */
    int expected;
    bool bad_fill, bad_names;
    int withheld;  /* collectives from this one on are never reported done; 0: none */
    int broken;    /* this one fails on rank 0; 0: none */
    bool at_start; /* when it is started, not when it is looked at */
    bool holds;    /* and what was under way keeps its memory */
};

static int bad_fill(void *arg, int64_t first, int64_t count, float *out)
{
    (void)arg;
    (void)first;
    memset(out, 0, (size_t)count * sizeof(*out));
    return -1;
}

struct failing {
    const struct failure *f;
    int status[4];
    char text[4][400];
};

static bool never(void *arg, const struct latch_op *op)
{
    const struct failure *f = arg;
    return op->kind == LATCH_COMM && op->collective->header.sequence >= (uint64_t)f->withheld;
}

/* Communicators of which one fails. */
static struct zero_comm_ops breaking;
static int (*breaking_test)(struct zero_comm *, struct zero_collective *, bool *);
static int (*breaking_start)(struct zero_comm *, struct zero_collective *);
static uint64_t broken_sequence;
static bool broken_at_start, broken_holds;

static int breaks(struct zero_comm *comm, const struct zero_collective *c)
{
    if (comm->rank || c->header.sequence != broken_sequence)
        return ZERO_OK;
    comm->holds = broken_holds;
    snprintf(comm->error, sizeof(comm->error), "broken by the test");
    return ZERO_ERR_COMM;
}

static int break_start(struct zero_comm *comm, struct zero_collective *c)
{
    int status = broken_at_start ? breaks(comm, c) : ZERO_OK;
    return status ? status : breaking_start(comm, c);
}

static int break_test(struct zero_comm *comm, struct zero_collective *c, bool *done)
{
    int status = broken_at_start ? ZERO_OK : breaks(comm, c);
    return status ? status : breaking_test(comm, c, done);
}

static void describe_failing(const struct failure *f, struct zero_param *params)
{
    toy_describe_all(params);
    if (f->bad_fill)
        params[7].fill = bad_fill;
    if (f->bad_names)
        params[7].name = params[3].name;
}

static void failing_body(int rank, struct zero_comm *comm, void *arg)
{
    struct failing *all = arg;
    const struct failure *f = all->f;
    struct zero_param params[TOY_TENSORS_ALL];
    struct zero_config config = f->second.size && rank ? f->second : f->config;
    struct latch latch = {.withheld = f->withheld ? never : NULL, .arg = (void *)(uintptr_t)f};
    struct job j = {.ranks = 2, .steps = 3};
    struct zero *z;
    describe_failing(f, params);
    config.size = sizeof(config);
    config.chunk = 256;
    config.log_level = ZERO_LOG_SILENT;
    config.comm = f->withheld ? latch_comm(&latch, comm) : comm;
    const struct engine_seams *seams = f->withheld ? latch_seams(&latch) : NULL;
    int status = engine_create(&z, params, TOY_TENSORS_ALL, &config, seams);
    if (!status)
        status = train(&j, z);
    all->status[rank] = status;
    snprintf(all->text[rank], sizeof(all->text[rank]), "%s", zero_last_error(z));
    zero_destroy(z);
    if (f->withheld)
        config.comm->ops->destroy(config.comm);
}

static void breaking_body(int rank, struct zero_comm *comm, void *arg)
{
    if (((struct failing *)arg)->f->broken)
        comm->ops = &breaking;
    failing_body(rank, comm, arg);
}

/* As all of them do, but for one call. */
static void prepare_breaking(const struct failure *f)
{
    struct comm_threads *t = comm_threads_create(1);
    breaking = *comm_threads_rank(t, 0)->ops;
    comm_threads_destroy(t);
    breaking_test = breaking.test;
    breaking_start = breaking.start;
    breaking.test = break_test;
    breaking.start = break_start;
    broken_at_start = f->at_start;
    broken_holds = f->holds;
    broken_sequence = (uint64_t)f->broken;
}

static void fail_once(const struct failure *f)
{
    struct failing all = {.f = f};
    ranks_run(2, breaking_body, &all);
    for (int r = 0; r < 2; r++)
        ck_assert_msg(all.status[r] != ZERO_OK && (all.status[r] == f->expected || !f->expected),
                      "%s: rank %d: %s %s", f->what, r, zero_status_name(all.status[r]),
                      all.text[r]);
}

static void expect_clean_failure(const struct failure *f)
{
    if (f->variable)
        setenv(f->variable, f->value, 1);
    prepare_breaking(f);
    fail_once(f);
    fail_once(f); /* as many threads, and longest sentences, as there will be */
    struct held before = held_now();
    fail_once(f);
    /* One thread more at once than before, and libc keeps its memory; what leaks does again. */
    if (held_now().blocks != before.blocks) {
        before = held_now();
        fail_once(f);
    }
    held_expect(&before, f->what);
}

#define NVME3                                                                                      \
    {                                                                                              \
        .stage = 3, .offload = ZERO_NVME, .dtype = ZERO_BF16                                       \
    }

static const struct failure refusals[] = {
    {"a field out of range", .config = {.stage = 4}, .expected = ZERO_ERR_ARGUMENT},
    {"two tensors of a name", .bad_names = true, .expected = ZERO_ERR_ARGUMENT},
    {"a fill that fails", .config = NVME3, .bad_fill = true, .expected = ZERO_ERR_ARGUMENT},
    {"a device too small", "ZERO_DEVICE_MEMORY", "1000", .config = NVME3,
     .expected = ZERO_ERR_MEMORY},
    {"a device that is no number", "ZERO_DEVICE_MEMORY", "many", .expected = ZERO_ERR_ARGUMENT},
    {"no such instruction set", "ZERO_ISA", "sse", .expected = ZERO_ERR_ARGUMENT},
    {"no such folder", .config = {.offload = ZERO_NVME, .nvme_path = "/nowhere"},
     .expected = ZERO_ERR_IO},
    {"one folder of two", .config = {.offload = ZERO_NVME, .nvme_path = "/var/tmp:/nowhere"},
     .expected = ZERO_ERR_IO},
    {"another configuration", .config = {.stage = 1}, .second = {.size = 1, .stage = 2},
     .expected = ZERO_ERR_MISMATCH},
    {"one rank's folder", .config = {.offload = ZERO_NVME},
     .second = {.size = 1, .offload = ZERO_NVME, .nvme_path = "/nowhere"}, .expected = ZERO_ERR_IO},
};
#define REFUSALS (int)(sizeof(refusals) / sizeof(*refusals))

START_TEST(refused_engines_leave_nothing)
{
    expect_clean_failure(&refusals[_i]);
}
END_TEST

/* At creation, in the first forward pass, in reductions, in the verdict, behind
 * the update. */
START_TEST(waits_that_end_leave_nothing)
{
    struct failure f = {"a deadline", .config = NVME3, .withheld = 1 + 11 * _i};
    f.config.deadline_seconds = 1;
    expect_clean_failure(&f);
}
END_TEST

START_TEST(communicators_that_fail_leave_nothing)
{
    struct failure f = {"a communicator", .config = NVME3, .expected = ZERO_ERR_COMM,
                        .broken = 1 + 3 * (_i / 2), .at_start = _i % 2};
    f.config.ring = _i / 2 % 2 ? ZERO_RING_POSIX : ZERO_RING_AUTO;
    expect_clean_failure(&f);
}
END_TEST

/* What may still be moved from or to stays: rank 0's arenas do, and the engine lets go of all
 * else that it had of the kernel's. */
START_TEST(memory_that_is_held_stays)
{
    struct failure f = {"a communicator that holds", .config = NVME3, .expected = ZERO_ERR_COMM,
                        .broken = 20, .holds = true};
    prepare_breaking(&f);
    fail_once(&f);
    struct held before = held_now();
    fail_once(&f);
    struct held after = held_now();
    ck_assert_int_ge(after.mappings - before.mappings, 1 << 20);
    ck_assert_int_eq(after.descriptors, before.descriptors);
    ck_assert_int_eq(after.threads, before.threads);
}
END_TEST

/* --------------------------------------------------------------------- suite */

/* The watch itself: it sees an allocation, and a block that stays. */
START_TEST(allocations_are_seen)
{
    struct held before = held_now();
    atomic_store(&allocations.counting, true);
    void *volatile kept = malloc(1000);
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    atomic_store(&allocations.counting, false);
    struct held after = held_now();
    ck_assert_int_eq(allocations.calls, 2);
    ck_assert_int_eq(after.blocks - before.blocks, 1);
    ck_assert_int_ge(after.bytes - before.bytes, 1000);
    ck_assert_int_eq(after.mappings - before.mappings, 4096);
    munmap(page, 4096);
    free(kept);
    ck_assert_int_eq(held_now().bytes, before.bytes);
}
END_TEST

int main(void)
{
    if (!ALLOCATIONS_SEEN) {
        puts("skipped: allocations, which a sanitizer replaces itself");
        puts("100%: Checks: 1, Failures: 0, Errors: 0");
        return 0;
    }
    mallopt(ARENA_MAX, 1);
    Suite *suite = suite_create("memory");
    TCase *use = tcase_create("use"), *failures = tcase_create("failures");
    tcase_add_test(use, allocations_are_seen);
    tcase_add_loop_test(use, steps_take_nothing_and_the_end_leaves_nothing, 0, CONFIGURATIONS);
    tcase_add_test(use, tables_are_small);
    tcase_add_loop_test(failures, refused_engines_leave_nothing, 0, REFUSALS);
    tcase_add_loop_test(failures, waits_that_end_leave_nothing, 0, 4);
    tcase_add_loop_test(failures, communicators_that_fail_leave_nothing, 0, 24);
    tcase_add_test(failures, memory_that_is_held_stays);
    suite_add_tcase(suite, use);
    suite_add_tcase(suite, failures);
    return suite_run_all(suite);
}
