// SPDX-License-Identifier: Apache-2.0
/*
 * What becomes of a disk that is slow, on one rank or all, or does not answer, or fails when
 * nobody waits for it any more.
 */
#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/clock.h"
#include "src/engine.h"
#include "tests/support/latch.h"
#include "tests/support/ranks.h"
#include "tests/support/suite.h"

static bool never_read(void *arg, const struct latch_op *op)
{
    bool never = atomic_load((atomic_bool *)arg) && op->kind == LATCH_RING && !op->request->write;
    if (never)
        op->request->completed = 0; /* as if nothing were */
    return never;
}

/* By the configuration's deadline, and by another; after 10 s, or where it is longer after that.
 * What to do comes before folders, whose names may be long. */
enum { LONGER = 12 };

START_TEST(a_disk_that_does_not_answer_is_named)
{
    char folders[520], folder[256];
    snprintf(folder, sizeof(folder), "/var/tmp/zero-slow-%0213d-XXXXXX", 0);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(folders, sizeof(folders), "%s:%s", folder, folder);
    struct zero_param p = {.name = "a", .ndim = 1, .shape = {1 << 12}};
    const struct zero_config config = {.size = sizeof(config),
                                       .stage = 3,
                                       .offload = ZERO_NVME,
                                       .nvme_path = folders,
                                       .chunk = 1 << 10,
                                       .deadline_seconds = _i == 1   ? 0
                                                           : _i == 2 ? LONGER
                                                                     : 1,
                                       .log_level = ZERO_LOG_SILENT};
    atomic_bool hangs = false;
    struct latch latch = {.withheld = never_read, .arg = &hangs};
    struct zero_digest digest;
    struct zero *z;
    ck_assert_int_eq(engine_create(&z, &p, 1, &config, latch_seams(&latch)), ZERO_OK);
    rmdir(folder);
    ck_assert_int_eq(zero_digest(z, &digest), ZERO_OK);
    atomic_store(&hangs, true);
    ck_assert_int_eq(_i == 1 ? zero_set_deadline(z, 1) : ZERO_OK, ZERO_OK);
    sleep(_i == 1 ? 3 : 0); /* in which nothing is asked of it */
    double asked = seconds_now();
    ck_assert_int_eq(zero_digest(z, &digest), ZERO_ERR_IO);
    int limit = _i == 2 ? LONGER : 10;
    ck_assert_double_ge(seconds_now() - asked, limit);
    char sentence[256];
    snprintf(
        sentence, sizeof(sentence),
        "^Reading optimizer state, chunk [0-3]: the disk has not answered for %d s\\. Look for "
        "what holds it up \\(dmesg\\), or %s\\. File in /var/tmp/zero",
        limit,
        _i == 1 ? "raise the deadline \\(--deadline, zero_set_deadline\\)"
                : "raise the deadline \\(--deadline, \\.deadline_seconds\\)");
    ck_assert_msg(suite_matches(zero_last_error(z), sentence), "%s", zero_last_error(z));
    zero_destroy(z);
}
END_TEST

struct slow_disk {
    double since; /* 0: it is not slow */
};

/* A page each 4 s of the first 12: longer than the limit, but never still for so long. */
static bool reads_slowly(void *arg, const struct latch_op *op)
{
    const struct slow_disk *disk = arg;
    if (disk->since == 0 || op->kind != LATCH_RING || op->request->write)
        return false;
    int pages = (int)((seconds_now() - disk->since) / 4);
    op->request->completed = pages < 3 ? pages * SPILL_ALIGN : op->request->bytes;
    return pages < 3;
}

