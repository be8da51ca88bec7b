// SPDX-License-Identifier: Apache-2.0
/*
 * The law of equal bits, in one process: the full product of stages, places,
 * ranks, chunk sizes, host shares and dtypes against the simplest run (one
 * rank, stage 0, everything on the device), bit for bit: digests of master and
 * moments, every norm, every mean. ZERO_TEST_SHORT=1 takes every seventh.
 */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/equal.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

#define BATCH EQUAL_BATCH
#define STEPS EQUAL_STEPS

static struct toy reference[2]; /* per dtype */

static void make_references(void)
{
    unsetenv("ZERO_ISA");
    for (int d = 0; d < 2; d++) {
        reference[d] = equal_simplest(d ? ZERO_BF16 : ZERO_FP32, BATCH);
        if (toy_run(&reference[d]))
            ck_abort_msg("reference: %s", reference[d].error.text);
        ck_assert_int_gt(reference[d].clipped, 0);     /* clipping is active in some steps, */
        ck_assert_int_lt(reference[d].clipped, STEPS); /* not in others */
        ck_assert_int_eq(reference[d].skipped, 0);
    }
}

/* 18 places of which 6 take three host shares at stages 0-2: 2 + 2 + 6 = 10
 * each; 18 at stage 3, of which 6 take three: 30. */
#define PLACES (3 * 10 + 30)

static int64_t ran, skipped_rows;

static void run_all_ranks(const struct zero_config *config)
{
    static int64_t row;
    for (int ranks = 1; ranks <= 4; ranks++) {
        if (suite_short() && row++ % 7) {
            skipped_rows++;
            continue;
        }
        struct toy t = {
            .config = *config, .ranks = ranks, .accumulate = BATCH / ranks, .steps = STEPS};
        equal_expect(&t, &reference[config->dtype == ZERO_BF16]);
        ran++;
    }
}

START_TEST(full_product)
{
    const int64_t chunks[] = {64, 1088, (int64_t)1 << 20};
    int stage = _i;
    int64_t places = 0;
    make_references();
    ran = skipped_rows = 0;
    for (int chunk = 0; chunk < 3; chunk++)
        for (int dtype = 0; dtype < 2; dtype++) {
            struct zero_config c = {.stage = stage,
                                    .dtype = dtype ? ZERO_BF16 : ZERO_FP32,
                                    .chunk = chunks[chunk],
                                    .chunk_slots = 5,
                                    .threads = 1};
            places += equal_each_place(c, run_all_ranks);
        }
    ck_assert_int_eq(places, 6 * (stage == 3 ? 30 : 10));
    ck_assert_int_eq(ran + skipped_rows, places * 4);
    ck_assert_int_ge(ran, (suite_short() ? 1 : 7) * places * 4 / 7);
    printf("stage %d: %lld runs, equal bits\n", stage, (long long)ran);
}
END_TEST

/* N ranks against one rank that accumulates N micro-batches, as drawn and in files. */
START_TEST(many_ranks)
{
    const int counts[] = {5, 7, 16, 64};
    int ranks = counts[_i];
    uint64_t r = 20261130 + (uint64_t)_i;
    if (suite_short() && ranks > 16) {
        printf("skipped: %d ranks, in a short run\n", ranks);
        return;
    }
    struct toy one = equal_simplest(ZERO_BF16, ranks);
    ck_assert_msg(!toy_run(&one), "%s", one.error.text);
    for (int stage = 0; stage <= 3; stage++) {
        struct toy many = {.config = {.stage = stage,
                                      .dtype = ZERO_BF16,
                                      .offload = ZERO_NVME,
                                      .chunk = 128,
                                      .threads = 1},
                           .ranks = ranks,
                           .accumulate = 1,
                           .steps = STEPS};
        equal_expect(&many, &one);
    }
    for (int row = 0; row < 96 / ranks + 2; row++) {
        struct equal_meaning m = equal_meaning((4 + row * 7) % EQUAL_MEANINGS); /* first, rounded */
        struct toy drawn = equal_draw(&r, &m), alone = equal_meant(&m);
        alone.accumulate = drawn.ranks = ranks;
        drawn.accumulate = 1;
        ck_assert_msg(!toy_run(&alone), "%s", alone.error.text);
        equal_expect(&drawn, &alone);
    }
}
END_TEST

