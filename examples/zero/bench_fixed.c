// SPDX-License-Identifier: Apache-2.0
/*
 * What a step costs beside arithmetic and bytes: a model of tiny tensors in
 * memory, used as a program uses it, computes nothing. Two numbers of units give
 * the cost of a step and of a unit. The limits are what we ask of it: on one rank
 * 200 us and 20 us a unit; on several, per unit, six times what it takes to wake
 * another thread and be woken by it, measured in the same rounds.
 */
#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "examples/zero/bench.h"
#include "examples/zero/bench_model.h"
#include "examples/zero/tool.h"
#include "include/zero.h"

enum { FEW = 4, MANY = 32, ELEMENTS = 256, STEPS = 50, TRIPS = 500, TRIPS_PER_UNIT = 6 };
enum { MODELS = 4 }; /* two stages, each with few units and with many */
static_assert((int)MANY <= (int)MODEL_UNITS_MAX, "a model has room for that many units");

#define STEP_SECONDS 200e-6
#define UNIT_SECONDS 20e-6

/* ------------------------------------------------------------- round trips */

/* As the engine is woken, and as it wakes. */
struct partner {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    int event, asked, answers;
};

static void *answer(void *arg)
{
    struct partner *p = arg;
    for (int i = 0; i < p->asked; i++) {
        struct pollfd fd = {.fd = p->event, .events = POLLIN};
        uint64_t count;
        ssize_t n = poll(&fd, 1, -1) > 0 ? read(p->event, &count, sizeof(count)) : 0;
        (void)n;
        pthread_mutex_lock(&p->lock);
        p->answers++;
        pthread_cond_broadcast(&p->answered);
        pthread_mutex_unlock(&p->lock);
    }
    return NULL;
}

/* Seconds of one round trip; < 0: there was no thread for it. */
static double round_trip(void)
{
    struct partner p = {.lock = PTHREAD_MUTEX_INITIALIZER,
                        .answered = PTHREAD_COND_INITIALIZER,
                        .event = eventfd(0, EFD_CLOEXEC),
                        .asked = TRIPS};
    pthread_t thread;
    double start = clock_now();
    if (p.event < 0 || pthread_create(&thread, NULL, answer, &p))
        return -1;
    for (int i = 1; i <= TRIPS; i++) {
        uint64_t one = 1;
        ssize_t n = write(p.event, &one, sizeof(one));
        (void)n;
        pthread_mutex_lock(&p.lock);
        while (p.answers < i)
            pthread_cond_wait(&p.answered, &p.lock);
        pthread_mutex_unlock(&p.lock);
    }
    pthread_join(thread, NULL);
    close(p.event);
    return (clock_now() - start) / TRIPS;
}

/* A model, and what its steps took. */
struct fixed {
    struct model m;
    int stage;
    struct samples seconds, sleeps; /* of a step; sleeps of all threads together */
};

static int fixed_create(struct fixed *f, int stage, int units)
{
    struct zero_config config = {.size = sizeof(config), .stage = stage, .dtype = ZERO_BF16};
    *f = (struct fixed){.stage = stage};
    model_describe(&f->m, units, (int64_t)units * ELEMENTS);
    return model_create(&f->m, &config);
}

static int step(struct model *m, struct zero_step_info *info)
{
    if (model_micro_step(m))
        return 1;
    return zero_step(m->z, info) ? model_fail(m) : 0;
}

/* -------------------------------------------------------------------- check */

/* After the same steps both stages hold the same bits. */
static int check(struct fixed *models)
{
    struct zero_step_info info;
    struct zero_digest digest[MODELS];
    for (int i = 0; i < MODELS; i++) {
        for (int s = 0; s < 3; s++)
            if (step(&models[i].m, &info))
                return 1;
        if (zero_digest(models[i].m.z, &digest[i]))
            return model_fail(&models[i].m);
    }
    if (memcmp(&digest[0], &digest[2], sizeof(*digest)) != 0 ||
        memcmp(&digest[1], &digest[3], sizeof(*digest)) != 0)
        return tool_fail("Three steps at stage 3 give other bits than at stage 0. This is a fault "
                         "of the library or of the machine: do not train with it.");
    return 0;
}

/* ------------------------------------------------------------------ measure */

