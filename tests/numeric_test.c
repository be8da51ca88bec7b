// SPDX-License-Identifier: Apache-2.0
/* The arithmetic under the model: exp, log and rows of each instruction set against libm and
 * against each other's bits, IEEE half against its definition. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt2/numeric.h"
#include "examples/gpt2/rows.h"
#include "include/zero.h"
#include "tests/support/gpt_session.h"
#include "tests/support/suite.h"

static void *zeros(size_t count, size_t size)
{
    void *x = calloc(count, size);
    ck_assert_ptr_nonnull(x);
    return x;
}

START_TEST(exponentials)
{
    const struct rows *k = rows_of(_i);
    for (int i = -870000; i <= 880000; i += 7) {
        float x = (float)i * 1e-4f, y = x;
        k->exp(1, 1.0f, 0.0f, &y);
        double exact = exp((double)x);
        ck_assert_msg(fabs((double)y - exact) <= 2e-7 * exact, "exp(%.9g) is %.9g by %s", (double)x,
                      (double)y, k->isa);
    }
    float y[] = {-1000.0f, -INFINITY, -88.0f, -87.5f, 1000.0f, INFINITY, NAN, 0.0f};
    k->exp(8, 1.0f, 0.0f, y);
    ck_assert(y[0] == 0.0f && y[1] == 0.0f && y[2] == 0.0f && y[3] < 1e-37f && y[7] == 1.0f);
    ck_assert(y[4] > 1e38f && y[5] == y[4] && isfinite(y[5]) && isnan(y[6]));
}
END_TEST

/* Of any bits, of sums that nearly cancel, and of ties that a far smaller part decides: of c's last
 * place, 1 - 2^-46 and 1 are a half; of the product's, 2^-24, and c is the smaller part. */
START_TEST(fused)
{
    for (uint64_t i = 0; i < 2000000; i++) {
        uint64_t draw = session_mix(2 * i);
        uint32_t bits[3] = {(uint32_t)draw, (uint32_t)session_mix(2 * i + 1),
                            (uint32_t)(draw >> 32)};
        float x[3], sign = bits[2] & 1 ? 1.0f : -1.0f;
        memcpy(x, bits, sizeof(x));
        if (i % 4 == 1) {
            x[2] = nextafterf(-x[0] * x[1], sign * INFINITY);
        } else if (i % 4 == 2) {
            x[0] = 1 + (float)((int)(bits[0] % 3) - 1) * 0x1p-23f;
            x[1] = 1 + (float)((int)(bits[1] % 3) - 1) * 0x1p-23f;
            x[2] = sign * (0x1p24f + (float)(2 * (bits[2] >> 1 & 7)));
        } else if (i % 4 == 3) {
            x[0] = x[1] = 1 + 0x1p-12f;
            x[2] = sign * ldexpf(1, -26 - (int)(bits[2] >> 1 & 63));
        }
        float is = number_fused(x[0], x[1], x[2]), expected = fmaf(x[0], x[1], x[2]);
        if (memcmp(&is, &expected, sizeof(is)) != 0 && !(isnan(is) && isnan(expected)))
            ck_abort_msg("%a * %a + %a is %a, not %a", (double)x[0], (double)x[1], (double)x[2],
                         (double)is, (double)expected);
    }
}
END_TEST

START_TEST(logarithms)
{
    for (double x = 1e-30; x < 1e30; x *= 1.37)
        ck_assert_msg(fabs(number_log(x) - log(x)) <= 1e-14 * fmax(1, fabs(log(x))),
                      "log(%.17g) is %.17g", x, number_log(x));
    ck_assert(isnan(number_log((double)NAN)) && isinf(number_log((double)INFINITY)));
}
END_TEST

static const enum zero_dtype dtypes[] = {ZERO_FP32, ZERO_BF16, ZERO_FP16};

/* Whether an operand's element is a number of double, rounded to fp32 with few errors of its own
 * and then to the operand's type. */
