// SPDX-License-Identifier: Apache-2.0
/* The state of each chunk slot, and single transfers through the ring. Decides
 * nothing about order. */
#include "offload/pipeline.h"

#include <assert.h>
#include <stdlib.h>

#define REAP_MAX 64

int pipeline_create(struct pipeline *p, int slots, struct error *error)
{
    *p = (struct pipeline){0};
    p->slots = calloc((size_t)(slots > 0 ? slots : 1), sizeof(*p->slots));
    if (!p->slots)
        return error_set(error, ZERO_ERR_MEMORY, "No memory for %d chunk slots." ERROR_FREE_MEMORY,
                         slots);
    return ZERO_OK;
}

void pipeline_destroy(struct pipeline *p)
{
    free(p->slots);
    p->slots = NULL;
}

bool pipeline_room(const struct pipeline *p)
{
    return p->outstanding < RING_REQUESTS_MAX;
}

int pipeline_transfer(struct pipeline *p, struct transfer *t, const struct ring_request *request,
                      struct error *error)
{
    assert(p->ring && pipeline_room(p));
    assert((uintptr_t)request->buffer % SPILL_ALIGN == 0 && request->bytes % SPILL_ALIGN == 0);
    assert(request->offset % SPILL_ALIGN == 0);
    assert(request->offset + request->bytes <= p->spill->bytes);
    *t = (struct transfer){.request = *request};
    t->request.files = &p->spill->stripes;
    p->outstanding++;
    p->ring->ops->queue(p->ring, &t->request);
    return p->ring->ops->submit(p->ring, error);
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

int pipeline_done(struct pipeline *p, const struct transfer *t, bool *done, const char *what,
                  int64_t number, struct error *error)
{
    *done = t->done;
    if (!t->done || !t->request.error.status)
        return ZERO_OK;
    const struct spill_file *file = &p->spill->file[t->request.error_file];
    return error_set(error, t->request.error.status, "%s %lld: %s File in %s (%s).", what,
                     (long long)number, t->request.error.text, file->path, file->type);
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

static void set_state(struct pipeline_slot *slot, enum pipeline_state state)
{
    assert(edge(slot->state, state));
    slot->state = state;
}

void pipeline_reading(struct pipeline_slot *slot, int64_t chunk)
{
    set_state(slot, PIPELINE_READING);
    slot->chunk = chunk;
}

void pipeline_was_read(struct pipeline_slot *slot)
{
    set_state(slot, PIPELINE_READ);
}

void pipeline_stepping(struct pipeline_slot *slot, int64_t chunk)
{
    assert(slot->state == PIPELINE_FREE || slot->chunk == chunk);
    set_state(slot, PIPELINE_STEPPING);
    slot->chunk = chunk;
}

void pipeline_stepped(struct pipeline_slot *slot, int writes)
{
    set_state(slot, PIPELINE_STEPPED);
    slot->writes = writes;
    if (writes == 0)
        set_state(slot, PIPELINE_FREE);
}

void pipeline_writing(struct pipeline_slot *slot)
{
    assert(slot->writes > 0);
    set_state(slot, PIPELINE_WRITING);
}

void pipeline_was_written(struct pipeline_slot *slot)
{
    assert(slot->writes > 0);
    if (--slot->writes == 0)
        set_state(slot, PIPELINE_FREE);
}
