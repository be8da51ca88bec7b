// SPDX-License-Identifier: Apache-2.0
/*
 * How waits for another rank end: when it stops arriving, when its engine is
 * destroyed, when the deadline is changed meanwhile; and that nobody is overdue
 * who is only slow, or for whom nobody waited. Every rank's sentence is read.
 */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/clock.h"
#include "src/engine.h"
#include "tests/support/latch.h"
#include "tests/support/ranks.h"
#include "tests/support/suite.h"

#define UNITS    4
#define ELEMENTS 320
#define RANKS    3
#define BAD      1 /* the rank that something happens to, where it is one */

/* Before which call. */
enum moment { CREATE, FORWARD, BACKWARD, STEP, MEAN, DIGEST, MOMENTS };

static const char *const moments[MOMENTS] = {
    [CREATE] = "zero_create", [FORWARD] = "gather of unit 2", [BACKWARD] = "reduce of unit 1",
    [STEP] = "zero_step",     [MEAN] = "zero_mean",           [DIGEST] = "zero_digest",
};

struct trial;

struct rank {
    struct trial *trial;
    int rank;
    pthread_t thread;
    struct zero *z;
    int status;
    char text[sizeof(((struct error *)0)->text)];
};

struct trial {
    struct zero_config config;
    enum moment moment;
    void (*happens[RANKS])(struct rank *r); /* at the moment; NULL: nothing */
    const struct engine_seams *seams;       /* of rank 0 */
    pthread_mutex_t lock;                   /* of what follows */
    pthread_cond_t changed;
    int ended;  /* ranks with a status */
    int called; /* a test's own count */
    struct rank rank[RANKS];
};

/* ------------------------------------------------------------------ training */

static void come_to(struct rank *r, enum moment moment)
{
    if (r->trial->moment == moment && r->trial->happens[r->rank])
        r->trial->happens[r->rank](r);
}

static int forward(struct rank *r)
{
    int status = ZERO_OK;
    for (int u = 0; !status && u < UNITS; u++) {
        if (u == 2)
            come_to(r, FORWARD);
        status = zero_acquire(r->z, u);
        if (!status)
            status = zero_release(r->z, u);
    }
    return status;
}

static int backward(struct rank *r)
{
    int status = ZERO_OK;
    for (int u = UNITS - 1; !status && u >= 0; u--) {
        if (u == 1)
            come_to(r, BACKWARD);
        float *g = zero_grad_data(r->z, u);
        for (int i = 0; g && i < ELEMENTS; i++)
            g[i] = (float)(i + r->rank);
        status = g ? zero_reduce(r->z, u) : r->z->error.status;
    }
    return status;
}

static int train(struct rank *r)
{
    struct zero_digest digest;
    double one = 1, mean;
    int status = zero_set_adam(r->z, 0, &(struct zero_adam){.lr = .01, .eps = 1e-8});
    for (int step = 0; !status && step < 2; step++) {
        status = forward(r);
        if (!status)
            status = backward(r);
        come_to(r, STEP);
        if (!status)
            status = zero_step(r->z, NULL);
    }
    come_to(r, MEAN);
    if (!status)
        status = zero_mean(r->z, &one, 1, &mean);
    come_to(r, DIGEST);
    return status ? status : zero_digest(r->z, &digest);
}

/* ------------------------------------------------------------------ the ranks */

static int create(struct rank *r, struct zero_comm *comm)
{
    static const char *const names[UNITS] = {"a", "b", "c", "d"};
    struct zero_param params[UNITS];
    struct zero_config config = r->trial->config;
    for (int u = 0; u < UNITS; u++)
        params[u] =
            (struct zero_param){.name = names[u], .unit = u, .ndim = 1, .shape = {ELEMENTS}};
    config.size = sizeof(config);
    config.comm = comm;
    config.threads = 1;
    config.log = r->rank == BAD && config.log_arg ? suite_log : NULL;
    config.gather_slots = 1; /* nothing is gathered ahead */
    config.grad_slots = UNITS;
    come_to(r, CREATE);
    return engine_create(&r->z, params, UNITS, &config, r->rank == 0 ? r->trial->seams : NULL);
}

