// SPDX-License-Identifier: Apache-2.0
/*
 * zero_to_fp32 and zero_from_fp32: every pattern of 16 bits, what lies between
 * two of them, and that an engine hands over what they make of its masters.
 */
#include <check.h>
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "include/zero.h"
#include "tests/support/kernels.h"
#include "tests/support/suite.h"
#include "tests/support/toy.h"

#define PATTERNS 65536

/* The two formats, as tests/support defines them. */
static const struct format {
    enum zero_dtype dtype;
    uint16_t nan;
    uint16_t (*narrow)(float x);
    float (*value)(uint16_t x);
} formats[] = {{ZERO_BF16, 0x7FC0, bf16_reference, bf16_value},
               {ZERO_FP16, 0x7E00, fp16_reference, fp16_value}};

static uint16_t narrowed(enum zero_dtype dtype, float x)
{
    uint16_t out = 0xA5A5;
    ck_assert_int_eq(zero_from_fp32(dtype, 1, &x, &out), ZERO_OK);
    return out;
}

/* Every pattern, wide and back, also in a thread that rounds up, flushes denormals and traps what
 * it can: it gets its modes back. */
START_TEST(every_pattern)
{
    const struct format *f = &formats[_i / 2];
    static uint16_t in[PATTERNS], back[PATTERNS];
    static float wide[PATTERNS];
    fenv_t usual;
    int traps = 0;
    for (int i = 0; i < PATTERNS; i++)
        in[i] = (uint16_t)i;
    fegetenv(&usual);
    if (_i % 2) {
        fesetround(FE_UPWARD);
        suite_flush_denormals();
#ifdef __GLIBC__
        feenableexcept(FE_ALL_EXCEPT);
        traps = fegetexcept();
#endif
    }
    int status = zero_to_fp32(f->dtype, PATTERNS, in, wide);
    status = status ? status : zero_from_fp32(f->dtype, PATTERNS, wide, back);
    int round = fegetround();
#ifdef __GLIBC__
    traps -= fegetexcept();
#endif
    fesetenv(&usual);
    ck_assert_int_eq(status, ZERO_OK);
    ck_assert(round == (_i % 2 ? FE_UPWARD : FE_TONEAREST) && traps == 0);
    for (int i = 0; i < PATTERNS; i++)
        if (bits_of(wide[i]) != bits_of(f->value(in[i])) ||
            back[i] != (isnan(wide[i]) ? f->nan : in[i]))
            ck_abort_msg("%04x became %08x, then %04x", i, bits_of(wide[i]), back[i]);
}
END_TEST

/* The middle between each number and the next one, and the floats beside it. */
START_TEST(ties)
{
    const struct format *f = &formats[_i];
    static float in[3 * PATTERNS];
    static uint16_t out[3 * PATTERNS];
    for (int i = 0; i < PATTERNS; i++) {
        double low = (double)f->value((uint16_t)i), high = (double)f->value((uint16_t)(i + 1));
        if (isinf(high))
            high = copysign(f->dtype == ZERO_BF16 ? 0x1p128 : 0x1p16, low);
        in[3 * i] = (float)((low + high) / 2);
        in[3 * i + 1] = nextafterf(in[3 * i], INFINITY);
        in[3 * i + 2] = nextafterf(in[3 * i], -INFINITY);
    }
    ck_assert_int_eq(zero_from_fp32(f->dtype, 3 * PATTERNS, in, out), ZERO_OK);
    for (int i = 0; i < 3 * PATTERNS; i++)
        if (out[i] != f->narrow(in[i]))
            ck_abort_msg("%08x became %04x, not %04x", bits_of(in[i]), out[i], f->narrow(in[i]));
}
END_TEST

