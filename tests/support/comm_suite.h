// SPDX-License-Identifier: Apache-2.0
/*
 * The contract of struct zero_comm as scenarios that every backend must pass.
 * Each is run by all ranks at once, with a backend made for it alone; how ranks
 * are made, and how they agree on the outcome, is the caller's affair.
 */
#ifndef TESTS_SUPPORT_COMM_SUITE_H
#define TESTS_SUPPORT_COMM_SUITE_H

#include "include/zero.h"

/* Where units' data is that a backend takes from elsewhere than host memory. */
struct comm_memory {
    void *(*alloc)(int64_t bytes); /* the host can reach it too */
    void (*free)(void *memory);
    /* Calls body with a copy of arg in the order of a stream; waits until all that was
     * given to it is done. */
    void (*later)(void *stream, void (*body)(void *arg), const void *arg, size_t bytes);
    void (*settle)(void *stream);
};

struct comm_world {
    struct zero_comm *comm;     /* NULL afterwards when the scenario destroyed it */
    void (*barrier)(void *arg); /* of all ranks, beside the backend */
    void *barrier_arg;
    uint64_t seed;                   /* equal on all ranks */
    int operations;                  /* of the random scenario */
    const struct comm_memory *units; /* NULL: units are in host memory as everything is */
    void *stream;                    /* of this rank, for units' sums */
    bool no_reduce;                  /* the backend refuses it */
    bool gathers;                    /* a gather is what is given up halfway */
    char text[512]; /* the first thing that was wrong on this rank; "" when all was well */
};

struct comm_scenario {
    const char *name;
    int ranks_min;
    void (*run)(struct comm_world *w);
};

extern const struct comm_scenario comm_scenarios[];
extern const int comm_scenario_count;

#endif
