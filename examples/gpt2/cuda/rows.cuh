// SPDX-License-Identifier: Apache-2.0
/*
 * Kernels over tensors of rows x width. A body is a struct of pointers, as in
 * kernels/cuda/each.cuh. A warp has a strip of 32 packs of columns and goes down the
 * rows: what belongs to a column (a bias, a sum) stays in its registers, and no
 * element needs a division to know its column.
 */
#ifndef EXAMPLES_GPT2_CUDA_ROWS_CUH
#define EXAMPLES_GPT2_CUDA_ROWS_CUH

#include "examples/gpt2/cuda/operand.cuh"

#define ROWS_THREADS 256
#define ROWS_WARPS   (ROWS_THREADS / WARP)
#define ROWS_AT_ONCE 4   /* of a warp: all are loaded before the first is stored */
#define ROWS_SUMMED  128 /* by a block, into one line of partial */
static_assert(ROWS_SUMMED >= 2 * GPT_PARTIAL_ROWS, "gpt_partial_floats has no room");

template <int W, typename Body>
__global__ void __launch_bounds__(ROWS_THREADS)
    rows_each(const int rows, const int width, const Body body)
{
    const int strips = (width + WARP * W - 1) / (WARP * W);
    const int64_t unit = (int64_t)blockIdx.x * ROWS_WARPS + threadIdx.x / WARP;
    const int col = ((int)(unit % strips) * WARP + (int)threadIdx.x % WARP) * W;
    const int64_t first = unit / strips * ROWS_AT_ONCE;
    if (col >= width)
        return;
    const Floats<W> bias = body.template column<W>(col);
    typename Body::template Values<W> values[ROWS_AT_ONCE];
#pragma unroll
    for (int r = 0; r < ROWS_AT_ONCE; r++)
        if (first + r < rows)
            body.load((int)first + r, col, values[r]);
#pragma unroll
    for (int r = 0; r < ROWS_AT_ONCE; r++)
        if (first + r < rows)
            body.store((int)first + r, col, values[r], bias);
}

template <int W, typename Body>
inline cudaError_t rows_each_run(cudaStream_t stream, int rows, int width, const Body &body)
{
    const int64_t units = ceil_div(width, WARP * W) * ceil_div(rows, ROWS_AT_ONCE);
    return launch(stream, ceil_div(units, ROWS_WARPS), ROWS_THREADS, rows_each<W, Body>, rows,
                  width, body);
}

/* The body's store returns what is to be added up: partial (lines, width) takes the sums of
 * ROWS_SUMMED rows each. */
template <int W, typename Body>
__global__ void __launch_bounds__(ROWS_THREADS)
    rows_sum(const int rows, const int width, const Body body, float *const partial)
{
    alignas(16) __shared__ Floats<W> sums[ROWS_WARPS][WARP];
    const int strips = (width + WARP * W - 1) / (WARP * W);
    const int strip = blockIdx.x % strips, line = blockIdx.x / strips;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int col = (strip * WARP + lane) * W;
    const int end = min(rows, (line + 1) * ROWS_SUMMED);
    Floats<W> sum = {};
    if (col < width)
        for (int row = line * ROWS_SUMMED + warp; row < end; row += ROWS_WARPS * ROWS_AT_ONCE) {
            typename Body::template Values<W> values[ROWS_AT_ONCE];
#pragma unroll
            for (int r = 0; r < ROWS_AT_ONCE; r++)
                if (row + r * ROWS_WARPS < end)
                    body.load(row + r * ROWS_WARPS, col, values[r]);
#pragma unroll
            for (int r = 0; r < ROWS_AT_ONCE; r++)
                if (row + r * ROWS_WARPS < end)
                    floats_add(sum, body.store(row + r * ROWS_WARPS, col, values[r]));
        }
    sums[warp][lane] = sum;
    __syncthreads();
    const int own = threadIdx.x; /* column of the strip */
    if (own >= WARP * W || strip * WARP * W + own >= width)
        return;
    float x[ROWS_WARPS];
#pragma unroll
    for (int w = 0; w < ROWS_WARPS; w++)
        x[w] = sums[w][own / W].at[own % W];
    partial[(int64_t)line * width + strip * WARP * W + own] =
        ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}

/* grad (width) += the sums of partial (lines, width) over its lines; where second is not NULL
 * the upper half of the columns is its. */
cudaError_t partial_join(cudaStream_t stream, enum zero_dtype dtype, int lines, int width,
                         const float *partial, void *grad, void *second);

template <int W, typename Body>
inline cudaError_t rows_sum_run(cudaStream_t stream, enum zero_dtype dtype, int rows, int width,
                                const Body &body, float *partial, void *grad)
{
    const int lines = (int)ceil_div(rows, ROWS_SUMMED);
    const cudaError_t error = launch(stream, ceil_div(width, WARP * W) * lines, ROWS_THREADS,
                                     rows_sum<W, Body>, rows, width, body, partial);
    return error == cudaSuccess ? partial_join(stream, dtype, lines, width, partial, grad, nullptr)
                                : error;
}

/* Whether there is something to launch; if not, what the call returns. */
inline bool rows_refused(int rows, int width, cudaError_t *error)
{
    *error = rows < 0 || width < 0 ? cudaErrorInvalidValue : cudaSuccess;
    return rows <= 0 || width <= 0;
}

#endif
