// SPDX-License-Identifier: Apache-2.0
/*
 * Tensors that do not train, or have no element, at every stage and place: what
 * they hold, what is refused for them, what the plan keeps for them, and how
 * often they are gathered.
 */
#include <check.h>
#include <string.h>

#include "tests/support/ranks.h"
#include "tests/support/suite.h"
#include "tests/support/toy.h"

/* Of the toy with everything that is rare. */
enum { LATE = 7, BLOCK_FROZEN = 8, EMPTY = 9, TABLE = 10, EMBED_FROZEN = 11, SIZE = 1500 };
static const int frozen[] = {BLOCK_FROZEN, TABLE, EMBED_FROZEN}, frozen_size[] = {279, 1500, 65};
static const struct zero_adam adam = {
    .lr = 0.05, .beta1 = .9, .beta2 = .95, .eps = 1e-8, .weight_decay = .1};

#define EXPECT(condition) TOY_EXPECT(z, condition)

/* What a body runs with. */
struct setting {
    struct zero_config config;
    int ranks; /* 1 or more */
};

static int create(struct zero **z, struct zero_comm *comm, struct zero_config config)
{
    return toy_create(z, comm, config, true, &adam);
}

static void step(struct zero *z, int batch)
{
    struct zero_step_info info;
    double loss = 0;
    EXPECT(!toy_micro_step(z, batch * zero_size(z) + zero_rank(z) + 1, false, &loss));
    EXPECT(!zero_step(z, &info) && !info.skipped);
}

/* All stages and places, fp32, bf16, split and fp16; with four values of first on
 * 1 and 3 ranks, in one chunk and in many. */
static void everywhere(int first, void (*body)(int rank, struct zero_comm *comm, void *arg))
{
    int row = first;
    for (int stage = 0; stage <= 3; stage++)
        for (int place = ZERO_DEVICE; place <= ZERO_NVME; place++)
            for (int format = 0; format < 4; format++, row++) {
                struct setting s = {.ranks = row % 2 ? 3 : 1};
                s.config.stage = stage;
                s.config.offload = (enum zero_place)place;
                s.config.dtype = format == 3 ? ZERO_FP16 : format ? ZERO_BF16 : ZERO_FP32;
                s.config.state = format == 2 ? ZERO_STATE_SPLIT : ZERO_STATE_FP32;
                s.config.chunk = row / 2 % 2 ? 192 : ZERO_CHUNK;
                s.config.loss_scale = 1;
                ranks_run(s.ranks, body, &s);
            }
}

static bool all_equal(const float *a, const float *b, int n)
{
    return !memcmp(a, b, (size_t)n * sizeof(*a));
}

static void rounded(const struct zero *z, int n, const float *in, float *out)
{
    uint16_t half[SIZE];
    memcpy(out, in, (size_t)n * sizeof(*out));
    if (z->plan.set.dtype == ZERO_BF16) {
        z->kernels->to_bf16(n, in, half);
        z->kernels->from_bf16(n, half, out);
    } else if (z->plan.set.dtype == ZERO_FP16) {
        z->kernels->to_fp16(n, in, half);
        z->kernels->from_fp16(n, half, out);
    }
}

static void widened(const struct zero *z, int n, const void *data, float *out)
{
    memset(out, 0, (size_t)n * sizeof(*out));
    if (z->plan.set.dtype == ZERO_FP32)
        memcpy(out, data, (size_t)n * sizeof(*out));
    else if (z->plan.set.dtype == ZERO_BF16)
        z->kernels->from_bf16(n, data, out);
    else
        z->kernels->from_fp16(n, data, out);
}

/* --------------------------------------------------------------- frozen tensors */

static void expect_frozen(struct zero *z, int f, const float *expected)
{
    struct zero_param params[TOY_TENSORS_ALL];
    float got[SIZE];
    int n = frozen_size[f], t = frozen[f];
    toy_describe_all(params);
    EXPECT(!zero_read(z, t, ZERO_MASTER, 0, n, got));
    EXPECT(all_equal(got, expected, n));
    EXPECT(!zero_acquire(z, params[t].unit));
    widened(z, n, zero_param_data(z, t), got);
    EXPECT(all_equal(got, expected, n));
    EXPECT(!zero_release(z, params[t].unit));
}

