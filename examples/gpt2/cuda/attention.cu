// SPDX-License-Identifier: Apache-2.0
/* Attention: which tiles a call is computed by, and those of tensor cores. */
#include <math.h>

#include "examples/gpt2/cuda/attention.cuh"

#define SIZE_MAX_PLAIN  256
#define SIZE_MAX_TENSOR 128

template <typename Operand>
static Attention<typename Operand::type> attention_of(int batch, int seq, int heads, int size)
{
    Attention<typename Operand::type> a = {};
    a.batch = batch;
    a.seq = seq;
    a.heads = heads;
    a.size = size;
    a.scale = (float)(1.0 / sqrt((double)size));
    return a;
}

static bool attention_refused(int batch, int seq, int heads, int size, cudaError_t *error)
{
    const bool wrong = batch < 0 || seq < 0 || heads < 0 || size < 0 || size > SIZE_MAX_PLAIN;
    *error = wrong ? cudaErrorInvalidValue : cudaSuccess;
    return wrong || batch == 0 || seq == 0 || heads == 0 || size == 0;
}

/* Tiles are copied 16 bytes at a time. */
template <typename Operand, typename... Types>
static bool tensor_fits(int size, const Types *...arrays)
{
    return sizeof(typename Operand::type) == 2 && size <= SIZE_MAX_TENSOR &&
           rows_fit<8>(size, arrays...);
}

/* As wide as registers allow: a fragment of the matrix that passes by is used by HEIGHT products,
 * but sums of a thread grow with it. */
template <typename Operand, bool backward> struct Tensor {
    using Narrow = TensorTiles<Operand, 64, 2, backward ? 32 : 64>;
    using Wide = TensorTiles<Operand, 128, backward ? 1 : 2, 32>;
};

template <typename Operand>
static cudaError_t tensor_forward(cudaStream_t stream, const Attention<uint16_t> &a)
{
    using Of = Tensor<Operand, false>;
    return a.size > 64 ? forward_launch<typename Of::Wide>(stream, a)
                       : forward_launch<typename Of::Narrow>(stream, a);
}

template <typename Operand>
static cudaError_t tensor_backward(cudaStream_t stream, const Attention<uint16_t> &a)
{
    using Of = Tensor<Operand, true>;
    return a.size > 64 ? backward_launch<typename Of::Wide>(stream, a)
                       : backward_launch<typename Of::Narrow>(stream, a);
}

cudaError_t gpt_launch_attention(cudaStream_t stream, enum zero_dtype dtype, int batch, int seq,
                                 int heads, int size, const void *qkv, float *lse, void *out)
{
    cudaError_t none;
    if (attention_refused(batch, seq, heads, size, &none))
        return none;
    return operand_switch(dtype, [&](auto operand) {
        using Operand = decltype(operand);
        using type = typename Operand::type;
        auto a = attention_of<Operand>(batch, seq, heads, size);
        a.qkv = static_cast<const type *>(qkv);
        a.lse = lse;
        a.out = static_cast<type *>(out);
        if constexpr (sizeof(type) == 2)
            if (tensor_fits<Operand>(size, a.qkv, a.out))
                return tensor_forward<Operand>(stream, a);
        return plain_forward(stream, operand, a);
    });
}

/* ------------------------------------------------------------------- delta */

#define DELTA_THREADS 256

/* delta = out . dout of each query, by a group of lanes, a power of two. */
template <typename Operand, int W>
__global__ void __launch_bounds__(DELTA_THREADS)
    attention_delta(const __grid_constant__ Attention<typename Operand::type> a, const int lanes,
                    float *const delta)
{
    using type = typename Operand::type;
    const Head<type> head(a, tile_of(a), DELTA_THREADS / lanes);
    const HeadRows<const type> out = head.template out<const type>(a, a.out);
    const HeadRows<const type> dout = head.out(a, a.dout);
    const int query = head.first + threadIdx.x / lanes, lane = threadIdx.x % lanes;
    float sum = 0;
    for (int c = lane * W; out.has(query, c); c += lanes * W) {
        const Floats<W> x = floats_load<Operand, W>(out.at(query, c));
        const Floats<W> y = floats_load<Operand, W>(dout.at(query, c));
#pragma unroll
        for (int j = 0; j < W; j++)
            sum = fmaf(x.at[j], y.at[j], sum);
    }
    sum = lanes_sum(sum, lanes);
    if (lane == 0 && query < a.seq)
        delta[head.stats + query] = sum;
}

template <typename Operand, int W>
static cudaError_t delta_launch(cudaStream_t stream, const Attention<typename Operand::type> &a,
                                float *delta)
{
    int lanes = 1;
    while (lanes < WARP && lanes * W < a.size)
        lanes *= 2;
    const int64_t blocks = ceil_div(a.seq, DELTA_THREADS / lanes) * a.batch * a.heads;
    return launch(stream, blocks, DELTA_THREADS, attention_delta<Operand, W>, a, lanes, delta);
}

cudaError_t gpt_launch_attention_backward(cudaStream_t stream, enum zero_dtype dtype, int batch,
                                          int seq, int heads, int size, const void *qkv,
                                          const float *lse, const void *out, const void *dout,
                                          float *delta, void *dqkv)
{
    cudaError_t error;
    if (attention_refused(batch, seq, heads, size, &error))
        return error;
    return operand_switch(dtype, [&](auto operand) {
        using Operand = decltype(operand);
        using type = typename Operand::type;
        constexpr int W = pack_width<type>();
        auto a = attention_of<Operand>(batch, seq, heads, size);
        a.qkv = static_cast<const type *>(qkv);
        a.dout = static_cast<const type *>(dout);
        a.lse = const_cast<float *>(lse);
        a.delta = delta;
        a.out = static_cast<type *>(const_cast<void *>(out));
        a.dqkv = static_cast<type *>(dqkv);
        error = rows_fit<W>(size, a.out, a.dout) ? delta_launch<Operand, W>(stream, a, delta)
                                                 : delta_launch<Operand, 1>(stream, a, delta);
        if (error != cudaSuccess)
            return error;
        if constexpr (sizeof(type) == 2)
            if (tensor_fits<Operand>(size, a.qkv, a.dout, a.dqkv))
                return tensor_backward<Operand>(stream, a);
        return plain_backward(stream, operand, a);
    });
}
