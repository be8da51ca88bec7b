// SPDX-License-Identifier: Apache-2.0
#include "tests/support/toy_cuda.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "kernels/cuda/runtime.h"
#include "src/comm/nccl.h"

/* Not there where a plugin without it is tested. */
#pragma weak comm_nccl_version
#pragma weak comm_nccl_id
#pragma weak comm_nccl_create

#define ROOM_BYTES ((size_t)1 << 22) /* of one step's tasks */

static int gpu_count;
static bool with_nccl, in_default;

/* A rank's, which is a thread. */
static _Thread_local char *room;
static _Thread_local size_t taken;

static atomic_bool failed;

static bool done(cudaError_t rc)
{
    if (rc != cudaSuccess)
        atomic_store(&failed, true);
    return rc == cudaSuccess;
}

void toy_cuda_in_default(void)
{
    in_default = true;
}

bool toy_cuda_failed(void)
{
    return atomic_load(&failed);
}

static void begin(int rank)
{
    taken = 0;
    if (!done(cudaSetDevice(rank % gpu_count)) ||
        !done(cudaHostAlloc((void **)&room, ROOM_BYTES, cudaHostAllocDefault)))
        room = NULL;
}

static void end(void)
{
    if (room)
        done(cudaFreeHost(room));
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
    cudaStream_t stream = in_default ? NULL : zero_stream(z);
    size_t bytes = (size_t)task->elements * (task->dtype == ZERO_FP32 ? 4 : 2);
    if (!room)
        return;
    struct toy_task *t = take(sizeof(*t));
    *t = *task;
    void *w = take(bytes);
    t->w = w;
    bool ok = done(cudaMemcpyAsync(w, task->w, bytes, cudaMemcpyDeviceToHost, stream));
    if (task->g) {
        t->g = take(bytes);
        ok = ok && done(cudaMemcpyAsync(t->g, task->g, bytes, cudaMemcpyDeviceToHost, stream));
    }
    ok = ok && done(cudaLaunchHostFunc(stream, run, t));
    if (ok && task->g)
        done(cudaMemcpyAsync(task->g, t->g, bytes, cudaMemcpyHostToDevice, stream));
}

static void wait(struct zero *z)
{
    done(cudaStreamSynchronize(in_default ? NULL : zero_stream(z)));
    taken = 0;
}

/* Small pieces, so that copies cross their edges. */
static int make(struct device **device, const struct device_options *options, struct error *error)
{
    struct device_options small = *options;
    small.pin_bytes = 1 << 16;
    return device_cuda_create(device, &small, error);
}

/* Whatever the plugin of this build was built with. */
static int describe(struct device_link *link, struct error *error)
{
    if (device_cuda_link(link, error))
        return error->status;
    link->version = with_nccl && comm_nccl_version ? comm_nccl_version() : 0;
    link->id = comm_nccl_id;
    link->comm = comm_nccl_create;
    return ZERO_OK;
}

void toy_cuda_start(int gpus, bool nccl)
{
    static const struct toy_apart apart = {.device = make,
                                           .link = describe,
                                           .begin = begin,
                                           .compute = compute,
                                           .wait = wait,
                                           .end = end};
    gpu_count = gpus;
    with_nccl = nccl;
    in_default = false;
    atomic_store(&failed, false);
    toy_apart = &apart;
}