static void expect_frozen_refused(struct zero *z, int t)
{
    float x[2] = {0};
    EXPECT(!zero_grad_data(z, t) && strstr(zero_last_error(z), "frozen"));
    for (int what = ZERO_MOMENT1; what <= ZERO_GRAD; what++) {
        EXPECT(zero_read(z, t, (enum zero_what)what, 0, 2, x) == ZERO_ERR_ARGUMENT);
        EXPECT(strstr(zero_last_error(z), "frozen"));
        EXPECT(zero_write(z, t, (enum zero_what)what, 0, 2, x) == ZERO_ERR_ARGUMENT);
        EXPECT(strstr(zero_last_error(z), what == ZERO_GRAD ? "gradients" : "frozen"));
    }
}

/* They stay what they were filled with, rounded, until zero_write: that changes
 * its range alone, and stays. */
static void frozen_body(int rank, struct zero_comm *comm, void *arg)
{
    struct setting *s = arg;
    struct zero *z;
    struct zero_param params[TOY_TENSORS_ALL];
    static __thread float expected[3][SIZE], in[SIZE], before[SIZE], after[SIZE];
    (void)rank;
    toy_describe_all(params);
    EXPECT(!create(&z, comm, s->config));
    for (int f = 0; f < 3; f++) {
        EXPECT(!zero_fill_normal(params[frozen[f]].fill_arg, 0, frozen_size[f], in));
        rounded(z, frozen_size[f], in, expected[f]);
        expect_frozen(z, f, expected[f]);
    }
    for (int n = 0; n < 4; n++) {
        step(z, n);
        for (int f = 0; f < 3; f++) {
            expect_frozen(z, f, expected[f]);
            expect_frozen_refused(z, frozen[f]);
            int first = 1 + 13 * n, count = frozen_size[f] - 10 - first;
            for (int i = 0; i < count; i++)
                in[i] = 0.001f * (float)(i * (n + 1)) - 0.3f;
            if (n == 3)
                continue;
            EXPECT(!zero_read(z, LATE, ZERO_MASTER, 0, 130, before));
            EXPECT(!zero_write(z, frozen[f], ZERO_MASTER, first, count, in));
            rounded(z, count, in, expected[f] + first);
            expect_frozen(z, f, expected[f]);
            EXPECT(!zero_read(z, LATE, ZERO_MASTER, 0, 130, after));
            EXPECT(all_equal(before, after, 130));
        }
    }
    zero_destroy(z);
}

START_TEST(frozen_stays)
{
    everywhere(_i, frozen_body);
}
END_TEST

/* Nothing trains: nothing is asked for, and a step changes nothing. */
static void all_frozen_body(int rank, struct zero_comm *comm, void *arg)
{
    const struct setting *s = arg;
    struct zero_normal fill = {.seed = 3, .std = 1};
    struct zero_param params[] = {
        {.name = "a", .unit = 0, .ndim = 1, .shape = {300}, .flags = ZERO_FROZEN},
        {.name = "b", .unit = 1, .ndim = 1, .shape = {70}, .group = 1, .flags = ZERO_FROZEN},
        {.name = "c", .unit = 1, .ndim = 1, .shape = {0}},
    };
    struct zero_config config = s->config;
    struct zero_step_info info;
    struct zero_digest before, after;
    struct zero_stats stats;
    struct zero *z;
    float in[300], expected[300], got[300];
    (void)rank;
    params[0].fill = zero_fill_normal;
    params[0].fill_arg = &fill;
    config.size = sizeof(config);
    config.comm = comm;
    config.threads = 1;
    EXPECT(!zero_create(&z, params, 3, &config));
    EXPECT(!zero_set_adam(z, 0, &adam)); /* for the empty one, which counts as trainable */
    /* group 1 has frozen ones alone, which need none */
    EXPECT(!zero_fill_normal(&fill, 0, 300, in));
    rounded(z, 300, in, expected);
    EXPECT(!zero_digest(z, &before) && before.moment1 == 0 && before.moment2 == 0);
    for (int n = 1; n <= 3; n++) {
        for (int u = 0; u < 2; u++) {
            EXPECT(!zero_acquire(z, u));
            widened(z, u ? 70 : 300, zero_param_data(z, u), got);
            EXPECT(u || all_equal(got, expected, 300));
            EXPECT(!zero_release(z, u) && !zero_reduce(z, u));
        }
        EXPECT(!zero_step(z, &info));
        EXPECT(info.step == n && !info.skipped && info.norm == 0 && info.factor == 1);
        EXPECT(!zero_read(z, 0, ZERO_MASTER, 0, 300, got) && all_equal(got, expected, 300));
    }
    EXPECT(!zero_digest(z, &after) && !memcmp(&before, &after, sizeof(before)));
    EXPECT(!zero_stats(z, &stats) && stats.plan.frozen == 370 && stats.plan.chunks == 0);
    EXPECT(stats.plan.device.state + stats.plan.host.state + stats.plan.nvme.state == 0);
    EXPECT(stats.plan.device.grads + stats.plan.host.grads == 0);
    EXPECT(config.stage < 3 || stats.gathers == 2); /* three slots: they stay */
    zero_destroy(z);
}

