// SPDX-License-Identifier: Apache-2.0
/* What the parts of the bench of GPUs share: each checks that results are right, then
 * measures in turn what the GPU can do (limit) and what the library does (ours), and prints
 * medians as zero bench does. */
#ifndef TESTS_GPU_BENCH_H
#define TESTS_GPU_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/launch.h"

enum { BENCH_ROUNDS = 9 };

struct bench {
    bool quick;          /* tiny sizes: shows that it runs, measures nothing worth keeping */
    int64_t tile, tiles; /* elements of an array: tiles times the same */
    int repeats;         /* launches that are timed together */
    int64_t host_bytes;  /* that are copied */
    int units, steps;    /* of the model whose steps cost nothing but themselves */
};

/* Ends the program with a sentence where a call of the runtime has failed. */
#define bench_ok(call) bench_check((call), #call)
void bench_check(cudaError_t rc, const char *call);

/* Ends the program. */
void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Takes samples of each pass in turn, one round unmeasured, and sets the medians. A pass
 * returns seconds. */
struct pass {
    double (*run)(void *arg);
    void *arg;
    double median;
};
void bench_measure(const struct bench *b, struct pass *passes, int count);

/* NAME_limit, NAME_ours, NAME_share: of bytes in so many seconds each. */
void bench_rate(const char *name, double bytes, double limit_seconds, double seconds);

/* Local to a part; each prints its lines. */
void bench_kernels(const struct bench *b);
void bench_copies(const struct bench *b);
void bench_units(const struct bench *b);

#endif
