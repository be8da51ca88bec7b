// SPDX-License-Identifier: Apache-2.0
/*
 * Commands between ranks become collectives, and wait for them with a deadline.
 *
 * Where the host cannot read device memory (plan.h: device_apart), a collective is done
 * when the device's own part of it is: the sums, and what is copied there. And
 * where the communicator takes no device memory (via_host), a unit's part goes out
 * to host memory (a relay), moves between ranks there, and comes in again:
 *
 *     gather    own part out, all parts in
 *     reduce    the other ranks' parts out; sums pass the received parts through
 *               the device's scratch, piece by piece
 *
 * Collectives start in the order of their commands on all ranks: while one is on
 * its way out, the next is not begun.
 */
#include "src/engine.h"

#include <assert.h>

#include "src/clock.h"

#define LOOK_SECONDS 0.1 /* of a wait that are counted at once */

/* ---------------------------------------------------------------- resources */

static struct operation *free_operation(struct zero *z)
{
    for (int i = 0; i < ZERO_COLLECTIVES; i++)
        if (z->operations[i].state == OPERATION_FREE)
            return &z->operations[i];
    return NULL;
}

static bool moves_units(const struct command *c)
{
    return c->kind == COMMAND_GATHER || c->kind == COMMAND_REDUCE || c->kind == COMMAND_GATHER_SUMS;
}

static int free_relay(const struct zero *z)
{
    for (int relay = 0; relay < PLAN_RELAYS; relay++) {
        bool taken = false;
        for (int i = 0; i < ZERO_COLLECTIVES; i++)
            taken |= z->operations[i].state != OPERATION_FREE && z->operations[i].relay == relay;
        if (!taken)
            return relay;
    }
    return -1;
}

bool collective_ready(struct zero *z, const struct command *c)
{
    for (int i = 0; i < ZERO_COLLECTIVES; i++)
        if (z->operations[i].state == OPERATION_OUT)
            return false;
    return free_operation(z) && (!z->plan.via_host || !moves_units(c) || free_relay(z) >= 0);
}

/* -------------------------------------------------------------------- begin */

static void describe(struct zero *z, struct command *c, struct operation *o)
{
    struct zero_collective *op = &o->collective;
    op->header.unit = c->unit;
    op->header.arguments = c->arguments;
    snprintf(op->header.name, sizeof(op->header.name), "%s", c->name);
    op->header.bytes = c->bytes;
    if (moves_units(c))
        op->stream = z->device->sums;
    switch (c->kind) {
    case COMMAND_GATHER:
        op->header.kind = ZERO_COLLECTIVE_GATHER;
        op->header.bytes = z->layout.unit[c->unit].part[c->part].shard * z->plan.element;
        params_gather(z, c, op);
        break;
    case COMMAND_REDUCE:
        op->header.kind = ZERO_COLLECTIVE_REDUCE;
        op->header.bytes = z->layout.unit[c->unit].part[PART_LIVE].shard *
                           (z->plan.set.local ? 4 : z->plan.element);
        grads_reduce(z, c, o);
        break;
    case COMMAND_GATHER_SUMS:
        op->header.kind = ZERO_COLLECTIVE_GATHER;
        op->header.bytes = z->layout.unit[c->unit].part[PART_LIVE].shard * z->plan.grad;
        grads_gather_sums(z, c, op);
        break;
    case COMMAND_SUM:
        op->header.kind = ZERO_COLLECTIVE_SUM;
        op->data = c->data;
        break;
    case COMMAND_BROADCAST:
        op->header.kind = ZERO_COLLECTIVE_BROADCAST;
        op->root = c->part;
        op->data = c->data;
        break;
    case COMMAND_EXCHANGE:
        op->header.kind = ZERO_COLLECTIVE_GATHER;
        op->data = c->data;
        break;
    default: assert(false);
    }
}

static int move(struct zero *z, struct operation *o, struct error *error)
{
    o->state = OPERATION_MOVES;
    o->collective.header.sequence = ++z->comm->sequence;
    const struct settings *set = &z->plan.set;
    int status = o->added ? z->comm->ops->reduce(z->comm, &o->collective,
                                                 set->local ? ZERO_FP32 : set->dtype)
                          : z->comm->ops->start(z->comm, &o->collective);
    if (!status)
        return ZERO_OK;
    z->comm->sequence--; /* it was not started: the abort tells the others so */
    return error_set(error, status, "%s", z->comm->error);
}

