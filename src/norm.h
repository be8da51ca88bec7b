// SPDX-License-Identifier: Apache-2.0
/*
 * A wide fixed-point accumulator: sums of doubles that are exact, so equal for
 * every order and grouping, and that ranks add up as integers. 20 limbs of 32
 * payload bits from 2^-320 up; limbs are signed and carried now and then.
 */
#ifndef SRC_NORM_H
#define SRC_NORM_H

#include <stdint.h>

#define WIDE_LIMBS   20
#define WIDE_BITS    32 /* of a limb's payload */
#define WIDE_MASK    0xFFFFFFFFu
#define WIDE_LOWEST  (-320) /* exponent of limb 0's lowest bit */
#define WIDE_HIGHEST 318    /* values reach up to 2^WIDE_HIGHEST */

struct wide {
    int64_t limb[WIDE_LIMBS];
    int64_t nonfinite; /* how many values were NaN, infinite or >= 2^318 (not added) */
    int64_t pending;   /* additions since the last carry */
};

/* Adds x exactly when it is 0 or 2^-268 <= |x| < 2^318; smaller parts of x
 * than 2^-320 are cut towards zero. */
void wide_add(struct wide *w, double x);

/* Carries, so that limbs of up to 2^30 ranks can be added as integers. */
void wide_carry(struct wide *w);

/* The sum rounded once to nearest, ties to even; NaN when a value was not
 * finite. Carries first. */
double wide_value(struct wide *w);

#endif
