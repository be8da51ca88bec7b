// SPDX-License-Identifier: Apache-2.0
/* One collective under way over MPI: messages, pieces, and in which order they
 * go. Knows nothing of other ranks' failures and makes no communicator. */
#include "src/comm/mpi_set.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "src/clock.h"
#include "src/comm/comm.h"

#define PASSED_ON ((int64_t)8 << 20) /* bytes of a piece that goes on to others as it comes */

static int check(struct mpi *m, int rc, const char *what, int peer, const struct set *s)
{
    if (rc == MPI_SUCCESS)
        return ZERO_OK;
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;
    MPI_Error_string(rc, text, &length);
    if (!m->status)
        error_comm(&m->comm, ZERO_ERR_COMM,
                   "MPI failed to %s rank %d (message %llu of rank %d): %.120s. Look for what "
                   "happened to that rank.",
                   what, peer, (unsigned long long)s->mine.sequence, m->comm.rank, text);
    mpi_fail(m, ZERO_ERR_COMM);
    mpi_never_finalize();
    return m->status;
}

/* ---------------------------------------------------------------- messages */

static bool outward(enum track track)
{
    return track == TRACK_HEADER_OUT || (track >= TRACK_OUT && track < TRACK_IN);
}

int mpi_other_end(const struct mpi *m, enum track track, int i)
{
    int size = m->comm.size;
    return (m->comm.rank + (outward(track) ? 1 + i : size - 1 - i)) % size;
}

/* With whom request i exchanges something, and of which rank's part. */
struct route {
    int peer, part;
};

/* What is passed on crosses to each other node once, to the rank that has its owner's place
 * there, and that one passes it on: what this rank would send to another place of another
 * node goes to that place here, of the part that came from this rank's place there. */
static struct route route(const struct mpi *m, const struct set *s, enum track track, int i)
{
    int other = mpi_other_end(m, track, i), rank = m->comm.rank, places = m->places;
    struct route way = {other, outward(track) ? rank : other};
    if (!s->passes_on || track < TRACK_OUT)
        return way;
    int node = m->seat[rank] / places, place = m->seat[rank] % places;
    int there = m->seat[other] / places, its = m->seat[other] % places;
    if (there == node || its == place)
        return way;
    way.peer = m->who[node * places + its];
    if (outward(track))
        way.part = m->who[there * places + place];
    return way;
}

int set_requests(const struct mpi *m)
{
    return TRACKS * m->peers + 1;
}

static MPI_Request *request(const struct mpi *m, const struct set *s, enum track track, int i)
{
    return &s->requests[(int)track * m->peers + i];
}

static MPI_Request *all_reduce(const struct mpi *m, const struct set *s)
{
    return &s->requests[TRACKS * m->peers];
}

/* A request was made, or not: then MPI leaves it undefined. */
static int posted(struct mpi *m, struct set *s, int rc, MPI_Request *r, const char *what, int peer)
{
    if (rc == MPI_SUCCESS)
        s->pending++;
    else
        *r = MPI_REQUEST_NULL;
    return check(m, rc, what, peer, s);
}

static int send(struct mpi *m, struct set *s, enum track track, int i, const void *data,
                int64_t bytes, int tag)
{
    int peer = route(m, s, track, i).peer;
    MPI_Request *r = request(m, s, track, i);
    assert(outward(track) && *r == MPI_REQUEST_NULL);
    int rc = MPI_Isend(data, (int)bytes, MPI_BYTE, peer, tag, m->world, r);
    return posted(m, s, rc, r, "send to", peer);
}

static int receive(struct mpi *m, struct set *s, enum track track, int i, void *data, int64_t bytes,
                   int tag)
{
    int peer = route(m, s, track, i).peer;
    MPI_Request *r = request(m, s, track, i);
    assert(!outward(track) && *r == MPI_REQUEST_NULL);
    int rc = MPI_Irecv(data, (int)bytes, MPI_BYTE, peer, tag, m->world, r);
    return posted(m, s, rc, r, "receive from", peer);
}

/* ------------------------------------------------------------------ pieces */

/* The track that piece k takes. */
static enum track turn(enum track first, int64_t k)
{
    return first + (enum track)(k % (first == TRACK_OUT ? OUTWARD : INWARD));
}

static int piece_tag(const struct mpi *m, const struct set *s, enum track track, int i)
{
    int node = s->passes_on ? m->seat[route(m, s, track, i).part] / m->places : 0;
    return TAG_PIECES + node * TAGS_OF_PIECES + (int)(s->mine.sequence % TAGS_OF_PIECES);
}

