// SPDX-License-Identifier: Apache-2.0
/*
 * What the engine computes, against the same sums, norm and Adam written again
 * here in plain C, one element at a time: equal_test compares configurations
 * with each other and cannot see what is wrong in all of them. Sharing,
 * places and chunks are equal_test's.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/random.h"
#include "tests/support/ranks.h"
#include "tests/support/suite.h"

#define TENSORS 7
#define UNITS   3
#define SIZE    1000 /* of the largest tensor */
#define STEPS   6

static const struct zero_param shapes[TENSORS] = {
    {.name = "embed", .unit = 0, .ndim = 2, .shape = {30, 10}},
    {.name = "embed.bias", .unit = 0, .ndim = 1, .shape = {77}, .flags = ZERO_NO_DECAY},
    {.name = "frozen", .unit = 1, .ndim = 1, .shape = {50}, .flags = ZERO_FROZEN},
    {.name = "block", .unit = 1, .ndim = 1, .shape = {SIZE}, .group = 1},
    {.name = "empty", .unit = 1, .ndim = 2, .shape = {0, 5}},
    {.name = "head", .unit = 2, .ndim = 1, .shape = {13}, .group = 1, .flags = ZERO_NO_DECAY},
    {.name = "late", .unit = 0, .ndim = 1, .shape = {65}, .group = 1},
};
static const int sizes[TENSORS] = {300, 77, 50, SIZE, 0, 13, 65};

/* What decides the result. */
struct meaning {
    struct zero_config config;
    int ranks, micro;
    bool l2;
    double assumed_scale; /* 0: the configuration's. The reference's fixed loss scale */
};

/* ------------------------------------------------------------ numbers by value */

/* x with so many bits of significand, not below the smallest exponent: by
 * arithmetic on values, where the library works on bits. */
static float rounded(float x, int bits, int least, bool away)
{
    if (x == 0 || !isfinite(x))
        return x;
    int e = ilogb((double)x) < least ? least : ilogb((double)x);
    double unit = ldexp(1, e - bits + 1), n = (double)x / unit;
    return (float)((away ? round(n) : nearbyint(n)) * unit);
}

static float to_dtype(float x, enum zero_dtype dtype)
{
    if (dtype == ZERO_FP32)
        return x;
    if (dtype == ZERO_BF16)
        return rounded(x, 8, -126, true);
    float r = rounded(x, 11, -14, false);
    return fabsf(r) > 65504 ? copysignf(INFINITY, x) : r;
}

/* The bits of a number that is representable, and back. */
static uint16_t half_bits(float x, enum zero_dtype dtype)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (dtype == ZERO_BF16)
        return (uint16_t)(bits >> 16);
    uint16_t sign = (uint16_t)(signbit(x) ? 0x8000 : 0);
    double size = fabs((double)x);
    if (isinf(x))
        return (uint16_t)(sign | 0x7C00);
    if (size < 0x1p-14)
        return (uint16_t)(sign | (int)(size * 0x1p24));
    int e = ilogb(size);
    return (uint16_t)(sign | (e + 15) << 10 | ((int)ldexp(size, 10 - e) & 0x3FF));
}

static float element(const void *data, enum zero_dtype dtype, int i)
{
    if (dtype == ZERO_FP32)
        return ((const float *)data)[i];
    uint16_t half = ((const uint16_t *)data)[i];
    if (dtype == ZERO_BF16) {
        uint32_t bits = (uint32_t)half << 16;
        float x;
        memcpy(&x, &bits, 4);
        return x;
    }
    int e = half >> 10 & 31, f = half & 0x3FF;
    double size = e ? ldexp(1024 + f, e - 25) : ldexp(f, -24);
    return (float)(half & 0x8000 ? -size : size);
}

/* In [-0.5, 0.5), all 24 bits in use. */
static float noise(uint64_t key, int tensor, int64_t i)
{
    uint64_t x = random_mix(key << 32 ^ (uint64_t)tensor << 24 ^ (uint64_t)i);
    return (float)(x >> 40) * 0x1p-24f - 0.5f;
}