static bool near(enum zero_dtype dtype, const void *operand, int64_t i, double expected)
{
    static const double steps[] = {
        [ZERO_FP32] = 0x1p-21, [ZERO_BF16] = 0x1p-8, [ZERO_FP16] = 0x1p-10};
    float spare;
    double is = (double)*operand_view(dtype, operand, i, 1, &spare);
    return fabs(is - expected) <= steps[dtype] * fabs(expected) + 1e-6;
}

enum { ROW_LONGEST = 100 };

struct row_case {
    const struct rows *k;
    int n;
    enum zero_dtype dtype;
    float *x, *y, *z, *sum; /* (n) numbers of about 1, as are those of in */
    void *in, *out, *also;  /* (n) operands, in memory that ends with them */
};

static void check_sums(const struct row_case *r)
{
    enum zero_dtype dtype = r->dtype;
    const float *const added[][2] = {{NULL, NULL}, {r->y, NULL}, {NULL, r->z}, {r->y, r->z}};
    for (int which = 0; which < 4; which++) {
        const float *bias = added[which][0], *residual = added[which][1];
        r->k->store(dtype, r->n, r->x, bias, residual, r->out);
        for (int i = 0; i < r->n; i++) {
            float sum = r->x[i];
            sum = bias ? sum + bias[i] : sum;
            sum = residual ? sum + residual[i] : sum;
            operand_store(dtype, r->also, i, 1, &sum);
        }
        ck_assert_mem_eq(r->out, r->also, (size_t)(r->n * operand_bytes(dtype)));
    }
    memcpy(r->sum, r->x, (size_t)r->n * sizeof(float));
    r->k->add_operand(dtype, r->n, r->in, r->sum);
    for (int i = 0; i < r->n; i++) {
        float spare;
        ck_assert(r->sum[i] == r->x[i] + *operand_view(dtype, r->in, i, 1, &spare));
    }
}

static void check_whole(const struct row_case *r)
{
    double sum = 0, dot = 0, sizes = 0;
    float max = r->x[0];
    for (int i = 0; i < r->n; i++) {
        sum += (double)r->x[i], dot += (double)r->x[i] * (double)r->y[i];
        sizes += fabs((double)r->x[i]) * (1 + fabs((double)r->y[i]));
        max = fmaxf(max, r->x[i]);
    }
    ck_assert(r->k->max(r->n, r->x) == max);
    ck_assert_double_eq_tol((double)r->k->sum(r->n, r->x), sum, 1e-6 * sizes);
    ck_assert_double_eq_tol((double)r->k->dot(r->n, r->x, r->y), dot, 1e-6 * sizes);
    r->k->store_scaled(r->dtype, r->n, r->x, 0.3f, r->out);
    for (int i = 0; i < r->n; i++)
        r->sum[i] = r->x[i] * 0.3f;
    operand_store(r->dtype, r->also, 0, r->n, r->sum);
    ck_assert_mem_eq(r->out, r->also, (size_t)(r->n * operand_bytes(r->dtype)));
}

static void check_softmax(const struct row_case *r)
{
    double total = 0;
    memcpy(r->sum, r->x, (size_t)r->n * sizeof(float));
    r->k->softmax(r->dtype, r->n, 0.5f, 0.25f, 4.0f, r->sum, r->out);
    r->k->softmax_backward(r->dtype, r->n, r->y, 0.125f, 0.5f, r->z, r->also);
    for (int i = 0; i < r->n; i++) {
        double p = exp((double)r->x[i] * 0.5 - 0.25);
        total += p;
        ck_assert(near(ZERO_FP32, r->sum, i, p) && near(r->dtype, r->out, i, 4 * p));
        ck_assert(near(r->dtype, r->also, i, (double)r->y[i] * ((double)r->z[i] - 0.125) * 0.5));
    }
    ck_assert_double_eq_tol((double)r->k->sum(r->n, r->sum), total, 1e-6 * total);
    float logs[ROW_LONGEST];
    r->k->log(r->n, r->y, r->sum, logs);
    for (int i = 0; i < r->n; i++)
        ck_assert(logs[i] == (float)((double)r->y[i] + number_log((double)r->sum[i])));
}

