// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fault.h"

bool fault_strikes(struct fault *fault, enum fault_kind kind)
{
    if (!fault || fault->kind != kind)
        return false;
    int64_t n = atomic_fetch_add(&fault->seen, 1) + 1;
    bool strikes = n == fault->nth || (fault->again && fault->nth && n > fault->nth);
    if (strikes)
        atomic_fetch_add(&fault->struck, 1);
    return strikes;
}

static atomic_int_least64_t ticks;

double fault_seconds(void)
{
    return (double)atomic_load(&ticks);
}

void fault_tick(void)
{
    atomic_fetch_add(&ticks, 1);
}
