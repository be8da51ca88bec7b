// SPDX-License-Identifier: Apache-2.0
/*
 * Lets a C++ compiler take .cu files for the host (-include this), so that the very
 * kernels that nvcc compiles run without a GPU, on the fake runtime: blocks one after
 * the other, a block's warps and a warp's threads in turns that end where they wait for
 * each other. It is what these kernels use of CUDA and no more. What CUDA leaves
 * undefined ends the program: threads of a warp that wait for different things, a
 * barrier that some threads of a block do not come to.
 *
 * fake_nvcc_order says in which order: 0 ascending, 1 descending, and then asynchronous
 * copies (fake_mma.h) happen as late as they may instead of at once. What kernels
 * compute must not depend on it.
 */
#ifndef TESTS_SUPPORT_FAKE_NVCC_H
#define TESTS_SUPPORT_FAKE_NVCC_H

#undef _FORTIFY_SOURCE /* its longjmp refuses other stacks */
#include <atomic>
#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
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
extern "C" int fake_nvcc_order, fake_unloaded;

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned size = 1) : x(size), y(1), z(1)
    {
    }
};

inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

/* --------------------------------------------------------------- a block's threads */

#define FAKE_THREADS_MAX 1024
#define FAKE_STACK       (64 << 10)
#define FAKE_WARP        32

enum fake_state { FAKE_NEW, FAKE_RUNS, FAKE_AT_WARP, FAKE_AT_BLOCK, FAKE_OVER };

#define FAKE_COPIES_MAX 64 /* of a thread under way */

struct fake_async { /* fake_mma.h */
    char *to;
    const void *from; /* NULL: zeros */
    size_t bytes;
};

struct fake_block_run {
    jmp_buf scheduler, threads[FAKE_THREADS_MAX];
    fake_state state[FAKE_THREADS_MAX];
    bool has_stack[FAKE_THREADS_MAX];
    unsigned count;
    bool descending;
    char *stacks, *shared;
    void (*run)(const void *kernel);
    const void *kernel;
    /* What threads of a warp hand each other, of any type: they meet once for each exchange,
     * so none is two exchanges ahead. */
    unsigned exchanges[FAKE_THREADS_MAX];
    alignas(8) char handed[2][FAKE_THREADS_MAX][64];
    unsigned copies[FAKE_THREADS_MAX];
    fake_async copy[FAKE_THREADS_MAX][FAKE_COPIES_MAX];
};

inline thread_local fake_block_run *fake_block_now;

