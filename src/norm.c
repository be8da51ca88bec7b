// SPDX-License-Identifier: Apache-2.0
/*
 * Exact sums of doubles in a wide fixed-point number. Knows nothing of
 * gradients or ranks: whoever adds limbs up over ranks does so outside.
 */
#include "src/norm.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#define PENDING_MAX ((int64_t)1 << 29) /* additions of < 2^32 each, on top of < 2^62 */

static void limbs_add(struct wide *w, uint64_t magnitude, int position, bool negative)
{
    int first = position / WIDE_BITS, shift = position % WIDE_BITS;
    uint64_t rest = magnitude >> (WIDE_BITS - shift);
    int64_t part[3] = {
        (int64_t)((magnitude << shift) & WIDE_MASK),
        (int64_t)(rest & WIDE_MASK),
        (int64_t)(rest >> WIDE_BITS),
    };
    for (int i = 0; i < 3; i++) {
        if (part[i] == 0)
            continue; /* at the upper end there is no third limb */
        assert(first + i < WIDE_LIMBS);
        w->limb[first + i] += negative ? -part[i] : part[i];
    }
}

void wide_add(struct wide *w, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    int exponent = (int)(bits >> 52 & 0x7FF); /* of the value: exponent - 1023 */
    if (exponent >= WIDE_HIGHEST + 1023) {
        w->nonfinite++;
        return;
    }
    uint64_t magnitude = bits & (((uint64_t)1 << 52) - 1);
    if (exponent > 0)
        magnitude |= (uint64_t)1 << 52;
    int position = exponent - 1075 - WIDE_LOWEST; /* of the lowest bit; denormals lie far below 0 */
    if (position < 0) {
        magnitude = position > -64 ? magnitude >> -position : 0;
        position = 0;
    }
    limbs_add(w, magnitude, position, bits >> 63);
    if (++w->pending >= PENDING_MAX)
        wide_carry(w);
}

/* Leaves 0 <= limb < 2^32 everywhere but in the last, which carries the sign:
 * one number has one form, so equal sums have equal limbs. */
void wide_carry(struct wide *w)
{
    for (int i = 0; i + 1 < WIDE_LIMBS; i++) {
        w->limb[i + 1] += w->limb[i] >> WIDE_BITS;
        w->limb[i] &= WIDE_MASK;
    }
    w->pending = 0;
}

/* head * 2^exponent rounded to nearest, ties to even. The highest bit of head is
 * set; sticky: there are more bits below it. */
static double head_round(uint64_t head, int exponent, bool sticky)
{
    uint64_t mantissa = head >> 11, rest = head & 0x7FF;
    bool up = rest > 0x400 || (rest == 0x400 && (sticky || mantissa & 1));
    return ldexp((double)(mantissa + up), exponent + 11); /* always a normal number: exact */
}

double wide_value(struct wide *w)
{
    wide_carry(w);
    if (w->nonfinite)
        return NAN;
    struct wide positive = *w;
    bool negative = w->limb[WIDE_LIMBS - 1] < 0;
    for (int i = 0; negative && i < WIDE_LIMBS; i++)
        positive.limb[i] = -positive.limb[i];
    wide_carry(&positive);

    /* Digits of 32 bits, the highest limb's excess as one more, two zeros below. */
    uint64_t digit[WIDE_LIMBS + 3] = {0};
    for (int i = 0; i < WIDE_LIMBS; i++)
        digit[i + 2] = (uint64_t)positive.limb[i] & WIDE_MASK;
    digit[WIDE_LIMBS + 2] = (uint64_t)positive.limb[WIDE_LIMBS - 1] >> WIDE_BITS;
    int top = WIDE_LIMBS + 2;
    while (top > 1 && digit[top] == 0)
        top--;
    if (top == 1)
        return 0.0;

    int shift = __builtin_clzll(digit[top] << WIDE_BITS);
    uint64_t head = digit[top] << WIDE_BITS | digit[top - 1];
    uint64_t tail = digit[top - 2] << shift; /* its upper half belongs into head */
    head = head << shift | tail >> WIDE_BITS;
    bool sticky = tail & WIDE_MASK;
    for (int i = 0; i < top - 2; i++)
        sticky = sticky || digit[i];
    double value = head_round(head, WIDE_LOWEST + WIDE_BITS * (top - 3) - shift, sticky);
    return negative ? -value : value;
}
