// SPDX-License-Identifier: Apache-2.0
/*
 * Operands, by the loops of this CPU, and the logarithm.
 */
#include "examples/gpt2/numeric.h"

#include <string.h>

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

/* x = m 2^k with m in [sqrt(1/2), sqrt(2)); log m = 2 artanh((m-1)/(m+1)). */
double number_log(double x)
{
    if (!(x > 0) || x > 1.7e308)
        return x;
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    int64_t k = (int64_t)((bits - 0x3FE6A09E667F3BCDull) >> 52);
    k = k >= 2048 ? k - 4096 : k; /* the exponent field is 12 bits with its sign */
    bits -= (uint64_t)k << 52;
    double m;
    memcpy(&m, &bits, sizeof(m));
    double f = (m - 1.0) / (m + 1.0), square = f * f, series = 0;
    for (int term = 19; term >= 1; term -= 2)
        series = series * square + 1.0 / term;
    return (double)k * 0.69314718055994530942 + 2.0 * f * series;
}
