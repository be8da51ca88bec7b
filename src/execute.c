// SPDX-License-Identifier: Apache-2.0
/*
 * Commands become operations: what the engine thread does to start each kind
 * and how it sees that it is done. One switch to start, one to test; the
 * arithmetic is in params.c, grads.c and update.c.
 */
#include "src/engine.h"

#include <assert.h>

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
        op->header.bytes = z->layout.unit[c->unit].shard * z->plan.element;
        params_gather(z, c, op);
        break;
    case COMMAND_REDUCE:
        op->header.kind = ZERO_COLLECTIVE_REDUCE;
        op->header.bytes = z->layout.unit[c->unit].shard * z->plan.element;
        grads_reduce(z, c, o);
        break;
    case COMMAND_GATHER_SUMS:
        op->header.kind = ZERO_COLLECTIVE_GATHER;
        op->header.bytes = z->layout.unit[c->unit].shard * 4;
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
    return status ? error_set(error, status, "%s", z->comm->error) : ZERO_OK;
}

static int overdue(const struct zero *z, const struct command *c, const struct operation *o,
                   struct error *error)
{
    int missing = z->comm->ops->missing(z->comm, &o->collective);
    char unit[32] = "", who[32] = "the other ranks";
    if (c->unit >= 0)
        snprintf(unit, sizeof(unit), " of unit %d", c->unit);
    if (missing >= 0)
        snprintf(who, sizeof(who), "rank %d", missing);
    return error_set(error, ZERO_ERR_DEADLINE,
                     "%s did not arrive at the %s%s within %d s (rank %d waited). Look for what "
                     "stopped it, or raise .deadline_seconds.",
                     who, c->name, unit, z->set.deadline_seconds, z->rank);
}

static int test_collective(struct zero *z, struct command *c, bool *done, struct error *error)
{
    struct operation *o = &z->operations[c->resource];
    int status = z->comm->ops->test(z->comm, &o->collective, done);
    if (status)
        return error_set(error, status, "%s", z->comm->error);
    if (*done) {
        o->busy = false;
        count(&z->sent_bytes, c->kind == COMMAND_EXCHANGE ? 0 : c->bytes);
    } else if (queue_seconds() - c->started > z->set.deadline_seconds) {
        return overdue(z, c, o, error);
    }
    return ZERO_OK;
}

/* ------------------------------------------------------------- the disk */

static int start_record(struct zero *z, struct command *c, struct error *error)
{
    bool write = c->kind == COMMAND_STATE_WRITE;
    struct pipeline_slot *slot = &z->pipeline.slots[c->slot];
    if (write)
        pipeline_writing(slot);
    else
        pipeline_reading(slot, c->chunk);
    return pipeline_transfer(&z->pipeline, &slot->record, write,
                             update_record(z, c->chunk, c->slot), c->bytes,
                             plan_record_offset(&z->plan, c->chunk), error);
}

static int start_param_write(struct zero *z, struct command *c, struct error *error)
{
    struct pipeline_slot *slot = &z->pipeline.slots[c->slot];
    if (c->chunk >= z->plan.resident)
        pipeline_writing(slot);
    return pipeline_transfer(&z->pipeline, &slot->param, true,
                             z->arena.base + z->plan.host.chunk_param[c->slot], c->bytes,
                             plan_param_offset(&z->plan, c->chunk), error);
}

static int test_disk(struct zero *z, struct command *c, bool *done, struct error *error)
{
    struct pipeline_slot *slot = &z->pipeline.slots[c->slot];
    switch (c->kind) {
    case COMMAND_PARAM_READ:
        if (!pipeline_done(&z->pipeline, &z->fetches[c->slot * z->segments_max + c->part], done,
                           "Reading parameters, chunk", c->chunk, error) &&
            *done)
            count(&z->param_read_bytes, c->bytes);
        break;
    case COMMAND_STATE_READ:
        if (!pipeline_done(&z->pipeline, &slot->record, done, "Reading optimizer state, chunk",
                           c->chunk, error) &&
            *done) {
            pipeline_was_read(slot);
            count(&z->state_read_bytes, c->bytes);
        }
        break;
    case COMMAND_STATE_WRITE:
        if (!pipeline_done(&z->pipeline, &slot->record, done, "Writing optimizer state, chunk",
                           c->chunk, error) &&
            *done) {
            pipeline_was_written(slot);
            count(&z->state_written_bytes, c->bytes);
        }
        break;
    default:
        if (!pipeline_done(&z->pipeline, &slot->param, done, "Writing parameters, chunk", c->chunk,
                           error) &&
            *done) {
            if (c->chunk >= z->plan.resident)
                pipeline_was_written(slot);
            count(&z->param_written_bytes, c->bytes);
        }
    }
    return error->status;
}

/* ---------------------------------------------------------------- copies */

static struct device_copy *copies_of(struct zero *z, const struct command *c, int *n)
{
    *n = 1;
    switch (c->kind) {
    case COMMAND_COPY_PARAM:
        if (z->plan.set.param == ZERO_NVME)
            *n = z->segments_count[c->slot];
        return &z->param_copies[c->slot * z->segments_max];
    case COMMAND_COPY_PUBLISH:
        if (z->plan.compute == ZERO_HOST)
            *n = z->layout.units;
        return &z->publish_copies[c->slot * z->layout.units];
    case COMMAND_COPY_GRAD: return &z->grad_copies[c->slot];
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

static int start(void *arg, struct command *c, struct error *error)
{
    struct zero *z = arg;
    switch (c->kind) {
    case COMMAND_GATHER:
    case COMMAND_REDUCE:
    case COMMAND_GATHER_SUMS:
    case COMMAND_SUM:
    case COMMAND_BROADCAST:
    case COMMAND_EXCHANGE: return start_collective(z, c, error);
    case COMMAND_PARAM_READ: return params_fetch(z, c, error);
    case COMMAND_STATE_READ:
    case COMMAND_STATE_WRITE: return start_record(z, c, error);
    case COMMAND_PARAM_WRITE: return start_param_write(z, c, error);
    case COMMAND_UPDATE: update_start(z, c); break;
    case COMMAND_COPY_PARAM: params_copy(z, c); break;
    case COMMAND_COPY_PUBLISH: params_publish(z, c); break;
    case COMMAND_COPY_GRAD: grads_copy_chunk(z, c); break;
    case COMMAND_COPY_SUM_IN:
    case COMMAND_COPY_SUM_OUT: grads_copy_sum(z, c); break;
    }
    return error->status;
}

static int test(void *arg, struct command *c, bool *done, struct error *error)
{
    struct zero *z = arg;
    switch (c->queue) {
    case QUEUE_COMM: return test_collective(z, c, done, error);
    case QUEUE_PARAM_DISK:
    case QUEUE_STATE_DISK: return test_disk(z, c, done, error);
    case QUEUE_UPDATE:
        *done = pool_idle(z->pool);
        return *done ? update_finish(z, c, error) : ZERO_OK;
    default: *done = copied(z, c); return ZERO_OK;
    }
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
