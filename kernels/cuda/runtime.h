// SPDX-License-Identifier: Apache-2.0
/*
 * What the library and its tests use of the CUDA runtime, and the one home of its
 * header. Where there is no toolkit the same is declared here, so that what runs on
 * the host compiles, and is tested on the runtime of tests/support/fake_cuda.h,
 * everywhere; where there is one the compiler holds these declarations to it.
 * Nothing here differs between CUDA 12 and 13.
 */
#ifndef KERNELS_CUDA_RUNTIME_H
#define KERNELS_CUDA_RUNTIME_H

#include <stddef.h>

#define CUDA_ERRORS(X)                                                                             \
    X(cudaSuccess, 0)                                                                              \
    X(cudaErrorInvalidValue, 1)                                                                    \
    X(cudaErrorMemoryAllocation, 2)                                                                \
    X(cudaErrorInsufficientDriver, 35)                                                             \
    X(cudaErrorDevicesUnavailable, 46)                                                             \
    X(cudaErrorNoDevice, 100)                                                                      \
    X(cudaErrorInvalidDevice, 101)                                                                 \
    X(cudaErrorNoKernelImageForDevice, 209)                                                        \
    X(cudaErrorECCUncorrectable, 214)                                                              \
    X(cudaErrorInvalidPtx, 218)                                                                    \
    X(cudaErrorJitCompilerNotFound, 221)                                                           \
    X(cudaErrorUnsupportedPtxVersion, 222)                                                         \
    X(cudaErrorInvalidResourceHandle, 400)                                                         \
    X(cudaErrorNotReady, 600)                                                                      \
    X(cudaErrorIllegalAddress, 700)                                                                \
    X(cudaErrorHostMemoryAlreadyRegistered, 712)                                                   \
    X(cudaErrorHostMemoryNotRegistered, 713)                                                       \
    X(cudaErrorLaunchFailure, 719)                                                                 \
    X(cudaErrorNotPermitted, 800)                                                                  \
    X(cudaErrorNotSupported, 801)                                                                  \
    X(cudaErrorStreamCaptureUnsupported, 900)                                                      \
    X(cudaErrorUnknown, 999)

#define CUDA_COPIES(X)                                                                             \
    X(cudaMemcpyHostToDevice, 1)                                                                   \
    X(cudaMemcpyDeviceToHost, 2)                                                                   \
    X(cudaMemcpyDeviceToDevice, 3)                                                                 \
    X(cudaMemcpyDefault, 4)

#define CUDA_CAPTURES(X) X(cudaStreamCaptureModeRelaxed, 2)

#define CUDA_FLAGS(X)                                                                              \
    X(cudaStreamDefault, 0)                                                                        \
    X(cudaStreamNonBlocking, 1)                                                                    \
    X(cudaEventDefault, 0)                                                                         \
    X(cudaEventBlockingSync, 1)                                                                    \
    X(cudaEventDisableTiming, 2)                                                                   \
    X(cudaHostAllocDefault, 0)                                                                     \
    X(cudaHostRegisterDefault, 0)

#if defined(HAVE_CUDA) || defined(__CUDACC__)
#include <cuda_runtime_api.h>

#ifdef __cplusplus
#define CUDA_SAME(name, value) static_assert(name == (value), "another value of " #name);
#else
#define CUDA_SAME(name, value) _Static_assert(name == (value), "another value of " #name);
#endif
CUDA_ERRORS(CUDA_SAME)
CUDA_COPIES(CUDA_SAME)
CUDA_FLAGS(CUDA_SAME)
CUDA_CAPTURES(CUDA_SAME)
#undef CUDA_SAME

#else

#define CUDA_NAME(name, value) name = (value),
enum cudaError { CUDA_ERRORS(CUDA_NAME) };
enum cudaMemcpyKind { CUDA_COPIES(CUDA_NAME) };
enum { CUDA_FLAGS(CUDA_NAME) };
enum cudaStreamCaptureMode { CUDA_CAPTURES(CUDA_NAME) };
#undef CUDA_NAME

typedef enum cudaError cudaError_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef void (*cudaHostFn_t)(void *arg);

/* Of many members those that are used: only who is compiled with this fills it. */
struct cudaDeviceProp {
    char name[256];
    struct CUuuid_st {
        char bytes[16];
    } uuid;
    size_t totalGlobalMem;
    int major, minor;
    int multiProcessorCount;
    int pciDomainID, pciBusID, pciDeviceID;
};
#endif

/* Of streams: CUDA takes the highest that the GPU has. Their blocks enter a GPU that a program's
 * stream keeps full as soon as one of its own has ended. */
#define CUDA_PRIORITY_FIRST (-100)

#ifdef __cplusplus
extern "C" {
#endif

/* The first three answer without a GPU as well. */
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaMemGetInfo(size_t *available, size_t *total);

const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError(void);

cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *memory);

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t run, void *arg);

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end);

/* How the calling thread stands to a graph that another one captures; returns how it stood. By
 * default what it asks of streams and events is refused then, and ends the capture too. */
static inline enum cudaStreamCaptureMode cuda_capture_mode(enum cudaStreamCaptureMode mode)
{
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

#ifdef __cplusplus
}
#endif

#endif
