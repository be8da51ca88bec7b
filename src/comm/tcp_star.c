// SPDX-License-Identifier: Apache-2.0
/* Frames, what is done when they come, and when a collective goes on. Nothing here
 * waits. */
#include "src/comm/tcp_star.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "src/clock.h"
#include "src/comm/comm.h"

#define WAITS_SECONDS  0.1 /* until rank 0 tells whom it waits for */
#define FRAMES_AT_ONCE 64  /* of one link in one test */

int tcp_fail(struct tcp *t, int status)
{
    if (!t->status)
        t->status = status;
    return t->status;
}

/* The root is an argument too, though no header has it. */
static uint64_t root_mix(const struct zero_collective *c)
{
    return (uint64_t)(uint32_t)c->root * 0x9e3779b97f4a7c15u;
}

static struct op *op_find(struct tcp *t, uint64_t order)
{
    for (int b = 0; b < t->busy_count; b++)
        if (t->busy[b]->order == order)
            return t->busy[b];
    return NULL;
}

static void push(struct tcp *t, int link, struct frame frame, const void *data, int *pending)
{
    link_push(&t->links[link], &frame, data, pending);
}

void star_tell(struct tcp *t, struct frame frame, const struct link *but)
{
    for (int i = 0; i < t->count; i++)
        if (&t->links[i] != but && t->links[i].fd >= 0)
            push(t, i, frame, NULL, NULL);
}

/* ------------------------------------------------------------- failures */

/* What cannot be completed any more, as one rank says or as it is seen. The earliest
 * counts; a rank's own word is not replaced by the loss of its connection. */
static void failed_take(struct tcp *t, const struct frame *f)
{
    if (t->failed.kind &&
        (t->failed.rank == f->rank || t->failed.header.sequence <= f->header.sequence))
        return;
    t->failed = *f;
}

static void relay(struct tcp *t, const struct frame *f, const struct link *from)
{
    if (!is_root(t) || t->relayed)
        return;
    t->relayed = true;
    star_tell(t, *f, from);
}

/* Whether the rank at the other end has data for this one in c. */
static bool comes_from(const struct tcp *t, const struct zero_collective *c, int rank)
{
    if (c->header.bytes == 0)
        return false;
    if (c->header.kind != ZERO_COLLECTIVE_BROADCAST)
        return true;
    return is_root(t) ? c->root == rank : c->root != t->comm.rank;
}

/* Whether the rank at the other end is still needed for an op. The root of a broadcast is
 * not, once its data is here: it may have left already. */
static bool needs(const struct tcp *t, const struct op *op, const struct link *l)
{
    const struct zero_collective *c = op->c;
    if (op->state == OP_DONE || !is_root(t))
        return op->state != OP_DONE;
    if (op->state == OP_CALLED || (comes_from(t, c, l->rank) && op->came[l->rank] < 2))
        return true;
    bool gives = c->header.kind == ZERO_COLLECTIVE_BROADCAST && c->root == l->rank;
    return op->state == OP_MOVING ? !gives : link_owes(l, &op->out);
}

static void op_end(struct tcp *t, struct op *op)
{
    enum op_state last = is_root(t) ? OP_GIVING : OP_MOVING;
    if (op->state == last && op->in == 0 && op->out == 0)
        op->state = OP_DONE;
}

static void lost(struct tcp *t, struct link *l, int cause)
{
    struct frame f = {.kind = FRAME_LOST,
                      .rank = l->rank,
                      .cause = cause,
                      .header = {.sequence = t->sequence + 1}};
    for (int b = t->busy_count - 1; b >= 0; b--) {
        op_end(t, t->busy[b]); /* its last byte may have come just before */
        if (needs(t, t->busy[b], l))
            f.header.sequence = t->busy[b]->mine.sequence;
    }
    link_close(l);
    failed_take(t, &f);
    relay(t, &f, l);
}

static int broken(struct tcp *t, const struct link *l)
{
    return tcp_fail(
        t, error_comm(&t->comm, ZERO_ERR_COMM,
                      "Rank %d sent what rank %d cannot make sense of (kind %u, call %llu, "
                      "%lld bytes). Start the same build on all nodes.",
                      l->rank, t->comm.rank, l->in.kind, (unsigned long long)l->in.order,
                      (long long)l->in.bytes));
}

