// SPDX-License-Identifier: Apache-2.0
/*
 * The program's own threads: a job is cut into tasks that the caller and its
 * helpers take in turn. Which thread runs a task is left to chance, so a task
 * must not depend on it: cut the work into tasks of fixed size, write each
 * result in one task, and keep nothing in the scratch memory between tasks.
 * Not the engine's pool, which updates parameters while these compute.
 */
#ifndef EXAMPLES_COMMON_WORKERS_H
#define EXAMPLES_COMMON_WORKERS_H

#include <stddef.h>
#include <stdint.h>

struct workers;

/* Runs task index (0 .. tasks - 1); scratch is the thread's own, 64-byte aligned. */
typedef void workers_task_fn(void *arg, int64_t index, void *scratch);

/* threads >= 1, the caller of workers_run included; each helper calls init
 * (may be NULL) once when it starts. NULL with a sentence in error on failure. */
struct workers *workers_create(int threads, int64_t scratch_bytes, void (*init)(void), char *error,
                               size_t error_size);
void workers_destroy(struct workers *w); /* NULL is fine */

int workers_threads(const struct workers *w);

/* Runs all tasks; returns when all have ended. One caller at a time. */
void workers_run(struct workers *w, workers_task_fn *task, void *arg, int64_t tasks);

int64_t workers_bytes(const struct workers *w); /* of the scratch memory of all threads */
int64_t workers_plan_bytes(int threads, int64_t scratch_bytes); /* the same, before */

#endif
