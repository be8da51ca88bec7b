// SPDX-License-Identifier: Apache-2.0
/*
 * An engine's life with its n-th call, transfer or collective going wrong, for n = 1,
 * 2, ... until the fault does not strike any more. Each time: a status and a sentence
 * from the call that failed, the same from every call after it; the other ranks hear
 * of it; nobody hangs; nothing is left behind. A fault that can be survived is, in the
 * bits of the life that nothing disturbed.
 *
 * make check takes samples of n; ZERO_TEST_FULL=1 takes them all.
 */
#include "tests/support/allocations.h"

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/engine.h"
#include "src/thread.h"
#include "tests/support/drive.h"
#include "tests/support/held.h"
#include "tests/support/life.h"
#include "tests/support/suite.h"

#define SAMPLES       4 /* of n, where not all are taken */
#define WATCH_SECONDS 240

extern int mallopt(int parameter, int value);
#define ARENA_MAX (-8) /* M_ARENA_MAX */

/* --------------------------------------------------------------- scenarios */

static const struct scenario scenarios[] = {
    {"files-split-uring",
     {.stage = 3, .offload = ZERO_NVME, .dtype = ZERO_BF16, .state = ZERO_STATE_SPLIT},
     2,
     2,
     false},
    {"two-folders-posix",
     {.stage = 3, .offload = ZERO_NVME, .ring = ZERO_RING_POSIX, .nvme_path = "/var/tmp:/tmp"},
     3,
     1,
     false},
    {"partly-in-files",
     {.stage = 2,
      .offload = ZERO_NVME,
      .dtype = ZERO_BF16,
      .grad_dtype = ZERO_BF16,
      .host_bytes = 8000,
      .ring = ZERO_RING_POSIX},
     2,
     1,
     false},
    {"host-local",
     {.stage = 1, .offload = ZERO_HOST, .dtype = ZERO_BF16, .accumulate_in = ZERO_LOCAL},
     3,
     2,
     false},
    {"device-alone", {.stage = 0}, 1, 1, false},
    {"fp16-params-alone",
     {.stage = 3, .dtype = ZERO_FP16, .offload_param = ZERO_NVME, .offload = ZERO_HOST},
     1,
     2,
     false},
};
#define SCENARIOS (int)(sizeof(scenarios) / sizeof(*scenarios))

/* ------------------------------------------------------------- the judgment */

enum expected {
    SURVIVES, /* equal bits, on all ranks */
    FAILS,    /* or comes too late for anybody to notice: then equal bits */
    EITHER,   /* as FAILS, but may never fail */
    LEAVES,   /* the others fail */
};

