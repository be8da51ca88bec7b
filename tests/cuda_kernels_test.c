// SPDX-License-Identifier: Apache-2.0
/*
 * launch.h against kernels.h on the CPU: equal bits, except that any NaN which
 * arithmetic makes equals any other. Linked with nvcc's kernels it is the test of a
 * GPU; with the fake runtime its own bodies are tested, and the same kernels that
 * nvcc compiles, run on the host (tests/support/fake_nvcc.h).
 *
 * Every array lies in a buffer with a margin on each side, and the whole buffer is
 * compared.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/launch.h"
#include "src/norm.h"
#include "tests/support/gpus.h"
#include "tests/support/kernels.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

#define MARGIN 16 /* elements */

/* Around what a thread, a warp and a block of threads do at a time. */
static const int64_t lengths[] = {0,    1,    2,    3,    4,    5,    7,      31,
                                  64,   127,  255,  256,  257,  1023, 1024,   1025,
                                  4095, 4096, 4097, 8191, 8193, 9999, 1 << 16};
#define LENGTHS ((int)(sizeof(lengths) / sizeof(lengths[0])))
#define MOST    (1 << 16)

/* Of kernels on a host: tests/support/fake_cuda_parts.h. */
#pragma weak fake_nvcc_order
#pragma weak fake_unloaded
extern int fake_nvcc_order, fake_unloaded;

static cudaStream_t stream;
static const struct kernels *cpu;

static void ok(cudaError_t error)
{
    ck_assert_msg(error == cudaSuccess, "%s", cudaGetErrorName(error));
}

/* False: there is no GPU. Each test has a process of its own,
 * and no GPU is touched before. */
static bool begin(void)
{
    struct error error = {0};
    if (gpus_begin(NULL) == 0) {
        printf("skipped: there is no GPU\n");
        return false;
    }
    ok(cudaSetDevice(0));
    ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ok(launch_load());
    cpu = kernels_select(NULL, &error);
    ck_assert_ptr_nonnull(cpu);
    return true;
}

static void end(void)
{
    ok(cudaStreamSynchronize(stream));
    ok(cudaStreamDestroy(stream));
    ck_assert_int_eq(gpus_end(), 0);
    ck_assert_int_eq(&fake_unloaded ? fake_unloaded : 0, 0);
}

/* --------------------------------------------------------------------- buffers */

enum type { F32, U16 };

/* An array three times: on the GPU, as the CPU leaves it, and for what comes back. */
struct buffer {
    enum type type;
    size_t bytes;
    char *gpu, *expect, *back;
};

static size_t size_of(enum type type)
{
    return type == F32 ? sizeof(float) : sizeof(uint16_t);
}

static struct buffer buffer_new(enum type type, int64_t n)
{
    struct buffer b = {.type = type, .bytes = (size_t)(n + 2 * MARGIN) * size_of(type)};
    ok(cudaMalloc((void **)&b.gpu, b.bytes));
    b.expect = malloc(b.bytes);
    b.back = malloc(b.bytes);
    return b;
}

static void buffer_free(struct buffer *b)
{
    ok(cudaFree(b->gpu));
    free(b->expect);
    free(b->back);
}

/* Fills it, floats with samples, 16-bit elements with any bits, and copies it there. */
static void buffer_fill(struct buffer *b, uint64_t number)
{
    int64_t n = (int64_t)(b->bytes / size_of(b->type));
    for (int64_t i = 0; i < n; i++) {
        uint16_t half = (uint16_t)random_bits(21, number, (uint64_t)i);
        float x = sample(number, i);
        memcpy(b->expect + (size_t)i * size_of(b->type), b->type == F32 ? (void *)&x : &half,
               size_of(b->type));
    }
    ok(cudaMemcpy(b->gpu, b->expect, b->bytes, cudaMemcpyHostToDevice));
}

/* The array in the buffer that begins at an offset, at most MARGIN. */
static void *on_gpu(const struct buffer *b, int at)
{
    return b->gpu + (size_t)at * size_of(b->type);
}

static void *on_cpu(const struct buffer *b, int at)
{
    return b->expect + (size_t)at * size_of(b->type);
}

