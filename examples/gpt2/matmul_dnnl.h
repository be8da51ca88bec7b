// SPDX-License-Identifier: Apache-2.0
/* oneDNN's products of bf16, which take memory on its own account. Called by matmul.c. */
#ifndef EXAMPLES_GPT2_MATMUL_DNNL_H
#define EXAMPLES_GPT2_MATMUL_DNNL_H

#include "examples/gpt2/matmul.h"

/* Whether this build and oneDNN can on this CPU. */
bool dnnl_multiplies(void);
/* Whether they are better than our own: of bf16, where the CPU has AMX. */
bool dnnl_leads(enum zero_dtype dtype);

void dnnl_thread_init(void); /* as matmul_thread_init */
void dnnl_multiply(const struct matmul *p, bool add, float *c, int ldc);

/* For each thread code, packed operands, and what malloc sets aside for it; another thread
 * may take its part at any time, and oneDNN crashes where it finds none. */
#define DNNL_THREAD_BYTES ((int64_t)72 << 20)

#endif
