// SPDX-License-Identifier: Apache-2.0
/* The state of each chunk slot, and single transfers through the ring. Decides
 * nothing about order. */
#include "offload/pipeline.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "src/clock.h"

#define REAP_MAX 64

bool pipeline_room(const struct pipeline *p)
{
    return p->outstanding < RING_REQUESTS_MAX;
}

/* Bytes of a request from 'at' on whose checksums are dealt with before the ring is
 * looked after again: all of a chunk's would leave the disk idle. */
static int64_t piece(const struct ring_request *r, int64_t at)
{
    return r->bytes - at < RING_BLOCK ? r->bytes - at : RING_BLOCK;
}

static void take_sums(struct pipeline *p, const struct ring_request *r)
{
    for (int64_t at = 0; at < r->bytes; at += piece(r, at)) {
        verify_take(p->sums, r->buffer + at, r->offset + at, piece(r, at));
        pipeline_poll(p);
    }
}

/* Whether file i is shorter than it was made, or with holes has fewer bytes on the disk. As this
 * system knows it: to ask a file system's server that does not answer would stop the thread that
 * counts how long. Only where a container's rules refuse statx it is asked. */
static bool lacks_bytes(const struct pipeline *p, int i, bool holes)
{
    struct statx now;
    struct stat asked;
    int fd = p->spill->stripes.fd[i];
    int64_t size, blocks, whole = p->spill->file[i].bytes;
    if (!statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_SIZE | STATX_BLOCKS, &now))
        size = (int64_t)now.stx_size, blocks = (int64_t)now.stx_blocks;
    else if ((errno == EPERM || errno == ENOSYS) && !fstat(fd, &asked))
        size = asked.st_size, blocks = asked.st_blocks;
    else
        return false;
    return size < whole || (holes && blocks * 512 < whole);
}

/* Whether a file was cut, before a write makes it as long again, with a hole that reads as
 * zeros. */
static bool finds_cut(const struct pipeline *p, struct ring_request *r)
{
    for (int i = 0; i < p->spill->stripes.files; i++)
        if (lacks_bytes(p, i, false)) {
            r->error.status = ZERO_ERR_IO;
            r->error_file = i;
            r->error_end = true;
            return true;
        }
    return false;
}

/* Hands a transfer to the ring. */
static int put(struct pipeline *p, struct transfer *t, struct error *error)
{
    t->done = false;
    t->again_at = 0;
    t->tries++;
    p->outstanding++;
    p->ring->ops->queue(p->ring, &t->request);
    return p->ring->ops->submit(p->ring, error);
}

int pipeline_transfer(struct pipeline *p, struct transfer *t, const struct ring_request *request,
                      struct error *error)
{
    assert(p->ring && pipeline_room(p));
    assert((uintptr_t)request->buffer % SPILL_ALIGN == 0 && request->bytes % SPILL_ALIGN == 0);
    assert(request->offset % SPILL_ALIGN == 0);
    assert(request->offset + request->bytes <= p->spill->bytes);
    *t = (struct transfer){.request = *request};
    if (p->sums && request->write)
        take_sums(p, request);
    t->done = request->write && finds_cut(p, &t->request);
    return t->done ? ZERO_OK : put(p, t, error);
}

void pipeline_poll(struct pipeline *p)
{
    struct ring_request *finished[REAP_MAX];
    int n = p->ring && p->outstanding ? p->ring->ops->reap(p->ring, finished, REAP_MAX) : 0;
    for (int i = 0; i < n; i++) {
        struct transfer *t = (struct transfer *)finished[i]; /* its first member */
        assert(!t->done);
        t->done = true;
        p->outstanding--;
    }
}

