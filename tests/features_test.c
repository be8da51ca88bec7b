// SPDX-License-Identifier: Apache-2.0
/*
 * What the interface offers beside the plain loop, as its user sees it: votes,
 * discarded steps, gradients that some ranks lack, the loss scale's end, and
 * formats, which ranks agree on. The arithmetic is arithmetic_test's, frozen and
 * empty tensors are frozen_test's, what is refused is wrong_fields_test's.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/ranks.h"
#include "tests/support/suite.h"
#include "tests/support/toy.h"

static const int tensor_size[TOY_TENSORS_ALL] = {1480, 77,  1300, 64, 1,    3,
                                                 1000, 130, 279,  0,  1500, 65};

static const struct zero_adam adam = {
    .lr = 0.05, .beta1 = .9, .beta2 = .95, .eps = 1e-8, .weight_decay = .1};

#define EXPECT(condition) TOY_EXPECT(z, condition)

/* What a body runs with. */
struct setting {
    struct zero_config config;
    int ranks;
    int how;                   /* which case */
    struct zero_digest digest; /* rank 0's, at the end */
    double norm;
};

static int create(struct zero **z, struct zero_comm *comm, struct zero_config config)
{
    return toy_create(z, comm, config, true, &adam);
}

static void step(struct zero *z, int batch, struct zero_step_info *info)
{
    double loss = 0;
    for (int a = 0; a < z->schedule.accumulate; a++)
        EXPECT(!toy_micro_step(z, (batch + a) * zero_size(z) + zero_rank(z) + 1, false, &loss));
    EXPECT(!zero_step(z, info));
    EXPECT(!info || !info->skipped);
}

static void run(struct setting s, void (*body)(int rank, struct zero_comm *comm, void *arg),
                struct setting *out)
{
    ranks_run(s.ranks, body, &s);
    if (out)
        *out = s;
}

/* ------------------------------------------------------------------------ votes */

static void votes_body(int rank, struct zero_comm *comm, void *arg)
{
    const struct setting *s = arg;
    struct zero_step_info info;
    struct zero *z;
    const uint32_t all = 1u | 2u | 4u | 1u << 31 | 1u << 17 | 1u << 9;
    EXPECT(!create(&z, comm, s->config));
    EXPECT(!zero_vote(z, rank) && !zero_vote(z, rank) && !zero_vote(z, 17));
    EXPECT(rank != 2 || !zero_vote(z, 31));
    EXPECT(rank == 0 || !zero_vote(z, 9)); /* an even number of ranks */
    EXPECT(zero_vote(z, 32) == ZERO_ERR_ARGUMENT && strstr(zero_last_error(z), "32"));
    EXPECT(zero_vote(z, -1) == ZERO_ERR_ARGUMENT && strstr(zero_last_error(z), "-1"));
    EXPECT(!zero_discard(z)); /* votes are no gradients */
    step(z, 0, &info);
    EXPECT(info.votes == all);
    step(z, 1, &info);
    EXPECT(info.votes == 0);
    EXPECT(rank != 1 || !zero_vote(z, 5)); /* one rank alone, */
    double loss = 0;
    EXPECT(!toy_micro_step(z, 99, rank == 0, &loss) && !zero_step(z, &info));
    EXPECT(info.skipped && info.votes == 1u << 5); /* in a step that is skipped */
    EXPECT(rank != 0 || !zero_vote(z, 0));
    step(z, 2, &info);
    EXPECT(info.votes == 1);
    step(z, 3, &info);
    EXPECT(info.votes == 0);
    zero_destroy(z);
}

START_TEST(votes)
{
    for (int stage = 0; stage <= 3; stage++)
        run((struct setting){.config = {.stage = stage}, .ranks = 3}, votes_body, NULL);
}
END_TEST

/* --------------------------------------------------------------------- progress */

/* A run of six steps, or its second half in another engine. */
struct saved {
    struct zero_config config;
    bool goes_on;
    float values[3][TOY_TENSORS_ALL][1500]; /* by enum zero_what */
    struct zero_progress progress;
    struct zero_digest kept; /* with it */
    struct zero_digest digest;
    double scale;
};

/* One bit of a frozen tensor that was lost shows in the digest. */
static void damage(struct zero *z, struct saved *s)
{
    enum { FROZEN = 8, AT = 100 };
    struct zero_digest digest;
    float *x = &s->values[ZERO_MASTER][FROZEN][AT], other = -*x;
    EXPECT(z->layout.tensors[FROZEN].frozen && *x != 0);
    EXPECT(!zero_write(z, FROZEN, ZERO_MASTER, AT, 1, &other) && !zero_digest(z, &digest));
    EXPECT(digest.master != s->kept.master && digest.moment1 == s->kept.moment1);
    EXPECT(!zero_write(z, FROZEN, ZERO_MASTER, AT, 1, x));
}