static int header_compare(struct tcp *t, struct op *op, int peer,
                          struct zero_collective_header theirs)
{
    theirs.arguments -= root_mix(op->c);
    return tcp_fail(t, comm_header_compare(&t->comm, op->c, peer, &theirs));
}

int star_failed(struct tcp *t, uint64_t sequence)
{
    const struct zero_collective none = {0};
    const struct frame *f = &t->failed;
    if (!f->kind || sequence < f->header.sequence)
        return ZERO_OK;
    if (f->kind == FRAME_FAILED)
        return comm_header_compare(&t->comm, &none, f->rank, &f->header);
    return error_comm(
        &t->comm, ZERO_ERR_COMM,
        "The connection to rank %d was lost before message %llu: %.64s. Look for what "
        "ended that rank.",
        f->rank, (unsigned long long)f->header.sequence,
        f->cause ? strerror((int)f->cause) : "it was closed");
}

/* Fails when an op needs a rank that gave up or is gone. */
static void failed_apply(struct tcp *t)
{
    for (int b = 0; b < t->busy_count && !t->status; b++)
        if (t->busy[b]->state != OP_DONE)
            tcp_fail(t, star_failed(t, t->busy[b]->mine.sequence));
}

/* Another rank than this one, or this one, made another call than rank 0. */
static void differs_apply(struct tcp *t)
{
    const struct frame *f = &t->differs;
    struct op *op = f->kind ? op_find(t, f->order) : NULL;
    if (!op || op->state != OP_CALLED || t->status)
        return;
    if (f->rank == t->comm.rank || !header_compare(t, op, f->rank, f->header))
        header_compare(t, op, 0, f->root);
}

/* ------------------------------------------------- what moves, and where */

/* Of all parts, as rank 0 gives them to each rank. */
static int64_t result_bytes(const struct tcp *t, const struct zero_collective *c)
{
    bool parts = c->header.kind == ZERO_COLLECTIVE_GATHER;
    return parts ? t->comm.size * c->header.bytes : c->header.bytes;
}

static char *part(const struct zero_collective *c, int rank)
{
    bool parts = c->header.kind == ZERO_COLLECTIVE_GATHER;
    return (char *)c->data + (parts ? rank * c->header.bytes : 0);
}

/* To rank 0, what this rank brings. */
static void part_send(struct tcp *t, struct op *op)
{
    struct zero_collective *c = op->c;
    const struct frame f = {
        .kind = FRAME_DATA, .rank = t->comm.rank, .order = op->order, .bytes = c->header.bytes};
    bool gather = c->header.kind == ZERO_COLLECTIVE_GATHER;
    if (c->header.bytes == 0 ||
        (c->header.kind == ZERO_COLLECTIVE_BROADCAST && c->root != t->comm.rank))
        return;
    push(t, 0, f, gather && c->own ? c->own : part(c, t->comm.rank), &op->out);
}

/* To all ranks, what came of it. */
static void results_send(struct tcp *t, struct op *op)
{
    struct zero_collective *c = op->c;
    const struct frame f = {.kind = FRAME_DATA, .order = op->order, .bytes = result_bytes(t, c)};
    op->state = OP_GIVING;
    for (int i = 0; i < t->count && f.bytes; i++)
        if (c->header.kind != ZERO_COLLECTIVE_BROADCAST || c->root != 1 + i)
            push(t, i, f, c->data, &op->out);
}

/* All ranks have made this call. */
static void op_go(struct tcp *t, struct op *op)
{
    struct zero_collective *c = op->c;
    const struct frame f = {.kind = FRAME_GO, .order = op->order};
    op->state = OP_MOVING;
    op->since = seconds_now();
    for (int i = 0; i < t->count; i++) {
        if (is_root(t))
            push(t, i, f, NULL, &op->out);
        op->in += comes_from(t, c, t->links[i].rank);
    }
    if (!is_root(t))
        part_send(t, op);
    else if (c->header.kind == ZERO_COLLECTIVE_GATHER && c->own && c->header.bytes)
        memcpy(c->data, c->own, (size_t)c->header.bytes);
    t->gone = op->order;
}

/* --------------------------------------------------------- frames come in */