/* Every ninth element lies halfway between two bf16 numbers, or two fp16 ones. */
static float initial(int tensor, int64_t i)
{
    float x = noise(77, tensor, i);
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (i % 9 == 0)
        bits = (bits & 0xFFFF0000u) | 0x8000u;
    else if (i % 9 == 1)
        bits = (bits & 0xFFFFE000u) | 0x1000u;
    memcpy(&x, &bits, 4);
    return i % 31 == 30 ? 0 : x;
}

static int fill(void *arg, int64_t first, int64_t count, float *out)
{
    int tensor = *(const int *)arg;
    for (int64_t i = 0; i < count; i++)
        out[i] = initial(tensor, first + i);
    return 0;
}

/* The gradient of one micro-batch as its rank writes it: small in every other
 * step, so that clipping is active in some steps; infinite somewhere in two. */
static float gradient(const struct meaning *m, int step, int batch, int tensor, int i, double scale)
{
    float size = step % 2 ? 0.004f : 0.9f;
    float g = size * noise((uint64_t)(1000 * step + batch + 1), tensor, i);
    if ((step == 1 || step == 3) && batch == m->ranks - 1 && tensor == 3 && i == SIZE / 2)
        return INFINITY;
    return to_dtype((float)scale * g, m->config.dtype);
}

/* ------------------------------------------------------------- the reference */

static const struct zero_adam adam[2] = {
    {.lr = 0.05, .beta1 = .9, .beta2 = .95, .eps = 1e-8, .weight_decay = .1},
    {.lr = 0.02, .beta1 = .8, .beta2 = .99, .eps = 1e-6, .weight_decay = .03},
};
#define CLIP 1.0

struct reference {
    const struct meaning *meaning;
    float p[TENSORS][SIZE], m[TENSORS][SIZE], v[TENSORS][SIZE], sum[TENSORS][SIZE];
    float mean[TENSORS][SIZE]; /* gradient */
    struct zero_step_info info;
    double scale;
    int overflows; /* of a dynamic scale */
};

static void reference_start(struct reference *r, const struct meaning *meaning)
{
    const struct zero_config *c = &meaning->config;
    memset(r, 0, sizeof(*r));
    r->meaning = meaning;
    r->scale = c->loss_scale > 0 ? c->loss_scale : c->dtype == ZERO_FP16 ? 65536 : 1;
    if (meaning->assumed_scale > 0)
        r->scale = meaning->assumed_scale;
    for (int t = 0; t < TENSORS; t++)
        for (int i = 0; i < sizes[t]; i++) {
            float x = initial(t, i);
            bool frozen = shapes[t].flags & ZERO_FROZEN;
            r->p[t][i] = frozen ? to_dtype(x, c->dtype) : x;
        }
}

/* One element's sum over micro-steps and ranks, in the global batch's order, or
 * each rank's first. */
static float ordered_sum(const struct reference *r, int step, int tensor, int i)
{
    const struct meaning *m = r->meaning;
    float sum = 0;
    if (m->config.accumulate_in == ZERO_LOCAL) {
        for (int rank = 0; rank < m->ranks; rank++) {
            float own = 0;
            for (int a = 0; a < m->micro; a++)
                own += gradient(m, step, a * m->ranks + rank, tensor, i, r->scale);
            sum += own;
        }
        return sum;
    }
    for (int batch = 0; batch < m->micro * m->ranks; batch++)
        sum += gradient(m, step, batch, tensor, i, r->scale);
    return sum;
}

__extension__ typedef __int128 fixed; /* in units of 2^-70: wide enough for exact sums */

/* 64 squares in their tree. */
static fixed block_squares(const float *x, int n)
{
    double lane[8] = {0};
    for (int i = 0; i < n; i++)
        lane[i % 8] += (double)x[i] * (double)x[i];
    double sum =
        ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    double units = sum * 0x1p70;
    ck_assert_double_eq((double)(fixed)units, units); /* exact */
    return (fixed)units;
}

