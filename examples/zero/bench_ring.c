// SPDX-License-Identifier: Apache-2.0
/* The library's rings (offload/ring.h) at the work the pipeline gives them:
 * requests of the size of a chunk's record, as many under way as the window has. */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "examples/zero/bench_io.h"
#include "offload/ring.h"

enum { SLOTS_MAX = 64 };

struct run {
    struct ring *ring;
    struct io_file *file;
    enum io_mode mode;
    int64_t block, next, done, count;
    struct ring_request requests[SLOTS_MAX];
};

/* Hands the next operation to the ring, in the memory of this slot. */
static void slot_start(struct run *r, int slot)
{
    struct io_operation o = io_operation(r->mode, r->file->bytes, r->block, r->next++);
    r->requests[slot] = (struct ring_request){.write = o.write,
                                              .buffer = r->file->memory + slot * r->block,
                                              .bytes = o.bytes,
                                              .offset = o.offset};
    r->ring->ops->queue(r->ring, &r->requests[slot]);
}

static int run_all(struct run *r, int depth, int event_fd, struct error *error)
{
    struct ring_request *finished[SLOTS_MAX];
    for (int slot = 0; slot < depth && r->next < r->count; slot++)
        slot_start(r, slot);
    while (r->done < r->count) {
        if (r->ring->ops->submit(r->ring, error))
            return -1;
        int n = r->ring->ops->reap(r->ring, finished, SLOTS_MAX);
        for (int i = 0; i < n; i++, r->done++) {
            if (finished[i]->error.status)
                return error_set(error, finished[i]->error.status, "%s", finished[i]->error.text);
            if (r->next < r->count)
                slot_start(r, (int)(finished[i] - r->requests));
        }
        if (n == 0) {
            uint64_t events;
            struct pollfd wait = {.fd = event_fd, .events = POLLIN};
            poll(&wait, 1, 1000);
            if (read(event_fd, &events, sizeof(events)) < 0 && errno != EAGAIN && errno != EINTR)
                return error_set(error, ZERO_ERR_IO, "The ring's eventfd cannot be read.");
        }
    }
    return 0;
}

typedef int create_fn(struct ring **ring, const struct ring_options *options, struct error *error);

static int pass(struct io_file *file, enum io_mode mode, int64_t block, int depth, int64_t count,
                create_fn *create)
{
    struct stripes one = {0};
    stripes_deal(&one, 1, &(double){1}, block);
    one.fd[0] = file->fd;
    struct run r = {.file = file, .mode = mode, .block = block, .count = count};
    struct error error = {0};
    int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert(depth <= SLOTS_MAX && depth * block <= file->memory_bytes);
    assert(file->bytes % (2 * block) == 0);
    if (event_fd < 0)
        error_set(&error, ZERO_ERR_IO, "No eventfd: %s.", strerror(errno));
    struct ring_options options = {
        .event_fd = event_fd, .base = file->memory, .bytes = file->memory_bytes, .files = &one};
    if (!error.status && !create(&r.ring, &options, &error)) {
        run_all(&r, depth, event_fd, &error);
        r.ring->ops->destroy(r.ring);
    }
    if (event_fd >= 0)
        close(event_fd);
    snprintf(file->error, sizeof(file->error), "%s", error.text);
    return error.status ? -1 : 0;
}

int io_ring_uring_pass(struct io_file *file, enum io_mode mode, int64_t block, int depth)
{
    return pass(file, mode, block, depth, file->bytes / block, ring_uring_create);
}

bool io_uring_there(struct io_file *file)
{
    return pass(file, IO_READ, 1 << 20, 1, 0, ring_uring_create) == 0;
}

int io_ring_posix_pass(struct io_file *file, enum io_mode mode, int64_t block, int depth)
{
    return pass(file, mode, block, depth, file->bytes / block, ring_posix_create);
}
