// SPDX-License-Identifier: Apache-2.0
/*
 * Chunk slots on their way between file and memory.
 *
 * Who owns what: a slot belongs to one chunk from the start of its read (or of
 * its update, when there is nothing to read) until its last write has landed.
 * The schedule decides which chunk and when; this file carries out one
 * transfer, keeps the state of each slot, and asserts that it only ever moves
 * along free -> reading -> read -> stepping -> stepped -> writing -> free
 * (what is not read starts at stepping, what is not written ends at stepped).
 * A transfer that the ring reports failed is put to it again, later at last, as its
 * memory is its own until it is done; one that brought other bytes than were written
 * never is: who has lost data once is not asked a second time.
 * Shutdown: the ring's destroy waits for what is under way.
 */
#ifndef OFFLOAD_PIPELINE_H
#define OFFLOAD_PIPELINE_H

#include "offload/ring.h"
#include "offload/spill.h"
#include "offload/verify.h"

#define PIPELINE_TRIES 3 /* of one transfer, before it has failed */
#define PIPELINE_PAUSE 1 /* seconds before the third: a controller that starts anew takes some */

enum pipeline_state {
    PIPELINE_FREE,
    PIPELINE_READING,
    PIPELINE_READ,
    PIPELINE_STEPPING,
    PIPELINE_STEPPED,
    PIPELINE_WRITING,
};

/* One request, whether the ring has ended it, how often it was put there, and the
 * bytes it had moved when that was asked for last. */
struct transfer {
    struct ring_request request;
    bool done;
    int tries;
    double again_at; /* of seconds_now, once an attempt has failed */
    int64_t seen;
};

struct pipeline_slot {
    enum pipeline_state state;
    int64_t chunk;
    int writes; /* still to land */
    struct transfer record, param;
};

struct pipeline {
    struct ring *ring; /* NULL when nothing rests in the file */
    const struct spill *spill;
    int outstanding;             /* requests handed to the ring and not yet reaped */
    struct pipeline_slot *slots; /* the owner's */
    uint64_t *sums; /* of the spill's pages (offload/verify.h); NULL: they are not checked */
    /* Called when a transfer is tried again; may be NULL. */
    void (*again)(void *arg, const char *sentence);
    void *again_arg;
    bool hasty; /* there is no pause: tests have much to try */
};

/* Whether the ring takes another request. */
bool pipeline_room(const struct pipeline *p);

/* Starts a transfer of the spill: write, urgent, buffer, bytes and offset are the
 * caller's, SPILL_ALIGN aligned. */
int pipeline_transfer(struct pipeline *p, struct transfer *t, const struct ring_request *request,
                      struct error *error);

/* Reaps what is finished. */
void pipeline_poll(struct pipeline *p);

/* Whether the transfer is done, and a read what was written; an error names what
 * (e.g. "chunk 3") and path. Where the ring failed it is tried again first. Once
 * it is done, not to be asked again. */
int pipeline_done(struct pipeline *p, struct transfer *t, bool *done, const char *what,
                  int64_t number, struct error *error);

/* Whether it has moved something since the last call. */
bool pipeline_moves(struct transfer *t);

/* A slot goes on to a state; to another chunk when it begins to read, or comes from none. */
void pipeline_enter(struct pipeline_slot *slot, enum pipeline_state state, int64_t chunk);
/* Its update is done, and so many writes are to land; and one of them has. */
void pipeline_stepped(struct pipeline_slot *slot, int writes);
void pipeline_was_written(struct pipeline_slot *slot);

#endif
