// SPDX-License-Identifier: Apache-2.0
/*
 * An fp32 master kept as the bf16 weight that is there anyway and the 16 bits
 * that rounding took from it, one element. Adding 0x8000 carries into the
 * weight exactly when the lower half, as a signed number, is negative: so the
 * lower half is the remainder, and the sum gives the master back. Knows no
 * other formats.
 */
#ifndef KERNELS_SPLIT_H
#define KERNELS_SPLIT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/bf16.h"

ELEMENT_INLINE void split_element(float master, uint16_t *weight, int16_t *remainder)
{
    uint32_t bits;
    memcpy(&bits, &master, sizeof(bits));
    bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    *weight = bf16_from_float(master);
    *remainder = (int16_t)(uint16_t)(nan ? 0 : bits);
}

/* In unsigned numbers, which wrap: -0 and a negative remainder. */
ELEMENT_INLINE float join_element(uint16_t weight, int16_t remainder)
{
    uint32_t bits = ((uint32_t)weight << 16) + (uint32_t)(int32_t)remainder;
    float master;
    memcpy(&master, &bits, sizeof(master));
    return master;
}

#endif