START_TEST(all_frozen)
{
    everywhere(_i, all_frozen_body);
}
END_TEST

/* With a slot for each unit, a unit without trainable tensors is gathered once. */
static void gathers_body(int rank, struct zero_comm *comm, void *arg)
{
    const struct setting *s = arg;
    struct zero_stats stats;
    struct zero *z;
    (void)rank;
    EXPECT(!create(&z, comm, s->config));
    for (int n = 1; n <= 4; n++) {
        step(z, n);
        EXPECT(!zero_stats(z, &stats));
        EXPECT(stats.gathers == 1 + 3 * n);
        EXPECT(stats.missed == 0);
    }
    zero_destroy(z);
}

START_TEST(frozen_unit_stays_in_slot)
{
    for (int place = ZERO_DEVICE; place <= ZERO_NVME; place++)
        for (int ranks = 1; ranks <= 2; ranks++)
            ranks_run(
                ranks, gathers_body,
                &(struct setting){
                    .config = {.stage = 3, .offload = (enum zero_place)place, .gather_slots = 4}});
}
END_TEST

/* Nor does it need a gradient slot: the only one is held meanwhile. */
START_TEST(frozen_unit_needs_no_slot)
{
    struct zero *z;
    ck_assert_int_eq(create(&z, NULL, (struct zero_config){.stage = _i, .grad_slots = 1}), 0);
    EXPECT(zero_grad_data(z, 0));
    EXPECT(!zero_reduce(z, 3));                  /* the table's */
    EXPECT(zero_reduce(z, 1) == ZERO_ERR_STATE); /* which needs one */
    zero_destroy(z);
}
END_TEST

/* The plan with frozen tensors and without them: equal state, gradients and
 * traffic of the update. */
START_TEST(frozen_plan)
{
    struct zero_param with[TOY_TENSORS_ALL], without[TOY_TENSORS_ALL];
    int count = 0;
    toy_describe_all(with);
    for (int t = 0; t < TOY_TENSORS_ALL; t++)
        if (!(with[t].flags & ZERO_FROZEN))
            without[count++] = with[t];
    for (int row = 0; row < 4 * 3 * 3; row++) {
        struct zero_config c = {.size = sizeof(c),
                                .stage = row % 4,
                                .offload = (enum zero_place)(ZERO_DEVICE + row / 4 % 3),
                                .dtype = row / 12 ? ZERO_BF16 : ZERO_FP32,
                                .state = row / 12 == 2 ? ZERO_STATE_SPLIT : ZERO_STATE_FP32,
                                .chunk = 256};
        struct zero_plan a, b;
        ck_assert_int_eq(zero_plan_make(with, TOY_TENSORS_ALL, &c, 2, 2, &a, NULL, 0), 0);
        ck_assert_int_eq(zero_plan_make(without, count, &c, 2, 2, &b, NULL, 0), 0);
        ck_assert_int_eq(a.frozen, 279 + 1500 + 65);
        ck_assert_int_eq(a.params - a.frozen, b.params);
        ck_assert_int_eq(b.frozen, 0);
        ck_assert_int_eq(a.chunks, b.chunks);
        ck_assert_int_eq(a.device.state, b.device.state);
        ck_assert_int_eq(a.host.state, b.host.state);
        ck_assert_int_eq(a.nvme.state, b.nvme.state);
        ck_assert_int_eq(a.device.grads, b.device.grads);
        ck_assert_int_eq(a.host.grads, b.host.grads);
        ck_assert_int_eq(a.read_bytes, b.read_bytes);
        ck_assert_int_eq(a.written_bytes, b.written_bytes);
        ck_assert_int_eq(a.reduce_bytes, b.reduce_bytes);
        if (c.stage == 0)
            ck_assert_int_gt(a.device.params + a.host.params + a.nvme.params,
                             b.device.params + b.host.params + b.nvme.params);
    }
}
END_TEST

