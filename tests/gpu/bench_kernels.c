// SPDX-License-Identifier: Apache-2.0
/*
 * The kernels against copies within the GPU's memory of as many bytes. Arrays are one tile
 * again and again, so that one tile done by the CPU says what every element must be.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/clock.h"
#include "kernels/kernels.h"
#include "src/norm.h"
#include "tests/gpu/bench.h"
#include "tests/support/random.h"

enum { ARRAYS = 5 };

/* How a kernel uses an array. */
enum use { UNUSED, IN, OUT, BOTH };
struct array {
    int bits; /* of an element: 32, 16; 1: a double for each block of the norm */
    enum use use;
};

struct form {
    const char *name;
    struct array arrays[ARRAYS];
    cudaError_t (*gpu)(cudaStream_t stream, int64_t n, void **a);
    void (*cpu)(const struct kernels *k, int64_t n, void **a);
};

static const struct adam constants = {.grad_scale = 0.5f,
                                      .decay = 0.9999f,
                                      .beta1 = 0.9f,
                                      .one_minus_beta1 = 0.1f,
                                      .beta2 = 0.95f,
                                      .one_minus_beta2 = 0.05f,
                                      .step_size = 1e-3f,
                                      .root_scale = 1.5f,
                                      .eps = 1e-8f};

/* Defines both sides of a form: a call of a kernel on arrays a. */
#define FORM(name, on_gpu, on_cpu)                                                                 \
    static cudaError_t name##_gpu(cudaStream_t stream, int64_t n, void **a)                        \
    {                                                                                              \
        return on_gpu;                                                                             \
    }                                                                                              \
    static void name##_cpu(const struct kernels *k, int64_t n, void **a)                           \
    {                                                                                              \
        k->on_cpu;                                                                                 \
    }
#define F32(field)  ((struct grads){.f32 = (field)})
#define BF16(field) ((struct grads){.bf16 = (field)})

FORM(to_bf16, launch_to_bf16(stream, n, a[0], a[1]), to_bf16(n, a[0], a[1]))
FORM(from_bf16, launch_from_bf16(stream, n, a[0], a[1]), from_bf16(n, a[0], a[1]))
FORM(to_fp16, launch_to_fp16(stream, n, a[0], a[1]), to_fp16(n, a[0], a[1]))
FORM(adam, launch_adam(stream, n, &constants, F32(a[0]), a[1], a[2], a[3], a[4]),
     adam(n, &constants, F32(a[0]), a[1], a[2], a[3], a[4]))
FORM(adam_fp32, launch_adam(stream, n, &constants, F32(a[0]), a[1], a[2], a[3], NULL),
     adam(n, &constants, F32(a[0]), a[1], a[2], a[3], NULL))
FORM(adam_bf16grad, launch_adam(stream, n, &constants, BF16(a[0]), a[1], a[2], a[3], a[4]),
     adam(n, &constants, BF16(a[0]), a[1], a[2], a[3], a[4]))
FORM(adam_split, launch_adam_split(stream, n, &constants, F32(a[0]), a[1], a[2], a[3], a[4]),
     adam_split(n, &constants, F32(a[0]), a[1], a[2], a[3], a[4]))

#define PARTS16 ((const uint16_t *const[]){a[0], a[1]})
#define PARTS32 ((const float *const[]){a[0], a[1]})
FORM(sum_bf16, launch_sum_bf16(stream, n, 2, PARTS16, true, a[2], NULL),
     sum_bf16(n, 2, PARTS16, true, a[2], NULL))
FORM(sum_more, launch_sum_bf16(stream, n, 2, PARTS16, false, a[2], NULL),
     sum_bf16(n, 2, PARTS16, false, a[2], NULL))
FORM(sum_squares, launch_sum_bf16(stream, n, 2, PARTS16, true, a[2], a[3]),
     sum_bf16(n, 2, PARTS16, true, a[2], a[3]))
FORM(sum_f32, launch_sum_f32(stream, n, 2, PARTS32, true, a[2], a[3]),
     sum_f32(n, 2, PARTS32, true, a[2], a[3]))

#define BOTH_OF(name) name##_gpu, name##_cpu
static const struct form forms[] = {
    {"cast_to_bf16", {{32, IN}, {16, OUT}}, BOTH_OF(to_bf16)},
    {"cast_from_bf16", {{16, IN}, {32, OUT}}, BOTH_OF(from_bf16)},
    {"cast_to_fp16", {{32, IN}, {16, OUT}}, BOTH_OF(to_fp16)},
    {"sum_bf16", {{16, IN}, {16, IN}, {32, OUT}}, BOTH_OF(sum_bf16)},
    {"sum_bf16_more", {{16, IN}, {16, IN}, {32, BOTH}}, BOTH_OF(sum_more)},
    {"sum_bf16_norm", {{16, IN}, {16, IN}, {32, OUT}, {1, OUT}}, BOTH_OF(sum_squares)},
    {"sum_f32_norm", {{32, IN}, {32, IN}, {32, OUT}, {1, OUT}}, BOTH_OF(sum_f32)},
    {"adam", {{32, IN}, {32, BOTH}, {32, BOTH}, {32, BOTH}, {16, OUT}}, BOTH_OF(adam)},
    {"adam_fp32", {{32, IN}, {32, BOTH}, {32, BOTH}, {32, BOTH}}, BOTH_OF(adam_fp32)},
    {"adam_bf16grad",
     {{16, IN}, {32, BOTH}, {32, BOTH}, {32, BOTH}, {16, OUT}},
     BOTH_OF(adam_bf16grad)},
    {"adam_split", {{32, IN}, {16, BOTH}, {16, BOTH}, {32, BOTH}, {32, BOTH}}, BOTH_OF(adam_split)},
};
enum { FORMS = sizeof(forms) / sizeof(*forms) };

