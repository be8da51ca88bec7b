// SPDX-License-Identifier: Apache-2.0
/*
 * The loops of rows.h. Each instruction set includes this once, in a file that is compiled for
 * it and names its table, ROWS, and itself, ROWS_ISA. Every loop is written for the compiler to
 * vectorise: no branches, no calls but inlined ones, sums in LANES partial sums kept apart by
 * hand.
 */
#include "examples/gpt2/rows.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "examples/gpt2/numeric.h"

#define LANES  16
#define INLINE static inline __attribute__((always_inline))

/* Floats in a register here; LANES sums take VECTORS of them. */
#if defined(__AVX512F__)
#define WIDTH 16
#elif defined(__AVX__)
#define WIDTH 8
#else
#define WIDTH 4
#endif
#define VECTORS (LANES / WIDTH)

typedef float vector __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t vector_bits __attribute__((vector_size(4 * WIDTH), may_alias));

INLINE vector vector_at(const float *lanes, int index)
{
    return ((const vector *)lanes)[index];
}

INLINE float lanes_join(float *lane)
{
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            lane[j] += lane[j + width];
    return lane[0];
}

/* ---------------------------------------------------------------- operands */

INLINE float number_widen(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

INLINE uint16_t number_round(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (uint16_t)(x != x ? 0x7FC0u : (bits + 0x8000u) >> 16);
}

/* IEEE half to fp32, exact: the exponent is moved by 112; a denormal becomes
 * normal by a subtraction; infinities and NaN keep all ones there. */
INLINE float half_widen(uint16_t x)
{
    uint32_t magnitude = (x & 0x7FFFu) << 13;
    uint32_t small_bits = magnitude + (113u << 23), least_bits = 113u << 23;
    float small, least, value;
    memcpy(&small, &small_bits, sizeof(small));
    memcpy(&least, &least_bits, sizeof(least));
    small -= least;
    memcpy(&small_bits, &small, sizeof(small_bits));
    uint32_t bits = magnitude + (112u << 23);
    bits = magnitude < 0x00800000u ? small_bits : bits;
    bits = magnitude >= 0x0F800000u ? magnitude + (224u << 23) : bits;
    bits |= (x & 0x8000u) << 16;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* To nearest, ties to even. For results that are denormal the sum with 0.5
 * rounds: its last place is half's smallest step. */
INLINE uint16_t half_round(float x)
{
    uint32_t bits, small_bits;
    memcpy(&bits, &x, sizeof(bits));
    uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
    float small;
    memcpy(&small, &magnitude, sizeof(small));
    small += 0.5f;
    memcpy(&small_bits, &small, sizeof(small_bits));
    uint32_t half = (magnitude - (112u << 23) + 0xFFFu + (magnitude >> 13 & 1u)) >> 13;
    half = magnitude < 0x38800000u ? small_bits - 0x3F000000u : half;
    half = magnitude >= 0x47800000u ? 0x7C00u : half;
    half = magnitude > 0x7F800000u ? 0x7E00u : half;
    return (uint16_t)(sign | half);
}

/* Element i of an operand. Where the type is a constant one case is left, without a branch. */
INLINE float operand_get(enum zero_dtype dtype, const void *from, int64_t i)
{
    switch (dtype) {
    case ZERO_FP32: return ((const float *)from)[i];
    case ZERO_BF16: return number_widen(((const uint16_t *)from)[i]);
    case ZERO_FP16: return half_widen(((const uint16_t *)from)[i]);
    }
    return 0;
}

INLINE void operand_put(enum zero_dtype dtype, void *to, int64_t i, float x)
{
    switch (dtype) {
    case ZERO_FP32: ((float *)to)[i] = x; break;
    case ZERO_BF16: ((uint16_t *)to)[i] = number_round(x); break;
    case ZERO_FP16: ((uint16_t *)to)[i] = half_round(x); break;
    }
}

/* Calls an inlined function with each type as a constant. */
#define EACH(dtype, body, ...)                                                                     \
    switch (dtype) {                                                                               \
    case ZERO_FP32: body(ZERO_FP32, __VA_ARGS__); break;                                           \
    case ZERO_BF16: body(ZERO_BF16, __VA_ARGS__); break;                                           \
    case ZERO_FP16: body(ZERO_FP16, __VA_ARGS__); break;                                           \
    }

INLINE void view_each(enum zero_dtype dtype, int64_t n, const void *restrict in,
                      float *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = operand_get(dtype, in, i);
}

static void row_view(enum zero_dtype dtype, int64_t n, const void *in, float *out)
{
    EACH(dtype, view_each, n, in, out);
}

INLINE void add_each(enum zero_dtype dtype, int64_t n, const float *restrict in, void *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        operand_put(dtype, out, i, operand_get(dtype, out, i) + in[i]);
}

static void row_add_to_operand(enum zero_dtype dtype, int64_t n, const float *in, void *out)
{
    EACH(dtype, add_each, n, in, out);
}

INLINE void store_each(enum zero_dtype dtype, int64_t n, const float *restrict in,
                       const float *restrict bias, const float *restrict residual,
                       void *restrict out)
{
    if (bias && residual)
        for (int64_t i = 0; i < n; i++)
            operand_put(dtype, out, i, in[i] + bias[i] + residual[i]);
    else if (bias || residual)
        for (int64_t i = 0; i < n; i++)
            operand_put(dtype, out, i, in[i] + (bias ? bias : residual)[i]);
    else
        for (int64_t i = 0; i < n; i++)
            operand_put(dtype, out, i, in[i]);
}

static void row_store(enum zero_dtype dtype, int64_t n, const float *in, const float *bias,
                      const float *residual, void *out)
{
    EACH(dtype, store_each, n, in, bias, residual, out);
}

INLINE void scaled_each(enum zero_dtype dtype, int64_t n, const float *restrict in, float factor,
                        void *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        operand_put(dtype, out, i, in[i] * factor);
}

static void row_store_scaled(enum zero_dtype dtype, int64_t n, const float *in, float factor,
                             void *out)
{
    EACH(dtype, scaled_each, n, in, factor, out);
}

/* -------------------------------------------------------------------- rows */

static void row_add(int64_t n, const float *in, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] += in[i];
}

INLINE void sum_each(enum zero_dtype dtype, int64_t n, const void *restrict in, float *restrict sum)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += operand_get(dtype, in, i);
}

