// SPDX-License-Identifier: Apache-2.0
/*
 * The contract suite over ranks that are threads and over the lone rank; the
 * sentences for ranks that differ; what the thread ranks refuse.
 */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/comm/comm.h"
#include "tests/support/comm_suite.h"
#include "tests/support/comm_threads.h"
#include "tests/support/suite.h"

/* ---------------------------------------------------- the suite on threads */

static const int rank_counts[] = {1, 2, 3, 4, 7, 16};
#define RANK_COUNTS ((int)(sizeof(rank_counts) / sizeof(rank_counts[0])))

struct worker {
    pthread_t thread;
    struct comm_world world;
    const struct comm_scenario *scenario;
};

static void barrier(void *arg)
{
    pthread_barrier_wait(arg);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    w->scenario->run(&w->world);
    return NULL;
}

static void run_threads(const struct comm_scenario *scenario, int ranks, uint64_t seed,
                        int operations)
{
    struct comm_threads *t = comm_threads_create(ranks);
    struct worker *workers = calloc((size_t)ranks, sizeof(*workers));
    pthread_barrier_t all;
    ck_assert(t && workers);
    pthread_barrier_init(&all, NULL, (unsigned)ranks);
    for (int r = 0; r < ranks; r++) {
        struct worker *w = &workers[r];
        w->scenario = scenario;
        w->world = (struct comm_world){.comm = comm_threads_rank(t, r),
                                       .barrier = barrier,
                                       .barrier_arg = &all,
                                       .seed = seed,
                                       .operations = operations};
        ck_assert_int_eq(pthread_create(&w->thread, NULL, worker_main, w), 0);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(workers[r].thread, NULL);
    for (int r = 0; r < ranks; r++)
        ck_assert_msg(!workers[r].world.text[0], "%s, rank %d of %d: %s", scenario->name, r, ranks,
                      workers[r].world.text);
    pthread_barrier_destroy(&all);
    comm_threads_destroy(t);
    free(workers);
}

START_TEST(threads_keep_the_contract)
{
    const struct comm_scenario *scenario = &comm_scenarios[_i / RANK_COUNTS];
    int ranks = rank_counts[_i % RANK_COUNTS];
    for (uint64_t seed = 1; seed <= 2; seed++)
        run_threads(scenario, ranks, seed, 60);
}
END_TEST

START_TEST(sixty_four_threads_keep_the_contract)
{
    run_threads(&comm_scenarios[1], 64, 5, 20);
}
END_TEST

/* ------------------------------------------------- the suite on a lone rank */

static void no_barrier(void *arg)
{
    (void)arg;
}

START_TEST(self_keeps_the_contract)
{
    struct comm_world w = {.barrier = no_barrier, .seed = 3, .operations = 60};
    struct error error = {0};
    ck_assert_int_eq(comm_self_create(&w.comm, &error), ZERO_OK);
    comm_scenarios[_i].run(&w);
    ck_assert_msg(!w.text[0], "%s: %s", comm_scenarios[_i].name, w.text);
    if (w.comm)
        w.comm->ops->destroy(w.comm);
}
END_TEST

static void forget_launchers(void)
{
    static const char *const marks[] = {
        "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_SIZE", "PMI_RANK", "MV2_COMM_WORLD_SIZE", "RANK",
        "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
        unsetenv(marks[i]);
}

START_TEST(default_is_self_without_a_launcher)
{
    struct zero_comm *comm;
    struct error error = {0};
    forget_launchers();
    ck_assert_int_eq(comm_default_create(ZERO_CPU, 300, &comm, &error), ZERO_OK);
    ck_assert_int_eq(comm->rank, 0);
    ck_assert_int_eq(comm->size, 1);
    ck_assert_int_eq(comm->local_rank, 0);
    ck_assert_int_eq(comm->local_size, 1);
    comm->ops->destroy(comm);
}
END_TEST

#ifndef HAVE_MPI
/* A rank of several is not taken to be alone. */
START_TEST(default_needs_mpi_under_a_launcher)
{
    struct zero_comm *comm;
    struct error error = {0};
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    ck_assert_int_eq(comm_default_create(ZERO_CPU, 300, &comm, &error), ZERO_ERR_UNSUPPORTED);
    ck_assert_msg(strstr(error.text, "This job has 2 ranks"), "%s", error.text);
    unsetenv("OMPI_COMM_WORLD_SIZE");
    setenv("PMIX_RANK", "0", 1);
    unsetenv("SLURM_STEP_NUM_TASKS");
    memset(&error, 0, sizeof(error));
    ck_assert_int_eq(comm_default_create(ZERO_CPU, 300, &comm, &error), ZERO_ERR_UNSUPPORTED);
    ck_assert_msg(strstr(error.text, "This job has several ranks"), "%s", error.text);
    setenv("PMIX_RANK", "2", 1);
    setenv("SLURM_STEP_NUM_TASKS", "1", 1); /* of a shell around the launcher */
    setenv("SLURM_PROCID", "0", 1);
    for (int device = ZERO_CPU; device <= ZERO_CUDA; device++) {
        memset(&error, 0, sizeof(error));
        ck_assert_int_eq(comm_default_create((enum zero_device)device, 300, &comm, &error),
                         ZERO_ERR_UNSUPPORTED);
        ck_assert_msg(strstr(error.text, "This job has several ranks"), "%s", error.text);
    }
}
END_TEST
#endif

/* At exit what the last start had is waited for, or the longest of those that have ended. */
START_TEST(deadlines)
{
    struct zero_comm *comm;
    struct error error = {0};
    forget_launchers();
    for (int seconds = 3600; seconds >= 5; seconds -= 3595) {
        ck_assert_int_eq(comm_default_create(ZERO_CPU, seconds, &comm, &error), ZERO_OK);
        comm->ops->destroy(comm);
        ck_assert_int_eq(comm_exit_seconds(), seconds);
    }
    comm_exit_deadline(40);
    ck_assert_int_eq(comm_exit_seconds(), 40);
    comm_exit_deadline(30);
    ck_assert_int_eq(comm_exit_seconds(), 40);
}
END_TEST

/* --------------------------------------------------------------- sentences */

static const struct zero_collective_header base = {.sequence = 17,
                                                   .kind = ZERO_COLLECTIVE_REDUCE,
                                                   .unit = 2,
                                                   .bytes = 4096,
                                                   .arguments = 9,
                                                   .name = "reduce"};

static void expect_sentence(struct zero_collective_header theirs, int status, const char *sentence)
{
    struct zero_comm comm = {.rank = 0, .size = 2};
    struct zero_collective mine = {.header = base};
    ck_assert_int_eq(comm_header_compare(&comm, &mine, 1, &theirs), status);
    ck_assert_str_eq(comm.error, sentence);
}

START_TEST(equal_headers_match)
{
    expect_sentence(base, ZERO_OK, "");
}
END_TEST

START_TEST(differing_headers_name_both_calls)
{
    struct zero_collective_header h = base;
    h.kind = ZERO_COLLECTIVE_GATHER;
    h.unit = 3;
    strcpy(h.name, "gather");
    expect_sentence(h, ZERO_ERR_MISMATCH,
                    "Rank 1 called gather of unit 3 where this rank (0) called reduce of unit 2 "
                    "(message 17). Make the same calls in the same order on all ranks.");
    h = base;
    h.kind = ZERO_COLLECTIVE_SUM;
    h.unit = -1;
    strcpy(h.name, "zero_mean");
    expect_sentence(h, ZERO_ERR_MISMATCH,
                    "Rank 1 called zero_mean where this rank (0) called reduce of unit 2 "
                    "(message 17). Make the same calls in the same order on all ranks.");
    strcpy(h.name, "zero_destroy");
    expect_sentence(h, ZERO_ERR_MISMATCH,
                    "Rank 1 called zero_destroy where this rank (0) called reduce of unit 2 "
                    "(message 17). Look for that rank's own error, or destroy engines after the "
                    "same calls on all ranks.");
    h.name[0] = 0;
    expect_sentence(h, ZERO_ERR_MISMATCH,
                    "Rank 1 called sum where this rank (0) called reduce of unit 2 "
                    "(message 17). Make the same calls in the same order on all ranks.");
    h = base;
    h.bytes = 2048;
    expect_sentence(h, ZERO_ERR_MISMATCH,
                    "Rank 1 called reduce of unit 2 with 2048 bytes where this rank (0) called it "
                    "with 4096 (message 17). Make the same calls in the same order on all "
                    "ranks.");
    h = base;
    h.arguments++;
    expect_sentence(h, ZERO_ERR_MISMATCH,
                    "Rank 1 called reduce of unit 2 with other arguments than this rank (0), or "
                    "made other calls before it (message 17). Make the same calls with equal "
                    "arguments on all ranks: look at zero_acquire, zero_release, zero_set_*, "
                    "zero_read, zero_write, zero_phase and zero_discard.");
    h = base;
    h.sequence++;
    expect_sentence(h, ZERO_ERR_MISMATCH,
                    "Rank 1 called reduce of unit 2 as message 18 where this rank (0) called "
                    "reduce of unit 2 as message 17. Make the same calls in the same order on "
                    "all ranks.");
}
END_TEST

START_TEST(failed_header_is_a_peers_failure)
{
    struct zero_collective_header h = {.kind = ZERO_COLLECTIVE_FAILED, .sequence = 17};
    expect_sentence(h, ZERO_ERR_COMM,
                    "Rank 1 gave up before message 17. Look for its own error, or for what ended "
                    "it.");
}
END_TEST

/* ------------------------------------------------- what thread ranks refuse */

static void expect_refused(struct zero_comm *comm, struct zero_collective *c, const char *part)
{
    ck_assert_int_eq(comm->ops->start(comm, c), ZERO_ERR_STATE);
    ck_assert_msg(strstr(comm->error, part), "%s", comm->error);
}

START_TEST(threads_refuse_a_broken_contract)
{
    struct comm_threads *t = comm_threads_create(5);
    struct zero_collective c[6];
    uint64_t word = 0;
    for (int i = 0; i < 6; i++)
        c[i] = (struct zero_collective){
            .header = {.sequence = (uint64_t)i + 1, .kind = ZERO_COLLECTIVE_SUM, .bytes = 8},
            .data = &word};

    struct zero_comm *comm = comm_threads_rank(t, 0);
    ck_assert_int_eq(comm->ops->start(comm, &c[1]), ZERO_OK);
    expect_refused(comm, &c[0], "started after 2");

    comm = comm_threads_rank(t, 1);
    ck_assert_int_eq(comm->ops->start(comm, &c[1]), ZERO_OK);
    c[1].header.sequence = 9;
    expect_refused(comm, &c[1], "while it is under way");

    comm = comm_threads_rank(t, 2);
    for (int i = 2; i < 6; i++)
        ck_assert_int_eq(comm->ops->start(comm, &c[i]), ZERO_OK);
    c[0].header.sequence = 10;
    expect_refused(comm, &c[0], "one too many");

    c[0].header.bytes = ZERO_SUM_BYTES_MAX + 8;
    expect_refused(comm_threads_rank(t, 3), &c[0], "is a sum of");
    c[0].header.kind = ZERO_COLLECTIVE_REDUCE;
    c[0].piece_bytes = 100;
    expect_refused(comm_threads_rank(t, 4), &c[0], "pieces of 100");
    comm_threads_destroy(t);
}
END_TEST

struct reader {
    pthread_barrier_t reading;
    struct zero_comm *comm;
    bool changed;
};

static void slow_sum(void *arg, int64_t offset, int64_t bytes, const void *const *parts)
{
    struct reader *r = arg;
    (void)offset;
    pthread_barrier_wait(&r->reading);
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    for (int64_t i = 0; i < bytes; i++)
        r->changed |= ((const unsigned char *)parts[1])[i] != 7;
}

static void *reader_main(void *arg)
{
    struct reader *r = arg;
    static unsigned char data[512];
    struct zero_collective c = {
        .header = {.sequence = 1, .kind = ZERO_COLLECTIVE_REDUCE, .bytes = 256},
        .data = data,
        .sum = slow_sum,
        .sum_arg = r,
        .piece_bytes = 256};
    bool done = false;
    r->comm->ops->start(r->comm, &c);
    while (!done && r->comm->ops->test(r->comm, &c, &done) == ZERO_OK)
        nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    return NULL;
}

/* Who gives up has its memory back only when no peer reads it any more. */
START_TEST(threads_abort_waits_for_readers)
{
    struct comm_threads *t = comm_threads_create(2);
    struct reader r = {.comm = comm_threads_rank(t, 0)};
    struct zero_comm *comm = comm_threads_rank(t, 1);
    unsigned char data[512];
    pthread_t thread;
    pthread_barrier_init(&r.reading, NULL, 2);
    memset(data, 7, sizeof(data));
    struct zero_collective c = {
        .header = {.sequence = 1, .kind = ZERO_COLLECTIVE_REDUCE, .bytes = 256},
        .data = data,
        .piece_bytes = 256};
    ck_assert_int_eq(comm->ops->start(comm, &c), ZERO_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, reader_main, &r), 0);
    pthread_barrier_wait(&r.reading);
    comm->ops->abort(comm, 2);
    memset(data, 0, sizeof(data));
    pthread_join(thread, NULL);
    ck_assert(!r.changed);
    pthread_barrier_destroy(&r.reading);
    comm_threads_destroy(t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("comm");
    TCase *contract = tcase_create("contract");
    tcase_set_timeout(contract, 120);
    for (int i = 0; i < comm_scenario_count; i++) {
        for (int n = 0; n < RANK_COUNTS; n++)
            if (rank_counts[n] >= comm_scenarios[i].ranks_min)
                tcase_add_loop_test(contract, threads_keep_the_contract, i * RANK_COUNTS + n,
                                    i * RANK_COUNTS + n + 1);
        if (comm_scenarios[i].ranks_min == 1)
            tcase_add_loop_test(contract, self_keeps_the_contract, i, i + 1);
    }
    tcase_add_test(contract, sixty_four_threads_keep_the_contract);
    tcase_add_test(contract, default_is_self_without_a_launcher);
    tcase_add_test(contract, deadlines);
#ifndef HAVE_MPI
    tcase_add_test(contract, default_needs_mpi_under_a_launcher);
#endif
    suite_add_tcase(suite, contract);
    TCase *details = tcase_create("details");
    tcase_add_test(details, equal_headers_match);
    tcase_add_test(details, differing_headers_name_both_calls);
    tcase_add_test(details, failed_header_is_a_peers_failure);
    tcase_add_test(details, threads_refuse_a_broken_contract);
    tcase_add_test(details, threads_abort_waits_for_readers);
    suite_add_tcase(suite, details);
    return suite_run_all(suite);
}
