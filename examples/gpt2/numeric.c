// SPDX-License-Identifier: Apache-2.0
/*
 * Operands, by the loops of this CPU.
 */
#include "examples/gpt2/numeric.h"

#include "examples/gpt2/rows.h"

const float *operand_view(enum zero_dtype dtype, const void *base, int64_t at, int64_t n,
                          float *spare)
{
    const void *in = operand_at(dtype, base, at);
    if (dtype == ZERO_FP32)
        return in;
    rows_best()->view(dtype, n, in, spare);
    return spare;
}

void operand_store(enum zero_dtype dtype, void *base, int64_t at, int64_t n, const float *in)
{
    rows_best()->store(dtype, n, in, NULL, NULL, operand_at(dtype, base, at));
}

void operand_add(enum zero_dtype dtype, void *base, int64_t at, int64_t n, const float *in)
{
    rows_best()->add_to_operand(dtype, n, in, operand_at(dtype, base, at));
}
