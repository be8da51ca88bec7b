// SPDX-License-Identifier: Apache-2.0
/*
 * The kernels for any vector register: scalar.c, so many lanes at a time. Each
 * instruction set includes this once, behind what differs between them:
 *
 *   VECTOR, LANES                   a register of fp32, on which + - * / work
 *   vector_load/store/set/sqrt      unaligned; all lanes equal; correctly rounded
 *   bf16_store, bf16_widen          LANES bf16, rounded from or widened to fp32
 *   fp16_store, fp16_widen          LANES fp16, rounded from or widened to fp32
 *   split_store, split_load         LANES masters as weight and remainder
 *   block_square                    the squares of a block's registers, as kernels.h adds them
 *   LATER                           Adam narrows masters so many iterations later: registers
 *   MOMENTS_AHEAD, REST_AHEAD       and asks for moments, and for all else that is read, so many
 *                                   elements ahead,
 *   FAR_CPUS                        except on these CPUs, where all is asked for further ahead
 *
 * With VECTOR_PAIRS defined bf16_store2, bf16_widen2, split_store2 and split_load2, of two
 * registers, are its own, and of those of one register bf16_widen alone.
 *
 * No fused multiply-add, no approximate reciprocals; tails go through the
 * scalar element.
 */
#include <stddef.h>

#include "kernels/adam.h"
#include "kernels/bf16.h"
#include "kernels/cpu/cpu.h"
#include "kernels/fp16.h"
#include "kernels/random.h"
#include "kernels/split.h"

#define INLINE  static inline __attribute__((always_inline))
#define VECTORS (KERNELS_BLOCK / LANES) /* registers of one block */

/* ---- two registers, one by one */

#ifndef VECTOR_PAIRS
static inline void bf16_store2(uint16_t *out, VECTOR a, VECTOR b)
{
    bf16_store(out, a);
    bf16_store(out + LANES, b);
}

static inline void bf16_widen2(const uint16_t *in, VECTOR out[2])
{
    out[0] = bf16_widen(in);
    out[1] = bf16_widen(in + LANES);
}

static inline void split_store2(uint16_t *weight, int16_t *remainder, VECTOR a, VECTOR b)
{
    split_store(weight, remainder, a);
    split_store(weight + LANES, remainder + LANES, b);
}

static inline void split_load2(const uint16_t *weight, const int16_t *remainder, VECTOR out[2])
{
    out[0] = split_load(weight, remainder);
    out[1] = split_load(weight + LANES, remainder + LANES);
}
#endif

/* ---- 16-bit formats */

static void vector_to_bf16(int64_t n, const float *restrict in, uint16_t *restrict out)
{
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES)
        bf16_store2(out + i, vector_load(in + i), vector_load(in + i + LANES));
    for (; i < n; i++)
        out[i] = bf16_from_float(in[i]);
}

static void vector_from_bf16(int64_t n, const uint16_t *restrict in, float *restrict out)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        vector_store(out + i, bf16_widen(in + i));
    for (; i < n; i++)
        out[i] = bf16_to_float(in[i]);
}

static void vector_to_fp16(int64_t n, const float *restrict in, uint16_t *restrict out)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        fp16_store(out + i, vector_load(in + i));
    for (; i < n; i++)
        out[i] = fp16_from_float(in[i]);
}

static void vector_from_fp16(int64_t n, const uint16_t *restrict in, float *restrict out)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        vector_store(out + i, fp16_widen(in + i));
    for (; i < n; i++)
        out[i] = fp16_to_float(in[i]);
}

/* ---- masters as weight and remainder */

static void vector_split(int64_t n, const float *restrict master, uint16_t *restrict weight,
                         int16_t *restrict remainder)
{
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES)
        split_store2(weight + i, remainder + i, vector_load(master + i),
                     vector_load(master + i + LANES));
    for (; i < n; i++)
        split_element(master[i], &weight[i], &remainder[i]);
}

static void vector_join(int64_t n, const uint16_t *restrict weight,
                        const int16_t *restrict remainder, float *restrict master)
{
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        VECTOR p[2];
        split_load2(weight + i, remainder + i, p);
        vector_store(master + i, p[0]);
        vector_store(master + i + LANES, p[1]);
    }
    for (; i < n; i++)
        master[i] = join_element(weight[i], remainder[i]);
}

/* ---- Adam */

struct constants {
    VECTOR grad_scale, decay, beta1, one_minus_beta1, beta2, one_minus_beta2;
    VECTOR step_size, root_scale, eps, l2;
};

static inline struct constants constants_load(const struct adam *k)
{
    return (struct constants){
        .grad_scale = vector_set(k->grad_scale),
        .decay = vector_set(k->decay),
        .beta1 = vector_set(k->beta1),
        .one_minus_beta1 = vector_set(k->one_minus_beta1),
        .beta2 = vector_set(k->beta2),
        .one_minus_beta2 = vector_set(k->one_minus_beta2),
        .step_size = vector_set(k->step_size),
        .root_scale = vector_set(k->root_scale),
        .eps = vector_set(k->eps),
        .l2 = vector_set(k->l2),
    };
}

