// SPDX-License-Identifier: Apache-2.0
/* The programs' clock, which is that of the library's spans. */
#ifndef EXAMPLES_COMMON_CLOCK_H
#define EXAMPLES_COMMON_CLOCK_H

#include <time.h>

/* Seconds of CLOCK_MONOTONIC. */
static inline double clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds for which the calling thread has had a CPU. */
static inline double clock_ran(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
