// SPDX-License-Identifier: Apache-2.0
/*
 * Helpers sleep on a condition between jobs. A job is open until the caller
 * finds no task left; it then waits only for helpers that joined in, so that a
 * helper which woke late costs nothing. No spinning: ranks share cores.
 */
#include "examples/common/workers.h"

#include <assert.h>
#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/huge.h"

#define SCRATCH_ALIGN 4096

struct helper {
    struct workers *workers;
    pthread_t thread;
    void *scratch;
};

struct workers {
    int threads; /* helpers + 1 */
    int started; /* helpers */
    int64_t scratch_bytes;
    void *memory; /* scratch of all threads, the caller's first */
    void (*init)(void);
    struct helper *helpers;

    pthread_mutex_t lock;
    pthread_cond_t opened, left;
    uint64_t job; /* number of jobs opened so far */
    bool open, quit;
    int joined; /* helpers at work on the job */

    workers_task_fn *task;
    void *arg;
    int64_t tasks;
    atomic_int_fast64_t next;
};

static void tasks_take(struct workers *w, void *scratch)
{
    for (;;) {
        int64_t index = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed);
        if (index >= w->tasks)
            return;
        w->task(w->arg, index, scratch);
    }
}

static void *helper_run(void *arg)
{
    struct helper *h = arg;
    struct workers *w = h->workers;
    uint64_t seen = 0;

    fesetenv(FE_DFL_ENV); /* denormals are numbers here, whatever the creator had set */
    if (w->init)
        w->init();
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->quit && !(w->open && w->job != seen))
            pthread_cond_wait(&w->opened, &w->lock);
        if (w->quit)
            break;
        seen = w->job;
        w->joined++;
        pthread_mutex_unlock(&w->lock);
        tasks_take(w, h->scratch);
        pthread_mutex_lock(&w->lock);
        if (--w->joined == 0)
            pthread_cond_signal(&w->left);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void run_together(struct workers *w, workers_task_fn *task, void *arg, int64_t tasks)
{
    pthread_mutex_lock(&w->lock);
    w->task = task;
    w->arg = arg;
    w->tasks = tasks;
    atomic_store_explicit(&w->next, 0, memory_order_relaxed);
    w->job++;
    w->open = true;
    pthread_cond_broadcast(&w->opened);
    pthread_mutex_unlock(&w->lock);

    tasks_take(w, w->memory);

    pthread_mutex_lock(&w->lock);
    w->open = false;
    while (w->joined > 0)
        pthread_cond_wait(&w->left, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

void workers_run(struct workers *w, workers_task_fn *task, void *arg, int64_t tasks)
{
    fenv_t callers;
    assert(tasks >= 0 && !w->open);
    fegetenv(&callers);
    fesetenv(FE_DFL_ENV); /* as helpers have it */
    if (w->threads == 1 || tasks <= 1)
        for (int64_t i = 0; i < tasks; i++)
            task(arg, i, w->memory);
    else
        run_together(w, task, arg, tasks);
    fesetenv(&callers);
}

int workers_threads(const struct workers *w)
{
    return w->threads;
}

static int helpers_start(struct workers *w)
{
    for (int i = 0; i < w->threads - 1; i++) {
        struct helper *h = &w->helpers[i];
        h->workers = w;
        h->scratch = (char *)w->memory + (i + 1) * w->scratch_bytes;
        int rc = pthread_create(&h->thread, NULL, helper_run, h);
        if (rc != 0)
            return rc;
        w->started++;
    }
    return 0;
}

struct workers *workers_create(int threads, int64_t scratch_bytes, void (*init)(void), char *error,
                               size_t error_size)
{
    assert(threads >= 1 && scratch_bytes >= 0);
    struct workers *w = calloc(1, sizeof(*w));
    if (!w) {
        snprintf(error, error_size, "Out of memory for the worker threads.");
        return NULL;
    }
    w->threads = threads;
    w->init = init;
    w->scratch_bytes = workers_plan_bytes(1, scratch_bytes);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->opened, NULL);
    pthread_cond_init(&w->left, NULL);
    w->helpers = calloc((size_t)threads, sizeof(*w->helpers));
    w->memory = huge_alloc((size_t)workers_bytes(w));
    if (!w->helpers || !w->memory) {
        snprintf(
            error, error_size,
            "Cannot allocate %lld bytes of scratch memory for %d threads. Give fewer --threads.",
            (long long)workers_bytes(w), threads);
        goto fail;
    }
    int rc = helpers_start(w);
    if (rc != 0) {
        snprintf(error, error_size,
                 "Cannot start worker thread %d of %d: %s. Give fewer --threads.", w->started + 2,
                 threads, strerror(rc));
        goto fail;
    }
    return w;
fail:
    workers_destroy(w);
    return NULL;
}

void workers_destroy(struct workers *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->quit = true;
    pthread_cond_broadcast(&w->opened);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->started; i++)
        pthread_join(w->helpers[i].thread, NULL);
    pthread_cond_destroy(&w->left);
    pthread_cond_destroy(&w->opened);
    pthread_mutex_destroy(&w->lock);
    free(w->memory);
    free(w->helpers);
    free(w);
}

int64_t workers_plan_bytes(int threads, int64_t scratch_bytes)
{
    return threads * ((scratch_bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN);
}

int64_t workers_bytes(const struct workers *w)
{
    return w->threads * w->scratch_bytes;
}
