// SPDX-License-Identifier: Apache-2.0
/*
 * Chooses the loops for this CPU.
 */
#include "examples/gpt2/rows.h"

#include <stddef.h>

const struct rows *rows_of(int index)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && index-- == 0)
        return &rows_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && index-- == 0)
        return &rows_avx2; /* every CPU with AVX2 has F16C */
#endif
    return index == 0 ? &rows_scalar : NULL;
}
