// SPDX-License-Identifier: Apache-2.0
/*
 * From one format to another on a GPU. bf16 is the integer arithmetic of kernels/bf16.h;
 * fp16 is the conversion of the hardware, which rounds and keeps denormals as
 * kernels/fp16.h does and has another NaN.
 */
#include "kernels/bf16.h"
#include "kernels/cuda/each.cuh"
#include "kernels/cuda/half.cuh"
#include "kernels/fp16.h"

struct ToBf16 {
    __device__ static uint16_t convert(float x)
    {
        return bf16_from_float(x);
    }
};

struct FromBf16 {
    __device__ static float convert(uint16_t x)
    {
        return bf16_to_float(x);
    }
};

struct ToFp16 {
    __device__ static uint16_t convert(float x)
    {
        return x == x ? half_from_float(x) : FP16_NAN;
    }
};

template <typename How, typename In, typename Out> struct Convert {
    static constexpr int turns = 4;
    const In *in;
    Out *out;

    template <int W> struct Values {
        Pack<In, W> in;
    };

    template <int W> __device__ void load(int64_t i, Values<W> &x) const
    {
        x.in = pack_load<W>(in + i);
    }

    template <int W> __device__ void store(int64_t i, const Values<W> &x) const
    {
        Pack<Out, W> y;
#pragma unroll
        for (int j = 0; j < W; j++)
            y.at[j] = How::convert(x.in.at[j]);
        pack_store(out + i, y);
    }
};

template <typename How, typename In, typename Out>
static cudaError_t convert_run(cudaStream_t stream, int64_t n, const In *in, Out *out)
{
    return each_run(stream, n, Convert<How, In, Out>{in, out}, in, out);
}

cudaError_t launch_to_bf16(cudaStream_t stream, int64_t n, const float *in, uint16_t *out)
{
    return convert_run<ToBf16>(stream, n, in, out);
}

cudaError_t launch_from_bf16(cudaStream_t stream, int64_t n, const uint16_t *in, float *out)
{
    return convert_run<FromBf16>(stream, n, in, out);
}

cudaError_t launch_to_fp16(cudaStream_t stream, int64_t n, const float *in, uint16_t *out)
{
    return convert_run<ToFp16>(stream, n, in, out);
}

cudaError_t load_formats(void)
{
    return each_load<Convert<ToBf16, float, uint16_t>, Convert<FromBf16, uint16_t, float>,
                     Convert<ToFp16, float, uint16_t>>();
}
