// SPDX-License-Identifier: Apache-2.0
/*
 * Functions that a GPU computes in one instruction, within two units in the last place,
 * denormals flushed: without them kernels that are bound by memory would not be. The
 * argument of an exponential is rounded first, so its error grows with the argument.
 * tests/support/fake_nvcc.h has the same for a host.
 */
#ifndef EXAMPLES_GPT2_CUDA_APPROX_CUH
#define EXAMPLES_GPT2_CUDA_APPROX_CUH

__device__ inline float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ inline float reciprocal_fast(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
