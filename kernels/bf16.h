// SPDX-License-Identifier: Apache-2.0
/*
 * bf16 to fp32 and back, one element, in integers: hardware conversions flush
 * denormals or break ties to even. Ties go away from zero, because only then is
 * a weight plus its 16-bit remainder a bijection with the fp32 master.
 */
#ifndef KERNELS_BF16_H
#define KERNELS_BF16_H

#include <stdint.h>
#include <string.h>

#define BF16_NAN 0x7FC0

/* These and those of split.h are also a GPU's. */
#ifdef __CUDACC__
#define ELEMENT_INLINE static __host__ __device__ inline
#else
#define ELEMENT_INLINE static inline
#endif

ELEMENT_INLINE uint16_t bf16_from_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    uint32_t rounded = (bits + 0x8000u) >> 16;
    return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? BF16_NAN : rounded);
}

ELEMENT_INLINE float bf16_to_float(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

#endif
