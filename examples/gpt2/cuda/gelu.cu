// SPDX-License-Identifier: Apache-2.0
/*
 * What comes before and after matrix products, element by element: residual sums and
 * GELU both ways. Bound by memory, as long as an element costs fewer than some forty
 * instructions.
 */
#include "examples/gpt2/cuda/rows.cuh"

/* GELU and its slope in the form of rows.h. */
#define GELU_LINEAR 1.5957691216057308f  /* 2 sqrt(2/pi) */
#define GELU_CUBIC  0.07135481282652453f /* 0.044715 * 2 sqrt(2/pi) */

__device__ inline float gelu_sigmoid(float x)
{
    return reciprocal_fast(1.0f +
                           exp2_fast(-x * fmaf(GELU_CUBIC * LOG2_E, x * x, GELU_LINEAR * LOG2_E)));
}

__device__ inline float gelu(float x)
{
    return x * gelu_sigmoid(x);
}

__device__ inline float gelu_slope(float x)
{
    const float sigmoid = gelu_sigmoid(x);
    const float slope = fmaf(3.0f * GELU_CUBIC, x * x, GELU_LINEAR);
    return fmaf(x * slope, sigmoid * (1.0f - sigmoid), sigmoid);
}

template <typename Operand> struct Residual {
    const typename Operand::type *bias;
    const float *residual;
    float *y;
    int width;

    template <int W> struct Values {
        Pack<float, W> product, residual;
    };

    template <int W> __device__ Floats<W> column(int col) const
    {
        return floats_load<Operand, W>(bias + col);
    }

    template <int W> __device__ void load(int row, int col, Values<W> &x) const
    {
        const int64_t at = (int64_t)row * width + col;
        x.product = pack_load<W>(y + at);
        x.residual = pack_load<W>(residual + at);
    }

    template <int W>
    __device__ void store(int row, int col, const Values<W> &x, const Floats<W> &bias_of) const
    {
        Floats<W> sum = floats_of<OperandF32, W>(x.product);
        floats_add(sum, bias_of);
        floats_add(sum, floats_of<OperandF32, W>(x.residual));
        floats_store<OperandF32>(y + (int64_t)row * width + col, sum);
    }
};

cudaError_t gpt_launch_residual(cudaStream_t stream, enum zero_dtype dtype, int rows, int width,
                                const void *bias, const float *residual, float *y)
{
    cudaError_t none;
    if (rows_refused(rows, width, &none))
        return none;
    return operand_switch(dtype, [&](auto operand) {
        using Operand = decltype(operand);
        const Residual<Operand> body = {static_cast<const typename Operand::type *>(bias), residual,
                                        y, width};
        return rows_fit<4>(width, body.bias, residual, y)
                   ? rows_each_run<4>(stream, rows, width, body)
                   : rows_each_run<1>(stream, rows, width, body);
    });
}

template <typename Operand> struct Gelu {
    static constexpr int turns = 8;
    const typename Operand::type *wide;
    typename Operand::type *active;

    template <int W> using Values = Pack<typename Operand::type, W>;

    template <int W> __device__ void load(int64_t i, Values<W> &x) const
    {
        x = pack_load<W>(wide + i);
    }

    template <int W> __device__ void store(int64_t i, const Values<W> &x) const
    {
        Floats<W> y = floats_of<Operand, W>(x);
#pragma unroll
        for (int j = 0; j < W; j++)
            y.at[j] = gelu(y.at[j]);
        floats_store<Operand>(active + i, y);
    }
};

cudaError_t gpt_launch_gelu(cudaStream_t stream, enum zero_dtype dtype, int64_t n, const void *wide,
                            void *active)
{
    return operand_switch(dtype, [&](auto operand) {
        using Operand = decltype(operand);
        using type = typename Operand::type;
        const Gelu<Operand> body = {static_cast<const type *>(wide), static_cast<type *>(active)};
        return each_run(stream, n, body, body.wide, body.active);
    });
}

/* Summed by rows_sum, for the bias. */
template <typename Operand> struct GeluBackward {
    const typename Operand::type *wide;
    typename Operand::type *dwide;
    int width;

    template <int W> struct Values {
        Pack<typename Operand::type, W> wide, dwide;
    };

    template <int W> __device__ void load(int row, int col, Values<W> &x) const
    {
        const int64_t at = (int64_t)row * width + col;
        x.wide = pack_load<W>(wide + at);
        x.dwide = pack_load<W>(dwide + at);
    }

    template <int W> __device__ Floats<W> store(int row, int col, const Values<W> &x) const
    {
        const Floats<W> at = floats_of<Operand, W>(x.wide);
        Floats<W> grad = floats_of<Operand, W>(x.dwide);
#pragma unroll
        for (int j = 0; j < W; j++)
            grad.at[j] *= gelu_slope(at.at[j]);
        floats_store<Operand>(dwide + (int64_t)row * width + col, grad);
        return grad;
    }
};

cudaError_t gpt_launch_gelu_backward(cudaStream_t stream, enum zero_dtype dtype, int rows,
                                     int width, const void *wide, void *dwide, float *partial,
                                     void *dbias)
{
    cudaError_t none;
    if (rows_refused(rows, width, &none))
        return none;
    return operand_switch(dtype, [&](auto operand) {
        using Operand = decltype(operand);
        using type = typename Operand::type;
        constexpr int W = pack_width<type>();
        const GeluBackward<Operand> body = {static_cast<const type *>(wide),
                                            static_cast<type *>(dwide), width};
        return rows_fit<W>(width, body.wide, body.dwide)
                   ? rows_sum_run<W>(stream, dtype, rows, width, body, partial, dbias)
                   : rows_sum_run<1>(stream, dtype, rows, width, body, partial, dbias);
    });
}