static void end(struct rank *r, int status)
{
    struct trial *t = r->trial;
    r->status = status;
    snprintf(r->text, sizeof(r->text), "%s", zero_last_error(r->z));
    pthread_mutex_lock(&t->lock);
    t->ended++;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

static struct zero *_Atomic signalled;

static void on_signal(int number)
{
    (void)number;
    zero_set_deadline(signalled, 1);
}

static void rank_body(int rank, struct zero_comm *comm, void *arg)
{
    struct trial *t = arg;
    struct rank *r = &t->rank[rank];
    sigset_t none;
    sigemptyset(&none); /* ranks' threads take no signals unless they say so */
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    *r = (struct rank){.trial = t, .rank = rank, .thread = pthread_self()};
    int status = create(r, comm);
    if (!status)
        status = train(r);
    if (r->z)
        end(r, status);
    zero_destroy(r->z);
}

static void run(struct trial *t)
{
    signal(SIGUSR1, on_signal);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    ranks_run(RANKS, rank_body, t);
}

static void wait_for(struct trial *t, const int *counter, int value)
{
    pthread_mutex_lock(&t->lock);
    while (*counter < value)
        pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

static void call(struct trial *t)
{
    pthread_mutex_lock(&t->lock);
    t->called++;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

/* -------------------------------------------------------------- the sentences */

/* Who saw the deadline pass; else r was told of the first to give up. */
static bool overdue(const struct rank *r, const char *within)
{
    char pattern[256];
    snprintf(pattern, sizeof(pattern),
             "^Rank %d did not arrive at the %s %s \\(rank %d waited\\)\\. Look for", BAD,
             moments[r->trial->moment], within, r->rank);
    if (suite_matches(r->text, pattern)) {
        ck_assert_int_eq(r->status, ZERO_ERR_DEADLINE);
        return true;
    }
    ck_assert_msg(
        suite_matches(r->text, "^Rank [0-9] gave up before message [0-9]+\\. Look for its own"),
        "rank %d: %s", r->rank, r->text);
    ck_assert_int_eq(r->status, ZERO_ERR_COMM);
    return false;
}

static void expect_overdue(const struct trial *t, const char *within)
{
    int saw = 0;
    for (int r = 0; r < RANKS; r++)
        saw += r != BAD && overdue(&t->rank[r], within);
    ck_assert_int_ge(saw, 1);
}

/* ------------------------------------------------------- a rank that is gone */

static void hang(struct rank *r)
{
    wait_for(r->trial, &r->trial->ended, RANKS - 1);
}

/* It comes back when the others have given up, and hears of it. */
START_TEST(a_rank_that_hangs_is_named)
{
    struct trial t = {.config = {.stage = 3, .deadline_seconds = 2},
                      .moment = (enum moment)_i,
                      .happens[BAD] = hang};
    run(&t);
    expect_overdue(&t, "within 2 s");
    ck_assert_msg(suite_matches(t.rank[BAD].text, "^Rank [02] gave up before message"),
                  "rank %d: %s", BAD, t.rank[BAD].text);
}
END_TEST

static void hang_for_one(struct rank *r)
{
    wait_for(r->trial, &r->trial->ended, 1);
}

START_TEST(all_ranks_that_hang_are_named)
{
    struct trial t = {.config = {.stage = 3, .deadline_seconds = 1},
                      .moment = FORWARD,
                      .happens = {[1] = hang_for_one, [2] = hang_for_one}};
    run(&t);
    ck_assert_msg(suite_matches(t.rank[0].text,
                                "^Ranks 1 and 2 did not arrive at the gather of unit 2 "
                                "within 1 s \\(rank 0 waited\\)\\. Look for"),
                  "%s", t.rank[0].text);
}
END_TEST

static void destroy(struct rank *r)
{
    end(r, ZERO_OK);
    zero_destroy(r->z);
    r->z = NULL;
    wait_for(r->trial, &r->trial->ended, RANKS);
    pthread_exit(NULL);
}

/* By BAD itself, or by another rank that it has told. */
static void expect_left(const struct rank *r)
{
    char pattern[256];
    snprintf(pattern, sizeof(pattern),
             "^Rank %d called zero_destroy where this rank \\(%d\\) called %s \\(message "
             "[0-9]+\\)\\. Look for that rank's own error|^Rank [0-2] gave up before message",
             BAD, r->rank, moments[r->trial->moment]);
    ck_assert_msg(r->status && suite_matches(r->text, pattern), "rank %d: %s", r->rank, r->text);
}

/* The others are told at once, and so is the rank that leaves. */
START_TEST(an_engine_that_is_destroyed_ends_the_others)
{
    char logged[SUITE_LOG] = "";
    struct trial t = {.config = {.stage = 3, .log_arg = logged},
                      .moment = (enum moment)_i,
                      .happens[BAD] = destroy};
    run(&t);
    for (int r = 0; r < RANKS; r++)
        if (r != BAD)
            expect_left(&t.rank[r]);
    ck_assert_msg(suite_matches(logged, "^rank 1: zero_destroy: Rank [02] (called|gave up)"), "%s",
                  logged);
}
END_TEST

/* Rank 0 waits for a deadline of 100 s and half of what it may wait longer. */
static struct zero *_Atomic waiting;
static atomic_bool waited;

static double clock_of_rank_0(void)
{
    static double now;
    struct zero *z = waiting;
    if (z && z->with_ranks.seconds < 105)
        now += .05;
    else if (z)
        atomic_store(&waited, true);
    return now;
}

static void destroy_when_overdue(struct rank *r)
{
    while (!(waiting = r->trial->rank[0].z) || !atomic_load(&waited))
        usleep(1000);
    destroy(r);
}

/* Rank 1 hangs, and of the two others that it is named by one speaks late. */
START_TEST(a_rank_that_waits_as_well_may_say_so)
{
    const struct engine_seams seams = {.seconds = clock_of_rank_0};
    struct trial t = {.config = {.stage = 3, .deadline_seconds = 100},
                      .moment = BACKWARD,
                      .happens = {[1] = hang, [2] = destroy_when_overdue},
                      .seams = &seams};
    run(&t);
    ck_assert_msg(suite_matches(t.rank[0].text,
                                "^Rank 2 (called zero_destroy where this rank \\(0\\) "
                                "called reduce of unit 1|gave up before message)"),
                  "%s", t.rank[0].text);
}
END_TEST

/* --------------------------------------------------------- zero_set_deadline */

/* The others wait for 300 seconds, when this makes it one. */
static void shorten(struct rank *r)
{
    struct trial *t = r->trial;
    while (!t->rank[0].z || !t->rank[2].z || !queues_waited_for(t->rank[0].z->queues) ||
           !queues_waited_for(t->rank[2].z->queues))
        usleep(1000);
    ck_assert_int_eq(zero_set_deadline(t->rank[0].z, 1), ZERO_OK);
    hang(r);
}

static void shorten_by_signal(struct rank *r)
{
    struct trial *t = r->trial;
    while (!t->rank[0].z || !queues_waited_for(t->rank[0].z->queues))
        usleep(1000);
    signalled = t->rank[0].z;
    pthread_kill(t->rank[0].thread, SIGUSR1);
    hang(r);
}

START_TEST(a_wait_under_way_is_shortened)
{
    struct trial t = {.config = {.stage = 3},
                      .moment = _i < 2 ? FORWARD : STEP,
                      .happens[BAD] = _i % 2 ? shorten_by_signal : shorten};
    run(&t);
    expect_overdue(&t, "within 1 s");
    ck_assert_msg(suite_matches(t.rank[0].text,
                                "or raise the deadline \\(--deadline, zero_set_deadline\\)\\.$"),
                  "%s", t.rank[0].text);
}
END_TEST

START_TEST(a_deadline_is_a_second_or_more)
{
    struct zero_param p = {.name = "a", .ndim = 1, .shape = {64}};
    struct zero *z;
    ck_assert_int_eq(zero_set_deadline(NULL, 5), ZERO_ERR_ARGUMENT);
    ck_assert_int_eq(zero_init(&z, &p, 1, .stage = 0), ZERO_OK);
    ck_assert_int_eq(zero_release(z, 0), ZERO_ERR_STATE);
    char *sentence = strdup(zero_last_error(z));
    ck_assert_int_eq(zero_set_deadline(z, 0), ZERO_ERR_ARGUMENT);
    ck_assert_int_eq(zero_set_deadline(z, -5), ZERO_ERR_ARGUMENT);
    ck_assert_int_eq(zero_set_deadline(z, (1 << 30) + 1), ZERO_ERR_ARGUMENT);
    ck_assert_int_eq(engine_deadline(z), 300);
    ck_assert_int_eq(zero_set_deadline(z, 7), ZERO_OK);
    ck_assert_int_eq(engine_deadline(z), 7);
    ck_assert_str_eq(zero_last_error(z), sentence);
    free(sentence);
    zero_destroy(z);
}
END_TEST

/* -------------------------------------------------------- nobody is overdue */

static void expect_well(const struct trial *t)
{
    for (int r = 0; r < RANKS; r++)
        ck_assert_msg(!t->rank[r].status, "rank %d: %s", r, t->rank[r].text);
}

/* BAD stays away while the others have reduces under way, but are busy with
 * something else: they do not wait. */
static void stay_away(struct rank *r)
{
    wait_for(r->trial, &r->trial->called, RANKS - 1);
}

static int busy_body(struct rank *r)
{
    if (r->rank == BAD) {
        come_to(r, STEP);
    } else {
        sleep(2);
        call(r->trial);
        wait_for(r->trial, &r->trial->called, RANKS); /* until BAD has come, too */
    }
    return ZERO_OK;
}

static void busy_rank(int rank, struct zero_comm *comm, void *arg)
{
    struct trial *t = arg;
    struct rank *r = &t->rank[rank];
    *r = (struct rank){.trial = t, .rank = rank};
    int status = create(r, comm);
    if (!status)
        status = zero_set_adam(r->z, 0, &(struct zero_adam){.lr = .01, .eps = 1e-8});
    if (!status && rank != BAD)
        status = backward(r);
    if (!status)
        status = busy_body(r);
    if (!status && rank == BAD) {
        status = backward(r);
        call(t);
    }
    if (!status)
        status = zero_step(r->z, NULL);
    end(r, status);
    zero_destroy(r->z);
}

START_TEST(who_computes_does_not_wait)
{
    struct trial t = {
        .config = {.stage = 2, .deadline_seconds = 1}, .moment = STEP, .happens[BAD] = stay_away};
    pthread_mutex_init(&t.lock, NULL);
    pthread_cond_init(&t.changed, NULL);
    ranks_run(RANKS, busy_rank, &t);
    expect_well(&t);
}
END_TEST

static void tarry(const struct rank *r)
{
    if (r->rank == BAD)
        sleep(3);
}

/* The others have a reduce under way and wait for a gather behind it. Each comes
 * within the deadline of the one before, both together do not. */
static int reduce_and_gather(struct rank *r)
{
    tarry(r);
    int status = zero_reduce(r->z, UNITS - 1);
    tarry(r);
    if (!status)
        status = zero_acquire(r->z, 0);
    if (!status)
        status = zero_release(r->z, 0);
    for (int u = UNITS - 2; !status && u >= 0; u--)
        status = zero_reduce(r->z, u);
    return status ? status : zero_step(r->z, NULL);
}

static void slow_rank(int rank, struct zero_comm *comm, void *arg)
{
    struct trial *t = arg;
    struct rank *r = &t->rank[rank];
    *r = (struct rank){.trial = t, .rank = rank};
    int status = create(r, comm);
    if (!status)
        status = zero_set_adam(r->z, 0, &(struct zero_adam){.lr = .01, .eps = 1e-8});
    end(r, status ? status : reduce_and_gather(r));
    zero_destroy(r->z);
}

START_TEST(who_comes_slowly_is_not_overdue)
{
    struct trial t = {.config = {.stage = 3, .deadline_seconds = 5}};
    pthread_mutex_init(&t.lock, NULL);
    pthread_cond_init(&t.changed, NULL);
    ranks_run(RANKS, slow_rank, &t);
    expect_well(&t);
}
END_TEST

/* Rank 0's last gather was made ahead: nobody waits for it but zero_destroy, and in vain. */
struct ahead {
    char logged[2][SUITE_LOG];
    double seconds;
};

static void destroys_early(int rank, struct zero_comm *comm, void *arg)
{
    struct ahead *t = arg;
    const struct zero_param params[] = {{.name = "a", .ndim = 1, .shape = {ELEMENTS}},
                                        {.name = "b", .unit = 1, .ndim = 1, .shape = {ELEMENTS}},
                                        {.name = "c", .unit = 2, .ndim = 1, .shape = {ELEMENTS}}};
    struct zero *z;
    ck_assert_int_eq(zero_init(&z, params, 3, .stage = 3, .comm = comm, .threads = 1,
                               .deadline_seconds = 1, .log = suite_log, .log_arg = t->logged[rank]),
                     ZERO_OK);
    ck_assert_int_eq(zero_phase(z, ZERO_EVAL), ZERO_OK);
    for (int u = 0; u < 2 - rank; u++) {
        ck_assert_int_eq(zero_acquire(z, u), ZERO_OK);
        ck_assert_int_eq(zero_release(z, u), ZERO_OK);
    }
    if (rank == 1)
        sleep(4);
    double start = seconds_now();
    zero_destroy(z);
    if (rank == 0)
        t->seconds = seconds_now() - start;
}

START_TEST(zero_destroy_tells_what_it_waited_for)
{
    struct ahead t = {0};
    ranks_run(2, destroys_early, &t);
    ck_assert_msg(suite_matches(t.logged[0],
                                "^rank 0: zero_destroy: Rank 1 did not arrive at the gather "
                                "of unit 2"),
                  "%s", t.logged[0]);
    ck_assert_double_lt(t.seconds, 3);
    ck_assert_msg(suite_matches(t.logged[1],
                                "^rank 1: zero_destroy: Rank 0 (called gather of unit 2|gave up)"),
                  "%s", t.logged[1]);
}
END_TEST

/* ---------------------------------------------------------------- a full queue */

#define MANY_CHUNKS 100000 /* more than a queue holds */

static bool copies_late(void *arg, const struct latch_op *op)
{
    const double *until = arg;
    return op->kind == LATCH_COPY && seconds_now() < *until;
}

START_TEST(a_wait_for_room_in_a_queue_is_a_wait)
{
    struct zero_param p = {.name = "a", .ndim = 1, .shape = {64 * MANY_CHUNKS}};
    const struct zero_config config = {.size = sizeof(config),
                                       .stage = 3,
                                       .offload_optimizer = ZERO_HOST,
                                       .chunk = 64,
                                       .log_level = ZERO_LOG_SILENT};
    double until = 0;
    struct latch latch = {.withheld = copies_late, .arg = &until};
    struct zero_stats before, after;
    struct zero *z;
    ck_assert_int_eq(engine_create(&z, &p, 1, &config, latch_seams(&latch)), ZERO_OK);
    ck_assert_int_eq(zero_set_adam(z, 0, &(struct zero_adam){.lr = .01, .eps = 1e-8}), ZERO_OK);
    ck_assert_int_eq(zero_reduce(z, 0), ZERO_OK);
    ck_assert_int_eq(zero_wait(z), ZERO_OK);
    ck_assert_int_eq(zero_stats(z, &before), ZERO_OK);
    until = seconds_now() + 2;
    ck_assert_int_eq(zero_step(z, NULL), ZERO_OK); /* with its last chunk asked for */
    ck_assert_int_eq(zero_stats(z, &after), ZERO_OK);
    ck_assert_double_ge(seconds_now(), until);
    ck_assert_double_ge(after.wait_seconds - before.wait_seconds, 1);
    zero_destroy(z);
}
END_TEST

/* ------------------------------------------------------------------ zero_wait */

START_TEST(all_bytes_of_a_step_are_counted)
{
    struct zero_param p = {.name = "a", .ndim = 1, .shape = {1 << 20}};
    struct zero_stats stats;
    struct zero *z;
    ck_assert_int_eq(zero_init(&z, &p, 1, .stage = 3, .offload = ZERO_NVME, .chunk = 1 << 14,
                               .log_level = ZERO_LOG_SILENT),
                     ZERO_OK);
    ck_assert_int_eq(zero_set_adam(z, 0, &(struct zero_adam){.lr = .01, .eps = 1e-8}), ZERO_OK);
    for (int step = 0; step < 5; step++) {
        ck_assert_int_eq(zero_reduce(z, 0), ZERO_OK);
        ck_assert_int_eq(zero_step(z, NULL), ZERO_OK);
        ck_assert_int_eq(zero_wait(z), ZERO_OK);
        ck_assert_int_eq(zero_stats(z, &stats), ZERO_OK);
        ck_assert_int_eq(stats.step_io[1].state_written + stats.step_io[1].param_written,
                         stats.plan.written_bytes);
    }
    ck_assert_int_eq(zero_wait(NULL), ZERO_ERR_ARGUMENT);
    zero_destroy(z);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("waits");
    TCase *c = tcase_create("for other ranks");
    tcase_set_timeout(c, 30);
    tcase_add_loop_test(c, a_rank_that_hangs_is_named, 0, MOMENTS);
    tcase_add_test(c, all_ranks_that_hang_are_named);
    tcase_add_loop_test(c, an_engine_that_is_destroyed_ends_the_others, FORWARD, MOMENTS);
    tcase_add_test(c, a_rank_that_waits_as_well_may_say_so);
    tcase_add_loop_test(c, a_wait_under_way_is_shortened, 0, 4);
    tcase_add_test(c, a_deadline_is_a_second_or_more);
    tcase_add_test(c, who_computes_does_not_wait);
    tcase_add_test(c, who_comes_slowly_is_not_overdue);
    tcase_add_test(c, zero_destroy_tells_what_it_waited_for);
    tcase_add_test(c, a_wait_for_room_in_a_queue_is_a_wait);
    tcase_add_test(c, all_bytes_of_a_step_are_counted);
    suite_add_tcase(s, c);
    return suite_run_all(s);
}