/* Where piece k to or from peer i lies. */
static char *piece_data(const struct mpi *m, const struct set *s, enum track track, int i,
                        int64_t k)
{
    const struct zero_collective *c = s->c;
    int64_t peer = mpi_other_end(m, track, i), bytes = c->header.bytes;
    char *data = c->data;
    switch (c->header.kind) {
    case ZERO_COLLECTIVE_GATHER: data += route(m, s, track, i).part * bytes; break;
    case ZERO_COLLECTIVE_REDUCE:
        if (!outward(track))
            return (char *)c->scratch + ((k % INWARD) * m->peers + i) * s->piece_bytes;
        data += peer * bytes;
        break;
    default: break;
    }
    return data + k * s->piece_bytes;
}

static int64_t piece_length(const struct set *s, int64_t k)
{
    int64_t left = s->c->header.bytes - k * s->piece_bytes;
    assert(left > 0);
    return left < s->piece_bytes ? left : s->piece_bytes;
}

/* Whether this rank has piece k of a part: its own, or one that has arrived. */
static bool has_piece(const struct mpi *m, const struct set *s, int part, int64_t k)
{
    if (part == m->comm.rank)
        return true;
    int i = (m->comm.rank + m->peers - part + m->comm.size) % m->comm.size; /* as received */
    assert(mpi_other_end(m, TRACK_IN, i) == part);
    return s->posted[i] > k + INWARD ||
           (s->posted[i] > k && *request(m, s, turn(TRACK_IN, k), i) == MPI_REQUEST_NULL);
}

/* Whether piece k may be posted to or from peer i: its track is free, and what was
 * received there has been summed, or what is passed on is there. A broadcast flows from its
 * root alone. */
static bool may_post(const struct mpi *m, const struct set *s, enum track first, int i, int64_t k)
{
    bool out = outward(first);
    if (k == s->pieces)
        return false;
    if (s->mine.kind == ZERO_COLLECTIVE_BROADCAST &&
        s->c->root != (out ? m->comm.rank : mpi_other_end(m, first, i)))
        return false;
    if (s->mine.kind == ZERO_COLLECTIVE_REDUCE && !out && k >= s->summed + INWARD)
        return false;
    if (*request(m, s, turn(first, k), i) != MPI_REQUEST_NULL)
        return false;
    return !out || has_piece(m, s, route(m, s, first, i).part, k);
}

static int post_pieces(struct mpi *m, struct set *s)
{
    int64_t *in = s->posted, *out = s->posted + m->peers;
    for (int i = 0; i < m->peers; i++) {
        for (; may_post(m, s, TRACK_IN, i, in[i]); in[i]++)
            if (receive(m, s, turn(TRACK_IN, in[i]), i, piece_data(m, s, TRACK_IN, i, in[i]),
                        piece_length(s, in[i]), piece_tag(m, s, TRACK_IN, i)))
                return m->status;
        for (; may_post(m, s, TRACK_OUT, i, out[i]); out[i]++)
            if (send(m, s, turn(TRACK_OUT, out[i]), i, piece_data(m, s, TRACK_OUT, i, out[i]),
                     piece_length(s, out[i]), piece_tag(m, s, TRACK_OUT, i)))
                return m->status;
    }
    return ZERO_OK;
}

/* Hands over the pieces that have arrived from all ranks, in order. */
static void sum_pieces(struct mpi *m, struct set *s)
{
    struct zero_collective *c = s->c;
    while (s->summed < s->pieces && s->arrived[s->summed % INWARD] == m->peers) {
        int64_t k = s->summed, offset = k * s->piece_bytes;
        for (int i = 0; i < m->peers; i++)
            m->parts[mpi_other_end(m, TRACK_IN, i)] = piece_data(m, s, TRACK_IN, i, k);
        m->parts[m->comm.rank] = (char *)c->data + m->comm.rank * c->header.bytes + offset;
        c->sum(c->sum_arg, offset, piece_length(s, k), m->parts);
        s->arrived[k % INWARD] = 0;
        s->summed++;
    }
}

/* ---------------------------------------------------------------- progress */

/* A SUM begins behind earlier SUMs, a REDUCE after earlier REDUCEs. */
static bool may_begin(const struct mpi *m, const struct set *s)
{
    for (int i = 0; m->busy[i] != s; i++) {
        if (m->busy[i]->mine.kind != s->mine.kind)
            continue;
        if (s->mine.kind == ZERO_COLLECTIVE_SUM && m->busy[i]->state == SET_HEADERS)
            return false;
        if (s->mine.kind == ZERO_COLLECTIVE_REDUCE && m->busy[i]->state != SET_DONE)
            return false;
    }
    return true;
}

