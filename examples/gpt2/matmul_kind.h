// SPDX-License-Identifier: Apache-2.0
/* The two ways to multiply behind matmul.h, each whole in a file of its own. */
#ifndef EXAMPLES_GPT2_MATMUL_KIND_H
#define EXAMPLES_GPT2_MATMUL_KIND_H

#include "examples/gpt2/matmul.h"

struct matmul_kind {
    const char *(*name)(void);
    void (*thread_init)(void);
    int64_t thread_bytes; /* address space it takes on its own account, per thread and once */
    int down, across;     /* tiles in one task, where there are enough */
    int64_t (*scratch)(enum zero_dtype dtype, int m, int n, int k);
    void (*multiply)(const struct matmul *p, bool add, float *c, int ldc, void *scratch);
};

/* oneDNN. NULL: not in this build. */
const struct matmul_kind *matmul_dnnl(void);
/* Whether oneDNN is the better one here: where the CPU has AVX-512, for its kernels there, and
 * above all those for bf16. */
bool matmul_dnnl_leads(void);

/* Our own, everywhere. */
const struct matmul_kind *matmul_packed(void);

#endif
