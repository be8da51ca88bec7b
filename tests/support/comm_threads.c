// SPDX-License-Identifier: Apache-2.0
/*
 * One lock guards all that ranks tell each other. A rank works (copies, sums)
 * outside of it, once all ranks have started the same collective; who gives up
 * first waits until nobody works on its memory.
 */
#include "tests/support/comm_threads.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/comm/comm.h"

/* One rank's side of a collective under way. */
struct entry {
    bool busy;
    uint64_t order; /* of its start: 1, 2, ...; equal on all ranks */
    struct zero_collective *c;
    struct zero_collective_header header;
    const char *data; /* what peers read */
    const char *own;
    uint64_t seen; /* changes, when it was last looked at */
    bool worked;   /* this rank has what it needs */
    int readers_done;
    bool *matched; /* (ranks) */
    uint64_t *sum; /* ZERO_SUM_BYTES_MAX: a SUM's data before it is overwritten */
};

struct rank {
    struct zero_comm comm; /* first */
    struct comm_threads *all;
    struct entry entries[ZERO_COLLECTIVES];
    uint64_t order, sequence; /* of the last start */
    uint64_t working;         /* order of the collective being worked on; 0: none */
    uint64_t gave_up;         /* first message not completed; UINT64_MAX: did not give up */
    int status;               /* of the first failure */
    const void **parts;       /* (ranks) */
    struct entry **theirs;    /* (ranks) of the collective being worked on */
};

struct comm_threads {
    pthread_mutex_t lock;
    pthread_cond_t idle; /* a rank has stopped working */
    /* Counts starts, works and aborts: a test after which nothing changed costs no lock. */
    atomic_uint_least64_t changes;
    int ranks;
    struct rank *rank;
};

static int refuse(struct rank *me, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(me->comm.error, sizeof(me->comm.error), format, args);
    va_end(args);
    return me->status = status;
}

static struct entry *entry_find(struct rank *r, uint64_t order)
{
    for (int i = 0; i < ZERO_COLLECTIVES; i++)
        if (r->entries[i].busy && r->entries[i].order == order)
            return &r->entries[i];
    return NULL;
}

static bool complete(const struct rank *me, const struct entry *e)
{
    return e->worked && e->readers_done == me->comm.size;
}

/* ------------------------------------------------------------------- start */

static struct entry *entry_free(struct rank *me, const struct zero_collective *c)
{
    struct entry *found = NULL;
    for (int i = 0; i < ZERO_COLLECTIVES; i++) {
        struct entry *e = &me->entries[i];
        if (e->busy && e->c == c) {
            refuse(me, ZERO_ERR_STATE, "message %llu is started while it is under way",
                   (unsigned long long)c->header.sequence);
            return NULL;
        }
        if (!e->busy)
            found = e;
    }
    if (!found)
        refuse(me, ZERO_ERR_STATE, "message %llu is one too many under way",
               (unsigned long long)c->header.sequence);
    return found;
}

static int arguments_check(struct rank *me, const struct zero_collective *c)
{
    const struct zero_collective_header *h = &c->header;
    unsigned long long message = h->sequence;
    if (h->sequence <= me->sequence)
        return refuse(me, ZERO_ERR_STATE, "message %llu is started after %llu", message,
                      (unsigned long long)me->sequence);
    if (h->kind < ZERO_COLLECTIVE_GATHER || h->kind > ZERO_COLLECTIVE_BROADCAST || h->bytes < 0)
        return refuse(me, ZERO_ERR_STATE, "message %llu has kind %d and %lld bytes", message,
                      h->kind, (long long)h->bytes);
    if (h->kind == ZERO_COLLECTIVE_SUM && (h->bytes > ZERO_SUM_BYTES_MAX || h->bytes % 8))
        return refuse(me, ZERO_ERR_STATE, "message %llu is a sum of %lld bytes", message,
                      (long long)h->bytes);
    if (h->kind == ZERO_COLLECTIVE_REDUCE && (c->piece_bytes <= 0 || c->piece_bytes % 256))
        return refuse(me, ZERO_ERR_STATE, "message %llu has pieces of %lld bytes", message,
                      (long long)c->piece_bytes);
    return ZERO_OK;
}

static int threads_start(struct zero_comm *comm, struct zero_collective *c)
{
    struct rank *me = (struct rank *)comm;
    if (me->status || arguments_check(me, c))
        return me->status;
    pthread_mutex_lock(&me->all->lock);
    struct entry *e = entry_free(me, c);
    if (e) {
        e->busy = true;
        e->order = ++me->order;
        e->c = c;
        e->header = c->header;
        e->data = c->data;
        e->own = c->own;
        e->worked = false;
        e->readers_done = 0;
        memset(e->matched, 0, (size_t)comm->size * sizeof(*e->matched));
        if (c->header.kind == ZERO_COLLECTIVE_SUM && c->header.bytes)
            memcpy(e->sum, c->data, (size_t)c->header.bytes);
        me->sequence = c->header.sequence;
        c->state = e;
        e->seen = atomic_fetch_add(&me->all->changes, 1);
    }
    pthread_mutex_unlock(&me->all->lock);
    return me->status;
}

