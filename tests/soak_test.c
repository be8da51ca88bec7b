// SPDX-License-Identifier: Apache-2.0
/*
 * A long life: ten thousand steps with state and parameters in files and evaluations between
 * them, and a hundred engines one after the other, of which some are refused. What the process
 * holds is the same all along, and in the end the state is that of the same steps without files.
 * Ranks are threads. ZERO_TEST_SHORT: a small part of it.
 */
#include "tests/support/allocations.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/engine.h"
#include "tests/support/ranks.h"
#include "tests/support/suite.h"
#include "tests/support/toy.h"

/* The engine's tables are rings, and touched all round by then. */
enum { RANKS = 2, LOOKS = 10, SETTLED = 100 };

/* Bytes of memory that may be touched later on: less than 16 for each of ten thousand steps. */
#define TOUCHED ((int64_t)64 << 10)

static int steps_of(void)
{
    return suite_short() ? 300 : 10000;
}

/* ----------------------------------------------------------------- the run */

struct job {
    struct zero_config config;
    int steps, evaluate_every; /* 0: never */
    bool watched;
    pthread_barrier_t barrier;
    struct held settled;
    int64_t resident; /* bytes, then */
    struct zero_digest digest;
    double seen; /* in evaluations */
    const char *wrong[RANKS];
    char text[200]; /* for wrong[0] */
};

/* Bytes of memory in use but for the program's own pages: VmRSS is only so exact. */
static int64_t resident(void)
{
    char line[128];
    long kib = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    while (file && kib < 0 && fgets(line, sizeof(line), file))
        sscanf(line, "Anonymous: %ld kB", &kib);
    if (file)
        fclose(file);
    ck_assert_msg(kib >= 0, "no /proc/self/smaps_rollup says how much memory is in use");
    return (int64_t)kib * 1024;
}

static void compare(struct job *j, int step, const struct held *now)
{
    const struct held *then = &j->settled;
    int64_t grown = resident() - j->resident;
    if (now->blocks == then->blocks && now->mappings == then->mappings &&
        now->descriptors == then->descriptors && now->threads == then->threads &&
        (SANITIZED || grown <= TOUCHED))
        return;
    snprintf(j->text, sizeof(j->text),
             "%d steps: %lld blocks, %lld bytes mapped, %lld descriptors, %lld threads, %lld bytes "
             "of memory more",
             step, (long long)(now->blocks - then->blocks),
             (long long)(now->mappings - then->mappings),
             (long long)(now->descriptors - then->descriptors),
             (long long)(now->threads - then->threads), (long long)grown);
    j->wrong[0] = j->text;
}

/* Between barriers, with nothing under way: nobody works for the engine or against it. */
static int watch(struct job *j, struct zero *z, int step)
{
    if (!j->watched || (step != SETTLED && (step < SETTLED || step % (j->steps / LOOKS))))
        return ZERO_OK;
    struct zero_digest digest;
    int status = zero_digest(z, &digest); /* waits for the update */
    pthread_barrier_wait(&j->barrier);
    if (zero_rank(z) == 0) {
        struct held now = held_now();
        if (step > SETTLED) {
            compare(j, step, &now);
        } else {
            j->settled = now;
            j->resident = resident();
        }
    }
    pthread_barrier_wait(&j->barrier);
    return status;
}

/* Looks at every unit, back and forth. */
static int evaluate(struct job *j, struct zero *z)
{
    static const int order[] = {2, 1, 0, 0, 1, 2};
    int status = zero_phase(z, ZERO_EVAL);
    for (int i = 0; !status && i < 6; i++) {
        status = zero_acquire(z, order[i]);
        const float *weights = status ? NULL : zero_param_data(z, 0);
        if (weights && order[i] == 0 && zero_rank(z) == 0)
            j->seen += weights[i];
        if (!status)
            status = zero_release(z, order[i]);
    }
    return status ? status : zero_phase(z, ZERO_TRAIN);
}

static int train_step(struct job *j, struct zero *z, int step)
{
    double loss = 0, mean;
    struct zero_step_info info = {0};
    int status = toy_micro_step(z, (int64_t)step * RANKS + zero_rank(z), false, &loss);
    if (!status)
        status = zero_mean(z, &loss, 1, &mean);
    if (!status)
        status = zero_step(z, &info);
    if (info.skipped)
        j->wrong[zero_rank(z)] = "a step was skipped";
    if (!status && j->evaluate_every && (step + 1) % j->evaluate_every == 0)
        status = evaluate(j, z);
    return status ? status : watch(j, z, step + 1);
}

static int train(struct job *j, struct zero *z)
{
    const struct zero_adam adam = {
        .lr = .01, .beta1 = .9, .beta2 = .95, .eps = 1e-8, .weight_decay = .1};
    int status = ZERO_OK;
    for (int g = 0; !status && g < 2; g++)
        status = zero_set_adam(z, g, &adam);
    if (!status)
        status = zero_set_clip(z, 1);
    for (int s = 0; !status && s < j->steps; s++)
        status = train_step(j, z, s);
    struct zero_digest digest = {0};
    if (!status)
        status = zero_digest(z, &digest);
    if (zero_rank(z) == 0)
        j->digest = digest;
    return status;
}

