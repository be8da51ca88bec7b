// SPDX-License-Identifier: Apache-2.0
/*
 * Lets a C++ compiler take the .cu files of kernels/cuda for the host (-include this),
 * so that the very kernels that nvcc compiles run without a GPU, on the fake runtime: blocks
 * one after the other, a block's threads in turns that end at barriers. It is what
 * these kernels use of CUDA and no more, and asks one thing of them: that all threads
 * of a block come to the same barriers and shuffles, or leave before the first.
 */
#ifndef TESTS_SUPPORT_FAKE_NVCC_H
#define TESTS_SUPPORT_FAKE_NVCC_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tuple>
#include <ucontext.h>

#include "kernels/cuda/runtime.h"

#define __global__
#define __device__
#define __shared__ static thread_local
#define __grid_constant__
#define __launch_bounds__(x)

extern "C" cudaError_t fake_kernel(cudaStream_t stream, const void *arg, size_t bytes,
                                   void (*run)(void *));
extern "C" bool fake_plain_memory;

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned size = 1) : x(size), y(1), z(1)
    {
    }
};

inline thread_local dim3 threadIdx, blockIdx, gridDim;

/* --------------------------------------------------------------- a block's threads */

#define FAKE_THREADS_MAX 1024
#define FAKE_STACK       (64 << 10)

struct fake_block_run {
    ucontext_t scheduler, threads[FAKE_THREADS_MAX];
    unsigned count, begun;
    bool over[FAKE_THREADS_MAX];
    void (*run)(const void *kernel);
    const void *kernel;
    double shuffled[FAKE_THREADS_MAX]; /* 64 bits, of any type */
};

inline thread_local fake_block_run *fake_block_now;

/* Runs threads to their ends, one after the other on one stack, until one has to wait;
 * that one has the stack from then on. */
inline void fake_threads_run()
{
    fake_block_run *b = fake_block_now;
    for (;;) {
        b->run(b->kernel);
        b->over[threadIdx.x] = true;
        if (b->begun == b->count)
            break;
        threadIdx.x = b->begun++;
    }
    setcontext(&b->scheduler);
}

inline void fake_barrier()
{
    fake_block_run *b = fake_block_now;
    swapcontext(&b->threads[threadIdx.x], &b->scheduler);
}

/* To the first barrier. */
inline void fake_threads_begin(fake_block_run *b, char *stacks)
{
    for (b->begun = 0; b->begun < b->count;) {
        unsigned t = threadIdx.x = b->begun++;
        getcontext(&b->threads[t]);
        b->threads[t].uc_stack.ss_sp = stacks + (size_t)t * FAKE_STACK;
        b->threads[t].uc_stack.ss_size = FAKE_STACK;
        makecontext(&b->threads[t], fake_threads_run, 0);
        swapcontext(&b->scheduler, &b->threads[t]);
    }
}

/* From one barrier to the next; false: all have ended. */
inline bool fake_threads_go_on(fake_block_run *b)
{
    bool any = false;
    for (unsigned t = 0; t < b->count; t++) {
        if (b->over[t])
            continue;
        any = true;
        threadIdx.x = t;
        swapcontext(&b->scheduler, &b->threads[t]);
    }
    return any;
}

inline void fake_blocks_run(unsigned blocks, unsigned threads, void (*run)(const void *),
                            const void *kernel)
{
    fake_block_run *b = static_cast<fake_block_run *>(calloc(1, sizeof(*b)));
    char *stacks = static_cast<char *>(malloc((size_t)threads * FAKE_STACK));
    if (!b || !stacks || threads > FAKE_THREADS_MAX)
        abort();
    b->run = run;
    b->kernel = kernel;
    b->count = threads;
    fake_block_now = b;
    gridDim.x = blocks;
    for (unsigned block = 0; block < blocks; block++) {
        blockIdx.x = block;
        memset(b->over, 0, sizeof(b->over));
        fake_threads_begin(b, stacks);
        while (fake_threads_go_on(b))
            ;
    }
    free(stacks);
    free(b);
}

inline void __syncthreads()
{
    fake_barrier();
}

inline void __syncwarp()
{
    fake_barrier();
}

template <typename T> inline T __shfl_xor_sync(unsigned, T x, int distance)
{
    static_assert(sizeof(T) == sizeof(double), "of 64 bits");
    double *slots = fake_block_now->shuffled;
    unsigned t = threadIdx.x;
    memcpy(&slots[t], &x, sizeof(x));
    fake_barrier();
    memcpy(&x, &slots[t ^ (unsigned)distance], sizeof(x));
    fake_barrier();
    return x;
}

/* ---------------------------------------------------------------------- arithmetic */

inline float __fmul_rn(float a, float b)
{
    return a * b;
}

inline float __fadd_rn(float a, float b)
{
    return a + b;
}

inline float __fsub_rn(float a, float b)
{
    return a - b;
}

inline float __fdiv_rn(float a, float b)
{
    return a / b;
}

inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}

inline double __dmul_rn(double a, double b)
{
    return a * b;
}

inline double __dadd_rn(double a, double b)
{
    return a + b;
}

inline float __uint_as_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

inline long long __double_as_longlong(double x)
{
    long long bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

inline unsigned long long atomicAdd(unsigned long long *to, unsigned long long x)
{
    return __atomic_fetch_add(to, x, __ATOMIC_RELAXED);
}

/* In place of the instructions of kernels/cuda/half.cuh, with their NaN. */
#define KERNELS_CUDA_HALF_CUH
#include "kernels/fp16.h"

inline float half_to_float(uint16_t x)
{
    return (x & 0x7FFFu) > 0x7C00u ? __uint_as_float(0x7FFFFFFFu) : fp16_to_float(x);
}

inline uint16_t half_from_float(float x)
{
    return x == x ? fp16_from_float(x) : 0x7FFF;
}

/* ------------------------------------------------------------------------ launches */

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    cudaStream_t stream;
};

template <typename... Types> struct fake_launch {
    unsigned blocks, threads;
    void (*kernel)(Types...);
    std::tuple<Types...> arguments;
};

template <typename... Types> inline void fake_thread(const void *launch)
{
    const auto *l = static_cast<const fake_launch<Types...> *>(launch);
    std::apply(l->kernel, l->arguments);
}

template <typename... Types> inline void fake_launch_run(void *launch)
{
    const auto *l = static_cast<const fake_launch<Types...> *>(launch);
    fake_blocks_run(l->blocks, l->threads, fake_thread<Types...>, launch);
}

template <typename... Types, typename... Arguments>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Types...),
                                      const Arguments &...arguments)
{
    fake_launch<Types...> launch = {config->gridDim.x, config->blockDim.x, kernel, {arguments...}};
    return fake_kernel(config->stream, &launch, sizeof(launch), fake_launch_run<Types...>);
}

/* Before main: kernels reach all memory as it is. */
inline const bool fake_plain = fake_plain_memory = true;

#endif