/* -------------------------------------------------------------------- work */

static void sum_pieces(struct rank *me, struct zero_collective *c)
{
    int64_t bytes = c->header.bytes;
    for (int64_t at = 0; at < bytes; at += c->piece_bytes) {
        for (int r = 0; r < me->comm.size; r++)
            me->parts[r] = me->theirs[r]->data + me->comm.rank * bytes + at;
        c->sum(c->sum_arg, at, bytes - at < c->piece_bytes ? bytes - at : c->piece_bytes,
               me->parts);
    }
}

static void add_words(uint64_t *sum, const uint64_t *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += words[i];
}

/* Takes this rank's part from peer r. */
static void take(struct rank *me, struct zero_collective *c, int r)
{
    const struct entry *theirs = me->theirs[r];
    int64_t bytes = c->header.bytes;
    char *data = c->data;
    switch (c->header.kind) {
    case ZERO_COLLECTIVE_GATHER:
        if (theirs->own)
            memcpy(data + r * bytes, theirs->own, (size_t)bytes);
        else if (r != me->comm.rank)
            memcpy(data + r * bytes, theirs->data + r * bytes, (size_t)bytes);
        break;
    case ZERO_COLLECTIVE_SUM:
        if (r == 0)
            memcpy(data, theirs->sum, (size_t)bytes);
        else
            add_words(c->data, theirs->sum, (size_t)bytes / 8);
        break;
    case ZERO_COLLECTIVE_BROADCAST:
        if (r == c->root && r != me->comm.rank)
            memcpy(data, theirs->data, (size_t)bytes);
        break;
    default: break;
    }
}

static void work(struct rank *me, struct zero_collective *c)
{
    if (c->header.kind == ZERO_COLLECTIVE_REDUCE)
        sum_pieces(me, c);
    for (int r = 0; r < me->comm.size && c->header.bytes; r++)
        take(me, c, r);
}

/* Whether all ranks have made this call. A header tells more than a notice: it
 * is looked at first. */
static bool all_there(struct rank *me, struct entry *e)
{
    bool there = true;
    for (int r = 0; r < me->comm.size && !me->status; r++) {
        struct rank *peer = &me->all->rank[r];
        const struct entry *theirs = entry_find(peer, e->order);
        struct zero_collective_header notice = {.sequence = peer->gave_up,
                                                .kind = ZERO_COLLECTIVE_FAILED};
        if (!e->matched[r] && theirs) {
            me->status = comm_header_compare(&me->comm, e->c, r, &theirs->header);
            e->matched[r] = true;
        }
        if (!me->status && e->header.sequence >= peer->gave_up)
            me->status = comm_header_compare(&me->comm, e->c, r, &notice);
        there &= e->matched[r];
    }
    return there && !me->status;
}

static void work_outside(struct rank *me, struct entry *e)
{
    struct comm_threads *t = me->all;
    for (int r = 0; r < t->ranks; r++)
        me->theirs[r] = entry_find(&t->rank[r], e->order);
    me->working = e->order;
    pthread_mutex_unlock(&t->lock);
    work(me, e->c);
    pthread_mutex_lock(&t->lock);
    me->working = 0;
    e->worked = true;
    for (int r = 0; r < t->ranks; r++)
        me->theirs[r]->readers_done++;
    atomic_fetch_add(&t->changes, 1);
    pthread_cond_broadcast(&t->idle);
}

/* REDUCEs are summed in the order of their starts. */
static bool in_turn(struct rank *me, const struct entry *e)
{
    for (int i = 0; i < ZERO_COLLECTIVES; i++) {
        const struct entry *other = &me->entries[i];
        if (other->busy && other->order < e->order && !other->worked &&
            other->header.kind == ZERO_COLLECTIVE_REDUCE)
            return e->header.kind != ZERO_COLLECTIVE_REDUCE;
    }
    return true;
}

/* All that this rank can do for one of its collectives. */
static void advance(struct rank *me, struct entry *e)
{
    if (e->busy && !me->status && !complete(me, e) && all_there(me, e) && !e->worked &&
        in_turn(me, e))
        work_outside(me, e);
}

static int threads_test(struct zero_comm *comm, struct zero_collective *c, bool *done)
{
    struct rank *me = (struct rank *)comm;
    struct entry *e = c->state;
    uint64_t changes = atomic_load(&me->all->changes);
    *done = false;
    if (!e || e->c != c || (e->seen == changes && !me->status))
        return me->status;
    pthread_mutex_lock(&me->all->lock);
    e->seen = changes;
    for (int i = 0; i < ZERO_COLLECTIVES; i++)
        advance(me, &me->entries[i]);
    *done = complete(me, e);
    if (*done) {
        e->busy = false;
        e->c = NULL;
        c->state = NULL;
    }
    pthread_mutex_unlock(&me->all->lock);
    return *done ? ZERO_OK : me->status;
}

