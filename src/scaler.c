// SPDX-License-Identifier: Apache-2.0
/* Loss scaling: arithmetic on powers of two, which is exact. */
#include "src/scaler.h"

struct scaler scaler_make(double fixed)
{
    bool dynamic = fixed == 0;
    return (struct scaler){.scale = dynamic ? SCALER_START : fixed,
                           .dynamic = dynamic,
                           .hysteresis = SCALER_HYSTERESIS};
}

bool scaler_next(struct scaler *s, bool overflow)
{
    if (!s->dynamic)
        return true;
    if (!overflow) {
        if (++s->good % SCALER_WINDOW == 0) {
            s->scale = s->scale < SCALER_MOST / 2 ? 2 * s->scale : SCALER_MOST;
            s->hysteresis = SCALER_HYSTERESIS;
        }
        return true;
    }
    s->good = 0;
    if (s->hysteresis > 1) {
        s->hysteresis--;
        return true;
    }
    if (s->scale <= 1)
        return false;
    s->scale /= 2;
    return true;
}
