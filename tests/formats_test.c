// SPDX-License-Identifier: Apache-2.0
/*
 * The conversions of every instruction set this CPU has: bf16, fp16 and split
 * masters, over every pattern of 16 bits and the floats around it. All bits
 * count, also those of a NaN.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tests/support/kernels.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

#define PATTERNS 65536

/* A 16-bit format: its kernels, and what they are to compute. */
struct format {
    void (*to)(int64_t n, const float *in, uint16_t *out);
    void (*from)(int64_t n, const uint16_t *in, float *out);
    uint16_t (*narrow)(float x);
    float (*value)(uint16_t x);
};

static struct format bf16_of(const struct kernels *kernels)
{
    return (struct format){kernels->to_bf16, kernels->from_bf16, bf16_reference, bf16_value};
}

static struct format fp16_of(const struct kernels *kernels)
{
    return (struct format){kernels->to_fp16, kernels->from_fp16, fp16_reference, fp16_value};
}

static void narrow_check(const struct format *f, int n, const float *in)
{
    uint16_t *out = malloc((size_t)n * sizeof(*out));
    f->to(n, in, out);
    for (int i = 0; i < n; i++) {
        if (out[i] != f->narrow(in[i]))
            ck_abort_msg("%08x became %04x, not %04x", bits_of(in[i]), out[i], f->narrow(in[i]));
    }
    free(out);
}

/* Every pattern, wide and back; narrow(value(x)) is x but for NaN. */
static void widen_check(const struct format *f)
{
    uint16_t *in = malloc(PATTERNS * sizeof(*in)), *back = malloc(PATTERNS * sizeof(*back));
    float *out = malloc(PATTERNS * sizeof(*out));
    for (int i = 0; i < PATTERNS; i++)
        in[i] = (uint16_t)i;
    f->from(PATTERNS, in, out);
    f->to(PATTERNS, out, back);
    uint16_t nan = f->narrow(NAN);
    for (int i = 0; i < PATTERNS; i++) {
        uint16_t expect = isnan(f->value(in[i])) ? nan : in[i];
        if (bits_of(out[i]) != bits_of(f->value(in[i])) || back[i] != expect)
            ck_abort_msg("%04x became %08x, then %04x", in[i], bits_of(out[i]), back[i]);
    }
    free(in);
    free(back);
    free(out);
}

/* Every short length at every misalignment; what lies around stays. */
static void ranges_check(const struct format *f)
{
    enum { ROOM = 257 + 128 };
    static float wide[ROOM], back[ROOM];
    static uint16_t narrow[ROOM], rounded[ROOM];
    for (int i = 0; i < ROOM; i++) {
        wide[i] = sample(40, i);
        rounded[i] = f->narrow(wide[i]);
    }
    for (int n = 0; n <= 257; n++) {
        for (int offset = 0; offset < 64; offset++) {
            int to = (offset * 7 + 3) % 64;
            memset(narrow, 0xA5, sizeof(narrow));
            memset(back, 0xA5, sizeof(back));
            f->to(n, wide + offset, narrow + to);
            f->from(n, narrow + to, back + offset);
            for (int i = 0; i < ROOM; i++) {
                bool in16 = i >= to && i < to + n, in32 = i >= offset && i < offset + n;
                uint16_t expect = in16 ? rounded[i - to + offset] : 0xA5A5;
                uint32_t expect32 = in32 ? bits_of(f->value(narrow[i - offset + to])) : 0xA5A5A5A5u;
                if (narrow[i] != expect || bits_of(back[i]) != expect32)
                    ck_abort_msg("n %d offset %d element %d", n, offset, i);
            }
        }
    }
}

/* ---- bf16 */

START_TEST(bf16_rounding)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    static const uint32_t lower[] = {0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
    float *in = malloc(6 * PATTERNS * sizeof(*in));
    for (uint32_t i = 0; i < 6 * PATTERNS; i++)
        in[i] = float_of((i / 6) << 16 | lower[i % 6]);
    struct format f = bf16_of(kernels);
    narrow_check(&f, 6 * PATTERNS, in);
    free(in);
}
END_TEST

START_TEST(bf16_widening)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    struct format f = bf16_of(kernels);
    widen_check(&f);
}
END_TEST

START_TEST(bf16_ranges)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    struct format f = bf16_of(kernels);
    ranges_check(&f);
}
END_TEST

/* ---- fp16 */

/* Each half, the middle between it and the next, and the floats beside both:
 * every rounding there is, up to infinity and among the denormals. */
START_TEST(fp16_rounding)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    float *in = malloc(6 * PATTERNS * sizeof(*in));
    for (int i = 0; i < PATTERNS; i++) {
        float half = fp16_value((uint16_t)i), next = fp16_value((uint16_t)(i + 1));
        float most = isinf(next) ? copysignf(65536.0f, half) : next;
        float middle = isfinite(half) && isfinite(most) ? half + (most - half) / 2 : half;
        float *around = in + 6 * i;
        around[0] = half;
        around[1] = nextafterf(half, -INFINITY);
        around[2] = nextafterf(half, INFINITY);
        around[3] = middle;
        around[4] = nextafterf(middle, -INFINITY);
        around[5] = nextafterf(middle, INFINITY);
    }
    struct format f = fp16_of(kernels);
    narrow_check(&f, 6 * PATTERNS, in);
    free(in);
}
END_TEST