/* Engine threads and instruction sets over a covering sample of the rest. */
START_TEST(threads_and_isa)
{
    const char *isas[] = {"scalar", "avx2", "avx512"};
    make_references();
    int n = 0;
    for (int i = 0; i < 3; i++) {
        struct error error = {0};
        if (!kernels_select(isas[i], &error)) {
            printf("skipped: %s\n", error.text);
            continue;
        }
        for (int threads = 1; threads <= 3; threads++)
            for (int row = 0; row < 8; row++, n++) {
                struct toy t = {
                    .config = {.stage = row % 4,
                               .threads = threads,
                               .offload = (enum zero_place)(ZERO_DEVICE + (row + i) % 3),
                               .dtype = row / 4 ? ZERO_BF16 : ZERO_FP32,
                               .chunk = row % 2 ? 1088 : 1 << 20,
                               .ring = row % 3 ? ZERO_RING_AUTO : ZERO_RING_POSIX,
                               .chunk_slots = 2 + row % 3,
                               .grad_slots = 2 + row % 2,
                               .gather_slots = 2 + row % 2},
                    .ranks = 1 + (row + threads) % 4,
                    .steps = STEPS};
                t.accumulate = BATCH / t.ranks;
                setenv("ZERO_ISA", isas[i], 1);
                equal_expect(&t, &reference[row / 4]);
                ck_assert_str_eq(t.stats.isa, isas[i]);
                ck_assert_int_eq(t.stats.threads, threads);
                unsetenv("ZERO_ISA");
            }
    }
    ck_assert_int_ge(n, 24); /* scalar at least */
}
END_TEST

/* A gradient that is not finite on one rank skips the step on all, in every
 * place, and later steps go on as if it had not been. */
START_TEST(poisoned_step)
{
    struct toy one = {
        .config = {.threads = 1}, .ranks = 1, .accumulate = 12, .steps = 3, .poison_step = 2};
    ck_assert_msg(!toy_run(&one), "%s", one.error.text);
    ck_assert_int_eq(one.skipped, 1);
    for (int stage = 0; stage <= 3; stage++)
        for (int place = ZERO_DEVICE; place <= ZERO_NVME; place++) {
            struct toy t = {.config = {.stage = stage,
                                       .offload = (enum zero_place)place,
                                       .chunk = 1088,
                                       .threads = 1},
                            .ranks = 3,
                            .accumulate = 4,
                            .steps = 3,
                            .poison_step = 2};
            ck_assert_msg(!toy_run(&t), "%s", t.error.text);
            ck_assert_int_eq(t.skipped, 1);
            ck_assert(!memcmp(&t.digest, &one.digest, sizeof(t.digest)));
            ck_assert_int_eq(t.stats.steps, 2);
        }
}
END_TEST

/* ------------------------------------------- everything that is rare, sampled
 *
 * Each row draws what must not matter at random, and runs it against the simplest
 * run of equal meaning. The seed is fixed; coverage of every value is asserted. */

/* How often each value of what must not matter was drawn. */
static struct {
    int state[4], param[4], grad[4], split[2], local[2], ring[2], ranks[13], share[3], discard[2];
    int verify[2], order[TOY_ORDERS], rounded; /* sums of 16 bits over ranks */
    int stage[4], meaning[EQUAL_MEANINGS];
} seen;

static void note(const struct toy *t)
{
    const struct zero_config *c = &t->config;
    seen.state[c->offload_optimizer]++, seen.param[c->offload_param]++;
    seen.grad[c->offload_grad]++, seen.split[c->state]++, seen.local[c->accumulate_in]++;
    seen.ring[c->ring == ZERO_RING_AUTO]++, seen.ranks[t->ranks]++, seen.stage[c->stage]++;
    seen.share[c->host_bytes == 0 ? 0 : c->host_bytes < 1 << 30 ? 1 : 2]++;
    seen.discard[t->discard > 0]++, seen.verify[c->verify_spill]++;
    seen.order[t->order]++;
    seen.rounded += t->ranks == BATCH && c->dtype == ZERO_BF16 && c->grad_dtype == ZERO_BF16;
}

static void expect_seen(const char *what, const int *counts, int n, int first, int least)
{
    for (int i = first; i < n; i++)
        ck_assert_msg(counts[i] >= least, "%s %d was drawn %d times", what, i, counts[i]);
}

