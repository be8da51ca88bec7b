// SPDX-License-Identifier: Apache-2.0
/*
 * IEEE binary16 to fp32 and back, one element, in integers: the same bits in
 * any rounding mode and with denormals switched off. Rounds to nearest, ties to
 * even; a NaN has one pattern on the way in and keeps its payload, made quiet,
 * on the way out, as hardware does it.
 */
#ifndef KERNELS_FP16_H
#define KERNELS_FP16_H

#include <stdint.h>
#include <string.h>

#define FP16_NAN 0x7E00

static inline uint16_t fp16_from_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
    if (size > 0x7F800000u)
        return FP16_NAN;
    if (size >= 0x477FF000u) /* 65520: halfway from the largest to 2^16 */
        return (uint16_t)(sign | 0x7C00u);
    if (size >= 0x38800000u) { /* 2^-14: the exponent's bias falls from 127 to 15 */
        uint32_t normal = size - 0x38000000u;
        return (uint16_t)(sign | (normal + 0xFFFu + (normal >> 13 & 1)) >> 13);
    }
    if (size <= 0x33000000u) /* 2^-25: half of the smallest, and the tie goes to 0 */
        return (uint16_t)sign;
    uint32_t significand = (size & 0x7FFFFFu) | 0x800000u;
    uint32_t shift = 126 - (size >> 23); /* to units of 2^-24: by 14 to 24 */
    uint32_t half = (1u << (shift - 1)) - 1 + (significand >> shift & 1);
    return (uint16_t)(sign | (significand + half) >> shift);
}

static inline float fp16_to_float(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16, exponent = x >> 10 & 0x1Fu;
    uint32_t fraction = x & 0x3FFu, bits;
    if (exponent == 0x1F) {
        bits = 0x7F800000u | fraction << 13 | (fraction ? 0x400000u : 0);
    } else if (exponent) {
        bits = (exponent + 112) << 23 | fraction << 13;
    } else if (fraction) { /* a denormal: its first one moves to bit 10 */
        uint32_t shift = (uint32_t)__builtin_clz(fraction) - 21;
        bits = (113 - shift) << 23 | (fraction << shift & 0x3FFu) << 13;
    } else {
        bits = 0;
    }
    bits |= sign;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

#endif