/* The new master of one vector of old ones; stores the moments. */
INLINE VECTOR adam_vector(const struct constants *k, bool l2, VECTOR grad, VECTOR master, float *m,
                          float *v)
{
    VECTOR g = grad * k->grad_scale;
    if (l2)
        g = g + k->l2 * master;
    VECTOR p = master * k->decay;
    VECTOR m1 = k->beta1 * vector_load(m) + k->one_minus_beta1 * g;
    VECTOR v1 = k->beta2 * vector_load(v) + (k->one_minus_beta2 * g) * g;
    vector_store(m, m1);
    vector_store(v, v1);
    return p - k->step_size * (m1 / (vector_sqrt(v1) * k->root_scale + k->eps));
}

/* Where masters are: whole, with copies in bf16 or without (bf16: NULL); or, whole being
 * NULL, as weights and remainders. */
struct masters {
    float *whole;
    uint16_t *bf16;
    int16_t *remainder;
};

INLINE void masters_load2(const struct masters *at, int64_t i, VECTOR out[2])
{
    if (at->whole) {
        out[0] = vector_load(at->whole + i);
        out[1] = vector_load(at->whole + i + LANES);
    } else {
        split_load2(at->bf16 + i, at->remainder + i, out);
    }
}

INLINE void masters_store2(const struct masters *at, int64_t i, const VECTOR p[2])
{
    if (at->whole) {
        vector_store(at->whole + i, p[0]);
        vector_store(at->whole + i + LANES, p[1]);
    }
}

/* What of them is 16 bits wide. */
INLINE void masters_narrow2(const struct masters *at, int64_t i, const VECTOR p[2])
{
    if (!at->whole)
        split_store2(at->bf16 + i, at->remainder + i, p[0], p[1]);
    else if (at->bf16)
        bf16_store2(at->bf16 + i, p[0], p[1]);
}

INLINE void grads_load2(const struct grads *grads, int64_t i, VECTOR out[2])
{
    if (grads->f32) {
        out[0] = vector_load(grads->f32 + i);
        out[1] = vector_load(grads->f32 + i + LANES);
    } else {
        bf16_widen2(grads->bf16 + i, out);
    }
}

INLINE void masters_element(const struct masters *at, int64_t i, const struct adam *k, bool l2,
                            const struct grads *grads, float *m, float *v)
{
    float grad = grads->f32 ? grads->f32[i] : bf16_to_float(grads->bf16[i]);
    float p = at->whole ? at->whole[i] : join_element(at->bf16[i], at->remainder[i]);
    adam_element(k, l2, grad, &p, &m[i], &v[i]);
    if (!at->whole) {
        split_element(p, &at->bf16[i], &at->remainder[i]);
        return;
    }
    at->whole[i] = p;
    if (at->bf16)
        at->bf16[i] = bf16_from_float(p);
}

/* So many elements ahead memory is asked for moments and for all else that is read; 0: not.
 * Intel's cores see no further than a root and a division. AMD's fetch by themselves, but less well
 * where arrays lie unluckily to each other, which by eight lanes costs a fifth of the rate, and up
 * to Zen 4 what is asked for too early costs a tenth; by sixteen moments from the third cache would
 * come late. */
struct ahead {
    int64_t moments, rest;
};

#define LINE_BYTES 64

/* What a loop reads of two registers so much later; 0: not. */
INLINE void lines_ahead(const void *from, int64_t elements, int64_t size)
{
    for (int64_t at = 0; at < 2 * LANES * size && elements; at += LINE_BYTES)
        __builtin_prefetch((const char *)from + elements * size + at);
}

INLINE void ask_ahead2(struct ahead ahead, const struct grads *grads, const struct masters *masters,
                       const float *m, const float *v, int64_t i)
{
    lines_ahead(m + i, ahead.moments, 4);
    lines_ahead(v + i, ahead.moments, 4);
    if (grads->f32)
        lines_ahead(grads->f32 + i, ahead.rest, 4);
    else
        lines_ahead(grads->bf16 + i, ahead.rest, 2);
    if (masters->whole) {
        lines_ahead(masters->whole + i, ahead.rest, 4);
    } else {
        lines_ahead(masters->bf16 + i, ahead.rest, 2);
        lines_ahead(masters->remainder + i, ahead.rest, 2);
    }
}

/* A step of n elements. Masters are made 16 bits wide some iterations later: what waits for a
 * root and a division would keep the next ones from being begun. Inlined for each distance
 * ahead, l2, kind of gradients and of masters, so that the loop asks for none. */
