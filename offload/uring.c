// SPDX-License-Identifier: Apache-2.0
/*
 * The ring over io_uring: buffers and files registered where the system
 * lets us, no polling thread (it burns a core and gains nothing), and one system
 * call per block: of several at once the kernel makes fewer and longer requests,
 * by which some drives write a tenth slower.
 *
 * A block is prepared (an entry in liburing's queue), then with the kernel
 * (taken by io_uring_submit), then completed. Entries that the kernel did not
 * take stay prepared for the next submit. When the kernel refuses for good, the
 * prepared blocks and all that follow fail with its errno; what it has taken
 * still completes. Shutdown waits for what the kernel has: it writes to memory
 * that is about to go.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#ifdef HAVE_VALGRIND
#include <valgrind/memcheck.h>
#else
#define VALGRIND_MAKE_MEM_DEFINED(address, bytes) ((void)0)
#endif

#include "offload/ring_core.h"
#include "offload/spill.h"
#include "src/thread.h"

#define PIECE_BITS 30 /* the kernel registers at most 1 GiB at once */
#define PIECE      ((int64_t)1 << PIECE_BITS)

struct uring {
    struct ring_core core;
    struct io_uring io;
    int event_fd;
    bool files;                                  /* are registered by their numbers */
    char *base;                                  /* registered memory */
    int64_t bytes;                               /* 0: none */
    struct ring_block *prepared[RING_DEPTH_MAX]; /* in order */
    int prepared_count;
    int taken;  /* blocks with the kernel */
    int broken; /* errno of a submit that cannot succeed again; 0: none */
};

/* The registered piece that holds all of a buffer, or -1. */
static int piece_find(const struct uring *uring, const char *buffer, int64_t bytes)
{
    uintptr_t from = (uintptr_t)buffer - (uintptr_t)uring->base;
    uintptr_t to = from + (uintptr_t)bytes - 1;
    if (to < from || to >= (uintptr_t)uring->bytes || from >> PIECE_BITS != to >> PIECE_BITS)
        return -1;
    return (int)(from >> PIECE_BITS);
}

static void block_prepare(struct uring *uring, struct ring_block *block)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->io);
    assert(sqe != NULL && uring->prepared_count < uring->core.ring.depth);
    const struct ring_request *request = block->request;
    char *buffer = request->buffer + block->start;
    unsigned bytes = (unsigned)block->bytes;
    uint64_t offset = (uint64_t)block->offset;
    int fd = uring->files ? block->file : block->fd;
    int piece = piece_find(uring, buffer, block->bytes);

    if (piece >= 0 && request->write)
        io_uring_prep_write_fixed(sqe, fd, buffer, bytes, offset, piece);
    else if (piece >= 0)
        io_uring_prep_read_fixed(sqe, fd, buffer, bytes, offset, piece);
    else if (request->write)
        io_uring_prep_write(sqe, fd, buffer, bytes, offset);
    else
        io_uring_prep_read(sqe, fd, buffer, bytes, offset);
    if (uring->files)
        io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data(sqe, block);
    uring->prepared[uring->prepared_count++] = block;
}

/* Gives back a block that the kernel will never take. */
static void block_fail(struct uring *uring, struct ring_block *block)
{
    bool again = ring_core_complete(&uring->core, block, -uring->broken);
    assert(!again);
    event_write(uring->event_fd);
}

/* From now on nothing goes to the kernel: what is prepared stays in liburing's
 * queue for ever, its blocks fail here. */
static void uring_break(struct uring *uring, int errnum)
{
    assert(errnum != EINTR && errnum != EAGAIN); /* those would be tried again */
    uring->broken = errnum;
    for (int i = 0; i < uring->prepared_count; i++)
        block_fail(uring, uring->prepared[i]);
    uring->prepared_count = 0;
}

/* Gives the kernel what is prepared. */
static void blocks_submit(struct uring *uring)
{
    int interrupted = 0;
    while (uring->prepared_count > 0) {
        int count = io_uring_submit(&uring->io);
        if (count == -EINTR && ++interrupted < RING_TRIES)
            continue;
        if (count == 0 || count == -EAGAIN || count == -EBUSY) {
            /* Short of memory: the next completion brings us back, or,
             * when there is none to come, the caller's own loop. */
            if (uring->taken == 0)
                event_write(uring->event_fd);
            return;
        }
        if (count < 0) {
            uring_break(uring, count == -EINTR ? EBUSY : -count);
            return;
        }
        assert(count <= uring->prepared_count);
        uring->taken += count;
        uring->prepared_count -= count;
        memmove(uring->prepared, uring->prepared + count,
                (size_t)uring->prepared_count * sizeof(uring->prepared[0]));
    }
}

