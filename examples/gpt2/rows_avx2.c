// SPDX-License-Identifier: Apache-2.0
/*
 * The loops for AVX2 and FMA: the compiler is told so for this file alone.
 */
#ifdef __x86_64__
#define ROWS     rows_avx2
#define ROWS_ISA "AVX2"
#include "examples/gpt2/rows_loops.h"
#else
typedef int rows_avx2_is_for_x86; /* ISO C wants something here */
#endif