#define ROWS 720

START_TEST(sampled)
{
    uint64_t r = 20240517 + (uint64_t)_i;
    int overflows = 0, rows = suite_short() ? ROWS / 7 : ROWS;
    memset(&seen, 0, sizeof(seen));
    for (int kind = 0; kind < EQUAL_MEANINGS; kind++) {
        struct equal_meaning m = equal_meaning(kind);
        struct toy one = equal_meant(&m);
        ck_assert_msg(!toy_run(&one), "%s", one.error.text);
        overflows += one.skipped;
        for (int row = kind; row < rows; row += EQUAL_MEANINGS) {
            struct toy t = equal_draw(&r, &m);
            note(&t);
            equal_expect(&t, &one);
            seen.meaning[kind]++;
        }
    }
    int least = rows / 16;
    ck_assert_int_ge(overflows, 24);
    expect_seen("optimizer state in place", seen.state, 4, ZERO_DEVICE, least);
    expect_seen("parameters in place", seen.param, 4, ZERO_DEVICE, least / 2);
    expect_seen("gradients in place", seen.grad, 3, ZERO_DEVICE, least);
    expect_seen("state format", seen.split, 2, 0, least);
    expect_seen("accumulation in", seen.local, 2, 0, least / 2);
    expect_seen("ring", seen.ring, 2, 0, least);
    expect_seen("ranks", seen.ranks, 5, 1, least);
    expect_seen("ranks", seen.ranks, 7, 6, least / 2);
    expect_seen("ranks", seen.ranks, 13, 12, least / 2);
    expect_seen("order of reductions", seen.order, TOY_ORDERS, 0, least);
    expect_seen("sums at rest in 16 bits, rank", &seen.rounded, 1, 0, least / 9 + 1);
    expect_seen("stage", seen.stage, 4, 0, least);
    expect_seen("host share", seen.share, 3, 0, least / 4);
    expect_seen("discard", seen.discard, 2, 0, least);
    expect_seen("verify", seen.verify, suite_checksums() ? 2 : 1, 0, least);
    expect_seen("meaning", seen.meaning, EQUAL_MEANINGS, 0, rows / 36);
    printf("%d sampled runs, equal bits\n", rows);
}
END_TEST

/* A run that diverges ends in numbers that are none, and these are equal too. */
START_TEST(diverged)
{
    struct toy one = equal_simplest(ZERO_BF16, BATCH), t = one;
    one.lr = t.lr = 3e37;
    t.config.state = ZERO_STATE_SPLIT;
    t.ranks = 3;
    t.accumulate = BATCH / 3;
    t.config.stage = 3;
    t.config.offload = ZERO_NVME;
    ck_assert_msg(!toy_run(&one), "%s", one.error.text);
    ck_assert_int_gt(one.skipped, 0);
    ck_assert_msg(!toy_run(&t), "%s", t.error.text);
    ck_assert(!memcmp(&t.digest, &one.digest, sizeof(t.digest)));
}
END_TEST

/* Local accumulation on several ranks, where the law covers it: one micro-step. */
START_TEST(local_sums)
{
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int kind = 0; kind < 12; kind++) {
            struct toy one = equal_simplest((enum zero_dtype)(kind % 3), ranks);
            one.rare = kind / 3 % 2;
            one.config.grad_dtype = kind / 6 ? ZERO_BF16 : ZERO_FP32;
            ck_assert_msg(!toy_run(&one), "%s", one.error.text);
            for (int place = ZERO_DEVICE; place <= ZERO_NVME; place++) {
                struct toy t = {.config = {.stage = (place + kind / 6) % 2,
                                           .dtype = one.config.dtype,
                                           .grad_dtype = one.config.grad_dtype,
                                           .accumulate_in = ZERO_LOCAL,
                                           .offload_optimizer = (enum zero_place)place,
                                           .chunk = 256,
                                           .threads = 1},
                                .ranks = ranks,
                                .rare = one.rare,
                                .accumulate = 1,
                                .steps = STEPS};
                equal_expect(&t, &one);
            }
        }
}
END_TEST

static void outside_the_law(void *said, enum zero_log_level level, const char *line)
{
    (void)level;
    if (strstr(line,
               "up the gradients of its 6 micro-steps before ranks add theirs (ZERO_LOCAL): "))
        atomic_fetch_add((atomic_int *)said, 1);
}

