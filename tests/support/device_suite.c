// SPDX-License-Identifier: Apache-2.0
#include "tests/support/device_suite.h"

#include <assert.h>
#include <check.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/bf16.h"
#include "tests/support/must.h"
#include "tests/support/random.h"

#define MIB ((int64_t)1 << 20)

static char *alloc(struct device *d, int64_t bytes)
{
    struct error error = {0};
    char *memory = d->ops->alloc(d, bytes, &error);
    must(error.status, &error);
    ck_assert_uint_eq((uintptr_t)memory % 256, 0);
    return memory;
}

static void wait_for(struct device *d, const struct device_copy *copy)
{
    struct error error = {0};
    while (!d->ops->copied(d, copy)) {
        must(d->ops->status(d, &error), &error);
        sched_yield();
    }
}

static void copy(struct device *d, enum device_stream stream, void *to, const void *from,
                 int64_t bytes)
{
    struct device_copy c = {.to = to, .from = from, .bytes = bytes};
    d->ops->copy(d, stream, &c);
    wait_for(d, &c);
}

static void mark(struct device *d, enum device_stream stream)
{
    struct device_copy m;
    d->ops->mark(d, stream, &m);
    wait_for(d, &m);
}

static void put(struct device *d, void *to, const void *from, int64_t bytes, char *host)
{
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < DEVICE_SUITE_HOST ? bytes - at : DEVICE_SUITE_HOST;
        memcpy(host, (const char *)from + at, (size_t)n);
        copy(d, DEVICE_TO_DEVICE_MEMORY, (char *)to + at, host, n);
    }
}

static void *get(struct device *d, const void *from, int64_t bytes)
{
    struct error error = {0};
    void *to = malloc((size_t)bytes);
    must(d->ops->read(d, to, from, bytes, &error), &error);
    return to;
}

static void expect_bytes(struct device *d, const void *memory, const void *expected, int64_t bytes)
{
    void *seen = get(d, memory, bytes);
    ck_assert(!memcmp(seen, expected, (size_t)bytes));
    free(seen);
}

static float number(uint64_t i)
{
    return (float)(random_mix(i) >> 40) * 0x1p-20f - 8;
}

/* -------------------------------------------------------------------- memory */

static void memory(struct device *d, char *host)
{
    char *zeros = calloc(1, 3 * MIB);
    char *a = alloc(d, 3 * MIB), *b = alloc(d, 100);
    (void)host;
    expect_bytes(d, a, zeros, 3 * MIB);
    expect_bytes(d, b, zeros, 100);
    free(zeros);
}

/* There, within the device, and back; every length and edge of what was pinned at once. */
static void copies(struct device *d, char *host)
{
    int64_t half = DEVICE_SUITE_HOST / 2;
    char *a = alloc(d, half), *b = alloc(d, half);
    const int64_t lengths[] = {1, 100, 65535, 65536, 65537, 3 * 65536 + 1, half};
    for (int i = 0; i < 7; i++)
        for (int64_t skip = 0; skip < 2 && skip + lengths[i] <= half; skip++) {
            for (int64_t j = 0; j < half; j++)
                host[j] = (char)random_mix((uint64_t)(i * half + j));
            memset(host + half, 0, (size_t)half);
            copy(d, DEVICE_TO_DEVICE_MEMORY, a + skip, host + skip, lengths[i]);
            copy(d, DEVICE_SUMS, b + skip, a + skip, lengths[i]);
            copy(d, DEVICE_TO_HOST_MEMORY, host + half + skip, b + skip, lengths[i]);
            ck_assert(!memcmp(host + half + skip, host + skip, (size_t)lengths[i]));
        }
}

/* Each copy of a chain reads what the one before it wrote: a stream is in order, and its
 * last mark is behind them all. */
static void order(struct device *d, char *host)
{
    enum { LINKS = 60, BYTES = 8000 };
    char *chain = alloc(d, BYTES);
    struct device_copy *c = calloc(2 * LINKS, sizeof(*c)), last;
    for (int i = 0; i < BYTES; i++)
        host[i] = (char)i;
    for (int i = 0; i < LINKS; i++) {
        c[i] = (struct device_copy){.to = chain, .from = host + i * BYTES, .bytes = BYTES};
        memset(host + i * BYTES, i, BYTES);
        d->ops->copy(d, DEVICE_TO_DEVICE_MEMORY, &c[i]);
    }
    d->ops->mark(d, DEVICE_TO_DEVICE_MEMORY, &last);
    wait_for(d, &last);
    for (int i = 0; i < LINKS; i++)
        ck_assert(d->ops->copied(d, &c[i]));
    memset(host, LINKS - 1, BYTES);
    expect_bytes(d, chain, host, BYTES);
    free(c);
}

