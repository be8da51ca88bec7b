// SPDX-License-Identifier: Apache-2.0
/*
 * Adam, sums, random numbers and digests of every instruction set this CPU has, against
 * definitions written here a second time and in another way, and the choice of a set. The
 * formats have a suite of their own. Equality is of bits, except that any NaN
 * equals any other.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "kernels/cpu/cpu.h"
#include "kernels/kernels.h"
#include "tests/support/kernels.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

/* ---- Adam */

/* The formula, every operation in double and rounded to float afterwards:
 * double has more than twice the digits of float, so that equals one rounding. */
static void adam_reference(const struct adam *k, float grad, float *master, float *m, float *v)
{
    float g = (float)((double)grad * (double)k->grad_scale);
    if (k->l2 != 0) {
        float decay = (float)((double)k->l2 * (double)*master);
        g = (float)((double)g + (double)decay);
    }
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
    return (struct state){.n = n,
                          .grad = malloc(bytes),
                          .master = malloc(bytes),
                          .m = malloc(bytes),
                          .v = malloc(bytes),
                          .bf16 = malloc(bytes / 2)};
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

static struct grads f32(const float *grad)
{
    return (struct grads){.f32 = grad};
}

/* The float at i, where n values of inside begin at offset within outside. */
static float splice(const float *outside, const float *inside, int n, int offset, int i)
{
    return i >= offset && i < offset + n ? inside[i - offset] : outside[i];
}

START_TEST(adam_ranges)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    enum { MOST = 257, ROOM = MOST + 64 };
    struct state around = state_sample(ROOM), now = state_create(ROOM), old = state_sample(MOST);
    struct state plain = state_sample(MOST), decayed = state_sample(MOST);
    state_step(&plain, &test_adams[0]);
    state_step(&decayed, &test_adams[TEST_ADAM_L2]);
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
            bool publish = (n + offset) & 1, l2 = (n + offset) & 2;
            struct state expect = l2 ? decayed : plain;
            const struct adam *k = &test_adams[l2 ? TEST_ADAM_L2 : 0];
            kernels->adam(n, k, f32(now.grad + at[0]), now.master + at[1], now.m + at[2],
                          now.v + at[3], publish ? now.bf16 + at[4] : NULL);
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
    state_destroy(&plain);
    state_destroy(&decayed);
}
END_TEST

/* Split masters: n weights and remainders in memory of their own. */
struct pairs {
    uint16_t *weight;
    int16_t *remainder;
};

static struct pairs pairs_split(const struct kernels *kernels, int64_t n, const float *master)
{
    size_t bytes = (size_t)n * sizeof(uint16_t);
    struct pairs p = {.weight = malloc(bytes), .remainder = malloc(bytes)};
    kernels->split(n, master, p.weight, p.remainder);
    return p;
}

static void pairs_destroy(struct pairs *p)
{
    free(p->weight);
    free(p->remainder);
}

/* From the same state adam_split goes where adam and then split went. */
static void split_check(const struct kernels *kernels, const struct adam *k,
                        const struct state *all, const struct state *expect, int64_t n)
{
    struct state now = state_create(n);
    state_copy(&now, all);
    struct pairs is = pairs_split(kernels, n, all->master);
    struct pairs should = pairs_split(kernels, n, expect->master);
    kernels->adam_split(n, k, f32(now.grad), is.weight, is.remainder, now.m, now.v);
    for (int64_t i = 0; i < n; i++) {
        if (is.weight[i] != should.weight[i] || is.remainder[i] != should.remainder[i] ||
            !same(now.m[i], expect->m[i]) || !same(now.v[i], expect->v[i]))
            ck_abort_msg("split: n %lld element %lld differs", (long long)n, (long long)i);
    }
    pairs_destroy(&is);
    pairs_destroy(&should);
    state_destroy(&now);
}

static void lengths_check(const struct kernels *kernels, const struct adam *k,
                          const struct state *all, const struct state *expect, int64_t n)
{
    struct state now = state_create(n);
    state_copy(&now, all);
    kernels->adam(n, k, f32(now.grad), now.master, now.m, now.v, now.bf16);
    for (int64_t i = 0; i < n; i++) {
        if (!same(now.master[i], expect->master[i]) || !same(now.m[i], expect->m[i]) ||
            !same(now.v[i], expect->v[i]) || now.bf16[i] != expect->bf16[i])
            ck_abort_msg("n %lld element %lld differs", (long long)n, (long long)i);
    }
    split_check(kernels, k, all, &now, n);
    state_destroy(&now);
}

