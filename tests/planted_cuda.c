// SPDX-License-Identifier: Apache-2.0
/*
 * Work on two streams of a fake GPU, in good order or with one wait left out:
 * tests/planted.sh sees that TSan reports each defect, and nothing without one.
 *     planted_cuda none | wait | synchronise | source | event | free | pageable | nccl
 *                  [late | early]
 * By the time that the host goes wrong, the streams have long done their work and the
 * host has made other calls (late), or they have not begun it (early). Only an order that
 * the fake makes by accident could then hide the defect.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/launch.h"
#include "src/comm/nccl_api.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/fake_nccl.h"

#define N     4096
#define BYTES (N * sizeof(float))

static bool late, early;

static void must(cudaError_t error)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s\n", cudaGetErrorName(error));
    exit(1);
}

/* Two streams, memory there and here, and another stream that has nothing to do with it. */
struct scene {
    cudaStream_t a, b, other;
    cudaEvent_t event;
    float *there, *here;
    uint16_t *half; /* there */
};

static cudaStream_t stream_new(void)
{
    cudaStream_t stream;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static void nap(void *arg)
{
    (void)arg;
    usleep(30000);
}

static struct scene scene_new(void)
{
    struct scene s = {.a = stream_new(), .b = stream_new(), .other = stream_new()};
    must(cudaEventCreateWithFlags(&s.event, cudaEventDisableTiming | cudaEventBlockingSync));
    must(cudaMalloc((void **)&s.there, BYTES));
    must(cudaMalloc((void **)&s.half, BYTES / 2));
    must(cudaHostAlloc((void **)&s.here, BYTES, cudaHostAllocDefault));
    memset(s.here, 0, BYTES);
    if (early) {
        must(cudaLaunchHostFunc(s.a, nap, NULL));
        must(cudaLaunchHostFunc(s.b, nap, NULL));
    }
    return s;
}

static void scene_end(struct scene *s)
{
    must(cudaDeviceSynchronize());
    must(cudaStreamDestroy(s->a));
    must(cudaStreamDestroy(s->b));
    must(cudaStreamDestroy(s->other));
    must(cudaEventDestroy(s->event));
    must(cudaFree(s->there));
    must(cudaFree(s->half));
    must(cudaFreeHost(s->here));
}

/* All that the host may do and that orders nothing of a and b. */
static void meanwhile(const struct scene *s)
{
    void *memory;
    cudaEvent_t event;
    if (!late)
        return;
    usleep(30000);
    must(cudaMalloc(&memory, 100));
    must(cudaMemsetAsync(memory, 0, 100, s->other));
    must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    must(cudaEventRecord(event, s->other));
    must(cudaStreamWaitEvent(s->a, event, 0));
    must(cudaStreamWaitEvent(s->b, event, 0));
    must(cudaStreamSynchronize(s->other));
    must(cudaEventDestroy(event));
    must(cudaFree(memory));
    usleep(30000);
}

static void copy_in(const struct scene *s, cudaStream_t stream)
{
    must(cudaMemcpyAsync(s->there, s->here, BYTES, cudaMemcpyHostToDevice, stream));
}

static void round_it(const struct scene *s, cudaStream_t stream)
{
    must(launch_to_bf16(stream, N, s->there, s->half));
}

static void copy_out(const struct scene *s, cudaStream_t stream)
{
    must(cudaMemcpyAsync(s->here, s->half, BYTES / 2, cudaMemcpyDeviceToHost, stream));
}

static void nccl_must(ncclResult_t rc)
{
    if (rc == ncclSuccess || rc == ncclInProgress)
        return;
    fprintf(stderr, "%s\n", ncclGetErrorString(rc));
    exit(1);
}

/* Until nothing is in progress. */
static void nccl_settle(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        nccl_must(ncclCommGetAsyncError(comm, &state));
        nccl_must(state);
    }
}