static void pass_on(struct zero *z, struct saved *s)
{
    static _Thread_local float own[1500];
    for (int what = ZERO_MASTER; what <= ZERO_MOMENT2; what++)
        for (int t = 0; t < TOY_TENSORS_ALL; t++) {
            float *x = zero_rank(z) && !s->goes_on ? own : s->values[what][t];
            if (what != ZERO_MASTER && z->layout.tensors[t].frozen)
                continue;
            EXPECT(!(s->goes_on ? zero_write(z, t, (enum zero_what)what, 0, tensor_size[t], x)
                                : zero_read(z, t, (enum zero_what)what, 0, tensor_size[t], x)));
        }
    struct zero_digest digest;
    EXPECT(!zero_digest(z, &digest));
    if (s->goes_on) {
        EXPECT(!memcmp(&digest, &s->kept, sizeof(digest)));
        damage(z, s);
        struct zero_progress steps = {.steps = s->progress.steps}; /* a fixed scale needs no more */
        bool alone = !z->scaler.dynamic && s->config.stage == 0;
        EXPECT(!zero_set_progress(z, alone ? &steps : &s->progress));
    } else if (zero_rank(z) == 0) {
        EXPECT(!zero_progress(z, &s->progress));
        s->kept = digest;
    }
}

/* Steps 2 and 3 are skipped: the second in a row halves a dynamic scale. */
static void six_steps(int rank, struct zero_comm *comm, void *arg)
{
    struct saved *s = arg;
    struct zero *z;
    struct zero_step_info info = {0};
    struct zero_digest digest;
    double loss = 0;
    EXPECT(!create(&z, comm, s->config));
    int n = zero_size(z);
    EXPECT(!zero_set_accumulate(z, 2 / n));
    for (int step = s->goes_on ? 3 : 0; step < 6; step++) {
        bool skipped = step == 2 || step == 3;
        if (step == 3)
            pass_on(z, s);
        for (int a = 0; a < 2 / n; a++)
            EXPECT(!toy_micro_step(z, 2 * step + a * n + rank, skipped, &loss));
        EXPECT(!zero_step(z, &info) && info.skipped == skipped);
    }
    EXPECT(info.step == 4 && !zero_digest(z, &digest));
    struct zero_stats stats;
    EXPECT(!zero_stats(z, &stats) && stats.skipped == (s->goes_on ? 1 : 2));
    if (rank == 0)
        s->digest = digest, s->scale = zero_loss_scale(z);
    zero_destroy(z);
}

/* From one engine to another. split: masters of a model in bf16 are. */
static const struct route {
    struct place {
        int ranks, stage;
        enum zero_place offload;
        bool split;
    } from, to;
} routes[] = {
    {{2, 3, ZERO_NVME, false}, {1, 0, ZERO_DEVICE, false}},
    {{1, 0, ZERO_DEVICE, false}, {2, 3, ZERO_NVME, true}},
    {{2, 3, ZERO_NVME, true}, {1, 2, ZERO_HOST, true}},
    {{1, 1, ZERO_HOST, true}, {2, 2, ZERO_DEVICE, false}},
};
enum { ROUTES = sizeof(routes) / sizeof(*routes) };

static void six_steps_at(const struct place *at, struct saved *s)
{
    s->config.stage = at->stage;
    s->config.offload = at->offload;
    s->config.state =
        at->split && s->config.dtype == ZERO_BF16 ? ZERO_STATE_SPLIT : ZERO_STATE_FP32;
    ranks_run(at->ranks, six_steps, s);
}

START_TEST(goes_on_elsewhere)
{
    enum zero_dtype dtype = (enum zero_dtype)(_i / ROUTES);
    const struct route *r = &routes[_i % ROUTES];
    struct saved *s = calloc(1, sizeof(*s));
    ck_assert_ptr_nonnull(s);
    s->config = (struct zero_config){.dtype = dtype, .chunk = 1088, .accumulate = 2};
    six_steps_at(&r->from, s);
    struct zero_digest digest = s->digest;
    double scale = s->scale;
    ck_assert_int_eq(s->progress.steps, 2);
    ck_assert(scale == (dtype == ZERO_FP16 ? 32768 : 1));
    s->goes_on = true;
    s->digest = (struct zero_digest){0};
    six_steps_at(&r->to, s);
    ck_assert(!memcmp(&s->digest, &digest, sizeof(digest)));
    ck_assert(s->scale == scale);
    free(s);
}
END_TEST

