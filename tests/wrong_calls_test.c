// SPDX-License-Identifier: Apache-2.0
/*
 * Wrong calls at every point of a step: out of order, twice, with wild arguments,
 * with NULL. Each has its status and a sentence and changes nothing: made by one
 * rank alone between all right calls, the run ends with the digest of the
 * undisturbed one. Then engines that have failed, and several in one process.
 */
#include <fenv.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/comm_threads.h"
#include "tests/support/ranks.h"
#include "tests/support/suite.h"
#include "tests/support/toy.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof(*(array))))

static const struct zero_adam adam = {.lr = 0.05, .beta1 = .9, .beta2 = .95, .eps = 1e-8};
static const struct zero_progress begun = {.loss_scale = 1};

/* What one rank found wrong: the test's thread asserts. */
struct verdict {
    char text[640];
};

static void found(struct verdict *v, int line, const char *what, int status, const char *said)
{
    if (!v->text[0])
        snprintf(v->text, sizeof(v->text), "line %d: %.200s: %s: '%.300s'", line, what,
                 zero_status_name(status), said);
}

/* A call that must return a status, with a sentence that says something. */
#define REFUSED(call, status, says)                                                                \
    do {                                                                                           \
        int got_ = (call);                                                                         \
        if (got_ != (status) || !strstr(zero_last_error(z), says) || !*zero_last_error(z))         \
            found(v, __LINE__, #call, got_, zero_last_error(z));                                   \
    } while (0)
/* The same of a call that returns a pointer. */
#define NULLED(call, says)                                                                         \
    do {                                                                                           \
        if ((call) || !strstr(zero_last_error(z), says))                                           \
            found(v, __LINE__, #call, 0, zero_last_error(z));                                      \
    } while (0)
#define GOOD(call)                                                                                 \
    do {                                                                                           \
        int got_ = (call);                                                                         \
        if (got_)                                                                                  \
            found(v, __LINE__, #call, got_, zero_last_error(z));                                   \
    } while (0)

/* ----------------------------------------------- what is wrong at any time */

static void wild_numbers(struct zero *z, struct verdict *v)
{
    static const int wild[] = {-1, INT_MIN, INT_MAX, 1000};
    for (int i = 0; i < COUNT(wild); i++) {
        int n = wild[i];
        float x;
        REFUSED(zero_acquire(z, n), ZERO_ERR_ARGUMENT, "the model has units 0 to 2");
        REFUSED(zero_release(z, n), ZERO_ERR_ARGUMENT, "the model has units 0 to 2");
        REFUSED(zero_reduce(z, n), ZERO_ERR_ARGUMENT, "the model has units 0 to 2");
        NULLED(zero_param_data(z, n), "the model has tensors 0 to 7");
        NULLED(zero_grad_data(z, n), "the model has tensors 0 to 7");
        REFUSED(zero_read(z, n, ZERO_MASTER, 0, 1, &x), ZERO_ERR_ARGUMENT, "has tensors 0 to 7");
        REFUSED(zero_write(z, n, ZERO_MASTER, 0, 1, &x), ZERO_ERR_ARGUMENT, "has tensors 0 to 7");
        REFUSED(zero_read(z, 0, (enum zero_what)n, 0, 1, &x), ZERO_ERR_ARGUMENT, "no enum");
        REFUSED(zero_write(z, 0, (enum zero_what)n, 0, 1, &x), ZERO_ERR_ARGUMENT, "no enum");
        REFUSED(zero_phase(z, (enum zero_phase)n), ZERO_ERR_ARGUMENT, "zero_phase got ");
        REFUSED(zero_vote(z, n), ZERO_ERR_ARGUMENT, "Use 0 to 31");
        REFUSED(zero_set_adam(z, n, &adam), ZERO_ERR_ARGUMENT, "the model has groups 0 to 1");
    }
    REFUSED(zero_vote(z, 32), ZERO_ERR_ARGUMENT, "bit 32");
    REFUSED(zero_acquire(z, 3), ZERO_ERR_ARGUMENT, "zero_acquire of unit 3");
}

static void wild_ranges(struct zero *z, struct verdict *v)
{
    static const int64_t wild[][2] = {
        {-1, 1},        {0, -1},
        {1480, 1},      {0, 1481},
        {INT64_MAX, 1}, {INT64_MAX, INT64_MAX},
        {1, INT64_MAX}, {INT64_MIN, 1},
        {0, INT64_MIN}, {INT64_MIN, INT64_MIN},
        {1479, 2},
    };
    float x[2] = {0};
    for (int i = 0; i < COUNT(wild); i++) {
        REFUSED(zero_read(z, 0, ZERO_MASTER, wild[i][0], wild[i][1], x), ZERO_ERR_ARGUMENT,
                "but it has 1480");
        REFUSED(zero_write(z, 0, ZERO_MOMENT1, wild[i][0], wild[i][1], x), ZERO_ERR_ARGUMENT,
                "but it has 1480");
    }
    REFUSED(zero_write(z, 0, ZERO_GRAD, 0, 1, x), ZERO_ERR_ARGUMENT, "only read");
}

static void no_pointers(struct zero *z, struct verdict *v)
{
    double mean;
    REFUSED(zero_read(z, 0, ZERO_MASTER, 0, 1, NULL), ZERO_ERR_ARGUMENT, "with NULL");
    REFUSED(zero_write(z, 0, ZERO_MASTER, 0, 1, NULL), ZERO_ERR_ARGUMENT, "with NULL");
    REFUSED(zero_set_adam(z, 0, NULL), ZERO_ERR_ARGUMENT, "with NULL");
    REFUSED(zero_mean(z, NULL, 1, &mean), ZERO_ERR_ARGUMENT, "at NULL");
    REFUSED(zero_mean(z, &mean, 1, NULL), ZERO_ERR_ARGUMENT, "into NULL");
    REFUSED(zero_mean(z, &mean, -1, &mean), ZERO_ERR_ARGUMENT, "of -1 values");
    REFUSED(zero_mean(z, NULL, INT_MIN, NULL), ZERO_ERR_ARGUMENT, "of -2147483648 values");
    REFUSED(zero_stats(z, NULL), ZERO_ERR_ARGUMENT, "zero_stats was given NULL");
    REFUSED(zero_progress(z, NULL), ZERO_ERR_ARGUMENT, "zero_progress was given NULL");
}

static void wild_adam(struct zero *z, struct verdict *v)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY, -1, -DBL_MIN, 1e300};
    for (int i = 0; i < COUNT(bad); i++) {
        struct zero_adam a[5] = {adam, adam, adam, adam, adam};
        a[0].lr = a[1].beta1 = a[2].beta2 = a[3].eps = a[4].weight_decay = bad[i];
        for (int k = 0; k < 5; k++)
            REFUSED(zero_set_adam(z, k % 2, &a[k]), ZERO_ERR_ARGUMENT, "within fp32");
    }
    const struct zero_adam more[] = {
        {.lr = 1, .beta1 = 1, .beta2 = .9, .eps = 1e-8},
        {.lr = 1, .beta1 = .9, .beta2 = 1, .eps = 1e-8},
        {.lr = 1, .beta1 = .9, .beta2 = .9, .eps = 0},
        {.lr = 1, .beta1 = .9, .beta2 = .9, .eps = 1e-60},   /* 0 as fp32 */
        {.lr = 1e38, .beta1 = .9, .beta2 = .9, .eps = 1e-8}, /* over 1 - .9 infinite as fp32 */
        {.lr = 1e30, .beta1 = .9, .beta2 = .9, .eps = 1e-8, .weight_decay = 1e30},
    };
    for (int i = 0; i < COUNT(more); i++)
        REFUSED(zero_set_adam(z, 0, &more[i]), ZERO_ERR_ARGUMENT, "within fp32");
}

/* Those of the calls that hold until set again; which have checks of their own
 * only between steps. */
static void wild_settings(struct zero *z, struct verdict *v)
{
    static const double clips[] = {-1, NAN, INFINITY, -INFINITY, -DBL_MIN};
    static const int micros[] = {0, -1, INT_MIN};
    for (int i = 0; i < COUNT(clips); i++)
        REFUSED(zero_set_clip(z, clips[i]), ZERO_ERR_ARGUMENT, "zero_set_clip to ");
    for (int i = 0; i < COUNT(micros); i++)
        REFUSED(zero_set_accumulate(z, micros[i]), ZERO_ERR_ARGUMENT, "Use 1 or more");
    REFUSED(zero_digest(z, NULL), ZERO_ERR_ARGUMENT, "zero_digest was given NULL");
    REFUSED(zero_set_progress(z, NULL), ZERO_ERR_ARGUMENT, "zero_set_progress to NULL");
    static const struct zero_progress runs[] = {
        {.steps = -1, .loss_scale = 1},
        {.steps = INT64_MAX, .loss_scale = 1},
        {.loss_scale = 0},
        {.loss_scale = 0x1p-65},
        {.loss_scale = 0x1p65},
        {.loss_scale = NAN},
        {.loss_scale = INFINITY},
        {.loss_scale = 1, .since_skip = -1},
        {.loss_scale = 1, .forgiven = -1},
        {.loss_scale = 1, .forgiven = 2},
        {.loss_scale = 1, .since_skip = INT64_MAX},
    };
    for (int i = 0; i < 2; i++)
        REFUSED(zero_set_progress(z, &runs[i]), ZERO_ERR_ARGUMENT, "Use 0 to 2^53");
    for (int i = 2; i < COUNT(runs) && z->scaler.dynamic; i++) /* a fixed scale takes steps alone */
        REFUSED(zero_set_progress(z, &runs[i]), ZERO_ERR_ARGUMENT, "what zero_progress gave");
}

static void wild_values(struct zero *z, struct verdict *v)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < COUNT(bad); i++)
        for (int what = ZERO_MASTER; what <= ZERO_MOMENT2; what++) {
            float x[3] = {1, 2, bad[i]};
            REFUSED(zero_write(z, 0, (enum zero_what)what, 4, 3, x), ZERO_ERR_ARGUMENT,
                    "to element 6 of tensor embed");
        }
    REFUSED(zero_write(z, 0, ZERO_MOMENT2, 4, 2, (const float[]){0, -1e-30f}), ZERO_ERR_ARGUMENT,
            "to element 5 of the second moment of tensor embed");
