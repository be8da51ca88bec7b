// SPDX-License-Identifier: Apache-2.0
#include "tests/support/toy_cuda.h"

#include <stdlib.h>

#include "kernels/cuda/runtime.h"

#define ROOM_BYTES ((size_t)1 << 22) /* of one step's tasks */

static int gpu_count;

/* A rank's, which is a thread. */
static _Thread_local char *room;
static _Thread_local size_t taken;

/* An error is the engine's to tell, too: the stream is its own. */
static void unless(cudaError_t rc)
{
    (void)rc;
}

static void begin(int rank)
{
    unless(cudaSetDevice(rank % gpu_count));
    if (cudaHostAlloc((void **)&room, ROOM_BYTES, cudaHostAllocDefault) != cudaSuccess)
        room = NULL;
    taken = 0;
}

static void end(void)
{
    if (room)
        unless(cudaFreeHost(room));
}

static void *take(size_t bytes)
{
    void *memory = room + taken;
    taken += (bytes + 63) / 64 * 64;
    if (taken > ROOM_BYTES)
        abort();
    return memory;
}

static void run(void *arg)
{
    toy_compute(arg);
}

/* There and back: what a kernel would do where the memory is. */
static void compute(struct zero *z, const struct toy_task *task)
{
    cudaStream_t stream = zero_stream(z);
    size_t bytes = (size_t)task->elements * (task->dtype == ZERO_FP32 ? 4 : 2);
    if (!room)
        return;
    struct toy_task *t = take(sizeof(*t));
    *t = *task;
    t->w = take(bytes);
    unless(cudaMemcpyAsync((void *)t->w, task->w, bytes, cudaMemcpyDeviceToHost, stream));
    if (task->g) {
        t->g = take(bytes);
        unless(cudaMemcpyAsync(t->g, task->g, bytes, cudaMemcpyDeviceToHost, stream));
    }
    unless(cudaLaunchHostFunc(stream, run, t));
    if (task->g)
        unless(cudaMemcpyAsync(task->g, t->g, bytes, cudaMemcpyHostToDevice, stream));
}

static void wait(struct zero *z)
{
    unless(cudaStreamSynchronize(zero_stream(z)));
    taken = 0;
}

void toy_cuda_start(int gpus)
{
    static const struct toy_apart apart = {
        .begin = begin, .compute = compute, .wait = wait, .end = end};
    gpu_count = gpus;
    toy_apart = &apart;
}

static int make(struct device **device, const struct device_options *options, struct error *error)
{
    struct device_options small = *options;
    small.pin_bytes = 1 << 16;
    return device_cuda_create(device, &small, error);
}

const struct engine_seams *toy_cuda_seams(void *arg, int rank)
{
    static const struct engine_seams seams = {.device = make};
    (void)arg;
    (void)rank;
    return &seams;
}
