// SPDX-License-Identifier: Apache-2.0
/*
 * Commands become operations: what the engine thread does to start each kind
 * and how it sees that it is done. One switch to start, one to test; what is
 * between ranks is in collective.c, the arithmetic in params.c, grads.c and update.c.
 */
#include "src/engine.h"

#include <assert.h>

#include "src/clock.h"

/* ------------------------------------------------------------- the disk */

#define DISK_LOOK_SECONDS 2 /* of a wait that are counted at once: the thread looks each second */

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

/* What follows c, from its start until it is done. */
static struct transfer *transfer_of(struct zero *z, const struct command *c)
{
    switch (c->kind) {
    case COMMAND_PARAM_READ: return &z->param_reads[c->slot * z->segments_max + c->part];
    case COMMAND_STATE_READ:
    case COMMAND_STATE_WRITE: return &z->pipeline.slots[c->slot].record;
    default: return &z->pipeline.slots[c->slot].param;
    }
}

/* Nothing more is written of a model whose fills have failed: it is refused soon. */
static int start_transfer(struct zero *z, struct transfer *t, const struct ring_request *request,
                          struct error *error)
{
    if (!request->write || !z->update.refused)
        return pipeline_transfer(&z->pipeline, t, request, error);
    *t = (struct transfer){.request.write = true, .done = true};
    return ZERO_OK;
}

static int start_record(struct zero *z, struct command *c, struct error *error)
{
    bool write = c->kind == COMMAND_STATE_WRITE;
    pipeline_enter(&z->pipeline.slots[c->slot], write ? PIPELINE_WRITING : PIPELINE_READING,
                   c->chunk);
    struct ring_request record = {.write = write,
                                  .buffer = update_record(z, c->chunk, c->slot),
                                  .bytes = c->bytes,
                                  .offset = plan_record_offset(&z->plan, c->chunk)};
    return start_transfer(z, transfer_of(z, c), &record, error);
}

/* A chunk's parameters, to the file or from it. */
static int start_params(struct zero *z, struct command *c, struct error *error)
{
    bool write = c->kind == COMMAND_PARAM_WRITE;
    if (write && plan_chunk_in_file(&z->plan, c->chunk))
        pipeline_enter(&z->pipeline.slots[c->slot], PIPELINE_WRITING, c->chunk);
    struct ring_request params = {.write = write,
                                  .buffer = z->arena.base + z->plan.host.chunk_param[c->slot],
                                  .bytes = c->bytes,
                                  .offset = plan_param_offset(&z->plan, c->chunk)};
    return start_transfer(z, transfer_of(z, c), &params, error);
}

/* The disk is overdue when it moves nothing for too long. What the transfer is
 * doing with memory goes on: the ring's end waits for it. */
static int disk_overdue(struct zero *z, const struct command *c, const char *what,
                        struct error *error)
{
    int limit = engine_disk_deadline(z);
    patience_look(&z->with_disk, seconds_now(), DISK_LOOK_SECONDS, true);
    if (z->with_disk.seconds <= limit)
        return ZERO_OK;
    return error_set(error, ZERO_ERR_IO,
                     "%s %lld: the disk has not answered for %d s. Look for what holds it up "
                     "(dmesg), or %s. File in %s (%s).",
                     what, (long long)c->chunk, limit, engine_deadline_advice(z),
                     z->plan.set.nvme_path, z->spill.type);
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
    struct transfer *t = transfer_of(z, c);
    if (pipeline_done(&z->pipeline, t, done, what[c->kind], c->chunk, error))
        return error->status;
    if (*done || pipeline_moves(t))
        z->with_disk.seconds = 0;
    if (!*done)
        return disk_overdue(z, c, what[c->kind], error);
    if (c->kind == COMMAND_STATE_READ)
        pipeline_enter(slot, PIPELINE_READ, c->chunk);
    else if (c->kind == COMMAND_STATE_WRITE ||
             (c->kind == COMMAND_PARAM_WRITE && plan_chunk_in_file(&z->plan, c->chunk)))
        pipeline_was_written(slot);
    account_io(z, c, t->request.completed);
    return ZERO_OK;
}

/* ---------------------------------------------------------------- copies */

void copy_append(struct zero *z, enum device_stream stream, struct device_copy *copy, void *device,
                 void *host, int64_t bytes)
{
    bool in = stream == DEVICE_TO_DEVICE_MEMORY;
    assert(in || stream == DEVICE_TO_HOST_MEMORY);
    *copy = (struct device_copy){
        .to = in ? device : host, .from = in ? host : device, .bytes = bytes, .done = bytes == 0};
    if (bytes == 0)
        return;
    count(in ? &z->to_device_bytes : &z->to_host_bytes, bytes);
    z->device->ops->copy(z->device, stream, copy);
}

int copy_by_unit(struct zero *z, const struct command *c, struct device_copy *copies,
                 enum device_stream stream, char *slot, rest_fn *rest, int64_t element)
{
    const struct plan *p = &z->plan;
    enum part_kind kind = plan_chunk_frozen(p, c->chunk) ? PART_FROZEN : PART_LIVE;
    int64_t begin = c->chunk * p->chunk, end = begin + plan_chunk_count(p, c->chunk);
    int n = 0;
    for (int u = 0; u < z->layout.units; u++) {
        int64_t a = plan_part_begin(p, &z->layout, u, kind);
        int64_t b = a + plan_part_count(p, &z->layout, u, kind);
        a = a > begin ? a : begin;
        b = b < end ? b : end;
        if (a < b)
            copy_append(z, stream, &copies[n++], rest(z, u, a), slot + (a - begin) * element,
                        (b - a) * element);
    }
    return n;
}

