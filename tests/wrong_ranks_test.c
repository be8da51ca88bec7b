// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks that differ, as threads: in the model, the configuration, the calls and
 * their arguments. All of them fail, none hangs, and one at least is told what
 * differs; what does not count may differ. tests/mpi_wrong_test.c is the same
 * over MPI.
 */
#include <stdio.h>
#include <string.h>

#include "src/clock.h"
#include "src/engine.h"
#include "tests/support/differ.h"
#include "tests/support/ranks.h"
#include "tests/support/suite.h"
#include "tests/support/toy.h"

#define RANKS_MAX 4

struct job {
    int ranks, stage, i;
    bool create;
    char text[RANKS_MAX][768];
    bool named[RANKS_MAX];
};

static void body(int rank, struct zero_comm *comm, void *arg)
{
    struct job *j = arg;
    bool odd = rank == j->ranks - 1;
    const char *bad = j->create ? differ_create(comm, j->i, odd, &j->named[rank])
                                : differ_call(comm, j->stage, j->i, odd, &j->named[rank]);
    if (bad)
        snprintf(j->text[rank], sizeof(j->text[rank]), "%s", bad);
}

static void expect_found(struct job j)
{
    bool named = false;
    ranks_run(j.ranks, body, &j);
    for (int r = 0; r < j.ranks; r++) {
        ck_assert_msg(!j.text[r][0], "rank %d of %d: %s", r, j.ranks, j.text[r]);
        named |= j.named[r];
    }
    ck_assert_msg(named, "case %d: no rank was told what differs", j.i);
}

START_TEST(creation_differs)
{
    for (int ranks = 2; ranks <= RANKS_MAX; ranks++)
        expect_found((struct job){.ranks = ranks, .i = _i, .create = true});
}
END_TEST

START_TEST(calls_differ)
{
    for (int ranks = 2; ranks <= RANKS_MAX; ranks += 2)
        for (int stage = 0; stage <= 3; stage++)
            expect_found((struct job){.ranks = ranks, .stage = stage, .i = _i});
}
END_TEST

/* Values that are equal or differ, and nothing behind them but the end, whose span has the step. */
struct last {
    float by; /* from rank to rank */
    enum zero_log_level level;
    char logged[2][SUITE_LOG];
    int64_t step[2];
};

static void last_span(void *arg, const struct zero_span *span)
{
    if (!strcmp(span->name, "exchange"))
        *(int64_t *)arg = span->step;
}

static void write_last(int rank, struct zero_comm *comm, void *arg)
{
    struct last *last = arg;
    const struct zero_adam adam = {.lr = .01, .beta1 = .9, .beta2 = .95, .eps = 1e-8};
    struct zero_param params[TOY_TENSORS];
    struct zero *z;
    toy_describe(params);
    int status =
        zero_init(&z, params, TOY_TENSORS, .comm = comm, .threads = 1, .deadline_seconds = 60,
                  .log_level = last->level, .log = suite_log, .log_arg = last->logged[rank],
                  .trace = last_span, .trace_arg = &last->step[rank]);
    for (int g = 0; !status && g < 2; g++)
        status = zero_set_adam(z, g, &adam);
    for (int u = TOY_UNITS - 1; !status && u >= 0; u--)
        status = zero_reduce(z, u);
    if (!status)
        status = zero_step(z, NULL);
    if (!status)
        status = zero_write(z, 0, ZERO_MOMENT2, 0, 1, &(float){last->by * (float)rank});
    if (status)
        fprintf(stderr, "rank %d: %s\n", rank, zero_last_error(z));
    zero_destroy(z);
}

START_TEST(last_calls_differ)
{
    struct last equal = {0}, differ = {.by = 1}, silent = {.by = 1, .level = ZERO_LOG_SILENT};
    ranks_run(2, write_last, &equal);
    ranks_run(2, write_last, &differ);
    ranks_run(2, write_last, &silent);
    bool named = false;
    for (int r = 0; r < 2; r++) {
        ck_assert_msg(!equal.logged[r][0], "rank %d: %s", r, equal.logged[r]);
        ck_assert_msg(equal.step[r] == 1, "rank %d: step %d", r, (int)equal.step[r]);
        ck_assert_msg(strstr(differ.logged[r], "zero_destroy: "), "rank %d: '%s'", r,
                      differ.logged[r]);
        ck_assert_msg(!silent.logged[r][0], "rank %d: %s", r, silent.logged[r]);
        named |= strstr(differ.logged[r], "with other arguments than this rank") != NULL;
    }
    ck_assert_msg(named, "%s%s", differ.logged[0], differ.logged[1]);
}
END_TEST

