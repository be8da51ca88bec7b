// SPDX-License-Identifier: Apache-2.0
/*
 * An engine's life: every call of zero.h that works on an engine, in two steps of the
 * toy model, with a fault somewhere in it (tests/support/fault.h). Ranks are threads.
 * What a failed engine says is checked on the way: its first error, whatever it is
 * asked.
 */
#ifndef TESTS_SUPPORT_LIFE_H
#define TESTS_SUPPORT_LIFE_H

#include "tests/support/fault.h"
#include "tests/support/toy.h"

#define LIFE_RANKS     3
#define LIFE_EVERYBODY (-1)

struct scenario {
    const char *name;
    struct zero_config config;
    int ranks, accumulate;
    bool creation; /* its end follows at once */
};

struct life;

struct life_rank {
    struct life *run;
    int rank;
    struct zero *z;
    struct fault fault;
    struct fill {
        struct life_rank *rank;
        void *arg;
    } fills[TOY_TENSORS_ALL];
    struct fault_ring ring;
    struct fault_comm comm;
    struct engine_seams seams;
    /* what came of it */
    const char *call; /* the last one made */
    int status;
    char text[512];
    char wrong[512]; /* with the engine's conduct; empty: nothing */
    struct zero_digest digest;
    uint64_t values; /* a mix of all that was read */
};

struct life {
    const struct scenario *scenario;
    struct fault fault; /* what befalls */
    int victim;         /* this rank; LIFE_EVERYBODY: all, each at its own n-th place */
    struct fault_ranks ranks;
    struct life_rank rank[LIFE_RANKS];
};

/* From creation to zero_destroy on all ranks; scenario, fault and victim are set,
 * all else is zero. */
void life_run(struct life *life);

#endif