static int threads_missing(struct zero_comm *comm, const struct zero_collective *c, int from)
{
    struct rank *me = (struct rank *)comm;
    const struct entry *e = c->state;
    int absent = -1, slow = -1;
    bool any = false;
    pthread_mutex_lock(&me->all->lock);
    for (int r = comm->size - 1; r >= 0 && e; r--) {
        const struct entry *theirs = entry_find(&me->all->rank[r], e->order);
        bool away = !theirs && !e->worked;
        any |= away;
        if (away && r >= from)
            absent = r;
        else if (theirs && !theirs->worked && r != comm->rank && r >= from)
            slow = r;
    }
    pthread_mutex_unlock(&me->all->lock);
    return any ? absent : slow;
}

static int threads_listen(struct zero_comm *comm, uint64_t sequence)
{
    struct rank *me = (struct rank *)comm;
    const struct zero_collective none = {0};
    pthread_mutex_lock(&me->all->lock);
    int status = me->status;
    for (int r = 0; r < comm->size && !status; r++) {
        struct zero_collective_header notice = {.sequence = me->all->rank[r].gave_up,
                                                .kind = ZERO_COLLECTIVE_FAILED};
        if (notice.sequence != UINT64_MAX && sequence >= notice.sequence)
            status = comm_header_compare(comm, &none, r, &notice);
    }
    pthread_mutex_unlock(&me->all->lock);
    return status;
}

/* ---------------------------------------------------------- abort, destroy */

/* Whether somebody reads the memory of one of this rank's collectives. */
static bool read_by_others(struct rank *me)
{
    for (int r = 0; r < me->comm.size; r++)
        if (me->all->rank[r].working && entry_find(me, me->all->rank[r].working))
            return true;
    return false;
}

/* The entries stay, for their headers; nobody begins to work on them any more. */
static void threads_abort(struct zero_comm *comm, uint64_t sequence)
{
    struct rank *me = (struct rank *)comm;
    pthread_mutex_lock(&me->all->lock);
    for (int i = 0; i < ZERO_COLLECTIVES; i++) {
        struct entry *e = &me->entries[i];
        if (e->busy && !complete(me, e) && e->header.sequence < sequence)
            sequence = e->header.sequence;
    }
    if (sequence < me->gave_up)
        me->gave_up = sequence;
    if (!me->status)
        refuse(me, ZERO_ERR_COMM, "this rank (%d) gave up before message %llu", comm->rank,
               (unsigned long long)sequence);
    atomic_fetch_add(&me->all->changes, 1);
    while (read_by_others(me))
        pthread_cond_wait(&me->all->idle, &me->all->lock);
    pthread_mutex_unlock(&me->all->lock);
}

static void threads_destroy(struct zero_comm *comm)
{
    struct rank *me = (struct rank *)comm;
    bool busy = false;
    for (int i = 0; i < ZERO_COLLECTIVES; i++)
        busy |= me->entries[i].busy;
    if (busy)
        threads_abort(comm, UINT64_MAX);
}

static const struct zero_comm_ops threads_ops = {
    .start = threads_start,
    .test = threads_test,
    .missing = threads_missing,
    .abort = threads_abort,
    .destroy = threads_destroy,
    .listen = threads_listen,
};

/* ------------------------------------------------------------------ create */

static bool rank_create(struct comm_threads *t, int r)
{
    struct rank *me = &t->rank[r];
    me->comm = (struct zero_comm){
        .ops = &threads_ops, .rank = r, .size = t->ranks, .local_rank = r, .local_size = t->ranks};
    me->all = t;
    me->gave_up = UINT64_MAX;
    me->parts = calloc((size_t)t->ranks, sizeof(*me->parts));
    me->theirs = calloc((size_t)t->ranks, sizeof(struct entry *));
    bool ok = me->parts && me->theirs;
    for (int i = 0; i < ZERO_COLLECTIVES; i++) {
        struct entry *e = &me->entries[i];
        e->matched = calloc((size_t)t->ranks, sizeof(*e->matched));
        e->sum = malloc(ZERO_SUM_BYTES_MAX);
        ok = ok && e->matched && e->sum;
    }
    return ok;
}

struct comm_threads *comm_threads_create(int ranks)
{
    struct comm_threads *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->idle, NULL);
    t->ranks = ranks;
    t->rank = calloc((size_t)ranks, sizeof(*t->rank));
    bool ok = t->rank != NULL;
    for (int r = 0; r < ranks && ok; r++)
        ok = rank_create(t, r);
    if (ok)
        return t;
    comm_threads_destroy(t);
    return NULL;
}

struct zero_comm *comm_threads_rank(struct comm_threads *t, int rank)
{
    return &t->rank[rank].comm;
}

void comm_threads_destroy(struct comm_threads *t)
{
    for (int r = 0; r < t->ranks && t->rank; r++) {
        for (int i = 0; i < ZERO_COLLECTIVES; i++) {
            free(t->rank[r].entries[i].matched);
            free(t->rank[r].entries[i].sum);
        }
        free(t->rank[r].parts);
        free(t->rank[r].theirs);
    }
    free(t->rank);
    pthread_cond_destroy(&t->idle);
    pthread_mutex_destroy(&t->lock);
    free(t);
}