static int sum_begin(struct mpi *m, struct set *s)
{
    MPI_Request *r = all_reduce(m, s);
    memcpy(s->sum, s->c->data, (size_t)s->mine.bytes);
    int rc = MPI_Iallreduce(MPI_IN_PLACE, s->sum, (int)(s->mine.bytes / 8), MPI_UINT64_T, MPI_SUM,
                            m->world, r);
    return posted(m, s, rc, r, "start the sum of all ranks on", m->comm.rank);
}

static int set_begin(struct mpi *m, struct set *s)
{
    const struct zero_collective *c = s->c;
    int64_t bytes = c->header.bytes;
    s->state = SET_MOVING;
    if (bytes == 0)
        return ZERO_OK;
    s->piece_bytes = m->transfer_max;
    switch (c->header.kind) {
    case ZERO_COLLECTIVE_GATHER:
        if (c->own)
            memcpy((char *)c->data + m->comm.rank * bytes, c->own, (size_t)bytes);
        if (s->passes_on && PASSED_ON < m->transfer_max)
            s->piece_bytes = PASSED_ON;
        break;
    case ZERO_COLLECTIVE_REDUCE:
        if (c->piece_bytes <= m->transfer_max)
            s->piece_bytes = c->piece_bytes;
        break;
    case ZERO_COLLECTIVE_SUM: return sum_begin(m, s);
    default: break;
    }
    s->pieces = (bytes + s->piece_bytes - 1) / s->piece_bytes;
    return ZERO_OK;
}

static void request_done(struct mpi *m, struct set *s, int index)
{
    int track = index / m->peers, i = index % m->peers;
    s->pending--;
    if (track == TRACK_HEADER_IN) {
        s->headers_missing--;
        int peer = mpi_other_end(m, TRACK_HEADER_IN, i);
        int status =
            m->status ? m->status : comm_header_compare(&m->comm, s->c, peer, &s->theirs[i]);
        if (status)
            mpi_fail(m, status);
    } else if (track >= TRACK_IN && track < TRACKS) {
        s->arrived[track - TRACK_IN]++;
    }
}

/* Lets MPI work and takes note of what has come. */
static int set_reap(struct mpi *m, struct set *s)
{
    int count = 0;
    int rc = MPI_Testsome(set_requests(m), s->requests, &count, m->completed, m->statuses);
    if (count == MPI_UNDEFINED)
        count = 0;
    for (int j = 0; rc == MPI_ERR_IN_STATUS && j < count; j++) {
        int track = m->completed[j] / m->peers, i = m->completed[j] % m->peers;
        if (m->statuses[j].MPI_ERROR != MPI_SUCCESS && m->statuses[j].MPI_ERROR != MPI_ERR_PENDING)
            return check(m, m->statuses[j].MPI_ERROR, "exchange data with",
                         track < TRACKS ? route(m, s, (enum track)track, i).peer : m->comm.rank, s);
    }
    if (check(m, rc, "look after the messages of", m->comm.rank, s))
        return m->status;
    for (int j = 0; j < count; j++)
        request_done(m, s, m->completed[j]);
    return m->status;
}

int set_progress(struct mpi *m, struct set *s)
{
    if (s->state == SET_DONE || (s->pending && set_reap(m, s)))
        return m->status;
    if (s->state == SET_HEADERS) {
        if (s->headers_missing || !may_begin(m, s))
            return ZERO_OK;
        if (set_begin(m, s))
            return m->status;
    }
    if (s->mine.kind == ZERO_COLLECTIVE_REDUCE)
        sum_pieces(m, s);
    if (post_pieces(m, s) || s->pending)
        return m->status;
    assert(s->mine.kind != ZERO_COLLECTIVE_REDUCE || s->summed == s->pieces);
    if (s->mine.kind == ZERO_COLLECTIVE_SUM && s->mine.bytes)
        memcpy(s->c->data, s->sum, (size_t)s->mine.bytes);
    s->state = SET_DONE;
    return ZERO_OK;
}

/* ---------------------------------------------------------- start, missing */

int set_start(struct mpi *m, struct set *s, struct zero_collective *c)
{
    assert(s->state == SET_FREE && s->pending == 0);
    s->state = SET_HEADERS;
    s->c = c;
    s->mine = c->header;
    s->headers_missing = m->peers;
    s->passes_on = s->mine.kind == ZERO_COLLECTIVE_GATHER && s->mine.bytes > m->direct_max &&
                   m->places > 1 && m->places < m->comm.size;
    s->pieces = s->summed = 0;
    memset(s->arrived, 0, sizeof(s->arrived));
    memset(s->posted, 0, 2 * (size_t)m->peers * sizeof(*s->posted));
    int64_t bytes = (int64_t)sizeof(s->mine);
    for (int i = 0; i < m->peers; i++)
        if (receive(m, s, TRACK_HEADER_IN, i, &s->theirs[i], bytes, TAG_HEADER) ||
            send(m, s, TRACK_HEADER_OUT, i, &s->mine, bytes, TAG_HEADER))
            return m->status;
    return ZERO_OK;
}