static const struct torture {
    const char *name;
    enum fault_kind kind;
    bool again;
    enum expected expected;
    unsigned statuses; /* of the rank that it strikes, 1 << status each */
} tortures[] = {
#define MEMORY (1u << ZERO_ERR_MEMORY)
#define IO     (1u << ZERO_ERR_IO)
#define COMM   (1u << ZERO_ERR_COMM)
#define TIME   (1u << ZERO_ERR_DEADLINE)
#define WRONG  (1u << ZERO_ERR_ARGUMENT)
#define UNLIKE (1u << ZERO_ERR_MISMATCH)
    {"no memory once", FAULT_MEMORY, false, FAILS, MEMORY},
    {"no memory any more", FAULT_MEMORY, true, FAILS, MEMORY},
    {"no pages once", FAULT_PAGES, false, EITHER, MEMORY},
    {"no pages any more", FAULT_PAGES, true, FAILS, MEMORY},
    {"no thread once", FAULT_THREAD, false, FAILS, MEMORY},
    {"no thread any more", FAULT_THREAD, true, FAILS, MEMORY},
    {"no descriptor once", FAULT_DESCRIPTOR, false, FAILS, MEMORY | IO},
    {"no descriptors any more", FAULT_DESCRIPTOR, true, FAILS, MEMORY | IO},
    {"no space", FAULT_SPACE, false, FAILS, IO},
    {"no allocation of space", FAULT_NO_SPACE_OP, true, SURVIVES, 0},
    {"a signal in a call", FAULT_SIGNAL, false, SURVIVES, 0},
    {"signals in all calls", FAULT_SIGNAL, true, FAILS, MEMORY | IO},
    {"a question without an answer", FAULT_QUESTION, false, SURVIVES, 0},
    {"questions without an answer", FAULT_QUESTION, true, SURVIVES, 0},
    {"io_uring registers nothing", FAULT_REGISTER, false, SURVIVES, 0},
    {"io_uring is busy", FAULT_SUBMIT_BUSY, false, SURVIVES, 0},
    {"io_uring breaks", FAULT_SUBMIT, false, FAILS, IO},
    {"short operation", FAULT_OP_SHORT, false, SURVIVES, 0},
    {"short operations", FAULT_OP_SHORT, true, SURVIVES, 0},
    {"operation interrupted", FAULT_OP_SIGNAL, false, SURVIVES, 0},
    {"operations interrupted", FAULT_OP_SIGNAL, true, FAILS, IO},
    {"operation to be tried again", FAULT_OP_BUSY, false, SURVIVES, 0},
    {"operations to be tried again", FAULT_OP_BUSY, true, FAILS, IO},
    {"EIO of an operation", FAULT_OP_EIO, false, SURVIVES, IO},
    {"EIO of all operations", FAULT_OP_EIO, true, FAILS, IO},
    {"ENOSPC of an operation", FAULT_OP_ENOSPC, false, SURVIVES, IO},
    {"ENOSPC of all operations", FAULT_OP_ENOSPC, true, FAILS, IO},
    {"EFBIG of all operations", FAULT_OP_EFBIG, true, FAILS, IO},
    {"an end of file", FAULT_OP_END, false, SURVIVES, IO},
    {"a late request", FAULT_REQUEST_LATE, false, SURVIVES, 0},
    {"a request overtaken", FAULT_REQUEST_REORDER, false, SURVIVES, 0},
    {"requests overtaken", FAULT_REQUEST_REORDER, true, SURVIVES, 0},
    {"a failed request", FAULT_REQUEST_EIO, false, SURVIVES, IO},
    {"failed requests", FAULT_REQUEST_EIO, true, FAILS, IO},
    {"a late collective", FAULT_COMM_LATE, false, SURVIVES, 0},
    {"a collective overtaken", FAULT_COMM_REORDER, false, SURVIVES, 0},
    {"collectives overtaken", FAULT_COMM_REORDER, true, SURVIVES, 0},
    {"a collective that cannot be started", FAULT_COMM_START, false, FAILS, COMM},
    {"a collective that breaks", FAULT_COMM_TEST, false, FAILS, COMM},
    {"a collective lost", FAULT_COMM_LOST, false, FAILS, TIME | COMM},
    {"a rank that stops", FAULT_COMM_STOP, false, FAILS, TIME | COMM},
    {"a fill that fails", FAULT_FILL, false, FAILS, WRONG},
    {"a fill that writes NaN", FAULT_NAN, false, FAILS, WRONG},
    {"a rank that leaves", FAULT_LEAVE, false, LEAVES, TIME | COMM | UNLIKE},
};
#define TORTURES (int)(sizeof(tortures) / sizeof(*tortures))

static const char *doing = ""; /* what the watchdog says */

static void play(struct life *run)
{
    suite_watch(doing, WATCH_SECONDS);
    life_run(run);
    alarm(0);
}

static bool same_end(const struct life *a, const struct life *b)
{
    for (int r = 0; r < a->scenario->ranks; r++)
        if (a->rank[r].status || b->rank[r].status || a->rank[r].values != b->rank[r].values ||
            memcmp(&a->rank[r].digest, &b->rank[r].digest, sizeof(a->rank[r].digest)))
            return false;
    return true;
}

static bool struck(const struct life *run, int rank)
{
    return run->rank[rank].fault.struck > 0;
}

static int count_failed(const struct life *run)
{
    int n = 0;
    for (int r = 0; r < run->scenario->ranks; r++)
        n += run->rank[r].status != ZERO_OK;
    return n;
}

/* Whether a rank's life was so far that no other rank depends on the rest of it. */
static bool near_its_end(const struct life_rank *r)
{
    return !r->status || !strncmp(r->call, "zero_digest", 11) || !strncmp(r->call, "zero_st", 7);
}