/* ---------------------------------------------------------------------- discard */

enum { NOTHING, SOME, HELD, BETWEEN, COMPLETE, HOWS };

/* Large numbers for one tensor, on ranks up to last. */
static void unit_backward(struct zero *z, int unit, int tensor, int last)
{
    EXPECT(!zero_acquire(z, unit));
    void *g = zero_rank(z) <= last ? zero_grad_data(z, tensor) : NULL;
    EXPECT(g || zero_rank(z) > last);
    if (g)
        memset(g, 0x47, 100 * (z->plan.set.dtype == ZERO_FP32 ? 4 : 2));
    EXPECT(!zero_release(z, unit));
}

/* Opens a step as far as how says and drops it. */
static void open_and_discard(struct zero *z, int how)
{
    double loss = 0;
    float x[4];
    for (int a = 0; a < (how == COMPLETE ? 2 : how >= BETWEEN); a++)
        EXPECT(!toy_micro_step(z, 1000 + 7 * a + zero_rank(z), true, &loss));
    if (how == SOME || how == HELD)
        unit_backward(z, 1, 2, 9);
    if (how == SOME)
        EXPECT(!zero_reduce(z, 1));
    if (how == SOME || how == HELD)
        unit_backward(z, 2, 6, 0); /* held on one rank alone */
    EXPECT(!zero_acquire(z, 0));
    EXPECT(zero_discard(z) == ZERO_ERR_STATE && strstr(zero_last_error(z), "unit 0"));
    EXPECT(!zero_release(z, 0) && !zero_discard(z));
    /* The sums of the last step are gone where others took their place. */
    int status = zero_read(z, 2, ZERO_GRAD, 0, 4, x);
    EXPECT(status == (how == NOTHING || how == HELD ? ZERO_OK : ZERO_ERR_STATE));
    EXPECT(!status || strstr(zero_last_error(z), "discard"));
}

static void discard_body(int rank, struct zero_comm *comm, void *arg)
{
    struct setting *s = arg;
    struct zero_step_info info;
    struct zero_digest digest;
    struct zero *z;
    EXPECT(!create(&z, comm, s->config));
    EXPECT(!zero_set_accumulate(z, 2) && !zero_set_clip(z, 0.1));
    for (int n = 0; n < 4; n++) {
        if (n > 0 && s->how < HOWS) /* twice in a row, and in every later step */
            for (int twice = 0; twice < 1 + (n == 2); twice++)
                open_and_discard(z, s->how);
        step(z, 2 * n, &info);
        float x[4];
        EXPECT(!zero_read(z, 2, ZERO_GRAD, 0, 4, x));
    }
    if (s->how < HOWS)
        open_and_discard(z, s->how);
    EXPECT(!zero_set_accumulate(z, 1) && !zero_phase(z, ZERO_EVAL)); /* no step is open */
    EXPECT(!zero_phase(z, ZERO_TRAIN) && !zero_digest(z, &digest));
    if (rank == 0) {
        s->digest = digest;
        s->norm = info.norm;
    }
    zero_destroy(z);
}

START_TEST(discards)
{
    for (int row = 0; row < 4 * 3 * 2; row++) {
        struct setting s = {.ranks = 1 + row % 3, .how = HOWS};
        s.config.stage = row % 4;
        s.config.offload = (enum zero_place)(ZERO_DEVICE + row / 4 % 3);
        s.config.dtype = row / 12 ? ZERO_BF16 : ZERO_FP32;
        s.config.accumulate_in = row % 4 < 2 && row % 5 == 0 ? ZERO_LOCAL : ZERO_SHARD;
        s.config.chunk = 320;
        s.config.grad_slots = 4;
        struct setting expected, got;
        run(s, discard_body, &expected);
        s.how = _i;
        run(s, discard_body, &got);
        ck_assert_msg(!memcmp(&got.digest, &expected.digest, sizeof(got.digest)), "row %d", row);
        ck_assert_double_eq(got.norm, expected.norm);
    }
}
END_TEST

/* -------------------------------------------- gradients that some ranks lack */

/* Whether a rank has a gradient for a tensor in a micro-step: some units on no
 * rank at all, some tensors on one, the rest on two. */
