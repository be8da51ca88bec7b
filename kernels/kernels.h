// SPDX-License-Identifier: Apache-2.0
/*
 * Arithmetic on plain pointers. Knows no ranks, files or devices. Every
 * instruction set gives the same bits: the scalar bodies define them
 * (kernels/adam.h), vector bodies repeat the same operations in the same
 * order, each rounded to nearest, with no contraction.
 */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "src/error.h"

/* Constants of one Adam step for one group, each computed in double and
 * rounded once. grad_scale is common to all groups of a step. */
struct adam {
    float grad_scale; /* clip factor / (ranks * micro-steps * loss scale) */
    float decay;      /* 1 - lr * weight_decay; 1 for tensors without decay */
    float beta1;
    float one_minus_beta1;
    float beta2;
    float one_minus_beta2;
    float step_size;  /* lr / (1 - beta1^t) */
    float root_scale; /* 1 / sqrt(1 - beta2^t) */
    float eps;
    float l2; /* weight decay that joins the gradient; 0 for decoupled decay */
};

#define KERNELS_BLOCK 64 /* gradients per block of the norm */

/* Gradients as they rest: one of the two, the other NULL. */
struct grads {
    const float *f32;
    const uint16_t *bf16;
};

struct random_key;

struct kernels {
    const char *isa;

    /* One step over n elements, in place on master, m, v. When bf16 is not
     * NULL the new master, rounded, goes there. Any n, any 4-byte (2-byte)
     * alignment; grads and outputs do not overlap. */
    void (*adam)(int64_t n, const struct adam *k, struct grads grads, float *master, float *m,
                 float *v, uint16_t *bf16);

    /* The same where the master is kept as the bf16 weight and a 16-bit remainder:
     * bits of master = (weight << 16) + (int16_t)remainder, weight = the master
     * rounded as below. A bijection for all that is not NaN; NaN becomes weight
     * 0x7FC0, remainder 0. */
    void (*adam_split)(int64_t n, const struct adam *k, struct grads grads, uint16_t *weight,
                       int16_t *remainder, float *m, float *v);
    void (*split)(int64_t n, const float *master, uint16_t *weight, int16_t *remainder);
    void (*join)(int64_t n, const uint16_t *weight, const int16_t *remainder, float *master);

    /* bf16 is fp32 rounded to nearest, ties away from zero: (bits + 0x8000) >> 16,
     * NaN becomes 0x7FC0 (any sign). */
    void (*to_bf16)(int64_t n, const float *in, uint16_t *out);
    void (*from_bf16)(int64_t n, const uint16_t *in, float *out);

    /* fp16 is IEEE binary16: fp32 rounded to nearest, ties to even, denormals
     * kept, infinity from 65520 up, NaN becomes 0x7E00 (any sign). Widened, a NaN
     * keeps sign and payload and is quiet. */
    void (*to_fp16)(int64_t n, const float *in, uint16_t *out);
    void (*from_fp16)(int64_t n, const uint16_t *in, float *out);

    /* The ordered reduction of ranks parts into acc: ((acc + p_0) + p_1) + ... in
     * fp32, starting from +0 when fresh. acc may be one of the parts. n is a
     * multiple of KERNELS_BLOCK. When squares is not NULL, squares[b] takes the sum
     * of the squares of block b's 64 final sums: widened to double, squared, lane j =
     * elements j, j+8, ... j+56 added in that order, lanes joined
     * ((0+4)+(2+6))+((1+5)+(3+7)). */
    void (*sum_f32)(int64_t n, int ranks, const float *const *parts, bool fresh, float *acc,
                    double *squares);
    void (*sum_bf16)(int64_t n, int ranks, const uint16_t *const *parts, bool fresh, float *acc,
                     double *squares);
    void (*sum_fp16)(int64_t n, int ranks, const uint16_t *const *parts, bool fresh, float *acc,
                     double *squares);

    /* Elements first to first + n - 1 of a key's normal numbers, times std, plus mean, both in
     * double, rounded to fp32 once (kernels/random.h). */
    void (*normal)(int64_t n, const struct random_key *key, uint64_t first, double mean, double std,
                   float *out);
    /* The sum modulo 2^64 of a mix of each element's index, from index on, and its bits; all NaN
     * count alike, as which one it is depends on how a master is kept. */
    uint64_t (*digest)(int64_t n, uint64_t index, const float *x);
};

/* The best table this CPU can run, or the one named ("scalar"; "avx2", "avx512";
 * "neon"). NULL with error set when the CPU cannot, or there is no such name.
 * isa NULL: $ZERO_ISA, else the best. */
const struct kernels *kernels_select(const char *isa, struct error *error);

/* The best, whatever the environment says. */
const struct kernels *kernels_best(void);

/* Sets rounding to nearest, FTZ/DAZ and traps off in the calling thread: every thread of the
 * engine's that computes calls this first, and again behind the program's fills and traces and
 * where its communicator asks for a sum. Calls that compute on the program's own thread do, too,
 * and give it its modes back. */
void kernels_thread_init(void);

/* Whether the calling thread rounds to nearest, as every sum of the engine's must. */
bool kernels_thread_rounds_to_nearest(void);

#endif
