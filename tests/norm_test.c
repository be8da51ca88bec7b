// SPDX-License-Identifier: Apache-2.0
/*
 * The wide accumulator against sums done bit by bit, and the norm of one set of
 * gradients over every way to share it between ranks.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/norm.h"
#include "tests/support/kernels.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

/* ---- long arithmetic: one integer per binary digit, as slow as it is plain */

#define DIGITS 900
#define LOWEST (-320)

struct digits {
    int64_t digit[DIGITS]; /* of weight 2^(LOWEST + i); any sign until normalised */
};

static void digits_add(struct digits *d, double x)
{
    int exponent;
    double fraction = frexp(fabs(x), &exponent); /* in [0.5, 1) */
    for (int i = exponent - 1; fraction > 0 && i >= LOWEST; i--) {
        fraction *= 2;
        if (fraction >= 1) {
            fraction -= 1;
            d->digit[i - LOWEST] += x < 0 ? -1 : 1;
        }
    }
}

/* Makes all digits 0 or 1; returns whether the number is negative (and negates it). */
static bool digits_normalise(struct digits *d)
{
    int64_t carry = 0;
    for (int i = 0; i < DIGITS; i++) {
        int64_t sum = d->digit[i] + carry;
        int64_t rest = ((sum % 2) + 2) % 2;
        d->digit[i] = rest;
        carry = (sum - rest) / 2;
    }
    if (carry == 0)
        return false;
    ck_assert_int_eq(carry, -1); /* two's complement */
    int lowest = 0;
    while (!d->digit[lowest])
        lowest++; /* inverting and adding one leaves all up to here */
    for (int i = lowest + 1; i < DIGITS; i++)
        d->digit[i] = 1 - d->digit[i];
    return true;
}

static double digits_value(const struct digits *sum)
{
    struct digits d = *sum;
    bool negative = digits_normalise(&d);
    int top = DIGITS - 1;
    while (top >= 0 && !d.digit[top])
        top--;
    double value = 0;
    for (int i = top; i > top - 53 && i >= 0; i--)
        value += ldexp((double)d.digit[i], i + LOWEST);
    bool half = top >= 53 && d.digit[top - 53], odd = top >= 52 && d.digit[top - 52];
    bool more = false;
    for (int i = top - 54; i >= 0; i--)
        more = more || d.digit[i];
    if (half && (more || odd))
        value += ldexp(1.0, top - 52 + LOWEST);
    return negative ? -value : value;
}

static double wide_sum(const double *x, int n)
{
    struct wide w = {0};
    for (int i = 0; i < n; i++)
        wide_add(&w, x[i]);
    return wide_value(&w);
}

/* ---- the accumulator */

START_TEST(rounding)
{
    static const struct {
        double x[4], sum;
    } cases[] = {
        {{0, 0, 0, 0}, 0},
        {{-0.0, 0, 0, 0}, 0},
        {{1, 2, 3, 4}, 10},
        {{-1, -2, -3, -4}, -10},
        {{1, -1, 0, 0}, 0},
        {{0x1p53, 1, 0, 0}, 0x1p53},            /* a tie, to even: down */
        {{0x1p53, 2, 1, 0}, 0x1p53 + 4},        /* a tie, to even: up */
        {{0x1p53, 1, 0x1p-320, 0}, 0x1p53 + 2}, /* just above a tie */
        {{0x1p53, 1, -0x1p-320, 0}, 0x1p53},    /* just below */
        {{-0x1p53, -1, -0x1p-320, 0}, -0x1p53 - 2},
        {{0x1p54, -1, 0, 0}, 0x1p54}, /* a tie below a power of two */
        {{0x1p54, -1, -0x1p-300, 0}, 0x1p54 - 2},
        {{0x1p317, 0x1p-320, -0x1p317, 0}, 0x1p-320},
        {{0x1p317, 0x1p317, 0x1p317, 0x1p317}, 0x1p319},
        {{-0x1p317, -0x1p317, -0x1p317, -0x1p317}, -0x1p319},
        {{0x1.fffffffffffffp317, 0, 0, 0}, 0x1.fffffffffffffp317},
        {{0x1p-320, 0, 0, 0}, 0x1p-320},
        {{0x1.8p-320, -0x1.8p-320, 0x1.fp-320, 0}, 0x1p-320}, /* cut towards zero */
        {{-0x1.8p-320, 0, 0, 0}, -0x1p-320},
        {{0x1p-321, -0x1p-400, 0x1p-1074, 0}, 0},
        {{0x1.fffffffffffffp-268, 0x1p-320, 0, 0}, 0x1p-267},
        {{0x1.fffffffffffffp31, 0x1p-21, 0, 0}, 0x1p32}, /* across a limb */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double sum = wide_sum(cases[i].x, 4);
        ck_assert_msg(memcmp(&sum, &cases[i].sum, sizeof(sum)) == 0, "case %zu: %a, not %a", i, sum,
                      cases[i].sum);
    }
}
END_TEST

