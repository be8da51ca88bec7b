// SPDX-License-Identifier: Apache-2.0
/*
 * The ring for systems without io_uring: as many threads as the depth, with
 * pread and pwrite on the same blocks. It is not a degraded mode: it reaches the
 * same bandwidth, for two to three times the CPU time.
 *
 * A lock guards the core. A thread that has moved a block gives the result to
 * the core and takes the next block itself, so a user that is busy does not let the
 * disk fall idle.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "offload/ring_core.h"
#include "src/thread.h"

struct posix {
    struct ring_core core; /* under lock, but for what is constant */
    int event_fd;
    int threads; /* that run */
    pthread_t thread[RING_DEPTH_MAX];
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop; /* under lock */
};

static int64_t block_move(const struct ring_block *block)
{
    const struct ring_request *request = block->request;
    char *buffer = request->buffer + block->start;
    size_t bytes = (size_t)block->bytes;
    ssize_t moved = request->write ? pwrite(block->fd, buffer, bytes, block->offset)
                                   : pread(block->fd, buffer, bytes, block->offset);
    return moved < 0 ? -errno : moved;
}

/* Under lock: one more thread, where there is more to move. */
static void wake_another(struct posix *posix)
{
    if (posix->core.queued[0].first != NULL || posix->core.queued[1].first != NULL)
        pthread_cond_signal(&posix->wake);
}

static void *mover_run(void *arg)
{
    struct posix *posix = arg;
    struct ring_block *block = NULL;
    pthread_mutex_lock(&posix->lock);
    for (;;) {
        while (!posix->stop && block == NULL && (block = ring_core_next(&posix->core)) == NULL)
            pthread_cond_wait(&posix->wake, &posix->lock);
        if (posix->stop)
            break;
        wake_another(posix);
        pthread_mutex_unlock(&posix->lock);
        int64_t result = block_move(block);
        pthread_mutex_lock(&posix->lock);
        if (ring_core_complete(&posix->core, block, result))
            continue; /* what is left of it */
        block = ring_core_next(&posix->core);
        if (posix->core.done.first != NULL)
            event_write(posix->event_fd);
    }
    pthread_mutex_unlock(&posix->lock);
    return NULL;
}

static void posix_queue(struct ring *ring, struct ring_request *request)
{
    struct posix *posix = (struct posix *)ring;
    pthread_mutex_lock(&posix->lock);
    ring_core_queue(ring, request);
    pthread_mutex_unlock(&posix->lock);
}

/* Each thread wakes the next. */
static int posix_submit(struct ring *ring, struct error *error)
{
    struct posix *posix = (struct posix *)ring;
    (void)error; /* the threads are there: nothing can fail before a block does */
    pthread_mutex_lock(&posix->lock);
    wake_another(posix);
    pthread_mutex_unlock(&posix->lock);
    return ZERO_OK;
}

static int posix_reap(struct ring *ring, struct ring_request **done, int max)
{
    struct posix *posix = (struct posix *)ring;
    posix_submit(ring, NULL);
    pthread_mutex_lock(&posix->lock);
    int taken = ring_core_take(&posix->core, done, max);
    pthread_mutex_unlock(&posix->lock);
    return taken;
}

static void posix_destroy(struct ring *ring)
{
    struct posix *posix = (struct posix *)ring;
    pthread_mutex_lock(&posix->lock);
    posix->stop = true;
    pthread_cond_broadcast(&posix->wake);
    pthread_mutex_unlock(&posix->lock);
    for (int i = 0; i < posix->threads; i++)
        pthread_join(posix->thread[i], NULL);
    pthread_cond_destroy(&posix->wake);
    pthread_mutex_destroy(&posix->lock);
    free(posix);
}

static const struct ring_ops posix_ops = {
    .name = "posix",
    .queue = posix_queue,
    .submit = posix_submit,
    .reap = posix_reap,
    .destroy = posix_destroy,
};

int ring_posix_create(struct ring **ring, const struct ring_options *options, struct error *error)
{
    assert(options->event_fd >= 0);
    *ring = NULL;
    struct posix *posix = calloc(1, sizeof(*posix));
    if (posix == NULL)
        return error_set(error, ZERO_ERR_MEMORY, "No memory for an I/O ring." ERROR_FREE_MEMORY);
    ring_core_init(&posix->core, &posix_ops, options);
    posix->event_fd = options->event_fd;
    pthread_mutex_init(&posix->lock, NULL);
    pthread_cond_init(&posix->wake, NULL);
    int depth = posix->core.ring.depth;
    while (posix->threads < depth) {
        int rc = thread_start(&posix->thread[posix->threads], mover_run, posix);
        if (rc != 0) {
            error_set(error, ZERO_ERR_MEMORY,
                      "Only %d of %d I/O threads could be started: %s. Raise the limit on "
                      "processes or memory (ulimit -u, ulimit -v).",
                      posix->threads, depth, strerror(rc));
            posix_destroy(&posix->core.ring);
            return error->status;
        }
        posix->threads++;
    }
    *ring = &posix->core.ring;
    return ZERO_OK;
}
