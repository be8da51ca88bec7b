// SPDX-License-Identifier: Apache-2.0
/*
 * Sums over rows, for gradients of biases. A block adds up its rows of a strip of columns
 * into a line of partial, the join adds up the lines; both in an order that the sizes
 * decide.
 */
#include "examples/gpt2/cuda/rows.cuh"

/* A warp has every eighth line of 32 columns. */
template <typename Operand>
__global__ void __launch_bounds__(ROWS_THREADS)
    join(const int lines, const int width, const float *const partial,
         typename Operand::type *const grad, typename Operand::type *const second)
{
    __shared__ float sums[ROWS_WARPS][WARP];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int col = blockIdx.x * WARP + lane;
    float sum = 0;
    if (col < width) {
#pragma unroll 8
        for (int line = warp; line < lines; line += ROWS_WARPS)
            sum += partial[(int64_t)line * width + col];
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp != 0 || col >= width)
        return;
    float x[ROWS_WARPS];
#pragma unroll
    for (int w = 0; w < ROWS_WARPS; w++)
        x[w] = sums[w][lane];
    sum = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
    const int half = second ? width / 2 : width;
    typename Operand::type *const to = col < half ? grad + col : second + (col - half);
    *to = Operand::round(Operand::widen(*to) + sum);
}

cudaError_t partial_join(cudaStream_t stream, enum zero_dtype dtype, int lines, int width,
                         const float *partial, void *grad, void *second)
{
    return operand_switch(dtype, [&](auto operand) {
        using Operand = decltype(operand);
        using type = typename Operand::type;
        return launch(stream, ceil_div(width, WARP), ROWS_THREADS, join<Operand>, lines, width,
                      partial, static_cast<type *>(grad), static_cast<type *>(second));
    });
}

template <typename Operand> struct ResidualBackward {
    const float *dx;
    typename Operand::type *out;
    int width;

    template <int W> using Values = Pack<float, W>;

    template <int W> __device__ void load(int row, int col, Values<W> &x) const
    {
        x = pack_load<W>(dx + (int64_t)row * width + col);
    }

    template <int W> __device__ Floats<W> store(int row, int col, const Values<W> &x) const
    {
        const Floats<W> y = floats_of<OperandF32, W>(x);
        floats_store<Operand>(out + (int64_t)row * width + col, y);
        return y;
    }
};

cudaError_t gpt_launch_residual_backward(cudaStream_t stream, enum zero_dtype dtype, int rows,
                                         int width, const float *dx, void *out, float *partial,
                                         void *dbias)
{
    cudaError_t none;
    if (rows_refused(rows, width, &none))
        return none;
    return operand_switch(dtype, [&](auto operand) {
        using Operand = decltype(operand);
        const ResidualBackward<Operand> body = {dx, static_cast<typename Operand::type *>(out),
                                                width};
        return rows_fit<4>(width, body.dx, body.out)
                   ? rows_sum_run<4>(stream, dtype, rows, width, body, partial, dbias)
                   : rows_sum_run<1>(stream, dtype, rows, width, body, partial, dbias);
    });
}

template <typename Operand> struct BiasBackward {
    const typename Operand::type *dout;
    int width;

    template <int W> using Values = Pack<typename Operand::type, W>;

    template <int W> __device__ void load(int row, int col, Values<W> &x) const
    {
        x = pack_load<W>(dout + (int64_t)row * width + col);
    }

    template <int W> __device__ Floats<W> store(int, int, const Values<W> &x) const
    {
        return floats_of<Operand, W>(x);
    }
};

cudaError_t gpt_launch_bias_backward(cudaStream_t stream, enum zero_dtype dtype, int rows,
                                     int width, const void *dout, float *partial, void *dbias)
{
    cudaError_t none;
    if (rows_refused(rows, width, &none))
        return none;
    return operand_switch(dtype, [&](auto operand) {
        using Operand = decltype(operand);
        constexpr int W = pack_width<typename Operand::type>();
        const BiasBackward<Operand> body = {static_cast<const typename Operand::type *>(dout),
                                            width};
        return rows_fit<W>(width, body.dout)
                   ? rows_sum_run<W>(stream, dtype, rows, width, body, partial, dbias)
                   : rows_sum_run<1>(stream, dtype, rows, width, body, partial, dbias);
    });
}