START_TEST(a_disk_that_is_slow_is_not_overdue)
{
    struct zero_param p = {.name = "a", .ndim = 1, .shape = {1 << 14}};
    const struct zero_config config = {.size = sizeof(config),
                                       .stage = 3,
                                       .offload = ZERO_NVME,
                                       .deadline_seconds = 1,
                                       .log_level = ZERO_LOG_SILENT};
    struct slow_disk disk = {0};
    struct latch latch = {.withheld = reads_slowly, .arg = &disk};
    struct zero_digest digest;
    struct zero *z;
    ck_assert_int_eq(engine_create(&z, &p, 1, &config, latch_seams(&latch)), ZERO_OK);
    ck_assert_int_eq(zero_wait(z), ZERO_OK);
    disk.since = seconds_now();
    ck_assert_msg(!zero_digest(z, &digest), "%s", zero_last_error(z));
    ck_assert_double_ge(seconds_now() - disk.since, 12);
    zero_destroy(z);
}
END_TEST

/* The step has returned; what fails then is told at the end, whatever a call was refused for. */
struct last_write {
    atomic_bool held, spoilt;
};

static bool holds_writes(void *arg, const struct latch_op *op)
{
    struct last_write *last = arg;
    return op->kind == LATCH_RING && op->request->write && atomic_load(&last->held);
}

static void spoils_writes(void *arg, const struct latch_op *op)
{
    struct last_write *last = arg;
    if (op->kind == LATCH_RING && op->request->write && atomic_load(&last->spoilt))
        error_set(&op->request->error, ZERO_ERR_IO, "Writing failed.");
}

START_TEST(a_last_write_that_fails_is_told)
{
    char logged[SUITE_LOG] = "";
    struct zero_param p = {.name = "a", .ndim = 1, .shape = {1 << 10}};
    const struct zero_config config = {.size = sizeof(config),
                                       .stage = 3,
                                       .offload_optimizer = ZERO_NVME,
                                       .log = suite_log,
                                       .log_arg = logged};
    struct last_write last = {0};
    struct latch latch = {.withheld = holds_writes, .completed = spoils_writes, .arg = &last};
    struct error error = {0};
    struct zero *z;
    ck_assert_int_eq(engine_create(&z, &p, 1, &config, latch_seams(&latch)), ZERO_OK);
    ck_assert_int_eq(zero_set_adam(z, 0, &(struct zero_adam){.lr = .01, .eps = 1e-8}), ZERO_OK);
    ck_assert_int_eq(zero_wait(z), ZERO_OK);
    ck_assert_int_eq(zero_reduce(z, 0), ZERO_OK);
    atomic_store(&last.held, true);
    ck_assert_int_eq(zero_step(z, NULL), ZERO_OK);
    ck_assert_int_eq(zero_release(z, 0), ZERO_ERR_STATE);
    atomic_store(&last.spoilt, true);
    atomic_store(&last.held, false);
    latch_wake(&latch);
    while (!queues_status(z->queues, &error))
        usleep(1000);
    zero_destroy(z);
    ck_assert_msg(suite_matches(logged, "rank 0: zero_destroy: Writing optimizer state, chunk 0"),
                  "%s", logged);
}
END_TEST

/* Two ranks go through their state in parts, and one's disk reads each much later than the other's:
 * all of them together are later than the deadline allows, none is. In a digest, in an update
 * before a digest, in one before values are read of that rank, and at stage 0 in one before the
 * next step, in whose forward ranks need nothing of each other. */
#define PART         2048 /* chunks between two meetings of the ranks */
#define PART_SECONDS 2    /* and an engine that nobody wakes looks once a second */
#define CHUNK        64

struct slow_rank {
    struct slow_disk disk;
    int64_t record; /* bytes */
    int test;
    struct zero_digest digest[2];
};

static bool reads_by_parts(void *arg, const struct latch_op *op)
{
    const struct slow_rank *slow = arg;
    if (slow->disk.since == 0 || op->kind != LATCH_RING || op->request->write)
        return false;
    int64_t part = op->request->offset / slow->record / PART;
    return seconds_now() - slow->disk.since < PART_SECONDS * (double)(part + 1);
}

static struct zero_normal normal = {.seed = 7, .std = 1};
static const struct zero_param much = {.name = "a",
                                       .ndim = 1,
                                       .shape = {2 * (2 * PART + 1) * CHUNK},
                                       .fill = zero_fill_normal,
                                       .fill_arg = &normal};
