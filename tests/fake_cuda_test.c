// SPDX-License-Identifier: Apache-2.0
/*
 * The CUDA runtime for tests: that it does what the real one does, that it reports
 * what it says it reports, and nothing else. That TSan sees through it is for
 * tests/planted.sh.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/launch.h"
#include "src/norm.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/suite.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED true /* what would be a signal is the sanitizer's report */
#else
#define SANITIZED false
#endif

#define N 1000

static void ok(cudaError_t error)
{
    ck_assert_msg(error == cudaSuccess, "%s", cudaGetErrorName(error));
}

static void two_gpus(void)
{
    struct fake_cuda_options options = {.gpus = 2, .bytes = 1 << 20, .seed = 7};
    fake_cuda_start(&options);
    ok(cudaSetDevice(0));
}

/* The test has given everything back; reports of a kind are what it provoked. */
static void stop(int reports, enum fake_cuda_report kind)
{
    fake_cuda_stop();
    ck_assert_int_eq(fake_cuda_reported(kind), reports);
    ck_assert_int_eq(fake_cuda_reported(FAKE_CUDA_REPORTS), reports);
    ck_assert(reports == 0 || strlen(fake_cuda_report(kind)) > 0);
}

static void stop_clean(void)
{
    stop(0, FAKE_CUDA_REPORTS);
}

static cudaStream_t stream_new(void)
{
    cudaStream_t stream;
    ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static cudaEvent_t event_new(void)
{
    cudaEvent_t event;
    ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
    return event;
}

static void *gpu_new(size_t bytes)
{
    void *memory;
    ok(cudaMalloc(&memory, bytes));
    return memory;
}

static void *host_new(size_t bytes)
{
    void *memory;
    ok(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault));
    return memory;
}

/* An operation that waits until the test lets it go. */
struct gate {
    sem_t open, passed;
};

static void gate_run(void *arg)
{
    struct gate *gate = arg;
    while (sem_wait(&gate->open) != 0 && errno == EINTR)
        ;
    sem_post(&gate->passed);
}

static struct gate *gate_close(struct gate *gate, cudaStream_t stream)
{
    sem_init(&gate->open, 0, 0);
    sem_init(&gate->passed, 0, 0);
    ok(cudaLaunchHostFunc(stream, gate_run, gate));
    return gate;
}

static void gate_open(struct gate *gate)
{
    sem_post(&gate->open);
}

/* ----------------------------------------------------------------- what it does */

START_TEST(round_trip)
{
    cudaStream_t stream = stream_new();
    float *there = gpu_new(N * sizeof(float)), *out = host_new(N * sizeof(float));
    static float in[N];
    ok(cudaHostRegister(in, sizeof(in), cudaHostRegisterDefault));
    for (int i = 0; i < N; i++)
        in[i] = (float)i;
    enum cudaMemcpyKind to = _i ? cudaMemcpyDefault : cudaMemcpyHostToDevice;
    enum cudaMemcpyKind from = _i ? cudaMemcpyDefault : cudaMemcpyDeviceToHost;
    ok(cudaMemcpyAsync(there, in, sizeof(in), to, stream));
    ok(cudaMemcpyAsync(out, there, sizeof(in), from, stream));
    ok(cudaStreamSynchronize(stream));
    ck_assert_mem_eq(out, in, sizeof(in));
    ok(cudaMemsetAsync(there + 1, 0, sizeof(float), stream));
    ok(cudaStreamSynchronize(stream));
    static float pageable[N];
    ok(cudaMemcpy(pageable, there, sizeof(in), from));
    ck_assert(pageable[0] == in[0] && pageable[1] == 0.0f && pageable[2] == in[2]);
    ok(cudaMemcpy(there, pageable, sizeof(in), to));
    ok(cudaMemcpy(out, there, sizeof(in), from));
    ck_assert_mem_eq(out, pageable, sizeof(in));
    ok(cudaMemcpyAsync(NULL, NULL, 0, to, stream));
    ok(cudaStreamDestroy(stream));
    ok(cudaFree(there));
    ok(cudaFree(NULL));
    ok(cudaFreeHost(out));
    ok(cudaHostUnregister(in));
    stop_clean();
}
END_TEST

