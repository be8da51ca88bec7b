// SPDX-License-Identifier: Apache-2.0
/* Plain loops, compiled for each form and instruction set; only the stores that
 * pass the caches by need intrinsics. Their results mean nothing, but stay finite. */
#include "examples/common/stream.h"

#include <math.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "examples/common/clock.h"
#include "examples/common/huge.h"
#include "offload/memory.h"

#define PAGE         ((int64_t)HUGE_PAGE)
#define BYTES        22                  /* of memory per element */
#define LEAST        ((int64_t)48 << 20) /* of memory that is not all in a cache, */
#define SOON         ((int64_t)96 << 20) /* and of what is gone over soon */
#define LEAST_PASSES 6                   /* half of them by each loop: others may use the machine */

#define TINY   1e-9f /* second moments stay above 0 */
#define INLINE static inline __attribute__((always_inline))

INLINE float widened(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

INLINE void ordinary_body(const struct stream_arrays *a, int64_t first, int64_t count,
                          enum stream_form form)
{
    const float *restrict g = a->grad + first;
    const uint16_t *restrict g16 = a->grad16 + first;
    float *restrict p = a->master + first, *restrict m = a->m + first, *restrict v = a->v + first;
    uint16_t *restrict w = a->weight + first;
    int16_t *restrict r = a->remainder + first;
    for (int64_t i = 0; i < count; i++) {
        float grad = form_bf16_grad(form) ? widened(g16[i]) : g[i];
        m[i] = m[i] + grad;
        v[i] = v[i] + TINY;
        if (form_split(form)) {
            w[i] = (uint16_t)(w[i] ^ 1);
            r[i] = (int16_t)(r[i] ^ 1);
            continue;
        }
        uint32_t bits;
        float x = p[i] + grad;
        p[i] = x;
        memcpy(&bits, &x, sizeof(bits));
        if (form != FORM_FP32)
            w[i] = (uint16_t)(bits >> 16);
    }
}

INLINE void root_body(const struct stream_arrays *a, int64_t first, int64_t count)
{
    const float *restrict m = a->m + first, *restrict v = a->v + first;
    float *restrict p = a->master + first;
    for (int64_t i = 0; i < count; i++)
        p[i] = m[i] / (sqrtf(v[i]) + 1e-8f);
}

INLINE void sum_body(float *restrict to, const float *restrict a, const float *restrict b,
                     int64_t count)
{
    if (b)
        for (int64_t i = 0; i < count; i++)
            to[i] = a[i] + b[i];
    else
        for (int64_t i = 0; i < count; i++)
            to[i] += a[i];
}

#define ONE(isa, attribute, kind, form)                                                            \
    attribute static void kind##_##isa##_##form(const struct stream_arrays *a, int64_t first,      \
                                                int64_t count)                                     \
    {                                                                                              \
        kind##_body(a, first, count, form);                                                        \
    }
#define EACH_FORM(isa, attribute, kind)                                                            \
    ONE(isa, attribute, kind, FORM_BF16_GRAD)                                                      \
    ONE(isa, attribute, kind, FORM_BF16)                                                           \
    ONE(isa, attribute, kind, FORM_FP32)                                                           \
    ONE(isa, attribute, kind, FORM_SPLIT_BF16_GRAD)                                                \
    ONE(isa, attribute, kind, FORM_SPLIT)
#define ALL(isa, kind)                                                                             \
    {                                                                                              \
        kind##_##isa##_FORM_BF16_GRAD, kind##_##isa##_FORM_BF16, kind##_##isa##_FORM_FP32,         \
            kind##_##isa##_FORM_SPLIT_BF16_GRAD, kind##_##isa##_FORM_SPLIT                         \
    }
#define VARIANTS(isa, attribute)                                                                   \
    EACH_FORM(isa, attribute, ordinary)                                                            \
    attribute static void root_##isa(const struct stream_arrays *a, int64_t first, int64_t count)  \
    {                                                                                              \
        root_body(a, first, count);                                                                \
    }                                                                                              \
    attribute static void sum_##isa(float *to, const float *a, const float *b, int64_t count)      \
    {                                                                                              \
        sum_body(to, a, b, count);                                                                 \
    }

