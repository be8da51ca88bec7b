// SPDX-License-Identifier: Apache-2.0
/*
 * The three types of operands on a GPU, with the rounding of numeric.h, and what
 * kernels over rows share: packs of neighbours as fp32, sums over a warp. Everything
 * of a kernel is computed in fp32.
 */
#ifndef EXAMPLES_GPT2_CUDA_OPERAND_CUH
#define EXAMPLES_GPT2_CUDA_OPERAND_CUH

#include "examples/gpt2/cuda/approx.cuh"
#include "examples/gpt2/cuda/launch.h"
#include "kernels/bf16.h"
#include "kernels/cuda/each.cuh"
#include "kernels/cuda/half.cuh"

#define WARP   32
#define LOG2_E 1.4426950408889634f

struct OperandF32 {
    using type = float;
    __device__ static float widen(float x)
    {
        return x;
    }
    __device__ static float round(float x)
    {
        return x;
    }
};

struct OperandBf16 {
    using type = uint16_t;
    __device__ static float widen(uint16_t x)
    {
        return bf16_to_float(x);
    }
    __device__ static uint16_t round(float x) /* bf16_from_float in fewer instructions */
    {
        return x == x ? (uint16_t)((__float_as_uint(x) + 0x8000u) >> 16) : BF16_NAN;
    }
};

struct OperandF16 {
    using type = uint16_t;
    __device__ static float widen(uint16_t x)
    {
        return half_to_float(x);
    }
    __device__ static uint16_t round(float x)
    {
        return half_from_float(x);
    }
};

/* Calls run with an operand of that type. */
template <typename Run> inline cudaError_t operand_switch(enum zero_dtype dtype, const Run &run)
{
    switch (dtype) {
    case ZERO_FP32: return run(OperandF32());
    case ZERO_BF16: return run(OperandBf16());
    case ZERO_FP16: return run(OperandF16());
    }
    return cudaErrorInvalidValue;
}

/* ------------------------------------------------------------------- packs */

/* Elements in one access of 16 bytes. */
template <typename T> constexpr int pack_width()
{
    return (int)(16 / sizeof(T));
}

/* Whether rows of width elements can be read in packs of W. NULL can. */
template <int W, typename... Types> inline bool rows_fit(int64_t width, const Types *...arrays)
{
    return width % W == 0 &&
           ((reinterpret_cast<uintptr_t>(arrays) % sizeof(Pack<Types, W>) == 0) && ...);
}

template <int W> struct alignas(W < 4 ? 4 * W : 16) Floats {
    float at[W];
};

template <typename Operand, int W>
__device__ inline Floats<W> floats_of(const Pack<typename Operand::type, W> &pack)
{
    Floats<W> x;
#pragma unroll
    for (int j = 0; j < W; j++)
        x.at[j] = Operand::widen(pack.at[j]);
    return x;
}

template <typename Operand, int W>
__device__ inline Floats<W> floats_load(const typename Operand::type *from)
{
    return floats_of<Operand, W>(pack_load<W>(from));
}

template <typename Operand, int W>
__device__ inline void floats_store(typename Operand::type *to, const Floats<W> &x)
{
    Pack<typename Operand::type, W> pack;
#pragma unroll
    for (int j = 0; j < W; j++)
        pack.at[j] = Operand::round(x.at[j]);
    pack_store(to, pack);
}

template <int W> __device__ inline void floats_add(Floats<W> &to, const Floats<W> &x)
{
#pragma unroll
    for (int j = 0; j < W; j++)
        to.at[j] += x.at[j];
}

/* ---------------------------------------------------------------- of a warp */

/* Over groups of lanes, a power of two; every lane has the result. */
template <typename T> __device__ inline T lanes_sum(T x, int lanes = WARP)
{
    for (int distance = lanes / 2; distance > 0; distance /= 2)
        x += __shfl_xor_sync(0xFFFFFFFFu, x, distance);
    return x;
}

__device__ inline float exp_fast(float x)
{
    return exp2_fast(x * LOG2_E);
}

inline int64_t ceil_div(int64_t x, int64_t by)
{
    return (x + by - 1) / by;
}

#endif