/* What the other ranks need of this one's part, to the relay. */
static void out(struct zero *z, struct operation *o)
{
    struct zero_collective *c = &o->collective;
    int64_t bytes = c->header.bytes, before = z->rank * bytes, own = before + bytes;
    o->relay = free_relay(z);
    o->state = OPERATION_OUT;
    o->data = c->data;
    char *relay = z->arena.base + z->plan.host.relay[o->relay];
    c->data = relay;
    if (c->header.kind == ZERO_COLLECTIVE_GATHER) {
        copy_append(z, DEVICE_TO_HOST_MEMORY, &o->copies[0],
                    c->own ? (void *)c->own : o->data + before, relay + before, bytes);
        c->own = NULL;
        return;
    }
    c->scratch = z->arena.base + z->plan.host.scratch;
    copy_append(z, DEVICE_TO_HOST_MEMORY, &o->copies[0], o->data, relay, before);
    copy_append(z, DEVICE_TO_HOST_MEMORY, &o->copies[1], o->data + own, relay + own,
                (z->size - 1 - z->rank) * bytes);
}

int collective_start(struct zero *z, struct command *c, struct error *error)
{
    struct operation *o = free_operation(z);
    struct zero_collective *op = &o->collective;
    assert(o);
    *o = (struct operation){.state = OPERATION_MOVES,
                            .engine = z,
                            .relay = -1,
                            .copies = {{.done = true}, {.done = true}}};
    c->resource = (int)(o - z->operations);
    if (c->kind == COMMAND_ACCUMULATE) {
        grads_accumulate(z, c);
        return ZERO_OK;
    }
    describe(z, c, o);
    if (z->plan.via_host && moves_units(c)) {
        out(z, o);
        return ZERO_OK;
    }
    if (z->plan.device_apart && op->own && z->size == 1) {
        o->copies[0] = (struct device_copy){.to = (char *)op->data + z->rank * op->header.bytes,
                                            .from = op->own,
                                            .bytes = op->header.bytes};
        z->device->ops->copy(z->device, DEVICE_SUMS, &o->copies[0]);
        op->own = NULL;
    }
    return move(z, o, error);
}

/* ----------------------------------------------------------------- deadline */

/* The clock of deadlines between ranks. */
static double clock_seconds(const struct zero *z)
{
    return z->seams && z->seams->seconds ? z->seams->seconds() : seconds_now();
}

/* The next rank that o waits for, or -1. A program's communicator may answer what it will. */
static int missing(const struct zero *z, const struct operation *o, int from)
{
    int rank = z->comm->ops->missing(z->comm, &o->collective, from);
    return rank >= from && rank < z->size ? rank : -1;
}

/* Of several ranks that are missing, all but one may wait, too: for that one, which did not come
 * to an earlier collective. They are given time to say so. */
static int grace(const struct zero *z, const struct operation *o)
{
    int first = missing(z, o, 0);
    bool one = z->size == 2 || (first >= 0 && missing(z, o, first + 1) < 0);
    return one ? 0 : engine_grace(z);
}

static int overdue(const struct zero *z, const struct command *c, const struct operation *o,
                   struct error *error)
{
    char unit[32] = "", who[128] = "", where[PREFLIGHT_NODE + 24] = "";
    int ranks[ERROR_RANKS], count = 0;
    for (int r = -1; (r = missing(z, o, r + 1)) >= 0;)
        if (count++ < ERROR_RANKS)
            ranks[count - 1] = r;
    error_ranks(who, sizeof(who), ranks, count);
    if (z->node && count > 0)
        snprintf(where, sizeof(where), count == 1 ? " on %s" : " (the first on %s)",
                 z->node[ranks[0]]);
    if (c->unit >= 0)
        snprintf(unit, sizeof(unit), " of unit %d", c->unit);
    if (z->control && count == 0) /* what NCCL waits for it does not tell */
        return error_set(error, ZERO_ERR_DEADLINE,
                         "NCCL or a rank did not end the %s%s within %d s (rank %d waited). Set "
                         "NCCL_DEBUG=WARN for NCCL's reasons, look for what stopped a rank, or %s.",
                         c->name, unit, engine_deadline(z), z->rank, engine_deadline_advice(z));
    return error_set(error, ZERO_ERR_DEADLINE,
                     "%s%s%s did not arrive at the %s%s within %d s (rank %d waited). Look for "
                     "what stopped it, or %s.",
                     count == 0   ? "The other ranks"
                     : count == 1 ? "Rank "
                                  : "Ranks ",
                     who, where, c->name, unit, engine_deadline(z), z->rank,
                     engine_deadline_advice(z));
}