static void block_start(struct uring *uring, struct ring_block *block)
{
    if (uring->broken) {
        block_fail(uring, block);
        return;
    }
    block_prepare(uring, block);
    blocks_submit(uring);
}

/* Fills the depth, and tries again what the kernel did not take. */
static void blocks_start(struct uring *uring)
{
    struct ring_block *block;
    while ((block = ring_core_next(&uring->core)) != NULL)
        block_start(uring, block);
    blocks_submit(uring);
}

static int uring_submit(struct ring *ring, struct error *error)
{
    struct uring *uring = (struct uring *)ring;
    blocks_start(uring);
    if (uring->broken)
        return error_set(
            error, ZERO_ERR_IO,
            "io_uring takes no more work: %s. Use the ring posix, or, where that fails "
            "too, look for what closes descriptors that are not its own.",
            strerror(uring->broken));
    return ZERO_OK;
}

/* What the kernel has read, valgrind did not see it write. */
static void block_defined(const struct ring_block *block, int64_t result)
{
    if (result > 0 && !block->request->write)
        VALGRIND_MAKE_MEM_DEFINED(block->request->buffer + block->start, (size_t)result);
}

static int uring_reap(struct ring *ring, struct ring_request **done, int max)
{
    struct uring *uring = (struct uring *)ring;
    struct io_uring_cqe *cqes[RING_DEPTH_MAX];
    unsigned count = io_uring_peek_batch_cqe(&uring->io, cqes, RING_DEPTH_MAX);
    for (unsigned i = 0; i < count; i++) {
        struct ring_block *block = io_uring_cqe_get_data(cqes[i]);
        block_defined(block, cqes[i]->res);
        if (ring_core_complete(&uring->core, block, cqes[i]->res))
            block_start(uring, block);
    }
    io_uring_cq_advance(&uring->io, count);
    uring->taken -= (int)count;
    assert(uring->taken >= 0);
    blocks_start(uring);
    return ring_core_take(&uring->core, done, max);
}

static void uring_destroy(struct ring *ring)
{
    struct uring *uring = (struct uring *)ring;
    while (uring->taken > 0) {
        struct io_uring_cqe *cqe;
        int rc = io_uring_wait_cqe(&uring->io, &cqe);
        if (rc == -EINTR)
            continue;
        if (rc != 0)
            break; /* broken: closing it cancels the rest */
        io_uring_cqe_seen(&uring->io, cqe);
        uring->taken--;
    }
    /* The kernel takes a ring apart behind our back: until then it would hold the files' space
     * and the locked memory, which the next engine is told are not free. */
    if (uring->files)
        io_uring_unregister_files(&uring->io);
    if (uring->bytes > 0)
        io_uring_unregister_buffers(&uring->io);
    io_uring_queue_exit(&uring->io);
    free(uring);
}

static const struct ring_ops uring_ops = {
    .name = "uring",
    .queue = ring_core_queue,
    .submit = uring_submit,
    .reap = uring_reap,
    .destroy = uring_destroy,
};

/* Refusals here cost a little speed, no more: pinned memory is limited
 * (RLIMIT_MEMLOCK), files sometimes. */
static void resources_register(struct uring *uring, const struct ring_options *options)
{
    const struct stripes *files = options->files;
    char *base = options->base;
    int64_t bytes = options->bytes;
    uring->files = io_uring_register_files(&uring->io, files->fd, (unsigned)files->files) == 0;
    if (bytes <= 0)
        return;
    size_t count = (size_t)((bytes + PIECE - 1) / PIECE);
    struct iovec *pieces = calloc(count, sizeof(*pieces));
    if (pieces == NULL)
        return;
    for (size_t i = 0; i < count; i++) {
        int64_t left = bytes - (int64_t)i * PIECE;
        pieces[i].iov_base = base + (int64_t)i * PIECE;
        pieces[i].iov_len = (size_t)(left < PIECE ? left : PIECE);
    }
    if (io_uring_register_buffers(&uring->io, pieces, (unsigned)count) == 0) {
        uring->base = base;
        uring->bytes = bytes;
        uring->core.ring.registered = true;
    }
    free(pieces);
}