/* Bits; of floats that arithmetic made, NaNs are one. */
static void buffer_check(struct buffer *b, bool arithmetic, const char *what, int64_t n, int offset)
{
    ok(cudaMemcpy(b->back, b->gpu, b->bytes, cudaMemcpyDeviceToHost));
    if (memcmp(b->back, b->expect, b->bytes) == 0)
        return;
    for (size_t at = 0; at < b->bytes; at += size_of(b->type)) {
        float is, should;
        bool equal = memcmp(b->back + at, b->expect + at, size_of(b->type)) == 0;
        if (!equal && arithmetic && b->type == F32) {
            memcpy(&is, b->back + at, sizeof(is));
            memcpy(&should, b->expect + at, sizeof(should));
            equal = same(is, should);
        }
        if (!equal)
            ck_abort_msg("%s, n %lld, offset %d: element %lld of the buffer differs", what,
                         (long long)n, offset, (long long)(at / size_of(b->type)));
    }
}

/* Copies from pageable memory may still be on their way to the default stream. */
static void filled(void)
{
    ok(cudaStreamSynchronize(NULL));
}

static void ran(void)
{
    ok(cudaStreamSynchronize(stream));
}

/* ------------------------------------------------------------------------ Adam */

enum adam_array { GRAD32, GRAD16, MASTER, M, V, HALF, REMAINDER, ADAM_ARRAYS };

/* One launch: its arrays begin at different places when offset is not 0. */
static void adam_check(struct buffer *b, int64_t n, int offset, bool split, bool grad16)
{
    int at[ADAM_ARRAYS];
    const struct adam *k = &test_adams[(n + offset) % test_adam_count];
    bool publish = (n + offset / 2) % 2;
    for (int i = 0; i < ADAM_ARRAYS; i++) {
        at[i] = offset ? (offset * (2 * i + 1) + i) % MARGIN : MARGIN;
        buffer_fill(&b[i], (uint64_t)(i + 100 * offset));
    }
    filled();
    struct grads there = {.f32 = grad16 ? NULL : on_gpu(&b[GRAD32], at[GRAD32]),
                          .bf16 = grad16 ? on_gpu(&b[GRAD16], at[GRAD16]) : NULL};
    struct grads here = {.f32 = grad16 ? NULL : on_cpu(&b[GRAD32], at[GRAD32]),
                         .bf16 = grad16 ? on_cpu(&b[GRAD16], at[GRAD16]) : NULL};
    if (split) {
        ok(launch_adam_split(stream, n, k, there, on_gpu(&b[HALF], at[HALF]),
                             on_gpu(&b[REMAINDER], at[REMAINDER]), on_gpu(&b[M], at[M]),
                             on_gpu(&b[V], at[V])));
        cpu->adam_split(n, k, here, on_cpu(&b[HALF], at[HALF]),
                        on_cpu(&b[REMAINDER], at[REMAINDER]), on_cpu(&b[M], at[M]),
                        on_cpu(&b[V], at[V]));
    } else {
        ok(launch_adam(stream, n, k, there, on_gpu(&b[MASTER], at[MASTER]), on_gpu(&b[M], at[M]),
                       on_gpu(&b[V], at[V]), publish ? on_gpu(&b[HALF], at[HALF]) : NULL));
        cpu->adam(n, k, here, on_cpu(&b[MASTER], at[MASTER]), on_cpu(&b[M], at[M]),
                  on_cpu(&b[V], at[V]), publish ? on_cpu(&b[HALF], at[HALF]) : NULL);
    }
    ran();
    for (int i = 0; i < ADAM_ARRAYS; i++)
        buffer_check(&b[i], true, split ? "adam_split" : "adam", n, offset);
}

START_TEST(adam)
{
    static const enum type types[ADAM_ARRAYS] = {F32, U16, F32, F32, F32, U16, U16};
    bool split = _i & 1, grad16 = _i & 2;
    if (!begin())
        return;
    for (int l = 0; l < LENGTHS; l++) {
        struct buffer b[ADAM_ARRAYS];
        for (int i = 0; i < ADAM_ARRAYS; i++)
            b[i] = buffer_new(types[i], lengths[l]);
        for (int offset = 0; offset < (lengths[l] > 10000 ? 2 : 6); offset++)
            adam_check(b, lengths[l], offset, split, grad16);
        for (int i = 0; i < ADAM_ARRAYS; i++)
            buffer_free(&b[i]);
    }
    end();
}
END_TEST

/* --------------------------------------------------------------------- formats */

enum format { TO_BF16, FROM_BF16, TO_FP16, FORMATS };
static const char *const format_names[FORMATS] = {"to_bf16", "from_bf16", "to_fp16"};

