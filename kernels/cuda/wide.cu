// SPDX-License-Identifier: Apache-2.0
/*
 * The norm's accumulator on a GPU: wide_add of src/norm.c. A thread adds its values
 * into limbs of its own, so that nobody waits for another: those near its first ones, as
 * most are, by way of 128 bits in registers. A block joins the limbs, carries, and adds the
 * result to the sum with integer atomics, whose order does not show. That is one addition,
 * below 2^32 in each limb, for thousands of values.
 */
#include "kernels/cuda/each.cuh"
#include "src/norm.h"

#define THREADS 128
#define VALUES  32 /* of a thread, at most */
#define AT_ONCE 8  /* whose loads are under way together: few blocks have all the values */
#define WARP    32

#define FRACTION_BITS 52
#define LEADING_BIT   ((uint64_t)1 << FRACTION_BITS)

/* Biased exponents: of a double whose last bit is the first of limb 0; the least that wide_add
 * refuses. */
#define EXPONENT_LEAST (1023 + FRACTION_BITS + WIDE_LOWEST)
#define EXPONENT_END   (1023 + WIDE_HIGHEST)

/* Limb i of all threads side by side: no two threads of a warp meet in a bank. */
struct Columns {
    int64_t limb[WIDE_LIMBS][THREADS];
};

__device__ inline int exponent_of(double x)
{
    return (int)((uint64_t)__double_as_longlong(x) >> FRACTION_BITS & 0x7FF);
}

/* False: not finite, or too large. */
__device__ inline bool column_add(Columns &columns, double x)
{
    const uint64_t bits = (uint64_t)__double_as_longlong(x);
    const int exponent = exponent_of(x);
    if (exponent >= EXPONENT_END)
        return false;
    uint64_t magnitude = bits & (LEADING_BIT - 1);
    if (exponent > 0)
        magnitude |= LEADING_BIT;
    else if (magnitude == 0)
        return true;
    int position = exponent - EXPONENT_LEAST;
    if (position < 0) {
        magnitude = position > -64 ? magnitude >> -position : 0;
        position = 0;
    }
    const int first = position / WIDE_BITS, shift = position % WIDE_BITS;
    const uint64_t rest = magnitude >> (WIDE_BITS - shift);
    const int64_t part[3] = {(int64_t)(magnitude << shift & WIDE_MASK), (int64_t)(rest & WIDE_MASK),
                             (int64_t)(rest >> WIDE_BITS)};
#pragma unroll
    for (int i = 0; i < 3; i++)
        if (part[i]) /* at the upper end there is no third limb */
            columns.limb[first + i][threadIdx.x] += bits >> 63 ? -part[i] : part[i];
    return true;
}

/* The sum of positive values whose biased exponents are in [base, base + WINDOW_SPAN). */
#define WINDOW_SPAN  63
#define WINDOW_BELOW 40 /* what base is below the largest that it is made for */
#define WINDOW_BITS  (FRACTION_BITS + WINDOW_SPAN + 5) /* of all values of a thread */
static_assert(VALUES <= 1 << 5 && WINDOW_BITS <= 128, "a thread's values are too many");
struct Window {
    int base;
    unsigned __int128 sum;
};

/* Near some of the thread's values, and not beyond the highest limb's end. */
__device__ inline Window window_near(const double (&x)[AT_ONCE])
{
    int largest = 0;
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
        largest = max(largest, exponent_of(x[k]));
    const int base = max(largest - WINDOW_BELOW, EXPONENT_LEAST);
    return {min(base, EXPONENT_LEAST + WIDE_LIMBS * WIDE_BITS - WINDOW_BITS), 0};
}

/* False: it does not fit. */
__device__ inline bool window_add(Window &window, double x)
{
    const uint64_t bits = (uint64_t)__double_as_longlong(x);
    /* A sign makes it large. */
    const unsigned shift = (unsigned)(bits >> FRACTION_BITS) - (unsigned)window.base;
    if (shift >= WINDOW_SPAN)
        return false;
    const uint64_t magnitude = (bits & (LEADING_BIT - 1)) | LEADING_BIT;
    window.sum += (unsigned __int128)(magnitude >> 1 >> (63 - shift)) << 64 | magnitude << shift;
    return true;
}

__device__ inline void window_join(Columns &columns, const Window &window)
{
    const int position = window.base - EXPONENT_LEAST;
    const int first = position / WIDE_BITS, shift = position % WIDE_BITS;
#pragma unroll
    for (int i = 0; i < 5; i++) {
        const uint64_t part =
            (uint64_t)(i == 0 ? window.sum << shift
                              : window.sum >> (i - 1) * WIDE_BITS >> (WIDE_BITS - shift)) &
            WIDE_MASK;
        if (part) /* at the upper end there is no fifth limb */
            columns.limb[first + i][threadIdx.x] += (int64_t)part;
    }
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
    Window window = {EXPONENT_LEAST, 0};
    for (int i = 0; i < VALUES && begin + i * THREADS < n; i += AT_ONCE) {
        double x[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int64_t at = begin + (i + k) * THREADS;
            x[k] = at < n ? values[at] : 0.0;
        }
        if (i == 0)
            window = window_near(x);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (!window_add(window, x[k]))
                nonfinite += !column_add(columns, x[k]);
    }
    window_join(columns, window);
    __syncthreads();
    for (int limb = warp; limb < WIDE_LIMBS; limb += THREADS / WARP) {
        const int64_t x = limb_sum(columns, limb, lane);
        if (lane == 0)
            total[limb] = x;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int limb = 0; limb + 1 < WIDE_LIMBS; limb++) {
            total[limb + 1] += total[limb] >> WIDE_BITS;
            total[limb] &= WIDE_MASK;
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
