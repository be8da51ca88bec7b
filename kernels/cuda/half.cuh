// SPDX-License-Identifier: Apache-2.0
/* fp16 by the hardware's conversions: IEEE, denormals kept. A NaN becomes another one. */
#ifndef KERNELS_CUDA_HALF_CUH
#define KERNELS_CUDA_HALF_CUH

#include <stdint.h>

__device__ inline float half_to_float(uint16_t x)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}

/* To nearest, ties to even. */
__device__ inline uint16_t half_from_float(float x)
{
    uint16_t y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}

#endif