#ifdef __x86_64__ /* also in a thread that takes denormals for zeros, as -ffast-math has it */
    unsigned before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | 0x8040);
    REFUSED(zero_write(z, 0, ZERO_MOMENT2, 4, 2, (const float[]){-0.0f, -1e-40f}),
            ZERO_ERR_ARGUMENT, "to element 5 of the second moment of tensor embed");
    __builtin_ia32_ldmxcsr(before);
#endif
}

static void wrong_always(struct zero *z, struct verdict *v)
{
    wild_numbers(z, v);
    wild_ranges(z, v);
    no_pointers(z, v);
    wild_adam(z, v);
}

/* ----------------------------------------------- what is wrong at its time */

static void wrong_between_steps(struct zero *z, struct verdict *v, bool first)
{
    float x;
    wrong_always(z, v);
    wild_settings(z, v);
    wild_values(z, v);
    REFUSED(zero_release(z, 0), ZERO_ERR_STATE, "not acquired");
    NULLED(zero_param_data(z, 0), "is not acquired");
    REFUSED(zero_step(z, NULL), ZERO_ERR_STATE, "with 0 of 3 units reduced");
    if (first)
        REFUSED(zero_read(z, 0, ZERO_GRAD, 0, 1, &x), ZERO_ERR_STATE, "no step was made yet");
}