bool comm_mpi_is(const struct zero_comm *comm)
{
    return comm->ops == &mpi_ops;
}

/* The lower of two ranks, of those not below from; -1 is none. */
static int lower(int rank, int other, int from)
{
    return other >= from && (rank < 0 || other < rank) ? other : rank;
}

/* The lowest rank, not below from, that a request under way waits for; -1: none. */
static int awaited(const struct mpi *m, const struct set *s, bool out, int from)
{
    int rank = -1;
    for (enum track track = 0; track < TRACKS; track++)
        for (int i = 0; outward(track) == out && i < m->peers; i++) {
            struct route way = route(m, s, track, i);
            if (*request(m, s, track, i) == MPI_REQUEST_NULL)
                continue;
            rank = lower(rank, way.peer, from);
            if (!out)
                rank = lower(rank, way.part, from);
        }
    return rank;
}

/* Who has not sent, or else not taken, something. */
int set_missing(const struct mpi *m, const struct set *s, int from)
{
    int missing = awaited(m, s, awaited(m, s, false, 0) < 0, from);
    if (missing < 0 && m->peers == 1) /* an all-reduce does not tell whom it waits for */
        missing = mpi_other_end(m, TRACK_HEADER_IN, 0);
    return missing >= from ? missing : -1;
}

/* --------------------------------------------------------------------- end */

void set_cancel(struct mpi *m, struct set *s)
{
    for (enum track track = 0; track < TRACKS; track++)
        for (int i = 0; !outward(track) && i < m->peers; i++)
            if (*request(m, s, track, i) != MPI_REQUEST_NULL)
                MPI_Cancel(request(m, s, track, i));
}

bool set_receives(const struct mpi *m, const struct set *s)
{
    for (int r = TRACK_IN * m->peers; r < TRACKS * m->peers; r++)
        if (s->requests[r] != MPI_REQUEST_NULL)
            return true;
    return false;
}

int requests_drain(struct mpi *m, MPI_Request *requests, int n, double until)
{
    for (;;) {
        int count = 0, active = 0;
        MPI_Testsome(n, requests, &count, m->completed, m->statuses);
        for (int i = 0; i < n; i++)
            active += requests[i] != MPI_REQUEST_NULL;
        if (!active || seconds_now() > until)
            return active;
        sched_yield();
    }
}

/* A send that its peer does not take, and a receive whose sender has stopped
 * halfway, would last for ever: MPI is told to forget them, and moves them all the same
 * where the peer goes on. One that gave up takes nothing any more, unless it said that receives
 * had begun: it tells of no later end, so all that it was offered is held then. Headers and sums
 * are in our memory, which MPI then keeps. */
void set_end(struct mpi *m, struct set *s)
{
    for (int r = TRACK_OUT * m->peers; r < TRACKS * m->peers; r++) {
        if (s->requests[r] == MPI_REQUEST_NULL)
            continue;
        MPI_Request_free(&s->requests[r]);
        enum track track = (enum track)(r / m->peers);
        m->comm.holds |=
            !outward(track) || !m->takes_nothing[route(m, s, track, r % m->peers).peer];
        if (!outward(track))
            mpi_never_finalize();
    }
    for (int r = 0; r < set_requests(m); r++)
        m->left |= s->requests[r] != MPI_REQUEST_NULL;
    s->state = SET_FREE;
    s->c = NULL;
}

/* ------------------------------------------------------------------ memory */

void requests_clear(MPI_Request *requests, int n)
{
    for (int i = 0; i < n; i++)
        requests[i] = MPI_REQUEST_NULL;
}

bool set_alloc(struct mpi *m, struct set *s)
{
    size_t peers = (size_t)m->peers, requests = (size_t)set_requests(m);
    s->theirs = calloc(peers, sizeof(*s->theirs));
    s->posted = calloc(2 * peers, sizeof(*s->posted));
    s->requests = calloc(requests, sizeof(*s->requests));
    s->sum = calloc(1, ZERO_SUM_BYTES_MAX);
    if (!s->theirs || !s->posted || !s->requests || !s->sum)
        return false;
    requests_clear(s->requests, (int)requests);
    return true;
}

void set_free(struct set *s)
{
    free(s->theirs);
    free(s->posted);
    free(s->requests);
    free(s->sum);
}
