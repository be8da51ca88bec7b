// SPDX-License-Identifier: Apache-2.0
/*
 * Random numbers: the same on every machine (golden values), independent of who
 * asks for them and when, and distributed as they claim.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "include/zero.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

START_TEST(golden)
{
    static const struct {
        uint64_t seed, stream, index, bits;
        double uniform, normal;
    } cases[] = {
        {0, 0, 0, 0x9561AFA105475C9Fu, 0x1.2ac35f420a8ebp-1, -0x1.078f85fd70299p+0},
        {0, 0, 1, 0xA5316BB1FB97B170u, 0x1.4a62d763f72f7p-1, -0x1.0e3483909c759p-3},
        {1, 0, 0, 0x8E89C906A65A373Fu, 0x1.1d13920d4cb47p-1, -0x1.ee7c86e0d5edbp-1},
        {0, 1, 0, 0xDD37238DDF64EDFAu, 0x1.ba6e471bbec9dp-1, 0x1.1f55901e2eb48p-2},
        {1337, 2, 12345, 0x288367184D627401u, 0x1.441b38c26b13cp-3, 0x1.2109e70f79f4ep-2},
        {1337, 2, 12346, 0x4379A3B6BDABE3E3u, 0x1.0de68edaf6afap-2, -0x1.9c4e1322c013ep+0},
        {42, 7, (uint64_t)1 << 40, 0x19EC54A176B8F993u, 0x1.9ec54a176b8f8p-4,
         -0x1.a653e488a8e0ap-1},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, 0xF7469728259C7EBAu, 0x1.ee8d2e504b38fp-1,
         -0x1.01bd3fb879c23p+0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t seed = cases[i].seed, stream = cases[i].stream, index = cases[i].index;
        ck_assert_uint_eq(random_bits(seed, stream, index), cases[i].bits);
        ck_assert(random_uniform(seed, stream, index) == cases[i].uniform);
        ck_assert(random_normal(seed, stream, index) == cases[i].normal);
    }
    ck_assert_uint_eq(random_mix(1), 0x5692161D100B05E5u);
    ck_assert_uint_eq(random_mix(0), 0);
}
END_TEST

/* The bits of many normals: a coefficient that differs in its last digit shows. */
START_TEST(golden_digest)
{
    uint64_t digest = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double x = random_normal(3, 4, i);
        uint64_t bits;
        memcpy(&bits, &x, sizeof(bits));
        digest += random_mix(bits + i);
    }
    ck_assert_uint_eq(digest, 0x5AD8FF9BB5E4D593u);
}
END_TEST

/* Box and Muller with libm: the polynomials are good to the last bits. */
START_TEST(accuracy)
{
    double worst = 0;
    for (uint64_t k = 0; k < 200000; k++) {
        double radius = sqrt(-2 * log(random_uniform(11, k % 7, 2 * k)));
        uint64_t bits = random_bits(11, k % 7, 2 * k + 1);
        double quarter = M_PI / 2;
        double angle = ((double)(bits << 2 >> 12) + 0.5) * 0x1p-52 * quarter - quarter / 2;
        angle += (double)(bits >> 62) * quarter;
        double x = random_normal(11, k % 7, 2 * k), y = random_normal(11, k % 7, 2 * k + 1);
        worst = fmax(worst, fabs(x - radius * cos(angle)));
        worst = fmax(worst, fabs(y - radius * sin(angle)));
    }
    ck_assert_double_lt(worst, 1e-14);
}
END_TEST

START_TEST(moments)
{
    enum { N = 1000000 };
    double sum[5] = {0}, product = 0, uniform = 0, last = 0;
    bool within = true;
    for (uint64_t i = 0; i < N; i++) {
        double x = random_normal(12, 3, i), power = 1;
        for (int k = 1; k <= 4; k++)
            sum[k] += power *= x;
        product += x * last;
        last = x;
        double u = random_uniform(12, 4, i);
        within = within && u > 0 && u < 1;
        uniform += u;
    }
    ck_assert(within);
    /* Four to five standard deviations of each estimate. */
    ck_assert_double_eq_tol(sum[1] / N, 0, 0.0045);
    ck_assert_double_eq_tol(sum[2] / N, 1, 0.0065);
    ck_assert_double_eq_tol(sum[3] / N, 0, 0.018);
    ck_assert_double_eq_tol(sum[4] / N, 3, 0.045);
    ck_assert_double_eq_tol(product / N, 0, 0.0045);
    ck_assert_double_eq_tol(uniform / N, 0.5, 0.0013);
}
END_TEST