static void wrong_while_acquired(struct zero *z, struct verdict *v)
{
    float x = 1;
    wrong_always(z, v);
    REFUSED(zero_phase(z, ZERO_EVAL), ZERO_ERR_STATE, "while unit 0 is acquired");
    REFUSED(zero_discard(z), ZERO_ERR_STATE, "while unit 0 is acquired");
    REFUSED(zero_write(z, 0, ZERO_MASTER, 0, 1, &x), ZERO_ERR_STATE,
            schedule_step_open(&z->schedule) ? "within a step" : "while its unit 0");
    REFUSED(zero_release(z, 1), ZERO_ERR_STATE, "zero_release of unit 1");
    NULLED(zero_param_data(z, 2), "whose unit 1 is not acquired");
}

static void wrong_within_step(struct zero *z, struct verdict *v)
{
    struct zero_digest digest;
    float x = 1;
    wrong_always(z, v);
    REFUSED(zero_reduce(z, 2), ZERO_ERR_STATE,
            "1 of 3 units are, unit 0 is not. Reduce each unit once.");
    NULLED(zero_grad_data(z, 5), "Ask for gradients before the unit's reduce.");
    REFUSED(zero_step(z, NULL), ZERO_ERR_STATE, "with 1 of 3 units reduced, unit 0 not");
    REFUSED(zero_phase(z, ZERO_EVAL), ZERO_ERR_STATE, "with 1 of 3 units reduced");
    REFUSED(zero_digest(z, &digest), ZERO_ERR_STATE, "zero_digest within a step");
    REFUSED(zero_set_adam(z, 0, &adam), ZERO_ERR_STATE, "zero_set_adam within a step");
    REFUSED(zero_set_clip(z, 1), ZERO_ERR_STATE, "zero_set_clip within a step");
    REFUSED(zero_set_accumulate(z, 1), ZERO_ERR_STATE, "zero_set_accumulate within a step");
    REFUSED(zero_set_progress(z, &begun), ZERO_ERR_STATE, "zero_set_progress within a step");
    REFUSED(zero_read(z, 0, ZERO_MASTER, 0, 1, &x), ZERO_ERR_STATE, "within a step");
    REFUSED(zero_read(z, 0, ZERO_GRAD, 0, 1, &x), ZERO_ERR_STATE, "or after the last zero_reduce");
    REFUSED(zero_write(z, 0, ZERO_MASTER, 0, 1, &x), ZERO_ERR_STATE, "within a step");
}