/* A failed rank's status and sentence: its own, or what it heard of another. */
static void judge_failed(const struct torture *t, const struct life *run, const struct life_rank *r)
{
    bool own = struck(run, r->rank) && t->statuses >> r->status & 1;
    bool heard = run->victim != r->rank && strcasestr(r->text, "rank ") &&
                 ((t->statuses | COMM | TIME) >> r->status & 1);
    size_t length = strlen(r->text);
    ck_assert_msg(own || heard, "%s: rank %d: %s: %s \"%s\"", doing, r->rank, r->call,
                  zero_status_name(r->status), r->text);
    ck_assert_msg(length > 20 && r->text[length - 1] == '.', "%s: rank %d: \"%s\"", doing, r->rank,
                  r->text);
}

static void judge(const struct torture *t, const struct life *run, const struct life *calm)
{
    int ranks = run->scenario->ranks, failed = count_failed(run), left = 0;
    bool over = true;
    for (int r = 0; r < ranks; r++) {
        ck_assert_msg(!run->rank[r].wrong[0], "%s: rank %d: %s", doing, r, run->rank[r].wrong);
        if (run->rank[r].status)
            judge_failed(t, run, &run->rank[r]);
        if (run->rank[r].status || (t->expected == LEAVES && struck(run, r)))
            over = over && near_its_end(&run->rank[r]);
        left += t->expected == LEAVES && struck(run, r);
    }
    ck_assert_msg(failed + left == 0 || failed + left == ranks || over,
                  "%s: %d of %d ranks failed, %d left", doing, failed, ranks, left);
    if (failed + left == 0)
        ck_assert_msg(same_end(run, calm), "%s: other bits", doing);
}

/* ---------------------------------------------------------------- the tests */

static bool applies(const struct scenario *s, enum fault_kind kind)
{
    bool files = s->config.offload == ZERO_NVME || s->config.offload_param == ZERO_NVME;
    bool of_files = kind == FAULT_SPACE || kind == FAULT_NO_SPACE_OP ||
                    (kind >= FAULT_REGISTER && kind <= FAULT_SUBMIT) ||
                    (kind >= FAULT_OP_SHORT && kind <= FAULT_REQUEST_EIO);
    bool of_ranks = kind == FAULT_COMM_REORDER; /* alone it has one collective under way */
    bool of_uring = kind >= FAULT_REGISTER && kind <= FAULT_SUBMIT;
    files = files && (!of_uring || (suite_uring() && s->config.ring != ZERO_RING_POSIX));
    bool of_state = kind == FAULT_OP_SHORT; /* parameters of a chunk are one page */
    return (files || !of_files) && (s->ranks > 1 || !of_ranks) &&
           (s->config.offload == ZERO_NVME || !of_state);
}

/* Of the products a sample: each fault in two scenarios. */
static bool picked(int scenario, int torture)
{
    return suite_full() || scenario == torture % 2 || scenario == 2 + torture % (SCENARIOS - 2);
}

/* A scenario nothing disturbs, often enough that threads and sentences take no more. */
static void calm_down(struct life *run, const struct scenario *s, enum fault_kind kind)
{
    doing = s->name;
    for (int i = 0; i < 2; i++) {
        *run = (struct life){.scenario = s, .fault = {.kind = kind}, .victim = s->ranks - 1};
        play(run);
        for (int r = 0; r < s->ranks; r++)
            ck_assert_msg(!run->rank[r].status && !run->rank[r].wrong[0], "%s: rank %d: %s%s",
                          s->name, r, run->rank[r].text, run->rank[r].wrong);
    }
}

/* What the n of one replay brought. */
struct tally {
    int64_t replays, failed;
};

/* Each rank in turn, then all of them. */
static int victim_of(const struct scenario *s, int64_t turn)
{
    int victim = (int)(turn % (s->ranks + 1));
    return victim < s->ranks ? victim : LIFE_EVERYBODY;
}

static int64_t places(const struct life *calm)
{
    int64_t most = 0;
    for (int r = 0; r < calm->scenario->ranks; r++)
        most = calm->rank[r].fault.seen > most ? calm->rank[r].fault.seen : most;
    return most;
}