/* The ring has failed: another attempt, or the error. */
static int try_again(struct pipeline *p, struct transfer *t, const char *what, int64_t number,
                     struct error *error)
{
    const struct ring_request *r = &t->request;
    const struct spill_file *file = &p->spill->file[r->error_file];
    if (r->error_end && lacks_bytes(p, r->error_file, true))
        return error_set(error, ZERO_ERR_IO,
                         "%s %lld: the file in %s (%s), of %lld bytes, was truncated while in use, "
                         "and what lay there is lost. Find what truncates files there, or choose "
                         "another folder, and start again.",
                         what, (long long)number, file->path, file->type, (long long)file->bytes);
    if (t->tries == PIPELINE_TRIES)
        return error_set(error, r->error.status,
                         "%s %lld: %s File in %s (%s). It was tried %d times.", what,
                         (long long)number, r->error.text, file->path, file->type, t->tries);
    if (t->again_at == 0) {
        struct error note = {0};
        t->again_at = seconds_now() + (t->tries > 1 && !p->hasty ? PIPELINE_PAUSE : 0);
        error_set(&note, r->error.status,
                  "%s %lld failed, trying again (%d of %d): %s File in %s (%s).", what,
                  (long long)number, t->tries + 1, PIPELINE_TRIES, r->error.text, file->path,
                  file->type);
        if (p->again)
            p->again(p->again_arg, note.text);
    }
    /* With no room it will be asked for when others are done. */
    return seconds_now() < t->again_at || !pipeline_room(p) ? ZERO_OK : put(p, t, error);
}

/* Whether a read brought what was written. */
static int compare(struct pipeline *p, const struct transfer *t, const char *what, int64_t number,
                   struct error *error)
{
    const struct ring_request *r = &t->request;
    int64_t first = -1, wrong = 0;
    for (int64_t at = 0; at < r->bytes; at += piece(r, at)) {
        wrong += verify_compare(p->sums, r->buffer + at, r->offset + at, piece(r, at), &first);
        pipeline_poll(p);
    }
    if (wrong == 0)
        return ZERO_OK;
    struct stripes_place place = stripes_find(&p->spill->stripes, first);
    const struct spill_file *file = &p->spill->file[place.file];
    return error_set(
        error, ZERO_ERR_IO,
        "%s %lld: the page at offset %lld of the file in %s (%s) is not what was written there "
        "(wrong: %lld of the %lld pages read). The drive, or what lies between it and memory, has "
        "changed or lost data: look into the kernel's log (dmesg), and use another folder.",
        what, (long long)number, (long long)place.offset, file->path, file->type, (long long)wrong,
        (long long)(r->bytes / SPILL_ALIGN));
}

int pipeline_done(struct pipeline *p, struct transfer *t, bool *done, const char *what,
                  int64_t number, struct error *error)
{
    *done = false;
    if (!t->done)
        return ZERO_OK;
    if (t->request.error.status)
        return try_again(p, t, what, number, error);
    if (p->sums && !t->request.write && compare(p, t, what, number, error))
        return error->status;
    *done = true;
    return ZERO_OK;
}

bool pipeline_moves(struct transfer *t)
{
    int64_t before = t->seen;
    t->seen = __atomic_load_n(&t->request.completed, __ATOMIC_RELAXED);
    return t->seen != before;
}

static bool edge(enum pipeline_state from, enum pipeline_state to)
{
    switch (to) {
    case PIPELINE_FREE: return from == PIPELINE_WRITING || from == PIPELINE_STEPPED;
    case PIPELINE_READING: return from == PIPELINE_FREE || from == PIPELINE_READ; /* in vain */
    case PIPELINE_READ: return from == PIPELINE_READING;
    case PIPELINE_STEPPING: return from == PIPELINE_READ || from == PIPELINE_FREE;
    case PIPELINE_STEPPED: return from == PIPELINE_STEPPING;
    case PIPELINE_WRITING: return from == PIPELINE_STEPPED || from == PIPELINE_WRITING;
    }
    return false;
}

void pipeline_enter(struct pipeline_slot *slot, enum pipeline_state state, int64_t chunk)
{
    assert(edge(slot->state, state));
    assert(slot->chunk == chunk || slot->state == PIPELINE_FREE || state == PIPELINE_READING);
    slot->state = state;
    slot->chunk = chunk;
}

static void leave(struct pipeline_slot *slot)
{
    if (slot->writes == 0)
        pipeline_enter(slot, PIPELINE_FREE, slot->chunk);
}

void pipeline_stepped(struct pipeline_slot *slot, int writes)
{
    pipeline_enter(slot, PIPELINE_STEPPED, slot->chunk);
    slot->writes = writes;
    leave(slot);
}

void pipeline_was_written(struct pipeline_slot *slot)
{
    assert(slot->writes > 0);
    slot->writes--;
    leave(slot);
}
