// SPDX-License-Identifier: Apache-2.0
/*
 * The CPU as a device: its memory is the process's own, under an account of its
 * own; its streams are one thread each. Nothing is faster for it: it is the
 * meaning of device.h, and shows a missing dependency without a GPU.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "offload/arena.h"
#include "src/device/device.h"
#include "src/thread.h"

#define CAP_VARIABLE "ZERO_DEVICE_MEMORY"
#define THREADS      2    /* streams that copy between the memories */
#define SUM_BLOCK    4096 /* elements summed before their squares enter the norm */

struct stream {
    pthread_t thread;
    bool started;
    int event_fd;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* Under lock. */
    struct device_copy *first, *last;
    bool stop;
};

struct allocation {
    struct arena arena;
    struct allocation *next;
};

struct device_cpu {
    struct device device;
    int64_t cap, used; /* bytes; cap INT64_MAX: none */
    struct allocation *allocations;
    struct stream streams[THREADS];
    const struct kernels *kernels;
    int threads; /* that touch memory first */
    struct wide norm;
};

static void *stream_run(void *arg)
{
    struct stream *stream = arg;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (stream->first == NULL && !stream->stop)
            pthread_cond_wait(&stream->wake, &stream->lock);
        struct device_copy *copy = stream->first;
        if (copy == NULL)
            break;
        stream->first = copy->next;
        pthread_mutex_unlock(&stream->lock);
        memcpy(copy->to, copy->from, (size_t)copy->bytes);
        /* Pairs with cpu_copied. The copy is the caller's again from here on. */
        __atomic_store_n(&copy->done, true, __ATOMIC_RELEASE);
        event_write(stream->event_fd);
        pthread_mutex_lock(&stream->lock);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

static void *cpu_alloc(struct device *device, int64_t bytes, struct error *error)
{
    struct device_cpu *cpu = (struct device_cpu *)device;
    assert(bytes > 0);
    if (bytes > cpu->cap - cpu->used) {
        error_set(error, ZERO_ERR_MEMORY,
                  "%" PRId64 " bytes of device memory are needed, %" PRId64 " of %" PRId64
                  " are free (" CAP_VARIABLE "). Use a higher stage, more ranks, or offload more.",
                  bytes, cpu->cap - cpu->used, cpu->cap);
        return NULL;
    }
    struct allocation *allocation = calloc(1, sizeof(*allocation));
    if (allocation == NULL) {
        error_set(error, ZERO_ERR_MEMORY,
                  "No memory for an allocation's record." ERROR_FREE_MEMORY);
        return NULL;
    }
    if (arena_create(&allocation->arena, bytes, cpu->threads, error) != ZERO_OK) {
        free(allocation);
        return NULL;
    }
    allocation->next = cpu->allocations;
    cpu->allocations = allocation;
    cpu->used += bytes;
    return allocation->arena.base;
}

static int cpu_pin(struct device *device, void *memory, int64_t bytes, struct error *error)
{
    (void)device;
    (void)memory;
    (void)bytes;
    return error->status;
}

static void cpu_copy(struct device *device, enum device_stream which, struct device_copy *copy)
{
    struct device_cpu *cpu = (struct device_cpu *)device;
    assert(copy->bytes >= 0);
    copy->next = NULL;
    copy->done = which >= THREADS;
    if (copy->done) {
        memcpy(copy->to, copy->from, (size_t)copy->bytes);
        return;
    }
    struct stream *stream = &cpu->streams[which];
    pthread_mutex_lock(&stream->lock);
    if (stream->first == NULL)
        stream->first = copy;
    else
        stream->last->next = copy;
    stream->last = copy;
    pthread_cond_signal(&stream->wake);
    pthread_mutex_unlock(&stream->lock);
}

static void cpu_mark(struct device *device, enum device_stream which, struct device_copy *mark)
{
    *mark = (struct device_copy){.to = mark, .from = mark};
    cpu_copy(device, which, mark);
}

static bool cpu_copied(struct device *device, const struct device_copy *copy)
{
    (void)device;
    return __atomic_load_n(&copy->done, __ATOMIC_ACQUIRE);
}

/* ------------------------------------------------------------ arithmetic */

static int cpu_status(struct device *device, struct error *error)
{
    (void)device;
    return error->status;
}

static void cpu_clear(struct device *device, enum device_stream which, void *memory, int64_t bytes)
{
    (void)device;
    (void)which;
    memset(memory, 0, (size_t)bytes);
}

static void sum_block(const struct kernels *k, const struct device_sum *s, int64_t n, float *sum,
                      double *squares)
{
    if (s->dtype == ZERO_FP32)
        k->sum_f32(n, s->ranks, (const float *const *)s->parts, s->fresh, sum, squares);
    else
        (s->dtype == ZERO_BF16 ? k->sum_bf16 : k->sum_fp16)(
            n, s->ranks, (const uint16_t *const *)s->parts, s->fresh, sum, squares);
}

/* Sums of a block, to where they rest. */
static void round_block(const struct kernels *k, int64_t n, float *sum, uint16_t *narrow)
{
    uint16_t rounded[SUM_BLOCK];
    k->to_bf16(n, sum, narrow ? narrow : rounded);
    if (!narrow)
        k->from_bf16(n, rounded, sum);
}

/* The norm is taken before sums are rounded. */
static void cpu_sum(struct device *device, const struct device_sum *s)
{
    struct device_cpu *cpu = (struct device_cpu *)device;
    double squares[SUM_BLOCK / KERNELS_BLOCK];
    float block[SUM_BLOCK];
    assert(s->count % KERNELS_BLOCK == 0 && (!s->narrow || (s->fresh && s->last && s->round)));
    for (int64_t at = 0; at < s->count; at += SUM_BLOCK) {
        int64_t n = s->count - at < SUM_BLOCK ? s->count - at : SUM_BLOCK;
        float *sum = s->narrow ? block : (float *)s->sum + at;
        sum_block(cpu->kernels, s, n, sum, s->last ? squares : NULL);
        if (s->last && s->round)
            round_block(cpu->kernels, n, sum, s->narrow ? (uint16_t *)s->sum + at : NULL);
        for (int64_t b = 0; s->last && b < n / KERNELS_BLOCK; b++)
            wide_add(&cpu->norm, squares[b]);
        for (int r = 0; r < s->ranks; r++)
            s->parts[r] = (const char *)s->parts[r] + n * (s->dtype == ZERO_FP32 ? 4 : 2);
    }
}

static int cpu_norm(struct device *device, struct wide *norm, struct error *error)
{
    struct device_cpu *cpu = (struct device_cpu *)device;
    *norm = cpu->norm;
    cpu->norm = (struct wide){0};
    return error->status;
}

static void cpu_adam(struct device *device, const struct adam_stretch *stretch)
{
    adam_step(((struct device_cpu *)device)->kernels, stretch);
}

static int cpu_read(struct device *device, void *to, const void *from, int64_t bytes,
                    struct error *error)
{
    (void)device;
    memcpy(to, from, (size_t)bytes);
    return error->status;
}

/* -------------------------------------------------------- create, destroy */

/* Runs what the streams still have, then ends them. */
static void cpu_destroy(struct device *device)
{
    struct device_cpu *cpu = (struct device_cpu *)device;
    if (cpu == NULL)
        return;
    for (int i = 0; i < THREADS; i++) {
        struct stream *stream = &cpu->streams[i];
        pthread_mutex_lock(&stream->lock);
        stream->stop = true;
        pthread_cond_signal(&stream->wake);
        pthread_mutex_unlock(&stream->lock);
        if (stream->started)
            pthread_join(stream->thread, NULL);
        pthread_cond_destroy(&stream->wake);
        pthread_mutex_destroy(&stream->lock);
    }
    for (struct allocation *a; (a = cpu->allocations) != NULL;) {
        cpu->allocations = a->next;
        if (!device->held)
            arena_destroy(&a->arena);
        free(a);
    }
    free(cpu);
}

/* Bytes, or a number with K, M or G (powers of 1024). */
static int cap_read(int64_t *cap, struct error *error)
{
    *cap = INT64_MAX;
    const char *text = getenv(CAP_VARIABLE);
    if (text == NULL)
        return ZERO_OK;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    int shift = 0;
    switch (*end) {
    case 'k':
    case 'K': shift = 10, end++; break;
    case 'm':
    case 'M': shift = 20, end++; break;
    case 'g':
    case 'G': shift = 30, end++; break;
    default: break;
    }
    bool digits = text[0] >= '0' && text[0] <= '9';
    if (!digits || errno != 0 || *end != '\0' || value <= 0 || value > INT64_MAX >> shift)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         CAP_VARIABLE "=%.64s is not a number of bytes. Give it as 500000000, "
                                      "512M or 4G.",
                         text);
    *cap = (int64_t)value << shift;
    return ZERO_OK;
}

