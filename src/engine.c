// SPDX-License-Identifier: Apache-2.0
/*
 * Creation and end of an engine. Creation goes through three doors, and at
 * each the ranks exchange how they fare, so that all learn of the first
 * failure: the model and configuration are the same everywhere; everything is
 * allocated; the initial values are in place, of a large model part by part.
 */
#include "src/engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "src/comm/comm.h"

int engine_wait(struct zero *z, struct ref ref)
{
    int status = queues_wait(z->queues, ref, &z->error);
    engine_tell_retries(z);
    return status;
}

static void mark(void *arg, int slot)
{
    struct zero *z = arg;
    z->device->ops->mark(z->device, DEVICE_COMPUTE, &z->marks[slot]);
}

int engine_device_failed(struct zero *z)
{
    return engine_wait(z, schedule_mark(&z->schedule));
}

int engine_wait_all(struct zero *z)
{
    for (int q = 0; q < QUEUES; q++)
        if (engine_wait(z, queues_tail(z->queues, (enum queue_id)q)))
            break;
    return z->error.status;
}

/* -------------------------------------------------------------- the first door */

static bool has_all_calls(const struct zero_comm *comm)
{
    const struct zero_comm_ops *o = comm->ops;
    return o && o->start && o->test && o->missing && o->abort && o->destroy;
}

static int take_comm(struct zero *z, struct zero_comm *comm)
{
    bool whole = has_all_calls(comm);
    if (!whole || comm->rank < 0 || comm->rank >= comm->size || comm->local_rank < 0 ||
        comm->local_rank >= comm->local_size || comm->local_size > comm->size)
        return error_set(&z->error, ZERO_ERR_ARGUMENT,
                         ".comm is rank %d of %d, %d of %d on its node, %s all calls. Pass a "
                         "communicator that is made as struct zero_comm says.",
                         comm->rank, comm->size, comm->local_rank, comm->local_size,
                         whole ? "with" : "without");
    if (comm->taken)
        return error_set(&z->error, ZERO_ERR_STATE,
                         ".comm is used by another engine. Destroy that one first, or make a "
                         "communicator for each.");
    z->comm = comm;
    comm->taken = true;
    return ZERO_OK;
}

/* How long the other ranks are waited for, of a config that is not judged yet. */
static int start_seconds(const struct zero_config *config)
{
    return config->deadline_seconds > 0 ? config->deadline_seconds : DEADLINE_SECONDS;
}

static int begin(struct zero *z, const struct zero_config *config)
{
    z->log = config->log ? config->log : engine_log_to_stderr;
    z->log_arg = config->log_arg;
    z->log_level = config->log_level;
    z->trace = config->trace;
    z->trace_arg = config->trace_arg;
    z->size = 1;
    if (config->comm
            ? take_comm(z, config->comm)
            : comm_default_create(config->device, start_seconds(config), &z->comm, &z->error))
        return z->error.status;
    z->owns_comm = !config->comm;
    z->rank = z->comm->rank;
    z->size = z->comm->size;
    z->muted = z->rank != 0 && z->log == engine_log_to_stderr;
    return ZERO_OK;
}

/* The folders of files and what their drives can do. */
static int find_paths(struct zero *z)
{
    enum probe_when when;
    if (probe_asked(&when, &z->error) ||
        spill_paths_split(&z->paths, z->plan.set.nvme_path, &z->error))
        return z->error.status;
    probe_paths(&z->probe, &z->paths, z->plan.file.total, when, &z->unprobed);
    if (when != PROBE_NOW)
        z->unprobed.status = ZERO_OK;
    return ZERO_OK;
}

int engine_plan(struct zero *z)
{
    return plan_make(&z->plan, &z->layout, &z->plan.set, &z->error) ||
                   plan_node(&z->plan.report, z->comm->local_size, &z->error)
               ? z->error.status
               : ZERO_OK;
}

static void describe(struct zero *z, const struct zero_param *params, int count,
                     const struct zero_config *config)
{
    if (settings_resolve(&z->plan.set, config, &z->error) ||
        layout_create(&z->layout, params, count, z->size, &z->error) || engine_plan(z) ||
        (z->plan.file.total > 0 && find_paths(z)))
        return;
    z->kernels = kernels_select(NULL, &z->error);
}

/* ------------------------------------------------------------- the second door */

