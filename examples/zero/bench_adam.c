// SPDX-License-Identifier: Apache-2.0
/*
 * The update kernel with bf16 output, as the engine calls it: in tasks of fixed
 * size on several threads. 30 bytes pass per element, so out of the caches the
 * limit is what the memory moves; within them, the root and the division.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/counter.h"
#include "examples/common/stream.h"
#include "examples/common/workers.h"
#include "examples/zero/bench.h"
#include "examples/zero/tool.h"
#include "kernels/kernels.h"
#include "offload/arena.h"
#include "offload/memory.h"

#define TASK     ((int64_t)1 << 15) /* elements, as in the engine */
#define IN_CACHE ((int64_t)1 << 20) /* elements up to which caches hold all */
#define PAIRS    3                  /* passes measured in turn: two limits, ours */
#define CHECKED  (3 * TASK + 37)

static const struct adam constants = {
    .grad_scale = 0.5f,
    .decay = 0.9999f,
    .beta1 = 0.9f,
    .one_minus_beta1 = 0.1f,
    .beta2 = 0.95f,
    .one_minus_beta2 = 0.05f,
    .step_size = 1e-3f,
    .root_scale = 1.5f,
    .eps = 1e-8f,
    .l2 = 0,
};

struct job {
    struct stream_arrays arrays;
    int64_t elements;
    stream_fn *pass; /* NULL: the kernel */
    const struct kernels *kernels;
};

static void task_run(void *arg, int64_t index, void *scratch)
{
    const struct job *j = arg;
    const struct stream_arrays *a = &j->arrays;
    int64_t first = index * TASK, left = j->elements - first;
    int64_t count = left < TASK ? left : TASK;
    (void)scratch;
    if (j->pass)
        j->pass(a, first, count);
    else
        j->kernels->adam(count, &constants, a->grad + first, a->master + first, a->m + first,
                         a->v + first, a->bf16 + first);
}

static int64_t tasks_of(int64_t elements)
{
    return (elements + TASK - 1) / TASK;
}

/* A pass that writes first values: small numbers, second moments above 0. */
static void fill(const struct stream_arrays *a, int64_t first, int64_t count)
{
    for (int64_t i = first; i < first + count; i++) {
        float x = (float)(counter_mix((uint64_t)i) >> 40) * 0x1p-24f - 0.5f;
        a->grad[i] = 1e-2f * x;
        a->master[i] = x;
        a->m[i] = 1e-3f * x;
        a->v[i] = 1e-4f * x * x;
    }
}

/* --------------------------------------------------------------------- check */

static bool same(const void *a, const void *b, int64_t bytes)
{
    return memcmp(a, b, (size_t)bytes) == 0;
}

/* The kernel that is measured gives the bits of the scalar one. */
static int check(const struct kernels *kernels)
{
    struct error error = {0};
    struct arena arena;
    int64_t n = CHECKED, bytes = stream_bytes(n);
    const struct kernels *scalar = kernels_select("scalar", &error);
    if (!scalar || arena_create(&arena, 2 * bytes, &error))
        return tool_fail("%s", error.text);
    struct job job = {.arrays = stream_carve(arena.base, n), .elements = n, .kernels = kernels};
    struct stream_arrays *a = &job.arrays;
    struct stream_arrays b = stream_carve(arena.base + bytes, n);
    fill(a, 0, n);
    fill(&b, 0, n);
    for (int64_t i = 0; i < tasks_of(n); i++)
        task_run(&job, i, NULL);
    scalar->adam(n, &constants, b.grad, b.master, b.m, b.v, b.bf16);
    bool equal = same(a->master, b.master, n * 4) && same(a->m, b.m, n * 4) &&
                 same(a->v, b.v, n * 4) && same(a->bf16, b.bf16, n * 2);
    arena_destroy(&arena);
    if (!equal)
        return tool_fail("The %s kernel gives other bits than the scalar one. This is a fault of "
                         "the library or of the machine: do not train with it.",
                         kernels->isa);
    return 0;
}

/* ------------------------------------------------------------------- measure */

/* Elements per second / 1e9, of repeated passes. */
static double rate(struct workers *w, struct job *job, stream_fn *pass, int repeats)
{
    double start = clock_now();
    job->pass = pass;
    for (int i = 0; i < repeats; i++)
        workers_run(w, task_run, job, tasks_of(job->elements));
    return 1e-9 * (double)job->elements * repeats / (clock_now() - start);
}

