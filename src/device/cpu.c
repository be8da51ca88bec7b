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
    struct stream streams[DEVICE_STREAMS];
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
    if (arena_create(&allocation->arena, bytes, error) != ZERO_OK) {
        free(allocation);
        return NULL;
    }
    allocation->next = cpu->allocations;
    cpu->allocations = allocation;
    cpu->used += bytes;
    return allocation->arena.base;
}

static void cpu_free(struct device *device, void *memory, int64_t bytes)
{
    struct device_cpu *cpu = (struct device_cpu *)device;
    if (memory == NULL)
        return;
    struct allocation **link = &cpu->allocations;
    while (*link != NULL && (*link)->arena.base != memory)
        link = &(*link)->next;
    struct allocation *allocation = *link;
    assert(allocation != NULL && allocation->arena.bytes == bytes);
    *link = allocation->next;
    cpu->used -= bytes;
    assert(cpu->used >= 0);
    arena_destroy(&allocation->arena);
    free(allocation);
}

static void cpu_copy(struct device *device, enum device_stream which, struct device_copy *copy)
{
    struct device_cpu *cpu = (struct device_cpu *)device;
    struct stream *stream = &cpu->streams[which];
    assert(copy->bytes >= 0);
    copy->next = NULL;
    copy->done = false;
    pthread_mutex_lock(&stream->lock);
    if (stream->first == NULL)
        stream->first = copy;
    else
        stream->last->next = copy;
    stream->last = copy;
    pthread_cond_signal(&stream->wake);
    pthread_mutex_unlock(&stream->lock);
}

static bool cpu_copied(struct device *device, const struct device_copy *copy)
{
    (void)device;
    return __atomic_load_n(&copy->done, __ATOMIC_ACQUIRE);
}

/* Runs what the streams still have, then ends them. */
static void cpu_destroy(struct device *device)
{
    struct device_cpu *cpu = (struct device_cpu *)device;
    if (cpu == NULL)
        return;
    for (int i = 0; i < DEVICE_STREAMS; i++) {
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
    while (cpu->allocations != NULL)
        cpu_free(device, cpu->allocations->arena.base, cpu->allocations->arena.bytes);
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
    .name = "cpu",
    .alloc = cpu_alloc,
    .free = cpu_free,
    .copy = cpu_copy,
    .copied = cpu_copied,
    .destroy = cpu_destroy,
};

int device_cpu_create(struct device **device, int event_fd, struct error *error)
{
    assert(event_fd >= 0);
    *device = NULL;
    int64_t cap;
    if (cap_read(&cap, error) != ZERO_OK)
        return error->status;
    struct device_cpu *cpu = calloc(1, sizeof(*cpu));
    if (cpu == NULL)
        return error_set(error, ZERO_ERR_MEMORY, "No memory for a device." ERROR_FREE_MEMORY);
    cpu->device.ops = &cpu_ops;
    cpu->cap = cap;
    for (int i = 0; i < DEVICE_STREAMS; i++) {
        struct stream *stream = &cpu->streams[i];
        stream->event_fd = event_fd;
        pthread_mutex_init(&stream->lock, NULL);
        pthread_cond_init(&stream->wake, NULL);
    }
    for (int i = 0; i < DEVICE_STREAMS; i++) {
        struct stream *stream = &cpu->streams[i];
        int rc = thread_start(&stream->thread, stream_run, stream);
        if (rc != 0) {
            char text[64];
            error_set(error, ZERO_ERR_MEMORY,
                      "A copy thread could not be started: %s. Raise the limit on processes "
                      "or memory (ulimit -u, ulimit -v).",
                      strerror_r(rc, text, sizeof(text)));
            cpu_destroy(&cpu->device);
            return error->status;
        }
        stream->started = true;
    }
    *device = &cpu->device;
    return ZERO_OK;
}