static bool has(int rank, int tensor, int micro)
{
    if (micro == 1 && tensor >= 5) /* unit 2 */
        return false;
    return (tensor + rank + micro) % 3 > 0 && (rank != 1 || tensor != 2);
}

static void put_gradient(struct zero *z, int t, int key, bool zeros)
{
    void *g = zero_grad_data(z, t);
    EXPECT(g);
    for (int i = 0; i < tensor_size[t]; i++) {
        float x = zeros ? 0.0f : (float)((i * 37 + key * 11 + t) % 64 - 32) / 64.0f;
        if (z->plan.set.dtype == ZERO_FP32)
            ((float *)g)[i] += x;
        else
            z->kernels->to_bf16(1, &x, (uint16_t *)g + i);
    }
}

static void partial_body(int rank, struct zero_comm *comm, void *arg)
{
    struct setting *s = arg;
    struct zero_param params[TOY_TENSORS_ALL];
    struct zero_step_info info;
    struct zero_digest digest;
    struct zero *z;
    toy_describe_all(params);
    EXPECT(!create(&z, comm, s->config));
    EXPECT(!zero_set_accumulate(z, 2) && !zero_set_clip(z, 1));
    for (int micro = 0; micro < 6; micro++) {
        for (int u = 3; u >= 0; u--) {
            EXPECT(!zero_acquire(z, u));
            for (int t = 0; t < TOY_TENSORS_ALL; t++)
                if (params[t].unit == u && !(params[t].flags & ZERO_FROZEN) &&
                    (s->how || has(rank, t, micro % 3)))
                    put_gradient(z, t, micro * 3 + rank, !has(rank, t, micro % 3));
            EXPECT(!zero_release(z, u) && !zero_reduce(z, u));
        }
        if (micro % 2)
            EXPECT(!zero_step(z, &info));
    }
    EXPECT(!zero_digest(z, &digest));
    if (rank == 0) {
        s->digest = digest;
        s->norm = info.norm;
    }
    zero_destroy(z);
}

START_TEST(gradients_of_some_ranks)
{
    for (int row = 0; row < 4 * 3 * 2; row++) {
        struct setting s = {.ranks = 3}, zeros;
        s.config.stage = row % 4;
        s.config.offload = (enum zero_place)(ZERO_DEVICE + row / 4 % 3);
        s.config.dtype = row / 12 ? ZERO_BF16 : ZERO_FP32;
        s.config.accumulate_in = row % 4 < 2 && row % 3 == 0 ? ZERO_LOCAL : ZERO_SHARD;
        s.config.grad_slots = 1 + row % 3;
        run(s, partial_body, &s);
        zeros = s;
        zeros.how = 1;
        run(zeros, partial_body, &zeros);
        ck_assert_double_gt(s.norm, 0);
        ck_assert_double_eq(s.norm, zeros.norm);
        ck_assert_msg(!memcmp(&s.digest, &zeros.digest, sizeof(s.digest)), "row %d", row);
    }
}
END_TEST

/* ------------------------------------------------------------------- loss scale */

/* After the end every call says so. */
static void expect_failed(struct zero *z)
{
    float x[2];
    double mean = 0;
    struct zero_digest digest;
    char first[512];
    snprintf(first, sizeof(first), "%s", zero_last_error(z));
    const int answers[] = {
        zero_acquire(z, 0),
        zero_release(z, 0),
        zero_reduce(z, 0),
        zero_step(z, NULL),
        zero_discard(z),
        zero_vote(z, 1),
        zero_set_adam(z, 0, &adam),
        zero_set_clip(z, 1),
        zero_set_accumulate(z, 1),
        zero_phase(z, ZERO_EVAL),
        zero_digest(z, &digest),
        zero_mean(z, &mean, 1, &mean),
        zero_read(z, 0, 0, 0, 2, x),
        zero_write(z, 0, 0, 0, 2, x),
    };
    for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++)
        if (answers[i] != ZERO_ERR_OVERFLOW)
            ck_abort_msg("call %zu returned %d", i, answers[i]);
    EXPECT(!zero_param_data(z, 0) && !zero_grad_data(z, 0));
    EXPECT(!strcmp(zero_last_error(z), first));
    EXPECT(strstr(first, "scale is down to 1"));
    EXPECT(strstr(first, "of zero_step call 18 (updates performed: 0) overflow"));
}

/* One rank's gradients overflow in every step: 65536 is forgiven once, then it
 * halves down to 1, and there it ends on all ranks. */
