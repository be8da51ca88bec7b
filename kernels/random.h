// SPDX-License-Identifier: Apache-2.0
/*
 * Counter-based random numbers and digests, the one definition: no state, so any
 * rank can produce any element. Logarithm, sine and cosine are polynomials in plain
 * double operations, because libm differs between CPUs; the square root is exact
 * everywhere. Loops without branches or calls, which the compiler turns into the
 * vectors of whichever instruction set a file is compiled for. Not for cryptography.
 */
#ifndef KERNELS_RANDOM_H
#define KERNELS_RANDOM_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* A 64-bit finaliser (bijective): Stafford's 13th variant of murmur's, as in splitmix64. */
static inline uint64_t random_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* Two words made in opposite order: two (seed, stream) share both no sooner than by chance. */
struct random_key {
    uint64_t a, b;
};

static inline struct random_key random_key(uint64_t seed, uint64_t stream)
{
    return (struct random_key){
        .a = random_mix(seed ^ random_mix(stream + 0x243F6A8885A308D3u)),
        .b = random_mix(stream ^ random_mix(seed + 0x13198A2E03707344u)),
    };
}

/* Two rounds; the counter steps by an odd number near 2^64 / golden ratio. */
static inline uint64_t random_word(struct random_key key, uint64_t index)
{
    return random_mix(random_mix(index * 0x9E3779B97F4A7C15u + key.a) ^ key.b);
}

/* An integer below 2^52 as it is: not every instruction set converts 64 bits. */
static inline double random_whole(uint64_t n)
{
    uint64_t bits = n | 0x4330000000000000u; /* 2^52 + n */
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x - 0x1p52;
}

/* The middle of one of 2^52 equal parts of (0, 1). */
static inline double random_unit(uint64_t word)
{
    return (random_whole(word >> 12) + 0.5) * 0x1p-52;
}

/* c[0] t^n-1 + c[1] t^n-2 + ... + c[n-1], by Horner's rule. */
static inline double random_polynomial(double t, const double *c, int n)
{
    double sum = c[0];
    for (int i = 1; i < n; i++)
        sum = sum * t + c[i];
    return sum;
}

/* Natural logarithm of 0 < x < 1: x = 2^e * f with f in [0.7, 1.42), then
 * log f = 2 artanh((f - 1) / (f + 1)) by its series. */
static inline double random_log(double x)
{
    static const double artanh[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
                                    1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    uint64_t shifted = bits + (0x3FF0000000000000u - 0x3FE6A09E667F3BCDu); /* from sqrt(1/2) */
    uint64_t exponent = shifted >> 52;                                     /* 1023 is that of 1 */
    bits -= (exponent - 1023) << 52;
    double f;
    memcpy(&f, &bits, sizeof(f));
    double s = (f - 1.0) / (f + 1.0), t = s * s; /* t < 0.0295 */
    return (random_whole(exponent) - 1023.0) * 0x1.62e42fefa39efp-1 +
           2.0 * s * random_polynomial(t, artanh, 11);
}

/* Taylor series for |x| <= pi / 4, t = x * x. */
static inline double random_sine(double x, double t)
{
    static const double series[] = {
        1.0 / 355687428096000.0, -1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0,
        1.0 / 362880.0,          -1.0 / 5040.0,          1.0 / 120.0,        -1.0 / 6.0};
    return x + x * t * random_polynomial(t, series, 8);
}

static inline double random_cosine(double t)
{
    static const double series[] = {
        1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0,
        1.0 / 40320.0,          -1.0 / 720.0,         1.0 / 24.0};
    return 1.0 - 0.5 * t + t * t * random_polynomial(t, series, 7);
}

/* Normal numbers, mean 0 and variance 1, of elements first (even) to first + 2 * pairs - 1.
 * Box and Muller (1958): elements 2k and 2k + 1 are the two coordinates of a point
 * whose radius comes from word 2k and whose angle from word 2k + 1: the upper two
 * bits choose the quadrant, the others the angle from its middle. */
static inline void random_normals(struct random_key key, uint64_t first, int pairs, double *out)
{
    for (int i = 0; i < pairs; i++) {
        uint64_t even = first + 2 * (uint64_t)i;
        double radius = sqrt(-2.0 * random_log(random_unit(random_word(key, even))));
        uint64_t word = random_word(key, even + 1);
        double angle = (random_unit(word << 2) - 0.5) * 0x1.921fb54442d18p+0;
        double t = angle * angle, x = radius * random_cosine(t), y = radius * random_sine(angle, t);
        double sign = word >> 63 ? -1.0 : 1.0;
        uint64_t quarter = word >> 62 & 1;
        out[2 * i] = sign * (quarter ? -y : x);
        out[2 * i + 1] = sign * (quarter ? x : y);
    }
}

#define RANDOM_PAIRS 64 /* made at once: their numbers stay in the first cache */

/* The kernel "normal" of kernels/kernels.h. */
static inline void random_fill(int64_t n, const struct random_key *key, uint64_t first, double mean,
                               double std, float *out)
{
    double x[2 * RANDOM_PAIRS];
    for (int64_t at = -(int64_t)(first & 1); at < n; at += 2 * RANDOM_PAIRS) {
        int64_t to = n - at < 2 * RANDOM_PAIRS ? n - at : 2 * RANDOM_PAIRS;
        random_normals(*key, first + (uint64_t)at, RANDOM_PAIRS, x);
        for (int64_t i = at < 0; i < to; i++)
            out[at + i] = (float)(mean + std * x[i]);
    }
}

/* The kernel "digest". */
static inline uint64_t random_digest(int64_t n, uint64_t index, const float *x)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        bits = (bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC00000u : bits;
        sum += random_mix((index + (uint64_t)i) * 0x9E3779B97F4A7C15u + bits);
    }
    return sum;
}

#endif
