// SPDX-License-Identifier: Apache-2.0
/*
 * The engine's threads: one job at a time, cut into tasks of fixed size that
 * threads take in turn. Results never depend on the number of threads, because
 * tasks do not.
 */
#ifndef SRC_POOL_H
#define SRC_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "src/error.h"

struct pool;

/* Runs task index (0 .. tasks - 1) of the current job, on any thread. */
typedef void pool_task_fn(void *arg, int64_t index);

/* threads >= 1 workers, each with kernels_thread_init done; event_fd is written
 * when a job ends. ZERO_ERR_MEMORY when threads cannot be created. */
int pool_create(struct pool **pool, int threads, int event_fd, struct error *error);
void pool_destroy(struct pool *pool); /* ends after the running job; NULL is fine */

/* Starts a job; returns at once. The previous one has ended (asserted). */
void pool_start(struct pool *pool, pool_task_fn *task, void *arg, int64_t tasks);

/* Whether the job has ended: what its tasks wrote is visible to the caller then. */
bool pool_idle(struct pool *pool);

#endif