static cudaError_t format_launch(enum format format, int64_t n, float *wide, uint16_t *half)
{
    switch (format) {
    case TO_BF16: return launch_to_bf16(stream, n, wide, half);
    case FROM_BF16: return launch_from_bf16(stream, n, half, wide);
    default: return launch_to_fp16(stream, n, wide, half);
    }
}

static void format_run(enum format format, int64_t n, float *wide, uint16_t *half)
{
    switch (format) {
    case TO_BF16: cpu->to_bf16(n, wide, half); break;
    case FROM_BF16: cpu->from_bf16(n, half, wide); break;
    default: cpu->to_fp16(n, wide, half); break;
    }
}

/* The contents of the buffers are there already. */
static void format_check(enum format format, struct buffer *b, int64_t n, const int *at, int offset)
{
    filled();
    ok(format_launch(format, n, on_gpu(&b[0], at[0]), on_gpu(&b[1], at[1])));
    format_run(format, n, on_cpu(&b[0], at[0]), on_cpu(&b[1], at[1]));
    ran();
    for (int i = 0; i < 2; i++)
        buffer_check(&b[i], false, format_names[format], n, offset);
}

START_TEST(format_lengths)
{
    if (!begin())
        return;
    for (int l = 0; l < LENGTHS; l++) {
        struct buffer b[2] = {buffer_new(F32, lengths[l]), buffer_new(U16, lengths[l])};
        for (int offset = 0; offset < (lengths[l] > 10000 ? 2 : 6); offset++) {
            int at[2];
            for (int i = 0; i < 2; i++) {
                at[i] = offset ? (offset * (2 * i + 1) + i) % MARGIN : MARGIN;
                buffer_fill(&b[i], (uint64_t)(i + 10 * offset));
            }
            format_check((enum format)_i, b, lengths[l], at, offset);
        }
        for (int i = 0; i < 2; i++)
            buffer_free(&b[i]);
    }
    end();
}
END_TEST

/* All halves there are, and around each the floats where rounding to it turns. */
static void every_half(enum format format, float *wide, uint16_t *half, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = (uint16_t)(i / 8);
        half[i] = h;
        uint32_t bits = bits_of(format == TO_FP16 ? fp16_value(h) : bf16_value(h));
        uint32_t middle = format == TO_FP16 ? 0x1000 : 0x8000;
        static const int around[8] = {0, -1, 1, 0, -1, 1, 2, 1000};
        wide[i] = float_of(bits + (i % 8 >= 3 ? middle : 0) + (uint32_t)around[i % 8]);
    }
}

START_TEST(format_values)
{
    if (!begin())
        return;
    enum { N = 8 << 16 };
    struct buffer b[2] = {buffer_new(F32, N), buffer_new(U16, N)};
    int at[2] = {MARGIN, MARGIN};
    for (int i = 0; i < 2; i++)
        buffer_fill(&b[i], (uint64_t)i);
    every_half((enum format)_i, on_cpu(&b[0], MARGIN), on_cpu(&b[1], MARGIN), N);
    for (int i = 0; i < 2; i++)
        ok(cudaMemcpy(b[i].gpu, b[i].expect, b[i].bytes, cudaMemcpyHostToDevice));
    format_check((enum format)_i, b, N, at, 0);
    for (int i = 0; i < 2; i++)
        buffer_free(&b[i]);
    end();
}
END_TEST

/* ------------------------------------------------------------------------ sums */

enum sum_format { SUM_F32, SUM_BF16, SUM_FP16, SUM_FORMATS };
#define SUM_MOST (64 * 70)

struct sum_case {
    enum sum_format format;
    int64_t n;
    int ranks, offset;
    bool fresh, squares;
    int alias; /* the part that acc is; -1: none */
};

static cudaError_t sum_launch(const struct sum_case *c, void *const *parts, float *acc,
                              double *squares)
{
    switch (c->format) {
    case SUM_F32:
        return launch_sum_f32(stream, c->n, c->ranks, (const float *const *)parts, c->fresh, acc,
                              squares);
    case SUM_BF16:
        return launch_sum_bf16(stream, c->n, c->ranks, (const uint16_t *const *)parts, c->fresh,
                               acc, squares);
    default:
        return launch_sum_fp16(stream, c->n, c->ranks, (const uint16_t *const *)parts, c->fresh,
                               acc, squares);
    }
}

