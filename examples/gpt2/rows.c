// SPDX-License-Identifier: Apache-2.0
/*
 * Chooses the loops for this CPU.
 */
#include "examples/gpt2/rows.h"

#include <stdatomic.h>
#include <stddef.h>

const struct rows *rows_of(int index)
{
    const struct rows *runs[3];
    int count = 0;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        runs[count++] = &rows_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        runs[count++] = &rows_avx2;
#endif
    runs[count++] = &rows_scalar;
    return index < count ? runs[index] : NULL;
}

const struct rows *rows_best(void)
{
    static const struct rows *_Atomic best;
    const struct rows *rows = atomic_load_explicit(&best, memory_order_relaxed);
    if (!rows) {
        rows = rows_of(0);
        atomic_store_explicit(&best, rows, memory_order_relaxed);
    }
    return rows;
}