static void wrong_before_step(struct zero *z, struct verdict *v)
{
    wrong_always(z, v);
    for (int u = 0; u < TOY_UNITS; u++)
        REFUSED(zero_reduce(z, u), ZERO_ERR_STATE, "all 2 micro-steps of this step are reduced");
    NULLED(zero_grad_data(z, 0), "Call zero_step first");
    REFUSED(zero_digest(z, &(struct zero_digest){0}), ZERO_ERR_STATE, "within a step");
}

static void wrong_in_evaluation(struct zero *z, struct verdict *v)
{
    wrong_always(z, v);
    NULLED(zero_grad_data(z, 0), "ZERO_EVAL");
    REFUSED(zero_reduce(z, 0), ZERO_ERR_STATE, "ZERO_EVAL");
    REFUSED(zero_step(z, NULL), ZERO_ERR_STATE, "zero_step in ZERO_EVAL");
}

/* ------------------------------------------------------------------ the run */

struct training {
    struct zero_config config;
    bool disturbed; /* the last rank makes wrong calls */
    struct zero_digest digest[4];
    struct verdict verdict[4];
};

static void micro_step(struct zero *z, struct verdict *v, int64_t batch, bool wrong)
{
    GOOD(zero_acquire(z, 0));
    if (wrong)
        wrong_while_acquired(z, v);
    GOOD(zero_release(z, 0));
    float *g = zero_grad_data(z, 5); /* of the last unit, which is reduced first */
    if (g)
        g[0] += (float)batch;
    else
        found(v, __LINE__, "zero_grad_data", 0, zero_last_error(z));
    if (wrong) {
        REFUSED(zero_phase(z, ZERO_EVAL), ZERO_ERR_STATE, "within a micro-step with 0 of 3 units");
        REFUSED(zero_set_progress(z, &begun), ZERO_ERR_STATE,
                schedule_step_open(&z->schedule) ? "within a step" : "have the old loss scale");
    }
    GOOD(zero_reduce(z, 2));
    if (wrong)
        wrong_within_step(z, v);
    for (int u = 1; u >= 0; u--) {
        g = zero_grad_data(z, u == 1 ? 2 : 0);
        if (g)
            g[3] += 1;
        else
            found(v, __LINE__, "zero_grad_data", 0, zero_last_error(z));
        GOOD(zero_reduce(z, u));
    }
}