static void replay_all(const struct torture *t, const struct life *calm, int64_t step,
                       struct tally *tally)
{
    static struct life run;
    static char name[200];
    const struct scenario *s = calm->scenario;
    struct held before = held_now();
    int64_t turn = t - tortures;
    doing = name;
    for (int64_t n = 1; n <= places(calm) + 1; n += step) {
        const struct fault fault = {.kind = t->kind, .nth = n, .again = t->again};
        run = (struct life){.scenario = s, .fault = fault, .victim = victim_of(s, turn++)};
        snprintf(name, sizeof(name), "%s, %s, place %lld, rank %d", s->name, t->name, (long long)n,
                 run.victim);
        play(&run);
        judge(t, &run, calm);
        held_expect(&before, name);
        bool any = false;
        for (int r = 0; r < s->ranks; r++)
            any |= struck(&run, r);
        tally->replays += any;
        tally->failed += count_failed(&run) > 0;
    }
}

START_TEST(faults_are_told_or_survived)
{
    static struct life calm;
    const struct torture *t = &tortures[_i % TORTURES];
    const struct scenario *s = &scenarios[_i / TORTURES];
    struct tally tally = {0};
    if (!applies(s, t->kind) || !picked(_i / TORTURES, _i % TORTURES))
        return;
    calm_down(&calm, s, t->kind);
    replay_all(t, &calm, suite_full() ? 1 : 1 + places(&calm) / SAMPLES, &tally);
    printf("%s, %s: %lld places, %lld replays, %lld failed\n", s->name, t->name,
           (long long)places(&calm), (long long)tally.replays, (long long)tally.failed);
    ck_assert_msg(tally.replays > 0, "%s, %s: never struck", s->name, t->name);
    ck_assert_msg(t->expected != FAILS || tally.failed > 0, "%s, %s: nobody notices", s->name,
                  t->name);
    ck_assert_msg(t->expected != SURVIVES || !tally.failed, "%s, %s: not survived", s->name,
                  t->name);
}
END_TEST

/* Every stage at every place in every format, as far as creation. */
static bool creation_scenario(int i, struct scenario *s)
{
    static const enum zero_place places_of[] = {ZERO_DEVICE, ZERO_HOST, ZERO_NVME};
    static const struct zero_config formats[] = {
        {.dtype = ZERO_FP32},
        {.dtype = ZERO_BF16},
        {.dtype = ZERO_BF16, .state = ZERO_STATE_SPLIT},
    };
    *s = (struct scenario){.name = "creation",
                           .config = formats[i / 12],
                           .ranks = 1 + i % 2,
                           .accumulate = 1,
                           .creation = true};
    s->config.stage = i % 4;
    s->config.offload = places_of[i / 4 % 3];
    s->config.ring = i % 2 ? ZERO_RING_POSIX : ZERO_RING_AUTO;
    return suite_full() || i % 5 == 0;
}
#define CREATIONS 36

START_TEST(creation_fails_cleanly)
{
    static struct life calm;
    struct scenario s;
    if (!creation_scenario(_i, &s))
        return;
    for (const struct torture *t = tortures; t->kind <= FAULT_SPACE; t++) {
        struct tally tally = {0};
        if (!applies(&s, t->kind))
            continue;
        calm_down(&calm, &s, t->kind);
        replay_all(t, &calm, suite_full() ? 1 : 1 + places(&calm) / SAMPLES, &tally);
        ck_assert_msg(tally.replays > 0 && (t->expected == EITHER || tally.failed > 0),
                      "creation %d, %s: nobody notices", _i, t->name);
    }
}
END_TEST

/* What makes no engine: a plan, and the measurement of a drive. */
static int make_plan(struct error *error)
{
    struct zero_param params[TOY_TENSORS_ALL];
    struct zero_plan plan;
    struct zero_config config = scenarios[0].config;
    toy_describe_all(params);
    config.size = sizeof(config);
    error->status = zero_plan_make(params, TOY_TENSORS_ALL, &config, 2, 2, &plan, error->text,
                                   sizeof(error->text));
    return error->status;
}