static void reference_verdict(struct reference *r, int step)
{
    const struct meaning *m = r->meaning;
    double divisor = (double)(m->micro * m->ranks) * r->scale;
    fixed squares = 0;
    bool bad = false;
    for (int t = 0; t < TENSORS; t++) {
        if (shapes[t].flags & ZERO_FROZEN)
            continue;
        for (int i = 0; i < sizes[t]; i++) {
            r->sum[t][i] = ordered_sum(r, step, t, i);
            bad |= !isfinite(r->sum[t][i]);
        }
        for (int i = 0; i < sizes[t] && !bad; i += 64)
            squares += block_squares(&r->sum[t][i], sizes[t] - i < 64 ? sizes[t] - i : 64);
        for (int i = 0; i < sizes[t]; i++) {
            if (m->config.grad_dtype == ZERO_BF16) /* after the norm was taken */
                r->sum[t][i] = to_dtype(r->sum[t][i], ZERO_BF16);
            r->mean[t][i] = r->sum[t][i] * (float)(1 / divisor);
        }
    }
    r->info.skipped = bad;
    r->info.norm = bad ? NAN : sqrt((double)squares * 0x1p-70) / divisor;
    r->info.factor = r->info.norm > CLIP ? CLIP / (r->info.norm + 1e-6) : 1;
    r->info.loss_scale = r->scale;
}

static double power(double b, int64_t n)
{
    return n == 0 ? 1 : n % 2 ? power(b * b, n / 2) * b : power(b * b, n / 2);
}

/* Adam, arXiv 1412.6980 and 1711.05101, each operation rounded to fp32. */
static void reference_update(struct reference *r)
{
    const struct meaning *m = r->meaning;
    float s = (float)(r->info.factor / ((double)(m->micro * m->ranks) * r->scale));
    for (int t = 0; t < TENSORS; t++) {
        const struct zero_adam *a = &adam[shapes[t].group];
        bool decays = !(shapes[t].flags & ZERO_NO_DECAY);
        float b1 = (float)a->beta1, b2 = (float)a->beta2, wd = (float)a->weight_decay;
        float rate = (float)(a->lr / (1 - power(a->beta1, r->info.step)));
        float root = (float)(1 / sqrt(1 - power(a->beta2, r->info.step)));
        for (int i = 0; i < sizes[t] && !(shapes[t].flags & ZERO_FROZEN); i++) {
            float *p = &r->p[t][i], *m1 = &r->m[t][i], *v = &r->v[t][i], g = r->sum[t][i] * s;
            if (decays && m->l2)
                g = g + wd * *p;
            else if (decays)
                *p = *p * (float)(1 - a->lr * a->weight_decay);
            *m1 = b1 * *m1 + (float)(1 - a->beta1) * g;
            *v = b2 * *v + ((float)(1 - a->beta2) * g) * g;
            *p = *p - rate * (*m1 / (sqrtf(*v) * root + (float)a->eps));
        }
    }
}

static void reference_step(struct reference *r, int step)
{
    reference_verdict(r, step);
    if (!r->info.skipped) {
        r->info.step++;
        reference_update(r);
        return;
    }
    bool dynamic = r->meaning->config.dtype == ZERO_FP16 && r->meaning->config.loss_scale == 0;
    if (dynamic && ++r->overflows > 1)
        r->scale /= 2;
}

/* ------------------------------------------------------------------ the engine */

#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            char text[128];                                                                        \
            snprintf(text, sizeof(text), __VA_ARGS__);                                             \
            ck_abort_msg("%s: %s, step %d: %s", #condition, text, step, zero_last_error(z));       \
        }                                                                                          \
    } while (0)