START_TEST(edges)
{
    static const struct {
        float x;
        uint16_t bf16, fp16;
    } rows[] = {
        {1 + 0x1p-8f, 0x3F81, 0x3C04},     /* bf16's tie goes away from zero */
        {1 + 0x3p-8f, 0x3F82, 0x3C0C},     /* as this one does */
        {1 + 0x1p-11f, 0x3F80, 0x3C00},    /* fp16's goes to even: down, */
        {1 + 0x3p-11f, 0x3F80, 0x3C02},    /* up */
        {65519.996f, 0x4780, 0x7BFF},      /* the last that is not infinite */
        {65520, 0x4780, 0x7C00},           /* the first that is */
        {0x1.FEFFFEp127f, 0x7F7F, 0x7C00}, /* bf16's likewise */
        {0x1.FFp127f, 0x7F80, 0x7C00},
        {INFINITY, 0x7F80, 0x7C00},
        {0, 0, 0},
        {0x1p-25f, 0x3300, 0},
        {0x1.000002p-25f, 0x3300, 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        ck_assert_uint_eq(narrowed(ZERO_BF16, rows[i].x), rows[i].bf16);
        ck_assert_uint_eq(narrowed(ZERO_FP16, rows[i].x), rows[i].fp16);
        ck_assert_uint_eq(narrowed(ZERO_BF16, -rows[i].x), rows[i].bf16 | 0x8000u);
        ck_assert_uint_eq(narrowed(ZERO_FP16, -rows[i].x), rows[i].fp16 | 0x8000u);
    }
    static const uint32_t nans[] = {0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFC12345};
    for (int i = 0; i < 5; i++) {
        ck_assert_uint_eq(narrowed(ZERO_BF16, float_of(nans[i])), 0x7FC0);
        ck_assert_uint_eq(narrowed(ZERO_FP16, float_of(nans[i])), 0x7E00);
    }
}
END_TEST

START_TEST(fp32_is_copied)
{
    uint32_t in[] = {0, 1, 0x80000000, 0x7F800001, 0xFFC12345, 0x3F800000}, out[6];
    ck_assert_int_eq(zero_to_fp32(ZERO_FP32, 6, in, (float *)(void *)out), ZERO_OK);
    ck_assert_mem_eq(in, out, sizeof(in));
    memset(out, 0, sizeof(out));
    ck_assert_int_eq(zero_from_fp32(ZERO_FP32, 5, (const float *)(const void *)in, out), ZERO_OK);
    ck_assert_mem_eq(in, out, 5 * sizeof(*in));
    ck_assert_uint_eq(out[5], 0);
}
END_TEST

START_TEST(refused)
{
    float wide = 1;
    uint16_t narrow = 0xA5A5;
    for (int dtype = -1; dtype <= 3; dtype++) {
        enum zero_dtype d = (enum zero_dtype)dtype;
        int status = dtype < 0 || dtype > ZERO_FP16 ? ZERO_ERR_ARGUMENT : ZERO_OK;
        ck_assert_int_eq(zero_to_fp32(d, -1, &narrow, &wide), ZERO_ERR_ARGUMENT);
        ck_assert_int_eq(zero_from_fp32(d, INT64_MIN, &wide, &narrow), ZERO_ERR_ARGUMENT);
        ck_assert_int_eq(zero_to_fp32(d, 1, NULL, &wide), ZERO_ERR_ARGUMENT);
        ck_assert_int_eq(zero_to_fp32(d, 1, &narrow, NULL), ZERO_ERR_ARGUMENT);
        ck_assert_int_eq(zero_from_fp32(d, 1, NULL, &narrow), ZERO_ERR_ARGUMENT);
        ck_assert_int_eq(zero_from_fp32(d, 1, &wide, NULL), ZERO_ERR_ARGUMENT);
        ck_assert_int_eq(zero_to_fp32(d, 0, NULL, NULL), status);
        ck_assert_int_eq(zero_from_fp32(d, 0, NULL, NULL), status);
    }
    ck_assert(wide == 1 && narrow == 0xA5A5);
}
END_TEST

/* Frozen ones too. */
static void parameters_check(struct zero *z, enum zero_dtype dtype)
{
    static float master[2000], expected[2000];
    for (int i = 0; i < TOY_TENSORS_ALL; i++) {
        int64_t n = z->layout.tensors[i].elements;
        size_t bytes = (size_t)n * (dtype == ZERO_FP32 ? 4 : 2);
        ck_assert_int_le(n, 2000);
        ck_assert_int_eq(zero_read(z, i, ZERO_MASTER, 0, n, master), ZERO_OK);
        ck_assert_int_eq(zero_from_fp32(dtype, n, master, expected), ZERO_OK);
        ck_assert_int_eq(zero_acquire(z, z->layout.tensors[i].unit), ZERO_OK);
        ck_assert_msg(n == 0 || !memcmp(zero_param_data(z, i), expected, bytes), "tensor %d", i);
        ck_assert_int_eq(zero_release(z, z->layout.tensors[i].unit), ZERO_OK);
    }
}

START_TEST(parameters_are_rounded_masters)
{
    const struct zero_adam adam = {.lr = .05, .beta1 = .9, .beta2 = .95, .eps = 1e-8};
    enum zero_dtype dtype = (enum zero_dtype)(_i % 3);
    for (int place = ZERO_DEVICE; place <= ZERO_NVME; place++)
        for (int split = 0; split <= (dtype == ZERO_BF16); split++) {
            struct zero_config c = {.stage = _i / 3 * 3,
                                    .dtype = dtype,
                                    .offload = (enum zero_place)place,
                                    .state = split ? ZERO_STATE_SPLIT : ZERO_STATE_FP32,
                                    .chunk = 1088};
            struct zero *z;
            double loss = 0;
            ck_assert_int_eq(toy_create(&z, NULL, c, true, &adam), ZERO_OK);
            for (int step = 0; step < 4; step++) {
                parameters_check(z, dtype);
                ck_assert_int_eq(toy_micro_step(z, step, false, &loss), ZERO_OK);
                ck_assert_int_eq(zero_step(z, NULL), ZERO_OK);
            }
            parameters_check(z, dtype);
            zero_destroy(z);
        }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("convert");
    TCase *c = tcase_create("convert");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, every_pattern, 0, 4);
    tcase_add_loop_test(c, ties, 0, 2);
    tcase_add_test(c, edges);
    tcase_add_test(c, fp32_is_copied);
    tcase_add_test(c, refused);
    tcase_add_loop_test(c, parameters_are_rounded_masters, 0, 6);
    suite_add_tcase(suite, c);
    return suite_run_all(suite);
}
