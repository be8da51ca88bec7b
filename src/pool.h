// SPDX-License-Identifier: Apache-2.0
/*
 * The engine's threads: jobs in the order in which they were started, cut into tasks of fixed size
 * that threads take in turn. Several jobs may be under way, so that no thread waits between two of
 * them. Results never depend on the number of threads, because tasks do not.
 */
#ifndef SRC_POOL_H
#define SRC_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "src/error.h"

#define POOL_JOBS  64 /* under way at once */
#define POOL_QUIET 8  /* jobs whose ends are told together */

struct pool;

/* Runs task index (0 .. tasks - 1) of a job, on any thread. */
typedef void pool_task_fn(void *arg, int64_t index);

/* threads >= 1 workers, each with kernels_thread_init done; event_fd is written
 * when a job ends (pool_start). ZERO_ERR_MEMORY when threads cannot be created. */
int pool_create(struct pool **pool, int threads, int event_fd, struct error *error);
void pool_destroy(struct pool *pool); /* ends after the jobs under way; NULL is fine */

/* Starts a job; returns its number at once. The one POOL_JOBS before has ended (asserted). The end
 * of a quiet one may be told later, with that of one of the POOL_QUIET - 1 that follow it: who is
 * woken takes a CPU from the pool's threads. */
int64_t pool_start(struct pool *pool, pool_task_fn *task, void *arg, int64_t tasks, bool quiet);

/* Whether that job has ended, as 0 has, which is none's: what its tasks wrote is visible to the
 * caller then. */
bool pool_done(struct pool *pool, int64_t number);

#endif