static int call_take(struct tcp *t, struct link *l)
{
    if (!is_root(t))
        return broken(t, l);
    struct caller *caller = &t->callers[l - t->links];
    if (l->in.order != caller->called + 1 || l->in.order > t->gone + ZERO_COLLECTIVES)
        return broken(t, l);
    caller->called++;
    caller->theirs[l->in.order % ZERO_COLLECTIVES] = l->in.header;
    return ZERO_OK;
}

static int go_take(struct tcp *t, struct link *l)
{
    struct op *op = op_find(t, l->in.order);
    if (is_root(t) || !op || op->state != OP_CALLED || op->order != t->gone + 1)
        return broken(t, l);
    op_go(t, op);
    return ZERO_OK;
}

static int data_expect(struct tcp *t, struct link *l)
{
    struct op *op = op_find(t, l->in.order);
    struct zero_collective *c = op ? op->c : NULL;
    if (!op || op->state != OP_MOVING || !comes_from(t, c, l->rank) ||
        l->in.bytes != (is_root(t) ? c->header.bytes : result_bytes(t, c)) ||
        (is_root(t) ? op->came[l->rank] != 1 : op->in != 1))
        return broken(t, l);
    if (!is_root(t))
        link_expect(l, c->data);
    else if (c->header.kind == ZERO_COLLECTIVE_SUM)
        link_expect(l, t->callers[l - t->links].words);
    else
        link_expect(l, part(c, l->rank));
    return ZERO_OK;
}

/* The data of the last frame is complete. */
static void data_take(struct tcp *t, struct link *l)
{
    struct op *op = op_find(t, l->in.order);
    assert(op && op->state == OP_MOVING && op->in > 0);
    op->in--;
    if (!is_root(t))
        return;
    op->came[l->rank] = 2;
    if (op->mine.kind != ZERO_COLLECTIVE_SUM)
        return;
    uint64_t *sum = op->c->data;
    const uint64_t *words = t->callers[l - t->links].words;
    for (int64_t i = 0; i < op->mine.bytes / 8; i++)
        sum[i] += words[i];
}

/* Rank 0 relays others' failures; any other rank speaks for itself alone. */
static int failure_take(struct tcp *t, struct link *l)
{
    struct frame f = l->in;
    bool own = f.rank == l->rank && f.kind == FRAME_FAILED;
    if (f.rank < 0 || f.rank >= t->comm.size || f.rank == t->comm.rank || (is_root(t) && !own))
        return broken(t, l);
    f.header.kind = ZERO_COLLECTIVE_FAILED;
    failed_take(t, &f);
    relay(t, &f, l);
    return ZERO_OK;
}

static int frame_take(struct tcp *t, struct link *l)
{
    struct frame *f = &l->in;
    bool rank_fits = f->rank >= 0 && f->rank < t->comm.size;
    f->header.name[sizeof(f->header.name) - 1] = '\0';
    f->root.name[sizeof(f->root.name) - 1] = '\0';
    switch (f->kind) {
    case FRAME_CALL: return call_take(t, l);
    case FRAME_GO: return go_take(t, l);
    case FRAME_DATA: return data_expect(t, l);
    case FRAME_FAILED:
    case FRAME_LOST: return failure_take(t, l);
    case FRAME_DIFFERS:
        if (is_root(t) || !rank_fits || t->differs.kind)
            return broken(t, l);
        t->differs = *f;
        return ZERO_OK;
    case FRAME_WAITS:
        if (is_root(t) || !rank_fits)
            return broken(t, l);
        t->waits = *f;
        return ZERO_OK;
    default: return broken(t, l);
    }
}

static void link_hear(struct tcp *t, struct link *l)
{
    for (int i = 0; i < FRAMES_AT_ONCE && !t->status; i++) {
        switch (link_receive(l)) {
        case LINK_FRAME: frame_take(t, l); break;
        case LINK_DATA: data_take(t, l); break;
        case LINK_CLOSED: lost(t, l, errno ? errno : l->error); return;
        default: return;
        }
    }
}

/* ---------------------------------------------------------------- progress */

/* Rank 0's: whether all ranks have made this call. Who made another one is named to
 * all: each of them differs from that rank or from rank 0. */