static void sum_run(const struct sum_case *c, void *const *parts, float *acc, double *squares)
{
    switch (c->format) {
    case SUM_F32:
        cpu->sum_f32(c->n, c->ranks, (const float *const *)parts, c->fresh, acc, squares);
        break;
    case SUM_BF16:
        cpu->sum_bf16(c->n, c->ranks, (const uint16_t *const *)parts, c->fresh, acc, squares);
        break;
    default:
        cpu->sum_fp16(c->n, c->ranks, (const uint16_t *const *)parts, c->fresh, acc, squares);
        break;
    }
}

/* One long array of each kind serves for all ranks: rank r's part begins at element r. */
struct sum_arrays {
    struct buffer parts32, parts16, acc;
    double *squares, expect[SUM_MOST / 64 + 2], back[SUM_MOST / 64 + 2];
};

static void sum_check(const struct sum_case *c, struct sum_arrays *a)
{
    void *there[LAUNCH_PARTS_MAX], *here[LAUNCH_PARTS_MAX];
    struct buffer *parts = c->format == SUM_F32 ? &a->parts32 : &a->parts16;
    int acc_at = c->offset ? c->offset % MARGIN : MARGIN;
    for (int r = 0; r < c->ranks; r++) {
        int at = c->offset ? (c->offset * (r + 1) + r + 1) % MARGIN : MARGIN * (r % 2);
        there[r] = r == c->alias ? on_gpu(&a->acc, acc_at) : on_gpu(parts, at);
        here[r] = r == c->alias ? on_cpu(&a->acc, acc_at) : on_cpu(parts, at);
    }
    buffer_fill(&a->acc, (uint64_t)c->n);
    for (int i = 0; i < SUM_MOST / 64 + 2; i++)
        a->expect[i] = -1.0;
    ok(cudaMemcpy(a->squares, a->expect, sizeof(a->expect), cudaMemcpyHostToDevice));
    filled();
    ok(sum_launch(c, there, on_gpu(&a->acc, acc_at), c->squares ? a->squares + 1 : NULL));
    sum_run(c, here, on_cpu(&a->acc, acc_at), c->squares ? a->expect + 1 : NULL);
    ran();
    buffer_check(&a->acc, true, "sum", c->n, c->offset);
    ok(cudaMemcpy(a->back, a->squares, sizeof(a->back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < SUM_MOST / 64 + 2; i++)
        if (!same_double(a->back[i], a->expect[i]))
            ck_abort_msg("format %d, n %lld, ranks %d: square %d is %a, not %a", c->format,
                         (long long)c->n, c->ranks, i - 1, a->back[i], a->expect[i]);
}

/* Most blocks finite, so that their squares are compared too. */
static void sum_parts(struct sum_arrays *a, enum sum_format format)
{
    buffer_fill(&a->parts32, 3);
    buffer_fill(&a->parts16, 4);
    float *wide = on_cpu(&a->parts32, 0);
    uint16_t *half = on_cpu(&a->parts16, 0);
    for (int i = 0; i < SUM_MOST + 2 * MARGIN; i++) {
        float x = (float)random_normal(22, 0, (uint64_t)i);
        if (i / 64 % 3 == 0)
            continue;
        wide[i] = i % 64 == 5 ? -0.0f : x;
        half[i] = format == SUM_FP16 ? fp16_reference(wide[i]) : bf16_reference(wide[i]);
    }
    ok(cudaMemcpy(a->parts32.gpu, wide, a->parts32.bytes, cudaMemcpyHostToDevice));
    ok(cudaMemcpy(a->parts16.gpu, half, a->parts16.bytes, cudaMemcpyHostToDevice));
}

static struct sum_arrays sum_arrays_new(void)
{
    struct sum_arrays a = {buffer_new(F32, SUM_MOST),
                           buffer_new(U16, SUM_MOST),
                           buffer_new(F32, SUM_MOST),
                           NULL,
                           {0},
                           {0}};
    ok(cudaMalloc((void **)&a.squares, sizeof(a.expect)));
    return a;
}

static void sum_arrays_free(struct sum_arrays *a)
{
    buffer_free(&a->parts32);
    buffer_free(&a->parts16);
    buffer_free(&a->acc);
    ok(cudaFree(a->squares));
}

START_TEST(sums)
{
    static const int ranks[] = {1, 2, 3, 4, 5, 17, LAUNCH_PARTS_MAX};
    static const int64_t blocks[] = {0, 1, 2, 3, 4, 5, 31, 32, 33, 70};
    /* Of acc, which is aligned beside parts that are not, and not beside one that is. */
    static const int offsets[] = {0, 3, 4, 8};
    static struct sum_arrays a;
    if (!begin())
        return;
    a = sum_arrays_new();
    sum_parts(&a, (enum sum_format)_i);
    for (int i = 0; i < 7 * 10 * 8; i++) {
        struct sum_case c = {.format = (enum sum_format)_i,
                             .n = 64 * blocks[i / 7 % 10],
                             .ranks = ranks[i % 7],
                             .offset = offsets[i / 140],
                             .fresh = i & 1,
                             .squares = i / 70 % 2,
                             .alias = -1};
        sum_check(&c, &a);
        c.alias = i % c.ranks;
        if (c.format == SUM_F32)
            sum_check(&c, &a);
    }
    sum_arrays_free(&a);
    end();
}
END_TEST

/* Fresh starts from +0, so a sum of negative zeros is +0; else it stays -0. */
START_TEST(sum_signs)
{
    if (!begin())
        return;
    struct buffer part = buffer_new(F32, 64), acc = buffer_new(F32, 64);
    for (int fresh = 0; fresh < 2; fresh++) {
        const float *there[2] = {on_gpu(&part, 0), on_gpu(&part, 0)};
        for (int i = 0; i < 64 + 2 * MARGIN; i++)
            ((float *)on_cpu(&part, 0))[i] = ((float *)on_cpu(&acc, 0))[i] = -0.0f;
        ok(cudaMemcpy(part.gpu, part.expect, part.bytes, cudaMemcpyHostToDevice));
        ok(cudaMemcpy(acc.gpu, acc.expect, acc.bytes, cudaMemcpyHostToDevice));
        filled();
        ok(launch_sum_f32(stream, 64, 2, there, fresh, on_gpu(&acc, 0), NULL));
        ran();
        for (int i = 0; i < 64 && fresh; i++)
            ((float *)on_cpu(&acc, 0))[i] = 0.0f;
        buffer_check(&acc, false, "signs", 64, fresh);
    }
    buffer_free(&part);
    buffer_free(&acc);
    end();
}
END_TEST

START_TEST(refusals)
{
    if (!begin())
        return;
    struct buffer b = buffer_new(F32, 64);
    const float *parts[LAUNCH_PARTS_MAX + 1];
    for (int r = 0; r <= LAUNCH_PARTS_MAX; r++)
        parts[r] = on_gpu(&b, 0);
    buffer_fill(&b, 1);
    filled();
    float *there = on_gpu(&b, 0);
    const cudaError_t wrong = cudaErrorInvalidValue;
    ck_assert_int_eq(launch_sum_f32(stream, 63, 1, parts, true, there, NULL), wrong);
    ck_assert_int_eq(launch_sum_f32(stream, 64, LAUNCH_PARTS_MAX + 1, parts, true, there, NULL),
                     wrong);
    ck_assert_int_eq(launch_sum_f32(stream, 64, -1, parts, true, there, NULL), wrong);
    ck_assert_int_eq(launch_to_bf16(stream, -1, there, (uint16_t *)there), wrong);
    ran();
    buffer_check(&b, false, "refused", 0, 0);
    buffer_free(&b);
    end();
}
END_TEST

/* ------------------------------------------------------------------------ norm */

/* 0: near each other; 1: of every size that can be added; 2: of every one that a double has, and
 * what cannot be added; 3: at either end of what can. */
static double wide_value_at(int kind, int64_t i)
{
    uint64_t r = random_bits(23, (uint64_t)kind, (uint64_t)i);
    int exponent = kind == 0 ? (int)(r % 8) : (int)(r % 598) - 280;
    if (kind == 3)
        exponent = i / 3000 % 2 ? 300 + (int)(r % 18) : (int)(r % 60) - 320;
    double x = ldexp(1.0 + (double)(r >> 12) * 0x1p-52, exponent);
    if (kind != 2)
        return x;
    switch (r >> 20 & 15) {
    case 0: return 0.0;
    case 1: return -x;
    case 2: return NAN;
    case 3: return -INFINITY;
    case 4: return ldexp(x, 700);
    case 5: return ldexp(x, -700);
    case 6: return ldexp(x, -60);
    default: return x;
    }
}

static void wide_check(int kind, int64_t n)
{
    struct wide expect = {0}, back, *there;
    double *values = malloc((size_t)(n + 1) * sizeof(*values)), *values_there;
    ok(cudaMalloc((void **)&values_there, (size_t)(n + 1) * sizeof(*values)));
    ok(cudaMalloc((void **)&there, sizeof(*there)));
    for (int64_t i = 0; i <= n; i++)
        values[i] = wide_value_at(kind, i);
    ok(cudaMemcpy(values_there, values, (size_t)(n + 1) * sizeof(*values), cudaMemcpyHostToDevice));
    filled();
    ok(cudaMemsetAsync(there, 0, sizeof(*there), stream));
    /* In three parts, as the units of a step come. */
    int64_t cut[4] = {0, n / 3, n / 2, n};
    for (int part = 0; part < 3; part++)
        ok(launch_wide_add(stream, cut[part + 1] - cut[part], values_there + cut[part], there));
    ran();
    ok(cudaMemcpy(&back, there, sizeof(back), cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < n; i++)
        wide_add(&expect, values[i]);
    ck_assert(n == 0 || back.pending > 0);
    wide_carry(&expect);
    wide_carry(&back);
    ck_assert_msg(memcmp(&back, &expect, sizeof(back)) == 0, "kind %d, n %lld", kind, (long long)n);
    ok(cudaFree(there));
    ok(cudaFree(values_there));
    free(values);
}

START_TEST(wide_sums)
{
    if (!begin())
        return;
    static const int64_t counts[] = {0, 1, 2, 3, 31, 127, 128, 129, 4096, 4097, 12289, 30000};
    for (int i = 0; i < 12; i++)
        wide_check(_i, counts[i]);
    end();
}
END_TEST

/* A sum's squares into the accumulator, without the host between them. */
START_TEST(norm)
{
    enum { N = 64 * 100 };
    if (!begin())
        return;
    struct buffer part = buffer_new(F32, N), acc = buffer_new(F32, N);
    double squares[N / 64], *squares_there;
    struct wide expect = {0}, back, *there;
    ok(cudaMalloc((void **)&squares_there, sizeof(squares)));
    ok(cudaMalloc((void **)&there, sizeof(*there)));
    float *grads = on_cpu(&part, MARGIN);
    for (int i = 0; i < N; i++)
        grads[i] = (float)random_normal(24, 0, (uint64_t)i) * 1e-3f;
    memset(part.expect, 0, MARGIN * sizeof(float));
    memset(grads + N, 0, MARGIN * sizeof(float));
    ok(cudaMemcpy(part.gpu, part.expect, part.bytes, cudaMemcpyHostToDevice));
    filled();
    const float *from = on_gpu(&part, MARGIN), *of = grads;
    ok(cudaMemsetAsync(there, 0, sizeof(*there), stream));
    ok(launch_sum_f32(stream, N, 1, &from, true, on_gpu(&acc, 0), squares_there));
    ok(launch_wide_add(stream, N / 64, squares_there, there));
    ran();
    ok(cudaMemcpy(&back, there, sizeof(back), cudaMemcpyDeviceToHost));
    cpu->sum_f32(N, 1, &of, true, on_cpu(&acc, 0), squares);
    for (int i = 0; i < N / 64; i++)
        wide_add(&expect, squares[i]);
    ck_assert(wide_value(&expect) > 0.0 && wide_value(&back) == wide_value(&expect));
    ok(cudaFree(there));
    ok(cudaFree(squares_there));
    buffer_free(&part);
    buffer_free(&acc);
    end();
}
END_TEST

static void descending(void)
{
    fake_nvcc_order = 1;
}

static TCase *tests_of(const char *name)
{
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, adam, 0, 4);
    tcase_add_loop_test(tcase, format_lengths, 0, FORMATS);
    tcase_add_loop_test(tcase, format_values, 0, FORMATS);
    tcase_add_loop_test(tcase, sums, 0, SUM_FORMATS);
    tcase_add_test(tcase, sum_signs);
    tcase_add_test(tcase, refusals);
    tcase_add_loop_test(tcase, wide_sums, 0, 4);
    tcase_add_test(tcase, norm);
    return tcase;
}

int main(void)
{
    unsetenv("ZERO_ISA");
    Suite *suite = suite_create("cuda_kernels");
    suite_add_tcase(suite, tests_of("bits"));
    if (&fake_nvcc_order) {
        TCase *other = tests_of("bits, threads in the other order");
        tcase_add_checked_fixture(other, descending, NULL);
        suite_add_tcase(suite, other);
    }
    return suite_run_all(suite);
}