VARIANTS(plain, )

#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2")))
#if defined(__clang__) || __GNUC__ < 10
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif

VARIANTS(avx2, AVX2)
VARIANTS(avx512, AVX512)

/* Adds to eight numbers, stores them past the caches, and returns the sums. */
AVX2 INLINE __m256i add_stream(float *to, __m256 g)
{
    __m256 sum = _mm256_add_ps(_mm256_load_ps(to), g);
    _mm256_stream_ps(to, sum);
    return _mm256_castps_si256(sum);
}

/* Turns the last bit of sixteen words. */
AVX2 INLINE void flip_stream(void *to)
{
    __m256i x = _mm256_load_si256(to);
    _mm256_stream_si256(to, _mm256_xor_si256(x, _mm256_set1_epi16(1)));
}

AVX2 INLINE __m256 load_grad(const struct stream_arrays *a, int64_t i, enum stream_form form)
{
    if (!form_bf16_grad(form))
        return _mm256_load_ps(a->grad + i);
    __m128i x = _mm_load_si128((const void *)(a->grad16 + i));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

AVX2 INLINE void non_temporal_body(const struct stream_arrays *a, int64_t first, int64_t count,
                                   enum stream_form form)
{
    const __m256 tiny = _mm256_set1_ps(TINY);
    for (int64_t i = first; i < first + count; i += 16) {
        __m256 g0 = load_grad(a, i, form), g1 = load_grad(a, i + 8, form);
        add_stream(a->m + i, g0);
        add_stream(a->m + i + 8, g1);
        add_stream(a->v + i, tiny);
        add_stream(a->v + i + 8, tiny);
        if (form_split(form)) {
            flip_stream(a->weight + i);
            flip_stream(a->remainder + i);
            continue;
        }
        __m256i p0 = add_stream(a->master + i, g0), p1 = add_stream(a->master + i + 8, g1);
        if (form == FORM_FP32)
            continue;
        __m256i w = _mm256_packus_epi32(_mm256_srli_epi32(p0, 16), _mm256_srli_epi32(p1, 16));
        _mm256_stream_si256((void *)(a->weight + i), _mm256_permute4x64_epi64(w, 0xD8));
    }
    _mm_sfence();
}

EACH_FORM(avx2, AVX2, non_temporal)
#endif

static const struct streams plain = {ALL(plain, ordinary), {NULL}, root_plain, sum_plain};

const struct streams *streams_select(void)
{
#ifdef __x86_64__
    static const struct streams avx2 = {ALL(avx2, ordinary), ALL(avx2, non_temporal), root_avx2,
                                        sum_avx2};
    static const struct streams avx512 = {ALL(avx512, ordinary), ALL(avx2, non_temporal),
                                          root_avx512, sum_avx512};
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &avx512;
    if (__builtin_cpu_supports("avx2"))
        return &avx2;
#endif
    return &plain;
}

/* With a page between the arrays: five streams at distances of 512 MiB exactly
 * halve the speed of any loop. */
struct stream_arrays stream_carve(void *memory, int64_t elements)
{
    int64_t array = (elements * 4 + PAGE - 1) / PAGE * PAGE + PAGE;
    char *base = memory;
    return (struct stream_arrays){
        .grad = (float *)(void *)base,
        .master = (float *)(void *)(base + array),
        .m = (float *)(void *)(base + 2 * array),
        .v = (float *)(void *)(base + 3 * array),
        .grad16 = (uint16_t *)(void *)(base + 4 * array),
        .weight = (uint16_t *)(void *)(base + 4 * array + array / 2),
        .remainder = (int16_t *)(void *)(base + 5 * array),
    };
}

int64_t stream_bytes(int64_t elements)
{
    return (elements * BYTES + 12 * PAGE + PAGE - 1) / PAGE * PAGE;
}

/* ------------------------------------------------------------------- rates */

struct job {
    const struct stream_arrays *arrays;
    stream_fn *pass;
    int64_t elements, part;
};

static void part_run(void *arg, int64_t index, void *scratch)
{
    const struct job *j = arg;
    int64_t first = index * j->part, left = j->elements - first;
    (void)scratch;
    if (left > 0)
        j->pass(j->arrays, first, left < j->part ? left : j->part);
}

int64_t stream_part(int64_t elements, int threads)
{
    return (elements / 64 + threads - 1) / threads * 64;
}

void stream_run(struct workers *w, const struct stream_arrays *a, stream_fn *pass, int64_t elements)
{
    int threads = workers_threads(w);
    struct job job = {a, pass, elements, stream_part(elements, threads)};
    workers_run(w, part_run, &job, threads);
}

/* Zeros stay numbers, however often they are added to. */
static void clear(const struct stream_arrays *a, int64_t first, int64_t count)
{
    memset(a->grad + first, 0, (size_t)count * 4);
    memset(a->master + first, 0, (size_t)count * 4);
    memset(a->m + first, 0, (size_t)count * 4);
    memset(a->v + first, 0, (size_t)count * 4);
    memset(a->weight + first, 0, (size_t)count * 2);
}

/* Of memory, so that what a pass leaves in the third cache is little of it. Where there are several
 * some systems tell of one, others of their sum. */
static int64_t most(void)
{
    int64_t cache = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    return 2 * cache > SOON ? 2 * cache : SOON;
}

double stream_rate(struct workers *w, void *memory, int64_t bytes, double seconds)
{
    int64_t room = bytes - stream_bytes(0) - PAGE;
    room = room < most() ? room : most();
    if (room < LEAST)
        return 0;
    const struct streams *streams = streams_select();
    int64_t elements = room / BYTES / 64 * 64;
    struct stream_arrays arrays = stream_carve(memory, elements);
    double best = 1e9, start = clock_now();
    stream_run(w, &arrays, clear, elements);
    for (int i = 0; i < LEAST_PASSES || clock_now() - start < seconds; i++) {
        double begin = clock_now();
        bool other = i % 2 && streams->non_temporal[FORM_BF16];
        stream_run(w, &arrays,
                   other ? streams->non_temporal[FORM_BF16] : streams->ordinary[FORM_BF16],
                   elements);
        double took = clock_now() - begin;
        best = took < best ? took : best;
    }
    return (double)(elements * STREAM_MOVED) / best;
}

double stream_copy_rate(void *memory, int64_t bytes, double seconds)
{
    bytes = bytes < most() ? bytes : most();
    if (bytes < LEAST)
        return 0;
    size_t half = (size_t)bytes / 2;
    double best = 1e9, start = clock_now();
    memset(memory, 0, (size_t)bytes);
    for (int i = 0; i < 2 || clock_now() - start < seconds; i++) {
        double begin = clock_now();
        memcpy(memory, (char *)memory + half, half);
        double took = clock_now() - begin;
        best = took < best ? took : best;
    }
    return (double)half / best;
}

/* Lets a thread run where other ranks are bound to: together they have more of memory's rate. */
static void unbind(void)
{
    cpu_set_t all[64];
    memset(all, 0xFF, sizeof(all));
    (void)sched_setaffinity(0, sizeof(all), all); /* refused: where it is */
}

double stream_rate_apart(int threads, bool bound)
{
    int64_t bytes = stream_bytes(most() / BYTES) + PAGE;
    char error[512];
    int64_t free_bytes = memory_available("", error, sizeof(error)) / 4;
    if (free_bytes < bytes / 2) /* what the third cache would hold */
        return 0;
    bytes = bytes < free_bytes ? bytes : free_bytes;
    void *memory = huge_alloc((size_t)bytes);
    if (!memory)
        return 0;
    struct workers *w = workers_create(threads, 0, bound ? unbind : NULL, error, sizeof(error));
    double rate = w ? stream_rate(w, memory, bytes, 0.05) : 0;
    workers_destroy(w);
    free(memory);
    return rate;
}
