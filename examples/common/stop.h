// SPDX-License-Identifier: Apache-2.0
/* Ends a run well when it is told to, by SIGTERM or SIGINT. Before there is a run
 * they end the process, as ever. Then the first is noted, for the ranks to vote
 * on, and shortens what this one waits for another. A second one, a second later
 * or more, ends the process; what comes sooner is the same request by another way
 * (timeout signals a process and its group, a batch system launcher and ranks). */
#ifndef EXAMPLES_COMMON_STOP_H
#define EXAMPLES_COMMON_STOP_H

#include "include/zero.h"

enum { STOP_DEADLINE = 10 }; /* seconds that a rank then waits for another, until all agree */

/* First of all, before there are threads: from now on a thread of its own takes
 * these signals, and no other. */
void stop_begin(void);

/* A run has begun, and z is its engine; NULL: which is no more. What comes behind the run is noted
 * like what came in it. */
void stop_watch(struct zero *z);

/* The signal that this rank was sent; 0: none. */
int stop_asked(void);

/* Votes for it, when there is one; and the signal that info.votes stand for, the
 * same on all ranks; 0: none. */
int stop_vote(struct zero *z);
int stop_voted(uint32_t votes);

/* All ranks are there and know that this was the last step. How long they still take, as
 * their disks differ, is not for a signal to say: they wait so many seconds again. */
void stop_agreed(int deadline);

const char *stop_name(int signal); /* "SIGTERM" */

#endif
