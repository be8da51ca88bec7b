// SPDX-License-Identifier: Apache-2.0
/*
 * Counter-based random numbers: no state, so any rank can produce any element.
 * Logarithm, sine and cosine are polynomials in plain double operations,
 * because libm differs between CPUs; the square root is exact everywhere.
 * Not for cryptography.
 */
#include "src/random.h"

#include <math.h>
#include <string.h>

#include "include/zero.h"

/* Stafford's 13th variant of the murmur finaliser, as in splitmix64. */
uint64_t random_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* Two words made in opposite order, so that no two (seed, stream) share both. */
struct key {
    uint64_t a, b;
};

static struct key key_make(uint64_t seed, uint64_t stream)
{
    return (struct key){
        .a = random_mix(seed ^ random_mix(stream + 0x243F6A8885A308D3u)),
        .b = random_mix(stream ^ random_mix(seed + 0x13198A2E03707344u)),
    };
}

/* Two rounds; the counter steps by an odd number near 2^64 / golden ratio. */
static uint64_t key_bits(struct key key, uint64_t index)
{
    return random_mix(random_mix(index * 0x9E3779B97F4A7C15u + key.a) ^ key.b);
}

/* The middle of one of 2^52 equal parts of (0, 1). */
static double unit_interval(uint64_t bits)
{
    return ((double)(bits >> 12) + 0.5) * 0x1p-52;
}

/* c[0] t^n-1 + c[1] t^n-2 + ... + c[n-1], by Horner's rule. */
static inline double polynomial(double t, const double *c, int n)
{
    double sum = c[0];
    for (int i = 1; i < n; i++)
        sum = sum * t + c[i];
    return sum;
}

/* Natural logarithm of 0 < x < 1: x = 2^e * f with f in [0.7, 1.42), then
 * log f = 2 artanh((f - 1) / (f + 1)) by its series. */
static double log_below_1(double x)
{
    static const double artanh[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
                                    1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    uint64_t shifted = bits + (0x3FF0000000000000u - 0x3FE6A09E667F3BCDu); /* from sqrt(1/2) */
    int exponent = (int)(shifted >> 52) - 1023;
    bits -= (uint64_t)exponent << 52;
    double f;
    memcpy(&f, &bits, sizeof(f));
    double s = (f - 1.0) / (f + 1.0), t = s * s; /* t < 0.0295 */
    return exponent * 0x1.62e42fefa39efp-1 + 2.0 * s * polynomial(t, artanh, 11);
}

/* Taylor series for |x| <= pi / 4, t = x * x. */
static double sine(double x, double t)
{
    static const double series[] = {
        1.0 / 355687428096000.0, -1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0,
        1.0 / 362880.0,          -1.0 / 5040.0,          1.0 / 120.0,        -1.0 / 6.0};
    return x + x * t * polynomial(t, series, 8);
}

static double cosine(double t)
{
    static const double series[] = {
        1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0,
        1.0 / 40320.0,          -1.0 / 720.0,         1.0 / 24.0};
    return 1.0 - 0.5 * t + t * t * polynomial(t, series, 7);
}

/* Box and Muller (1958): elements 2k and 2k + 1 are the two coordinates of a
 * point whose radius comes from bits 2k and whose angle from bits 2k + 1: the
 * upper two choose the quadrant, the others the angle from its middle. */
static void normal_pair(struct key key, uint64_t index, double pair[2])
{
    double radius = sqrt(-2.0 * log_below_1(unit_interval(key_bits(key, index & ~(uint64_t)1))));
    uint64_t bits = key_bits(key, index | 1);
    double angle = (unit_interval(bits << 2) - 0.5) * 0x1.921fb54442d18p+0;
    double t = angle * angle;
    double x = radius * cosine(t), y = radius * sine(angle, t);
    int quadrant = (int)(bits >> 62);
    pair[0] = quadrant & 1 ? -y : x;
    pair[1] = quadrant & 1 ? x : y;
    if (quadrant & 2) {
        pair[0] = -pair[0];
        pair[1] = -pair[1];
    }
}

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index)
{
    return key_bits(key_make(seed, stream), index);
}

double random_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return unit_interval(random_bits(seed, stream, index));
}

double random_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    double pair[2];
    normal_pair(key_make(seed, stream), index, pair);
    return pair[index & 1];
}

int zero_fill_normal(void *arg, int64_t first, int64_t count, float *out)
{
    const struct zero_normal *normal = arg;
    if (!normal || first < 0)
        return ZERO_ERR_ARGUMENT;
    struct key key = key_make(normal->seed, normal->stream);
    double pair[2];
    for (int64_t i = 0; i < count; i++) {
        uint64_t index = (uint64_t)(first + i);
        if (i == 0 || (index & 1) == 0)
            normal_pair(key, index, pair);
        out[i] = (float)((double)normal->mean + (double)normal->std * pair[index & 1]);
    }
    return 0;
}

int zero_fill_constant(void *arg, int64_t first, int64_t count, float *out)
{
    const float *value = arg;
    if (!value || first < 0)
        return ZERO_ERR_ARGUMENT;
    for (int64_t i = 0; i < count; i++)
        out[i] = *value;
    return 0;
}
