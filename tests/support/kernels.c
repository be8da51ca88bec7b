// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kernels.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/random.h"

#if defined(__x86_64__)
static const char *const test_isas[] = {"scalar", "avx2", "avx512"};
#elif defined(__aarch64__)
static const char *const test_isas[] = {"scalar", "neon"};
#else
static const char *const test_isas[] = {"scalar"};
#endif
const int test_isa_count = (int)(sizeof(test_isas) / sizeof(test_isas[0]));

const struct kernels *test_kernels(int i)
{
    struct error error = {0};
    const struct kernels *kernels = kernels_select(test_isas[i], &error);
    if (!kernels) {
        ck_assert_int_eq(error.status, ZERO_ERR_UNSUPPORTED);
        printf("skipped: %s\n", error.text);
    } else {
        ck_assert_str_eq(kernels->isa, test_isas[i]);
    }
    return kernels;
}

#define ORDINARY                                                                                   \
    .beta1 = 0.9f, .one_minus_beta1 = 0.1f, .beta2 = 0.95f, .one_minus_beta2 = 0.05f,              \
    .step_size = 3e-3f, .root_scale = 4.472136f, .eps = 1e-8f
#define EXTREME                                                                                    \
    .grad_scale = 1e-30f, .one_minus_beta1 = 1.0f, .one_minus_beta2 = 1.0f, .root_scale = 1.0f,    \
    .eps = 1e-45f

const struct adam test_adams[] = {
    {ORDINARY, .grad_scale = 1.0f, .decay = 0.99997f},
    {.grad_scale = 0.123f,
     .decay = 1.0f,
     .beta1 = 0.8f,
     .one_minus_beta1 = 0.2f,
     .beta2 = 0.999f,
     .one_minus_beta2 = 0.001f,
     .step_size = 1.5e-4f,
     .root_scale = 1.01f,
     .eps = 1e-15f},
    {EXTREME, .decay = 1.0f},
    {ORDINARY, .grad_scale = 0.25f, .decay = 1.0f, .l2 = 0.1f},
    {ORDINARY, .grad_scale = 1.0f, .decay = 0.75f, .l2 = 1e-45f},
    {EXTREME, .decay = 0.75f, .l2 = -0.0f},
};
const int test_adam_count = (int)(sizeof(test_adams) / sizeof(test_adams[0]));

uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

bool same(float a, float b)
{
    return bits_of(a) == bits_of(b) || (isnan(a) && isnan(b));
}

bool same_double(double a, double b)
{
    return memcmp(&a, &b, sizeof(a)) == 0 || (isnan(a) && isnan(b));
}

float sample(uint64_t stream, int64_t i)
{
    static const uint32_t special[] = {
        0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001,
        0x00000001, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x80800000, 0x7F7FFFFF,
        0xFF7FFFFF, 0x3F800000, 0x3F7FFFFF, 0x7F7F8000, 0x33800000, 0x0000FFFF,
    };
    uint64_t r = random_bits(7, stream, (uint64_t)i);
    switch (r & 7) {
    case 0: return float_of(special[(r >> 8) % (sizeof(special) / sizeof(special[0]))]);
    case 1: return float_of((uint32_t)(r >> 32) & 0x807FFFFF); /* denormal */
    case 2: return float_of((uint32_t)(r >> 32));
    case 3: return (float)random_normal(8, stream, (uint64_t)i) * 1e-20f;
    default: return (float)random_normal(8, stream, (uint64_t)i);
    }
}

/* Infinity lies where 2^128 would. Ties go away from zero. */
uint16_t bf16_reference(float x)
{
    if (isnan(x))
        return 0x7FC0;
    if (isinf(x))
        return x > 0 ? 0x7F80 : 0xFF80;
    uint16_t below = (uint16_t)(bits_of(x) >> 16), above = (uint16_t)(below + 1);
    double low = fabs((double)bf16_value(below));
    double high = (above & 0x7FFF) == 0x7F80 ? 0x1p128 : fabs((double)bf16_value(above));
    double size = fabs((double)x);
    return size - low < high - size ? below : above;
}

float bf16_value(uint16_t x)
{
    return float_of((uint32_t)x << 16);
}

/* IEEE 754-2019, 3.4: w = 5, t = 10. Infinity counts as 2^16. */
static double fp16_size(uint16_t x)
{
    int exponent = x >> 10 & 31, fraction = x & 1023;
    return exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
}

/* The largest half that is not larger, by bisection; then the nearer. */
uint16_t fp16_reference(float x)
{
    if (isnan(x))
        return 0x7E00;
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double size = fabs((double)x);
    if (size >= 65536)
        return sign | 0x7C00;
    uint16_t below = 0, above = 0x7C00;
    while (above - below > 1) {
        uint16_t middle = (uint16_t)((below + above) / 2);
        if (fp16_size(middle) <= size)
            below = middle;
        else
            above = middle;
    }
    double down = size - fp16_size(below), up = fp16_size(above) - size;
    bool nearer = down < up || (down == up && below % 2 == 0);
    return sign | (nearer ? below : above);
}

float fp16_value(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, fraction = x & 1023;
    if ((x & 0x7FFF) > 0x7C00)
        return float_of(sign | 0x7FC00000 | fraction << 13);
    float size = (x & 0x7FFF) == 0x7C00 ? INFINITY : (float)fp16_size(x & 0x7FFF);
    return sign ? -size : size;
}