START_TEST(adam_lengths)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    enum { MOST = (1 << 20) + 1 };
    struct state all = state_sample(MOST), expect = state_create(MOST);
    for (int k = 0; k < test_adam_count; k++) {
        state_copy(&expect, &all);
        state_step(&expect, &test_adams[k]);
        for (int power = 8; power <= 20; power++) {
            for (int more = -1; more <= 1; more++)
                lengths_check(kernels, &test_adams[k], &all, &expect, ((int64_t)1 << power) + more);
        }
    }
    state_destroy(&all);
    state_destroy(&expect);
}
END_TEST

START_TEST(adam_split_ranges)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    enum { MOST = 200, ROOM = MOST + 64 };
    struct state around = state_sample(ROOM), now = state_create(ROOM), old = state_sample(MOST);
    struct state expect[2] = {state_sample(MOST), state_sample(MOST)};
    struct pairs before = pairs_split(kernels, MOST, old.master), after[2];
    static uint16_t weight[ROOM];
    static int16_t remainder[ROOM];
    for (int l2 = 0; l2 < 2; l2++) {
        state_step(&expect[l2], &test_adams[l2 ? TEST_ADAM_L2 : 0]);
        after[l2] = pairs_split(kernels, MOST, expect[l2].master);
    }
    for (int n = 0; n <= MOST; n++) {
        for (int offset = 0; offset < 64; offset++) {
            int at[5] = {offset, (offset * 5 + 1) % 64, (offset * 11) % 64, (offset * 3 + 7) % 64,
                         (offset + 13) % 64};
            int l2 = (n + offset) & 1;
            size_t bytes = (size_t)n * sizeof(float);
            state_copy(&now, &around);
            memset(weight, 0xA5, sizeof(weight));
            memset(remainder, 0x5A, sizeof(remainder));
            memcpy(now.grad + at[0], old.grad, bytes);
            memcpy(weight + at[1], before.weight, bytes / 2);
            memcpy(remainder + at[4], before.remainder, bytes / 2);
            memcpy(now.m + at[2], old.m, bytes);
            memcpy(now.v + at[3], old.v, bytes);
            kernels->adam_split(n, &test_adams[l2 ? TEST_ADAM_L2 : 0], f32(now.grad + at[0]),
                                weight + at[1], remainder + at[4], now.m + at[2], now.v + at[3]);
            for (int i = 0; i < ROOM; i++) {
                int w = i - at[1], r = i - at[4];
                bool in_w = w >= 0 && w < n, in_r = r >= 0 && r < n;
                float m = splice(around.m, expect[l2].m, n, at[2], i);
                float v = splice(around.v, expect[l2].v, n, at[3], i);
                if (!same(now.m[i], m) || !same(now.v[i], v) ||
                    weight[i] != (in_w ? after[l2].weight[w] : 0xA5A5) ||
                    remainder[i] != (in_r ? after[l2].remainder[r] : 0x5A5A))
                    ck_abort_msg("n %d offset %d element %d differs", n, offset, i);
            }
        }
    }
    for (int l2 = 0; l2 < 2; l2++) {
        state_destroy(&expect[l2]);
        pairs_destroy(&after[l2]);
    }
    state_destroy(&around);
    state_destroy(&now);
    state_destroy(&old);
    pairs_destroy(&before);
}
END_TEST

/* From bf16 gradients, at any distance from a vector's edge, Adam goes where it goes
 * from what they widen to. */
static void bf16_grads_check(const struct kernels *kernels, const struct adam *k,
                             const struct state *all, const uint16_t *half, int n)
{
    struct state is = state_create(n), should = state_create(n);
    state_copy(&is, all);
    state_copy(&should, all);
    struct pairs a = pairs_split(kernels, n, all->master);
    struct pairs b = pairs_split(kernels, n, all->master);
    for (int i = 0; i < n; i++)
        should.grad[i] = bf16_value(half[i]);
    for (int split = 0; split < 2; split++) {
        struct grads grads[2] = {{.bf16 = half}, f32(should.grad)};
        struct state *of[2] = {&is, &should};
        struct pairs *masters[2] = {&a, &b};
        for (int j = 0; j < 2; j++)
            if (split)
                kernels->adam_split(n, k, grads[j], masters[j]->weight, masters[j]->remainder,
                                    of[j]->m, of[j]->v);
            else
                kernels->adam(n, k, grads[j], of[j]->master, of[j]->m, of[j]->v, of[j]->bf16);
        for (int i = 0; i < n; i++)
            if (!same(is.master[i], should.master[i]) || !same(is.m[i], should.m[i]) ||
                !same(is.v[i], should.v[i]) || is.bf16[i] != should.bf16[i] ||
                a.weight[i] != b.weight[i] || a.remainder[i] != b.remainder[i])
                ck_abort_msg("split %d n %d element %d differs", split, n, i);
    }
    pairs_destroy(&a);
    pairs_destroy(&b);
    state_destroy(&is);
    state_destroy(&should);
}