/* Random signs, exponents and cancellations against the slow sum. */
START_TEST(reference)
{
    for (uint64_t round = 0; round < 3000; round++) {
        struct digits digits = {{0}};
        struct wide wide = {0};
        int n = 1 + (int)(random_bits(1, round, 0) % 40);
        int spread = 1 << random_bits(1, round, 1) % 10; /* exponents apart, up to 512 */
        double x = 0;
        for (int i = 0; i < n; i++) {
            uint64_t r = random_bits(2, round, (uint64_t)i);
            int exponent = (int)(r >> 1) % spread - spread / 2;
            if (r & 1 && i % 3 == 2)
                x = -x * (1 + 0x1p-52); /* cancels all but the last bits */
            else
                x = (random_uniform(3, round, (uint64_t)i) - 0.5) * ldexp(1.0, exponent);
            digits_add(&digits, x);
            wide_add(&wide, x);
        }
        double value = wide_value(&wide), expect = digits_value(&digits);
        ck_assert_msg(value == expect, "round %d: %a, not %a", (int)round, value, expect);
    }
}
END_TEST

/* 64-bit integers sum exactly in 128 bits, which convert with one rounding. */
START_TEST(reference_128)
{
    struct wide wide = {0};
    __extension__ __int128 sum = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        int64_t x = (int64_t)(random_bits(4, 0, i) >> 11) * (i % 3 ? 1 : -1);
        sum += x;
        wide_add(&wide, ldexp((double)x, -40));
        if (i % 100 == 0) {
            double value = wide_value(&wide);
            ck_assert(value == ldexp((double)sum, -40));
        }
    }
}
END_TEST

/* Equal limbs for every order and every grouping, carried or not. */
START_TEST(grouping)
{
    enum { N = 2000, GROUPS = 8 };
    static double x[N];
    for (int i = 0; i < N; i++) {
        int exponent = (int)(random_bits(5, 1, (uint64_t)i) % 500) - 250;
        x[i] = random_normal(5, 0, (uint64_t)i) * ldexp(1.0, exponent);
    }
    struct wide all = {0};
    for (int i = 0; i < N; i++)
        wide_add(&all, x[i]);
    double value = wide_value(&all);
    for (uint64_t round = 0; round < 50; round++) {
        struct wide part[GROUPS] = {{{0}, 0, 0}}, sum = {0};
        for (int i = 0; i < N; i++) {
            uint64_t r = random_bits(6, round, (uint64_t)i);
            int j = i + (int)(r % (uint64_t)(N - i)); /* shuffles on the way */
            double swap = x[i];
            x[i] = x[j];
            x[j] = swap;
            wide_add(&part[(r >> 32) % GROUPS], x[i]);
            if (r >> 60 == 0)
                wide_carry(&part[(r >> 32) % GROUPS]);
        }
        for (int g = 0; g < GROUPS; g++) {
            if (round & 1)
                wide_carry(&part[g]);
            for (int i = 0; i < WIDE_LIMBS; i++)
                sum.limb[i] += part[g].limb[i];
        }
        ck_assert(wide_value(&sum) == value);
        ck_assert_mem_eq(sum.limb, all.limb, sizeof(all.limb));
    }
}
END_TEST