static void check_gelu(const struct row_case *r)
{
    float spare;
    r->k->gelu(r->dtype, r->n, r->x, r->y, r->out, r->also);
    for (int i = 0; i < r->n; i++) {
        double v = (double)(r->x[i] + r->y[i]), u = sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
        ck_assert(near(r->dtype, r->out, i, v));
        ck_assert(near(r->dtype, r->also, i, 0.5 * v * (1 + tanh(u))));
    }
    memcpy(r->sum, r->z, (size_t)r->n * sizeof(float));
    r->k->gelu_backward(r->dtype, r->n, r->in, r->x, r->out, r->sum);
    for (int i = 0; i < r->n; i++) {
        double v = (double)*operand_view(r->dtype, r->in, i, 1, &spare);
        double u = sqrt(2 / M_PI) * (v + 0.044715 * v * v * v), t = tanh(u);
        double slope = sqrt(2 / M_PI) * (1 + 3 * 0.044715 * v * v);
        double d = (double)r->x[i] * (0.5 * (1 + t) + 0.5 * v * (1 - t * t) * slope);
        ck_assert(near(r->dtype, r->out, i, d));
        ck_assert_double_eq_tol((double)r->sum[i], (double)r->z[i] + d, 1e-5);
    }
}

static void check_norm(const struct row_case *r)
{
    float stats[2];
    double mean = 0, variance = 0;
    for (int i = 0; i < r->n; i++)
        mean += (double)r->x[i] / r->n;
    for (int i = 0; i < r->n; i++)
        variance += ((double)r->x[i] - mean) * ((double)r->x[i] - mean) / r->n;
    double scale = 1 / sqrt(variance + 1e-5);
    r->k->norm(ZERO_FP32, r->n, r->x, r->y, r->z, stats, r->sum);
    ck_assert_double_eq_tol((double)stats[0], mean, 1e-6);
    ck_assert_double_eq_tol((double)stats[1], scale, 1e-5 * scale);
    for (int i = 0; i < r->n; i++) {
        double normal = ((double)r->x[i] - mean) * scale * (double)r->y[i] + (double)r->z[i];
        ck_assert_double_eq_tol((double)r->sum[i], normal, 1e-4);
    }
    r->k->norm(r->dtype, r->n, r->x, r->y, r->z, stats, r->out);
    operand_store(r->dtype, r->also, 0, r->n, r->sum);
    ck_assert_mem_eq(r->out, r->also, (size_t)(r->n * operand_bytes(r->dtype)));
}

/* What is fused with loads and stores of operands, around whole vectors of every width. */
START_TEST(rows_are_right)
{
    for (int n = 1; n <= ROW_LONGEST; n += n < 35 ? 1 : 13) {
        size_t operand = (size_t)operand_bytes(dtypes[_i % 3]), count = (size_t)n;
        struct row_case r = {.k = rows_of(_i / 3),
                             .n = n,
                             .dtype = dtypes[_i % 3],
                             .x = zeros(count, 4),
                             .y = zeros(count, 4),
                             .z = zeros(count, 4),
                             .sum = zeros(count, 4),
                             .in = zeros(count, operand),
                             .out = zeros(count, operand),
                             .also = zeros(count, operand)};
        for (int i = 0; i < n; i++) {
            r.x[i] = (float)((double)(session_mix((uint64_t)(n + i)) % 4001) - 2000) * 1e-3f;
            r.y[i] = (float)((double)(session_mix((uint64_t)(n + i) << 20) % 4001) - 2000) * 1e-3f;
            r.z[i] = (float)((double)(session_mix((uint64_t)(n + i) << 40) % 4001) - 2000) * 1e-3f;
        }
        operand_store(r.dtype, r.in, 0, n, r.z);
        check_sums(&r);
        check_whole(&r);
        check_softmax(&r);
        check_gelu(&r);
        check_norm(&r);
        free(r.x), free(r.y), free(r.z), free(r.sum), free(r.in), free(r.out), free(r.also);
    }
}
END_TEST

