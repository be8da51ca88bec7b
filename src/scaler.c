// SPDX-License-Identifier: Apache-2.0
/* Loss scaling: arithmetic on powers of two, which is exact. */
#include "src/scaler.h"

#include <string.h>

/* Numbers above 0 are in the order of their bits, and all else is beyond. */
bool scaler_holds(double scale)
{
    const double edge[] = {SCALER_LEAST, SCALER_MOST};
    uint64_t bits, from, to;
    memcpy(&bits, &scale, sizeof(bits));
    memcpy(&from, &edge[0], sizeof(from));
    memcpy(&to, &edge[1], sizeof(to));
    return from <= bits && bits <= to;
}

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
