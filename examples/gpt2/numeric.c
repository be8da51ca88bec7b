// SPDX-License-Identifier: Apache-2.0
/*
 * Every loop here is written for the compiler to vectorise: no branches, no
 * calls but inlined ones, sums in LANES partial sums kept apart by hand. What
 * is not about a row of numbers is elsewhere.
 */
#include "examples/gpt2/numeric.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define LANES  16
#define INLINE static inline __attribute__((always_inline))

/* LANES floats: one AVX-512 register, two of AVX2, four of SSE2, the same bits. */
union lanes {
    float lane[LANES];
    float v __attribute__((vector_size(4 * LANES)));
};

INLINE void lanes_load(union lanes *to, const float *from)
{
    memcpy(to, from, sizeof(*to));
}

INLINE float lanes_join(union lanes *s)
{
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            s->lane[j] += s->lane[j + width];
    return s->lane[0];
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
    uint32_t rounded = (bits + 0x8000u) >> 16;
    return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded);
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

VECTORISED static void view(enum zero_dtype dtype, int64_t n, const void *in, float *out)
{
    EACH(dtype, view_each, n, in, out);
}

const float *operand_view(enum zero_dtype dtype, const void *base, int64_t at, int64_t n,
                          float *spare)
{
    const void *in = operand_at(dtype, base, at);
    if (dtype == ZERO_FP32)
        return in;
    view(dtype, n, in, spare);
    return spare;
}

INLINE void add_each(enum zero_dtype dtype, int64_t n, const float *restrict in, void *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        operand_put(dtype, out, i, operand_get(dtype, out, i) + in[i]);
}

VECTORISED static void add(enum zero_dtype dtype, int64_t n, const float *in, void *out)
{
    EACH(dtype, add_each, n, in, out);
}

void operand_add(enum zero_dtype dtype, void *base, int64_t at, int64_t n, const float *in)
{
    add(dtype, n, in, operand_at(dtype, base, at));
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

VECTORISED void row_store(enum zero_dtype dtype, int64_t n, const float *in, const float *bias,
                          const float *residual, void *out)
{
    EACH(dtype, store_each, n, in, bias, residual, out);
}

void operand_store(enum zero_dtype dtype, void *base, int64_t at, int64_t n, const float *in)
{
    row_store(dtype, n, in, NULL, NULL, operand_at(dtype, base, at));
}

/* -------------------------------------------------------------------- rows */

VECTORISED void row_add(int64_t n, const float *in, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] += in[i];
}

INLINE void sum_each(enum zero_dtype dtype, int64_t n, const void *restrict in, float *restrict sum)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += operand_get(dtype, in, i);
}

VECTORISED void row_add_operand(enum zero_dtype dtype, int64_t n, const void *in, float *out)
{
    EACH(dtype, sum_each, n, in, out);
}

VECTORISED void row_scale(int64_t n, float factor, float *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

INLINE float sum(int64_t n, const float *x)
{
    union lanes s = {{0}}, v;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes_load(&v, x + i);
        s.v += v.v;
    }
    for (; i < n; i++)
        s.lane[i % LANES] += x[i];
    return lanes_join(&s);
}

VECTORISED float row_sum(int64_t n, const float *x)
{
    return sum(n, x);
}

VECTORISED float row_dot(int64_t n, const float *x, const float *y)
{
    union lanes s = {{0}}, v, w;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes_load(&v, x + i);
        lanes_load(&w, y + i);
        s.v += v.v * w.v;
    }
    for (; i < n; i++)
        s.lane[i % LANES] += x[i] * y[i];
    return lanes_join(&s);
}

VECTORISED float row_max(int64_t n, const float *x)
{
    assert(n >= 1);
    float lane[LANES];
    int64_t i = 0;
    for (int j = 0; j < LANES; j++)
        lane[j] = x[0];
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (; i < n; i++)
        lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    for (int j = 1; j < LANES; j++)
        lane[0] = lane[j] > lane[0] ? lane[j] : lane[0];
    return lane[0];
}

/* Cephes' expf: x = k ln 2 + r, a polynomial in r, times 2^k. The sum with
 * 1.5 * 2^23 rounds to an integer k and leaves it in the low bits. */
INLINE float number_exp(float x)
{
    const float shifter = 12582912.0f;
    float c = x > 88.0f ? 88.0f : x;
    c = c < -87.0f ? -87.0f : c;
    float shifted = c * 1.44269504088896341f + shifter;
    float k = shifted - shifter;
    float r = (c - k * 0.693359375f) + k * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * (r * r) + r) + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof(bits));
    bits = (bits - 0x4B400000u + 127u) << 23;
    float power;
    memcpy(&power, &bits, sizeof(power));
    p *= power;
    uint32_t keep = x < -87.0f ? 0 : ~0u; /* a mask, since a branch would not vectorise */
    memcpy(&bits, &p, sizeof(bits));
    bits &= keep;
    memcpy(&p, &bits, sizeof(p));
    return p;
}

