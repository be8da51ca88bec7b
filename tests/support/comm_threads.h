// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks that are threads of one process: the second implementation of struct
 * zero_comm, for tests. Nothing is copied on the way: a rank reads its peers'
 * memory, and a collective is complete on a rank when all peers have read what
 * they need of it. It is also strict: a start that breaks the contract (a
 * sequence that does not grow, a collective that is under way already, more
 * than ZERO_COLLECTIVES) is ZERO_ERR_STATE.
 */
#ifndef TESTS_SUPPORT_COMM_THREADS_H
#define TESTS_SUPPORT_COMM_THREADS_H

#include "include/zero.h"

struct comm_threads;

/* NULL: no memory. */
struct comm_threads *comm_threads_create(int ranks);

/* Owned by t; its ops->destroy ends what is under way and frees nothing. */
struct zero_comm *comm_threads_rank(struct comm_threads *t, int rank);

/* When no thread uses a rank any more. */
void comm_threads_destroy(struct comm_threads *t);

#endif
