// SPDX-License-Identifier: Apache-2.0
/*
 * `zero bench`: each bench checks that the library's result is right, then
 * measures in turn what the machine can do (limit) and what the library does
 * (ours) on the same memory, and prints the medians and ranges. Times of another run, or
 * of another machine, are never compared.
 */
#ifndef EXAMPLES_ZERO_BENCH_H
#define EXAMPLES_ZERO_BENCH_H

#include <stdbool.h>
#include <stdint.h>

enum { BENCH_SAMPLES = 64 };

struct bench {
    bool full, quick, fio, verify_spill, alone, help;
    int threads;           /* of adam; 0: one, then all that this process may use */
    int64_t params;        /* of memory and step */
    int state, host_share; /* of step: enum zero_state, percent */
    const char *nvme_path;
    double started;
};

/* One quantity's samples, in the order they were taken. */
struct samples {
    double value[BENCH_SAMPLES];
    int count;
};

void samples_add(struct samples *s, double value);
double samples_median(const struct samples *s);

/* Whether the time of a bench that is not --full is up. */
bool bench_over(const struct bench *b);

/* "NAME median unit (least-most, n rounds)". */
void bench_value(const char *name, const struct samples *s, const char *unit);

/* Elements, as names of results have them: "24M" or "64K". */
struct bench_size {
    char text[24];
} bench_size(int64_t elements);

/* What a ratio should be; 0: none. */
struct aim {
    double least, most;
};

/* "NAME value (aim A)". Those that miss their aims are printed again at the end. */
void bench_ratio(const char *name, double value, struct aim aim);

/* The three lines of one result. A rate's share is ours / limit, a time's
 * limit / ours: 1 is the limit; aim: of the share, at least, or 0. */
void bench_rate(const char *name, const struct samples *limit, const struct samples *ours,
                const char *unit, double aim);
void bench_seconds(const char *name, const struct samples *limit, const struct samples *ours,
                   double aim);

/* A line for people: "# ...". */
void bench_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The benches; they return the exit status. */
int bench_adam(const struct bench *b);
int bench_io(const struct bench *b);
int bench_comm(const struct bench *b);
int bench_memory(const struct bench *b);
int bench_step(const struct bench *b);
int bench_fixed(const struct bench *b);

#endif