INLINE void adam_loop(int64_t n, const struct adam *constants, struct ahead ahead, bool l2,
                      struct grads grads, struct masters masters, float *m, float *v)
{
    const struct constants k = constants_load(constants);
    VECTOR g[2], p[2], last[2 * LATER] = {vector_set(0)};
    const int64_t step = 2 * LANES, behind = LATER * step;
    int64_t i = 0;
    for (; i + step <= n; i += step) {
        ask_ahead2(ahead, &grads, &masters, m, v, i);
        grads_load2(&grads, i, g);
        masters_load2(&masters, i, p);
        for (int j = 0; j < 2; j++)
            p[j] = adam_vector(&k, l2, g[j], p[j], m + i + j * LANES, v + i + j * LANES);
        masters_store2(&masters, i, p);
        if (i >= behind)
            masters_narrow2(&masters, i - behind, last);
        for (int j = 0; j < 2 * LATER - 2; j++)
            last[j] = last[j + 2];
        last[2 * LATER - 2] = p[0];
        last[2 * LATER - 1] = p[1];
    }
    for (int64_t j = 0, at = i - behind; j < LATER; j++, at += step)
        if (at >= 0)
            masters_narrow2(&masters, at, last + 2 * j);
    for (; i < n; i++)
        masters_element(&masters, i, constants, l2, &grads, m, v);
}

INLINE void adam_ahead(int64_t n, const struct adam *k, struct ahead ahead, struct grads grads,
                       struct masters masters, float *m, float *v)
{
    const struct grads f32 = {.f32 = grads.f32}, bf16 = {.bf16 = grads.bf16};
    if (k->l2 != 0 && grads.f32)
        adam_loop(n, k, ahead, true, f32, masters, m, v);
    else if (k->l2 != 0)
        adam_loop(n, k, ahead, true, bf16, masters, m, v);
    else if (grads.f32)
        adam_loop(n, k, ahead, false, f32, masters, m, v);
    else
        adam_loop(n, k, ahead, false, bf16, masters, m, v);
}

INLINE void adam_each(int64_t n, const struct adam *k, struct grads grads, struct masters masters,
                      float *m, float *v)
{
    const struct ahead far = {384, 384}, own = {MOMENTS_AHEAD, REST_AHEAD};
    if (cpu_features() & FAR_CPUS)
        adam_ahead(n, k, far, grads, masters, m, v);
    else
        adam_ahead(n, k, own, grads, masters, m, v);
}

static void vector_adam(int64_t n, const struct adam *k, struct grads grads, float *master,
                        float *m, float *v, uint16_t *bf16)
{
    if (bf16)
        adam_each(n, k, grads, (struct masters){.whole = master, .bf16 = bf16}, m, v);
    else
        adam_each(n, k, grads, (struct masters){.whole = master}, m, v);
}

static void vector_adam_split(int64_t n, const struct adam *k, struct grads grads, uint16_t *weight,
                              int16_t *remainder, float *m, float *v)
{
    adam_each(n, k, grads, (struct masters){.bf16 = weight, .remainder = remainder}, m, v);
}

/* ---- sums over ranks */

static inline void block_begin(VECTOR *sum, const float *acc, bool fresh)
{
    for (int q = 0; q < VECTORS; q++)
        sum[q] = fresh ? vector_set(0) : vector_load(acc + q * LANES);
}

static inline void block_end(const VECTOR *sum, float *acc, double *square)
{
    for (int q = 0; q < VECTORS; q++)
        vector_store(acc + q * LANES, sum[q]);
    if (square)
        *square = block_square(sum);
}

/* A block is read to its end before it is written: acc may be one of the parts. */
#define VECTOR_SUM(name, type, widen)                                                              \
    static void name(int64_t n, int ranks, const type *const *parts, bool fresh, float *acc,       \
                     double *squares)                                                              \
    {                                                                                              \
        for (int64_t at = 0; at < n; at += KERNELS_BLOCK) {                                        \
            VECTOR sum[VECTORS];                                                                   \
            block_begin(sum, acc + at, fresh);                                                     \
            for (int r = 0; r < ranks; r++)                                                        \
                for (int q = 0; q < VECTORS; q++)                                                  \
                    sum[q] = sum[q] + widen(parts[r] + at + q * LANES);                            \
            block_end(sum, acc + at, squares ? squares + at / KERNELS_BLOCK : NULL);               \
        }                                                                                          \
    }

VECTOR_SUM(vector_sum_f32, float, vector_load)
VECTOR_SUM(vector_sum_bf16, uint16_t, bf16_widen)
VECTOR_SUM(vector_sum_fp16, uint16_t, fp16_widen)

#define VECTOR_KERNELS(name)                                                                       \
    {                                                                                              \
        .isa = name, .adam = vector_adam, .adam_split = vector_adam_split, .split = vector_split,  \
        .join = vector_join, .to_bf16 = vector_to_bf16, .from_bf16 = vector_from_bf16,             \
        .to_fp16 = vector_to_fp16, .from_fp16 = vector_from_fp16, .sum_f32 = vector_sum_f32,       \
        .sum_bf16 = vector_sum_bf16, .sum_fp16 = vector_sum_fp16, .normal = random_fill,           \
        .digest = random_digest                                                                    \
    }