/* Outside the law, and told: more micro-steps on several ranks. Equal on all ranks (toy_run
 * looks), near the ordered sum, and less is sent. */
START_TEST(local_sums_send_less)
{
    struct toy shard = {
        .config = {.stage = 1, .threads = 1}, .ranks = 2, .accumulate = 6, .steps = STEPS};
    struct toy local = shard;
    atomic_int said = 0;
    shard.config.log = local.config.log = outside_the_law;
    shard.config.log_level = local.config.log_level = ZERO_LOG_INFO;
    shard.config.log_arg = local.config.log_arg = &said;
    local.config.accumulate_in = ZERO_LOCAL;
    ck_assert_msg(!toy_run(&shard), "%s", shard.error.text);
    ck_assert_int_eq(said, 0);
    ck_assert_msg(!toy_run(&local), "%s", local.error.text);
    ck_assert_int_ge(said, local.ranks);
    for (int s = 0; s < STEPS; s++)
        ck_assert_double_eq_tol(local.norm[s], shard.norm[s], 1e-4 * shard.norm[s]);
    ck_assert_int_lt(local.stats.sent_bytes, shard.stats.sent_bytes / 2);
}
END_TEST

/* A chunk is cut into tasks of 32 K elements, which these have several of. */
static struct zero_digest many_tasks(struct zero_config config)
{
    enum { ELEMENTS = 150000 };
    struct zero_normal normal = {.seed = 5, .std = 1};
    struct zero_param param = {
        .name = "w", .ndim = 1, .shape = {ELEMENTS}, .fill = zero_fill_normal, .fill_arg = &normal};
    const struct zero_adam adam = {.lr = .01, .beta1 = .9, .beta2 = .95, .eps = 1e-8};
    struct zero_digest digest;
    struct zero *z;
    config.size = sizeof(config);
    ck_assert_int_eq(zero_create(&z, &param, 1, &config), ZERO_OK);
    ck_assert_int_eq(zero_set_adam(z, 0, &adam), ZERO_OK);
    for (int step = 0; step < 2; step++) {
        uint16_t *g = zero_grad_data(z, 0);
        float *wide = (float *)(void *)g;
        for (int i = 0; i < ELEMENTS; i++)
            if (config.dtype == ZERO_FP32)
                wide[i] = (float)(i * 37 % 1021 - 500) / 1000;
            else
                g[i] = (uint16_t)(0x3C00 + i * 37 % 509);
        ck_assert_int_eq(zero_reduce(z, 0), ZERO_OK);
        ck_assert_int_eq(zero_step(z, NULL), ZERO_OK);
    }
    ck_assert_int_eq(zero_digest(z, &digest), ZERO_OK);
    zero_destroy(z);
    return digest;
}

START_TEST(threads_share_a_chunk)
{
    struct zero_config config = {.dtype = _i ? ZERO_BF16 : ZERO_FP32,
                                 .state = _i == 2 ? ZERO_STATE_SPLIT : ZERO_STATE_FP32,
                                 .offload = ZERO_HOST,
                                 .threads = 1,
                                 .chunk = 64};
    struct zero_digest one = many_tasks(config);
    config.chunk = 1 << 20;
    for (config.threads = 1; config.threads <= 3; config.threads++) {
        struct zero_digest digest = many_tasks(config);
        ck_assert_mem_eq(&digest, &one, sizeof(one));
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("equal bits");
    TCase *c = tcase_create("law");
    tcase_set_timeout(c, 600);
    tcase_add_loop_test(c, full_product, 0, 4);
    tcase_add_loop_test(c, many_ranks, 0, 4);
    tcase_add_test(c, threads_and_isa);
    tcase_add_loop_test(c, threads_share_a_chunk, 0, 3);
    tcase_add_test(c, poisoned_step);
    suite_add_tcase(s, c);
    c = tcase_create("rare");
    tcase_set_timeout(c, 600);
    tcase_add_loop_test(c, sampled, 0, 1);
    tcase_add_test(c, diverged);
    tcase_add_test(c, local_sums);
    tcase_add_test(c, local_sums_send_less);
    suite_add_tcase(s, c);
    return suite_run_all(s);
}
