// SPDX-License-Identifier: Apache-2.0
/* The library's clock. */
#ifndef SRC_CLOCK_H
#define SRC_CLOCK_H

#include <time.h>

/* Seconds of CLOCK_MONOTONIC. */
static inline double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