/* Whether c has taken too long while the caller waits, or while NCCL has it. Ranks start
 * collectives in one order, so the oldest is what another rank comes to next: younger ones are not
 * overdue before it. */
static bool too_long(struct zero *z, const struct command *c, const struct operation *o)
{
    double now = clock_seconds(z);
    if (z->oldest == 0) {
        z->oldest = c->sequence;
        z->with_ranks = (struct patience){.looked = now};
    }
    if (z->oldest != c->sequence)
        return false;
    /* What all have come to is NCCL's to do, whose kernels the caller may wait for in CUDA. */
    bool waits = queues_waited_for(z->queues) || (z->control && missing(z, o, 0) < 0);
    patience_look(&z->with_ranks, now, LOOK_SECONDS, waits);
    double over = z->with_ranks.seconds - engine_deadline(z);
    return over > 0 && over > grace(z, o);
}

/* ----------------------------------------------------------------- progress */

/* Whether the device has done its part; if not, whether it still can. */
static int done_on_device(struct zero *z, const struct operation *o, bool *done,
                          struct error *error)
{
    *done = copies_done(z, o->copies, 2);
    return *done ? ZERO_OK : z->device->ops->status(z->device, error);
}

/* What the device still does when ranks have moved all: its copies, and the sums that were appended
 * to its stream. A gather between GPUs is complete, and sums of a later unit are not waited for. */
static bool ends_on_device(const struct zero *z, const struct command *c)
{
    bool between = z->size > 1 && !z->plan.via_host;
    bool gather = c->kind == COMMAND_GATHER || c->kind == COMMAND_GATHER_SUMS;
    return z->plan.device_apart &&
           (c->kind == COMMAND_ACCUMULATE || (moves_units(c) && !(between && gather)));
}

/* Moved between ranks: what is left is the device's. */
static void in(struct zero *z, const struct command *c, struct operation *o)
{
    const struct zero_collective *op = &o->collective;
    o->state = OPERATION_IN;
    if (z->plan.via_host && op->header.kind == ZERO_COLLECTIVE_GATHER && moves_units(c))
        copy_append(z, DEVICE_TO_DEVICE_MEMORY, &o->copies[0], o->data, op->data,
                    z->size * op->header.bytes);
    else
        z->device->ops->mark(z->device, DEVICE_SUMS, &o->copies[1]);
}

static int test_moves(struct zero *z, struct command *c, struct operation *o, bool *done,
                      struct error *error)
{
    *done = c->kind == COMMAND_ACCUMULATE;
    if (*done)
        return ZERO_OK;
    int status = z->comm->ops->test(z->comm, &o->collective, done);
    if (status)
        return error_set(error, status, "%s", z->comm->error);
    if (!*done)
        return too_long(z, c, o) ? overdue(z, c, o, error) : ZERO_OK;
    if (z->oldest == c->sequence)
        z->oldest = 0;
    int64_t times = c->kind == COMMAND_BROADCAST ? (c->part == z->rank) * (z->size - 1)
                                                 : c->kind != COMMAND_EXCHANGE && z->size > 1;
    count(&z->sent_bytes, times * c->bytes);
    return ZERO_OK;
}

int collective_test(struct zero *z, struct command *c, bool *done, struct error *error)
{
    struct operation *o = &z->operations[c->resource];
    bool device = ends_on_device(z, c);
    *done = false;
    if (o->state == OPERATION_OUT) {
        bool out_there;
        if (done_on_device(z, o, &out_there, error) || !out_there)
            return error->status;
        return move(z, o, error);
    }
    if (o->state == OPERATION_MOVES) {
        if (test_moves(z, c, o, done, error) || !*done)
            return error->status;
        if (device)
            in(z, c, o);
    }
    if (device && done_on_device(z, o, done, error))
        return error->status;
    if (*done)
        o->state = OPERATION_FREE;
    return ZERO_OK;
}
