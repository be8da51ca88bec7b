// SPDX-License-Identifier: Apache-2.0
/*
 * From one format to another on a GPU. bf16 and split masters are the integer
 * arithmetic of kernels/bf16.h and kernels/split.h; fp16 is the conversion of the
 * hardware, which rounds and keeps denormals as kernels/fp16.h does and has another
 * NaN.
 */
#include "kernels/cuda/each.cuh"
#include "kernels/cuda/half.cuh"
#include "kernels/fp16.h"
#include "kernels/split.h"

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

struct FromFp16 {
    __device__ static float convert(uint16_t x)
    {
        uint32_t nan = (uint32_t)(x & 0x8000u) << 16 | 0x7FC00000u | (x & 0x3FFu) << 13;
        return (x & 0x7FFFu) > 0x7C00u ? __uint_as_float(nan) : half_to_float(x);
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

cudaError_t launch_from_fp16(cudaStream_t stream, int64_t n, const uint16_t *in, float *out)
{
    return convert_run<FromFp16>(stream, n, in, out);
}

struct Split {
    static constexpr int turns = 4;
    const float *master;
    uint16_t *weight;
    int16_t *remainder;

    template <int W> struct Values {
        Pack<float, W> master;
    };

    template <int W> __device__ void load(int64_t i, Values<W> &x) const
    {
        x.master = pack_load<W>(master + i);
    }

    template <int W> __device__ void store(int64_t i, const Values<W> &x) const
    {
        Pack<uint16_t, W> w;
        Pack<int16_t, W> r;
#pragma unroll
        for (int j = 0; j < W; j++)
            split_element(x.master.at[j], &w.at[j], &r.at[j]);
        pack_store(weight + i, w);
        pack_store(remainder + i, r);
    }
};

cudaError_t launch_split(cudaStream_t stream, int64_t n, const float *master, uint16_t *weight,
                         int16_t *remainder)
{
    return each_run(stream, n, Split{master, weight, remainder}, master, weight, remainder);
}

struct Join {
    static constexpr int turns = 4;
    const uint16_t *weight;
    const int16_t *remainder;
    float *master;

    template <int W> struct Values {
        Pack<uint16_t, W> weight;
        Pack<int16_t, W> remainder;
    };

    template <int W> __device__ void load(int64_t i, Values<W> &x) const
    {
        x.weight = pack_load<W>(weight + i);
        x.remainder = pack_load<W>(remainder + i);
    }

    template <int W> __device__ void store(int64_t i, const Values<W> &x) const
    {
        Pack<float, W> y;
#pragma unroll
        for (int j = 0; j < W; j++)
            y.at[j] = join_element(x.weight.at[j], x.remainder.at[j]);
        pack_store(master + i, y);
    }
};

cudaError_t launch_join(cudaStream_t stream, int64_t n, const uint16_t *weight,
                        const int16_t *remainder, float *master)
{
    return each_run(stream, n, Join{weight, remainder, master}, weight, remainder, master);
}

cudaError_t load_formats(void)
{
    return each_load<Convert<ToBf16, float, uint16_t>, Convert<FromBf16, uint16_t, float>,
                     Convert<ToFp16, float, uint16_t>, Convert<FromFp16, uint16_t, float>, Split,
                     Join>();
}
