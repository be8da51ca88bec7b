// SPDX-License-Identifier: Apache-2.0
/* Ranks that are threads of this process. */
#ifndef TESTS_SUPPORT_RANKS_H
#define TESTS_SUPPORT_RANKS_H

#include "include/zero.h"

/* Runs body(rank, comm, arg) on every rank; returns when all have. */
void ranks_run(int ranks, void (*body)(int rank, struct zero_comm *comm, void *arg), void *arg);

#endif
