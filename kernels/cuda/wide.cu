// SPDX-License-Identifier: Apache-2.0
/*
 * The norm's accumulator on a GPU: wide_add of src/norm.c. A thread adds its values
 * into limbs of its own, so that nobody waits for another; a block joins them,
 * carries, and adds the result to the sum with integer atomics, whose order does not
 * show. That is one addition, below 2^32 in each limb, for thousands of values.
 */
#include "kernels/cuda/each.cuh"
#include "src/norm.h"

#define THREADS 128
#define VALUES  32 /* of a thread, at most */
#define AT_ONCE 8  /* whose loads are under way together: few blocks have all the values */
#define WARP    32

/* src/norm.c has their meaning. */
#define LIMB_BITS 32
#define LIMB_MASK 0xFFFFFFFFu
#define LOWEST    (-320)
#define HIGHEST   318

/* Limb i of all threads side by side: no two threads of a warp meet in a bank. */
struct Columns {
    int64_t limb[WIDE_LIMBS][THREADS];
};

/* False: not finite, or too large. */
__device__ inline bool column_add(Columns &columns, double x)
{
    const uint64_t bits = (uint64_t)__double_as_longlong(x);
    const int exponent = (int)(bits >> 52 & 0x7FF);
    if (exponent >= HIGHEST + 1023)
        return false;
    uint64_t magnitude = bits & (((uint64_t)1 << 52) - 1);
    if (exponent > 0)
        magnitude |= (uint64_t)1 << 52;
    int position = exponent - 1075 - LOWEST;
    if (position < 0) {
        magnitude = position > -64 ? magnitude >> -position : 0;
        position = 0;
    }
    const int first = position / LIMB_BITS, shift = position % LIMB_BITS;
    const uint64_t rest = magnitude >> (LIMB_BITS - shift);
    const int64_t part[3] = {(int64_t)(magnitude << shift & LIMB_MASK), (int64_t)(rest & LIMB_MASK),
                             (int64_t)(rest >> LIMB_BITS)};
#pragma unroll
    for (int i = 0; i < 3; i++)
        if (part[i]) /* at the upper end there is no third limb */
            columns.limb[first + i][threadIdx.x] += bits >> 63 ? -part[i] : part[i];
    return true;
}

/* The sum of one limb over all threads, in lane 0 of the warp that asks. */
__device__ inline int64_t limb_sum(const Columns &columns, int limb, int lane)
{
    int64_t sum = 0;
#pragma unroll
    for (int t = lane; t < THREADS; t += WARP)
        sum += columns.limb[limb][t];
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    return sum;
}

__device__ inline void atomic_add(int64_t *to, int64_t x)
{
    atomicAdd(reinterpret_cast<unsigned long long *>(to), (unsigned long long)x);
}

__global__ void __launch_bounds__(THREADS)
    wide_sum(const int64_t n, const double *const values, wide *const sum)
{
    __shared__ Columns columns;
    __shared__ int64_t total[WIDE_LIMBS];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (int limb = 0; limb < WIDE_LIMBS; limb++)
        columns.limb[limb][threadIdx.x] = 0;
    const int64_t begin = (int64_t)blockIdx.x * (THREADS * VALUES) + threadIdx.x;
    int nonfinite = 0;
    for (int i = 0; i < VALUES && begin + i * THREADS < n; i += AT_ONCE) {
        double x[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int64_t at = begin + (i + k) * THREADS;
            x[k] = at < n ? values[at] : 0.0;
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            nonfinite += !column_add(columns, x[k]);
    }
    __syncthreads();
    for (int limb = warp; limb < WIDE_LIMBS; limb += THREADS / WARP) {
        const int64_t x = limb_sum(columns, limb, lane);
        if (lane == 0)
            total[limb] = x;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int limb = 0; limb + 1 < WIDE_LIMBS; limb++) {
            total[limb + 1] += total[limb] >> LIMB_BITS;
            total[limb] &= LIMB_MASK;
        }
        atomic_add(&sum->pending, 1);
    }
    __syncthreads();
    if (threadIdx.x < WIDE_LIMBS && total[threadIdx.x])
        atomic_add(&sum->limb[threadIdx.x], total[threadIdx.x]);
    if (nonfinite)
        atomic_add(&sum->nonfinite, nonfinite);
}

cudaError_t launch_wide_add(cudaStream_t stream, int64_t n, const double *values, wide *sum)
{
    if (n <= 0)
        return n == 0 ? cudaSuccess : cudaErrorInvalidValue;
    const int64_t blocks = (n + THREADS * VALUES - 1) / (THREADS * VALUES);
    return launch(stream, blocks, THREADS, wide_sum, n, values, sum);
}

cudaError_t launch_load(void)
{
    cudaError_t (*const all[])(void) = {load_adam, load_formats, load_sums};
    cudaError_t error = load(wide_sum);
    for (size_t i = 0; i < sizeof(all) / sizeof(*all) && error == cudaSuccess; i++)
        error = all[i]();
    return error;
}
