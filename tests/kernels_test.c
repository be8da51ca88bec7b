// SPDX-License-Identifier: Apache-2.0
/*
 * Every kernel of every instruction set this CPU has, against definitions
 * written here a second time and in another way. Equality is of bits, except
 * that any NaN equals any other.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "kernels/cpu/cpu.h"
#include "kernels/kernels.h"
#include "src/random.h"
#include "tests/support/suite.h"

static const char *const isas[] = {"scalar", "avx2", "avx512"};
#define ISAS 3

/* The kernels under test: check's loop index chooses, NULL means skip. */
static const struct kernels *kernels_of(int i)
{
    struct error error = {0};
    const struct kernels *kernels = kernels_select(isas[i], &error);
    if (!kernels) {
        ck_assert_int_eq(error.status, ZERO_ERR_UNSUPPORTED);
        printf("skipped: %s\n", error.text);
    } else {
        ck_assert_str_eq(kernels->isa, isas[i]);
    }
    return kernels;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static bool same(float a, float b)
{
    return bits_of(a) == bits_of(b) || (isnan(a) && isnan(b));
}

static bool same_double(double a, double b)
{
    return memcmp(&a, &b, sizeof(a)) == 0 || (isnan(a) && isnan(b));
}

/* Half of them ordinary, the others specials, denormals and any bit pattern. */
static float sample(uint64_t stream, int64_t i)
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

/* ---- bf16 */

/* The nearer of the two neighbours, by distances in double; the one away from
 * zero when they are equal. Infinity lies where 2^128 would. */
static uint16_t bf16_reference(float x)
{
    if (isnan(x))
        return 0x7FC0;
    if (isinf(x))
        return x > 0 ? 0x7F80 : 0xFF80;
    uint16_t below = (uint16_t)(bits_of(x) >> 16), above = (uint16_t)(below + 1);
    double low = fabs((double)float_of((uint32_t)below << 16));
    double high = (above & 0x7FFF) == 0x7F80 ? 0x1p128
                                             : fabs((double)float_of((uint32_t)above << 16));
    double size = fabs((double)x);
    return size - low < high - size ? below : above;
}

START_TEST(bf16_rounding)
{
    const struct kernels *kernels = kernels_of(_i);
    if (!kernels)
        return;
    static const uint32_t lower[] = {0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
    enum { PATTERNS = 6 * 65536 };
    float *in = malloc(PATTERNS * sizeof(*in));
    uint16_t *out = malloc(PATTERNS * sizeof(*out));
    for (uint32_t i = 0; i < PATTERNS; i++)
        in[i] = float_of((i / 6) << 16 | lower[i % 6]);
    kernels->to_bf16(PATTERNS, in, out);
    for (int i = 0; i < PATTERNS; i++) {
        if (out[i] != bf16_reference(in[i]))
            ck_abort_msg("%08x became %04x", bits_of(in[i]), out[i]);
    }
    free(in);
    free(out);
}
END_TEST

START_TEST(bf16_widening)
{
    const struct kernels *kernels = kernels_of(_i);
    if (!kernels)
        return;
    enum { PATTERNS = 65536 };
    uint16_t *in = malloc(PATTERNS * sizeof(*in)), *back = malloc(PATTERNS * sizeof(*back));
    float *out = malloc(PATTERNS * sizeof(*out));
    for (int i = 0; i < PATTERNS; i++)
        in[i] = (uint16_t)i;
    kernels->from_bf16(PATTERNS, in, out);
    kernels->to_bf16(PATTERNS, out, back);
    for (int i = 0; i < PATTERNS; i++) {
        if (bits_of(out[i]) != (uint32_t)i << 16 || back[i] != (isnan(out[i]) ? 0x7FC0 : in[i]))
            ck_abort_msg("%04x became %08x, then %04x", in[i], bits_of(out[i]), back[i]);
    }
    free(in);
    free(back);
    free(out);
}
END_TEST

/* Every short length at every misalignment; what lies around stays. */
START_TEST(bf16_ranges)
{
    const struct kernels *kernels = kernels_of(_i);
    if (!kernels)
        return;
    enum { ROOM = 257 + 128 };
    static float wide[ROOM], back[ROOM];
    static uint16_t narrow[ROOM], rounded[ROOM];
    for (int i = 0; i < ROOM; i++) {
        wide[i] = sample(40, i);
        rounded[i] = bf16_reference(wide[i]);
    }
    for (int n = 0; n <= 257; n++) {
        for (int offset = 0; offset < 64; offset++) {
            int to = (offset * 7 + 3) % 64;
            memset(narrow, 0xA5, sizeof(narrow));
            memset(back, 0xA5, sizeof(back));
            kernels->to_bf16(n, wide + offset, narrow + to);
            kernels->from_bf16(n, narrow + to, back + offset);
            for (int i = 0; i < ROOM; i++) {
                bool in16 = i >= to && i < to + n, in32 = i >= offset && i < offset + n;
                uint16_t expect = in16 ? rounded[i - to + offset] : 0xA5A5;
                uint32_t expect32 = in32 ? (uint32_t)narrow[i - offset + to] << 16 : 0xA5A5A5A5u;
                if (narrow[i] != expect || bits_of(back[i]) != expect32)
                    ck_abort_msg("n %d offset %d element %d", n, offset, i);
            }
        }
    }
}
END_TEST

/* ---- Adam */

/* The formula, every operation in double and rounded to float afterwards:
 * double has more than twice the digits of float, so that equals one rounding. */
static void adam_reference(const struct adam *k, float grad, float *master, float *m, float *v)
{
    float g = (float)((double)grad * (double)k->grad_scale);
    float p = (float)((double)*master * (double)k->decay);
    float m_old = (float)((double)k->beta1 * (double)*m);
    float m_new = (float)((double)k->one_minus_beta1 * (double)g);
    *m = (float)((double)m_old + (double)m_new);
    float v_old = (float)((double)k->beta2 * (double)*v);
    float v_new = (float)((double)k->one_minus_beta2 * (double)g);
    v_new = (float)((double)v_new * (double)g);
    *v = (float)((double)v_old + (double)v_new);
    float root = (float)sqrt((double)*v);
    root = (float)((double)root * (double)k->root_scale);
    root = (float)((double)root + (double)k->eps);
    float ratio = (float)((double)*m / (double)root);
    float change = (float)((double)k->step_size * (double)ratio);
    *master = (float)((double)p - (double)change);
}

static const struct adam adams[] = {
    {.grad_scale = 1.0f, .decay = 0.99997f, .beta1 = 0.9f, .one_minus_beta1 = 0.1f, .beta2 = 0.95f,
     .one_minus_beta2 = 0.05f, .step_size = 3e-3f, .root_scale = 4.472136f, .eps = 1e-8f},
    {.grad_scale = 0.123f, .decay = 1.0f, .beta1 = 0.8f, .one_minus_beta1 = 0.2f, .beta2 = 0.999f,
     .one_minus_beta2 = 0.001f, .step_size = 1.5e-4f, .root_scale = 1.01f, .eps = 1e-15f},
    {.grad_scale = 1e-30f, .decay = 1.0f, .beta1 = 0.0f, .one_minus_beta1 = 1.0f, .beta2 = 0.0f,
     .one_minus_beta2 = 1.0f, .step_size = 0.0f, .root_scale = 1.0f, .eps = 1e-45f},
};
#define ADAMS ((int)(sizeof(adams) / sizeof(adams[0])))

/* Four arrays and the 16-bit copy, filled with samples, each in memory of its
 * own that ends where the array ends, so that a sanitizer sees every overrun. */
struct state {
    int64_t n;
    float *grad, *master, *m, *v;
    uint16_t *bf16;
};

static struct state state_create(int64_t n)
{
    size_t bytes = (size_t)n * sizeof(float);
    return (struct state){.n = n, .grad = malloc(bytes), .master = malloc(bytes),
                          .m = malloc(bytes), .v = malloc(bytes), .bf16 = malloc(bytes / 2)};
}

static struct state state_sample(int64_t n)
{
    struct state s = state_create(n);
    for (int64_t i = 0; i < n; i++) {
        s.grad[i] = sample(1, i);
        s.master[i] = sample(2, i);
        s.m[i] = sample(3, i);
        s.v[i] = i % 16 ? fabsf(sample(4, i)) : sample(4, i);
        s.bf16[i] = 0xA5A5;
    }
    return s;
}

static void state_destroy(struct state *s)
{
    free(s->grad);
    free(s->master);
    free(s->m);
    free(s->v);
    free(s->bf16);
}

/* The first elements of from, as many as to has. */
static void state_copy(struct state *to, const struct state *from)
{
    size_t bytes = (size_t)to->n * sizeof(float);
    memcpy(to->grad, from->grad, bytes);
    memcpy(to->master, from->master, bytes);
    memcpy(to->m, from->m, bytes);
    memcpy(to->v, from->v, bytes);
    memcpy(to->bf16, from->bf16, bytes / 2);
}

static void state_step(struct state *s, const struct adam *k)
{
    for (int64_t i = 0; i < s->n; i++) {
        adam_reference(k, s->grad[i], &s->master[i], &s->m[i], &s->v[i]);
        s->bf16[i] = bf16_reference(s->master[i]);
    }
}

/* The float at i, where n values of inside begin at offset within outside. */
static float splice(const float *outside, const float *inside, int n, int offset, int i)
{
    return i >= offset && i < offset + n ? inside[i - offset] : outside[i];
}

START_TEST(adam_ranges)
{
    const struct kernels *kernels = kernels_of(_i);
    if (!kernels)
        return;
    enum { MOST = 257, ROOM = MOST + 64 };
    struct state around = state_sample(ROOM), now = state_create(ROOM), old = state_sample(MOST);
    struct state expect = state_sample(MOST);
    const struct adam *k = &adams[0];
    state_step(&expect, k);
    for (int n = 0; n <= MOST; n++) {
        for (int offset = 0; offset < 64; offset++) {
            int at[5] = {offset, (offset * 5 + 1) % 64, (offset * 11) % 64, (offset * 3 + 7) % 64,
                         (offset + 13) % 64};
            size_t bytes = (size_t)n * sizeof(float);
            state_copy(&now, &around);
            memcpy(now.grad + at[0], old.grad, bytes);
            memcpy(now.master + at[1], old.master, bytes);
            memcpy(now.m + at[2], old.m, bytes);
            memcpy(now.v + at[3], old.v, bytes);
            bool publish = (n + offset) & 1;
            kernels->adam(n, k, now.grad + at[0], now.master + at[1], now.m + at[2], now.v + at[3],
                          publish ? now.bf16 + at[4] : NULL);
            for (int i = 0; i < ROOM; i++) {
                bool in16 = publish && i >= at[4] && i < at[4] + n;
                float grad = splice(around.grad, old.grad, n, at[0], i);
                float master = splice(around.master, expect.master, n, at[1], i);
                float m = splice(around.m, expect.m, n, at[2], i);
                float v = splice(around.v, expect.v, n, at[3], i);
                uint16_t bf16 = in16 ? expect.bf16[i - at[4]] : 0xA5A5;
                if (!same(now.grad[i], grad) || !same(now.master[i], master) ||
                    !same(now.m[i], m) || !same(now.v[i], v) || now.bf16[i] != bf16)
                    ck_abort_msg("n %d offset %d element %d differs", n, offset, i);
            }
        }
    }
    state_destroy(&around);
    state_destroy(&now);
    state_destroy(&old);
    state_destroy(&expect);
}
END_TEST

static void lengths_check(const struct kernels *kernels, const struct adam *k,
                          const struct state *all, const struct state *expect, int64_t n)
{
    struct state now = state_create(n);
    state_copy(&now, all);
    kernels->adam(n, k, now.grad, now.master, now.m, now.v, now.bf16);
    for (int64_t i = 0; i < n; i++) {
        if (!same(now.master[i], expect->master[i]) || !same(now.m[i], expect->m[i]) ||
            !same(now.v[i], expect->v[i]) || now.bf16[i] != expect->bf16[i])
            ck_abort_msg("n %lld element %lld differs", (long long)n, (long long)i);
    }
    state_destroy(&now);
}

START_TEST(adam_lengths)
{
    const struct kernels *kernels = kernels_of(_i);
    if (!kernels)
        return;
    enum { MOST = (1 << 20) + 1 };
    struct state all = state_sample(MOST), expect = state_create(MOST);
    for (int k = 0; k < ADAMS; k++) {
        state_copy(&expect, &all);
        state_step(&expect, &adams[k]);
        for (int power = 8; power <= 20; power++) {
            for (int more = -1; more <= 1; more++)
                lengths_check(kernels, &adams[k], &all, &expect, ((int64_t)1 << power) + more);
        }
    }
    state_destroy(&all);
    state_destroy(&expect);
}
END_TEST

/* ---- sums over ranks */

#define SUM_RANKS 17
#define SUM_MOST (64 * 33)

/* One block, written out: the sums by element, the squares by lane. */
static double sum_reference(int ranks, float part(int rank, int64_t i, const void *arg),
                            const void *arg, bool fresh, float *acc, int64_t at)
{
    for (int64_t i = at; i < at + 64; i++) {
        float sum = fresh ? 0.0f : acc[i];
        for (int r = 0; r < ranks; r++)
            sum = (float)((double)sum + (double)part(r, i, arg));
        acc[i] = sum;
    }
    double lane[8];
    for (int j = 0; j < 8; j++) {
        lane[j] = (double)acc[at + j] * (double)acc[at + j];
        for (int i = j + 8; i < 64; i += 8)
            lane[j] += (double)acc[at + i] * (double)acc[at + i];
    }
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static float part_f32(int rank, int64_t i, const void *arg)
{
    return ((const float *const *)arg)[rank][i];
}

static float part_bf16(int rank, int64_t i, const void *arg)
{
    return float_of((uint32_t)((const uint16_t *const *)arg)[rank][i] << 16);
}

struct sum_case {
    const struct kernels *kernels;
    bool narrow, fresh, squares;
    int ranks, offset;
    int64_t n;
};

/* Parts at several alignments; one element and one block too many on each side. */
static void sum_check(const struct sum_case *c, float *const wide[], uint16_t *const narrow[])
{
    static float acc[SUM_MOST + 128], expect[SUM_MOST + 128];
    static double squares[SUM_MOST / 64 + 2], squares_expect[SUM_MOST / 64 + 2];
    const float *parts32[SUM_RANKS];
    const uint16_t *parts16[SUM_RANKS];
    for (int r = 0; r < c->ranks; r++) {
        parts32[r] = wide[r] + (c->offset + r) % 64;
        parts16[r] = narrow[r] + (c->offset + r) % 64;
    }
    for (int i = 0; i < SUM_MOST + 128; i++)
        acc[i] = expect[i] = wide[0][i % SUM_MOST];
    for (int b = 0; b < SUM_MOST / 64 + 2; b++)
        squares[b] = squares_expect[b] = -1.0;
    float *sum = acc + 1 + c->offset % 63;
    float *sum_expect = expect + 1 + c->offset % 63;
    for (int64_t at = 0; at < c->n; at += 64) {
        double expected =
            c->narrow ? sum_reference(c->ranks, part_bf16, parts16, c->fresh, sum_expect, at)
                      : sum_reference(c->ranks, part_f32, parts32, c->fresh, sum_expect, at);
        if (c->squares)
            squares_expect[1 + at / 64] = expected;
    }
    double *square = c->squares ? squares + 1 : NULL;
    if (c->narrow)
        c->kernels->sum_bf16(c->n, c->ranks, parts16, c->fresh, sum, square);
    else
        c->kernels->sum_f32(c->n, c->ranks, parts32, c->fresh, sum, square);
    for (int i = 0; i < SUM_MOST + 128; i++) {
        if (!same(acc[i], expect[i]))
            ck_abort_msg("ranks %d n %d element %d", c->ranks, (int)c->n, i);
    }
    for (int b = 0; b < SUM_MOST / 64 + 2; b++) {
        if (!same_double(squares[b], squares_expect[b]))
            ck_abort_msg("ranks %d n %d block %d", c->ranks, (int)c->n, b - 1);
    }
}

START_TEST(sums)
{
    const struct kernels *kernels = kernels_of(_i);
    if (!kernels)
        return;
    float *wide[SUM_RANKS];
    uint16_t *narrow[SUM_RANKS];
    for (int r = 0; r < SUM_RANKS; r++) {
        wide[r] = malloc((SUM_MOST + 64) * sizeof(float));
        narrow[r] = malloc((SUM_MOST + 64) * sizeof(uint16_t));
        for (int i = 0; i < SUM_MOST + 64; i++) {
            /* Most blocks stay finite, so that their squares are compared too. */
            float x = i / 64 % 3 ? (float)random_normal(9, (uint64_t)r, (uint64_t)i)
                                 : sample((uint64_t)(60 + r), i);
            wide[r][i] = i % 64 == 5 ? -0.0f : x;
            narrow[r][i] = (uint16_t)(bits_of(wide[r][i]) >> 16);
        }
    }
    static const int ranks[] = {1, 2, 3, 4, 8, 17};
    static const int64_t lengths[] = {0, 64, 128, 320, SUM_MOST};
    for (unsigned i = 0; i < 6 * 5 * 8; i++) {
        struct sum_case c = {.kernels = kernels, .narrow = i & 1, .fresh = i & 2, .squares = i & 4,
                             .ranks = ranks[i / 8 % 6], .n = lengths[i / 48]};
        for (c.offset = 0; c.offset < 64; c.offset += 9)
            sum_check(&c, wide, narrow);
    }
    for (int r = 0; r < SUM_RANKS; r++) {
        free(wide[r]);
        free(narrow[r]);
    }
}
END_TEST

/* Fresh starts from +0, so a sum of negative zeros is +0; else it stays -0. */
START_TEST(sum_signs)
{
    const struct kernels *kernels = kernels_of(_i);
    if (!kernels)
        return;
    float part[64], acc[64];
    for (int i = 0; i < 64; i++)
        part[i] = acc[i] = -0.0f;
    const float *parts[2] = {part, part};
    kernels->sum_f32(64, 2, parts, false, acc, NULL);
    for (int i = 0; i < 64; i++)
        ck_assert_uint_eq(bits_of(acc[i]), 0x80000000u);
    kernels->sum_f32(64, 2, parts, true, acc, NULL);
    for (int i = 0; i < 64; i++)
        ck_assert_uint_eq(bits_of(acc[i]), 0);
}
END_TEST

/* ---- the choice */

START_TEST(select_unknown)
{
    struct error error = {0};
    ck_assert_ptr_null(kernels_select("sse9", &error));
    ck_assert_int_eq(error.status, ZERO_ERR_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(error.text, "\"sse9\""));
}
END_TEST

START_TEST(select_lacking)
{
    struct error error = {0};
    ck_assert_ptr_null(kernels_choose("avx512", CPU_AVX2, &error));
    ck_assert_int_eq(error.status, ZERO_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(error.text, "avx512 do not run on this CPU"));
#ifdef __x86_64__
    ck_assert_ptr_nonnull(strstr(error.text, "are avx2."));
    ck_assert_str_eq(kernels_choose(NULL, CPU_AVX2, &error)->isa, "avx2");
    ck_assert_str_eq(kernels_choose(NULL, CPU_AVX2 | CPU_AVX512, &error)->isa, "avx512");
    ck_assert_str_eq(kernels_choose("avx2", CPU_AVX2 | CPU_AVX512, &error)->isa, "avx2");
#endif
    ck_assert_str_eq(kernels_choose(NULL, 0, &error)->isa, "scalar");
    ck_assert_str_eq(kernels_choose("scalar", CPU_AVX2 | CPU_AVX512, &error)->isa, "scalar");
}
END_TEST

START_TEST(select_environment)
{
    struct error error = {0};
    setenv("ZERO_ISA", "scalar", 1);
    ck_assert_str_eq(kernels_select(NULL, &error)->isa, "scalar");
    setenv("ZERO_ISA", "", 1);
    ck_assert_ptr_nonnull(kernels_select(NULL, &error));
    setenv("ZERO_ISA", "mmx", 1);
    ck_assert_str_eq(kernels_select("scalar", &error)->isa, "scalar");
    ck_assert_ptr_null(kernels_select(NULL, &error));
    ck_assert_int_eq(error.status, ZERO_ERR_ARGUMENT);
    unsetenv("ZERO_ISA");
}
END_TEST

#ifdef __x86_64__
START_TEST(thread_init)
{
    const unsigned ftz = 0x8000, daz = 0x0040, down = 0x2000, mask = 0x6000;
    _mm_setcsr(_mm_getcsr() | ftz | daz | down);
    kernels_thread_init();
    ck_assert_uint_eq(_mm_getcsr() & (ftz | daz | mask), 0);
    volatile float tiny = 0x1p-126f, half = 0.5f;
    volatile float denormal = tiny * half;
    ck_assert_uint_eq(bits_of(denormal), 0x00400000u);
}
END_TEST
#endif

int main(void)
{
    unsetenv("ZERO_ISA");
    Suite *suite = suite_create("kernels");
    TCase *each = tcase_create("every instruction set"), *choice = tcase_create("choice");
    tcase_set_timeout(each, 60);
    tcase_add_loop_test(each, bf16_rounding, 0, ISAS);
    tcase_add_loop_test(each, bf16_widening, 0, ISAS);
    tcase_add_loop_test(each, bf16_ranges, 0, ISAS);
    tcase_add_loop_test(each, adam_ranges, 0, ISAS);
    tcase_add_loop_test(each, adam_lengths, 0, ISAS);
    tcase_add_loop_test(each, sums, 0, ISAS);
    tcase_add_loop_test(each, sum_signs, 0, ISAS);
    tcase_add_test(choice, select_unknown);
    tcase_add_test(choice, select_lacking);
    tcase_add_test(choice, select_environment);
#ifdef __x86_64__
    tcase_add_test(choice, thread_init);
#endif
    suite_add_tcase(suite, each);
    suite_add_tcase(suite, choice);
    return suite_run_all(suite);
}