static void measure(const struct bench *b, struct workers *w, struct job *job, const char *name)
{
    struct streams streams = streams_select();
    bool cached = job->elements <= IN_CACHE;
    stream_fn *passes[PAIRS] = {cached ? streams.root : streams.ordinary,
                                cached ? NULL : streams.non_temporal, NULL};
    struct samples s[PAIRS] = {0};
    int repeats = (int)(cached ? 8 * IN_CACHE / job->elements : 1);
    int rounds = b->quick ? 3 : b->full ? 31 : job->elements > (int64_t)1 << 26 ? 7 : 15;
    for (int r = 0; r <= rounds && !(r > 1 && bench_over(b)); r++) /* round 0 warms up */
        for (int i = 0; i < PAIRS; i++) {
            if (!passes[i] && i < PAIRS - 1)
                continue;
            double value = rate(w, job, passes[i], repeats);
            if (r > 0)
                samples_add(&s[i], value);
        }
    double limit = samples_median(&s[0]);
    if (s[1].count && samples_median(&s[1]) > limit) {
        limit = samples_median(&s[1]);
        bench_note("%s_limit is with stores that pass the caches by", name);
    }
    bench_rate(name, limit, samples_median(&s[PAIRS - 1]), "Gparam/s");
}

/* One size on one number of threads. */
static int size_run(const struct bench *b, const struct kernels *kernels, const struct arena *arena,
                    int threads, int64_t elements)
{
    char name[64], error[256];
    bool millions = elements >= 1 << 20;
    snprintf(name, sizeof(name), millions ? "adam_%lldM_%dt" : "adam_%lldK_%dt",
             (long long)(millions ? elements >> 20 : elements >> 10), threads);
    struct workers *w = workers_create(threads, 0, kernels_thread_init, error, sizeof(error));
    if (!w)
        return tool_fail("%s", error);
    struct job job = {.arrays = stream_carve(arena->base, elements),
                      .elements = elements,
                      .pass = fill,
                      .kernels = kernels};
    workers_run(w, task_run, &job, tasks_of(elements));
    measure(b, w, &job, name);
    workers_destroy(w);
    return 0;
}

/* The sizes in 2^16 elements, ascending; the count of those that fit in memory. */
static int sizes_find(const struct bench *b, int64_t sizes[4])
{
    static const int64_t all[] = {16, 256, 2048, 8192};
    char source[512];
    int64_t there = memory_available("", source, sizeof(source));
    int count = b->quick ? 1 : b->full ? 4 : 3;
    for (int i = 0; i < count; i++)
        sizes[i] = (b->quick ? 1 : all[i]) << 16;
    while (count > 1 && stream_bytes(sizes[count - 1]) > there / 4 * 3) {
        count--;
        bench_note("%lldM elements are left out: %s of memory needed, %s available",
                   (long long)(sizes[count] >> 20), in_bytes(stream_bytes(sizes[count])).text,
                   in_bytes(there).text);
    }
    return count;
}

static int sizes_run(const struct bench *b, const struct kernels *kernels)
{
    struct error error = {0};
    struct arena arena;
    int64_t sizes[4];
    int count = sizes_find(b, sizes), cpus = bench_cpus(), status = 0;
    const int threads[] = {b->threads ? b->threads : 1, cpus};
    int variants = b->threads || cpus == 1 ? 1 : 2;
    if (arena_create(&arena, stream_bytes(sizes[count - 1]), &error))
        return tool_fail("%s", error.text);
    bench_note("%s of %s in huge pages", in_bytes(arena_huge_bytes(&arena)).text,
               in_bytes(arena.bytes).text);
    for (int i = 0; i < count; i++)
        for (int t = 0; t < variants && !status; t++) {
            if (bench_over(b))
                bench_note("no time is left for %lldM elements on %d threads; --full takes it",
                           (long long)(sizes[i] >> 20), threads[t]);
            else
                status = size_run(b, kernels, &arena, threads[t], sizes[i]);
        }
    arena_destroy(&arena);
    return status;
}

int bench_adam(const struct bench *b)
{
    struct error error = {0};
    const struct kernels *kernels = kernels_select(NULL, &error);
    if (!kernels)
        return tool_fail("%s", error.text);
    kernels_thread_init();
    int status = check(kernels);
    if (status)
        return status;
    bench_note("kernels: %s, the same bits as scalar; 30 bytes pass per parameter", kernels->isa);
    return sizes_run(b, kernels);
}