/* Zeroed memory that lives as long as the engine. */
static void *table(struct zero *z, size_t n, size_t size)
{
    void *memory = calloc(n ? n : 1, size);
    assert(z->table_count < ENGINE_TABLES);
    z->tables[z->table_count++] = memory;
    if (!memory)
        error_set(&z->error, ZERO_ERR_MEMORY,
                  "No memory for a table of %zu entries of %zu bytes." ERROR_FREE_MEMORY, n, size);
    return memory;
}

static int make_tables(struct zero *z)
{
    const struct plan *p = &z->plan;
    const struct layout *l = &z->layout;
    struct error *e = &z->error;
    z->segments_max = p->set.param == ZERO_NVME ? plan_segments_max(p, l) : PARTS;
    size_t parts = (size_t)p->gather_slots * (size_t)z->segments_max;
    z->runs = table(z, (size_t)l->count, sizeof(*z->runs));
    z->adam = table(z, (size_t)l->groups, sizeof(*z->adam));
    z->update.adam = table(z, (size_t)l->groups, sizeof(*z->update.adam));
    z->verdict = table(z, (size_t)step_verdict_words(l), sizeof(*z->verdict));
    z->parts = table(z, (size_t)z->size, sizeof(*z->parts));
    if (z->size > 1 && !p->whole_state)
        z->passing = table(z, ENGINE_PASSING, sizeof(*z->passing));
    z->param_reads = table(z, parts, sizeof(*z->param_reads));
    z->param_copies = table(z, parts, sizeof(*z->param_copies));
    z->pipeline.slots = table(z, (size_t)p->chunk_slots, sizeof(*z->pipeline.slots));
    size_t chunk_parts = (size_t)p->chunk_slots * (size_t)l->units;
    z->chunk_param_copies = table(z, chunk_parts, sizeof(*z->chunk_param_copies));
    z->chunk_grad_copies = table(z, chunk_parts, sizeof(*z->chunk_grad_copies));
    z->sum_copies = table(z, 2 * (size_t)p->grad_slots, sizeof(*z->sum_copies));
    if (p->device_apart) {
        z->marks = table(z, QUEUE_MARKS + 1, sizeof(*z->marks));
        z->bounce_copies = table(z, (size_t)l->units + 1, sizeof(*z->bounce_copies));
    }
    if (e->status)
        return e->status;
    z->scaler = scaler_make(z->plan.set.loss_scale);
    z->run_count = plan_runs(p, l, z->rank, z->runs);
    if (schedule_create(&z->schedule, p, l, z->queues, e))
        return e->status;
    z->schedule.mark = mark;
    z->schedule.mark_arg = z;
    return ZERO_OK;
}

static int make_ring(struct zero *z)
{
    int64_t slots = z->plan.report.host.slots; /* the arena's end: all that is read and written */
    const struct ring_options options = {.event_fd = queues_event(z->queues),
                                         .base = z->arena.base + z->arena.bytes - slots,
                                         .bytes = slots,
                                         .files = &z->spill.stripes,
                                         .block = z->probe.block,
                                         .depth = z->probe.depth};
    struct ring **ring = &z->pipeline.ring;
    struct error refused = {0};
    if (z->seams && z->seams->ring)
        return z->seams->ring(z->seams->ring_arg, ring, &options, &z->error);
    if (z->plan.set.ring == ZERO_RING_POSIX)
        return ring_posix_create(ring, &options, &z->error);
    if (!ring_uring_create(ring, &options, &refused)) {
        struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
        getrlimit(RLIMIT_MEMLOCK, &limit);
        if (!(*ring)->registered)
            engine_warn_of_machine(
                z,
                "io_uring could not register %lld bytes of buffers: the limit on locked "
                "memory, which a user's processes share, is %lld KiB (ulimit -l; -1: "
                "none). Transfers take a little more CPU time.",
                (long long)slots,
                limit.rlim_cur == RLIM_INFINITY ? -1 : (long long)(limit.rlim_cur >> 10));
        return ZERO_OK;
    }
    if (z->plan.set.ring == ZERO_RING_URING || refused.status != ZERO_ERR_UNSUPPORTED)
        return error_set(&z->error, refused.status, "%s", refused.text);
    engine_warn_of_machine(z, "%s Using pread and pwrite instead.", refused.text);
    return ring_posix_create(ring, &options, &z->error);
}

