// SPDX-License-Identifier: Apache-2.0
/*
 * The update kernels in the forms that the engine uses and as it calls them: in
 * tasks of fixed size on several threads. Out of the caches the limit is a loop
 * with the same reads and writes, to each thread one part; within them, the
 * slower of that loop and the root and the division alone.
 */
#include <stdio.h>
#include <string.h>

#include "examples/common/counter.h"
#include "examples/common/launch.h"
#include "examples/common/stream.h"
#include "examples/common/workers.h"
#include "examples/zero/bench.h"
#include "examples/zero/tool.h"
#include "kernels/kernels.h"
#include "offload/arena.h"
#include "offload/memory.h"

#define TASK     ((int64_t)1 << 17)  /* elements, as in the engine, or to each thread its part */
#define IN_CACHE ((int64_t)1 << 20)  /* elements up to which caches hold all */
#define COMPARED ((int64_t)16 << 20) /* that AVX2 is compared at */
#define PASSES   3                   /* measured in turn: two limits, ours */
#define SLOW     2                   /* times as slow: not measured on */
#define CHECKED  (3 * TASK + 37)

#define AIM        0.93 /* of a loop without arithmetic */
#define AIM_CACHED 0.9
#define AIM_AVX2   0.9 /* of AVX-512 */

enum { THREADS_MAX = 64 }; /* as with --threads */

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

/* What is printed of a form, and bytes that pass per element. */
static const struct {
    const char *name;
    int bytes;
} forms[FORMS] = {
    [FORM_BF16_GRAD] = {"adam_bf16grad", 28}, [FORM_BF16] = {"adam", 30},
    [FORM_FP32] = {"adam_fp32", 28},          [FORM_SPLIT_BF16_GRAD] = {"adam_split_bf16grad", 26},
    [FORM_SPLIT] = {"adam_split", 28},
};

struct job {
    struct stream_arrays arrays;
    enum stream_form form;
    int64_t elements, task;
    const struct kernels *kernels;
};

static void kernel_run(const struct job *j, int64_t first, int64_t count)
{
    const struct stream_arrays *a = &j->arrays;
    struct grads grads = {.f32 = a->grad + first};
    if (form_bf16_grad(j->form))
        grads = (struct grads){.bf16 = a->grad16 + first};
    if (form_split(j->form))
        j->kernels->adam_split(count, &constants, grads, a->weight + first, a->remainder + first,
                               a->m + first, a->v + first);
    else
        j->kernels->adam(count, &constants, grads, a->master + first, a->m + first, a->v + first,
                         j->form == FORM_FP32 ? NULL : a->weight + first);
}

static void task_run(void *arg, int64_t index, void *scratch)
{
    const struct job *j = arg;
    int64_t first = index * j->task, left = j->elements - first;
    int64_t count = left < j->task ? left : j->task;
    (void)scratch;
    kernel_run(j, first, count);
}

static int64_t tasks_of(const struct job *j)
{
    return (j->elements + j->task - 1) / j->task;
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
        a->grad16[i] = (uint16_t)(0x3C00 + i % 128); /* 2^-7 or so */
        a->weight[i] = (uint16_t)(0x3C00 + i * 37 % 128);
        a->remainder[i] = (int16_t)(i * 40503 % 65536 - 32768);
    }
}

/* --------------------------------------------------------------------- check */

static bool same(const void *a, const void *b, int64_t bytes)
{
    return memcmp(a, b, (size_t)bytes) == 0;
}

/* The kernels that are measured give the bits of the scalar ones. */
static bool form_equal(struct job *job, struct stream_arrays other, const struct kernels *scalar)
{
    const struct stream_arrays *a = &job->arrays, *b = &other;
    int64_t n = job->elements;
    fill(a, 0, n);
    fill(b, 0, n);
    for (int64_t i = 0; i < tasks_of(job); i++)
        task_run(job, i, NULL);
    struct job whole = {.arrays = other, .form = job->form, .elements = n, .kernels = scalar};
    kernel_run(&whole, 0, n);
    return same(a->master, b->master, n * 4) && same(a->m, b->m, n * 4) &&
           same(a->v, b->v, n * 4) && same(a->weight, b->weight, n * 2) &&
           same(a->remainder, b->remainder, n * 2);
}

static int check(const struct kernels *kernels)
{
    struct error error = {0};
    struct arena arena;
    int64_t bytes = stream_bytes(CHECKED);
    bool equal = true;
    const struct kernels *scalar = kernels_select("scalar", &error);
    if (!scalar || arena_create(&arena, 2 * bytes, 1, &error))
        return tool_fail("%s", error.text);
    struct job job = {.arrays = stream_carve(arena.base, CHECKED),
                      .elements = CHECKED,
                      .task = TASK,
                      .kernels = kernels};
    for (int form = 0; form < FORMS; form++) {
        job.form = (enum stream_form)form;
        equal = equal && form_equal(&job, stream_carve(arena.base + bytes, CHECKED), scalar);
    }
    arena_destroy(&arena);
    if (!equal)
        return tool_fail("The %s kernels give other bits than the scalar ones. This is a fault of "
                         "the library or of the machine: do not train with it.",
                         kernels->isa);
    return 0;
}

/* ------------------------------------------------------------------- measure */

/* Elements per second / 1e9, of repeated passes; pass NULL: the kernel's. */
static double rate(struct workers *w, struct job *job, stream_fn *pass, int repeats)
{
    double start = clock_now();
    for (int i = 0; i < repeats; i++)
        if (pass)
            stream_run(w, &job->arrays, pass, job->elements);
        else
            workers_run(w, task_run, job, tasks_of(job));
    return 1e-9 * (double)job->elements * repeats / (clock_now() - start);
}