/* Every exponent and sign with random fractions: NaN payloads, floats beyond
 * both ends of fp16. */
START_TEST(fp16_any)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    float *in = malloc(6 * PATTERNS * sizeof(*in));
    for (uint32_t i = 0; i < 6 * PATTERNS; i++)
        in[i] = float_of(i << 23 | (uint32_t)(random_bits(11, 0, i) & 0x7FFFFF));
    struct format f = fp16_of(kernels);
    narrow_check(&f, 6 * PATTERNS, in);
    free(in);
}
END_TEST

START_TEST(fp16_edges)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    static const struct {
        float in;
        uint16_t out;
    } edge[] = {
        {65504, 0x7BFF},      {65519.996f, 0x7BFF}, {65520, 0x7C00},     {-65520, 0xFC00},
        {0x1p-24f, 0x0001},   {0x1p-25f, 0},        {-0x1p-25f, 0x8000}, {0x1.8p-24f, 0x0002},
        {0x1.8p-25f, 0x0001}, {0x1p-14f, 0x0400},   {1, 0x3C00},         {0x1.002p0f, 0x3C00},
        {0x1.006p0f, 0x3C02}, {-0.0f, 0x8000},      {0x1p-149f, 0},      {-0x1p-149f, 0x8000},
        {-INFINITY, 0xFC00},  {-NAN, 0x7E00},       {0x1p127f, 0x7C00},
    };
    enum { EDGES = sizeof(edge) / sizeof(edge[0]) };
    float in[EDGES + 16] = {0};
    uint16_t out[EDGES + 16];
    for (int i = 0; i < EDGES; i++)
        in[i] = edge[i].in;
    kernels->to_fp16(EDGES + 16, in, out);
    for (int i = 0; i < EDGES; i++)
        ck_assert_msg(out[i] == edge[i].out, "%a became %04x", (double)in[i], out[i]);
}
END_TEST

START_TEST(fp16_widening)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    struct format f = fp16_of(kernels);
    widen_check(&f);
}
END_TEST

START_TEST(fp16_ranges)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    struct format f = fp16_of(kernels);
    ranges_check(&f);
}
END_TEST

/* ---- split masters */

/* What split and join make of n masters. */
static void split_check(const struct kernels *kernels, int n, const float *master)
{
    uint16_t *weight = malloc((size_t)n * sizeof(*weight));
    int16_t *remainder = malloc((size_t)n * sizeof(*remainder));
    float *back = malloc((size_t)n * sizeof(*back));
    kernels->split(n, master, weight, remainder);
    kernels->join(n, weight, remainder, back);
    for (int i = 0; i < n; i++) {
        bool nan = isnan(master[i]);
        uint32_t bits = nan ? 0x7FC00000 : bits_of(master[i]);
        if (bits_of(back[i]) != bits || weight[i] != bf16_reference(master[i]) ||
            (nan && remainder[i] != 0))
            ck_abort_msg("%08x became %04x and %d, then %08x", bits_of(master[i]), weight[i],
                         remainder[i], bits_of(back[i]));
    }
    free(weight);
    free(remainder);
    free(back);
}

START_TEST(split_masters)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    static const uint32_t lower[] = {0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
    enum { LOWER = 16 };
    float *master = malloc(LOWER * PATTERNS * sizeof(*master));
    for (uint32_t i = 0; i < LOWER * PATTERNS; i++) {
        uint32_t which = i % LOWER, random = (uint32_t)random_bits(12, 0, i) & 0xFFFF;
        master[i] = float_of((i / LOWER) << 16 | (which < 6 ? lower[which] : random));
    }
    split_check(kernels, LOWER * PATTERNS, master);
    free(master);
}
END_TEST

/* The other way round: pairs are masters, each pair another one. */
START_TEST(split_pairs)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    uint16_t *weight = malloc(PATTERNS * sizeof(*weight)), *w = malloc(PATTERNS * sizeof(*w));
    int16_t *remainder = malloc(PATTERNS * sizeof(*remainder)), *r = malloc(PATTERNS * sizeof(*r));
    float *master = malloc(PATTERNS * sizeof(*master));
    for (int round = 0; round < 16; round++) {
        static const int16_t edge[] = {0, 1, -1, 32767, -32768, -32767};
        for (int i = 0; i < PATTERNS; i++) {
            uint64_t random = random_bits(13, (uint64_t)round, (uint64_t)i);
            weight[i] = (uint16_t)i;
            remainder[i] = round < 6 ? edge[round] : (int16_t)(uint16_t)random;
        }
        kernels->join(PATTERNS, weight, remainder, master);
        kernels->split(PATTERNS, master, w, r);
        for (int i = 0; i < PATTERNS; i++) {
            int64_t bits = ((int64_t)weight[i] << 16) + remainder[i];
            ck_assert_uint_eq(bits_of(master[i]), (uint32_t)bits);
            if (!isnan(master[i]) && (w[i] != weight[i] || r[i] != remainder[i]))
                ck_abort_msg("%04x and %d became %04x and %d", weight[i], remainder[i], w[i], r[i]);
        }
    }
    free(weight);
    free(remainder);
    free(w);
    free(r);
    free(master);
}
END_TEST