static void row_add_operand(enum zero_dtype dtype, int64_t n, const void *in, float *out)
{
    EACH(dtype, sum_each, n, in, out);
}

static float row_sum(int64_t n, const float *x)
{
    vector s[VECTORS] = {{0}};
    float lane[LANES];
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < VECTORS; j++)
            s[j] += vector_at(x + i, j);
    memcpy(lane, s, sizeof(lane));
    for (; i < n; i++)
        lane[i % LANES] += x[i];
    return lanes_join(lane);
}

static float row_dot(int64_t n, const float *x, const float *y)
{
    vector s[VECTORS] = {{0}};
    float lane[LANES];
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < VECTORS; j++)
            s[j] += vector_at(x + i, j) * vector_at(y + i, j);
    memcpy(lane, s, sizeof(lane));
    for (; i < n; i++)
        lane[i % LANES] += x[i] * y[i];
    return lanes_join(lane);
}

static float row_max(int64_t n, const float *x)
{
    assert(n >= 1);
    vector most[VECTORS];
    float lane[LANES];
    int64_t i = 0;
    for (int j = 0; j < VECTORS; j++)
        most[j] = x[0] - (vector){0}; /* -0 + 0 would be 0 */
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < VECTORS; j++) {
            vector v = vector_at(x + i, j);
            vector_bits more = v > most[j]; /* C has no ?: on vectors */
            most[j] = (vector)((more & (vector_bits)v) | (~more & (vector_bits)most[j]));
        }
    memcpy(lane, most, sizeof(lane));
    for (; i < n; i++)
        lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    for (int j = 1; j < LANES; j++)
        lane[0] = lane[j] > lane[0] ? lane[j] : lane[0];
    return lane[0];
}