static int64_t bytes_of(const struct array *a, int64_t n)
{
    return a->use == UNUSED ? 0 : a->bits == 1 ? n / KERNELS_BLOCK * 8 : n * a->bits / 8;
}

/* Bytes that pass: each input is read once, each output written once. */
static double bytes_passed(const struct form *f, int64_t n)
{
    double sum = 0;
    for (int i = 0; i < ARRAYS; i++)
        sum += (double)bytes_of(&f->arrays[i], n) * (f->arrays[i].use == BOTH ? 2 : 1);
    return sum;
}

/* ------------------------------------------------------------------ one form */

struct bed {
    const struct bench *b;
    const struct kernels *kernels;
    const struct form *form;
    cudaStream_t stream;
    char *gpu[ARRAYS];         /* tiles */
    char *tile[ARRAYS], *back; /* one, on the host; back: registered */
    double copied;             /* bytes of a copy that is timed */
};

/* Small numbers, second moments above 0; what arrays mean to no kernel does harm. */
static void tile_fill(const struct bed *bed, int array)
{
    const struct array *a = &bed->form->arrays[array];
    for (int64_t i = 0; i < bed->b->tile; i++) {
        float x = (float)(random_mix((uint64_t)i + (uint64_t)array * 77) >> 40) * 0x1p-24f + 1e-3f;
        if (a->bits == 32)
            ((float *)(void *)bed->tile[array])[i] = array < 2 && i % 3 ? -x : x;
        else if (a->bits == 16)
            ((uint16_t *)(void *)bed->tile[array])[i] = (uint16_t)(0x3C00 + i * 37 % 128 + array);
    }
    if (a->use == OUT) /* what is not written is found */
        memset(bed->tile[array], 0xAA, (size_t)bytes_of(a, bed->b->tile));
}

static void array_spread(const struct bed *bed, int array)
{
    int64_t bytes = bytes_of(&bed->form->arrays[array], bed->b->tile);
    char *to = bed->gpu[array];
    bench_ok(cudaMemcpy(to, bed->tile[array], (size_t)bytes, cudaMemcpyHostToDevice));
    bench_ok(cudaDeviceSynchronize());
    for (int64_t t = 1; t < bed->b->tiles; t++)
        bench_ok(cudaMemcpyAsync(to + t * bytes, to, (size_t)bytes, cudaMemcpyDeviceToDevice,
                                 bed->stream));
    bench_ok(cudaStreamSynchronize(bed->stream));
}

/* Every element of every array, also of those that are only read. */
static void array_check(const struct bed *bed, int array)
{
    int64_t bytes = bytes_of(&bed->form->arrays[array], bed->b->tile);
    for (int64_t t = 0; t < bed->b->tiles && bytes > 0; t++) {
        bench_ok(cudaMemcpyAsync(bed->back, bed->gpu[array] + t * bytes, (size_t)bytes,
                                 cudaMemcpyDeviceToHost, bed->stream));
        bench_ok(cudaStreamSynchronize(bed->stream));
        if (memcmp(bed->back, bed->tile[array], (size_t)bytes))
            bench_fail("%s: array %d, tile %lld of %lld: other bits than the CPU's. Nothing was "
                       "timed.",
                       bed->form->name, array, (long long)t, (long long)bed->b->tiles);
    }
}

static void form_check(struct bed *bed)
{
    void *gpu[ARRAYS], *cpu[ARRAYS];
    for (int i = 0; i < ARRAYS; i++) {
        gpu[i] = bed->gpu[i];
        cpu[i] = bed->tile[i];
        if (bed->form->arrays[i].use == UNUSED)
            continue;
        tile_fill(bed, i);
        array_spread(bed, i);
    }
    bench_ok(bed->form->gpu(bed->stream, bed->b->tile * bed->b->tiles, gpu));
    bench_ok(cudaStreamSynchronize(bed->stream));
    bed->form->cpu(bed->kernels, bed->b->tile, cpu);
    for (int i = 0; i < ARRAYS; i++)
        array_check(bed, i);
}