START_TEST(adam_bf16_grads)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    enum { MOST = 2048 + 77, LENGTHS = 140 };
    struct state all = state_sample(MOST);
    for (int i = 0; i < LENGTHS; i++) {
        int n = i < LENGTHS - 2 ? i : i == LENGTHS - 2 ? 512 + 31 : MOST;
        uint16_t *half = malloc((size_t)n * sizeof(*half));
        for (int j = 0; j < n; j++) /* every exponent, infinities and NaN among them */
            half[j] = (uint16_t)((unsigned)j * 40503u + (unsigned)i);
        bf16_grads_check(kernels, &test_adams[i % 2 ? TEST_ADAM_L2 : 0], &all, half, n);
        free(half);
    }
    state_destroy(&all);
}
END_TEST

/* Without L2 the master is not looked at: adding 0 * p would make the first
 * moment +0 where it is -0, and NaN where p is infinite. */
START_TEST(adam_without_l2)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    enum { N = 33 };
    float grad[N], master[N], m[N], v[N];
    uint16_t weight[N];
    int16_t remainder[N];
    struct adam k = test_adams[0];
    for (int split = 0; split < 2; split++) {
        for (int i = 0; i < N; i++) {
            master[i] = i % 2 ? 1.0f : INFINITY;
            grad[i] = m[i] = -0.0f;
            v[i] = 0;
        }
        k.l2 = split ? -0.0f : 0.0f;
        kernels->split(N, master, weight, remainder);
        if (split)
            kernels->adam_split(N, &k, f32(grad), weight, remainder, m, v);
        else
            kernels->adam(N, &k, f32(grad), master, m, v, NULL);
        for (int i = 0; i < N; i++)
            ck_assert_uint_eq(bits_of(m[i]), 0x80000000u);
    }
}
END_TEST

/* ---- sums over ranks */

#define SUM_RANKS 17
#define SUM_MOST  (64 * 33)

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
    return bf16_value(((const uint16_t *const *)arg)[rank][i]);
}

static float part_fp16(int rank, int64_t i, const void *arg)
{
    return fp16_value(((const uint16_t *const *)arg)[rank][i]);
}

enum sum_format { SUM_F32, SUM_BF16, SUM_FP16, SUM_FORMATS };

struct sum_case {
    const struct kernels *kernels;
    enum sum_format format;
    bool fresh, squares;
    int ranks, offset;
    int64_t n;
};

static double sum_expected(const struct sum_case *c, const float *const *parts32,
                           const uint16_t *const *parts16, float *acc, int64_t at)
{
    switch (c->format) {
    case SUM_F32: return sum_reference(c->ranks, part_f32, parts32, c->fresh, acc, at);
    case SUM_BF16: return sum_reference(c->ranks, part_bf16, parts16, c->fresh, acc, at);
    default: return sum_reference(c->ranks, part_fp16, parts16, c->fresh, acc, at);
    }
}

static void sum_run(const struct sum_case *c, const float *const *parts32,
                    const uint16_t *const *parts16, float *acc, double *squares)
{
    switch (c->format) {
    case SUM_F32: c->kernels->sum_f32(c->n, c->ranks, parts32, c->fresh, acc, squares); break;
    case SUM_BF16: c->kernels->sum_bf16(c->n, c->ranks, parts16, c->fresh, acc, squares); break;
    default: c->kernels->sum_fp16(c->n, c->ranks, parts16, c->fresh, acc, squares); break;
    }
}

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
        double expected = sum_expected(c, parts32, parts16, sum_expect, at);
        if (c->squares)
            squares_expect[1 + at / 64] = expected;
    }
    sum_run(c, parts32, parts16, sum, c->squares ? squares + 1 : NULL);
    for (int i = 0; i < SUM_MOST + 128; i++) {
        if (!same(acc[i], expect[i]))
            ck_abort_msg("format %d ranks %d n %d element %d", c->format, c->ranks, (int)c->n, i);
    }
    for (int b = 0; b < SUM_MOST / 64 + 2; b++) {
        if (!same_double(squares[b], squares_expect[b]))
            ck_abort_msg("format %d ranks %d n %d block %d", c->format, c->ranks, (int)c->n, b - 1);
    }
}