static void train(int rank, struct zero_comm *comm, void *arg)
{
    struct training *r = arg;
    struct verdict *v = &r->verdict[rank];
    struct zero_param params[TOY_TENSORS];
    struct zero_config c = r->config;
    struct zero *z;
    bool wrong = r->disturbed && rank == comm->size - 1;
    toy_describe(params);
    c.size = sizeof(c);
    c.comm = comm;
    c.threads = 1;
    c.accumulate = 2;
    c.deadline_seconds = 60;
    GOOD(zero_create(&z, params, TOY_TENSORS, &c));
    if (wrong)
        wrong_always(z, v);
    GOOD(zero_set_adam(z, 1, &adam) || zero_set_adam(z, 0, &adam));
    for (int step = 0; step < 2 && !v->text[0]; step++) {
        if (wrong)
            wrong_between_steps(z, v, step == 0);
        for (int a = 0; a < 2; a++)
            micro_step(z, v, step * 2 + a + rank, wrong);
        if (wrong)
            wrong_before_step(z, v);
        GOOD(zero_acquire(z, 1)); /* a unit that is never released */
        if (wrong)
            REFUSED(zero_step(z, NULL), ZERO_ERR_STATE, "while unit 1 is acquired");
        GOOD(zero_release(z, 1));
        GOOD(zero_step(z, NULL));
        GOOD(zero_phase(z, ZERO_EVAL));
        if (wrong)
            wrong_in_evaluation(z, v);
        GOOD(zero_phase(z, ZERO_TRAIN));
    }
    GOOD(zero_digest(z, &r->digest[rank]));
    if (!v->text[0] && *zero_last_error(z))
        found(v, __LINE__, "no error is left behind", 0, zero_last_error(z));
    zero_destroy(z);
}

START_TEST(wrong_calls_change_nothing)
{
    static const struct zero_config configs[] = {
        {.stage = 0},
        {.stage = 1, .offload = ZERO_HOST},
        {.stage = 2},
        {.stage = 3, .offload = ZERO_NVME, .chunk = 128},
        {.stage = 3, .offload = ZERO_NVME, .dtype = ZERO_BF16, .state = ZERO_STATE_SPLIT},
        {.stage = 1, .offload = ZERO_HOST, .dtype = ZERO_FP16, .accumulate_in = ZERO_LOCAL},
    };
    for (int ranks = 1; ranks <= 3; ranks++) {
        struct training clean = {.config = configs[_i]}, disturbed = clean;
        disturbed.disturbed = true;
        ranks_run(ranks, train, &clean);
        ranks_run(ranks, train, &disturbed);
        for (int i = 0; i < ranks; i++) {
            ck_assert_msg(!clean.verdict[i].text[0], "%s", clean.verdict[i].text);
            ck_assert_msg(!disturbed.verdict[i].text[0], "%s", disturbed.verdict[i].text);
            ck_assert(!memcmp(&clean.digest[i], &clean.digest[0], sizeof(clean.digest[0])));
            ck_assert(!memcmp(&disturbed.digest[i], &clean.digest[0], sizeof(clean.digest[0])));
        }
    }
}
END_TEST

/* The good edges of the hyper-parameters leave finite parameters. */
START_TEST(edges_of_adam_are_finite)
{
    const struct zero_adam edges[] = {
        {.lr = 0, .beta1 = 0, .beta2 = 0, .eps = FLT_MIN},
        {.lr = 1e-300, .beta1 = .9, .beta2 = .95, .eps = 1e-45},
        {.lr = 1, .beta1 = 1 - 0x1p-53, .beta2 = 1 - 0x1p-53, .eps = 1e-8},
        {.lr = .1, .beta1 = .9, .beta2 = .95, .eps = FLT_MAX, .weight_decay = 5},
        {.lr = .1, .beta1 = .9, .beta2 = .95, .eps = FLT_MIN, .weight_decay = 0, .l2 = true},
    };
    struct zero_param params[TOY_TENSORS];
    toy_describe(params);
    for (int i = 0; i < COUNT(edges); i++) {
        struct zero *z;
        float x[1480];
        double loss = 0;
        ck_assert_int_eq(zero_init(&z, params, TOY_TENSORS, .threads = 1), ZERO_OK);
        ck_assert_int_eq(zero_set_adam(z, 0, &edges[i]) || zero_set_adam(z, 1, &edges[i]), 0);
        for (int step = 0; step < 2; step++) {
            ck_assert_int_eq(toy_micro_step(z, step, false, &loss), ZERO_OK);
            ck_assert_msg(!zero_step(z, NULL), "%s", zero_last_error(z));
        }
        for (int t = 0; t < 2; t++) { /* tensor 1 has no gradient: 0 / (0 + eps) */
            int64_t n = t ? 77 : 1480;
            ck_assert_int_eq(zero_read(z, t, ZERO_MASTER, 0, n, x), ZERO_OK);
            for (int64_t k = 0; k < n; k++)
                ck_assert_msg(isfinite(x[k]), "edge %d, tensor %d, element %d", i, t, (int)k);
        }
        zero_destroy(z);
    }
}
END_TEST

