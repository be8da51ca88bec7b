// SPDX-License-Identifier: Apache-2.0
/*
 * Collectives over TCP, in a star: each rank has one connection, to rank 0, which
 * compares the calls of all, takes in their data and gives the result to each. A mesh
 * would save a hop for size^2 connections, a listener in each rank and addresses to be
 * told; but a verdict among some hundred ranks, which is what this is for, takes
 * little beside a step also this way.
 *
 * Who owns what: a collective under way has an op. Data is sent from and received into
 * the collective's own memory, but a SUM, whose words rank 0 receives into the link's.
 *
 * What order is guaranteed: a call's header goes to rank 0 at its start; rank 0 says
 * GO when all have made that call, and only then data moves. Calls are told apart by
 * the order of their starts, so ranks that differ in a call, its sequence included,
 * differ in the header of one order. Frames of one link stay in order, so a notice of
 * failure comes behind what its sender had sent before. Rank 0 passes on the first
 * notice or lost connection.
 *
 * What shutdown does: abort ends data that is on its way within QUIESCE_SECONDS, or
 * cuts that connection; then it tells the others. After that no memory but its own is
 * touched.
 */
#include "src/comm/tcp.h"

#include <assert.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/clock.h"
#include "src/comm/bootstrap.h"
#include "src/comm/comm.h"
#include "src/comm/tcp_star.h"

#define QUIESCE_SECONDS 1.0
#define CONFIRM_SECONDS 0.001 /* between two looks at what was confirmed */

/* ------------------------------------------------------------ start, test */

static int tcp_start(struct zero_comm *comm, struct zero_collective *c)
{
    struct tcp *t = (struct tcp *)comm;
    const struct zero_collective_header *h = &c->header;
    c->state = NULL;
    if (t->status)
        return t->status;
    if (h->kind == ZERO_COLLECTIVE_REDUCE)
        return error_comm(comm, ZERO_ERR_UNSUPPORTED,
                          "A reduce of %lld bytes was asked of the control channel between ranks, "
                          "which has none. Start the ranks with MPI's launcher (mpirun).",
                          (long long)h->bytes);
    assert(h->sequence > t->sequence && h->bytes >= 0 && t->busy_count < ZERO_COLLECTIVES);
    assert(h->kind != ZERO_COLLECTIVE_SUM || (h->bytes <= ZERO_SUM_BYTES_MAX && h->bytes % 8 == 0));
    struct op *op = t->ops;
    while (op->state != OP_FREE)
        op++;
    char *came = op->came;
    *op = (struct op){
        .state = OP_CALLED, .order = ++t->order, .c = c, .mine = *h, .came = came, .told = -1};
    if (came)
        memset(came, 0, (size_t)comm->size);
    t->sequence = h->sequence;
    c->state = t->busy[t->busy_count++] = op;
    op_call(t, op);
    return ZERO_OK;
}

static void op_release(struct tcp *t, struct op *op)
{
    int at = 0;
    while (t->busy[at] != op)
        at++;
    t->busy_count--;
    for (; at < t->busy_count; at++)
        t->busy[at] = t->busy[at + 1];
    op->state = OP_FREE;
    op->c->state = NULL;
    op->c = NULL;
}

static int tcp_test(struct zero_comm *comm, struct zero_collective *c, bool *done)
{
    struct tcp *t = (struct tcp *)comm;
    struct op *op = c->state;
    *done = false;
    if (!t->status)
        star_progress(t);
    if (op && op->state == OP_DONE && op->c == c) {
        op_release(t, op);
        *done = true;
        return ZERO_OK;
    }
    assert(t->status || (op && op->c == c));
    return t->status;
}

static int tcp_missing(struct zero_comm *comm, const struct zero_collective *c, int from)
{
    struct op *op = c->state;
    bool waits = op && op->c == c && op->state != OP_DONE;
    return waits ? op_missing((struct tcp *)comm, op, from) : -1;
}

static int tcp_listen(struct zero_comm *comm, uint64_t sequence)
{
    struct tcp *t = (struct tcp *)comm;
    if (!t->status)
        star_progress(t);
    return t->status ? t->status : star_failed(t, sequence);
}

bool comm_tcp_is(const struct zero_comm *comm)
{
    return comm->ops->start == tcp_start;
}

/* ---------------------------------------------------------- abort, destroy */

static uint64_t first_unfinished(const struct tcp *t, uint64_t sequence)
{
    for (int b = 0; b < t->busy_count; b++)
        if (t->busy[b]->state != OP_DONE && t->busy[b]->mine.sequence < sequence)
            sequence = t->busy[b]->mine.sequence;
    return sequence;
}

/* Sends what is there, at most until a time. */
static void flush_until(struct tcp *t, double until)
{
    for (;;) {
        int waiting = 0;
        star_flush(t);
        for (int i = 0; i < t->count; i++) {
            bool some = t->links[i].count && !t->links[i].deaf;
            t->polls[i] = (struct pollfd){.fd = some ? t->links[i].fd : -1, .events = POLLOUT};
            waiting += some;
        }
        if (!waiting || seconds_now() > until)
            return;
        bootstrap_wait(t->polls, (nfds_t)t->count, until);
    }
}

/* Ends all collectives that are not done: what is sent halfway is completed, or else
 * that connection is. */