static void cleared(struct device *d, char *host)
{
    char *memory_ = alloc(d, 5000), *expected = malloc(5000);
    memset(expected, 7, 5000);
    put(d, memory_, expected, 5000, host);
    d->ops->clear(d, DEVICE_COMPUTE, memory_ + 100, 4000);
    mark(d, DEVICE_COMPUTE);
    d->ops->clear(d, DEVICE_UPDATE, memory_ + 4500, 1);
    mark(d, DEVICE_UPDATE);
    memset(expected + 100, 0, 4000);
    expected[4500] = 0;
    expect_bytes(d, memory_, expected, 5000);
    free(expected);
}

/* ---------------------------------------------------------------- arithmetic */

static float widen(enum zero_dtype dtype, const void *from, int64_t i)
{
    return dtype == ZERO_FP32 ? ((const float *)from)[i]
                              : bf16_to_float(((const uint16_t *)from)[i]);
}

/* What a piece's sums are, and the norm. */
struct sums {
    int64_t count;
    int ranks;
    enum zero_dtype dtype;
    bool fresh, last, round;
    void *part[300]; /* (ranks) */
    float *sum;
    struct wide norm;
};

static void expect_sums(struct sums *s)
{
    for (int64_t i = 0; i < s->count; i++) {
        float sum = s->fresh ? 0 : s->sum[i];
        for (int r = 0; r < s->ranks; r++)
            sum += widen(s->dtype, s->part[r], i);
        s->sum[i] = sum;
    }
    for (int64_t b = 0; s->last && b < s->count; b += KERNELS_BLOCK) {
        double lane[8] = {0};
        for (int j = 0; j < KERNELS_BLOCK; j++)
            lane[j % 8] += (double)s->sum[b + j] * s->sum[b + j];
        wide_add(&s->norm, ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
                               ((lane[1] + lane[5]) + (lane[3] + lane[7])));
    }
    for (int64_t i = 0; s->last && s->round && i < s->count; i++)
        s->sum[i] = bf16_to_float(bf16_from_float(s->sum[i]));
}

/* One sum by the device, and what it is by the letter. staged: parts but one come from host
 * memory, through scratch. */
static void sum(struct device *d, struct sums *s, char *host, bool staged, bool narrow)
{
    int64_t element = s->dtype == ZERO_FP32 ? 4 : 2, bytes = s->count * element;
    char *parts = alloc(d, s->ranks * bytes + 256 * s->ranks), *sums = alloc(d, s->count * 4);
    const void *at[300];
    put(d, sums, s->sum, s->count * 4, host);
    for (int r = 0; r < s->ranks; r++) {
        s->part[r] = malloc((size_t)bytes);
        for (int64_t i = 0; i < s->count; i++) {
            float x = number((uint64_t)(r * s->count + i));
            if (s->dtype == ZERO_FP32)
                ((float *)s->part[r])[i] = x;
            else
                ((uint16_t *)s->part[r])[i] = bf16_from_float(x);
        }
        bool own = r == s->ranks - 1;
        at[r] = staged && !own ? host + r * bytes : parts + (s->ranks - 1) * (bytes + 256);
        if (!staged) /* the own part's place may be that of the sums */
            at[r] = own && s->dtype == ZERO_FP32 && s->fresh ? sums : parts + r * bytes;
        if (own || !staged)
            put(d, (void *)at[r], s->part[r], bytes, host);
    }
    for (int r = 0; staged && r < s->ranks - 1; r++)
        memcpy(host + r * bytes, s->part[r], (size_t)bytes);
    expect_sums(s);
    struct device_sum op = {.count = s->count,
                            .ranks = s->ranks,
                            .parts = at,
                            .scratch = staged ? parts : NULL,
                            .own = s->ranks - 1,
                            .dtype = s->dtype,
                            .sum = sums,
                            .fresh = s->fresh,
                            .last = s->last,
                            .round = s->round,
                            .narrow = narrow};
    d->ops->sum(d, &op);
    if (staged)
        memset(host, 99, (size_t)bytes); /* what it needed has been read */
    mark(d, DEVICE_SUMS);
    uint16_t *half = malloc((size_t)s->count * 2);
    for (int64_t i = 0; i < s->count; i++)
        half[i] = bf16_from_float(s->sum[i]);
    expect_bytes(d, sums, narrow ? (void *)half : s->sum, s->count * (narrow ? 2 : 4));
    for (int r = 0; r < s->ranks; r++)
        free(s->part[r]);
    free(half);
}