/* Whatever is under way, an engine can be destroyed. */
START_TEST(destroyed_at_any_time)
{
    struct zero_param params[TOY_TENSORS];
    toy_describe(params);
    for (int when = 0; when < 6; when++) {
        struct zero *z;
        double loss = 0;
        ck_assert_int_eq(
            zero_init(&z, params, TOY_TENSORS, .threads = 1, .stage = 3, .offload = ZERO_NVME),
            ZERO_OK);
        if (when >= 1)
            ck_assert_int_eq(zero_acquire(z, 0) || zero_acquire(z, 0), 0);
        if (when >= 2)
            ck_assert_ptr_nonnull(zero_grad_data(z, 5));
        if (when >= 3)
            ck_assert_int_eq(zero_reduce(z, 2), 0);
        if (when >= 4)
            ck_assert_int_eq(zero_release(z, 0) || zero_release(z, 0) || zero_discard(z), 0);
        if (when >= 5) {
            ck_assert_int_eq(zero_set_adam(z, 0, &adam) || zero_set_adam(z, 1, &adam), 0);
            ck_assert_int_eq(toy_micro_step(z, 0, false, &loss) || zero_step(z, NULL), 0);
        }
        zero_destroy(z);
    }
    zero_destroy(NULL);
}
END_TEST

/* ------------------------------------------------------ engines that failed */

/* Every call of an engine that is none, was not created, or has failed: the first
 * error, each time. */
static void expect_all(struct zero *z, int status, const char *sentence)
{
    struct zero_digest digest;
    struct zero_stats stats;
    double mean;
    float x = 1;
    struct verdict verdict = {""}, *v = &verdict;
    for (int round = 0; round < 2; round++) {
        REFUSED(zero_phase(z, ZERO_EVAL), status, sentence);
        REFUSED(zero_acquire(z, 0), status, sentence);
        REFUSED(zero_release(z, 0), status, sentence);
        NULLED(zero_param_data(z, 0), sentence);
        NULLED(zero_grad_data(z, 0), sentence);
        REFUSED(zero_reduce(z, 0), status, sentence);
        REFUSED(zero_step(z, NULL), status, sentence);
        REFUSED(zero_discard(z), status, sentence);
        REFUSED(zero_vote(z, 0), status, sentence);
        REFUSED(zero_set_adam(z, 0, &adam), status, sentence);
        REFUSED(zero_set_clip(z, 1), status, sentence);
        REFUSED(zero_set_accumulate(z, 1), status, sentence);
        REFUSED(zero_set_progress(z, &begun), status, sentence);
        REFUSED(zero_mean(z, &mean, 1, &mean), status, sentence);
        REFUSED(zero_read(z, 0, ZERO_MASTER, 0, 1, &x), status, sentence);
        REFUSED(zero_write(z, 0, ZERO_MASTER, 0, 1, &x), status, sentence);
        REFUSED(zero_digest(z, &digest), status, sentence);
        REFUSED(zero_acquire(z, -1), status, sentence); /* wrong calls too */
        REFUSED(zero_mean(z, NULL, -1, NULL), status, sentence);
        REFUSED(zero_stats(z, NULL), status, sentence);
        REFUSED(zero_progress(z, NULL), status, sentence);
        REFUSED(zero_set_progress(z, NULL), status, sentence);
        REFUSED(zero_digest(z, NULL), status, sentence);
        REFUSED(zero_set_adam(z, 0, NULL), status, sentence);
        REFUSED(zero_read(z, 0, ZERO_MASTER, 0, 1, NULL), status, sentence);
        NULLED(zero_grad_data(z, -1), sentence);
    }
    ck_assert_msg(!verdict.text[0], "%s", verdict.text);
    if (!z)
        ck_assert_int_eq(zero_stats(z, &stats), ZERO_ERR_ARGUMENT);
    ck_assert_int_eq(zero_rank(z), 0);
    ck_assert(zero_loss_scale(z) == 1);
}