/* How often threads of this process have gone to sleep. */
static double sleeps(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) ? 0 : (double)usage.ru_nvcsw;
}

/* A vote is of the last step's. */
static int timed_steps(struct fixed *f, bool vote, struct zero_step_info *info)
{
    double start = clock_now(), slept = sleeps();
    for (int s = 0; s < STEPS; s++) {
        if (vote && s == STEPS - 1 && zero_vote(f->m.z, 0))
            return model_fail(&f->m);
        if (step(&f->m, info))
            return 1;
    }
    samples_add(&f->seconds, (clock_now() - start) / STEPS);
    samples_add(&f->sleeps, (sleeps() - slept) / STEPS);
    return 0;
}

/* Ranks decide together when it is over: by a vote in a round's last step. */
static int rounds_run(const struct bench *b, struct fixed *models, struct samples *trips)
{
    int rounds = b->quick ? 2 : b->full ? 31 : 11;
    struct zero_step_info info = {0};
    for (int r = 0; r < rounds && !info.votes; r++) {
        double trip = round_trip();
        if (trip < 0)
            return tool_fail("A thread or an eventfd could not be made. Raise the limits on "
                             "processes and files (ulimit -u, ulimit -n).");
        samples_add(trips, trip);
        for (int i = 0; i < MODELS; i++)
            if (timed_steps(&models[i], i == MODELS - 1 && bench_over(b), &info))
                return 1;
    }
    return 0;
}

/* What is asked of a step of that model, beside each round's trip. */
static struct samples limit_of(const struct fixed *f, int ranks, const struct samples *trips)
{
    struct samples limit = {0};
    for (int i = 0; i < (ranks > 1 ? trips->count : 1); i++)
        samples_add(&limit,
                    STEP_SECONDS +
                        f->m.units * (ranks > 1 ? TRIPS_PER_UNIT * trips->value[i] : UNIT_SECONDS));
    return limit;
}

static void print(const struct fixed *few, const struct fixed *many, int ranks,
                  const struct samples *trips)
{
    double trip = samples_median(trips), unit = ranks > 1 ? TRIPS_PER_UNIT * trip : UNIT_SECONDS;
    double a = samples_median(&few->seconds), b = samples_median(&many->seconds);
    double slope = (b - a) / (MANY - FEW);
    char name[64];
    bench_note("stage %d, %s: %.1f us a step and %.1f us a unit (limit: %.0f and %.1f)", few->stage,
               counted(ranks, "rank").text, 1e6 * (a - FEW * slope), 1e6 * slope,
               1e6 * STEP_SECONDS, 1e6 * unit);
    if (ranks > 1)
        bench_note("a unit takes as long as %.1f of these round trips (limit: %d)", slope / trip,
                   TRIPS_PER_UNIT);
    double few_sleeps = samples_median(&few->sleeps), many_sleeps = samples_median(&many->sleeps);
    bench_note("threads sleep %.1f times a step of %d units, %.1f times one of %d", few_sleeps, FEW,
               many_sleeps, MANY);
    for (const struct fixed *f = few; f; f = f == few ? many : NULL) {
        snprintf(name, sizeof(name), "fixed_stage%d_%du", f->stage, f->m.units);
        struct samples limit = limit_of(f, ranks, trips);
        bench_seconds(name, &limit, &f->seconds, 1);
    }
}

int bench_fixed(const struct bench *b)
{
    static struct fixed models[MODELS];
    struct samples trips = {0};
    int status = 0;
    for (int i = 0; i < MODELS && !status; i++)
        status = fixed_create(&models[i], i < 2 ? 0 : 3, i % 2 ? MANY : FEW);
    if (!status)
        status = check(models);
    if (!status)
        status = rounds_run(b, models, &trips);
    if (!status && zero_rank(models[0].m.z) == 0) {
        int ranks = zero_size(models[0].m.z);
        bench_note("waking a thread and being woken by it: %.1f us", 1e6 * samples_median(&trips));
        for (int i = 0; i < MODELS; i += 2)
            print(&models[i], &models[i + 1], ranks, &trips);
    }
    for (int i = 0; i < MODELS; i++)
        zero_destroy(models[i].m.z);
    return status;
}
