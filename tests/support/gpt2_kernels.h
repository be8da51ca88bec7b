// SPDX-License-Identifier: Apache-2.0
/*
 * What a suite of GPU kernels that round differently from the CPU needs: tensors that
 * are in GPU memory between margins and on the CPU besides, a launch that is made twice
 * in different orders and must leave the same bits, and comparison with a reference in
 * double within an error bound that each element has of its own. Linked with nvcc's
 * kernels and the CUDA runtime, or with the same kernels compiled for the host.
 */
#ifndef TESTS_SUPPORT_GPT2_KERNELS_H
#define TESTS_SUPPORT_GPT2_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "include/zero.h"
#include "kernels/cuda/runtime.h"

struct twin {
    enum zero_dtype dtype; /* of one that holds numbers */
    int64_t n, bytes;
    char *memory; /* on the GPU: margin, elements, margin */
    void *gpu;    /* the elements */
    void *cpu;    /* the same contents at first, for functions of the CPU */
    void *before; /* what both have at first */
    void *after;  /* what launches leave */
};

/* The stream of this process's GPU; NULL, and the reason printed: there is none. */
cudaStream_t twins_begin(void);
/* Gives back all tensors. */
void twins_free(void);
void twins_end(void);

/* Elements by which those of GPU tensors made from here on miss an alignment of 16 bytes. */
extern int twins_shift;

/* Normal numbers times scale, then add, rounded to dtype; each call other ones. */
struct twin *twin_random(enum zero_dtype dtype, int64_t n, double scale, double add);
/* What a launch has to set: NaNs at first. */
struct twin *twin_unset(enum zero_dtype dtype, int64_t n);
struct twin *twin_ints(int64_t n, const int32_t *values);
/* Any structs. */
struct twin *twin_bytes(int64_t bytes);

/* Element i as it was before and is after launches. */
double twin_before(const struct twin *t, int64_t i);
double twin_after(const struct twin *t, int64_t i);
void twin_set(struct twin *t, int64_t i, double x); /* before */

/* Runs a call that launches, twice from the same contents, and fetches what it leaves. */
#define LAUNCH_TWICE(call)                                                                         \
    for (int turn_ = 0; turn_ < 2; turn_++) {                                                      \
        twins_turn_begin(turn_);                                                                   \
        twins_turn_end(turn_, call, #call);                                                        \
    }
void twins_turn_begin(int turn);
void twins_turn_end(int turn, cudaError_t error, const char *call);

#define ROUNDING 0x1p-24 /* of fp32 */

/* A sum in double, and the sum of magnitudes: what bounds its error in fp32. */
struct sum {
    double value, size;
};

static inline void sum_add(struct sum *s, double x)
{
    s->value += x;
    s->size += x < 0 ? -x : x;
}

/* Half a unit in the last place of a number near 1, and of the smallest ones. */
double rounding_of(enum zero_dtype dtype);
double least_of(enum zero_dtype dtype);
/* Bound of the error of a sum of n numbers in fp32, in parts of the sum of magnitudes: kernels
 * and CPU have at least 16 partial sums each. */
double sum_error(int64_t n);

/* Element i is exact within bound and one rounding to the tensor's type; cpu: on the CPU too. */
void twin_check(const struct twin *t, int64_t i, double exact, double bound, bool cpu,
                const char *what);
/* All bits are the CPU's. */
void twin_check_equal(const struct twin *t, const char *what);

#endif
