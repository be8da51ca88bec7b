// SPDX-License-Identifier: Apache-2.0
/* Conversions for programs, between fp32 and the types of parameters and gradients. */
#include <fenv.h>
#include <string.h>

#include "include/zero.h"
#include "kernels/kernels.h"

static int convert(enum zero_dtype dtype, int64_t n, const void *in, void *out, bool widen)
{
    const struct kernels *k = kernels_best();
    fenv_t program; /* whose modes may trap what is rounded */
    if ((unsigned)dtype > ZERO_FP16 || n < 0 || (n > 0 && (!in || !out)))
        return ZERO_ERR_ARGUMENT;
    if (n == 0)
        return ZERO_OK;
    fegetenv(&program);
    kernels_thread_init();
    if (dtype == ZERO_FP32)
        memcpy(out, in, (size_t)n * sizeof(float));
    else if (widen)
        (dtype == ZERO_BF16 ? k->from_bf16 : k->from_fp16)(n, in, out);
    else
        (dtype == ZERO_BF16 ? k->to_bf16 : k->to_fp16)(n, in, out);
    fesetenv(&program);
    return ZERO_OK;
}

int zero_to_fp32(enum zero_dtype dtype, int64_t n, const void *in, float *out)
{
    return convert(dtype, n, in, out, true);
}

int zero_from_fp32(enum zero_dtype dtype, int64_t n, const float *in, void *out)
{
    return convert(dtype, n, in, out, false);
}