VECTORISED float row_exp(int64_t n, const float *x, float scale, float shift, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = number_exp(x[i] * scale - shift);
    return sum(n, out);
}

INLINE void softmax_each(enum zero_dtype dtype, int64_t n, float scale, float shift, float factor,
                         float *restrict x, void *restrict out)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = number_exp(x[i] * scale - shift);
        operand_put(dtype, out, i, x[i] * factor);
    }
}

VECTORISED void row_softmax(enum zero_dtype dtype, int64_t n, float scale, float shift,
                            float factor, float *x, void *out)
{
    EACH(dtype, softmax_each, n, scale, shift, factor, x, out);
}

INLINE void softmax_backward_each(enum zero_dtype dtype, int64_t n, const float *restrict p,
                                  float mean, float scale, const float *restrict dp,
                                  void *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        operand_put(dtype, out, i, p[i] * (dp[i] - mean) * scale);
}

VECTORISED void row_softmax_backward(enum zero_dtype dtype, int64_t n, const float *p, float mean,
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
        float u = v * (GELU_LINEAR + GELU_CUBIC * (v * v));
        operand_put(dtype, wide, i, v);
        operand_put(dtype, active, i, v / (1.0f + number_exp(-u)));
    }
}

VECTORISED void row_gelu(enum zero_dtype dtype, int64_t n, const float *x, const float *bias,
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
        float u = v * (GELU_LINEAR + GELU_CUBIC * square);
        float sigmoid = 1.0f / (1.0f + number_exp(-u));
        float slope = GELU_LINEAR + (3.0f * GELU_CUBIC) * square;
        float d = dactive[i] * (sigmoid + v * (sigmoid * (1.0f - sigmoid)) * slope);
        operand_put(dtype, dwide, i, d);
        sum[i] += d;
    }
}

VECTORISED void row_gelu_backward(enum zero_dtype dtype, int64_t n, const void *wide,
                                  const float *dactive, void *dwide, float *sum)
{
    EACH(dtype, gelu_backward_each, n, wide, dactive, dwide, sum);
}

#define NORM_EPS 1e-5f

INLINE float sum_squares(int64_t n, const float *x, float mean)
{
    union lanes s = {{0}}, v;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes_load(&v, x + i);
        v.v -= mean;
        s.v += v.v * v.v;
    }
    for (; i < n; i++)
        s.lane[i % LANES] += (x[i] - mean) * (x[i] - mean);
    return lanes_join(&s);
}

INLINE void norm_each(enum zero_dtype dtype, int64_t n, const float *restrict x, float mean,
                      float scale, const float *restrict weight, const float *restrict bias,
                      void *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        operand_put(dtype, out, i, (x[i] - mean) * scale * weight[i] + bias[i]);
}

VECTORISED void row_norm(enum zero_dtype dtype, int64_t n, const float *x, const float *weight,
                         const float *bias, float stats[2], void *out)
{
    float mean = sum(n, x) / (float)n;
    float variance = sum_squares(n, x, mean) / (float)n;
    float scale = 1.0f / sqrtf(variance + NORM_EPS);
    EACH(dtype, norm_each, n, x, mean, scale, weight, bias, out);
    stats[0] = mean;
    stats[1] = scale;
}

VECTORISED void row_norm_backward(int64_t n, const float *x, const float *weight,
                                  const float stats[2], const float *dout, float *restrict dx,
                                  float *restrict dweight, float *restrict dbias)
{
    float mean = stats[0], scale = stats[1];
    union lanes s = {{0}}, sx = {{0}}, v, w, d;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes_load(&v, x + i);
        lanes_load(&w, weight + i);
        lanes_load(&d, dout + i);
        d.v *= w.v;
        s.v += d.v;
        sx.v += d.v * ((v.v - mean) * scale);
    }
    for (; i < n; i++) {
        s.lane[i % LANES] += dout[i] * weight[i];
        sx.lane[i % LANES] += dout[i] * weight[i] * ((x[i] - mean) * scale);
    }
    float shift = lanes_join(&s) / (float)n;
    float slope = lanes_join(&sx) / (float)n;
    for (i = 0; i < n; i++) {
        float normal = (x[i] - mean) * scale;
        dx[i] += scale * (dout[i] * weight[i] - shift - normal * slope);
        dweight[i] += dout[i] * normal;
        dbias[i] += dout[i];
    }
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