/* Device memory, and host memory of which all that copies use is known to the device. */
static int make_memory(struct zero *z)
{
    const struct plan *p = &z->plan;
    struct error *e = &z->error;
    const struct device_options options = {.event_fd = queues_event(z->queues),
                                           .kernels = z->kernels,
                                           .stream = z->plan.set.stream,
                                           .threads = z->threads};
    int (*device)(struct device **, const struct device_options *, struct error *) =
        p->device_apart ? device_plugin_create : device_cpu_create;
    if (z->seams && z->seams->device)
        device = z->seams->device;
    if (device(&z->device, &options, e))
        return e->status;
    z->device_memory = z->device->ops->alloc(z->device, p->device.total, e);
    if (!z->device_memory || arena_create(&z->arena, p->host.total, z->threads, e))
        return e->status;
    z->device->room = z->device_memory + p->device.room;
    const struct zero_bytes *host = &p->report.host;
    struct error refused = {0};
    bool master = p->set.param == ZERO_NVME && p->shared; /* chunks that rest in memory */
    const int64_t crosses[][2] = {{0, host->params + host->grads + (master ? host->state : 0)},
                                  {host->total - host->slots, host->slots}};
    /* The second, often the smaller, may be had where the first is not. */
    for (int i = 0; i < 2; i++)
        if (crosses[i][1] > 0)
            z->device->ops->pin(z->device, z->arena.base + crosses[i][0], crosses[i][1], &refused);
    if (refused.status)
        engine_warn_of_machine(z, "%s", refused.text);
    return ZERO_OK;
}

/* The files, and what moves them. */
static int make_files(struct zero *z)
{
    const struct plan *p = &z->plan;
    const struct spill *spill = &z->spill;
    if (spill_create(&z->spill, &z->paths, probe_stripe(&z->probe), p->file.total, &z->error) ||
        make_ring(z))
        return z->error.status;
    z->pipeline.spill = spill;
    z->pipeline.sums = p->set.verify ? (void *)(z->arena.base + p->host.checks) : NULL;
    z->pipeline.again = engine_note_retry;
    z->pipeline.again_arg = z;
    z->pipeline.hasty = z->seams && z->seams->hasty;
    engine_log(z, ZERO_LOG_INFO, "%lld bytes in %s (%s%s) by %s, %d blocks of %d KiB at once%s%s.",
               (long long)spill->bytes, p->set.nvme_path, spill->type,
               spill->direct ? ", O_DIRECT" : "", z->pipeline.ring->ops->name, z->probe.depth,
               z->probe.block >> 10, z->probe.read > 0 ? ", as measured on these drives" : "",
               p->set.verify ? "; every page that is read is checked" : "");
    for (int i = 0; i < spill->stripes.files; i++)
        if (spill->file[i].bytes > 0 && !spill->file[i].direct)
            engine_warn_of_machine(
                z,
                "%s (%s) refuses O_DIRECT: its page cache takes memory and bandwidth, and a write "
                "that fails later is noticed only with --verify-spill (.verify_spill).",
                spill->file[i].path, spill->file[i].type);
    return ZERO_OK;
}

static int make_places(struct zero *z)
{
    const struct plan *p = &z->plan;
    struct error *e = &z->error;
    if (make_memory(z))
        return e->status;
    z->huge_bytes = arena_huge_bytes(&z->arena);
    numa_read(&z->numa, "", NULL);
    if (p->file.total > 0 && make_files(z))
        return e->status;
    return pool_create(&z->pool, z->threads, queues_event(z->queues), e);
}

/* -------------------------------------------------------------------- create */

/* There is no engine to tell the other ranks with: without this they would wait. */
static int no_engine(const struct zero_config *config)
{
    struct zero_comm *comm = config->comm;
    struct error unheard = {0};
    if (comm) {
        if (has_all_calls(comm) && !comm->taken)
            comm->ops->abort(comm, comm->sequence + 1);
    } else if (!comm_default_create(config->device, start_seconds(config), &comm, &unheard)) {
        comm->ops->abort(comm, comm->sequence + 1);
        comm->ops->destroy(comm);
    }
    return ZERO_ERR_MEMORY;
}

/* Initial values. All ranks hear soon of a fill that has failed. */
static int fill_all(struct zero *z)
{
    int64_t first = 0, end;
    do {
        end = engine_meeting_after(z, first);
        schedule_walk(&z->schedule, WALK_FILL, first, end);
        bool failed = engine_wait_all(z) != ZERO_OK;
        if (z->update.error.status && (!failed || z->update.refused)) /* of a fill: it came first */
            z->error = z->update.error; /* the ranks tell each other, within the deadline */
        if (failed)                     /* the queues, whose abort has told the others */
            return z->error.status;
        first = end;
    } while (!engine_agree(z, "initial values") && first < z->plan.chunks);
    z->settled = z->plan.live;
    return z->error.status;
}

