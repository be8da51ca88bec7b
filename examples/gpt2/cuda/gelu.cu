// SPDX-License-Identifier: Apache-2.0
/*
 * What comes before and after matrix products, element by element: biases, residual
 * sums, GELU both ways, and changes of type. Bound by memory, as long as an element
 * costs fewer than some forty instructions.
 */
#include "examples/gpt2/cuda/rows.cuh"

/* GELU and its slope in the form of numeric.h. */
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

/* A product and the bias of its columns. */
template <typename Operand, typename Product> struct Biased {
    const typename Product::type *product;
    const typename Operand::type *bias;
    int width;

    template <int W> __device__ Floats<W> column(int col) const
    {
        return bias ? floats_load<Operand, W>(bias + col) : Floats<W>();
    }

    template <int W>
    __device__ void load(int row, int col, Pack<typename Product::type, W> &x) const
    {
        x = pack_load<W>(product + (int64_t)row * width + col);
    }

    template <int W>
    __device__ Floats<W> sum(const Pack<typename Product::type, W> &x, const Floats<W> &add) const
    {
        Floats<W> y = floats_of<Product, W>(x);
        floats_add(y, add);
        return y;
    }
};

template <typename Operand, typename Product> struct Bias : Biased<Operand, Product> {
    typename Operand::type *out;

    template <int W> using Values = Pack<typename Product::type, W>;

    template <int W>
    __device__ void store(int row, int col, const Values<W> &x, const Floats<W> &bias) const
    {
        floats_store<Operand>(out + (int64_t)row * this->width + col, this->sum(x, bias));
    }
};

template <typename Operand, typename Product> struct Gelu : Biased<Operand, Product> {
    typename Operand::type *wide, *active;

    template <int W> using Values = Pack<typename Product::type, W>;

    template <int W>
    __device__ void store(int row, int col, const Values<W> &x, const Floats<W> &bias) const
    {
        const int64_t at = (int64_t)row * this->width + col;
        Floats<W> y = this->sum(x, bias);
        floats_store<Operand>(wide + at, y);
#pragma unroll
        for (int j = 0; j < W; j++)
            y.at[j] = gelu(y.at[j]);
        floats_store<Operand>(active + at, y);
    }
};

template <typename Operand, typename Product> struct Residual : Biased<Operand, Product> {
    const float *residual;
    float *y;

    template <int W> struct Values {
        Pack<typename Product::type, W> product;
        Pack<float, W> residual;
    };

    template <int W> __device__ void load(int row, int col, Values<W> &x) const
    {
        Biased<Operand, Product>::load(row, col, x.product);
        x.residual = pack_load<W>(residual + (int64_t)row * this->width + col);
    }

    template <int W>
    __device__ void store(int row, int col, const Values<W> &x, const Floats<W> &bias) const
    {
        Floats<W> sum = this->sum(x.product, bias);
        floats_add(sum, floats_of<OperandF32, W>(x.residual));
        floats_store<OperandF32>(y + (int64_t)row * this->width + col, sum);
    }
};

template <typename Operand, typename Product>
static Biased<Operand, Product> biased(const void *product, const void *bias, int width)
{
    return {static_cast<const typename Product::type *>(product),
            static_cast<const typename Operand::type *>(bias), width};
}

cudaError_t gpt_launch_bias(cudaStream_t stream, enum zero_dtype dtype,
                            enum zero_dtype product_type, int rows, int width, const void *product,
                            const void *bias, void *out)
{
    cudaError_t none;
    if (rows_refused(rows, width, &none))
        return none;
    return operand_switch(dtype, product_type, [&](auto operand, auto from) {
        using Operand = decltype(operand);
        using Product = decltype(from);
        using type = typename Operand::type;
        constexpr int W = pack_width<type, typename Product::type>();
        const Bias<Operand, Product> body = {biased<Operand, Product>(product, bias, width),
                                             static_cast<type *>(out)};
        return rows_fit<W>(width, body.product, body.bias, body.out)
                   ? rows_each_run<W>(stream, rows, width, body)
                   : rows_each_run<1>(stream, rows, width, body);
    });
}

cudaError_t gpt_launch_gelu(cudaStream_t stream, enum zero_dtype dtype,
                            enum zero_dtype product_type, int rows, int width, const void *product,
                            const void *bias, void *wide, void *active)
{
    cudaError_t none;
    if (rows_refused(rows, width, &none))
        return none;
    return operand_switch(dtype, product_type, [&](auto operand, auto from) {
        using Operand = decltype(operand);
        using Product = decltype(from);
        using type = typename Operand::type;
        constexpr int W = pack_width<type, typename Product::type>();
        const Gelu<Operand, Product> body = {biased<Operand, Product>(product, bias, width),
                                             static_cast<type *>(wide),
                                             static_cast<type *>(active)};
        return rows_fit<W>(width, body.product, body.bias, body.wide, body.active)
                   ? rows_each_run<W>(stream, rows, width, body)
                   : rows_each_run<1>(stream, rows, width, body);
    });
}

