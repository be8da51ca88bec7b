// SPDX-License-Identifier: Apache-2.0
/*
 * The loops for AVX-512: the compiler is told so for this file alone.
 */
#ifdef __x86_64__
#define ROWS     rows_avx512
#define ROWS_ISA "AVX-512"
#include "examples/gpt2/rows_loops.h"
#else
typedef int rows_avx512_is_for_x86; /* ISO C wants something here */
#endif
