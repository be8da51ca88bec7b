// SPDX-License-Identifier: Apache-2.0
/* A communicator that fails, forgets and withholds collectives of another. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/fault.h"

#define PATIENCE 100

static bool strikes(struct fault *f)
{
    return fault_strikes(f, FAULT_COMM_LATE) || fault_strikes(f, FAULT_COMM_REORDER) ||
           fault_strikes(f, FAULT_COMM_START) || fault_strikes(f, FAULT_COMM_TEST) ||
           fault_strikes(f, FAULT_COMM_LOST) || fault_strikes(f, FAULT_COMM_STOP);
}

static int answer(struct fault_comm *c, int status)
{
    if (status)
        memcpy(c->comm.error, c->inner->error, sizeof(c->comm.error));
    return status;
}

static int broken(struct fault_comm *c, const struct zero_collective *collective)
{
    snprintf(c->comm.error, sizeof(c->comm.error), "The test breaks message %llu. Look there.",
             (unsigned long long)collective->header.sequence);
    return ZERO_ERR_COMM;
}

static int fault_start(struct zero_comm *comm, struct zero_collective *collective)
{
    struct fault_comm *c = (struct fault_comm *)comm;
    struct fault_collective *o = c->collectives;
    while (o->collective)
        o++;
    *o = (struct fault_collective){.collective = collective, .patience = PATIENCE};
    o->struck = strikes(c->fault);
    if (o->struck && c->fault->kind == FAULT_COMM_START) {
        o->collective = NULL;
        return broken(c, collective);
    }
    if (o->struck && c->fault->kind == FAULT_COMM_STOP && !c->stopped) {
        c->stopped = true;
        atomic_fetch_add(&c->ranks->gone, 1);
    }
    return c->stopped ? ZERO_OK : answer(c, c->inner->ops->start(c->inner, collective));
}

/* Whether a collective that is complete is not reported yet. */
static bool held_back(struct fault_comm *c, struct fault_collective *o)
{
    enum fault_kind kind = o->struck ? c->fault->kind : FAULT_NONE;
    if (kind == FAULT_COMM_LOST) {
        fault_tick();
        return true;
    }
    bool later = kind == FAULT_COMM_REORDER && c->reported < o->collective->header.sequence;
    return (later || kind == FAULT_COMM_LATE) && o->patience-- > 0;
}

static int fault_test(struct zero_comm *comm, struct zero_collective *collective, bool *done)
{
    struct fault_comm *c = (struct fault_comm *)comm;
    struct fault_collective *o = c->collectives;
    while (o->collective != collective)
        o++;
    *done = false;
    if (c->stopped) {
        fault_tick();
        return ZERO_OK;
    }
    if (o->struck && c->fault->kind == FAULT_COMM_TEST)
        return broken(c, collective);
    /* It reports a collective done once; it also works for the others. */
    int status = o->finished ? ZERO_OK : c->inner->ops->test(c->inner, collective, &o->finished);
    if (status || !o->finished || held_back(c, o))
        return answer(c, status);
    if (collective->header.sequence > c->reported)
        c->reported = collective->header.sequence;
    o->collective = NULL;
    *done = true;
    return ZERO_OK;
}

static int fault_missing(struct zero_comm *comm, const struct zero_collective *collective, int from)
{
    struct fault_comm *c = (struct fault_comm *)comm;
    return c->stopped ? -1 : c->inner->ops->missing(c->inner, collective, from);
}

/* A rank that has stopped tells nobody: before nobody is there any more. */
static void fault_abort(struct zero_comm *comm, uint64_t sequence)
{
    struct fault_comm *c = (struct fault_comm *)comm;
    while (c->stopped && atomic_load(&c->ranks->gone) < comm->size) {
        fault_tick();
        usleep(1000);
    }
    c->inner->ops->abort(c->inner, sequence);
}

static int fault_listen(struct zero_comm *comm, uint64_t sequence)
{
    struct fault_comm *c = (struct fault_comm *)comm;
    if (c->stopped)
        fault_tick();
    return c->stopped ? ZERO_OK : answer(c, c->inner->ops->listen(c->inner, sequence));
}

static void fault_destroy(struct zero_comm *comm)
{
    (void)comm;
}

struct zero_comm *fault_comm(struct fault_comm *c, struct zero_comm *inner, struct fault *fault,
                             struct fault_ranks *ranks)
{
    static const struct zero_comm_ops ops = {.start = fault_start,
                                             .test = fault_test,
                                             .missing = fault_missing,
                                             .abort = fault_abort,
                                             .destroy = fault_destroy,
                                             .listen = fault_listen};
    *c = (struct fault_comm){.comm = *inner, .inner = inner, .fault = fault, .ranks = ranks};
    c->comm.ops = &ops;
    return &c->comm;
}
