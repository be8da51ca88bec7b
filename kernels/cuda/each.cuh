// SPDX-License-Identifier: Apache-2.0
/*
 * Kernels that do the same to every element: what they have in common. A body is
 * a struct of pointers that loads W elements from index i on, and stores what comes
 * of them; each() runs it over n elements, all loads of a thread before its stores,
 * so that enough bytes are under way to fill the memory's bandwidth.
 */
#ifndef KERNELS_CUDA_EACH_CUH
#define KERNELS_CUDA_EACH_CUH

#include <stdint.h>

#include "kernels/cuda/launch.h"

#define EACH_THREADS 256
#define EACH_WIDTH   4 /* elements in one access: 16 bytes of fp32, 8 of a 16-bit format */

/* W neighbours, read and written at once. */
template <typename T, int W> struct alignas(sizeof(T) * W) Pack {
    T at[W];
};

template <int W, typename T> __device__ inline Pack<T, W> pack_load(const T *from)
{
    return *reinterpret_cast<const Pack<T, W> *>(from);
}

template <int W, typename T> __device__ inline void pack_store(T *to, const Pack<T, W> &pack)
{
    *reinterpret_cast<Pack<T, W> *>(to) = pack;
}

/* A block's packs of one turn are neighbours; the last block's first threads have
 * the elements that fill no pack. */
template <int W, typename Body>
__global__ void __launch_bounds__(EACH_THREADS) each(const int64_t n, const Body body)
{
    constexpr int64_t turn = EACH_THREADS * W;
    const int64_t first = (int64_t)blockIdx.x * (turn * Body::turns) + threadIdx.x * W;
    typename Body::template Values<W> values[Body::turns];
#pragma unroll
    for (int t = 0; t < Body::turns; t++)
        if (first + t * turn + W <= n)
            body.load(first + t * turn, values[t]);
#pragma unroll
    for (int t = 0; t < Body::turns; t++)
        if (first + t * turn + W <= n)
            body.store(first + t * turn, values[t]);
    if (W > 1 && blockIdx.x == gridDim.x - 1 && threadIdx.x < n % W) {
        typename Body::template Values<1> value;
        body.load(n - n % W + threadIdx.x, value);
        body.store(n - n % W + threadIdx.x, value);
    }
}

/* Launches a kernel; its status alone, without what went wrong before. */
template <typename... Parameters, typename... Arguments>
inline cudaError_t launch(cudaStream_t stream, int64_t blocks, int threads,
                          void (*kernel)(Parameters...), const Arguments &...arguments)
{
    if (blocks > INT32_MAX)
        return cudaErrorInvalidValue;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3((unsigned)threads);
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/* Loads kernels, for launch_load. */
cudaError_t load_adam(void);
cudaError_t load_formats(void);
cudaError_t load_sums(void);

template <typename... Kernels> inline cudaError_t load(const Kernels... kernels)
{
    cudaFuncAttributes attributes;
    cudaError_t error = cudaSuccess;
    ((error = error == cudaSuccess ? cudaFuncGetAttributes(&attributes, kernels) : error), ...);
    return error;
}

template <typename... Bodies> inline cudaError_t each_load()
{
    return load(each<EACH_WIDTH, Bodies>..., each<1, Bodies>...);
}

/* Whether packs of EACH_WIDTH can be read from all of them. NULL can. */
template <typename... Types> inline bool packs_fit(const Types *...arrays)
{
    return ((reinterpret_cast<uintptr_t>(arrays) % sizeof(Pack<Types, EACH_WIDTH>) == 0) && ...);
}

template <int W, typename Body>
inline cudaError_t each_launch(cudaStream_t stream, int64_t n, const Body &body)
{
    constexpr int64_t elements = (int64_t)EACH_THREADS * W * Body::turns;
    return launch(stream, (n + elements - 1) / elements, EACH_THREADS, each<W, Body>, n, body);
}

/* Runs a body over n elements of the arrays. */
template <typename Body, typename... Types>
inline cudaError_t each_run(cudaStream_t stream, int64_t n, const Body &body,
                            const Types *...arrays)
{
    if (n <= 0)
        return n == 0 ? cudaSuccess : cudaErrorInvalidValue;
    return packs_fit(arrays...) ? each_launch<EACH_WIDTH>(stream, n, body)
                                : each_launch<1>(stream, n, body);
}

#endif
