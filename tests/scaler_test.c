// SPDX-License-Identifier: Apache-2.0
/*
 * The loss scaler alone: known sequences of good and overflowing steps, and
 * random ones against DeepSpeed's own formulation, which counts iterations
 * where ours counts good steps. What the engine does with it: features_test.
 */
#include <check.h>
#include <stdio.h>

#include "src/scaler.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

/* n good steps; the scale must stay until the last of them. */
static void good(struct scaler *s, int n)
{
    double before = s->scale;
    for (int i = 0; i < n; i++) {
        ck_assert_double_eq(s->scale, before);
        ck_assert(scaler_next(s, false));
    }
}

START_TEST(starts)
{
    struct scaler dynamic = scaler_make(0), fixed = scaler_make(128);
    ck_assert(dynamic.dynamic && !fixed.dynamic);
    ck_assert_double_eq(dynamic.scale, 65536);
    ck_assert_double_eq(fixed.scale, 128);
    for (int i = 0; i < 5000; i++) {
        ck_assert(scaler_next(&fixed, i % 3 == 0));
        ck_assert_double_eq(fixed.scale, 128);
    }
}
END_TEST

/* 999 good steps do nothing, the thousandth doubles; and again 1000 later. */
START_TEST(window)
{
    struct scaler s = scaler_make(0);
    good(&s, 999);
    ck_assert_double_eq(s.scale, 65536);
    good(&s, 1);
    ck_assert_double_eq(s.scale, 131072);
    good(&s, 999);
    ck_assert_double_eq(s.scale, 131072);
    good(&s, 1);
    ck_assert_double_eq(s.scale, 262144);
}
END_TEST

/* An overflow starts the count of good steps again, forgiven or not. */
START_TEST(overflow_restarts_window)
{
    struct scaler s = scaler_make(0);
    good(&s, 999);
    ck_assert(scaler_next(&s, true)); /* forgiven */
    ck_assert_double_eq(s.scale, 65536);
    good(&s, 999);
    ck_assert_double_eq(s.scale, 65536);
    ck_assert(scaler_next(&s, true));
    ck_assert_double_eq(s.scale, 32768);
    good(&s, 999);
    ck_assert_double_eq(s.scale, 32768);
    good(&s, 1);
    ck_assert_double_eq(s.scale, 65536);
}
END_TEST

/* Good steps alone do not restore the hysteresis, a rise does. */
START_TEST(hysteresis)
{
    struct scaler s = scaler_make(0);
    ck_assert(scaler_next(&s, true)); /* forgiven */
    ck_assert_double_eq(s.scale, 65536);
    good(&s, 500);
    ck_assert(scaler_next(&s, true)); /* this one is not */
    ck_assert_double_eq(s.scale, 32768);
    ck_assert(scaler_next(&s, true));
    ck_assert_double_eq(s.scale, 16384);
    good(&s, 1000);
    ck_assert_double_eq(s.scale, 32768);
    ck_assert(scaler_next(&s, true)); /* forgiven again */
    ck_assert_double_eq(s.scale, 32768);
    ck_assert(scaler_next(&s, true));
    ck_assert_double_eq(s.scale, 16384);
}
END_TEST

START_TEST(minimum)
{
    struct scaler s = scaler_make(0);
    ck_assert(scaler_next(&s, true));
    for (double scale = 65536; scale > 1; scale /= 2) {
        ck_assert_double_eq(s.scale, scale);
        ck_assert(scaler_next(&s, true));
    }
    ck_assert_double_eq(s.scale, 1);
    struct scaler risen = s;
    ck_assert(!scaler_next(&s, true));
    ck_assert_double_eq(s.scale, 1); /* never below */
    good(&risen, 1000);
    ck_assert_double_eq(risen.scale, 2);
    ck_assert(scaler_next(&risen, true)); /* forgiven, */
    ck_assert(scaler_next(&risen, true)); /* back to 1, */
    ck_assert(!scaler_next(&risen, true));
}
END_TEST

/* deepspeed/runtime/fp16/loss_scaler.py, DynamicLossScaler.update_scale. */
struct peer {
    double scale;
    int64_t iteration, last_overflow;
    int shift;
};

static bool peer_update(struct peer *p, bool overflow)
{
    bool alive = true;
    if (overflow) {
        if (p->shift == 1) {
            alive = p->scale != 1;
            p->scale = p->scale / 2 > 1 ? p->scale / 2 : 1;
        } else {
            p->shift--;
        }
        p->last_overflow = p->iteration;
    } else if ((p->iteration - p->last_overflow) % 1000 == 0) {
        p->shift = 2;
        p->scale *= 2;
    }
    p->iteration++;
    return alive;
}

/* Overflows from rare (rises happen) to frequent (the minimum is reached). */
START_TEST(random_sequences)
{
    const int one_in[] = {3, 40, 700, 1500, 4000};
    int rises = 0, falls = 0, ends = 0;
    uint64_t random = 11;
    for (int row = 0; row < 50; row++) {
        struct scaler s = scaler_make(0);
        struct peer p = {.scale = 65536, .last_overflow = -1, .shift = 2};
        bool alive = true;
        for (int step = 0; step < 20000 && alive; step++) {
            random = random_mix(random + 1);
            bool overflow = random % (uint64_t)one_in[row % 5] == 0;
            double before = s.scale;
            alive = peer_update(&p, overflow);
            ck_assert_int_eq(scaler_next(&s, overflow), alive);
            ck_assert_msg(s.scale == p.scale, "row %d, step %d: %g, expected %g", row, step,
                          s.scale, p.scale);
            rises += s.scale > before;
            falls += s.scale < before;
        }
        ends += !alive;
    }
    ck_assert_int_gt(rises, 100);
    ck_assert_int_gt(falls, 100);
    ck_assert_int_gt(ends, 5);
}
END_TEST

/* Gradients that are zero never overflow. */
START_TEST(highest)
{
    struct scaler s = scaler_make(0);
    for (int rises = 16; rises < 64; rises++)
        good(&s, 1000);
    ck_assert_double_eq(s.scale, 0x1p64);
    good(&s, 5000);
    ck_assert_double_eq(s.scale, 0x1p64);
    ck_assert(scaler_next(&s, true)); /* forgiven */
    ck_assert(scaler_next(&s, true));
    ck_assert_double_eq(s.scale, 0x1p63);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("scaler");
    TCase *c = tcase_create("rules");
    tcase_add_test(c, starts);
    tcase_add_test(c, window);
    tcase_add_test(c, overflow_restarts_window);
    tcase_add_test(c, hysteresis);
    tcase_add_test(c, minimum);
    tcase_add_test(c, highest);
    tcase_add_test(c, random_sequences);
    suite_add_tcase(s, c);
    return suite_run_all(s);
}
