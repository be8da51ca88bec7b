// SPDX-License-Identifier: Apache-2.0
/*
 * Copies between an engine's arena and its device, as the engine asks for them: a chunk's
 * parameters at a time there and its gradients back, from memory that was registered piece by
 * piece. The limit is one copy of all of it from memory that the driver has given out; both
 * directions at once against the same.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "examples/common/clock.h"
#include "offload/arena.h"
#include "src/device/device.h"
#include "tests/gpu/bench.h"
#include "tests/support/random.h"

enum { IN, OUT, WAYS };

/* Bytes of a chunk: parameters of 16 bits there, sums of 32 back. */
static const int64_t pieces[WAYS] = {2 * ZERO_CHUNK_CUDA, 4 * ZERO_CHUNK_CUDA};

struct bed {
    int64_t bytes; /* each way */
    struct device *device;
    struct arena arena;
    int event;
    char *host[WAYS], *best[WAYS], *there[WAYS]; /* arena, driver's memory, the GPU's */
    cudaStream_t stream[WAYS];
    struct device_copy *copies[WAYS];
    bool ways[WAYS]; /* that are timed */
};

static double time_best(void *arg)
{
    struct bed *bed = arg;
    double start = clock_now();
    if (bed->ways[IN])
        bench_ok(cudaMemcpyAsync(bed->there[IN], bed->best[IN], (size_t)bed->bytes,
                                 cudaMemcpyHostToDevice, bed->stream[IN]));
    if (bed->ways[OUT])
        bench_ok(cudaMemcpyAsync(bed->best[OUT], bed->there[OUT], (size_t)bed->bytes,
                                 cudaMemcpyDeviceToHost, bed->stream[OUT]));
    for (int way = 0; way < WAYS; way++)
        bench_ok(cudaStreamSynchronize(bed->stream[way]));
    return clock_now() - start;
}

static void wait_for(struct bed *bed, const struct device_copy *copy)
{
    struct error error = {0};
    while (!bed->device->ops->copied(bed->device, copy)) {
        struct pollfd fd = {.fd = bed->event, .events = POLLIN};
        uint64_t count;
        if (poll(&fd, 1, 10000) == 0 || bed->device->ops->status(bed->device, &error))
            bench_fail("A copy does not end. %s", error.text);
        if (read(bed->event, &count, sizeof(count)) < 0)
            continue; /* the other way's */
    }
}

static int64_t count(const struct bed *bed, int way)
{
    return (bed->bytes + pieces[way] - 1) / pieces[way];
}

static double time_ours(void *arg)
{
    struct bed *bed = arg;
    double start = clock_now();
    for (int64_t c = 0; c < count(bed, IN); c++)
        for (int way = 0; way < WAYS; way++) {
            int64_t at = c * pieces[way], left = bed->bytes - at;
            int64_t n = left < pieces[way] ? left : pieces[way];
            char *host = bed->host[way] + at, *there = bed->there[way] + at;
            if (!bed->ways[way] || n <= 0)
                continue;
            bed->copies[way][c] = (struct device_copy){
                .to = way == IN ? there : host, .from = way == IN ? host : there, .bytes = n};
            bed->device->ops->copy(bed->device,
                                   way == IN ? DEVICE_TO_DEVICE_MEMORY : DEVICE_TO_HOST_MEMORY,
                                   &bed->copies[way][c]);
        }
    for (int way = 0; way < WAYS; way++)
        if (bed->ways[way])
            wait_for(bed, &bed->copies[way][count(bed, way) - 1]);
    return clock_now() - start;
}

static void fill(char *memory, int64_t bytes, uint64_t number)
{
    for (int64_t i = 0; i < bytes / 8; i++)
        ((uint64_t *)(void *)memory)[i] = random_mix(number << 40 ^ (uint64_t)i);
}

/* There, within the device, and back: the same bytes. */
static void check(struct bed *bed)
{
    struct error error = {0};
    char *back = malloc((size_t)bed->bytes);
    if (!back)
        bench_fail("No memory for %lld bytes.", (long long)bed->bytes);
    fill(bed->host[IN], bed->bytes, 1);
    memset(bed->host[OUT], 0, (size_t)bed->bytes);
    bed->ways[IN] = true;
    bed->ways[OUT] = false;
    time_ours(bed);
    if (bed->device->ops->read(bed->device, back, bed->there[IN], bed->bytes, &error))
        bench_fail("%s", error.text);
    if (memcmp(back, bed->host[IN], (size_t)bed->bytes))
        bench_fail("A copy to the device has moved other bytes. Nothing was timed.");
    bench_ok(cudaMemcpyAsync(bed->there[OUT], bed->there[IN], (size_t)bed->bytes,
                             cudaMemcpyDeviceToDevice, bed->stream[OUT]));
    bench_ok(cudaStreamSynchronize(bed->stream[OUT]));
    bed->ways[OUT] = true;
    time_ours(bed);
    if (memcmp(bed->host[OUT], back, (size_t)bed->bytes))
        bench_fail("A copy to the host has moved other bytes. Nothing was timed.");
    free(back);
}

static void make(struct bed *bed, const struct bench *b)
{
    struct error error = {0};
    const struct device_options options = {.event_fd = bed->event = eventfd(0, EFD_NONBLOCK)};
    bed->bytes = b->host_bytes;
    if (device_cuda_create(&bed->device, &options, &error) ||
        arena_create(&bed->arena, WAYS * bed->bytes, 4, &error) ||
        bed->device->ops->pin(bed->device, bed->arena.base, WAYS * bed->bytes, &error))
        bench_fail("%s", error.text);
    for (int way = 0; way < WAYS; way++) {
        bed->host[way] = bed->arena.base + way * bed->bytes;
        bed->there[way] = bed->device->ops->alloc(bed->device, bed->bytes, &error);
        bed->copies[way] = calloc((size_t)count(bed, way), sizeof(*bed->copies[way]));
        if (!bed->there[way] || !bed->copies[way])
            bench_fail("No memory for copies. %s", error.text);
        bench_ok(cudaHostAlloc((void **)&bed->best[way], (size_t)bed->bytes, cudaHostAllocDefault));
        bench_ok(cudaStreamCreateWithFlags(&bed->stream[way], cudaStreamNonBlocking));
        fill(bed->best[way], bed->bytes, 2);
    }
}

void bench_copies(const struct bench *b)
{
    static const char *const names[] = {"copy_to_device", "copy_to_host", "copy_both_ways"};
    struct bed bed = {0};
    make(&bed, b);
    check(&bed);
    for (int i = 0; i < 3; i++) {
        struct pass passes[] = {{time_best, &bed, 0}, {time_ours, &bed, 0}};
        bed.ways[IN] = i != 1;
        bed.ways[OUT] = i != 0;
        bench_measure(b, passes, 2);
        bench_rate(names[i], (double)bed.bytes * (i == 2 ? 2 : 1), passes[0].median,
                   passes[1].median);
    }
    for (int way = 0; way < WAYS; way++) {
        bench_ok(cudaFreeHost(bed.best[way]));
        bench_ok(cudaStreamDestroy(bed.stream[way]));
        free(bed.copies[way]);
    }
    bed.device->ops->destroy(bed.device);
    arena_destroy(&bed.arena);
    close(bed.event);
}