static bool all_called(struct tcp *t, struct op *op)
{
    bool all = true;
    for (int i = 0; i < t->count && !t->status; i++) {
        struct caller *caller = &t->callers[i];
        const struct zero_collective_header *theirs = &caller->theirs[op->order % ZERO_COLLECTIVES];
        all &= caller->called >= op->order;
        if (op->came[1 + i] || caller->called < op->order)
            continue;
        op->came[1 + i] = 1;
        if (header_compare(t, op, 1 + i, *theirs))
            star_tell(t,
                      (struct frame){.kind = FRAME_DIFFERS,
                                     .rank = 1 + i,
                                     .order = op->order,
                                     .header = *theirs,
                                     .root = op->mine},
                      NULL);
    }
    return all && !t->status;
}

static void op_progress(struct tcp *t, struct op *op)
{
    if (is_root(t) && op->state == OP_CALLED && all_called(t, op))
        op_go(t, op);
    if (is_root(t) && op->state == OP_MOVING && op->in == 0)
        results_send(t, op);
}

/* The lowest rank, not below from, that an op of rank 0 waits for, or -1. */
static int op_awaited(const struct tcp *t, const struct op *op, int from)
{
    for (int i = from > 1 ? from - 1 : 0; i < t->count; i++) {
        bool data = op->state == OP_MOVING && comes_from(t, op->c, 1 + i);
        if (op->state < OP_GIVING ? op->came[1 + i] < (data ? 2 : op->state == OP_CALLED)
                                  : t->links[i].count > 0)
            return 1 + i;
    }
    return -1;
}

/* The other ranks see rank 0 alone: it tells them whom an op waits for. */
static void waits_tell(struct tcp *t, struct op *op, int rank)
{
    const struct frame f = {.kind = FRAME_WAITS, .rank = rank, .order = op->order};
    if (rank == op->told || rank < 0)
        return;
    op->told = rank;
    for (int i = 0; i < t->count; i++)
        if (!t->callers[i].waits && t->links[i].fd >= 0)
            push(t, i, f, NULL, &t->callers[i].waits);
}

/* From time to time, of the oldest. */
static void waits_look(struct tcp *t)
{
    int oldest = 0;
    while (oldest < t->busy_count && t->busy[oldest]->state >= OP_GIVING)
        oldest++;
    struct op *op = oldest < t->busy_count ? t->busy[oldest] : NULL;
    if (!is_root(t) || !op || seconds_now() < op->since + WAITS_SECONDS)
        return;
    op->since = seconds_now();
    waits_tell(t, op, op_awaited(t, op, 0));
}

int op_missing(struct tcp *t, struct op *op, int from)
{
    if (is_root(t)) {
        waits_tell(t, op, op_awaited(t, op, 0));
        star_flush(t);
        return op_awaited(t, op, from);
    }
    int told = t->waits.order == op->order && t->waits.rank != t->comm.rank ? t->waits.rank : 0;
    return told >= from ? told : -1;
}

void star_flush(struct tcp *t)
{
    for (int i = 0; i < t->count; i++)
        link_flush(&t->links[i]);
}

static void hear(struct tcp *t)
{
    for (int i = 0; i < t->count; i++)
        t->polls[i] = (struct pollfd){.fd = t->links[i].fd, .events = POLLIN};
    if (poll(t->polls, (nfds_t)t->count, 0) <= 0)
        return;
    for (int i = 0; i < t->count && !t->status; i++)
        if (t->polls[i].revents)
            link_hear(t, &t->links[i]);
}

void star_progress(struct tcp *t)
{
    hear(t);
    differs_apply(t);
    for (int b = 0; b < t->busy_count && !t->status; b++)
        op_progress(t, t->busy[b]);
    waits_look(t);
    star_flush(t); /* also what tells of a failure: it may be the last time */
    for (int b = 0; b < t->busy_count; b++)
        op_end(t, t->busy[b]);
    failed_apply(t);
}

void op_call(struct tcp *t, struct op *op)
{
    op->since = seconds_now();
    op->mine.arguments += root_mix(op->c);
    const struct frame f = {
        .kind = FRAME_CALL, .rank = t->comm.rank, .order = op->order, .header = op->mine};
    if (!is_root(t))
        push(t, 0, f, NULL, &op->out);
    star_flush(t);
}
