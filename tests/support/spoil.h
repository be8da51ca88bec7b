// SPDX-License-Identifier: Apache-2.0
/*
 * A drive that goes wrong once: a ring around the posix ring that damages, loses
 * or refuses chosen transfers. It says what it did, and decides nothing else.
 */
#ifndef TESTS_SUPPORT_SPOIL_H
#define TESTS_SUPPORT_SPOIL_H

#include "src/engine.h"

#define SPOIL_VICTIMS 256 /* transfers that fail at one time */

enum spoil_kind {
    SPOIL_NOTHING,
    SPOIL_BIT,   /* at the beginning of the read's last page a bit is flipped */
    SPOIL_OLD,   /* the read brings what was there before the last write */
    SPOIL_SWAP,  /* the read's first and last page have changed places, or halves of one page */
    SPOIL_LOST,  /* the write is reported done and is not */
    SPOIL_ASIDE, /* the write goes to the page beside its own */
    SPOIL_FAIL,  /* the transfer fails, half done, so many times in a row */
    SPOIL_KINDS,
};

struct spoil {
    struct ring ring; /* first */
    enum spoil_kind kind;
    int at; /* which read (BIT to SWAP), write (LOST, ASIDE) or transfer (FAIL), from 1; 0: each */
    int times; /* FAIL */

    int reads, writes; /* transfers that were asked for, attempts after the first left out */
    int hits;          /* that were spoiled so that bytes differ, or failed */

    /* its own */
    struct ring *inner;
    int event;
    int64_t bytes; /* of the linear space, which is kept here: now, and before the last write */
    char *now, *before;
    struct ring_request *finished;
    struct spoil_victim {
        struct ring_request *request; /* NULL: room for one */
        int left;                     /* failures still to come */
    } victims[SPOIL_VICTIMS];
    int ended; /* reads */
    struct engine_seams seams;
};

/* For engine_create, which is called next in this thread. */
const struct engine_seams *spoil_seams(struct spoil *s);

#endif