static ncclComm_t comm_new(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclComm_t comm;
    config.blocking = 0;
    nccl_must(ncclGetUniqueId(&id));
    nccl_must(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
    nccl_settle(comm);
    return comm;
}

/* What is rounded goes to all ranks. */
static void gather(const struct scene *s, ncclComm_t comm, cudaStream_t stream)
{
    nccl_must(ncclAllGather(s->half, s->there, BYTES / 2, ncclUint8, comm, stream));
    nccl_settle(comm);
}

static void comm_end(const struct scene *s, ncclComm_t comm)
{
    must(cudaStreamSynchronize(s->b));
    nccl_must(ncclCommFinalize(comm));
    nccl_settle(comm);
    nccl_must(ncclCommDestroy(comm));
}

/* -------------------------------------------------------------------- defects */

/* The second stream does not wait for the first. */
__attribute__((noinline)) static void forget_the_wait(void)
{
    struct scene s = scene_new();
    copy_in(&s, s.a);
    must(cudaEventRecord(s.event, s.a));
    meanwhile(&s);
    round_it(&s, s.b);
    scene_end(&s);
}

/* The host reads what is still being copied. */
__attribute__((noinline)) static void read_too_early(void)
{
    struct scene s = scene_new();
    round_it(&s, s.a);
    copy_out(&s, s.a);
    meanwhile(&s);
    volatile float first = s.here[0];
    (void)first;
    scene_end(&s);
}

/* The host fills a buffer again that is still being read. */
__attribute__((noinline)) static void reuse_the_source(void)
{
    struct scene s = scene_new();
    copy_in(&s, s.a);
    meanwhile(&s);
    s.here[7] = 1.0f;
    round_it(&s, s.a);
    scene_end(&s);
}

/* The event says nothing of the copy behind it. */
__attribute__((noinline)) static void record_too_early(void)
{
    struct scene s = scene_new();
    must(cudaEventRecord(s.event, s.a));
    copy_in(&s, s.a);
    meanwhile(&s);
    must(cudaStreamWaitEvent(s.b, s.event, 0));
    round_it(&s, s.b);
    scene_end(&s);
}

/* Memory is given back that a kernel still works on. */
__attribute__((noinline)) static void free_too_early(void)
{
    struct scene s = scene_new();
    float *gone = s.there;
    copy_in(&s, s.a);
    meanwhile(&s);
    s.there = NULL;
    must(cudaFree(gone));
    scene_end(&s);
}

/* cudaMemcpy returned, but only the copy out of pageable memory is done by then. */
__attribute__((noinline)) static void trust_pageable(void)
{
    struct scene s = scene_new();
    static float pageable[N];
    must(cudaMemcpy(s.there, pageable, BYTES, cudaMemcpyHostToDevice));
    meanwhile(&s);
    round_it(&s, s.a);
    scene_end(&s);
}

/* NCCL's stream does not wait for the one that computes. */
__attribute__((noinline)) static void gather_too_early(void)
{
    struct scene s = scene_new();
    ncclComm_t comm = comm_new();
    round_it(&s, s.a);
    must(cudaEventRecord(s.event, s.a));
    meanwhile(&s);
    gather(&s, comm, s.b);
    comm_end(&s, comm);
    scene_end(&s);
}

/* The same in good order, and back. */
static void gather_in_good_order(const struct scene *s)
{
    ncclComm_t comm = comm_new();
    round_it(s, s->a);
    must(cudaEventRecord(s->event, s->a));
    must(cudaStreamWaitEvent(s->b, s->event, 0));
    gather(s, comm, s->b);
    must(cudaEventRecord(s->event, s->b));
    must(cudaStreamWaitEvent(s->a, s->event, 0));
    copy_in(s, s->a);
    comm_end(s, comm);
    must(cudaStreamSynchronize(s->a));
}

/* The same, each thing behind what it needs: by every call that orders. */
static void in_good_order(void)
{
    struct scene s = scene_new();
    static float pageable[N];
    must(cudaMemcpy(s.there, pageable, BYTES, cudaMemcpyHostToDevice));
    must(cudaStreamSynchronize(NULL));
    copy_in(&s, s.a);
    must(cudaEventRecord(s.event, s.a));
    must(cudaStreamWaitEvent(s.b, s.event, 0));
    meanwhile(&s);
    round_it(&s, s.b);
    must(cudaEventSynchronize(s.event));
    s.here[7] = 1.0f;
    copy_out(&s, s.b);
    must(cudaStreamSynchronize(s.b));
    s.here[0] += 1.0f;
    copy_out(&s, s.b);
    while (cudaStreamQuery(s.b) == cudaErrorNotReady)
        usleep(100);
    s.here[0] += 1.0f;
    copy_in(&s, s.b);
    must(cudaEventRecord(s.event, s.b));
    must(cudaStreamWaitEvent(s.other, s.event, 0));
    must(cudaEventRecord(s.event, s.other));
    must(cudaStreamWaitEvent(s.a, s.event, 0));
    round_it(&s, s.a);
    copy_out(&s, s.a);
    must(cudaEventRecord(s.event, s.a));
    while (cudaEventQuery(s.event) == cudaErrorNotReady)
        usleep(100);
    s.here[0] += 1.0f;
    copy_in(&s, s.a);
    must(cudaDeviceSynchronize());
    s.here[0] += 1.0f;
    must(cudaMemcpy(pageable, s.there, BYTES, cudaMemcpyDeviceToHost));
    pageable[0] += 1.0f;
    must(cudaMemcpy(s.there, s.here, BYTES, cudaMemcpyHostToDevice));
    round_it(&s, s.b);
    must(cudaStreamSynchronize(s.b));
    gather_in_good_order(&s);
    scene_end(&s);
}

static const struct {
    const char *name;
    void (*run)(void);
} works[] = {
    {"none", in_good_order},      {"wait", forget_the_wait},   {"synchronise", read_too_early},
    {"source", reuse_the_source}, {"event", record_too_early}, {"free", free_too_early},
    {"pageable", trust_pageable}, {"nccl", gather_too_early},
};

int main(int argc, char **argv)
{
    struct fake_cuda_options options = {.gpus = 1, .seed = 11};
    fake_cuda_start(&options);
    must(cudaSetDevice(0));
    late = argc > 2 && strcmp(argv[2], "late") == 0;
    early = argc > 2 && strcmp(argv[2], "early") == 0;
    for (size_t i = 0; argc > 1 && i < sizeof(works) / sizeof(*works); i++)
        if (strcmp(works[i].name, argv[1]) == 0)
            works[i].run();
    fake_cuda_stop();
    fake_nccl_stop();
    return fake_cuda_reported(FAKE_CUDA_REPORTS) + fake_nccl_reported(FAKE_NCCL_REPORTS) != 0;
}
