// SPDX-License-Identifier: Apache-2.0
/*
 * The part of a ring that does not depend on how blocks are moved. Each block
 * is owned by one side at a time: free here, or out with the implementation
 * between ring_core_next and the ring_core_complete that returns false.
 * A request that failed is cut no further; it is done when its last block is
 * back.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "offload/ring_core.h"
#include "offload/spill.h"

void ring_core_init(struct ring_core *core, const struct ring_ops *ops,
                    const struct ring_options *options)
{
    memset(core, 0, sizeof(*core));
    core->ring.ops = ops;
    core->ring.files = options->files;
    core->ring.block = options->block ? options->block : RING_BLOCK;
    core->ring.depth = options->depth ? options->depth : RING_DEPTH;
    assert(options->files != NULL && options->files->files > 0);
    assert(core->ring.block > 0 && core->ring.block <= RING_BLOCK_MAX);
    assert(core->ring.block % SPILL_ALIGN == 0);
    assert(core->ring.depth > 0 && core->ring.depth <= RING_DEPTH_MAX);
    for (int i = 0; i < core->ring.depth; i++) {
        core->blocks[i].next = core->free;
        core->free = &core->blocks[i];
    }
}

static void list_append(struct ring_list *list, struct ring_request *request)
{
    request->next = NULL;
    if (list->first == NULL)
        list->first = request;
    else
        list->last->next = request;
    list->last = request;
}

static struct ring_request *list_remove(struct ring_list *list)
{
    struct ring_request *request = list->first;
    list->first = request->next;
    request->next = NULL;
    return request;
}

/* Behind what is urgent too, and behind a request that is partly cut. */
static void queue_urgent(struct ring_list *list, struct ring_request *request)
{
    struct ring_request **at = &list->first;
    while (*at != NULL && ((*at)->urgent || (*at)->submitted > 0))
        at = &(*at)->next;
    request->next = *at;
    *at = request;
    if (request->next == NULL)
        list->last = request;
}

void ring_core_queue(struct ring *ring, struct ring_request *request)
{
    struct ring_core *core = (struct ring_core *)ring;
    assert(request->bytes > 0 && request->bytes % SPILL_ALIGN == 0);
    assert(request->offset >= 0 && request->offset % SPILL_ALIGN == 0);
    assert((uintptr_t)request->buffer % SPILL_ALIGN == 0);
    assert(core->requests < RING_REQUESTS_MAX);
    request->submitted = request->completed = 0;
    request->inflight = 0;
    request->error = (struct error){.status = ZERO_OK};
    core->requests++;
    if (request->urgent)
        queue_urgent(&core->queued[request->write], request);
    else
        list_append(&core->queued[request->write], request);
}

/* Whose block is next. Drives move more while they read and write at once, and some limit each
 * of the two apart, so neither waits until the other has nothing left. */
static struct ring_list *list_choose(struct ring_core *core)
{
    struct ring_list *reads = &core->queued[0], *writes = &core->queued[1];
    if (reads->first == NULL || writes->first == NULL)
        return reads->first != NULL ? reads : writes;
    if (reads->first->urgent != writes->first->urgent)
        return reads->first->urgent ? reads : writes;
    return core->out[0] <= core->out[1] ? reads : writes;
}

struct ring_block *ring_core_next(struct ring_core *core)
{
    struct ring_list *list = list_choose(core);
    struct ring_request *request = list->first;
    struct ring_block *block = core->free;
    if (request == NULL || block == NULL)
        return NULL;
    assert(request->error.status == ZERO_OK);
    core->free = block->next;
    const struct stripes *files = core->ring.files;
    int64_t left = request->bytes - request->submitted;
    struct stripes_place place = stripes_find(files, request->offset + request->submitted);
    if (left > core->ring.block)
        left = core->ring.block;
    *block = (struct ring_block){
        .request = request,
        .start = request->submitted,
        .bytes = left < place.bytes ? left : place.bytes,
        .file = place.file,
        .fd = files->fd[place.file],
        .offset = place.offset,
    };
    request->submitted += block->bytes;
    request->inflight++;
    core->out[request->write]++;
    if (request->submitted == request->bytes)
        list_remove(list);
    assert(block->bytes > 0 && request->inflight <= core->ring.depth);
    return block;
}

