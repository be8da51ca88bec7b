// SPDX-License-Identifier: Apache-2.0
/* Conversions for programs, between fp32 and the types of parameters and gradients. */
#include <fenv.h>
#include <string.h>

#include "include/zero.h"
#include "kernels/kernels.h"

static bool can_convert(enum zero_dtype dtype, int64_t n, const void *in, const void *out)
{
    return (unsigned)dtype <= ZERO_FP16 && n >= 0 && (n == 0 || (in && out));
}

int zero_to_fp32(enum zero_dtype dtype, int64_t n, const void *in, float *out)
{
    fenv_t program; /* whose modes may trap what is rounded */
    if (!can_convert(dtype, n, in, out))
        return ZERO_ERR_ARGUMENT;
    fegetenv(&program);
    kernels_thread_init();
    if (dtype == ZERO_BF16)
        kernels_best()->from_bf16(n, in, out);
    else if (dtype == ZERO_FP16)
        kernels_best()->from_fp16(n, in, out);
    else if (n > 0)
        memcpy(out, in, (size_t)n * sizeof(*out));
    fesetenv(&program);
    return ZERO_OK;
}

int zero_from_fp32(enum zero_dtype dtype, int64_t n, const float *in, void *out)
{
    fenv_t program;
    if (!can_convert(dtype, n, in, out))
        return ZERO_ERR_ARGUMENT;
    fegetenv(&program);
    kernels_thread_init();
    if (dtype == ZERO_BF16)
        kernels_best()->to_bf16(n, in, out);
    else if (dtype == ZERO_FP16)
        kernels_best()->to_fp16(n, in, out);
    else if (n > 0)
        memcpy(out, in, (size_t)n * sizeof(*in));
    fesetenv(&program);
    return ZERO_OK;
}