/* By hand: the largest float rounds to infinity and comes back. */
START_TEST(split_edges)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    static const struct {
        uint32_t master;
        uint16_t weight;
        int16_t remainder;
    } edge[] = {
        {0x7F7FFFFF, 0x7F80, -1},     {0xFF7F8000, 0xFF80, -32768}, {0x7F7F7FFF, 0x7F7F, 32767},
        {0x80000000, 0x8000, 0},      {0x0000FFFF, 0x0001, -1},     {0x80007FFF, 0x8000, 32767},
        {0x3F808000, 0x3F81, -32768}, {0x7F800000, 0x7F80, 0},      {0xFF800000, 0xFF80, 0},
        {0xFFFFFFFF, 0x7FC0, 0},      {0x7F800001, 0x7FC0, 0},      {0x7FFFFFFF, 0x7FC0, 0},
    };
    enum { EDGES = sizeof(edge) / sizeof(edge[0]) };
    float master[EDGES + 16] = {0};
    uint16_t weight[EDGES + 16];
    int16_t remainder[EDGES + 16];
    for (int i = 0; i < EDGES; i++)
        master[i] = float_of(edge[i].master);
    kernels->split(EDGES + 16, master, weight, remainder);
    for (int i = 0; i < EDGES; i++) {
        ck_assert_msg(weight[i] == edge[i].weight && remainder[i] == edge[i].remainder,
                      "%08x became %04x and %d", edge[i].master, weight[i], remainder[i]);
    }
}
END_TEST

START_TEST(split_ranges)
{
    const struct kernels *kernels = test_kernels(_i);
    if (!kernels)
        return;
    enum { MOST = 200, ROOM = MOST + 128 };
    static float master[ROOM], back[ROOM];
    static uint16_t weight[ROOM], all_weight[ROOM];
    static int16_t remainder[ROOM], all_remainder[ROOM];
    for (int i = 0; i < ROOM; i++)
        master[i] = sample(41, i);
    for (int i = 0; i < ROOM; i++)
        kernels->split(1, &master[i], &all_weight[i], &all_remainder[i]);
    split_check(kernels, ROOM, master);
    for (int n = 0; n <= MOST; n++) {
        for (int offset = 0; offset < 64; offset++) {
            int w = (offset * 7 + 3) % 64, r = (offset * 5 + 1) % 64;
            memset(weight, 0xA5, sizeof(weight));
            memset(remainder, 0x5A, sizeof(remainder));
            memset(back, 0xA5, sizeof(back));
            kernels->split(n, master + offset, weight + w, remainder + r);
            kernels->join(n, weight + w, remainder + r, back + offset);
            for (int i = 0; i < ROOM; i++) {
                bool in_w = i >= w && i < w + n, in_r = i >= r && i < r + n;
                bool in = i >= offset && i < offset + n;
                uint32_t bits = isnan(master[i]) ? 0x7FC00000 : bits_of(master[i]);
                if (weight[i] != (in_w ? all_weight[i - w + offset] : 0xA5A5) ||
                    remainder[i] != (in_r ? all_remainder[i - r + offset] : 0x5A5A) ||
                    bits_of(back[i]) != (in ? bits : 0xA5A5A5A5u))
                    ck_abort_msg("n %d offset %d element %d", n, offset, i);
            }
        }
    }
}
END_TEST

int main(void)
{
    unsetenv("ZERO_ISA");
    Suite *suite = suite_create("formats");
    TCase *each = tcase_create("every instruction set");
    tcase_set_timeout(each, 60);
    tcase_add_loop_test(each, bf16_rounding, 0, test_isa_count);
    tcase_add_loop_test(each, bf16_widening, 0, test_isa_count);
    tcase_add_loop_test(each, bf16_ranges, 0, test_isa_count);
    tcase_add_loop_test(each, fp16_rounding, 0, test_isa_count);
    tcase_add_loop_test(each, fp16_any, 0, test_isa_count);
    tcase_add_loop_test(each, fp16_edges, 0, test_isa_count);
    tcase_add_loop_test(each, fp16_widening, 0, test_isa_count);
    tcase_add_loop_test(each, fp16_ranges, 0, test_isa_count);
    tcase_add_loop_test(each, split_masters, 0, test_isa_count);
    tcase_add_loop_test(each, split_pairs, 0, test_isa_count);
    tcase_add_loop_test(each, split_edges, 0, test_isa_count);
    tcase_add_loop_test(each, split_ranges, 0, test_isa_count);
    suite_add_tcase(suite, each);
    return suite_run_all(suite);
}