static void rank_body(int rank, struct zero_comm *comm, void *arg)
{
    struct job *j = arg;
    struct zero_param params[TOY_TENSORS];
    struct zero_config config = j->config;
    struct zero *z;
    toy_describe(params);
    config.size = sizeof(config);
    config.comm = comm;
    config.log_level = ZERO_LOG_SILENT;
    int status = zero_create(&z, params, TOY_TENSORS, &config);
    if (!status)
        status = train(j, z);
    if (status) {
        fprintf(stderr, "rank %d: %s\n", rank, zero_last_error(z));
        j->wrong[rank] = "the run failed";
    }
    zero_destroy(z);
}

static void run(struct job *j)
{
    pthread_barrier_init(&j->barrier, NULL, RANKS);
    ranks_run(RANKS, rank_body, j);
    pthread_barrier_destroy(&j->barrier);
    for (int r = 0; r < RANKS; r++)
        ck_assert_msg(!j->wrong[r], "rank %d: %s", r, j->wrong[r]);
}

static struct zero_config in_files(enum zero_ring ring)
{
    ring = suite_uring() ? ring : ZERO_RING_POSIX;
    return (struct zero_config){
        .stage = 3, .offload = ZERO_NVME, .chunk = 1024, .ring = ring, .threads = 1};
}

START_TEST(steps_leave_no_trace)
{
    struct job files = {.config = in_files(_i ? ZERO_RING_POSIX : ZERO_RING_URING),
                        .steps = steps_of(),
                        .evaluate_every = 7,
                        .watched = true};
    struct job plain = {.config = {.stage = 1, .threads = 1}, .steps = files.steps};
    run(&files);
    run(&plain);
    ck_assert_msg(!memcmp(&files.digest, &plain.digest, sizeof(files.digest)),
                  "%d steps with files come to other bits than without", files.steps);
    ck_assert_msg(files.seen > -1e9 && files.seen < 1e9 && files.seen != 0, "%g", files.seen);
}
END_TEST

/* ------------------------------------------------------------ many engines */

static int refuse_fill(void *arg, int64_t first, int64_t count, float *out)
{
    (void)arg, (void)first;
    memset(out, 0, (size_t)count * sizeof(*out));
    return -1;
}

static const struct {
    struct zero_config config;
    bool fill; /* one that gives up */
    int expected;
} refused[] = {
    {{.stage = 3, .offload = ZERO_NVME, .nvme_path = "/nowhere"}, false, ZERO_ERR_IO},
    {{.stage = 3, .offload = ZERO_NVME, .chunk = 1000}, false, ZERO_ERR_ARGUMENT},
    {{.stage = 3, .offload = ZERO_NVME, .chunk = 1024}, true, ZERO_ERR_ARGUMENT},
    {{.stage = 2, .offload = ZERO_HOST, .chunk = 1 << 30, .chunk_slots = 1},
     false,
     ZERO_ERR_ARGUMENT},
};
enum { REFUSED = sizeof(refused) / sizeof(*refused) };

struct attempt {
    int which, status[RANKS];
};

static void refused_body(int rank, struct zero_comm *comm, void *arg)
{
    struct attempt *a = arg;
    struct zero_param params[TOY_TENSORS];
    struct zero_config config = refused[a->which].config;
    struct zero *z;
    toy_describe(params);
    if (refused[a->which].fill)
        params[2].fill = refuse_fill;
    config.size = sizeof(config);
    config.comm = comm;
    config.log_level = ZERO_LOG_SILENT;
    a->status[rank] = zero_create(&z, params, TOY_TENSORS, &config);
    zero_destroy(z);
}

/* One engine of each kind in turn, then one that is refused. */
static void live(int number)
{
    static const enum zero_place places[] = {ZERO_NVME, ZERO_HOST, ZERO_DEVICE};
    struct job j = {.config = in_files(number % 2 ? ZERO_RING_POSIX : ZERO_RING_URING),
                    .steps = 2,
                    .evaluate_every = 1};
    struct attempt a = {.which = number % REFUSED};
    j.config.offload = places[number / 2 % 3];
    j.config.stage = j.config.offload == ZERO_NVME ? 3 : number / 6 % 4;
    run(&j);
    ranks_run(RANKS, refused_body, &a);
    for (int r = 0; r < RANKS; r++)
        ck_assert_msg(a.status[r] == refused[a.which].expected, "refusal %d, rank %d: %s", a.which,
                      r, zero_status_name(a.status[r]));
}

START_TEST(engines_leave_no_trace)
{
    int lives = suite_short() ? 48 : 124, round = 24; /* of which each has all kinds */
    for (int i = 0; i < round; i++)
        live(i); /* what the C library keeps */
    struct held before = held_now();
    int64_t then = resident();
    for (int i = round; i < lives; i++)
        live(i);
    int64_t grown = resident() - then;
    held_expect(&before, "engines and refusals");
    ck_assert_msg(SANITIZED || grown <= TOUCHED, "%lld bytes of memory more", (long long)grown);
}
END_TEST

int main(void)
{
    mallopt(M_ARENA_MAX, 1); /* which of several threads take is chance, and so what they touch */
    Suite *suite = suite_create("soak");
    TCase *tests = tcase_create("soak");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, steps_leave_no_trace, 0, 2);
    tcase_add_test(tests, engines_leave_no_trace);
    suite_add_tcase(suite, tests);
    return suite_run_all(suite);
}