/* ---------------------------------------------------------------- empty tensors */

static void empty_body(int rank, struct zero_comm *comm, void *arg)
{
    const struct setting *s = arg;
    struct zero_param params[] = {
        {.name = "a", .unit = 0, .ndim = 1, .shape = {0}},
        {.name = "b", .unit = 1, .ndim = 2, .shape = {0, 7}},
        {.name = "c", .unit = 1, .ndim = 1, .shape = {100}},
        {.name = "d", .unit = 1, .ndim = 3, .shape = {4, 0, 2}, .flags = ZERO_FROZEN},
        {.name = "e", .unit = 2, .ndim = 1, .shape = {0}, .flags = ZERO_FROZEN},
    };
    struct zero_config config = s->config;
    struct zero *z;
    float x[1] = {5};
    (void)rank;
    config.size = sizeof(config);
    config.comm = comm;
    config.threads = 1;
    EXPECT(!zero_create(&z, params, 5, &config));
    EXPECT(!zero_set_adam(z, 0, &adam));
    for (int n = 0; n < 3; n++) {
        for (int u = 0; u < 3; u++) {
            EXPECT(!zero_acquire(z, u));
            for (int t = 0; t < 5; t++)
                EXPECT(params[t].unit != u || zero_param_data(z, t));
            EXPECT(u == 2 || zero_grad_data(z, u));
            EXPECT(!zero_release(z, u) && !zero_reduce(z, u));
        }
        for (int t = 0; t < 5; t++)
            EXPECT(t == 2 || t > 2 || !zero_read(z, t, ZERO_GRAD, 0, 0, x));
        EXPECT(!zero_step(z, NULL));
        for (int t = 0; t < 5; t++) {
            int whats = params[t].flags & ZERO_FROZEN ? 1 : 3;
            for (int w = 0; w < whats && t != 2; w++) {
                float *none = n % 2 ? x : NULL;
                EXPECT(!zero_read(z, t, (enum zero_what)w, 0, 0, none));
                EXPECT(!zero_write(z, t, (enum zero_what)w, 0, 0, none));
                EXPECT(zero_read(z, t, (enum zero_what)w, 0, 1, x) == ZERO_ERR_ARGUMENT);
                EXPECT(strstr(zero_last_error(z), "it has 0"));
            }
        }
        EXPECT(!zero_read(z, 2, ZERO_MASTER, 100, 0, x) && x[0] == 5);
    }
    zero_destroy(z);
}

START_TEST(empty_tensors)
{
    everywhere(_i, empty_body);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("frozen");
    TCase *c = tcase_create("tensors");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, frozen_stays, 0, 4);
    tcase_add_loop_test(c, all_frozen, 0, 4);
    tcase_add_test(c, frozen_unit_stays_in_slot);
    tcase_add_loop_test(c, frozen_unit_needs_no_slot, 0, 4);
    tcase_add_test(c, frozen_plan);
    tcase_add_loop_test(c, empty_tensors, 0, 4);
    suite_add_tcase(s, c);
    return suite_run_all(s);
}
