// SPDX-License-Identifier: Apache-2.0
/* The library's clock, and how long something was waited for by it. */
#ifndef SRC_CLOCK_H
#define SRC_CLOCK_H

#include <stdbool.h>
#include <time.h>

/* Seconds of CLOCK_MONOTONIC. */
static inline double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* How long something has been waited for, by looks at it. */
struct patience {
    double looked, seconds;
};

/* Another look at what is waited for. What passed since the last one counts up to
 * most, for a process that was stopped did not wait in it. */
static inline void patience_look(struct patience *p, double now, double most, bool counts)
{
    double passed = now - p->looked;
    p->looked = now;
    if (counts)
        p->seconds += passed < most ? passed : most;
}

#endif