inline void fake_misuse(const char *what)
{
    fprintf(stderr, "block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, what);
    abort();
}

inline unsigned fake_turn(unsigned i, unsigned count)
{
    return fake_block_now->descending ? count - 1 - i : i;
}

/* Runs new threads of a warp to their ends, one after the other on one stack, until one
 * has to wait; that one has the stack from then on. When it has ended too, the stack is
 * for the next block's. */
inline void fake_threads_run()
{
    fake_block_run *b = fake_block_now;
    const unsigned first = threadIdx.x, warp = first / FAKE_WARP * FAKE_WARP;
    b->has_stack[first] = true;
    for (;;) {
        for (unsigned i = 0; i < FAKE_WARP; i++) {
            unsigned t = warp + fake_turn(i, FAKE_WARP);
            if (t >= b->count || b->state[t] != FAKE_NEW)
                continue;
            threadIdx.x = t;
            b->state[t] = FAKE_RUNS;
            b->run(b->kernel);
            b->state[t] = FAKE_OVER;
        }
        if (!_setjmp(b->threads[first]))
            _longjmp(b->scheduler, 1);
    }
}

inline void fake_wait(fake_state state)
{
    fake_block_run *b = fake_block_now;
    b->state[threadIdx.x] = state;
    if (!_setjmp(b->threads[threadIdx.x]))
        _longjmp(b->scheduler, 1);
}

inline void fake_thread_go_on(fake_block_run *b, unsigned t)
{
    threadIdx.x = t;
    if (_setjmp(b->scheduler))
        return;
    if (b->state[t] == FAKE_NEW && !b->has_stack[t]) {
        ucontext_t context;
        getcontext(&context);
        context.uc_stack.ss_sp = b->stacks + (size_t)t * FAKE_STACK;
        context.uc_stack.ss_size = FAKE_STACK;
        makecontext(&context, fake_threads_run, 0);
        setcontext(&context);
    }
    if (b->state[t] != FAKE_NEW)
        b->state[t] = FAKE_RUNS;
    _longjmp(b->threads[t], 1);
}

/* One turn of a warp, from where all its threads have met. */
inline void fake_warp_turn(fake_block_run *b, unsigned warp)
{
    for (unsigned i = 0; i < FAKE_WARP; i++) {
        unsigned t = warp + fake_turn(i, FAKE_WARP);
        if (t < b->count && b->state[t] != FAKE_OVER)
            fake_thread_go_on(b, t);
    }
}

/* Until a warp waits for the block, or is over: what all threads agree on. */
inline fake_state fake_warp_run(fake_block_run *b, unsigned warp)
{
    for (;;) {
        fake_warp_turn(b, warp);
        fake_state state = b->state[warp];
        for (unsigned t = warp; t < warp + FAKE_WARP && t < b->count; t++)
            if (b->state[t] != state)
                fake_misuse("not all threads of the warp come to the same place");
        if (state != FAKE_AT_WARP)
            return state;
    }
}

inline void fake_block_run_all(fake_block_run *b, size_t shared_bytes)
{
    unsigned warps = (b->count + FAKE_WARP - 1) / FAKE_WARP;
    bool goes_on = true;
    memset(b->state, FAKE_NEW, sizeof(b->state));
    memset(b->copies, 0, sizeof(b->copies));
    if (shared_bytes)
        memset(b->shared, 0xFF, shared_bytes); /* NaNs */
    while (goes_on) {
        unsigned waiting = 0;
        for (unsigned i = 0; i < warps; i++)
            waiting += fake_warp_run(b, fake_turn(i, warps) * FAKE_WARP) == FAKE_AT_BLOCK;
        if (waiting != 0 && waiting != warps)
            fake_misuse("not all threads of the block come to the barrier");
        goes_on = waiting != 0;
    }
}

struct fake_shape {
    unsigned blocks, threads;
    size_t shared_bytes;
};

inline void fake_blocks_run(const fake_shape &shape, void (*run)(const void *), const void *kernel)
{
    fake_block_run *b = static_cast<fake_block_run *>(calloc(1, sizeof(*b)));
    if (!b || shape.threads > FAKE_THREADS_MAX)
        abort();
    b->stacks = static_cast<char *>(malloc((size_t)shape.threads * FAKE_STACK));
    b->shared = static_cast<char *>(aligned_alloc(128, (shape.shared_bytes + 127) / 128 * 128));
    if (!b->stacks || (shape.shared_bytes && !b->shared))
        abort();
    b->run = run;
    b->kernel = kernel;
    b->count = shape.threads;
    b->descending = fake_nvcc_order != 0;
    fake_block_now = b;
    gridDim.x = shape.blocks;
    blockDim.x = shape.threads;
    for (unsigned i = 0; i < shape.blocks; i++) {
        blockIdx.x = fake_turn(i, shape.blocks);
        fake_block_run_all(b, shape.shared_bytes);
    }
    free(b->shared);
    free(b->stacks);
    free(b);
}

inline void __syncthreads()
{
    fake_wait(FAKE_AT_BLOCK);
}

inline void __syncwarp()
{
    fake_wait(FAKE_AT_WARP);
}

/* Gives x to the warp; what thread lane gave is at the result + lane, until the next exchange. */
template <typename T> struct alignas(8) fake_handed {
    T value;
    char rest[64 - sizeof(T)];
};

template <typename T> inline const fake_handed<T> *fake_exchange(const T &x)
{
    fake_block_run *b = fake_block_now;
    unsigned t = threadIdx.x, side = b->exchanges[t]++ % 2;
    memcpy(b->handed[side][t], &x, sizeof(x));
    fake_wait(FAKE_AT_WARP);
    return reinterpret_cast<const fake_handed<T> *>(b->handed[side][t / FAKE_WARP * FAKE_WARP]);
}

template <typename T> inline T __shfl_xor_sync(unsigned, T x, int distance)
{
    return fake_exchange(x)[(threadIdx.x ^ (unsigned)distance) % FAKE_WARP].value;
}

/* Lanes below distance get their own. */
template <typename T> inline T __shfl_up_sync(unsigned, T x, unsigned distance)
{
    unsigned lane = threadIdx.x % FAKE_WARP;
    return fake_exchange(x)[lane >= distance ? lane - distance : lane].value;
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

template <typename T> inline T min(T a, T b)
{
    return b < a ? b : a;
}

template <typename T> inline T max(T a, T b)
{
    return b > a ? b : a;
}

inline float __uint_as_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

inline uint32_t __float_as_uint(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
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

/* Likewise of examples/gpt2/cuda/approx.cuh, but exact. */
#define EXAMPLES_GPT2_CUDA_APPROX_CUH

inline float exp2_fast(float x)
{
    return exp2f(x);
}

inline float reciprocal_fast(float x)
{
    return 1.0f / x;
}

/* ------------------------------------------------------------------------ launches */

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
};

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };

#define FAKE_SHARED_PLAIN (48 << 10) /* a kernel may have without asking */
#define FAKE_SHARED_MOST  (99 << 10) /* of any GPU that has asynchronous copies */

/* Kernels that were loaded. Launches of others are counted: fake_unloaded. */
#define FAKE_KERNELS_MAX 256
inline std::atomic<const void *> fake_loaded[FAKE_KERNELS_MAX];

/* Whether it is among them. Threads may load at the same time: then it is so twice. */
inline bool fake_is_loaded(const void *kernel, bool load)
{
    for (auto &slot : fake_loaded) {
        const void *empty = nullptr;
        if (slot == kernel || (load && slot.compare_exchange_strong(empty, kernel)))
            return true;
        if (!slot)
            break;
    }
    return false;
}

struct cudaFuncAttributes {
};

template <typename... Types>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *, void (*kernel)(Types...))
{
    bool done = fake_is_loaded(reinterpret_cast<const void *>(kernel), true);
    return done ? cudaSuccess : cudaErrorMemoryAllocation;
}