static void overflow_body(int rank, struct zero_comm *comm, void *arg)
{
    const struct setting *s = arg;
    struct zero_step_info info = {0};
    struct zero *z;
    double scale = 65536, loss = 0;
    EXPECT(!create(&z, comm, s->config));
    for (int n = 0; n < 18; n++) {
        EXPECT(zero_loss_scale(z) == scale);
        EXPECT(!toy_micro_step(z, n, rank == 1, &loss));
        EXPECT(zero_loss_scale(z) == scale); /* until zero_step */
        int status = zero_step(z, &info);
        EXPECT(status == (n == 17 ? ZERO_ERR_OVERFLOW : ZERO_OK));
        EXPECT(n == 17 || (info.skipped && info.loss_scale == scale && info.step == 0));
        scale = n == 0 ? scale : scale / 2;
        if (n == 5)
            EXPECT(!zero_discard(z)); /* which is no overflow */
    }
    expect_failed(z);
    zero_destroy(z);
}

/* A fixed one never ends. */
static void fixed_body(int rank, struct zero_comm *comm, void *arg)
{
    const struct setting *s = arg;
    struct zero_step_info info;
    struct zero *z;
    double loss = 0;
    EXPECT(!create(&z, comm, s->config));
    for (int n = 0; n < 4; n++) {
        EXPECT(!toy_micro_step(z, n, rank == 1, &loss) && !zero_step(z, &info));
        EXPECT(info.skipped && info.loss_scale == 2 && zero_loss_scale(z) == 2);
    }
    step(z, 1, &info);
    EXPECT(info.step == 1);
    zero_destroy(z);
}

/* Of what fp32 holds only with a scale below 1, as much is updated as clipping makes fit. */
static void small_scale_body(int rank, struct zero_comm *comm, void *arg)
{
    const struct setting *s = arg;
    const double clips[] = {0, 1, 0};
    const float gradients[] = {1e30f, 1e30f, 1e15f};
    struct zero_step_info info;
    struct zero_digest before, after;
    struct zero *z;
    float master;
    EXPECT(!create(&z, comm, s->config) && !zero_digest(z, &before));
    for (int n = 0; n < 3; n++) {
        EXPECT(!zero_set_clip(z, clips[n]));
        for (int u = TOY_UNITS_ALL - 1; u >= 0; u--) {
            if (u == 2 && rank == 0)
                ((float *)zero_grad_data(z, 5))[0] = gradients[n];
            EXPECT(!zero_reduce(z, u));
        }
        EXPECT(!zero_step(z, &info) && info.skipped == (n == 0) && info.step == n);
        EXPECT(isnan(info.norm) == info.skipped && (info.factor < 1) == (n == 1));
        EXPECT(!zero_digest(z, &after) && !memcmp(&before, &after, sizeof(after)) == info.skipped);
        EXPECT(!zero_read(z, 5, ZERO_MASTER, 0, 1, &master) && isfinite(master));
    }
    zero_destroy(z);
}

START_TEST(loss_scale_below_1)
{
    struct setting s = {.ranks = 2, .config.loss_scale = 0x1p-64};
    run(s, small_scale_body, NULL);
}
END_TEST

/* Of what is finite as a sum, but not once it is rounded, nothing gets into the state. */
static void rounded_body(int rank, struct zero_comm *comm, void *arg)
{
    const struct setting *s = arg;
    const float gradients[] = {3.4e38f, 3.3e38f};
    struct zero_step_info info;
    struct zero *z;
    float master;
    EXPECT(!create(&z, comm, s->config) && !zero_set_clip(z, 1));
    for (int n = 0; n < 2; n++) {
        for (int u = TOY_UNITS_ALL - 1; u >= 0; u--) {
            if (u == 2 && rank == 0)
                ((float *)zero_grad_data(z, 5))[0] = gradients[n];
            EXPECT(!zero_reduce(z, u));
        }
        EXPECT(!zero_step(z, &info) && info.skipped == (n == 0) && info.step == n);
        EXPECT(info.skipped == (info.factor == 1)); /* clipped, where there was something to */
        EXPECT(!zero_read(z, 5, ZERO_MASTER, 0, 1, &master) && isfinite(master));
    }
    zero_destroy(z);
}

START_TEST(rounds_to_infinity)
{
    struct setting s = {.ranks = 2, .config.grad_dtype = ZERO_BF16};
    run(s, rounded_body, NULL);
}
END_TEST

