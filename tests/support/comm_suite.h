// SPDX-License-Identifier: Apache-2.0
/*
 * The contract of struct zero_comm as scenarios that every backend must pass.
 * Each is run by all ranks at once, with a backend made for it alone; how ranks
 * are made, and how they agree on the outcome, is the caller's affair.
 */
#ifndef TESTS_SUPPORT_COMM_SUITE_H
#define TESTS_SUPPORT_COMM_SUITE_H

#include "include/zero.h"

struct comm_world {
    struct zero_comm *comm;     /* NULL afterwards when the scenario destroyed it */
    void (*barrier)(void *arg); /* of all ranks, beside the backend */
    void *barrier_arg;
    uint64_t seed;  /* equal on all ranks */
    int operations; /* of the random scenario */
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