/* x = k ln 2 + r ln 2, and e^x = 2^k 2^r: the sum with 1.5 * 2^23 rounds to an integer k, which
 * stays in the low bits; 2^r is a polynomial, 1 at 0, of the least relative error: 2e-9, and 2e-8
 * with its coefficients in fp32. Of k = -127 2^k is taken for 0. */
INLINE float number_exp(float x)
{
    const float shifter = 12582912.0f + 127.0f, log2_e = 1.44269502f, log2_e_rest = 1.92596303e-8f;
    float size = __builtin_fabsf(x), c = __builtin_copysignf(88.0f < size ? 88.0f : size, x);
    float shifted = number_fused(c, log2_e, shifter), k = shifted - shifter;
    float r = number_fused(c, log2_e_rest, number_fused(c, log2_e, -k));
    float p = 1.53532586e-4f;
    p = number_fused(p, r, 1.33990031e-3f);
    p = number_fused(p, r, 9.61843878e-3f);
    p = number_fused(p, r, 5.55033199e-2f);
    p = number_fused(p, r, 2.40226477e-1f);
    p = number_fused(p, r, 6.93147182e-1f);
    p = number_fused(p, r, 1.0f);
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof(bits));
    bits <<= 23;
    float power;
    memcpy(&power, &bits, sizeof(power));
    return p * power;
}

static float row_exp(int64_t n, float scale, float shift, float *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = number_exp(number_fused(x[i], scale, -shift));
    return row_sum(n, x);
}

INLINE void softmax_each(enum zero_dtype dtype, int64_t n, float scale, float shift, float factor,
                         float *restrict x, void *restrict out)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = number_exp(number_fused(x[i], scale, -shift));
        operand_put(dtype, out, i, x[i] * factor);
    }
}

static void row_softmax(enum zero_dtype dtype, int64_t n, float scale, float shift, float factor,
                        float *x, void *out)
{
    EACH(dtype, softmax_each, n, scale, shift, factor, x, out);
}

static void row_log(int64_t n, const float *shift, const float *x, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)((double)shift[i] + number_log((double)x[i]));
}

INLINE void softmax_backward_each(enum zero_dtype dtype, int64_t n, const float *restrict p,
                                  float mean, float scale, const float *restrict dp,
                                  void *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        operand_put(dtype, out, i, p[i] * (dp[i] - mean) * scale);
}

static void row_softmax_backward(enum zero_dtype dtype, int64_t n, const float *p, float mean,
                                 float scale, const float *dp, void *out)
{
    EACH(dtype, softmax_backward_each, n, p, mean, scale, dp, out);
}

#define GELU_LINEAR 1.5957691216057308f  /* 2 sqrt(2/pi) */
#define GELU_CUBIC  0.07135481282652453f /* 0.044715 * 2 sqrt(2/pi) */

INLINE void gelu_each(enum zero_dtype dtype, int64_t n, const float *restrict x,
                      const float *restrict bias, void *restrict wide, void *restrict active)
{
    for (int64_t i = 0; i < n; i++) {
        float v = x[i] + bias[i];
        float minus_u = v * number_fused(v * v, -GELU_CUBIC, -GELU_LINEAR);
        operand_put(dtype, wide, i, v);
        operand_put(dtype, active, i, v / (1.0f + number_exp(minus_u)));
    }
}

static void row_gelu(enum zero_dtype dtype, int64_t n, const float *x, const float *bias,
                     void *wide, void *active)
{
    EACH(dtype, gelu_each, n, x, bias, wide, active);
}

