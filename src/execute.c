// SPDX-License-Identifier: Apache-2.0
/*
 * Commands become operations: what the engine thread does to start each kind
 * and how it sees that it is done. One switch to start, one to test; the
 * arithmetic is in params.c, grads.c and update.c.
 */
#include "src/engine.h"

#include <assert.h>

#define LOOK_SECONDS 0.1 /* of a wait that are counted at once */

/* ---------------------------------------------------------- collectives */

static struct operation *free_operation(struct zero *z)
{
    for (int i = 0; i < ZERO_COLLECTIVES; i++)
        if (!z->operations[i].busy)
            return &z->operations[i];
    return NULL;
}

static void describe(struct zero *z, struct command *c, struct operation *o)
{
    struct zero_collective *op = &o->collective;
    op->header.bytes = c->bytes;
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

/* The clock of deadlines. */
static double clock_seconds(const struct zero *z)
{
    return z->seams && z->seams->seconds ? z->seams->seconds() : queue_seconds();
}

static int start_collective(struct zero *z, struct command *c, struct error *error)
{
    struct operation *o = free_operation(z);
    assert(o);
    *o = (struct operation){.busy = true, .engine = z};
    c->resource = (int)(o - z->operations);
    o->collective.header.sequence = ++z->comm->sequence;
    o->collective.header.unit = c->unit;
    o->collective.header.arguments = c->arguments;
    snprintf(o->collective.header.name, sizeof(o->collective.header.name), "%s", c->name);
    describe(z, c, o);
    int status = z->comm->ops->start(z->comm, &o->collective);
    if (!status)
        return ZERO_OK;
    z->comm->sequence--; /* it was not started: the abort tells the others so */
    return error_set(error, status, "%s", z->comm->error);
}

static int overdue(const struct zero *z, const struct command *c, const struct operation *o,
                   struct error *error)
{
    int missing = z->comm->ops->missing(z->comm, &o->collective);
    char unit[32] = "", who[32] = "The other ranks";
    bool set = __atomic_load_n(&z->deadline, __ATOMIC_RELAXED) != 0;
    if (c->unit >= 0)
        snprintf(unit, sizeof(unit), " of unit %d", c->unit);
    if (missing >= 0)
        snprintf(who, sizeof(who), "Rank %d", missing);
    return error_set(error, ZERO_ERR_DEADLINE,
                     "%s did not arrive at the %s%s within %d s (rank %d waited). Look for what "
                     "stopped it, or %s.",
                     who, c->name, unit, engine_deadline(z), z->rank,
                     set ? "give zero_set_deadline more" : "raise .deadline_seconds");
}

/* Another look at what is waited for. What passed since the last one counts up to
 * most, for a process that was stopped did not wait in it. */
static void look_again(struct patience *p, double now, double most, bool counts)
{
    double passed = now - p->looked;
    p->looked = now;
    if (counts)
        p->seconds += passed < most ? passed : most;
}

/* Whether the caller has waited too long for c. Ranks start collectives in one
 * order, so the oldest is what another rank comes to next: younger ones are not
 * overdue before it. */
static bool too_long(struct zero *z, const struct command *c)
{
    double now = clock_seconds(z);
    if (z->oldest == 0) {
        z->oldest = c->sequence;
        z->with_ranks = (struct patience){.looked = now};
    }
    if (z->oldest != c->sequence)
        return false;
    look_again(&z->with_ranks, now, LOOK_SECONDS, queues_waited_for(z->queues));
    return z->with_ranks.seconds > engine_deadline(z);
}

static int test_collective(struct zero *z, struct command *c, bool *done, struct error *error)
{
    struct operation *o = &z->operations[c->resource];
    int status = z->comm->ops->test(z->comm, &o->collective, done);
    if (status)
        return error_set(error, status, "%s", z->comm->error);
    if (*done) {
        o->busy = false;
        if (z->oldest == c->sequence)
            z->oldest = 0;
        bool sends = c->kind != COMMAND_BROADCAST || c->part == z->rank;
        count(&z->sent_bytes, sends && z->size > 1 && c->kind != COMMAND_EXCHANGE ? c->bytes : 0);
    } else if (too_long(z, c)) {
        return overdue(z, c, o, error);
    }
    return ZERO_OK;
}

/* ------------------------------------------------------------- the disk */

#define DISK_SECONDS_MIN  10 /* a deadline for ranks may be short; disks have their moments */
#define DISK_LOOK_SECONDS 2  /* of a wait that are counted at once: the thread looks each second */

/* Bytes that were moved, for all time and for the step that asked for them. */
static void account_io(struct zero *z, const struct command *c, int64_t bytes)
{
    struct zero_io *of[] = {&z->io, &z->step_io[c->step % STEPS_KEPT]};
    for (int i = 0; i < 2; i++) {
        switch (c->kind) {
        case COMMAND_PARAM_READ: count(&of[i]->param_read, bytes); break;
        case COMMAND_PARAM_WRITE: count(&of[i]->param_written, bytes); break;
        case COMMAND_STATE_WRITE: count(&of[i]->state_written, bytes); break;
        default: count(&of[i]->state_read, bytes); break; /* what an update reads */
        }
    }
}

static int start_record(struct zero *z, struct command *c, struct error *error)
{
    bool write = c->kind == COMMAND_STATE_WRITE;
    struct pipeline_slot *slot = &z->pipeline.slots[c->slot];
    if (write)
        pipeline_writing(slot);
    else
        pipeline_reading(slot, c->chunk);
    struct ring_request record = {.write = write,
                                  .buffer = update_record(z, c->chunk, c->slot),
                                  .bytes = c->bytes,
                                  .offset = plan_record_offset(&z->plan, c->chunk)};
    return pipeline_transfer(&z->pipeline, &slot->record, &record, error);
}

/* A chunk's parameters, to the file or from it. */
static int start_params(struct zero *z, struct command *c, struct error *error)
{
    struct pipeline_slot *slot = &z->pipeline.slots[c->slot];
    bool write = c->kind == COMMAND_PARAM_WRITE;
    if (write && plan_chunk_in_file(&z->plan, c->chunk))
        pipeline_writing(slot);
    struct ring_request params = {.write = write,
                                  .buffer = z->arena.base + z->plan.host.chunk_param[c->slot],
                                  .bytes = c->bytes,
                                  .offset = plan_param_offset(&z->plan, c->chunk)};
    return pipeline_transfer(&z->pipeline, &slot->param, &params, error);
}

/* The disk is overdue when it moves nothing for too long. What the transfer is
 * doing with memory goes on: the ring's end waits for it. */
static int disk_overdue(struct zero *z, const struct command *c, const char *what,
                        struct error *error)
{
    int limit = z->set.deadline_seconds;
    if (limit < DISK_SECONDS_MIN)
        limit = DISK_SECONDS_MIN;
    look_again(&z->with_disk, queue_seconds(), DISK_LOOK_SECONDS, true);
    if (z->with_disk.seconds <= limit)
        return ZERO_OK;
    return error_set(error, ZERO_ERR_IO,
                     "%s %lld: the disk has not answered for %d s. File in %s (%s). Look for what "
                     "holds it up (dmesg), or raise .deadline_seconds.",
                     what, (long long)c->chunk, limit, z->spill.path, z->spill.type);
}

static int test_disk(struct zero *z, struct command *c, bool *done, struct error *error)
{
    static const char *const what[COMMANDS] = {
        [COMMAND_PARAM_READ] = "Reading parameters, chunk",
        [COMMAND_PARAM_FETCH] = "Reading parameters for an update, chunk",
        [COMMAND_PARAM_WRITE] = "Writing parameters, chunk",
        [COMMAND_STATE_READ] = "Reading optimizer state, chunk",
        [COMMAND_STATE_WRITE] = "Writing optimizer state, chunk",
    };
    struct pipeline_slot *slot = &z->pipeline.slots[c->slot];
    bool record = c->kind == COMMAND_STATE_READ || c->kind == COMMAND_STATE_WRITE;
    struct transfer *t = record ? &slot->record : &slot->param;
    if (c->kind == COMMAND_PARAM_READ)
        t = &z->fetches[c->slot * z->segments_max + c->part];
    if (pipeline_done(&z->pipeline, t, done, what[c->kind], c->chunk, error))
        return error->status;
    if (!*done)
        return disk_overdue(z, c, what[c->kind], error);
    z->with_disk.seconds = 0;
    if (c->kind == COMMAND_STATE_READ)
        pipeline_was_read(slot);
    else if (c->kind == COMMAND_STATE_WRITE ||
             (c->kind == COMMAND_PARAM_WRITE && plan_chunk_in_file(&z->plan, c->chunk)))
        pipeline_was_written(slot);
    account_io(z, c, t->request.completed);
    return ZERO_OK;
}

/* ---------------------------------------------------------------- copies */

static struct device_copy *copies_of(struct zero *z, const struct command *c, int *n)
{
    *n = 1;
    switch (c->kind) {
    case COMMAND_COPY_PARAM:
        *n = z->plan.set.param == ZERO_NVME ? z->segments_count[c->slot] : PARTS;
        return &z->param_copies[c->slot * z->segments_max];
    case COMMAND_COPY_FETCH:
    case COMMAND_COPY_PUBLISH:
        *n = z->plan.compute == ZERO_HOST ? z->layout.units : 1;
        return &z->chunk_param_copies[c->slot * z->layout.units];
    case COMMAND_COPY_GRAD:
        *n = z->plan.set.local ? z->layout.units : 1;
        return &z->chunk_grad_copies[c->slot * z->layout.units];
    case COMMAND_COPY_SUM_IN: return &z->sum_copies[2 * c->slot];
    default: return &z->sum_copies[2 * c->slot + 1];
    }
}

static bool copied(struct zero *z, const struct command *c)
{
    int n;
    const struct device_copy *copies = copies_of(z, c, &n);
    for (int i = 0; i < n; i++)
        if (!z->device->ops->copied(z->device, &copies[i]))
            return false;
    return true;
}

/* ------------------------------------------------------------ the switches */

static_assert((int)QUEUES == (int)ZERO_LANES && (int)QUEUE_TO_HOST == (int)ZERO_LANE_TO_HOST,
              "a queue is what the public interface calls a lane");

static bool ready(void *arg, const struct command *c)
{
    struct zero *z = arg;
    switch (c->queue) {
    case QUEUE_COMM: return free_operation(z) != NULL;
    case QUEUE_PARAM_DISK:
    case QUEUE_STATE_DISK: return pipeline_room(&z->pipeline);
    case QUEUE_UPDATE: return !z->update.running;
    default: return true;
    }
}

static int begin(struct zero *z, struct command *c, struct error *error)
{
    switch (c->kind) {
    case COMMAND_GATHER:
    case COMMAND_REDUCE:
    case COMMAND_GATHER_SUMS:
    case COMMAND_SUM:
    case COMMAND_BROADCAST:
    case COMMAND_EXCHANGE: return start_collective(z, c, error);
    case COMMAND_ACCUMULATE: grads_accumulate(z, c); break;
    case COMMAND_PARAM_READ: return params_fetch(z, c, error);
    case COMMAND_STATE_READ:
    case COMMAND_STATE_WRITE: return start_record(z, c, error);
    case COMMAND_PARAM_FETCH:
    case COMMAND_PARAM_WRITE: return start_params(z, c, error);
    case COMMAND_UPDATE: update_start(z, c); break;
    case COMMAND_COPY_PARAM: params_copy(z, c); break;
    case COMMAND_COPY_FETCH:
    case COMMAND_COPY_PUBLISH: params_copy_chunk(z, c); break;
    case COMMAND_COPY_GRAD: grads_copy_chunk(z, c); break;
    case COMMAND_COPY_SUM_IN:
    case COMMAND_COPY_SUM_OUT: grads_copy_sum(z, c); break;
    case COMMANDS: assert(false);
    }
    return error->status;
}

static void lane_begin(struct lane *lane, const struct command *c)
{
    if (lane->under_way++ == 0)
        lane->since = c->started;
}

static void lane_end(struct lane *lane, const struct command *c, double now)
{
    count(&lane->bytes, c->bytes);
    if (--lane->under_way == 0)
        count(&lane->busy_ns, (int64_t)(1e9 * (now - lane->since)));
}

static bool moves_files(const struct command *c)
{
    return c->queue == QUEUE_PARAM_DISK || c->queue == QUEUE_STATE_DISK;
}

static int start(void *arg, struct command *c, struct error *error)
{
    struct zero *z = arg;
    lane_begin(&z->lanes[c->queue], c);
    if (moves_files(c))
        lane_begin(&z->files, c);
    return begin(z, c, error);
}

/* c is done: what its lane has to tell. */
static void account(struct zero *z, const struct command *c)
{
    double now = queue_seconds();
    lane_end(&z->lanes[c->queue], c, now);
    if (moves_files(c))
        lane_end(&z->files, c, now);
    if (!z->trace)
        return;
    struct zero_span span = {.lane = (enum zero_lane)c->queue,
                             .name = command_name(c->kind),
                             .unit = c->unit,
                             .chunk = c->chunk,
                             .bytes = c->bytes,
                             .step = c->step,
                             .begin = c->started,
                             .end = now};
    z->trace(z->trace_arg, &span);
}

static int look(struct zero *z, struct command *c, bool *done, struct error *error)
{
    switch (c->queue) {
    case QUEUE_COMM:
        *done = c->kind == COMMAND_ACCUMULATE; /* was done when it was begun */
        return *done ? ZERO_OK : test_collective(z, c, done, error);
    case QUEUE_PARAM_DISK:
    case QUEUE_STATE_DISK: return test_disk(z, c, done, error);
    case QUEUE_UPDATE:
        *done = pool_idle(z->pool);
        return *done ? update_finish(z, c, error) : ZERO_OK;
    default: *done = copied(z, c); return ZERO_OK;
    }
}

static int test(void *arg, struct command *c, bool *done, struct error *error)
{
    struct zero *z = arg;
    int status = look(z, c, done, error);
    if (!status && *done)
        account(z, c);
    return status;
}

static void poll(void *arg)
{
    struct zero *z = arg;
    pipeline_poll(&z->pipeline);
}

static void failed(void *arg)
{
    struct zero *z = arg;
    z->comm->ops->abort(z->comm, z->comm->sequence + 1);
    if (z->pool)
        pool_wait(z->pool);
}

const struct queue_ops engine_queue_ops = {
    .ready = ready,
    .start = start,
    .test = test,
    .poll = poll,
    .failed = failed,
};