static void no_trace(void *arg, const struct zero_span *span)
{
    (void)arg, (void)span;
}

/* What each rank may choose: rings, threads, the deadline, folders, logs, memory, traces; how many
 * values it brings to a mean; which gradients it asks for. */
static void choose(int rank, struct zero_comm *comm, void *arg)
{
    struct zero_digest *digest = (struct zero_digest *)arg + rank;
    const struct zero_adam adam = {.lr = .01, .beta1 = .9, .beta2 = .95, .eps = 1e-8};
    struct zero_param params[TOY_TENSORS];
    struct zero *z;
    double mean;
    toy_describe(params);
    struct zero_config c = {.size = sizeof(c), .stage = 3, .offload = ZERO_NVME, .comm = comm};
    c.ring = rank ? ZERO_RING_POSIX : ZERO_RING_AUTO;
    c.threads = 1 + rank;
    c.deadline_seconds = 60 + rank;
    c.nvme_path = rank ? "/var/tmp" : "/tmp";
    c.log_level = rank ? ZERO_LOG_SILENT : ZERO_LOG_WARNING;
    c.program_bytes = rank << 20;
    c.trace = rank == 1 ? no_trace : NULL;
    int status = zero_create(&z, params, TOY_TENSORS, &c);
    for (int g = 0; !status && g < 2; g++)
        status = zero_set_adam(z, g, &adam);
    if (!status)
        status = zero_mean(z, (const double[]){1, 2, 3}, rank, &mean);
    for (int u = TOY_UNITS - 1; !status && u >= 0; u--) {
        float *g = u == rank ? zero_grad_data(z, u == 0 ? 0 : u == 1 ? 2 : 5) : NULL;
        if (g)
            g[0] = 1;
        status = zero_reduce(z, u);
    }
    if (!status)
        status = zero_step(z, NULL);
    if (!status)
        status = zero_digest(z, digest);
    if (status)
        fprintf(stderr, "rank %d: %s\n", rank, zero_last_error(z));
    zero_destroy(z);
}

START_TEST(choices_are_free)
{
    struct zero_digest digest[3] = {{0}};
    ranks_run(3, choose, digest);
    ck_assert(digest[0].master != 0);
    ck_assert(!memcmp(&digest[0], &digest[1], sizeof(digest[0])));
    ck_assert(!memcmp(&digest[0], &digest[2], sizeof(digest[0])));
}
END_TEST

/* What the last of three ranks, which all have all of the state, changes in its own: 0 to 2 an
 * array; 3 its fill; 4 nothing. */
struct replicas {
    int odd, status[3];
    char text[3][256];
};

static int fill_by_rank(void *rank, int64_t first, int64_t count, float *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = first + i == 600 ? (float)*(int *)rank : 1;
    return 0;
}

static void replica(int rank, struct zero_comm *comm, void *arg)
{
    struct replicas *all = arg;
    int seed = all->odd == 3 ? rank / 2 : 0;
    struct zero_param p = {
        .name = "x", .ndim = 1, .shape = {1000}, .fill = fill_by_rank, .fill_arg = &seed};
    struct zero *z;
    struct zero_digest digest;
    all->status[rank] = zero_init(&z, &p, 1, .offload = ZERO_HOST, .comm = comm);
    if (!all->status[rank] && all->odd < 3 && rank == 2) {
        struct record r = plan_record(&z->plan, 0);
        char *array = update_record(z, 0, -1) + (all->odd == 0 ? 0 : all->odd == 1 ? r.m : r.v);
        ((float *)(void *)array)[500] += 1;
    }
    if (!all->status[rank])
        all->status[rank] = zero_digest(z, &digest);
    snprintf(all->text[rank], sizeof(all->text[rank]), "%s", zero_last_error(z));
    if (all->status[rank]) /* it has failed */
        all->status[rank] = zero_step(z, NULL);
    zero_destroy(z);
}