/* What each rank has all of. */
static const struct zero_param little = {.name = "a",
                                         .ndim = 1,
                                         .shape = {(2 * PART + 1) * CHUNK},
                                         .fill = zero_fill_normal,
                                         .fill_arg = &normal};

static void train(struct zero *z)
{
    ck_assert_msg(!zero_acquire(z, 0), "%s", zero_last_error(z));
    ck_assert_int_eq(zero_release(z, 0), ZERO_OK);
    ck_assert_msg(!zero_reduce(z, 0), "%s", zero_last_error(z));
    ck_assert_msg(!zero_step(z, NULL), "%s", zero_last_error(z));
}

static void finish(struct zero *z, int test, struct zero_digest *digest)
{
    float value[4];
    if (test > 0) {
        ck_assert_int_eq(zero_set_adam(z, 0, &(struct zero_adam){.lr = .01, .eps = 1e-8}), ZERO_OK);
        train(z);
    }
    if (test == 3)
        train(z);
    if (test == 2)
        ck_assert_msg(!zero_read(z, 0, ZERO_MOMENT1, much.shape[0] - 4, 4, value), "%s",
                      zero_last_error(z));
    ck_assert_msg(!zero_digest(z, digest), "%s", zero_last_error(z));
}

static void reads_all(int rank, struct zero_comm *comm, void *arg)
{
    struct slow_rank *slow = arg;
    const struct zero_config config = {.size = sizeof(config),
                                       .stage = slow->test == 3 ? 0 : 3,
                                       .offload_optimizer = ZERO_NVME,
                                       .chunk = CHUNK,
                                       .deadline_seconds = 4,
                                       .comm = comm,
                                       .threads = 1,
                                       .log_level = ZERO_LOG_SILENT};
    struct latch latch = {.withheld = reads_by_parts, .arg = slow};
    struct zero *z;
    ck_assert_int_eq(engine_create(&z, slow->test == 3 ? &little : &much, 1, &config,
                                   rank ? latch_seams(&latch) : NULL),
                     ZERO_OK);
    ck_assert_int_eq(zero_wait(z), ZERO_OK);
    /* At stage 0 one more: tensors are padded to both ranks' shards. */
    ck_assert_int_eq(z->plan.chunks, 2 * PART + 1 + (slow->test == 3));
    ck_assert_int_eq(engine_meeting_after(z, 0), PART);
    if (rank) {
        slow->record = plan_record_offset(&z->plan, 1) - plan_record_offset(&z->plan, 0);
        slow->disk.since = seconds_now();
    }
    finish(z, slow->test, &slow->digest[rank]);
    zero_destroy(z);
}

START_TEST(a_rank_whose_disk_is_slower_is_not_overdue)
{
    struct slow_rank slow = {.test = _i};
    struct zero_digest whole;
    struct zero *z;
    ranks_run(2, reads_all, &slow);
    ck_assert_double_ge(seconds_now() - slow.disk.since, 3 * PART_SECONDS);
    ck_assert_int_eq(zero_init(&z, _i == 3 ? &little : &much, 1, .stage = 3), ZERO_OK);
    finish(z, _i, &whole);
    ck_assert_mem_eq(&slow.digest[0], &whole, sizeof(whole));
    ck_assert_mem_eq(&slow.digest[1], &whole, sizeof(whole));
    zero_destroy(z);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("slow disks");
    TCase *c = tcase_create("for a disk");
    tcase_set_timeout(c, 30);
    tcase_add_loop_test(c, a_disk_that_does_not_answer_is_named, 0, 3);
    tcase_add_test(c, a_disk_that_is_slow_is_not_overdue);
    tcase_add_test(c, a_last_write_that_fails_is_told);
    tcase_add_loop_test(c, a_rank_whose_disk_is_slower_is_not_overdue, 0, 4);
    suite_add_tcase(s, c);
    return suite_run_all(s);
}