static int make_probe(struct error *error)
{
    struct probe probe;
    return probe_run(&probe, "/var/tmp", 0.02, error);
}

static const struct alone {
    const char *name;
    int (*make)(struct error *error);
    enum fault_kind kind;
    unsigned statuses;
} alone[] = {
    {"a plan without memory", make_plan, FAULT_MEMORY, MEMORY},
    {"a probe without memory", make_probe, FAULT_MEMORY, MEMORY},
    {"a probe without descriptors", make_probe, FAULT_DESCRIPTOR, IO},
    {"a probe without space", make_probe, FAULT_SPACE, IO},
    {"a probe of a broken drive", make_probe, FAULT_OP_EIO, IO},
    {"a probe of a full drive", make_probe, FAULT_OP_ENOSPC, IO},
};
#define ALONE (int)(sizeof(alone) / sizeof(*alone))

static int make_with(const struct alone *a, struct fault *fault, struct error *error)
{
    suite_watch(doing, WATCH_SECONDS);
    fault_calls(fault);
    int status = a->make(error);
    fault_calls(NULL); /* Check would meet it */
    alarm(0);
    return status;
}

static void *thread_stay(void *barrier)
{
    pthread_barrier_wait(barrier);
    return NULL;
}

/* The C library keeps stacks of threads that ended: here as many as a ring ever has, which
 * is chosen by what a drive does at the moment. */
static void stacks_fill(void)
{
    pthread_barrier_t all;
    pthread_t thread[RING_DEPTH_MAX];
    pthread_barrier_init(&all, NULL, RING_DEPTH_MAX + 1);
    for (int i = 0; i < RING_DEPTH_MAX; i++)
        ck_assert_int_eq(thread_start(&thread[i], thread_stay, &all), 0);
    pthread_barrier_wait(&all);
    for (int i = 0; i < RING_DEPTH_MAX; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&all);
}

START_TEST(what_makes_no_engine)
{
    stacks_fill();
    static char name[100];
    const struct alone *a = &alone[_i];
    struct fault fault = {.kind = a->kind};
    struct error error = {0};
    if (a->make == make_probe && !drive_under("/var/tmp"))
        return;
    ck_assert_msg(!make_with(a, &fault, &error), "%s: %s", a->name, error.text);
    int64_t seen = fault.seen, failed = 0;
    int64_t step = suite_full() && seen < 100 ? 1 : 1 + seen / SAMPLES;
    struct held before = held_now();
    doing = name;
    for (int64_t n = 1; n <= seen; n += step) {
        snprintf(name, sizeof(name), "%s, place %lld", a->name, (long long)n);
        fault = (struct fault){.kind = a->kind, .nth = n, .again = true};
        error = (struct error){0};
        int status = make_with(a, &fault, &error);
        ck_assert_msg(!status || (a->statuses >> status & 1 && strlen(error.text) > 20),
                      "%s: %s \"%s\"", name, zero_status_name(status), error.text);
        held_expect(&before, name);
        failed += status != ZERO_OK;
    }
    ck_assert_msg(failed > 0, "%s: nobody notices", a->name);
}
END_TEST

int main(void)
{
    mallopt(ARENA_MAX, 1);
    setenv("ZERO_PROBE", "0", 1);
    Suite *suite = suite_create("torture");
    for (int i = 0; i < SCENARIOS; i++) {
        TCase *scenario = tcase_create(scenarios[i].name);
        tcase_set_timeout(scenario, 600);
        tcase_add_loop_test(scenario, faults_are_told_or_survived, i * TORTURES,
                            (i + 1) * TORTURES);
        suite_add_tcase(suite, scenario);
    }
    TCase *creations = tcase_create("creation");
    tcase_set_timeout(creations, 600);
    tcase_add_loop_test(creations, creation_fails_cleanly, 0, CREATIONS);
    suite_add_tcase(suite, creations);
    TCase *others = tcase_create("no-engine");
    tcase_set_timeout(others, 600);
    tcase_add_loop_test(others, what_makes_no_engine, 0, ALONE);
    suite_add_tcase(suite, others);
    return suite_run_all(suite);
}