int engine_create(struct zero **out, const struct zero_param *params, int count,
                  const struct zero_config *config, const struct engine_seams *seams)
{
    if (!out)
        return ZERO_ERR_ARGUMENT;
    /* Of a config that settings_resolve will refuse nothing is read. */
    static const struct zero_config nothing;
    bool whole = config && config->size == sizeof(*config);
    const struct zero_config *told = whole ? config : &nothing;
    struct zero *z = *out = calloc(1, sizeof(*z));
    if (!z)
        return no_engine(told);
    z->seams = seams;
    z->process = getpid();
    if (begin(z, told))
        return z->error.status;
    describe(z, params, count, config);
    int64_t chunks = z->error.status ? 0 : z->plan.chunks;
    if (chunks > PLAN_CHUNKS_AT_ONCE)
        chunks = PLAN_CHUNKS_AT_ONCE;
    struct error thread = {0};
    if (queues_create(&z->queues, chunks, &thread) ||
        queues_start(z->queues, &engine_queue_ops, z, &thread)) {
        z->comm->ops->abort(z->comm, z->comm->sequence + 1);
        return error_set(&z->error, thread.status, "%s", thread.text);
    }
    if (engine_meet(z))
        return z->error.status;
    if (!reach_connect(z) && !make_tables(z))
        make_places(z);
    if (engine_agree(z, "allocation"))
        return z->error.status;
    if (seams && seams->observe)
        queues_observe(z->queues, seams->observe, seams->observe_arg);
    z->created = !fill_all(z);
    z->step_io[0] = (struct zero_io){0}; /* the first step did not ask for them */
    if (z->created)
        engine_tell_order(z);
    return z->error.status;
}

/* COLLECTIVE, of engines that have not failed. Ranks that make another call where this one leaves
 * hear of it at once, and so does this one. The log hears of what the last call has not told. */
static void leave(struct zero *z)
{
    struct error error = z->failure, end = {0};
    bool well = z->created && !error.status && !queues_status(z->queues, &error);
    bool told = !z->created || (error.status && !strcmp(error.text, z->error.text));
    if (well && z->size > 1)
        engine_exchange(z, COMMAND_EXCHANGE, "zero_destroy", NULL, 0);
    queues_stop(z->queues, z->created, engine_disk_deadline(z) + engine_grace(z));
    engine_tell_retries(z);
    if (!told && queues_status(z->queues, &end)) /* what was under way has failed */
        engine_warn(z, "zero_destroy: %.440s", end.text);
}

void zero_destroy(struct zero *z)
{
    if (!z || z->process != getpid()) /* a fork: all of it is the parent's */
        return;
    bool busy = false;
    leave(z);
    for (int i = 0; i < ZERO_COLLECTIVES; i++)
        busy |= z->operations[i].state != OPERATION_FREE;
    if (busy) /* the other ranks expect more of this one */
        z->comm->ops->abort(z->comm, z->comm->sequence + 1);
    bool held = engine_is_held(z);
    if (held)
        engine_warn(
            z, "zero_destroy: transfers that were given up may still be under way, so the memory "
               "they use stays until the process ends.");
    if (z->control) {
        z->comm->ops->destroy(z->comm); /* it moves the device's memory */
        z->comm = z->control;
    }
    pool_destroy(z->pool);
    if (z->pipeline.ring)
        z->pipeline.ring->ops->destroy(z->pipeline.ring);
    if (z->device) {
        z->device->held = held;
        z->device->ops->destroy(z->device);
    }
    if (z->owns_comm) {
        comm_exit_deadline(engine_disk_deadline(z) + engine_grace(z) + 1); /* as leave() takes */
        z->comm->ops->destroy(z->comm);
    } else if (z->comm) {
        z->comm->taken = false;
    }
    schedule_destroy(&z->schedule);
    queues_destroy(z->queues);
    spill_destroy(&z->spill);
    layout_destroy(&z->layout);
    if (!held)
        arena_destroy(&z->arena);
    for (int i = 0; i < z->table_count && !held; i++)
        free(z->tables[i]);
    free(z->node);
    free(z);
}