static const struct device_ops cpu_ops = {
    .alloc = cpu_alloc,
    .pin = cpu_pin,
    .copy = cpu_copy,
    .mark = cpu_mark,
    .copied = cpu_copied,
    .status = cpu_status,
    .clear = cpu_clear,
    .sum = cpu_sum,
    .norm = cpu_norm,
    .adam = cpu_adam,
    .read = cpu_read,
    .destroy = cpu_destroy,
};

int device_cpu_create(struct device **device, const struct device_options *options,
                      struct error *error)
{
    assert(options->event_fd >= 0);
    *device = NULL;
    int64_t cap;
    if (cap_read(&cap, error) != ZERO_OK)
        return error->status;
    struct device_cpu *cpu = calloc(1, sizeof(*cpu));
    if (cpu == NULL)
        return error_set(error, ZERO_ERR_MEMORY, "No memory for a device." ERROR_FREE_MEMORY);
    cpu->device.ops = &cpu_ops;
    cpu->device.name = "cpu";
    cpu->cap = cap;
    cpu->kernels = options->kernels;
    cpu->threads = options->threads > 1 ? options->threads : 1;
    for (int i = 0; i < THREADS; i++) {
        struct stream *stream = &cpu->streams[i];
        stream->event_fd = options->event_fd;
        pthread_mutex_init(&stream->lock, NULL);
        pthread_cond_init(&stream->wake, NULL);
        int rc = thread_start(&stream->thread, stream_run, stream);
        stream->started = rc == 0;
        if (rc != 0)
            error_set(error, ZERO_ERR_MEMORY,
                      "A copy thread could not be started: %s. Raise the limit on processes "
                      "or memory (ulimit -u, ulimit -v).",
                      strerror(rc));
    }
    if (error->status) {
        cpu_destroy(&cpu->device);
        return error->status;
    }
    *device = &cpu->device;
    return ZERO_OK;
}