START_TEST(no_engine)
{
    expect_all(NULL, ZERO_ERR_ARGUMENT, "There is no engine");
    ck_assert_int_eq(zero_size(NULL), 0);
    ck_assert_int_eq(zero_create(NULL, NULL, 0, NULL), ZERO_ERR_ARGUMENT);
    ck_assert_str_eq(zero_status_name(-1), "unknown status");
    ck_assert_str_eq(zero_status_name(INT_MAX), "unknown status");
    ck_assert_str_eq(zero_lane_name(-1), "unknown");
    ck_assert_str_eq(zero_lane_name(ZERO_LANES), "unknown");
}
END_TEST

START_TEST(not_created)
{
    struct zero_param params[TOY_TENSORS];
    struct zero_stats stats;
    struct zero_progress progress;
    struct zero *z;
    toy_describe(params);
    ck_assert_int_eq(zero_init(&z, params, TOY_TENSORS, .stage = 7), ZERO_ERR_ARGUMENT);
    expect_all(z, ZERO_ERR_ARGUMENT, ".stage is 7");
    ck_assert_int_eq(zero_stats(z, &stats), ZERO_ERR_ARGUMENT);
    ck_assert_int_eq(zero_progress(z, &progress), ZERO_ERR_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(zero_last_error(z), ".stage is 7"));
    zero_destroy(z);
}
END_TEST

/* A fill that calls the engine it fills is refused, and the engine is made. */
static struct zero *in_creation;
static int answers[3];

static int fill_calls(void *arg, int64_t first, int64_t count, float *out)
{
    (void)arg;
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)(first + i);
    answers[0] = zero_acquire(in_creation, 0);
    answers[1] = zero_vote(in_creation, 0);
    answers[2] = zero_param_data(in_creation, 0) ? 0 : ZERO_ERR_STATE;
    return 0;
}

START_TEST(called_from_a_fill)
{
    struct zero_param p = {.name = "x", .ndim = 1, .shape = {100}, .fill = fill_calls};
    ck_assert_int_eq(zero_init(&in_creation, &p, 1, .threads = 1), ZERO_OK);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(answers[i], ZERO_ERR_STATE);
    zero_destroy(in_creation);
}
END_TEST

/* A file that someone has cut fails the engine: the place and the cause are named, and
 * all calls say so from then on. */
START_TEST(failed)
{
    struct zero_param params[TOY_TENSORS];
    struct zero_stats stats;
    struct zero *z;
    char first[512];
    toy_describe(params);
    ck_assert_int_eq(zero_init(&z, params, TOY_TENSORS, .threads = 1, .stage = 3,
                               .offload = ZERO_NVME, .ring = _i ? ZERO_RING_POSIX : ZERO_RING_AUTO),
                     ZERO_OK);
    ck_assert_int_eq(ftruncate(z->spill.stripes.fd[0], 0), 0);
    ck_assert_int_eq(zero_digest(z, &(struct zero_digest){0}), ZERO_ERR_IO);
    snprintf(first, sizeof(first), "%s", zero_last_error(z));
    ck_assert_msg(strstr(first, "was truncated while in use") &&
                      strstr(first, z->spill.file[0].path),
                  "%s", first);
    expect_all(z, ZERO_ERR_IO, first);
    ck_assert_int_eq(zero_stats(z, &stats), ZERO_OK);
    zero_destroy(z);
}
END_TEST

/* ---------------------------------------------------------- several engines */

struct both {
    struct comm_threads *second;
    struct zero_digest digest[2][2];
    struct verdict verdict[2];
};

/* Two engines a rank, each with its communicator, in turn. */
static void two_in_turn(int rank, struct zero_comm *comm, void *arg)
{
    struct both *b = arg;
    struct verdict *v = &b->verdict[rank];
    struct zero_param params[TOY_TENSORS];
    struct zero *engines[2], *z = NULL;
    double loss = 0;
    toy_describe(params);
    for (int e = 0; e < 2; e++) {
        struct zero_comm *own = e ? comm_threads_rank(b->second, rank) : comm;
        GOOD(zero_init(&engines[e], params, TOY_TENSORS, .comm = own, .threads = 1, .stage = 3,
                       .offload = e ? ZERO_NVME : ZERO_HOST));
        z = engines[e];
        GOOD(zero_set_adam(z, 0, &adam) || zero_set_adam(z, 1, &adam));
    }
    struct zero *third;
    int status = zero_init(&third, params, TOY_TENSORS, .comm = comm, .threads = 1);
    if (status != ZERO_ERR_STATE || !strstr(zero_last_error(third), "used by another engine"))
        found(v, __LINE__, "a third one", status, zero_last_error(third));
    zero_destroy(third);
    for (int step = 0; step < 3; step++)
        for (int e = 0; e < 2; e++) {
            z = engines[e];
            GOOD(toy_micro_step(z, step * 2 + rank, false, &loss));
            GOOD(zero_step(z, NULL));
        }
    for (int e = 0; e < 2; e++) {
        z = engines[e];
        GOOD(zero_digest(z, &b->digest[rank][e]));
        zero_destroy(z);
    }
    GOOD(zero_init(&z, params, TOY_TENSORS, .comm = comm, .threads = 1)); /* free again */
    zero_destroy(z);
}