/* The bytes of a GPU's memory before anything was written there. */
START_TEST(memory_is_not_zero)
{
    unsigned char *there = gpu_new(N), here[N];
    ok(cudaMemcpy(here, there, N, cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(here[i], 0xFF);
    ok(cudaFree(there));
    stop_clean();
}
END_TEST

/* The host goes on while an operation waits, and other streams as well. */
START_TEST(streams_run_beside_the_host)
{
    struct gate first, second;
    cudaStream_t a = stream_new(), b = stream_new();
    ck_assert_int_eq(cudaStreamQuery(a), cudaSuccess);
    gate_close(&first, a);
    gate_close(&second, b);
    ck_assert_int_eq(cudaStreamQuery(a), cudaErrorNotReady);
    ck_assert_int_eq(cudaGetLastError(), cudaSuccess);
    gate_open(&second);
    ok(cudaStreamSynchronize(b));
    ck_assert_int_eq(cudaStreamQuery(b), cudaSuccess);
    ck_assert_int_eq(cudaStreamQuery(a), cudaErrorNotReady);
    gate_open(&first);
    ok(cudaDeviceSynchronize());
    ck_assert_int_eq(cudaStreamQuery(a), cudaSuccess);
    ok(cudaStreamDestroy(a));
    ok(cudaStreamDestroy(b));
    stop_clean();
}
END_TEST

/* What a stream has to do it does, also when it is destroyed meanwhile. */
START_TEST(streams_end_late)
{
    struct gate gate;
    cudaStream_t stream = stream_new();
    gate_close(&gate, stream);
    ok(cudaStreamDestroy(stream));
    gate_open(&gate);
    while (sem_wait(&gate.passed) != 0 && errno == EINTR)
        ;
    stop_clean();
}
END_TEST

/* A wait is for the record that there is when it is called, on any GPU. */
START_TEST(events)
{
    struct gate first, second;
    cudaStream_t a = stream_new();
    cudaEvent_t event = event_new();
    gate_close(&first, a);
    ok(cudaEventRecord(event, a));
    ck_assert_int_eq(cudaEventQuery(event), cudaErrorNotReady);
    ok(cudaSetDevice(1));
    cudaStream_t b = stream_new();
    ok(cudaStreamWaitEvent(b, event, 0));
    ck_assert_int_eq(cudaStreamQuery(b), cudaErrorNotReady);
    ok(cudaSetDevice(0));
    gate_close(&second, a);
    ok(cudaEventRecord(event, a));
    gate_open(&first);
    ok(cudaStreamSynchronize(b));
    ck_assert_int_eq(cudaEventQuery(event), cudaErrorNotReady);
    gate_open(&second);
    ok(cudaEventSynchronize(event));
    ck_assert_int_eq(cudaEventQuery(event), cudaSuccess);
    ok(cudaEventDestroy(event));
    ok(cudaStreamDestroy(a));
    ok(cudaStreamDestroy(b));
    stop_clean();
}
END_TEST

START_TEST(memory_has_an_end)
{
    size_t available, total;
    void *most = gpu_new((1 << 20) - 100), *more = NULL;
    ck_assert_int_eq(cudaMalloc(&more, 101), cudaErrorMemoryAllocation);
    ck_assert_ptr_null(more);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorMemoryAllocation);
    ck_assert_int_eq(cudaGetLastError(), cudaSuccess);
    ok(cudaMemGetInfo(&available, &total));
    ck_assert_uint_eq(available, 100);
    ck_assert_uint_eq(total, 1 << 20);
    more = gpu_new(100);
    ok(cudaSetDevice(1));
    void *other = gpu_new(1 << 20);
    ok(cudaFree(most));
    ok(cudaFree(other));
    ok(cudaFree(more));
    ok(cudaSetDevice(0));
    ok(cudaMemGetInfo(&available, &total));
    ck_assert_uint_eq(available, total);
    ck_assert_int_eq(cudaMalloc(&more, (size_t)1 << 63), cudaErrorMemoryAllocation);
    stop_clean();
}
END_TEST

START_TEST(devices)
{
    int count = 0, device = -1, version = 0;
    struct cudaDeviceProp first, second;
    ok(cudaGetDeviceCount(&count));
    ck_assert_int_eq(count, 2);
    ok(cudaGetDeviceProperties(&first, 0));
    ok(cudaGetDeviceProperties(&second, 1));
    ck_assert(memcmp(&first.uuid, &second.uuid, sizeof(first.uuid)) != 0);
    ck_assert_uint_eq(second.totalGlobalMem, 1 << 20);
    ck_assert_str_eq(second.name, "fake GPU 1");
    ck_assert_int_eq(cudaGetDeviceProperties(&first, 2), cudaErrorInvalidDevice);
    ck_assert_int_eq(cudaSetDevice(2), cudaErrorInvalidDevice);
    ck_assert_int_eq(cudaSetDevice(-1), cudaErrorInvalidDevice);
    ok(cudaSetDevice(1));
    ok(cudaGetDevice(&device));
    ck_assert_int_eq(device, 1);
    ok(cudaDriverGetVersion(&version));
    ck_assert_int_ge(version, 12000);
    ok(cudaRuntimeGetVersion(&version));
    ck_assert_int_ge(version, 12000);
    ck_assert_str_eq(cudaGetErrorName(cudaErrorNoDevice), "cudaErrorNoDevice");
    stop_clean();
}
END_TEST

START_TEST(no_driver)
{
    struct fake_cuda_options options = {0};
    fake_cuda_start(&options);
    int count = 17;
    void *memory;
    ck_assert_int_eq(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    ck_assert_int_eq(count, 17);
    ck_assert_int_eq(cudaSetDevice(0), cudaErrorInsufficientDriver);
    ck_assert_int_eq(cudaMalloc(&memory, 1), cudaErrorInsufficientDriver);
    ck_assert_int_eq(cudaHostRegister(&count, 4, 0), cudaErrorInsufficientDriver);
    ok(cudaDriverGetVersion(&count));
    ck_assert_int_eq(count, 0);
    stop_clean();
}
END_TEST

#define CALLS 19 /* that may fail */

/* A pass over every kind of call; ends at the first that fails. */
static cudaError_t use_everything(void)
{
    static float pageable[N];
    static char registered[N];
    struct adam k = {.grad_scale = 1};
    cudaStream_t stream = NULL;
    cudaEvent_t event = NULL;
    float *there = NULL, *host = NULL;
    int count;
    bool is_registered = false;
    size_t available, total;
    struct cudaDeviceProp properties;
    cudaError_t e;
    (void)((e = cudaGetDeviceCount(&count)) || (e = cudaGetDeviceProperties(&properties, 0)) ||
           (e = cudaSetDevice(0)) || (e = cudaStreamCreateWithFlags(&stream, 0)) ||
           (e = cudaEventCreateWithFlags(&event, cudaEventBlockingSync)) ||
           (e = cudaMalloc((void **)&there, 4 * N * sizeof(float))) ||
           (e = cudaHostAlloc((void **)&host, N * sizeof(float), 0)) ||
           (e = cudaMemGetInfo(&available, &total)) || (e = cudaHostRegister(registered, N, 0)) ||
           (is_registered = true,
            e = cudaMemcpy(there, pageable, sizeof(pageable), cudaMemcpyHostToDevice)) ||
           (e = cudaStreamSynchronize(NULL)) ||
           (e = cudaMemcpyAsync(there + N, there, N * 4, cudaMemcpyDefault, stream)) ||
           (e = cudaMemsetAsync(there, 0, N, stream)) ||
           (e = launch_adam(stream, N, &k, (struct grads){.f32 = there}, there + N, there + 2 * N,
                            there + 3 * N, NULL)) ||
           (e = cudaEventRecord(event, stream)) || (e = cudaStreamWaitEvent(stream, event, 0)) ||
           (e = cudaEventSynchronize(event)) || (e = cudaEventQuery(event)) ||
           (e = cudaDeviceSynchronize()));
    if (there)
        cudaDeviceSynchronize();
    if (is_registered)
        cudaHostUnregister(registered);
    cudaFreeHost(host);
    cudaFree(there);
    if (event)
        cudaEventDestroy(event);
    if (stream)
        cudaStreamDestroy(stream);
    return e;
}

static cudaError_t use_with(struct fault *with)
{
    struct fake_cuda_options options = {.gpus = 1, .seed = 3, .fault = with};
    fake_cuda_start(&options);
    cudaError_t error = use_everything();
    stop_clean();
    return error;
}

START_TEST(every_call_can_fail)
{
    struct fault none = {.kind = FAULT_CUDA_CALL};
    ok(use_with(&none));
    ck_assert_int_eq(none.seen, CALLS + 1);
    for (int n = 1; n <= none.seen; n++) {
        struct fault one = {.kind = FAULT_CUDA_CALL, .nth = n};
        ck_assert_int_eq(use_with(&one), n <= CALLS ? cudaErrorUnknown : cudaSuccess);
        ck_assert_int_eq(one.struck, 1);
    }
    for (int n = 1; n <= 2; n++) {
        struct fault memory = {.kind = FAULT_CUDA_MEMORY, .nth = n};
        ck_assert_int_eq(use_with(&memory), cudaErrorMemoryAllocation);
    }
    struct fault refused = {.kind = FAULT_CUDA_REGISTER, .nth = 1};
    ck_assert_int_eq(use_with(&refused), cudaErrorNotSupported);
}
END_TEST

/* From then on nothing runs on that GPU and every call says so, but nothing hangs. */
START_TEST(gpu_lost)
{
    struct fault fault = {.kind = FAULT_CUDA_LOST, .nth = 2};
    fake_cuda_start(&(struct fake_cuda_options){.gpus = 2, .seed = 7, .fault = &fault});
    ok(cudaSetDevice(0));
    cudaStream_t stream = stream_new();
    unsigned char *there = gpu_new(N), here;
    ok(cudaMemsetAsync(there, 1, N, stream));
    ok(cudaMemsetAsync(there, 2, N, stream));
    cudaError_t behind = cudaMemsetAsync(there, 3, N, stream); /* if it is not lost by then */
    ck_assert(behind == cudaSuccess || behind == cudaErrorLaunchFailure);
    ck_assert_int_eq(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    ck_assert_int_eq(cudaStreamQuery(stream), cudaErrorLaunchFailure);
    ck_assert_int_eq(cudaMemcpy(&here, there, 1, cudaMemcpyDeviceToHost), cudaErrorLaunchFailure);
    ck_assert_int_eq(cudaSetDevice(0), cudaErrorLaunchFailure);
    ok(cudaSetDevice(1));
    void *other = gpu_new(N);
    ok(cudaFree(other));
    ck_assert_int_eq(cudaFree(there), cudaErrorLaunchFailure);
    ck_assert_int_eq(cudaStreamDestroy(stream), cudaErrorLaunchFailure);
    stop_clean();
}
END_TEST

START_TEST(host_reads_gpu_memory)
{
    volatile float *there = gpu_new(N);
    ck_assert(there[0] == 0.0f);
}
END_TEST

/* -------------------------------------------------------------- what it reports */

/* A stream, memory of the GPU and of the host, of N bytes each, for one misuse. */
struct scene {
    cudaStream_t stream;
    cudaEvent_t event;
    char *there, *host;
};

static struct scene scene_new(void)
{
    return (struct scene){stream_new(), event_new(), gpu_new(N), host_new(N)};
}

static void scene_end(struct scene *s, int reports, enum fake_cuda_report kind)
{
    if (s->stream)
        ok(cudaStreamSynchronize(s->stream));
    ok(cudaFree(s->there));
    ok(cudaFreeHost(s->host));
    if (s->event)
        ok(cudaEventDestroy(s->event));
    if (s->stream)
        ok(cudaStreamDestroy(s->stream));
    stop(reports, kind);
}

START_TEST(outside)
{
    struct scene s = scene_new();
    static const struct grads grads = {0};
    struct adam k = {0};
    const cudaError_t wrong = cudaErrorInvalidValue;
    enum cudaMemcpyKind in = cudaMemcpyHostToDevice, out = cudaMemcpyDeviceToHost;
    ck_assert_int_eq(cudaMemcpyAsync(s.there + 1, s.host, N, in, s.stream), wrong);
    ck_assert_int_eq(cudaMemcpyAsync(s.there, s.host, N, out, s.stream), wrong);
    ck_assert_int_eq(cudaMemcpyAsync(s.there, s.host, N, cudaMemcpyDeviceToDevice, s.stream),
                     wrong);
    ck_assert_int_eq(cudaMemcpyAsync(&k, s.host, 1, in, s.stream), wrong);
    ck_assert_int_eq(cudaMemcpy(s.host, s.there + N, 1, out), wrong);
    ck_assert_int_eq(cudaMemsetAsync(s.there + N - 1, 0, 2, s.stream), wrong);
    ck_assert_int_eq(launch_to_bf16(s.stream, N / 4 + 1, (float *)s.there, (uint16_t *)s.there),
                     wrong);
    ck_assert_int_eq(launch_adam(s.stream, 1, &k, grads, (float *)s.there, (float *)s.there,
                                 (float *)s.there, NULL),
                     wrong); /* NULL is pageable memory */
    ck_assert_int_eq(fake_cuda_reported(FAKE_CUDA_UNREGISTERED), 1);
    ck_assert_int_eq(cudaGetLastError(), wrong);
    ck_assert_int_eq(fake_cuda_reported(FAKE_CUDA_OUTSIDE), 7);
    ck_assert_int_eq(fake_cuda_reported(FAKE_CUDA_REPORTS), 8);
    two_gpus(); /* forgets the reports */
    scene_end(&s, 0, FAKE_CUDA_OUTSIDE);
}
END_TEST

START_TEST(unregistered)
{
    struct scene s = scene_new();
    char *pages = aligned_alloc(4096, 2 * 4096);
    memset(pages, 5, 2 * 4096);
    ok(cudaHostRegister(pages, 4096, 0));
    /* Pageable: it is done all the same, as by the real runtime. */
    ok(cudaMemcpyAsync(s.there, pages + 5000, N, cudaMemcpyHostToDevice, s.stream));
    ok(cudaStreamSynchronize(s.stream));
    ok(cudaMemcpyAsync(pages + 6000, s.there, N, cudaMemcpyDeviceToHost, s.stream));
    ok(cudaStreamSynchronize(s.stream));
    ck_assert_int_eq(fake_cuda_reported(FAKE_CUDA_UNREGISTERED), 2);
    /* Half of it registered, then both halves with a call each. */
    ck_assert_int_eq(cudaMemcpyAsync(s.there, pages + 4000, 200, cudaMemcpyDefault, s.stream),
                     cudaErrorInvalidValue);
    ok(cudaHostRegister(pages + 4096, 4096, 0));
    ck_assert_int_eq(cudaHostRegister(pages, 1, 0), cudaErrorHostMemoryAlreadyRegistered);
    ck_assert_int_eq(cudaMemcpyAsync(s.there, pages + 4000, 200, cudaMemcpyDefault, s.stream),
                     cudaErrorInvalidValue);
    ok(cudaHostUnregister(pages));
    ok(cudaHostUnregister(pages + 4096));
    ok(cudaMemcpyAsync(s.there, pages, 1, cudaMemcpyHostToDevice, s.stream));
    ok(cudaStreamSynchronize(s.stream));
    /* A kernel cannot reach it at all. */
    ck_assert_int_eq(launch_to_bf16(s.stream, 1, (float *)(void *)pages, (uint16_t *)s.there),
                     cudaErrorInvalidValue);
    ok(cudaHostRegister(pages, 4096, 0));
    ok(launch_to_bf16(s.stream, 1, (float *)(void *)pages, (uint16_t *)s.there));
    ok(cudaStreamSynchronize(s.stream));
    ok(cudaHostUnregister(pages));
    free(pages);
    scene_end(&s, 6, FAKE_CUDA_UNREGISTERED);
}
END_TEST

/* Used after it was given back, and given back while it is used. */
START_TEST(freed)
{
    struct gate gate;
    struct scene s = scene_new();
    char *gone = gpu_new(N), *page = aligned_alloc(4096, 4096);
    ok(cudaFree(gone));
    ck_assert_int_eq(cudaFree(gone), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemsetAsync(gone, 0, 1, s.stream), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaFree(s.there + 1), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaFreeHost(s.there), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaHostUnregister(page), cudaErrorHostMemoryNotRegistered);
    ck_assert_int_eq(fake_cuda_reported(FAKE_CUDA_FREED), 5);
    if (!SANITIZED) { /* TSan has words of its own for it */
        gone = gpu_new(N);
        ok(cudaHostRegister(page, 4096, 0));
        gate_close(&gate, s.stream);
        ok(cudaMemcpyAsync(gone, page, N, cudaMemcpyHostToDevice, s.stream));
        ok(cudaHostUnregister(page));
        ok(cudaFree(gone));
        gate_open(&gate);
        ok(cudaStreamSynchronize(s.stream));
        ck_assert_int_eq(fake_cuda_reported(FAKE_CUDA_FREED), 7);
    }
    free(page);
    cudaStream_t stream = stream_new();
    cudaEvent_t event = event_new();
    ok(cudaStreamDestroy(stream));
    ok(cudaEventDestroy(event));
    ck_assert_int_eq(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
    ck_assert_int_eq(cudaMemsetAsync(s.there, 0, 1, stream), cudaErrorInvalidResourceHandle);
    ck_assert_int_eq(cudaEventRecord(event, s.stream), cudaErrorInvalidResourceHandle);
    ck_assert_int_eq(cudaStreamWaitEvent(s.stream, event, 0), cudaErrorInvalidResourceHandle);
    ck_assert_int_eq(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
    scene_end(&s, SANITIZED ? 10 : 12, FAKE_CUDA_FREED);
}
END_TEST

START_TEST(unrecorded)
{
    struct scene s = scene_new();
    ok(cudaStreamWaitEvent(s.stream, s.event, 0));
    ok(cudaEventSynchronize(s.event));
    ok(cudaEventQuery(s.event));
    ok(cudaEventRecord(s.event, s.stream));
    ok(cudaStreamWaitEvent(s.stream, s.event, 0));
    ok(cudaEventSynchronize(s.event));
    scene_end(&s, 3, FAKE_CUDA_UNRECORDED);
}
END_TEST

START_TEST(spins)
{
    struct scene s = scene_new();
    cudaEvent_t event;
    ok(cudaEventCreateWithFlags(&event, cudaEventDefault));
    ok(cudaEventRecord(event, s.stream));
    ok(cudaStreamWaitEvent(s.stream, event, 0));
    ok(cudaEventSynchronize(event));
    ok(cudaEventQuery(event));
    ok(cudaEventDestroy(event));
    scene_end(&s, 1, FAKE_CUDA_SPINS);
}
END_TEST

static void *without_device(void *arg)
{
    const struct scene *s = arg;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    void *memory;
    ok(cudaMalloc(&memory, N));
    ok(cudaMemcpy(memory, s->host, N, cudaMemcpyHostToDevice));
    ok(cudaMemcpyAsync(memory, s->host, N, cudaMemcpyHostToDevice, s->stream));
    /* These name what they are for, and open the thread's own GPU all the same. */
    ok(cudaStreamSynchronize(s->stream));
    ok(cudaStreamQuery(s->stream));
    ok(cudaEventQuery(s->event));
    ok(cudaEventSynchronize(s->event));
    ok(cudaThreadExchangeStreamCaptureMode(&mode));
    ok(cudaFree(memory));
    return NULL;
}

START_TEST(no_device)
{
    struct scene s = scene_new();
    pthread_t thread;
    ok(cudaEventRecord(s.event, s.stream));
    ck_assert_int_eq(pthread_create(&thread, NULL, without_device, &s), 0);
    pthread_join(thread, NULL);
    scene_end(&s, 8, FAKE_CUDA_NO_DEVICE);
}
END_TEST

START_TEST(other_device)
{
    struct scene s = scene_new();
    const cudaError_t wrong = cudaErrorInvalidResourceHandle;
    ok(cudaSetDevice(1));
    cudaStream_t stream = stream_new();
    ck_assert_int_eq(cudaMemsetAsync(s.there, 0, N, s.stream), wrong);
    ck_assert_int_eq(cudaEventRecord(s.event, stream), wrong);
    ck_assert_int_eq(launch_to_bf16(stream, 1, (float *)s.there, (uint16_t *)s.host),
                     cudaErrorInvalidValue);
    ok(cudaMemcpyAsync(s.there, s.there + N / 2, N / 2, cudaMemcpyDeviceToDevice, stream));
    ok(cudaStreamSynchronize(stream));
    ok(cudaStreamDestroy(stream));
    ok(cudaSetDevice(0));
    scene_end(&s, 3, FAKE_CUDA_OTHER_DEVICE);
}
END_TEST

START_TEST(default_stream)
{
    struct scene s = scene_new();
    const cudaError_t wrong = cudaErrorInvalidResourceHandle;
    ck_assert_int_eq(cudaMemsetAsync(s.there, 0, N, NULL), wrong);
    ck_assert_int_eq(cudaEventRecord(s.event, NULL), wrong);
    ok(cudaEventRecord(s.event, s.stream));
    ck_assert_int_eq(cudaStreamWaitEvent(NULL, s.event, 0), wrong);
    ok(cudaStreamQuery(NULL));
    scene_end(&s, 3, FAKE_CUDA_DEFAULT);
}
END_TEST

static void calls_back(void *arg)
{
    const struct scene *s = arg;
    const cudaError_t wrong = cudaErrorNotPermitted;
    ck_assert_int_eq(cudaStreamQuery(s->stream), wrong);
    ck_assert_int_eq(cudaFree(s->there), wrong);
    ck_assert_int_eq(cudaFreeHost(s->host), wrong);
    ck_assert_int_eq(cudaHostUnregister(s->host), wrong);
    ck_assert_int_eq(cudaEventDestroy(s->event), wrong);
    ck_assert_int_eq(cudaStreamDestroy(s->stream), wrong);
}

START_TEST(within)
{
    struct scene s = scene_new();
    ok(cudaLaunchHostFunc(s.stream, calls_back, &s));
    scene_end(&s, 6, FAKE_CUDA_WITHIN);
}
END_TEST

START_TEST(leaks)
{
    static char registered[N];
    (void)scene_new();
    ok(cudaHostRegister(registered, N, 0));
    stop(5, FAKE_CUDA_LEAK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fake_cuda");
    TCase *does = tcase_create("does"), *reports = tcase_create("reports");
    tcase_add_checked_fixture(does, two_gpus, NULL);
    tcase_add_checked_fixture(reports, two_gpus, NULL);
    tcase_add_loop_test(does, round_trip, 0, 2);
    tcase_add_test(does, memory_is_not_zero);
    tcase_add_test(does, streams_run_beside_the_host);
    tcase_add_test(does, streams_end_late);
    tcase_add_test(does, events);
    tcase_add_test(does, memory_has_an_end);
    tcase_add_test(does, devices);
    tcase_add_test(does, no_driver);
    tcase_add_test(does, every_call_can_fail);
    tcase_add_test(does, gpu_lost);
    if (!SANITIZED)
        tcase_add_test_raise_signal(does, host_reads_gpu_memory, SIGSEGV);
    tcase_add_test(reports, outside);
    tcase_add_test(reports, unregistered);
    tcase_add_test(reports, freed);
    tcase_add_test(reports, unrecorded);
    tcase_add_test(reports, spins);
    tcase_add_test(reports, no_device);
    tcase_add_test(reports, other_device);
    tcase_add_test(reports, default_stream);
    tcase_add_test(reports, within);
    tcase_add_test(reports, leaks);
    suite_add_tcase(suite, does);
    suite_add_tcase(suite, reports);
    return suite_run_all(suite);
}