static void micro_step(struct zero *z, const struct meaning *m, int step, int batch)
{
    enum zero_dtype dtype = m->config.dtype;
    double scale = zero_loss_scale(z);
    for (int u = UNITS - 1; u >= 0; u--) {
        EXPECT(!zero_acquire(z, u), "unit %d", u);
        for (int t = 0; t < TENSORS; t++) {
            if (shapes[t].unit != u || shapes[t].flags & ZERO_FROZEN)
                continue;
            void *data = zero_grad_data(z, t);
            EXPECT(data, "tensor %d", t);
            for (int i = 0; i < sizes[t]; i++) {
                float g = gradient(m, step, batch, t, i, scale);
                if (dtype == ZERO_FP32)
                    ((float *)data)[i] = g;
                else
                    ((uint16_t *)data)[i] = half_bits(g, dtype);
            }
        }
        EXPECT(!zero_release(z, u) && !zero_reduce(z, u), "unit %d", u);
        EXPECT(zero_loss_scale(z) == scale, "constant within a step");
    }
}

static void compare_array(struct zero *z, int step, int t, enum zero_what what,
                          const float *expected)
{
    float got[SIZE];
    EXPECT(!zero_read(z, t, what, 0, sizes[t], got), "tensor %d, array %d", t, (int)what);
    for (int i = 0; i < sizes[t]; i++)
        EXPECT(!memcmp(&got[i], &expected[i], 4), "tensor %d, array %d [%d]: %a, expected %a", t,
               (int)what, i, (double)got[i], (double)expected[i]);
}

static void compare_weights(struct zero *z, int step, int t, const struct reference *r)
{
    enum zero_dtype dtype = r->meaning->config.dtype;
    EXPECT(!zero_acquire(z, shapes[t].unit), "tensor %d", t);
    const void *w = zero_param_data(z, t);
    EXPECT(w && (uintptr_t)w % 64 == 0, "tensor %d", t);
    for (int i = 0; i < sizes[t]; i++) {
        float expected = to_dtype(r->p[t][i], dtype);
        EXPECT(element(w, dtype, i) == expected, "tensor %d, weight %d: %a, expected %a", t, i,
               (double)element(w, dtype, i), (double)expected);
    }
    EXPECT(!zero_release(z, shapes[t].unit), "tensor %d", t);
}

static void compare(struct zero *z, int step, const struct reference *r)
{
    for (int t = 0; t < TENSORS; t++) {
        compare_array(z, step, t, ZERO_MASTER, r->p[t]);
        compare_weights(z, step, t, r);
        if (shapes[t].flags & ZERO_FROZEN)
            continue;
        compare_array(z, step, t, ZERO_MOMENT1, r->m[t]);
        compare_array(z, step, t, ZERO_MOMENT2, r->v[t]);
        if (step >= 0 && !r->info.skipped)
            compare_array(z, step, t, ZERO_GRAD, r->mean[t]);
    }
}

static void compare_info(struct zero *z, int step, const struct zero_step_info *got,
                         const struct reference *r)
{
    const struct zero_step_info *e = &r->info;
    double factor = r->meaning->config.loss_scale; /* of a scale that must not matter */
    double scale = r->meaning->assumed_scale > 0 ? factor : e->loss_scale;
    EXPECT(got->step == e->step && got->skipped == e->skipped, "%d", (int)got->step);
    EXPECT(e->skipped ? isnan(got->norm) : got->norm == e->norm, "%a, expected %a", got->norm,
           e->norm);
    EXPECT(got->factor == e->factor, "%a, expected %a", got->factor, e->factor);
    EXPECT(got->loss_scale == scale, "%g, expected %g", got->loss_scale, scale);
}