/* GELU and its slope from 0.01 to 1e9 on both sides, where one is a step and the other 0 or 1. */
START_TEST(gelu_is_right)
{
    const struct rows *k = rows_of(_i);
    for (double size = 0.01; size < 1e9; size *= 1.007)
        for (int sign = -1; sign <= 1; sign += 2) {
            float v = (float)(sign * size), none = 0, one = 1, wide, active, slope, sum = 0;
            k->gelu(ZERO_FP32, 1, &v, &none, &wide, &active);
            k->gelu_backward(ZERO_FP32, 1, &v, &one, &slope, &sum);
            double x = (double)v, u = 2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
            double s = 1 / (1 + exp(-u)), rest = 1 / (1 + exp(u));
            double d = 2 * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
            ck_assert_double_eq_tol((double)active, x * s, 3e-7 * size);
            ck_assert_double_eq_tol((double)slope, s + (rest > 0 ? x * s * rest * d : 0), 5e-7);
            ck_assert(wide == v && sum == slope);
        }
}
END_TEST

/* The middle between two bf16 goes away from zero; what is not a number remains none. */
START_TEST(bf16_rounds)
{
    static const uint32_t bits[][2] = {
        {0x3F807FFF, 0x3F80}, {0x3F808000, 0x3F81}, {0xBF808000, 0xBF81}, {0x3F817FFF, 0x3F81},
        {0x00008000, 0x0001}, {0x80007FFF, 0x8000}, {0x7F7F8000, 0x7F80}, {0xFF800000, 0xFF80},
        {0x7F800001, 0x7FC0}, {0x7FFFFFFF, 0x7FC0}, {0xFFFFFFFF, 0x7FC0}};
    enum { COUNT = sizeof(bits) / sizeof(*bits), TIMES = 5 };
    float x[TIMES * COUNT];
    uint16_t out[TIMES * COUNT];
    for (int i = 0; i < TIMES * COUNT; i++)
        memcpy(&x[i], &bits[i % COUNT][0], sizeof(*x));
    rows_of(_i)->store(ZERO_BF16, TIMES * COUNT, x, NULL, NULL, out);
    for (int i = 0; i < TIMES * COUNT; i++)
        ck_assert_uint_eq(out[i], bits[i % COUNT][1]);
}
END_TEST

enum { ROW_MOST = 70, ROW_RESULTS = 20 };

/* What each loop of a set makes of the same numbers, a line for each. */
struct row_results {
    enum zero_dtype dtype;
    int n, lines;
    float line[ROW_RESULTS][ROW_MOST];
};

static float *row_result(struct row_results *r, const float *from)
{
    ck_assert_int_lt(r->lines, ROW_RESULTS);
    return memcpy(r->line[r->lines++], from, (size_t)r->n * sizeof(float));
}

static void row_operand_result(struct row_results *r, const void *operand)
{
    float spare[ROW_MOST];
    row_result(r, operand_view(r->dtype, operand, 0, r->n, spare));
}