START_TEST(replicas_differ)
{
    static const char *const names[] = {"masters", "first moments", "second moments", "masters"};
    struct replicas all = {.odd = _i};
    char expected[64];
    ranks_run(3, replica, &all);
    snprintf(expected, sizeof(expected), _i < 4 ? "Ranks differ in their %s, which must be" : "",
             names[_i % 4]);
    for (int r = 0; r < 3; r++)
        ck_assert_msg(all.status[r] == (_i < 4 ? ZERO_ERR_MISMATCH : ZERO_OK) &&
                          strncmp(all.text[r], expected, strlen(expected)) == 0,
                      "rank %d: %d, %s", r, all.status[r], all.text[r]);
}
END_TEST

/* Asked for is that NCCL adds up, and rank 1's communicator takes a GPU's memory (0), or rank 1
 * asks for something else (1). */
struct communicators {
    int odd, status[2];
    char text[2][256];
};

static int any_link(struct device_link *link, struct error *error)
{
    (void)error;
    *link = (struct device_link){.version = 1};
    return ZERO_OK;
}

static void take_memory(int rank, struct zero_comm *comm, void *arg)
{
    struct communicators *all = arg;
    const struct engine_seams seams = {.link = any_link};
    const struct zero_param p = {.name = "x", .ndim = 1, .shape = {1000}};
    const struct zero_config config = {.size = sizeof(config),
                                       .device = ZERO_CUDA,
                                       .reduction = all->odd && rank ? ZERO_REDUCE_ORDERED
                                                                     : ZERO_REDUCE_NCCL,
                                       .deadline_seconds = 20,
                                       .comm = comm};
    struct zero *z;
    comm->device_memory = all->odd == 0 && rank == 1;
    all->status[rank] = engine_create(&z, &p, 1, &config, &seams);
    snprintf(all->text[rank], sizeof(all->text[rank]), "%s", zero_last_error(z));
    zero_destroy(z);
}

START_TEST(communicators_differ)
{
    static const char *const says[] = {"Ranks differ in .comm->device_memory: rank ",
                                       "Ranks differ in .reduction: rank "};
    struct communicators all = {.odd = _i};
    ranks_run(2, take_memory, &all);
    for (int r = 0; r < 2; r++)
        ck_assert_msg(all.status[r] == ZERO_ERR_MISMATCH && strstr(all.text[r], says[_i]),
                      "rank %d: %d, %s", r, all.status[r], all.text[r]);
}
END_TEST

/* One that another rank does not hear of is told when the deadline that came with it is over. */
static void come_alone(int rank, struct zero_comm *comm, void *arg)
{
    const struct zero_param p = {.name = "x", .ndim = 1, .shape = {1000}};
    double *seconds = arg, begun = seconds_now();
    struct zero *z;
    if (rank != 0)
        return;
    ck_assert_int_ne(zero_init(&z, &p, 1, .comm = comm, .stage = 7, .deadline_seconds = 1),
                     ZERO_OK);
    zero_destroy(z);
    *seconds = seconds_now() - begun;
}

START_TEST(refused_with_its_deadline)
{
    double seconds = 0;
    ranks_run(2, come_alone, &seconds);
    ck_assert_msg(seconds >= 1 && seconds < 30, "%.1f s", seconds);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wrong ranks");
    TCase *tests = tcase_create("ranks");
    tcase_add_loop_test(tests, creation_differs, 0, differ_creations);
    tcase_add_loop_test(tests, calls_differ, 0, differ_calls);
    tcase_add_test(tests, last_calls_differ);
    tcase_add_test(tests, choices_are_free);
    tcase_add_loop_test(tests, replicas_differ, 0, 5);
    tcase_add_loop_test(tests, communicators_differ, 0, 2);
    tcase_add_test(tests, refused_with_its_deadline);
    suite_add_tcase(suite, tests);
    return suite_run_all(suite);
}