bool copies_done(const struct zero *z, const struct device_copy *copies, int n)
{
    for (int i = 0; i < n; i++)
        if (!z->device->ops->copied(z->device, &copies[i]))
            return false;
    return true;
}

/* What follows c, which is c->resource copies, from its start until it is done. */
static struct device_copy *copies_of(const struct zero *z, const struct command *c)
{
    switch (c->kind) {
    case COMMAND_COPY_PARAM: return &z->param_copies[c->slot * z->segments_max];
    case COMMAND_COPY_FETCH:
    case COMMAND_COPY_PUBLISH: return &z->chunk_param_copies[c->slot * z->layout.units];
    case COMMAND_COPY_GRAD: return &z->chunk_grad_copies[c->slot * z->layout.units];
    case COMMAND_COPY_SUM_IN: return &z->sum_copies[2 * c->slot];
    case COMMAND_MARK: return &z->marks[c->slot];
    default: return &z->sum_copies[2 * c->slot + 1];
    }
}

/* ------------------------------------------------------------ the switches */

static_assert((int)QUEUE_MARK == (int)ZERO_LANES && (int)QUEUE_TO_HOST == (int)ZERO_LANE_TO_HOST,
              "a queue but that of marks is what the public interface calls a lane");

static bool ready(void *arg, const struct command *c)
{
    struct zero *z = arg;
    switch (c->queue) {
    case QUEUE_COMM: return collective_ready(z, c);
    case QUEUE_PARAM_DISK:
    case QUEUE_STATE_DISK: return pipeline_room(&z->pipeline);
    case QUEUE_UPDATE: return update_ready(z, c);
    default: return true;
    }
}

static int begin(struct zero *z, struct command *c, struct error *error)
{
    switch (c->kind) {
    case COMMAND_PARAM_READ: return params_read(z, c, transfer_of(z, c), error);
    case COMMAND_STATE_READ:
    case COMMAND_STATE_WRITE: return start_record(z, c, error);
    case COMMAND_PARAM_FETCH:
    case COMMAND_PARAM_WRITE: return start_params(z, c, error);
    case COMMAND_UPDATE: update_start(z, c); break;
    case COMMAND_COPY_PARAM: c->resource = params_copy(z, c, copies_of(z, c)); break;
    case COMMAND_COPY_FETCH:
    case COMMAND_COPY_PUBLISH: c->resource = params_copy_chunk(z, c, copies_of(z, c)); break;
    case COMMAND_COPY_GRAD: c->resource = grads_copy_chunk(z, c, copies_of(z, c)); break;
    case COMMAND_COPY_SUM_IN:
    case COMMAND_COPY_SUM_OUT: c->resource = grads_copy_sum(z, c, copies_of(z, c)); break;
    case COMMAND_MARK: c->resource = 1; break;     /* was made when it was appended */
    default: return collective_start(z, c, error); /* between ranks */
    }
    return error->status;
}

static void lane_begin(struct lane *lane, const struct command *c)
{
    if (lane->under_way++ == 0)
        lane->since = c->started;
}

/* Bytes and time go on together, also while others are under way: whoever looks twice sees the
 * time that the bytes between took. */
static void lane_end(struct lane *lane, const struct command *c, double now)
{
    count(&lane->bytes, c->bytes);
    count(&lane->busy_ns, (int64_t)(1e9 * (now - lane->since)));
    lane->since = now;
    lane->under_way--;
}

static bool moves_files(const struct command *c)
{
    return c->queue == QUEUE_PARAM_DISK || c->queue == QUEUE_STATE_DISK;
}

static int start(void *arg, struct command *c, struct error *error)
{
    struct zero *z = arg;
    lane_begin(&z->lanes[c->queue], c);
    if (moves_files(c)) {
        if (z->files.under_way == 0) /* until now nobody has waited for a disk */
            z->with_disk = (struct patience){.looked = c->started};
        lane_begin(&z->files, c);
    }
    return begin(z, c, error);
}

/* c is done: what its lane has to tell. */
static void account(struct zero *z, const struct command *c)
{
    double now = seconds_now();
    lane_end(&z->lanes[c->queue], c, now);
    if (moves_files(c))
        lane_end(&z->files, c, now);
    if (!z->trace || c->queue == QUEUE_MARK)
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
    kernels_thread_init();
}

static int look(struct zero *z, struct command *c, bool *done, struct error *error)
{
    switch (c->queue) {
    case QUEUE_COMM: return collective_test(z, c, done, error);
    case QUEUE_PARAM_DISK:
    case QUEUE_STATE_DISK: return test_disk(z, c, done, error);
    case QUEUE_UPDATE: return update_test(z, c, done, error);
    default: *done = copies_done(z, copies_of(z, c), c->resource);
    }
    return *done ? ZERO_OK : z->device->ops->status(z->device, error);
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
    pool_destroy(z->pool); /* behind the jobs under way; there will be no other */
    z->pool = NULL;
}

const struct queue_ops engine_queue_ops = {
    .ready = ready,
    .start = start,
    .test = test,
    .poll = poll,
    .failed = failed,
};