/* x, y, z: (ROW_MOST) */
static void row_results(const struct rows *k, struct row_results *r, const float *x, const float *y,
                        const float *z)
{
    enum zero_dtype dtype = r->dtype;
    int n = r->n;
    float in[ROW_MOST], out[ROW_MOST], also[ROW_MOST], few[ROW_MOST] = {0};
    k->store(dtype, n, x, y, z, in), row_operand_result(r, in);
    k->add_to_operand(dtype, n, z, in), row_operand_result(r, in);
    k->view(dtype, n, in, row_result(r, z));
    k->add_operand(dtype, n, in, row_result(r, z));
    k->add(n, x, row_result(r, z));
    k->store_scaled(dtype, n, x, 0.3f, out), row_operand_result(r, out);
    few[0] = k->max(n, x), few[1] = k->sum(n, x), few[2] = k->dot(n, x, y);
    few[3] = k->exp(n, 0.7f, 0.1f, row_result(r, x));
    k->softmax(dtype, n, 0.7f, 0.1f, 0.3f, row_result(r, z), out), row_operand_result(r, out);
    k->softmax_backward(dtype, n, x, 0.1f, 0.3f, y, out), row_operand_result(r, out);
    k->log(n, y, x, row_result(r, z));
    k->gelu(dtype, n, x, y, out, also), row_operand_result(r, out), row_operand_result(r, also);
    k->gelu_backward(dtype, n, in, x, out, row_result(r, z)), row_operand_result(r, out);
    k->norm(dtype, n, x, y, z, few + 4, out), row_operand_result(r, out);
    float *dx = row_result(r, z), *dweight = row_result(r, z);
    k->norm_backward(n, x, y, few + 4, z, dx, dweight, row_result(r, z));
    memcpy(r->line[r->lines++], few, sizeof(few));
}

/* Numbers of all sizes; from the second pass on one in nine is infinite, none, denormal, -0, the
 * largest or, times 0.7 less 0.1, where exp becomes denormal. */
static float row_number(int pass, int i)
{
    static const uint32_t special[] = {0x7F800000u, 0xFF800000u, 0x7FC00000u, 0x00000001u,
                                       0x807FFFFFu, 0x80000000u, 0x7F7FFFFFu, 0xC2F9B6C9u};
    uint64_t draw = session_mix((uint64_t)pass << 16 | (uint64_t)i);
    float x;
    memcpy(&x, &special[draw >> 32 & 7], sizeof(x));
    if (pass == 0 || (draw >> 40) % 9)
        x = ldexpf((float)((int)(draw & 0xFFFFFF) - (1 << 23)), (int)(draw >> 24 & 15) - 28);
    return x;
}

/* Vectors give the bits of the plain loops. NaN are alike, whatever sign and payload they have. */
START_TEST(rows_agree)
{
    const struct rows *k = rows_of(_i / 3);
    for (int pass = 0; pass < 8; pass++)
        for (int n = 1; n <= ROW_MOST; n += n < 35 ? 1 : 7) {
            float x[ROW_MOST], y[ROW_MOST], z[ROW_MOST];
            for (int i = 0; i < ROW_MOST; i++) {
                x[i] = row_number(pass, 3 * i), y[i] = row_number(pass, 3 * i + 1);
                z[i] = row_number(pass, 3 * i + 2);
            }
            struct row_results plain = {dtypes[_i % 3], n, 0, {{0}}}, vectors = plain;
            row_results(&rows_scalar, &plain, x, y, z);
            row_results(k, &vectors, x, y, z);
            ck_assert_int_eq(plain.lines, ROW_RESULTS);
            for (int line = 0; line < ROW_RESULTS; line++)
                for (int i = 0; i < ROW_MOST; i++) {
                    float *a = &plain.line[line][i], *b = &vectors.line[line][i];
                    ck_assert_msg((isnan(*a) && isnan(*b)) || memcmp(a, b, sizeof(*a)) == 0,
                                  "result %d, element %d of %d: %.9g, by %s %.9g", line, i, n,
                                  (double)*a, k->isa, (double)*b);
                }
        }
}
END_TEST

/* IEEE half by its definition. */
static double half_value(int bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = exponent == 0    ? ldexp(fraction, -24)
                  : exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                                   : ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -size : size;
}

enum { HALVES = 1 << 16 };