/* The second limit: in the caches root and division, out of them stores that pass the caches
 * by, where a first look at some elements does not find them far slower. */
static stream_fn *second_limit(struct workers *w, const struct job *job,
                               const struct streams *streams)
{
    struct job some = *job;
    stream_fn *other = streams->non_temporal[job->form];
    if (job->elements <= IN_CACHE)
        return streams->root;
    some.elements = IN_CACHE;
    if (!other || rate(w, &some, other, 1) * SLOW < rate(w, &some, streams->ordinary[job->form], 1))
        return NULL;
    return other;
}

static void measure(const struct bench *b, struct workers *w, struct job *job, const char *name)
{
    const struct streams *streams = streams_select();
    bool cached = job->elements <= IN_CACHE;
    stream_fn *passes[PASSES] = {streams->ordinary[job->form], second_limit(w, job, streams), NULL};
    struct samples s[PASSES] = {0};
    int repeats = (int)(cached ? 8 * IN_CACHE / job->elements : 1);
    int rounds = b->quick ? 3 : b->full ? 31 : cached ? 15 : job->elements >> 26 ? 5 : 9;
    for (int r = 0; r <= rounds && !(r > 1 && bench_over(b)); r++) /* round 0 warms up */
        for (int i = 0; i < PASSES; i++) {
            if (!passes[i] && i < PASSES - 1)
                continue;
            if (cached) /* the loop before may have used other arrays */
                rate(w, job, passes[i], 1);
            double value = rate(w, job, passes[i], repeats);
            if (r > 0)
                samples_add(&s[i], value);
        }
    const struct samples *limit = &s[0];
    double first = samples_median(&s[0]), other = s[1].count ? samples_median(&s[1]) : first;
    if (cached ? other < first : other > first) {
        limit = &s[1];
        bench_note("%s_limit is %s", name,
                   cached ? "the root and the division" : "with stores that bypass the caches");
    }
    bench_rate(name, limit, &s[PASSES - 1], "Gparam/s", cached ? AIM_CACHED : AIM);
}

/* Where memory bounds an update the narrower instructions must do as well. */
static void measure_avx2(const struct bench *b, struct workers *w, struct job *job,
                         const char *name, const struct kernels *avx2)
{
    struct samples wide = {0}, narrow = {0};
    const struct kernels *kernels = job->kernels;
    for (int r = 0; r <= (b->full ? 31 : 9); r++) { /* round 0 warms up */
        double value = rate(w, job, NULL, 1);
        job->kernels = avx2;
        double other = rate(w, job, NULL, 1);
        job->kernels = kernels;
        if (r > 0) {
            samples_add(&wide, value);
            samples_add(&narrow, other);
        }
    }
    bench_note("%s_limit is our own by %s", name, kernels->isa);
    bench_rate(name, &wide, &narrow, "Gparam/s", AIM_AVX2);
}

/* AVX2's kernels, where the ones in use are wider; NULL: they are not. */
static const struct kernels *narrower(const struct kernels *kernels)
{
    struct error none = {0};
    return strcmp(kernels->isa, "avx512") == 0 ? kernels_select("avx2", &none) : NULL;
}

/* One size on one number of threads. */
static int size_run(const struct bench *b, const struct kernels *kernels, const struct arena *arena,
                    int threads, int64_t elements)
{
    char name[64], error[256];
    struct workers *w = workers_create(threads, 0, kernels_thread_init, error, sizeof(error));
    if (!w)
        return tool_fail("%s", error);
    int64_t part = stream_part(elements, threads);
    struct job job = {.arrays = stream_carve(arena->base, elements),
                      .elements = elements,
                      .task = part < TASK ? part : TASK,
                      .kernels = kernels};
    stream_run(w, &job.arrays, fill, elements);
    const struct kernels *avx2 = elements == COMPARED ? narrower(kernels) : NULL;
    for (int i = 0; i < FORMS * (avx2 ? 2 : 1); i++) {
        job.form = (enum stream_form)(i % FORMS);
        snprintf(name, sizeof(name), "%s%s_%s_%dt", forms[job.form].name, i < FORMS ? "" : "_avx2",
                 bench_size(elements).text, threads);
        if (bench_over(b))
            bench_note("%s is left out, as time is up; --full measures it", name);
        else if (i < FORMS)
            measure(b, w, &job, name);
        else
            measure_avx2(b, w, &job, name, avx2);
    }
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
    int count = sizes_find(b, sizes), status = 0;
    int cpus = launch_threads_alone();
    cpus = cpus < THREADS_MAX ? cpus : THREADS_MAX;
    const int threads[] = {b->threads ? b->threads : 1, cpus};
    int variants = b->threads || cpus == 1 ? 1 : 2;
    if (arena_create(&arena, stream_bytes(sizes[count - 1]), 1, &error))
        return tool_fail("%s", error.text);
    bench_note("%s of %s in huge pages", in_bytes(arena_huge_bytes(&arena)).text,
               in_bytes(arena.bytes).text);
    for (int i = 0; i < count; i++)
        for (int t = 0; t < variants && !status; t++)
            status = size_run(b, kernels, &arena, threads[t], sizes[i]);
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
    bench_note("kernels: %s, the same bits as scalar", kernels->isa);
    for (int form = 0; form < FORMS; form++)
        bench_note("%s: %d bytes pass per parameter", forms[form].name, forms[form].bytes);
    return sizes_run(b, kernels);
}