INLINE void gelu_backward_each(enum zero_dtype dtype, int64_t n, const void *restrict wide,
                               const float *restrict dactive, void *restrict dwide,
                               float *restrict sum)
{
    for (int64_t i = 0; i < n; i++) {
        float v = operand_get(dtype, wide, i);
        float square = v * v;
        float minus_u = v * number_fused(square, -GELU_CUBIC, -GELU_LINEAR);
        float e = number_exp(minus_u), sigmoid = 1.0f / (1.0f + e);
        float slope = number_fused(square, 3.0f * GELU_CUBIC, GELU_LINEAR);
        float rest = v * (e * sigmoid); /* 1 - sigmoid would have lost its low bits */
        float d = dactive[i] * sigmoid * number_fused(rest, slope, 1.0f);
        operand_put(dtype, dwide, i, d);
        sum[i] += d;
    }
}

static void row_gelu_backward(enum zero_dtype dtype, int64_t n, const void *wide,
                              const float *dactive, void *dwide, float *sum)
{
    EACH(dtype, gelu_backward_each, n, wide, dactive, dwide, sum);
}

#define NORM_EPS 1e-5f

INLINE float sum_squares(int64_t n, const float *x, float mean)
{
    vector s[VECTORS] = {{0}};
    float lane[LANES];
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < VECTORS; j++) {
            vector apart = vector_at(x + i, j) - mean;
            s[j] += apart * apart;
        }
    memcpy(lane, s, sizeof(lane));
    for (; i < n; i++)
        lane[i % LANES] += (x[i] - mean) * (x[i] - mean);
    return lanes_join(lane);
}

INLINE void norm_each(enum zero_dtype dtype, int64_t n, const float *restrict x, float mean,
                      float scale, const float *restrict weight, const float *restrict bias,
                      void *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        operand_put(dtype, out, i, (x[i] - mean) * scale * weight[i] + bias[i]);
}

static void row_norm(enum zero_dtype dtype, int64_t n, const float *x, const float *weight,
                     const float *bias, float stats[2], void *out)
{
    float mean = row_sum(n, x) / (float)n;
    float variance = sum_squares(n, x, mean) / (float)n;
    float scale = 1.0f / sqrtf(variance + NORM_EPS);
    EACH(dtype, norm_each, n, x, mean, scale, weight, bias, out);
    stats[0] = mean;
    stats[1] = scale;
}

/* With six arrays compilers do not check what overlaps, and would stay with scalars. */
static void row_norm_backward(int64_t n, const float *x, const float *weight, const float stats[2],
                              const float *dout, float *restrict dx, float *restrict dweight,
                              float *restrict dbias)
{
    float mean = stats[0], scale = stats[1];
    vector s[VECTORS] = {{0}}, sx[VECTORS] = {{0}};
    float lane[LANES], lane_x[LANES];
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < VECTORS; j++) {
            vector d = vector_at(dout + i, j) * vector_at(weight + i, j);
            s[j] += d;
            sx[j] += d * ((vector_at(x + i, j) - mean) * scale);
        }
    memcpy(lane, s, sizeof(lane));
    memcpy(lane_x, sx, sizeof(lane_x));
    for (; i < n; i++) {
        lane[i % LANES] += dout[i] * weight[i];
        lane_x[i % LANES] += dout[i] * weight[i] * ((x[i] - mean) * scale);
    }
    float shift = lanes_join(lane) / (float)n;
    float slope = lanes_join(lane_x) / (float)n;
    for (i = 0; i < n; i++) {
        float normal = (x[i] - mean) * scale;
        dx[i] += scale * (dout[i] * weight[i] - shift - normal * slope);
        dweight[i] += dout[i] * normal;
        dbias[i] += dout[i];
    }
}

const struct rows ROWS = {
    .isa = ROWS_ISA,
    .view = row_view,
    .store = row_store,
    .store_scaled = row_store_scaled,
    .add_to_operand = row_add_to_operand,
    .add_operand = row_add_operand,
    .add = row_add,
    .max = row_max,
    .sum = row_sum,
    .dot = row_dot,
    .exp = row_exp,
    .softmax = row_softmax,
    .log = row_log,
    .softmax_backward = row_softmax_backward,
    .gelu = row_gelu,
    .gelu_backward = row_gelu_backward,
    .norm = row_norm,
    .norm_backward = row_norm_backward,
};