/* Whether some of the files are on FUSE: what io_uring makes of its short
 * transfers is wrong data. Linux (6.18 and before) goes on with the rest by
 * itself, but from where the transfer began. */
static bool on_fuse(const struct stripes *files)
{
    char type[SPILL_TYPE] = "";
    for (int i = 0; i < files->files && strcmp(type, "fuse") != 0; i++)
        spill_type_read(files->fd[i], type);
    return strcmp(type, "fuse") == 0;
}

/* Before Linux 5.6 it reads into memory that is registered, and into no other by this call. */
static bool reads_any_memory(struct uring *uring)
{
    enum { COUNT = IORING_OP_READ + 1 };
    struct io_uring_probe *probe = calloc(1, sizeof(*probe) + COUNT * sizeof(probe->ops[0]));
    bool can = probe != NULL && io_uring_register_probe(&uring->io, probe, COUNT) == 0 &&
               io_uring_opcode_supported(probe, IORING_OP_READ);
    free(probe);
    return can;
}

/* Where a program was started without standard output or error the ring would get one of their
 * numbers, and what opens them later would close it; liburing keeps the number in several places,
 * so these are taken while it is made. */
static int init_beyond_standard(struct uring *uring)
{
    int taken[STDERR_FILENO + 1], count = 0;
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && (taken[count] = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0)
            count++;
    int rc = io_uring_queue_init((unsigned)uring->core.ring.depth, &uring->io, 0);
    while (count > 0)
        close(taken[--count]);
    return rc;
}

int ring_uring_create(struct ring **ring, const struct ring_options *options, struct error *error)
{
    assert(options->event_fd >= 0 && options->bytes >= 0);
    *ring = NULL;
    if (on_fuse(options->files))
        return error_set(error, ZERO_ERR_UNSUPPORTED,
                         "io_uring may corrupt files on FUSE, where some of these folders are. Use "
                         "the ring posix, or a folder on a local disk.");
    struct uring *uring = calloc(1, sizeof(*uring));
    if (uring == NULL)
        return error_set(error, ZERO_ERR_MEMORY, "No memory for an I/O ring." ERROR_FREE_MEMORY);
    ring_core_init(&uring->core, &uring_ops, options);
    uring->event_fd = options->event_fd;
    int rc = init_beyond_standard(uring);
    if (rc == 0) {
        rc = io_uring_register_eventfd(&uring->io, options->event_fd);
        if (rc != 0)
            io_uring_queue_exit(&uring->io);
    }
    if (rc != 0) {
        const char *why = rc == -EMFILE || rc == -ENFILE ? "raise the limit on files, ulimit -n"
                          : rc == -ENOMEM                ? "raise the limit on memory, ulimit -l"
                                                         : "sysctl kernel.io_uring_disabled, or a "
                                                           "container's rules";
        free(uring);
        return error_set(error, ZERO_ERR_UNSUPPORTED,
                         "This system refuses io_uring: %s (%s). Use the ring posix.",
                         strerror(-rc), why);
    }
    resources_register(uring, options);
    /* For what is not registered, or crosses two pieces, Linux 5.1 to 5.5 have no operation. */
    bool registered = uring->core.ring.registered;
    if ((!registered || options->bytes > PIECE) && !reads_any_memory(uring)) {
        uring_destroy(&uring->core.ring);
        if (registered)
            return error_set(error, ZERO_ERR_UNSUPPORTED,
                             "This kernel's io_uring moves 1 GiB of memory at most, and slots take "
                             "%lld bytes. Plan fewer slots, or use the ring posix.",
                             (long long)options->bytes);
        return error_set(error, ZERO_ERR_UNSUPPORTED,
                         "This kernel's io_uring needs %lld bytes of locked memory. Raise the "
                         "limit (ulimit -l), or use the ring posix.",
                         (long long)options->bytes);
    }
    *ring = &uring->core.ring;
    return ZERO_OK;
}