static const char *errno_advice(int errnum)
{
    switch (errnum) {
    case ENOSPC:
    case EDQUOT: return ". Free space there, or choose another folder";
    case EFBIG: return ". Raise the limit on file sizes (ulimit -f)";
    case ECANCELED: return ". The kernel could not start I/O workers: raise the limit (ulimit -u)";
    case EIO: return ". Look for messages of the drive in the kernel's log (dmesg)";
    default: return "";
    }
}

/* Whether a write would make its file larger than a file may be. What is below the
 * limit is written first, and where that ends off the alignment O_DIRECT has other
 * names for the reason. */
static bool beyond_limit(const struct ring_block *block)
{
    return block->request->write && (uint64_t)(block->offset + block->bytes) > spill_size_limit();
}

/* Records why a block failed and takes its request out of the queue. */
static void request_fail(struct ring_core *core, const struct ring_block *block, int64_t result)
{
    struct ring_request *request = block->request;
    const char *why = request->write ? "nothing more was written"
                                     : "the file ends there. Something has truncated it";
    const char *advice = "";
    int64_t extra = result > 0 ? result : 0;
    char within[64] = "";
    if ((result >= 0 || result == -EINVAL) && beyond_limit(block))
        result = -EFBIG;
    if (result < 0) {
        why = strerror((int)-result);
        advice = errno_advice((int)-result);
    }
    if (core->ring.files->files > 1)
        snprintf(within, sizeof(within), " (%" PRId64 " of its file)", block->offset + extra);
    error_set(&request->error, ZERO_ERR_IO,
              "%s of %" PRId64 " bytes at offset %" PRId64 " stopped at offset %" PRId64
              "%s: %s%s.",
              request->write ? "write" : "read", request->bytes, request->offset,
              request->offset + block->start + extra, within, why, advice);
    request->error_file = block->file;
    request->error_end = result >= 0 && !request->write; /* also off the alignment */
    if (request->submitted < request->bytes) {
        assert(core->queued[request->write].first == request);
        list_remove(&core->queued[request->write]);
    }
}

static bool block_is_stuck(struct ring_block *block, int64_t result, int64_t moved)
{
    if (result == 0 || (result < 0 && result != -EINTR && result != -EAGAIN))
        return true;
    block->tries = moved > 0 ? 0 : block->tries + 1;
    return block->tries >= RING_TRIES;
}

bool ring_core_complete(struct ring_core *core, struct ring_block *block, int64_t result)
{
    struct ring_request *request = block->request;
    assert(request != NULL && request->inflight > 0);
    assert(block->bytes > 0 && result <= block->bytes);

    /* A transfer that ended off the alignment goes on from before it: O_DIRECT
     * would refuse the rest, and say EINVAL where the file has ended. */
    int64_t moved = result > 0 ? result - result % SPILL_ALIGN : 0;
    block->start += moved;
    block->offset += moved;
    block->bytes -= moved;
    __atomic_fetch_add(&request->completed, moved, __ATOMIC_RELAXED);
    if (block->bytes > 0 && request->error.status == ZERO_OK) {
        if (!block_is_stuck(block, result, moved))
            return true;
        request_fail(core, block, result);
    }

    request->inflight--;
    core->out[request->write]--;
    block->request = NULL;
    block->next = core->free;
    core->free = block;
    bool failed = request->error.status != ZERO_OK;
    if (request->inflight == 0 && (failed || request->submitted == request->bytes)) {
        assert(failed || request->completed == request->bytes);
        list_append(&core->done, request);
    }
    return false;
}

int ring_core_take(struct ring_core *core, struct ring_request **done, int max)
{
    int taken = 0;
    while (taken < max && core->done.first != NULL) {
        done[taken++] = list_remove(&core->done);
        core->requests--;
    }
    assert(core->requests >= 0);
    return taken;
}

#ifndef HAVE_URING
int ring_uring_create(struct ring **ring, const struct ring_options *options, struct error *error)
{
    (void)options;
    *ring = NULL;
    return error_set(error, ZERO_ERR_UNSUPPORTED,
                     "This build has no io_uring. Install liburing-dev and build again, or use the "
                     "ring posix.");
}
#endif