cudaError_t gpt_launch_residual(cudaStream_t stream, enum zero_dtype dtype,
                                enum zero_dtype product_type, int rows, int width,
                                const void *product, const void *bias, const float *residual,
                                float *y)
{
    cudaError_t none;
    if (rows_refused(rows, width, &none))
        return none;
    return operand_switch(dtype, product_type, [&](auto operand, auto from) {
        using Operand = decltype(operand);
        using Product = decltype(from);
        const Residual<Operand, Product> body = {biased<Operand, Product>(product, bias, width),
                                                 residual, y};
        return rows_fit<4>(width, body.product, body.bias, residual, y)
                   ? rows_each_run<4>(stream, rows, width, body)
                   : rows_each_run<1>(stream, rows, width, body);
    });
}

/* Summed by rows_sum, for the bias. */
template <typename Operand, typename Product> struct GeluBackward {
    const typename Operand::type *wide;
    const typename Product::type *product;
    typename Operand::type *dwide;
    int width;

    template <int W> struct Values {
        Pack<typename Operand::type, W> wide;
        Pack<typename Product::type, W> product;
    };

    template <int W> __device__ void load(int row, int col, Values<W> &x) const
    {
        const int64_t at = (int64_t)row * width + col;
        x.wide = pack_load<W>(wide + at);
        x.product = pack_load<W>(product + at);
    }

    template <int W> __device__ Floats<W> store(int row, int col, const Values<W> &x) const
    {
        const Floats<W> at = floats_of<Operand, W>(x.wide);
        Floats<W> grad = floats_of<Product, W>(x.product);
#pragma unroll
        for (int j = 0; j < W; j++)
            grad.at[j] *= gelu_slope(at.at[j]);
        floats_store<Operand>(dwide + (int64_t)row * width + col, grad);
        return grad;
    }
};

cudaError_t gpt_launch_gelu_backward(cudaStream_t stream, enum zero_dtype dtype,
                                     enum zero_dtype product_type, int rows, int width,
                                     const void *wide, const void *product, void *dwide,
                                     float *partial, void *dbias)
{
    cudaError_t none;
    if (rows_refused(rows, width, &none))
        return none;
    return operand_switch(dtype, product_type, [&](auto operand, auto from) {
        using Operand = decltype(operand);
        using Product = decltype(from);
        using type = typename Operand::type;
        constexpr int W = pack_width<type, typename Product::type>();
        const GeluBackward<Operand, Product> body = {
            static_cast<const type *>(wide), static_cast<const typename Product::type *>(product),
            static_cast<type *>(dwide), width};
        return rows_fit<W>(width, body.wide, body.product, body.dwide)
                   ? rows_sum_run<W>(stream, dtype, rows, width, body, partial, dbias)
                   : rows_sum_run<1>(stream, dtype, rows, width, body, partial, dbias);
    });
}

/* -------------------------------------------------------------- other types */

/* out = in, or out += in. */
template <typename Operand> struct Cast {
    static constexpr int turns = 4;
    const float *in;
    typename Operand::type *out;
    bool add;

    template <int W> struct Values {
        Pack<float, W> in;
        Pack<typename Operand::type, W> out;
    };

    template <int W> __device__ void load(int64_t i, Values<W> &x) const
    {
        x.in = pack_load<W>(in + i);
        if (add)
            x.out = pack_load<W>(out + i);
    }

    template <int W> __device__ void store(int64_t i, const Values<W> &x) const
    {
        Floats<W> y = floats_of<OperandF32, W>(x.in);
        if (add)
            floats_add(y, floats_of<Operand, W>(x.out));
        floats_store<Operand>(out + i, y);
    }
};

static cudaError_t cast(cudaStream_t stream, enum zero_dtype dtype, int64_t n, const float *in,
                        void *out, bool add)
{
    return operand_switch(dtype, [&](auto operand) {
        using Operand = decltype(operand);
        const Cast<Operand> body = {in, static_cast<typename Operand::type *>(out), add};
        return each_run(stream, n, body, body.in, body.out);
    });
}

cudaError_t gpt_launch_cast(cudaStream_t stream, enum zero_dtype dtype, int64_t n, const float *in,
                            void *out)
{
    return cast(stream, dtype, n, in, out, false);
}

cudaError_t gpt_launch_add(cudaStream_t stream, enum zero_dtype dtype, int64_t n, const float *in,
                           void *grad)
{
    return cast(stream, dtype, n, in, grad, true);
}
