// SPDX-License-Identifier: Apache-2.0
/*
 * The engine's threads. Workers sleep until a job starts, join it, take its
 * tasks from an atomic counter and leave it; the last one inside ends it. A
 * worker that wakes late finds no job and sleeps again, so nobody waits for it.
 * No futures, no priorities, no second job beside the first.
 */
#include "src/pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "src/thread.h"

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* Written under lock while no worker is in the job, so workers that joined
     * under lock read them freely. */
    pool_task_fn *task;
    void *arg;
    int64_t tasks;
    atomic_int_fast64_t next; /* the next task to take */
    /* Under lock. */
    int64_t jobs; /* started so far: a worker joins each once */
    bool running; /* the last one has not ended */
    bool stop;
    int inside; /* workers in it */

    int event_fd;
    int threads; /* that run */
    pthread_t thread[];
};

static void job_work(struct pool *pool)
{
    int64_t index;
    while ((index = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed)) < pool->tasks)
        pool->task(pool->arg, index);
}

/* A job that this worker has not joined yet. */
static bool job_waits(const struct pool *pool, int64_t joined)
{
    return pool->running && pool->jobs != joined;
}

/* The lock orders the results: every worker passes through it after its last
 * task and before the job ends. */
static void *worker_run(void *arg)
{
    struct pool *pool = arg;
    int64_t joined = 0;
    kernels_thread_init();
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!job_waits(pool, joined) && !pool->stop)
            pthread_cond_wait(&pool->wake, &pool->lock);
        if (!job_waits(pool, joined))
            break;
        joined = pool->jobs;
        pool->inside++;
        pthread_mutex_unlock(&pool->lock);
        job_work(pool);
        pthread_mutex_lock(&pool->lock);
        if (--pool->inside == 0) {
            assert(atomic_load(&pool->next) >= pool->tasks);
            pool->running = false;
            event_write(pool->event_fd);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

int pool_create(struct pool **out, int threads, int event_fd, struct error *error)
{
    assert(threads >= 1 && event_fd >= 0);
    *out = NULL;
    struct pool *pool = calloc(1, sizeof(*pool) + (size_t)threads * sizeof(pool->thread[0]));
    if (pool == NULL)
        return error_set(error, ZERO_ERR_MEMORY,
                         "No memory for a pool of %d threads." ERROR_FREE_MEMORY, threads);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pool->event_fd = event_fd;
    while (pool->threads < threads) {
        int rc = thread_start(&pool->thread[pool->threads], worker_run, pool);
        if (rc != 0) {
            error_set(error, ZERO_ERR_MEMORY,
                      "Only %d of %d threads could be started: %s. Ask for fewer threads, or raise "
                      "the limit on processes or memory (ulimit -u, ulimit -v).",
                      pool->threads, threads, strerror(rc));
            pool_destroy(pool);
            return error->status;
        }
        pool->threads++;
    }
    *out = pool;
    return ZERO_OK;
}

void pool_destroy(struct pool *pool)
{
    if (pool == NULL)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->threads; i++)
        pthread_join(pool->thread[i], NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void pool_start(struct pool *pool, pool_task_fn *task, void *arg, int64_t tasks)
{
    assert(tasks >= 0);
    pthread_mutex_lock(&pool->lock);
    assert(!pool->running && !pool->stop && pool->inside == 0);
    pool->task = task;
    pool->arg = arg;
    pool->tasks = tasks;
    atomic_store(&pool->next, 0);
    pool->jobs++;
    pool->running = tasks > 0;
    if (pool->running)
        pthread_cond_broadcast(&pool->wake);
    else
        event_write(pool->event_fd);
    pthread_mutex_unlock(&pool->lock);
}

bool pool_idle(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    bool idle = !pool->running;
    pthread_mutex_unlock(&pool->lock);
    return idle;
}
