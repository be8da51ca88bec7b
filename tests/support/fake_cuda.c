// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/fake_cuda_parts.h"

#define BYTES_DEFAULT ((int64_t)1 << 30)
#define VERSION       13000

struct fake_cuda_options fake_options = {.gpus = 1, .bytes = BYTES_DEFAULT};

static atomic_int lost[FAKE_CUDA_GPUS_MAX];
static _Thread_local int current = -1;
static _Thread_local bool within;
static _Thread_local cudaError_t last_error;
static _Thread_local enum cudaStreamCaptureMode capture_mode;

/* -------------------------------------------------------------------- reports */

struct report {
    struct report *before;
    char text[512];
};

static _Atomic(struct report *) reports[FAKE_CUDA_REPORTS];
static atomic_int counts[FAKE_CUDA_REPORTS + 1];

void fake_report(enum fake_cuda_report kind, const char *format, ...)
{
    struct report *r = calloc(1, sizeof(*r));
    if (!r)
        abort();
    va_list args;
    va_start(args, format);
    vsnprintf(r->text, sizeof(r->text), format, args);
    va_end(args);
    fprintf(stderr, "fake CUDA: %s\n", r->text);
    r->before = atomic_load(&reports[kind]);
    while (!atomic_compare_exchange_weak(&reports[kind], &r->before, r))
        ;
    atomic_fetch_add(&counts[kind], 1);
    atomic_fetch_add(&counts[FAKE_CUDA_REPORTS], 1);
}

int fake_cuda_reported(enum fake_cuda_report kind)
{
    return atomic_load(&counts[kind]);
}

const char *fake_cuda_report(enum fake_cuda_report kind)
{
    const struct report *r = atomic_load(&reports[kind]);
    return r ? r->text : NULL;
}

static void reports_free(void)
{
    for (int kind = 0; kind < FAKE_CUDA_REPORTS; kind++) {
        struct report *r = atomic_exchange(&reports[kind], NULL);
        while (r) {
            struct report *before = r->before;
            free(r);
            r = before;
        }
        atomic_store(&counts[kind], 0);
    }
    atomic_store(&counts[FAKE_CUDA_REPORTS], 0);
}

/* -------------------------------------------------------------- start and stop */

void fake_cuda_start(const struct fake_cuda_options *options)
{
    reports_free();
    fake_options = *options;
    if (fake_options.bytes == 0)
        fake_options.bytes = BYTES_DEFAULT;
    for (int i = 0; i < FAKE_CUDA_GPUS_MAX; i++)
        atomic_store(&lost[i], cudaSuccess);
    current = -1;
    last_error = cudaSuccess;
}

void fake_cuda_stop(void)
{
    fake_streams_stop();
    fake_memory_stop();
}

/* ------------------------------------------------------- what calls have in common */

cudaError_t fake_result(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

bool fake_strikes(enum fault_kind kind)
{
    return fault_strikes(fake_options.fault, kind);
}

/* No order comes of what is only a mark. */
void fake_gpu_lose(int gpu)
{
    atomic_store_explicit(&lost[gpu], cudaErrorLaunchFailure, memory_order_relaxed);
}

cudaError_t fake_gpu_error(int gpu)
{
    return (cudaError_t)atomic_load_explicit(&lost[gpu], memory_order_relaxed);
}

void fake_within(void)
{
    within = true;
}

bool fake_refuses(void)
{
    if (within)
        fake_report(FAKE_CUDA_WITHIN, "a function that a stream runs calls the runtime");
    return within;
}

static cudaError_t enter_any(void)
{
    if (fake_options.gpus == 0)
        return cudaErrorInsufficientDriver;
    if (fake_refuses())
        return cudaErrorNotPermitted;
    return fake_strikes(FAULT_CUDA_CALL) ? cudaErrorUnknown : cudaSuccess;
}

cudaError_t fake_enter(void)
{
    cudaError_t error = enter_any();
    return error == cudaSuccess ? fake_gpu_error(current < 0 ? 0 : current) : error;
}

bool fake_may_query(void)
{
    return !fake_options.captured || capture_mode == cudaStreamCaptureModeRelaxed;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    (void)fake_gpu(__func__);
    enum cudaStreamCaptureMode before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

int fake_gpu(const char *call)
{
    if (current >= 0)
        return current;
    fake_report(FAKE_CUDA_NO_DEVICE, "%s: this thread has not called cudaSetDevice", call);
    return 0;
}

/* -------------------------------------------------------------------- devices */

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t error = enter_any();
    if (error == cudaSuccess)
        *count = fake_options.gpus;
    return fake_result(error);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = fake_options.gpus ? VERSION : 0;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    cudaError_t error = enter_any();
    if (error != cudaSuccess)
        return fake_result(error);
    if (device < 0 || device >= fake_options.gpus)
        return fake_result(cudaErrorInvalidDevice);
    memset(properties, 0, sizeof(*properties));
    snprintf(properties->name, sizeof(properties->name), "fake GPU");
    if (!fake_options.alike)
        snprintf(properties->name, sizeof(properties->name), "fake GPU %d", device);
    memcpy(properties->uuid.bytes, "fake GPU's UUID", 15);
    properties->uuid.bytes[15] = (char)device;
    properties->pciDomainID = 1;
    properties->pciBusID = 1 + device;
    properties->totalGlobalMem = (size_t)fake_options.bytes;
    properties->major = 9;
    properties->multiProcessorCount = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t error = enter_any();
    if (error != cudaSuccess)
        return fake_result(error);
    if (device < 0 || device >= fake_options.gpus)
        return fake_result(cudaErrorInvalidDevice);
    if (fake_options.bytes < 0) /* choosing a GPU takes memory of it */
        return fake_result(cudaErrorMemoryAllocation);
    current = device;
    return fake_result(fake_gpu_error(device));
}

cudaError_t cudaGetDevice(int *device)
{
    cudaError_t error = enter_any();
    if (error == cudaSuccess)
        *device = current < 0 ? 0 : current;
    return fake_result(error);
}

/* --------------------------------------------------------------------- errors */

const char *cudaGetErrorName(cudaError_t error)
{
#define NAME(name, value)                                                                          \
    case name: return #name;
    switch (error) {
        CUDA_ERRORS(NAME)
    default: return "unrecognized error code";
    }
#undef NAME
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "an error of the fake CUDA runtime";
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}