static double time_form(void *arg)
{
    struct bed *bed = arg;
    void *gpu[ARRAYS];
    for (int i = 0; i < ARRAYS; i++)
        gpu[i] = bed->gpu[i];
    double start = clock_now();
    for (int r = 0; r < bed->b->repeats; r++)
        bench_ok(bed->form->gpu(bed->stream, bed->b->tile * bed->b->tiles, gpu));
    bench_ok(cudaStreamSynchronize(bed->stream));
    return (clock_now() - start) / bed->b->repeats;
}

/* Seconds of a copy: its bytes pass twice. */
static double time_copy(void *arg)
{
    const struct bed *bed = arg;
    size_t bytes = (size_t)(bed->b->tile * bed->b->tiles) * 4;
    double start = clock_now();
    for (int r = 0; r < bed->b->repeats; r++)
        bench_ok(cudaMemcpyAsync(bed->gpu[1], bed->gpu[0], bytes, cudaMemcpyDeviceToDevice,
                                 bed->stream));
    bench_ok(cudaStreamSynchronize(bed->stream));
    return (clock_now() - start) / bed->b->repeats;
}

/* ------------------------------------------------------------------ the norm */

/* Values as squares of gradients are, a tile of them again and again. */
static void norm_check(struct bed *bed, int64_t per_tile, struct wide *there)
{
    struct wide tile = {0}, expect = {0}, back;
    double *values = (double *)(void *)bed->tile[0];
    for (int64_t i = 0; i < per_tile; i++) {
        values[i] = (double)(1 + i % 1021) * 0x1p-40;
        wide_add(&tile, values[i]);
    }
    wide_carry(&tile);
    for (int i = 0; i < WIDE_LIMBS; i++)
        expect.limb[i] = tile.limb[i] * bed->b->tiles;
    wide_carry(&expect);
    for (int64_t t = 0; t < bed->b->tiles; t++)
        bench_ok(cudaMemcpy(bed->gpu[0] + t * per_tile * 8, values, (size_t)per_tile * 8,
                            cudaMemcpyHostToDevice));
    bench_ok(cudaDeviceSynchronize());
    bench_ok(cudaMemsetAsync(there, 0, sizeof(*there), bed->stream));
    bench_ok(launch_wide_add(bed->stream, per_tile * bed->b->tiles,
                             (const double *)(void *)bed->gpu[0], there));
    bench_ok(cudaStreamSynchronize(bed->stream));
    bench_ok(cudaMemcpy(&back, there, sizeof(back), cudaMemcpyDeviceToHost));
    wide_carry(&back);
    if (memcmp(&back, &expect, sizeof(back)))
        bench_fail("norm: another sum than the CPU's. Nothing was timed.");
}

static double time_norm(void *arg)
{
    const struct bed *bed = arg;
    int64_t n = bed->b->tile / 2 * bed->b->tiles;
    double start = clock_now();
    for (int r = 0; r < bed->b->repeats; r++)
        bench_ok(launch_wide_add(bed->stream, n, (const double *)(void *)bed->gpu[0],
                                 (struct wide *)(void *)bed->gpu[2]));
    bench_ok(cudaStreamSynchronize(bed->stream));
    return (clock_now() - start) / bed->b->repeats;
}

static void norm_run(struct bed *bed)
{
    int64_t per_tile = bed->b->tile / 2;
    struct pass passes[] = {{time_copy, bed, 0}, {time_norm, bed, 0}};
    norm_check(bed, per_tile, (struct wide *)(void *)bed->gpu[2]);
    bench_measure(bed->b, passes, 2);
    /* A copy reads and writes as many bytes as the norm reads. */
    bench_rate("norm", (double)(per_tile * bed->b->tiles) * 8, passes[0].median / 2,
               passes[1].median);
}

void bench_kernels(const struct bench *b)
{
    struct error error = {0};
    struct bed bed = {.b = b, .kernels = kernels_select("scalar", &error)};
    size_t tile = (size_t)b->tile * 4;
    bench_ok(cudaStreamCreateWithFlags(&bed.stream, cudaStreamNonBlocking));
    bench_ok(cudaHostAlloc((void **)&bed.back, tile, cudaHostAllocDefault));
    for (int i = 0; i < ARRAYS; i++) {
        bench_ok(cudaMalloc((void **)&bed.gpu[i], tile * (size_t)b->tiles));
        bed.tile[i] = malloc(tile);
        if (!bed.tile[i])
            bench_fail("No memory for a tile.");
    }
    for (int f = 0; f < FORMS; f++) {
        bed.form = &forms[f];
        form_check(&bed);
        struct pass passes[] = {{time_copy, &bed, 0}, {time_form, &bed, 0}};
        bench_measure(b, passes, 2);
        double bytes = bytes_passed(bed.form, b->tile * b->tiles);
        double copied = (double)(b->tile * b->tiles) * 8;
        bench_rate(bed.form->name, bytes, passes[0].median * bytes / copied, passes[1].median);
    }
    norm_run(&bed);
    for (int i = 0; i < ARRAYS; i++) {
        bench_ok(cudaFree(bed.gpu[i]));
        free(bed.tile[i]);
    }
    bench_ok(cudaFreeHost(bed.back));
    bench_ok(cudaStreamDestroy(bed.stream));
}
