// SPDX-License-Identifier: Apache-2.0
/*
 * The loss scale: a number that keeps small fp16 gradients from vanishing, and
 * what becomes of it after each step. The rules are DeepSpeed's dynamic loss
 * scaler's, and a largest scale. A function of the verdicts alone, so equal on all ranks.
 */
#ifndef SRC_SCALER_H
#define SRC_SCALER_H

#include <stdbool.h>
#include <stdint.h>

#define SCALER_START      65536.0
#define SCALER_LEAST      0x1p-64 /* further out its inverse would not be an fp32 number */
#define SCALER_MOST       0x1p64
#define SCALER_HYSTERESIS 2    /* overflows, after a rise, before the scale falls */
#define SCALER_WINDOW     1000 /* steps without overflow before it rises */

struct scaler {
    double scale;
    bool dynamic;
    int hysteresis; /* overflows until the next fall, that one included */
    int64_t good;   /* steps since the last overflow */
};

/* Whether it lies between SCALER_LEAST and SCALER_MOST. Raises no trap where it is no number. */
bool scaler_holds(double scale);

/* fixed 0: dynamic. */
struct scaler scaler_make(double fixed);

/* After a step. False: it overflowed at the smallest scale, 1. */
bool scaler_next(struct scaler *s, bool overflow);

#endif