START_TEST(two_engines)
{
    struct both b = {.second = comm_threads_create(2)};
    ranks_run(2, two_in_turn, &b);
    for (int r = 0; r < 2; r++) {
        ck_assert_msg(!b.verdict[r].text[0], "%s", b.verdict[r].text);
        ck_assert(!memcmp(&b.digest[r][0], &b.digest[0][0], sizeof(b.digest[0][0])));
        ck_assert(!memcmp(&b.digest[r][1], &b.digest[0][0], sizeof(b.digest[0][0])));
    }
    comm_threads_destroy(b.second);
}
END_TEST

/* ------------------------------------- threads and processes that are not right */

static struct zero *toy_alone(void)
{
    struct zero_param params[TOY_TENSORS];
    struct zero *z;
    toy_describe(params);
    ck_assert_int_eq(zero_init(&z, params, TOY_TENSORS, .threads = 1), ZERO_OK);
    return z;
}

START_TEST(a_thread_rounds_to_nearest)
{
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    struct verdict verdict = {""}, *v = &verdict;
    struct zero *z = toy_alone();
    for (int i = 0; i < COUNT(modes); i++) {
        fesetround(modes[i]);
        REFUSED(zero_acquire(z, 0), ZERO_ERR_STATE, "does not round to nearest");
        REFUSED(zero_step(z, NULL), ZERO_ERR_STATE, "does not round to nearest");
        fesetround(FE_TONEAREST);
        GOOD(zero_acquire(z, 0));
        GOOD(zero_release(z, 0));
    }
#ifdef __x86_64__
    unsigned mode = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(mode | 0x4000); /* up, where fegetround does not look */
    REFUSED(zero_set_adam(z, 0, &adam), ZERO_ERR_STATE, "does not round to nearest");
    __builtin_ia32_ldmxcsr(mode);
#endif
    GOOD(zero_set_adam(z, 0, &adam));
    ck_assert_msg(!verdict.text[0], "%s", verdict.text);
    zero_destroy(z);
}
END_TEST

/* The child is told, and leaves the parent's engine as it is. */
START_TEST(a_fork_has_no_engine)
{
    struct verdict verdict = {""}, *v = &verdict;
    struct zero *z = toy_alone();
    int status;
    pid_t child = fork();
    if (child == 0) {
        alarm(30); /* for a child that hangs */
        REFUSED(zero_acquire(z, 0), ZERO_ERR_STATE, "was forked from the one that made the engine");
        NULLED(zero_param_data(z, 0), "was forked");
        zero_destroy(z);
        _exit(verdict.text[0] != 0);
    }
    ck_assert(child > 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
    GOOD(zero_acquire(z, 0));
    GOOD(zero_release(z, 0));
    ck_assert_msg(!verdict.text[0], "%s", verdict.text);
    zero_destroy(z);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wrong calls");
    TCase *tests = tcase_create("calls");
    tcase_add_loop_test(tests, wrong_calls_change_nothing, 0, 6);
    tcase_add_test(tests, edges_of_adam_are_finite);
    tcase_add_test(tests, destroyed_at_any_time);
    tcase_add_test(tests, no_engine);
    tcase_add_test(tests, not_created);
    tcase_add_test(tests, called_from_a_fill);
    tcase_add_loop_test(tests, failed, 0, 2);
    tcase_add_test(tests, two_engines);
    tcase_add_test(tests, a_thread_rounds_to_nearest);
    tcase_add_test(tests, a_fork_has_no_engine);
    suite_add_tcase(suite, tests);
    return suite_run_all(suite);
}