START_TEST(sums)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    float *wide[SUM_RANKS];
    uint16_t *narrow[SUM_FORMATS][SUM_RANKS];
    for (int r = 0; r < SUM_RANKS; r++) {
        wide[r] = malloc((SUM_MOST + 64) * sizeof(float));
        for (int f = 0; f < SUM_FORMATS; f++)
            narrow[f][r] = malloc((SUM_MOST + 64) * sizeof(uint16_t));
        for (int i = 0; i < SUM_MOST + 64; i++) {
            /* Most blocks stay finite, so that their squares are compared too. */
            float x = i / 64 % 3 ? (float)random_normal(9, (uint64_t)r, (uint64_t)i)
                                 : sample((uint64_t)(60 + r), i);
            wide[r][i] = i % 64 == 5 ? -0.0f : x;
            narrow[SUM_F32][r][i] = 0x7FFF; /* nobody's business: would be NaN */
            narrow[SUM_BF16][r][i] = (uint16_t)(bits_of(wide[r][i]) >> 16);
            narrow[SUM_FP16][r][i] = i / 64 % 3
                                         ? fp16_reference(wide[r][i])
                                         : (uint16_t)random_bits(10, (uint64_t)r, (uint64_t)i);
        }
    }
    static const int ranks[] = {1, 2, 3, 4, 8, 17};
    static const int64_t lengths[] = {0, 64, 128, 320, SUM_MOST};
    for (unsigned i = 0; i < 6 * 5 * 4 * SUM_FORMATS; i++) {
        struct sum_case c = {.kernels = kernels,
                             .fresh = i & 1,
                             .squares = i & 2,
                             .ranks = ranks[i / 4 % 6],
                             .n = lengths[i / 24 % 5],
                             .format = (enum sum_format)(i / 120)};
        for (c.offset = 0; c.offset < 64; c.offset += 9)
            sum_check(&c, wide, narrow[c.format]);
    }
    for (int r = 0; r < SUM_RANKS; r++) {
        free(wide[r]);
        for (int f = 0; f < SUM_FORMATS; f++)
            free(narrow[f][r]);
    }
}
END_TEST

/* acc is part number which: what it held counts as that part, and as the start
 * when it is not fresh. */
static void sum_alias_check(const struct kernels *kernels, int ranks, int which, bool fresh)
{
    enum { N = 64 * 5 };
    static float part[4][N], acc[N + 1], expect[N];
    double squares[N / 64], squares_expect[N / 64];
    const float *parts[4], *copies[4];
    for (int r = 0; r < ranks; r++) {
        for (int i = 0; i < N; i++)
            part[r][i] = (float)random_normal(14, (uint64_t)r, (uint64_t)i);
        parts[r] = r == which ? acc + 1 : part[r];
        copies[r] = part[r];
    }
    memcpy(acc + 1, part[which], sizeof(expect));
    memcpy(expect, part[which], sizeof(expect));
    for (int at = 0; at < N; at += 64)
        squares_expect[at / 64] = sum_reference(ranks, part_f32, copies, fresh, expect, at);
    kernels->sum_f32(N, ranks, parts, fresh, acc + 1, squares);
    ck_assert_mem_eq(acc + 1, expect, sizeof(expect));
    ck_assert_mem_eq(squares, squares_expect, sizeof(squares));
}

START_TEST(sum_alias)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    for (int ranks = 1; ranks <= 4; ranks++) {
        for (int which = 0; which < ranks; which++) {
            sum_alias_check(kernels, ranks, which, true);
            sum_alias_check(kernels, ranks, which, false);
        }
    }
}
END_TEST

/* Fresh starts from +0, so a sum of negative zeros is +0; else it stays -0. */
START_TEST(sum_signs)
{
    const struct kernels *kernels = test_kernels(_i);
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

/* ---- random numbers and digests */

/* Any part of a stream has the bits of single numbers, which random_test.c compares with
 * libm's and with golden ones. */
START_TEST(normals)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    enum { MOST = 300 };
    struct random_key key = random_key(14, 3);
    static const uint64_t firsts[] = {0, 1, 12346, ((uint64_t)1 << 40) - 129, UINT64_MAX - 7};
    for (size_t f = 0; f < sizeof(firsts) / sizeof(firsts[0]); f++) {
        float expect[MOST];
        for (int i = 0; i < MOST; i++) {
            double x = random_normal(14, 3, firsts[f] + (uint64_t)i);
            expect[i] = (float)(0.25 + 0.02 * x);
        }
        for (int n = 0; n <= MOST; n++) {
            float *out = malloc((size_t)(n + 1) * sizeof(*out));
            out[n] = 42;
            kernels->normal(n, &key, firsts[f], 0.25, 0.02, out);
            ck_assert_mem_eq(out, expect, (size_t)n * sizeof(*out));
            ck_assert(out[n] == 42);
            free(out);
        }
    }
}
END_TEST