static void expect_norm(struct device *d, struct wide *expected)
{
    struct error error = {0};
    struct wide seen;
    must(d->ops->norm(d, &seen, &error), &error);
    wide_carry(&seen);
    wide_carry(expected);
    ck_assert(!memcmp(seen.limb, expected->limb, sizeof(seen.limb)));
    ck_assert_int_eq(seen.nonfinite, expected->nonfinite);
    *expected = (struct wide){0};
}

static void sums_of(struct device *d, char *host, bool staged)
{
    const int ranks[] = {1, 2, 3, 257};
    float *grown = malloc(8192 * 4);
    struct sums s = {.sum = grown};
    d->room = alloc(d, device_sum_room(8192, true, 257));
    for (int i = 0; i < 24; i++) {
        s.ranks = ranks[i % (staged ? 3 : 4)];
        s.count = s.ranks > 3 ? 192 : i % 2 ? 8192 : 64 * (1 + i);
        s.dtype = i / 4 % 2 ? ZERO_FP32 : ZERO_BF16;
        s.fresh = i % 3 != 1, s.last = i % 3 != 0, s.round = i % 5 == 2;
        for (int64_t j = 0; j < s.count; j++)
            grown[j] = number((uint64_t)j);
        sum(d, &s, host, staged, s.fresh && s.last && s.round);
        if (i % 4 == 3)
            expect_norm(d, &s.norm);
    }
    expect_norm(d, &s.norm); /* taken: nothing is left */
    d->room = NULL;
    free(grown);
}

static void sums_from_host(struct device *d, char *host)
{
    sums_of(d, host, true);
}

static void sums_on_device(struct device *d, char *host)
{
    sums_of(d, host, false);
}

/* Both halves are numbers of bf16, for what reads 16 bits at a time: none is a NaN, of which no
 * rule says what bits come. */
static float number_of_halves(uint64_t i)
{
    uint32_t bits = (uint32_t)bf16_from_float(fabsf(number(2 * i)) / 16) << 16 |
                    bf16_from_float(fabsf(number(2 * i + 1)) / 16);
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Every format, against adam_step in memory of the host. */
static void adam(struct device *d, char *host)
{
    enum { N = 5000, ARRAYS = 6 };
    struct error error = {0};
    const struct kernels *kernels = kernels_select("scalar", &error);
    const struct adam k = {0.5f, 0.999f, 0.9f, 0.1f, 0.95f, 0.05f, 1e-3f, 1.1f, 1e-8f, 0};
    static float array[ARRAYS][N];
    char *there = alloc(d, sizeof(array));
    for (int format = 0; format < 5; format++) {
        for (int i = 0; i < ARRAYS * N; i++)
            array[i / N][i % N] = number_of_halves((uint64_t)i);
        put(d, there, array, sizeof(array), host);
        struct adam_stretch s = {.count = N, .constants = k, .dtype = ZERO_BF16};
        for (int where = 0; where < 2; where++) {
            float *a = where ? (float *)(void *)there : array[0];
            s.grads.f32 = format % 2 ? NULL : a;
            s.grads.bf16 = format % 2 ? (const uint16_t *)(const void *)a : NULL;
            s.m = a + N, s.v = a + 2 * N, s.param = a + 3 * N;
            s.master = format ? a + 4 * N : NULL;
            s.remainder = format ? NULL : (int16_t *)(void *)(a + 5 * N);
            s.dtype = format == 3 ? ZERO_FP16 : format == 4 ? ZERO_FP32 : ZERO_BF16;
            if (where)
                d->ops->adam(d, &s);
            else
                adam_step(kernels, &s);
        }
        mark(d, DEVICE_UPDATE);
        expect_bytes(d, there, array, sizeof(array));
    }
}

void device_suite_run(int i, struct device *device, char *host)
{
    static void (*const cases[DEVICE_SUITE_CASES])(struct device * d, char *host) = {
        memory, copies, order, cleared, sums_on_device, sums_from_host, adam};
    static_assert(DEVICE_SUITE_STAGED == 5, "its place");
    cases[i](device, host);
}
