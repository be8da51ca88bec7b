// SPDX-License-Identifier: Apache-2.0
/*
 * The ordered sum on a GPU. A warp has four blocks of the norm: each thread adds
 * up two packs of four elements over all parts, which are read as they lie. The
 * squares want another order, one thread for each of a block's eight lanes, so the
 * sums go through shared memory on their way.
 */
#include "kernels/bf16.h"
#include "kernels/cuda/each.cuh"
#include "kernels/cuda/half.cuh"

#define THREADS     256
#define WARP        32
#define WARP_BLOCKS 4
#define WARP_SPAN   (WARP_BLOCKS * KERNELS_BLOCK) /* elements */
#define PACKS       2                             /* of a thread, half a span apart */
#define AT_ONCE     2                             /* parts that are loaded at once */
#define ROW         (KERNELS_BLOCK + 8)           /* lanes of all blocks in different banks */

struct F32 {
    using type = float;
    __device__ static float widen(float x)
    {
        return x;
    }
};

struct Bf16 {
    using type = uint16_t;
    __device__ static float widen(uint16_t x)
    {
        return bf16_to_float(x);
    }
};

struct Fp16 {
    using type = uint16_t;
    __device__ static float widen(uint16_t x)
    {
        return half_to_float(x);
    }
};

template <typename T> struct Parts {
    const T *at[LAUNCH_PARTS_MAX];
};

/* Four elements in accesses of W. */
template <int W, typename T> __device__ inline void four_load(const T *from, T (&to)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i += W) {
        Pack<T, W> pack = pack_load<W>(from + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            to[i + j] = pack.at[j];
    }
}

template <int W> __device__ inline void four_store(float *to, const float (&from)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i += W) {
        Pack<float, W> pack;
#pragma unroll
        for (int j = 0; j < W; j++)
            pack.at[j] = from[i + j];
        pack_store(to + i, pack);
    }
}

/* The squares of four blocks, by their sums in shared memory: thread j of a block's
 * eight has elements j, j+8, ... j+56. A square is exact. */
__device__ inline double block_square(const float (*row)[ROW], int lane)
{
    const float *x = row[lane / 8] + lane % 8;
    double sum = __dmul_rn((double)x[0], (double)x[0]);
#pragma unroll
    for (int i = 8; i < KERNELS_BLOCK; i += 8)
        sum = __dadd_rn(sum, __dmul_rn((double)x[i], (double)x[i]));
    sum = __dadd_rn(sum, __shfl_xor_sync(0xFFFFFFFFu, sum, 4));
    sum = __dadd_rn(sum, __shfl_xor_sync(0xFFFFFFFFu, sum, 2));
    return __dadd_rn(sum, __shfl_xor_sync(0xFFFFFFFFu, sum, 1));
}

/* acc may be one of the parts: a thread has read its elements of all of them before it
 * writes the first. */
template <typename Format, int W>
__global__ void __launch_bounds__(THREADS)
    sum(const int64_t n, const int ranks,
        const __grid_constant__ Parts<typename Format::type> parts, const bool fresh,
        float *const acc, double *const squares)
{
    alignas(16) __shared__ float rows[THREADS / WARP][WARP_BLOCKS][ROW];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t begin = ((int64_t)blockIdx.x * (THREADS / WARP) + warp) * WARP_SPAN;
    float sums[PACKS][4] = {};
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const int64_t i = begin + p * (WARP_SPAN / PACKS) + lane * 4;
        if (!fresh && i < n)
            four_load<W>(acc + i, sums[p]);
    }
    for (int first = 0; first < ranks; first += AT_ONCE) {
        typename Format::type part[AT_ONCE][PACKS][4] = {};
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++)
#pragma unroll
            for (int p = 0; p < PACKS; p++) {
                const int64_t i = begin + p * (WARP_SPAN / PACKS) + lane * 4;
                if (first + r < ranks && i < n)
                    four_load<W>(parts.at[first + r] + i, part[r][p]);
            }
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++)
#pragma unroll
            for (int j = 0; j < PACKS * 4 && first + r < ranks; j++)
                sums[j / 4][j % 4] =
                    __fadd_rn(sums[j / 4][j % 4], Format::widen(part[r][j / 4][j % 4]));
    }
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const int64_t i = begin + p * (WARP_SPAN / PACKS) + lane * 4;
        if (i < n)
            four_store<W>(acc + i, sums[p]);
    }
    if (!squares)
        return;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const int at = p * (WARP_SPAN / PACKS) + lane * 4;
        four_store<4>(&rows[warp][at / KERNELS_BLOCK][at % KERNELS_BLOCK], sums[p]);
    }
    __syncwarp();
    const double square = block_square(rows[warp], lane);
    const int64_t block = begin / KERNELS_BLOCK + lane / 8;
    if (lane % 8 == 0 && block < n / KERNELS_BLOCK)
        squares[block] = square;
}

template <typename Format>
static cudaError_t sum_run(cudaStream_t stream, int64_t n, int ranks,
                           const typename Format::type *const *parts, bool fresh, float *acc,
                           double *squares)
{
    if (n < 0 || n % KERNELS_BLOCK != 0 || ranks < 0 || ranks > LAUNCH_PARTS_MAX)
        return cudaErrorInvalidValue;
    if (n == 0)
        return cudaSuccess;
    Parts<typename Format::type> list = {};
    bool fit = packs_fit(acc);
    for (int r = 0; r < ranks; r++) {
        list.at[r] = parts[r];
        fit = fit && packs_fit(parts[r]);
    }
    constexpr int64_t elements = (int64_t)THREADS / WARP * WARP_SPAN;
    const int64_t blocks = (n + elements - 1) / elements;
    auto kernel = fit ? sum<Format, 4> : sum<Format, 1>;
    return launch(stream, blocks, THREADS, kernel, n, ranks, list, fresh, acc, squares);
}

cudaError_t launch_sum_f32(cudaStream_t stream, int64_t n, int ranks, const float *const *parts,
                           bool fresh, float *acc, double *squares)
{
    return sum_run<F32>(stream, n, ranks, parts, fresh, acc, squares);
}

cudaError_t launch_sum_bf16(cudaStream_t stream, int64_t n, int ranks, const uint16_t *const *parts,
                            bool fresh, float *acc, double *squares)
{
    return sum_run<Bf16>(stream, n, ranks, parts, fresh, acc, squares);
}

cudaError_t launch_sum_fp16(cudaStream_t stream, int64_t n, int ranks, const uint16_t *const *parts,
                            bool fresh, float *acc, double *squares)
{
    return sum_run<Fp16>(stream, n, ranks, parts, fresh, acc, squares);
}

cudaError_t load_sums(void)
{
    return load(sum<F32, 4>, sum<F32, 1>, sum<Bf16, 4>, sum<Bf16, 1>, sum<Fp16, 4>, sum<Fp16, 1>);
}
