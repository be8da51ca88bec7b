// SPDX-License-Identifier: Apache-2.0
/*
 * The engine's threads. Workers sleep until there is a task that nobody has taken, of the oldest
 * job that has one. A task is work enough for the lock to be passed through before and after it.
 * No futures, no priorities.
 */
#include "src/pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "src/thread.h"

struct job {
    pool_task_fn *task;
    void *arg;
    int64_t tasks, taken, ended;
    bool tell; /* when it has ended, also while others are under way */
};

struct pool {
    pthread_mutex_t lock; /* of all that follows, up to stop */
    pthread_cond_t wake;
    struct job job[POOL_JOBS];
    int64_t started; /* jobs so far */
    int64_t taken;   /* of these, up to here, all tasks */
    bool stop;

    int event_fd;
    int threads; /* that run */
    pthread_t thread[];
};

static struct job *job_at(struct pool *pool, int64_t number)
{
    return &pool->job[number % POOL_JOBS];
}

/* The oldest job with a task to take, or NULL. */
static struct job *job_find(struct pool *pool)
{
    for (; pool->taken < pool->started; pool->taken++) {
        struct job *job = job_at(pool, pool->taken + 1);
        if (job->taken < job->tasks)
            return job;
    }
    return NULL;
}

/* The lock orders the results: every worker passes through it behind each of its tasks. */
static void *worker_run(void *arg)
{
    struct pool *pool = arg;
    struct job *job;
    kernels_thread_init();
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!(job = job_find(pool)) && !pool->stop)
            pthread_cond_wait(&pool->wake, &pool->lock);
        if (!job)
            break;
        int64_t index = job->taken++;
        pthread_mutex_unlock(&pool->lock);
        job->task(job->arg, index);
        pthread_mutex_lock(&pool->lock);
        if (++job->ended == job->tasks && (job->tell || !job_find(pool)))
            event_write(pool->event_fd);
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

int64_t pool_start(struct pool *pool, pool_task_fn *task, void *arg, int64_t tasks, bool quiet)
{
    assert(tasks >= 0);
    pthread_mutex_lock(&pool->lock);
    int64_t number = ++pool->started;
    struct job *job = job_at(pool, number);
    assert(!pool->stop && job->ended == job->tasks);
    *job = (struct job){
        .task = task, .arg = arg, .tasks = tasks, .tell = !quiet || number % POOL_QUIET == 0};
    if (tasks > 0)
        pthread_cond_broadcast(&pool->wake);
    else
        event_write(pool->event_fd);
    pthread_mutex_unlock(&pool->lock);
    return number;
}

bool pool_done(struct pool *pool, int64_t number)
{
    pthread_mutex_lock(&pool->lock);
    const struct job *job = job_at(pool, number);
    bool done = number + POOL_JOBS <= pool->started || job->ended == job->tasks;
    pthread_mutex_unlock(&pool->lock);
    return done;
}