static void quiesce(struct tcp *t)
{
    int kept = 0;
    for (int i = 0; i < t->count; i++)
        link_withdraw(&t->links[i]);
    flush_until(t, seconds_now() + QUIESCE_SECONDS);
    for (int i = 0; i < t->count; i++)
        if (link_withdraw(&t->links[i]))
            link_close(&t->links[i]);
    for (int b = 0; b < t->busy_count; b++) {
        if (t->busy[b]->state == OP_DONE) {
            t->busy[kept++] = t->busy[b];
        } else {
            t->busy[b]->state = OP_FREE;
            t->busy[b]->c = NULL;
        }
    }
    t->busy_count = kept;
}

static void tcp_abort(struct zero_comm *comm, uint64_t sequence)
{
    struct tcp *t = (struct tcp *)comm;
    if (t->aborted)
        return;
    t->aborted = true;
    sequence = first_unfinished(t, sequence);
    if (!t->status)
        comm_given_up(comm, sequence);
    tcp_fail(t, ZERO_ERR_COMM);
    quiesce(t);
    star_tell(t,
              (struct frame){.kind = FRAME_FAILED,
                             .rank = comm->rank,
                             .header = {.sequence = sequence, .kind = ZERO_COLLECTIVE_FAILED}},
              NULL);
    star_flush(t);
}

static void tcp_free(struct tcp *t)
{
    for (int i = 0; i < t->count && t->links; i++)
        link_close(&t->links[i]);
    for (int i = 0; i < t->count && t->callers; i++)
        free(t->callers[i].words);
    for (int i = 0; i < ZERO_COLLECTIVES; i++)
        free(t->ops[i].came);
    free(t->callers);
    free(t->links);
    free(t->polls);
    free(t);
}

/* Links are closed when what was sent has arrived: link_unsent says why. */
static void tcp_destroy(struct zero_comm *comm)
{
    struct tcp *t = (struct tcp *)comm;
    double until = seconds_now() + QUIESCE_SECONDS;
    if (first_unfinished(t, UINT64_MAX) != UINT64_MAX)
        tcp_abort(comm, UINT64_MAX);
    flush_until(t, until);
    for (int i = 0; i < t->count; i++)
        while (link_unsent(&t->links[i]) && seconds_now() < until)
            bootstrap_wait(NULL, 0, seconds_now() + CONFIRM_SECONDS);
    tcp_free(t);
}

static const struct zero_comm_ops tcp_ops = {
    .start = tcp_start,
    .test = tcp_test,
    .missing = tcp_missing,
    .abort = tcp_abort,
    .destroy = tcp_destroy,
    .listen = tcp_listen,
};

/* ------------------------------------------------------------------ create */

static bool callers_alloc(struct tcp *t)
{
    bool ok = (t->callers = calloc((size_t)t->count, sizeof(*t->callers))) != NULL;
    for (int i = 0; i < t->count && ok; i++)
        ok = (t->callers[i].words = malloc(ZERO_SUM_BYTES_MAX)) != NULL;
    for (int i = 0; i < ZERO_COLLECTIVES && ok; i++)
        ok = (t->ops[i].came = calloc((size_t)t->comm.size, 1)) != NULL;
    return ok;
}

static int no_memory(const struct job *job, struct error *error)
{
    return error_set(error, ZERO_ERR_MEMORY,
                     "No memory for a communicator of %d ranks." ERROR_FREE_MEMORY, job->size);
}

static int tcp_alloc(const struct job *job, struct tcp **out, struct error *error)
{
    struct tcp *t = *out = calloc(1, sizeof(*t));
    bool ok = t != NULL;
    if (ok) {
        t->comm = (struct zero_comm){.ops = &tcp_ops,
                                     .rank = job->rank,
                                     .size = job->size,
                                     .local_rank = job->local_rank,
                                     .local_size = job->local_size};
        t->count = is_root(t) ? job->size - 1 : 1;
        t->links = calloc((size_t)t->count, sizeof(*t->links));
        t->polls = calloc((size_t)t->count, sizeof(*t->polls));
        for (int i = 0; i < t->count && t->links; i++)
            t->links[i] = (struct link){.fd = -1, .rank = is_root(t) ? 1 + i : 0};
        ok = t->links && t->polls && (!is_root(t) || callers_alloc(t));
    }
    if (ok)
        return ZERO_OK;
    if (t)
        tcp_free(t);
    return no_memory(job, error);
}

int comm_tcp_over(const struct job *job, const int *fds, struct zero_comm **comm,
                  struct error *error)
{
    struct tcp *t;
    *comm = NULL;
    if (tcp_alloc(job, &t, error)) { /* the others hear of it by this */
        for (int r = 0; r < job->size; r++)
            if (fds[r] >= 0)
                close(fds[r]);
        return error->status;
    }
    for (int i = 0; i < t->count; i++)
        t->links[i].fd = fds[t->links[i].rank];
    *comm = &t->comm;
    return ZERO_OK;
}

int comm_tcp_create(const struct job *job, int seconds, struct zero_comm **comm,
                    struct error *error)
{
    int *fds = malloc((size_t)job->size * sizeof(*fds));
    *comm = NULL;
    if (!fds)
        return no_memory(job, error);
    if (!bootstrap_connect(job, seconds, fds, error))
        comm_tcp_over(job, fds, comm, error);
    free(fds);
    return error->status;
}
