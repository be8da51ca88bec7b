// SPDX-License-Identifier: Apache-2.0
/*
 * What the rings are measured against: threads that take blocks in turn and
 * call pread or pwrite, and a bare io_uring that keeps its depth full. Neither
 * continues short transfers or says more than that something failed: they are
 * what one would write in an hour, and as fast as one would get.
 */
#include "examples/zero/bench_io.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#ifdef HAVE_URING
#include <liburing.h>
#endif

enum { DEPTH_MAX = 64 };

static int fail(struct io_file *file, const char *what, int64_t result)
{
    snprintf(file->error, sizeof(file->error), "A block could not be moved by %s: %s.", what,
             result < 0 ? strerror((int)-result) : "it was cut short");
    return -1;
}

static int64_t operations(const struct io_file *file, int64_t block)
{
    assert(file->bytes % (2 * block) == 0);
    return file->bytes / block;
}

/* ------------------------------------------------------------------- threads */

struct shared {
    const struct io_file *file;
    enum io_mode mode;
    int64_t block;
    atomic_llong next, worst; /* the least result that was no whole block */
};

struct mover {
    struct shared *shared;
    char *buffer;
    pthread_t thread;
};

static void *mover_run(void *arg)
{
    struct mover *m = arg;
    struct shared *s = m->shared;
    int64_t count = s->file->bytes / s->block, i;
    while ((i = atomic_fetch_add(&s->next, 1)) < count) {
        struct io_operation o = io_operation(s->mode, s->file->bytes, s->block, i);
        ssize_t n = o.write ? pwrite(s->file->fd, m->buffer, (size_t)o.bytes, (off_t)o.offset)
                            : pread(s->file->fd, m->buffer, (size_t)o.bytes, (off_t)o.offset);
        if (n != o.bytes) {
            atomic_store(&s->worst, n < 0 ? -errno : 0);
            atomic_store(&s->next, count);
        }
    }
    return NULL;
}

int io_threads_pass(struct io_file *file, enum io_mode mode, int64_t block, int depth)
{
    struct shared shared = {.file = file, .mode = mode, .block = block};
    struct mover movers[DEPTH_MAX];
    int started = 0, rc = 0;
    assert(depth <= DEPTH_MAX && depth * block <= file->memory_bytes);
    (void)operations(file, block);
    atomic_store(&shared.worst, 1);
    for (; started < depth && !rc; started += !rc) {
        struct mover *m = &movers[started];
        *m = (struct mover){.shared = &shared, .buffer = file->memory + started * block};
        rc = pthread_create(&m->thread, NULL, mover_run, m);
    }
    for (int i = 0; i < started; i++)
        pthread_join(movers[i].thread, NULL);
    int64_t worst = started ? (int64_t)atomic_load(&shared.worst) : -rc;
    return worst == 1 ? 0 : fail(file, "pread and pwrite", worst);
}

/* ------------------------------------------------------------------ io_uring */

#ifdef HAVE_URING

static void prepare(struct io_uring *ring, const struct io_file *file, struct io_operation o,
                    int slot, bool fixed)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    char *buffer = file->memory + slot * o.bytes;
    unsigned bytes = (unsigned)o.bytes;
    uint64_t offset = (uint64_t)o.offset;
    assert(sqe);
    if (o.write && fixed)
        io_uring_prep_write_fixed(sqe, file->fd, buffer, bytes, offset, 0);
    else if (o.write)
        io_uring_prep_write(sqe, file->fd, buffer, bytes, offset);
    else if (fixed)
        io_uring_prep_read_fixed(sqe, file->fd, buffer, bytes, offset, 0);
    else
        io_uring_prep_read(sqe, file->fd, buffer, bytes, offset);
    sqe->user_data = (__u64)slot;
}

/* Keeps depth blocks under way until all are done; 1, or the result that was
 * no whole block. */
static int64_t keep_full(struct io_uring *ring, const struct io_file *file, enum io_mode mode,
                         int64_t block, int depth, bool fixed)
{
    int64_t count = operations(file, block), next = 0, done = 0;
    for (; next < depth && next < count; next++)
        prepare(ring, file, io_operation(mode, file->bytes, block, next), (int)next, fixed);
    while (done < count) {
        struct io_uring_cqe *cqe;
        int rc = io_uring_submit_and_wait(ring, 1);
        if (rc < 0 && rc != -EINTR)
            return rc;
        while (io_uring_peek_cqe(ring, &cqe) == 0) {
            int slot = (int)cqe->user_data, result = cqe->res;
            io_uring_cqe_seen(ring, cqe);
            if (result != block)
                return result < 0 ? result : 0;
            done++;
            if (next < count)
                prepare(ring, file, io_operation(mode, file->bytes, block, next++), slot, fixed);
        }
    }
    return 1;
}

int io_uring_pass(struct io_file *file, enum io_mode mode, int64_t block, int depth)
{
    struct io_uring ring;
    struct iovec memory = {file->memory, (size_t)file->memory_bytes};
    assert(depth <= DEPTH_MAX && depth * block <= file->memory_bytes);
    int rc = io_uring_queue_init((unsigned)depth, &ring, 0);
    if (rc)
        return fail(file, "io_uring", rc);
    bool fixed = io_uring_register_buffers(&ring, &memory, 1) == 0;
    int64_t result = keep_full(&ring, file, mode, block, depth, fixed);
    io_uring_queue_exit(&ring); /* waits for what is under way */
    return result == 1 ? 0 : fail(file, "io_uring", result);
}

#else

int io_uring_pass(struct io_file *file, enum io_mode mode, int64_t block, int depth)
{
    (void)mode, (void)block, (void)depth;
    return fail(file, "io_uring, which this build lacks", -ENOSYS);
}

#endif

const struct io_engine *io_limits(const struct io_file *file, int *count)
{
    enum { MIB = 1 << 20 };
    static const struct io_engine all[] = {
        {"pread and pwrite", io_threads_pass, MIB, 4},
        {"pread and pwrite", io_threads_pass, MIB, 16},
        {"pread and pwrite", io_threads_pass, 4 * MIB, 4},
        {"io_uring", io_uring_pass, MIB / 4, 32},
        {"io_uring", io_uring_pass, MIB, 4},
        {"io_uring", io_uring_pass, MIB, 8},
        {"io_uring", io_uring_pass, MIB, 32},
        {"io_uring", io_uring_pass, 2 * MIB, 8},
        {"io_uring", io_uring_pass, 4 * MIB, 4},
        {"io_uring", io_uring_pass, 4 * MIB, 16},
    };
    *count = file->uring ? 10 : 3;
    return all;
}