START_TEST(digests)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    enum { MOST = 300 };
    for (int n = 0; n <= MOST; n++) {
        float *x = malloc((size_t)(n + 1) * sizeof(*x));
        uint64_t expect = 0, first = (uint64_t)n * 0x123456789ABCDEFu;
        for (int i = 0; i < n; i++) {
            x[i] = sample(5, n + i);
            uint32_t bits = isnan(x[i]) ? 0x7FC00000 : bits_of(x[i]);
            expect += random_mix((first + (uint64_t)i) * 0x9E3779B97F4A7C15u + bits);
        }
        ck_assert_uint_eq(kernels->digest(n, first, x), expect);
        free(x);
    }
}
END_TEST

/* ---- the choice */

START_TEST(select_unknown)
{
    struct error error = {0};
    ck_assert_ptr_null(kernels_select("sse9", &error));
    ck_assert_int_eq(error.status, ZERO_ERR_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(error.text, "\"sse9\""));
#if defined(__x86_64__)
    ck_assert_ptr_nonnull(strstr(error.text, "Set ZERO_ISA to scalar, avx2 or avx512, or unset"));
#elif defined(__aarch64__)
    ck_assert_ptr_nonnull(strstr(error.text, "Set ZERO_ISA to scalar or neon, or unset"));
#endif
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
    error = (struct error){0};
    ck_assert_ptr_null(kernels_choose("neon", CPU_AVX2 | CPU_NEON, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "neon do not run on this CPU"));
#endif
#ifdef __aarch64__
    ck_assert_str_eq(kernels_choose(NULL, CPU_NEON, &error)->isa, "neon");
    error = (struct error){0};
    ck_assert_ptr_null(kernels_choose("neon", 0, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "neon do not run on this CPU"));
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
    const unsigned ftz = 0x8000, daz = 0x0040, down = 0x2000, mask = 0x6000, no_traps = 0x1F80;
    _mm_setcsr((_mm_getcsr() | ftz | daz | down) & ~no_traps);
    kernels_thread_init();
    ck_assert_uint_eq(_mm_getcsr() & (ftz | daz | mask | no_traps), no_traps);
    volatile float tiny = 0x1p-126f, half = 0.5f;
    volatile float denormal = tiny * half;
    ck_assert_uint_eq(bits_of(denormal), 0x00400000u);
}
END_TEST
#endif

#ifdef __aarch64__
START_TEST(thread_init)
{
    const uint64_t fz = 1 << 24, dn = 1 << 25, ahp = 1 << 26, down = 2 << 22, mask = 3 << 22;
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr | fz | dn | ahp | down));
    kernels_thread_init();
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    ck_assert_uint_eq(fpcr & (fz | dn | ahp | mask), 0);
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
    tcase_add_loop_test(each, adam_ranges, 0, test_isa_count);
    tcase_add_loop_test(each, adam_lengths, 0, test_isa_count);
    tcase_add_loop_test(each, adam_split_ranges, 0, test_isa_count);
    tcase_add_loop_test(each, adam_bf16_grads, 0, test_isa_count);
    tcase_add_loop_test(each, adam_without_l2, 0, test_isa_count);
    tcase_add_loop_test(each, sums, 0, test_isa_count);
    tcase_add_loop_test(each, sum_alias, 0, test_isa_count);
    tcase_add_loop_test(each, sum_signs, 0, test_isa_count);
    tcase_add_loop_test(each, normals, 0, test_isa_count);
    tcase_add_loop_test(each, digests, 0, test_isa_count);
    tcase_add_test(choice, select_unknown);
    tcase_add_test(choice, select_lacking);
    tcase_add_test(choice, select_environment);
#if defined(__x86_64__) || defined(__aarch64__)
    tcase_add_test(choice, thread_init);
#endif
    suite_add_tcase(suite, each);
    suite_add_tcase(suite, choice);
    return suite_run_all(suite);
}