START_TEST(not_finite)
{
    static const double bad[] = {INFINITY, -INFINITY, NAN, 0x1p318, -0x1p318, 0x1p1023};
    struct wide w = {0};
    wide_add(&w, 3.0);
    for (int i = 0; i < 6; i++) {
        wide_add(&w, bad[i]);
        ck_assert_int_eq(w.nonfinite, i + 1);
        ck_assert(isnan(wide_value(&w)));
    }
    w.nonfinite = 0;
    ck_assert(wide_value(&w) == 3.0);
}
END_TEST

/* Limbs stay inside 64 bits between carries, and are small after one. */
START_TEST(carries)
{
    struct wide w = {0};
    w.pending = ((int64_t)1 << 29) - 1; /* as after so many additions of the largest part */
    for (int i = 0; i < WIDE_LIMBS - 1; i++)
        w.limb[i] = ((int64_t)1 << 61) - 1;
    wide_add(&w, 1.0);
    ck_assert_int_eq(w.pending, 0);
    for (int i = 0; i < WIDE_LIMBS - 1; i++)
        ck_assert(w.limb[i] >= 0 && w.limb[i] < (int64_t)1 << 32);
    wide_add(&w, -0x1p300);
    wide_carry(&w);
    for (int i = 0; i < WIDE_LIMBS - 1; i++)
        ck_assert(w.limb[i] >= 0 && w.limb[i] < (int64_t)1 << 32);
}
END_TEST

/* ---- the norm */

/* What ranks do: each sums its shard's blocks, the limbs are added as integers. */
static double norm_over(const struct kernels *kernels, const float *grad, int64_t n, int ranks)
{
    struct wide total = {0};
    int64_t blocks = n / KERNELS_BLOCK, first = 0;
    for (int r = 0; r < ranks; r++) {
        int64_t last = blocks * (r + 1) / ranks;
        int64_t count = (last - first) * KERNELS_BLOCK;
        float *acc = malloc((size_t)count * sizeof(*acc) + 1);
        double *squares = malloc((size_t)(last - first) * sizeof(*squares) + 1);
        const float *part = grad + first * KERNELS_BLOCK;
        kernels->sum_f32(count, 1, &part, true, acc, squares);
        struct wide mine = {0};
        for (int64_t b = 0; b < last - first; b++)
            wide_add(&mine, squares[b]);
        wide_carry(&mine);
        for (int i = 0; i < WIDE_LIMBS; i++)
            total.limb[i] += mine.limb[i];
        free(acc);
        free(squares);
        first = last;
    }
    return sqrt(wide_value(&total));
}

START_TEST(norm)
{
    enum { N = KERNELS_BLOCK * 1001 };
    float *grad = malloc(N * sizeof(*grad));
    long double plain = 0;
    for (int i = 0; i < N; i++) {
        int exponent = (int)(random_bits(10, 1, (uint64_t)i) % 60) - 50;
        grad[i] = (float)(random_normal(10, 0, (uint64_t)i) * ldexp(1.0, exponent));
        plain += (long double)grad[i] * (long double)grad[i];
    }
    struct error error = {0};
    double expect = norm_over(kernels_select("scalar", &error), grad, N, 1);
    ck_assert(fabsl((long double)expect * (long double)expect / plain - 1) < 1e-12L);
    for (int i = 0; i < test_isa_count; i++) {
        const struct kernels *kernels = test_kernels(i);
        for (int ranks = 1; kernels && ranks <= 8; ranks++)
            ck_assert(norm_over(kernels, grad, N, ranks) == expect);
    }
    free(grad);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("norm");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_test(core, rounding);
    tcase_add_test(core, reference);
    tcase_add_test(core, reference_128);
    tcase_add_test(core, grouping);
    tcase_add_test(core, not_finite);
    tcase_add_test(core, carries);
    tcase_add_test(core, norm);
    suite_add_tcase(suite, core);
    return suite_run_all(suite);
}
