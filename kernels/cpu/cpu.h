// SPDX-License-Identifier: Apache-2.0
/*
 * What the files of this folder offer to select.c: one table per instruction
 * set, and the choice between them as a function of what a CPU can do, so that
 * tests can ask it about CPUs they do not run on.
 */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include "kernels/kernels.h"

extern const struct kernels kernels_scalar;
#ifdef __x86_64__
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx512;
#endif
#ifdef __aarch64__
extern const struct kernels kernels_neon;
#endif

/* What CPU and operating system can run, and whose CPU it is. Scalar code always runs. */
#define CPU_AVX2   1u /* and F16C */
#define CPU_AVX512 2u
#define CPU_NEON   4u
#define CPU_INTEL  8u
#define CPU_ZEN5   16u /* or a later one of AMD's */
unsigned cpu_features(void);

/* The table named, or the best of cpu when isa is NULL. NULL with error set:
 * ZERO_ERR_ARGUMENT no such name, ZERO_ERR_UNSUPPORTED cpu lacks it. */
const struct kernels *kernels_choose(const char *isa, unsigned cpu, struct error *error);

#endif