/* For which kernel this thread has asked for more, most recently. */
inline thread_local const void *fake_shared_kernel;
inline thread_local size_t fake_shared_bytes;

template <typename... Types>
inline cudaError_t cudaFuncSetAttribute(void (*kernel)(Types...), cudaFuncAttribute, int bytes)
{
    if (bytes < 0 || bytes > FAKE_SHARED_MOST)
        return cudaErrorInvalidValue;
    fake_shared_kernel = reinterpret_cast<const void *>(kernel);
    fake_shared_bytes = (size_t)bytes;
    return cudaSuccess;
}

template <typename... Types> struct fake_launch {
    fake_shape shape;
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
    fake_blocks_run(l->shape, fake_thread<Types...>, launch);
}

template <typename... Types, typename... Arguments>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Types...),
                                      const Arguments &...arguments)
{
    size_t shared = config->dynamicSmemBytes;
    if (!fake_is_loaded(reinterpret_cast<const void *>(kernel), false))
        __atomic_fetch_add(&fake_unloaded, 1, __ATOMIC_RELAXED);
    if (shared > FAKE_SHARED_PLAIN &&
        (shared > fake_shared_bytes ||
         fake_shared_kernel != reinterpret_cast<const void *>(kernel)))
        return cudaErrorInvalidValue;
    fake_launch<Types...> launch = {
        {config->gridDim.x, config->blockDim.x, shared}, kernel, {arguments...}};
    return fake_kernel(config->stream, &launch, sizeof(launch), fake_launch_run<Types...>);
}

/* Before main: kernels reach all memory as it is. */
inline const bool fake_plain = fake_plain_memory = true;

#include "tests/support/fake_mma.h"

#endif