START_TEST(loss_scale_ends)
{
    for (int row = 0; row < 12; row++) {
        struct setting s = {.ranks = 2};
        s.config.dtype = ZERO_FP16;
        s.config.stage = row % 4;
        s.config.offload = (enum zero_place)(ZERO_DEVICE + row / 4);
        s.config.chunk = 320;
        run(s, overflow_body, NULL);
        s.config.loss_scale = 2;
        run(s, fixed_body, NULL);
    }
}
END_TEST

/* --------------------------------------------------------------------- formats */

static const struct {
    struct zero_config config;
    const char *says;
} others[] = {
    {{.dtype = ZERO_BF16, .state = ZERO_STATE_SPLIT}, "Ranks differ in .state: "},
    {{.dtype = ZERO_BF16, .grad_dtype = ZERO_BF16}, "Ranks differ in .grad_dtype: "},
    {{.dtype = ZERO_BF16, .loss_scale = 2}, "Ranks differ in .loss_scale: "},
    {{.dtype = ZERO_BF16, .accumulate = 2}, "Ranks differ in .accumulate: "},
    {{.dtype = ZERO_FP16}, "Ranks differ in .dtype: "},
    {{.dtype = ZERO_BF16, .accumulate_in = ZERO_LOCAL}, "Ranks differ in .accumulate_in: "},
};

static void mismatch_body(int rank, struct zero_comm *comm, void *arg)
{
    const struct setting *s = arg;
    struct zero_config plain = {.dtype = ZERO_BF16};
    struct zero *z;
    EXPECT(create(&z, comm, rank == 1 ? others[s->how].config : plain) == ZERO_ERR_MISMATCH);
    EXPECT(strstr(zero_last_error(z), others[s->how].says));
    zero_destroy(z);
}

START_TEST(mismatched)
{
    for (int how = 0; how < (int)(sizeof(others) / sizeof(*others)); how++)
        run((struct setting){.ranks = 3, .how = how}, mismatch_body, NULL);
}
END_TEST

/* What was planned for one micro-step stays with one, and goes on. */
static void planned_body(int rank, struct zero_comm *comm, void *arg)
{
    struct setting *s = arg;
    struct zero_digest digest;
    struct zero *z;
    EXPECT(!create(&z, comm, s->config));
    for (int n = 0; n < 3; n++) {
        if (s->how) {
            EXPECT(zero_set_accumulate(z, 2) == ZERO_ERR_UNSUPPORTED);
            EXPECT(strstr(zero_last_error(z), "2 micro-steps"));
            EXPECT(!zero_set_accumulate(z, 1));
            EXPECT(zero_set_accumulate(z, 0) == ZERO_ERR_ARGUMENT);
            EXPECT(zero_set_accumulate(z, 3) == ZERO_ERR_UNSUPPORTED);
        }
        step(z, n, NULL);
    }
    EXPECT(!zero_digest(z, &digest));
    if (rank == 0)
        s->digest = digest;
    zero_destroy(z);
}

/* What was planned for more takes fewer and more. */
static void replanned_body(int rank, struct zero_comm *comm, void *arg)
{
    const struct setting *s = arg;
    struct zero *z;
    (void)rank;
    EXPECT(!create(&z, comm, s->config));
    EXPECT(z->schedule.accumulate == 2);
    for (int n = 3; n > 0; n--) {
        EXPECT(!zero_set_accumulate(z, n));
        step(z, 3 * n, NULL);
    }
    zero_destroy(z);
}

START_TEST(half_sums_are_planned)
{
    struct setting s = {.ranks = 2}, one, two;
    s.config = (struct zero_config){.grad_dtype = ZERO_BF16, .stage = _i};
    run(s, planned_body, &one);
    s.how = 1;
    run(s, planned_body, &two);
    ck_assert(!memcmp(&one.digest, &two.digest, sizeof(one.digest)));
    s.config.accumulate = 2;
    run(s, replanned_body, NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("features");
    TCase *c = tcase_create("steps");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, votes);
    tcase_add_loop_test(c, goes_on_elsewhere, 0, (ZERO_FP16 + 1) * ROUTES);
    tcase_add_loop_test(c, discards, 0, HOWS);
    tcase_add_test(c, gradients_of_some_ranks);
    tcase_add_test(c, loss_scale_ends);
    tcase_add_test(c, loss_scale_below_1);
    tcase_add_test(c, rounds_to_infinity);
    suite_add_tcase(s, c);
    c = tcase_create("configuration");
    tcase_add_test(c, mismatched);
    tcase_add_loop_test(c, half_sums_are_planned, 0, 4);
    suite_add_tcase(s, c);
    return suite_run_all(s);
}