START_TEST(half_widens)
{
    uint16_t *half = zeros(HALVES, sizeof(*half)), *again = zeros(HALVES, sizeof(*again));
    float *wide = zeros(HALVES, sizeof(*wide));
    for (int i = 0; i < HALVES; i++)
        half[i] = (uint16_t)i;
    ck_assert_ptr_eq(operand_view(ZERO_FP16, half, 0, HALVES, wide), wide);
    operand_store(ZERO_FP16, again, 0, HALVES, wide);
    for (int i = 0; i < HALVES; i++) {
        double value = half_value(i);
        ck_assert_msg(isnan(value)
                          ? isnan(wide[i])
                          : (double)wide[i] == value && !signbit(wide[i]) == !signbit(value),
                      "%04x is %.9g, expected %.9g", i, (double)wide[i], value);
        ck_assert_msg(again[i] == (isnan(value) ? (i & 0x8000) | 0x7E00 : i), "%04x became %04x", i,
                      again[i]);
    }
    free(half), free(again), free(wide);
}
END_TEST

/* Between any two neighbours: the middle goes to the even one. What would be
 * 65536 is infinite. */
START_TEST(half_rounds)
{
    enum { LARGEST = 0x7BFF };
    uint16_t *half = zeros(HALVES, sizeof(*half)), *sum = zeros(HALVES, sizeof(*sum));
    float *wide = zeros(3 * HALVES, sizeof(*wide));
    for (int sign = 0; sign < HALVES; sign += 0x8000) {
        for (int i = 0; i <= LARGEST; i++) {
            double above = i == LARGEST ? 65536 : half_value(i + 1);
            float middle = (float)((half_value(i) + above) / 2 * (sign ? -1 : 1));
            wide[i] = middle;
            sum[i] = (uint16_t)(sign | i);
        }
        operand_store(ZERO_FP16, half, 0, LARGEST + 1, wide);
        for (int i = 0; i <= LARGEST; i++)
            ck_assert_int_eq(half[i], sign | (i + (i & 1)));
        for (int side = 0; side < 2; side++) { /* the closest floats to the middle */
            float *beside = wide + (1 + side) * HALVES;
            for (int i = 0; i <= LARGEST; i++)
                beside[i] = nextafterf(wide[i], side ? (sign ? -INFINITY : INFINITY) : 0.0f);
            operand_store(ZERO_FP16, half, 0, LARGEST + 1, beside);
            for (int i = 0; i <= LARGEST; i++)
                ck_assert_int_eq(half[i], sign | (i + side));
        }
        for (int i = 0; i <= LARGEST; i++) /* i plus half a step above it */
            wide[i] -= (float)half_value(sign | i);
        operand_add(ZERO_FP16, sum, 0, LARGEST + 1, wide);
        for (int i = 0; i <= LARGEST; i++)
            ck_assert_int_eq(sum[i], sign | (i + (i & 1)));
    }
    const float large[] = {1e30f, -1e30f, 65519.996f, 1e-30f, -1e-30f};
    operand_store(ZERO_FP16, half, 0, 5, large);
    ck_assert(half[0] == 0x7C00 && half[1] == 0xFC00 && half[2] == 0x7BFF);
    ck_assert(half[3] == 0 && half[4] == 0x8000);
    free(half), free(sum), free(wide);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("numeric");
    TCase *t = tcase_create("numbers");
    int sets = 1; /* of loops over rows, the last one plain */
    while (rows_of(sets))
        sets++;
    printf("rows by %s, best of %d\n", rows_best()->isa, sets);
    if (sets == 1)
        printf("skipped: rows of instruction sets beside each other: this CPU runs one\n");
    tcase_add_loop_test(t, exponentials, 0, sets);
    tcase_add_test(t, fused);
    tcase_add_test(t, logarithms);
    tcase_add_loop_test(t, rows_are_right, 0, 3 * sets);
    tcase_add_loop_test(t, bf16_rounds, 0, sets);
    tcase_add_loop_test(t, gelu_is_right, 0, sets);
    tcase_add_loop_test(t, rows_agree, 0, 3 * (sets - 1));
    tcase_add_test(t, half_widens);
    tcase_add_test(t, half_rounds);
    suite_add_tcase(suite, t);
    return suite_run_all(suite);
}