static void train(int rank, struct zero_comm *comm, void *arg)
{
    const struct meaning *m = arg;
    struct reference *r = malloc(sizeof(*r));
    struct zero_config config = m->config;
    struct zero_param params[TENSORS];
    struct zero *z;
    int number[TENSORS], step = -1, clipped = 0;
    memcpy(params, shapes, sizeof(shapes));
    for (int t = 0; t < TENSORS; t++) {
        number[t] = t;
        params[t].fill = fill;
        params[t].fill_arg = &number[t];
    }
    config.size = sizeof(config);
    config.comm = comm;
    config.threads = 1;
    config.accumulate = m->micro;
    EXPECT(!zero_create(&z, params, TENSORS, &config), "create");
    for (int g = 0; g < 2; g++) {
        struct zero_adam a = adam[g];
        a.l2 = m->l2;
        EXPECT(!zero_set_adam(z, g, &a), "group %d", g);
    }
    EXPECT(!zero_set_clip(z, CLIP), "clip");
    reference_start(r, m);
    compare(z, step, r);
    for (step = 0; step < STEPS; step++) {
        struct zero_step_info info;
        for (int a = 0; a < m->micro; a++)
            micro_step(z, m, step, a * m->ranks + rank);
        reference_step(r, step);
        for (int t = 3; t < TENSORS && !r->info.skipped; t++) /* the step is still to come */
            compare_array(z, step, t, ZERO_GRAD, r->mean[t]);
        EXPECT(!zero_step(z, &info), "step");
        compare_info(z, step, &info, r);
        compare(z, step, r);
        clipped += info.factor < 1;
    }
    EXPECT(clipped > 0 && clipped < STEPS - 2 && r->info.step == STEPS - 2, "%d clipped", clipped);
    zero_destroy(z);
    free(r);
}

static void run(const struct meaning *m)
{
    struct meaning copy = *m;
    ranks_run(m->ranks, train, &copy);
}

/* ------------------------------------------------------------------- the tests */

/* fp32, bf16, bf16 split, fp16: each with both decays, one and three micro-steps,
 * fp32 and bf16 sums; at every stage, in places that take turns. */
START_TEST(every_meaning)
{
    int row = 0;
    for (int n = 0; n < 8 * 4; n++, row++) {
        bool l2 = n & 1, many = n & 2, halves = n & 4;
        struct meaning m = {.ranks = 1 + (n + _i) % 3, .micro = many ? 3 : 1, .l2 = l2};
        m.config = (struct zero_config){.stage = n / 8,
                                        .dtype = _i == 3   ? ZERO_FP16
                                                 : _i == 0 ? ZERO_FP32
                                                           : ZERO_BF16,
                                        .state = _i == 2 ? ZERO_STATE_SPLIT : ZERO_STATE_FP32,
                                        .grad_dtype = halves ? ZERO_BF16 : ZERO_FP32,
                                        .offload = (enum zero_place)(ZERO_DEVICE + row % 3),
                                        .chunk = row % 2 ? 64 : 1088};
        run(&m);
    }
}
END_TEST

/* Each rank's own sums first. */
START_TEST(local_sums)
{
    for (int n = 0; n < 24; n++) {
        struct meaning m = {.ranks = 1 + n % 3, .micro = 1 + n / 3 % 2 * 2, .l2 = n % 2};
        m.config = (struct zero_config){.stage = n / 12,
                                        .dtype = (enum zero_dtype)(n % 3),
                                        .accumulate_in = ZERO_LOCAL,
                                        .grad_dtype = n / 6 % 2 ? ZERO_BF16 : ZERO_FP32,
                                        .offload = (enum zero_place)(ZERO_DEVICE + n / 2 % 3),
                                        .chunk = 256};
        run(&m);
    }
}
END_TEST

/* A fixed loss scale: a power of two does not change a bit, whatever the dtype;
 * another one is part of the arithmetic. An overflow leaves it. */
START_TEST(fixed_scales)
{
    const double scales[] = {1024, 0.25, 1000, 65536};
    for (int n = 0; n < 24; n++) {
        struct meaning m = {.ranks = 1 + n % 2, .micro = 1 + n / 2 % 2};
        double scale = scales[n / 6 % 4];
        m.config = (struct zero_config){.stage = n % 4,
                                        .dtype = (enum zero_dtype)(n % 3),
                                        .loss_scale = scale,
                                        .offload = (enum zero_place)(ZERO_DEVICE + n / 2 % 3)};
        /* fp16 has denormals: there the scale matters. */
        m.assumed_scale = scale != 1000 && m.config.dtype != ZERO_FP16 ? 1 : 0;
        run(&m);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("arithmetic");
    TCase *c = tcase_create("reference");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, every_meaning, 0, 4);
    tcase_add_test(c, local_sums);
    tcase_add_test(c, fixed_scales);
    suite_add_tcase(s, c);
    return suite_run_all(s);
}