static int double_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Kolmogorov and Smirnov: the distance to the normal distribution. */
START_TEST(distribution)
{
    enum { N = 200000 };
    double *x = malloc(N * sizeof(*x)), distance = 0;
    for (uint64_t i = 0; i < N; i++)
        x[i] = random_normal(13, 1, i);
    qsort(x, N, sizeof(*x), double_compare);
    for (int i = 0; i < N; i++) {
        double below = 0.5 * erfc(-x[i] / M_SQRT2);
        distance = fmax(distance, fabs(below - (i + 0.5) / N));
    }
    ck_assert_double_lt(distance * sqrt(N), 1.95); /* exceeded once in a thousand seeds */
    free(x);
}
END_TEST

/* One bit of seed, stream or index changes half of the bits. */
START_TEST(avalanche)
{
    for (int bit = 0; bit < 64; bit++) {
        int changed[3] = {0};
        uint64_t flip = (uint64_t)1 << bit;
        for (uint64_t i = 0; i < 1000; i++) {
            uint64_t bits = random_bits(i, 2 * i, 3 * i);
            changed[0] += __builtin_popcountll(bits ^ random_bits(i ^ flip, 2 * i, 3 * i));
            changed[1] += __builtin_popcountll(bits ^ random_bits(i, 2 * i ^ flip, 3 * i));
            changed[2] += __builtin_popcountll(bits ^ random_bits(i, 2 * i, 3 * i ^ flip));
        }
        for (int k = 0; k < 3; k++)
            ck_assert_msg(abs(changed[k] - 32000) < 700, "input %d bit %d: %d", k, bit, changed[k]);
    }
}
END_TEST

/* Every piece of a tensor, in any order, has the bits of the whole. */
START_TEST(fills)
{
    enum { N = 1000 };
    struct zero_normal normal = {.seed = 5, .stream = 6, .mean = 0.25f, .std = 0.02f};
    float whole[N], piece[N];
    ck_assert_int_eq(zero_fill_normal(&normal, 0, N, whole), 0);
    for (int i = 0; i < N; i++) {
        double x = (double)0.25f + (double)0.02f * random_normal(5, 6, (uint64_t)i);
        ck_assert(whole[i] == (float)x);
    }
    for (int first = N - 1; first >= 0; first -= 7) {
        for (int count = 0; count <= 5 && first + count <= N; count++) {
            piece[count] = 42;
            ck_assert_int_eq(zero_fill_normal(&normal, first, count, piece), 0);
            ck_assert_mem_eq(piece, whole + first, (size_t)count * sizeof(float));
            ck_assert(piece[count] == 42);
        }
    }
    normal.stream = 7;
    zero_fill_normal(&normal, 0, N, piece);
    ck_assert_mem_ne(piece, whole, sizeof(whole));
    ck_assert_int_ne(zero_fill_normal(NULL, 0, N, piece), 0);
}
END_TEST

START_TEST(fill_constant)
{
    float value = -1.5f, out[5] = {0};
    ck_assert_int_eq(zero_fill_constant(&value, 1000, 4, out), 0);
    for (int i = 0; i < 4; i++)
        ck_assert(out[i] == -1.5f);
    ck_assert(out[4] == 0);
    ck_assert_int_ne(zero_fill_constant(NULL, 0, 4, out), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("random");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_test(core, golden);
    tcase_add_test(core, golden_digest);
    tcase_add_test(core, accuracy);
    tcase_add_test(core, moments);
    tcase_add_test(core, distribution);
    tcase_add_test(core, avalanche);
    tcase_add_test(core, fills);
    tcase_add_test(core, fill_constant);
    suite_add_tcase(suite, core);
    return suite_run_all(suite);
}
