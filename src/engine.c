// SPDX-License-Identifier: Apache-2.0
/*
 * Creation and end of an engine. Creation goes through three doors, and at
 * each the ranks exchange how they fare, so that all learn of the first
 * failure: the model and configuration are the same everywhere; everything is
 * allocated; the initial values are in place, of a large model part by part.
 */
#include "src/engine.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "offload/groups.h"
#include "src/comm/comm.h"

/* ------------------------------------------------------------------- the log */

/* Written whole: glibc since 2.37 prints to standard error by 128 bytes, and other ranks'
 * lines come between those. */
static void log_to_stderr(void *arg, enum zero_log_level level, const char *line)
{
    char text[600];
    (void)arg;
    snprintf(text, sizeof(text), "libzero: %s%s\n", level == ZERO_LOG_WARNING ? "warning: " : "",
             line);
    fputs(text, stderr);
}

/* A line; behind this rank's number where it is named. */
__attribute__((format(printf, 4, 0))) static void
tell(const struct zero *z, enum zero_log_level level, bool named, const char *format, va_list args)
{
    char line[512];
    int used = named ? snprintf(line, sizeof(line), "rank %d: ", z->rank) : 0;
    vsnprintf(line + used, sizeof(line) - (size_t)used, format, args);
    if (z->log_level != ZERO_LOG_SILENT && level <= z->log_level)
        z->log(z->log_arg, level, line);
}

void engine_log(const struct zero *z, enum zero_log_level level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!z->muted)
        tell(z, level, false, format, args);
    va_end(args);
}

/* A warning that is every rank's own affair. */
__attribute__((format(printf, 2, 3))) static void warn(const struct zero *z, const char *format,
                                                       ...)
{
    va_list args;
    va_start(args, format);
    tell(z, ZERO_LOG_WARNING, true, format, args);
    va_end(args);
}

/* A warning of this node or of a rank's folders: the first rank that has them says it. */
__attribute__((format(printf, 2, 3))) static void warn_of_machine(const struct zero *z,
                                                                  const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!z->echoes)
        tell(z, ZERO_LOG_WARNING, z->rank != 0, format, args);
    va_end(args);
}

/* A transfer is tried again. The log is the caller's thread's, so this one
 * leaves a note, or where the caller has not read those before, counts. */
static void note_retry(void *arg, const char *sentence)
{
    struct zero *z = arg;
    struct retries *r = &z->retries;
    if (r->noted - __atomic_load_n(&r->told, __ATOMIC_ACQUIRE) < RETRIES_NOTED) {
        snprintf(r->text[r->noted % RETRIES_NOTED], sizeof(*r->text), "%s", sentence);
        __atomic_store_n(&r->noted, r->noted + 1, __ATOMIC_RELEASE);
    } else {
        count(&r->lost, 1);
    }
}

/* Tells the log what the engine thread has noted. */
static void tell_retries(struct zero *z)
{
    struct retries *r = &z->retries;
    int64_t noted = __atomic_load_n(&r->noted, __ATOMIC_ACQUIRE), lost = counted(&r->lost);
    for (; r->told < noted; __atomic_store_n(&r->told, r->told + 1, __ATOMIC_RELEASE))
        warn(z, "%s", r->text[r->told % RETRIES_NOTED]);
    if (lost == r->lost_told)
        return;
    warn(z, "%lld more transfers failed and were tried again.", (long long)(lost - r->lost_told));
    r->lost_told = lost;
}

/* ------------------------------------------------------------ all ranks agree */

/* A rank that has failed tells of that alone. */
static void introduce(struct zero *z, struct introduction *me)
{
    if (!z->error.status) {
        const struct preflight_need need = {
            .arena = z->plan.host.total,
            .device = z->plan.device_apart ? 0 : z->plan.device.total,
            .program = z->plan.set.program_bytes,
            .files = z->plan.file.total,
        };
        me->model = layout_hash(&z->layout);
        me->tensors = z->layout.count;
        settings_share(&z->plan.set, me->settings);
        sched_getaffinity(0, sizeof(me->cpus), me->cpus);
        me->quota = groups_cpus("", &me->quota_group);
        preflight_collect(&me->facts, "", &need, &z->paths, probe_stripe(&z->probe));
        reach_introduce(z, &me->reach);
    }
    me->error = z->error;
}

/* The CPUs this rank may use, divided by the node's ranks that may use some of them too; more
 * threads than a quota of CPU time is worth would be stopped, all at once, time and again. */
static int share_of_cpus(const struct introduction *all, int size, int rank)
{
    const struct introduction *me = &all[rank];
    int ranks = 0, sharers = 0;
    for (int r = 0; r < size; r++) {
        cpu_set_t both[sizeof(me->cpus) / sizeof(*me->cpus)];
        bool near = preflight_same_node(&all[r].facts, &me->facts);
        CPU_AND_S(sizeof(both), both, all[r].cpus, me->cpus);
        ranks += near && CPU_COUNT_S(sizeof(both), both) > 0;
        sharers += near && all[r].quota_group == me->quota_group;
    }
    int threads = ranks ? CPU_COUNT_S(sizeof(me->cpus), me->cpus) / ranks : 1;
    if (me->quota && me->quota / sharers < threads)
        threads = me->quota / sharers;
    return threads > 1024 ? 1024 : threads > 1 ? threads : 1;
}

/* Whether a rank before this one, of the same node, has its files on the same file systems. */
static bool another_warns(const struct introduction *all, int rank)
{
    const struct preflight_facts *me = &all[rank].facts;
    for (int r = 0; r < rank; r++)
        if (preflight_same_node(&all[r].facts, me) && preflight_same_folders(&all[r].facts, me))
            return true;
    return false;
}

/* Whether memory may still be moved from or to, by transfers that were given up. */
static bool is_held(const struct zero *z)
{
    return (z->comm && z->comm->holds) || (z->control && z->control->holds);
}

/* A part for each rank; without memory this rank does not come to the next exchange. */
static void *parts_alloc(struct zero *z, size_t bytes)
{
    void *parts = calloc((size_t)z->size, bytes);
    if (!parts) {
        z->comm->ops->abort(z->comm, z->comm->sequence + 1);
        error_set(&z->error, ZERO_ERR_MEMORY,
                  "No memory for messages of %d ranks." ERROR_FREE_MEMORY, z->size);
    }
    return parts;
}

/* The first tensor that rank other describes otherwise than rank 0. A rank's hashes end with
 * zeros where another has more tensors. All go to all ranks: 8 bytes a tensor, once. */
static int odd_tensor(struct zero *z, const struct introduction *all, int other)
{
    int most = 0, odd = 0;
    for (int r = 0; r < z->size; r++)
        most = all[r].tensors > most ? all[r].tensors : most;
    uint64_t *hash = parts_alloc(z, (size_t)most * sizeof(*hash));
    if (!hash)
        return 0;
    uint64_t *mine = hash + (int64_t)z->rank * most, *theirs = hash + (int64_t)other * most;
    for (int i = 0; i < z->layout.count; i++)
        mine[i] = layout_tensor_hash(&z->layout.tensors[i]);
    if (!engine_exchange(z, COMMAND_EXCHANGE, "tensors", hash, most * (int64_t)sizeof(*hash)))
        while (odd < most - 1 && hash[odd] == theirs[odd])
            odd++;
    free(hash);
    return odd;
}

/* COLLECTIVE. Says which tensor of rank other it is. */
static void model_differs(struct zero *z, const struct introduction *all, int other)
{
    char(*words)[160] = NULL;
    int odd = odd_tensor(z, all, other);
    if (z->error.status || !(words = parts_alloc(z, sizeof(*words))))
        return;
    snprintf(words[z->rank], sizeof(*words), "missing");
    if (odd < z->layout.count)
        layout_tensor_text(&z->layout.tensors[odd], words[z->rank], sizeof(*words));
    if (!engine_exchange(z, COMMAND_EXCHANGE, "tensor", words, sizeof(*words)))
        error_set(&z->error, ZERO_ERR_MISMATCH,
                  "Rank %d describes another model than rank 0: params[%d] is '%s' there and '%s' "
                  "on rank 0. Make names, shapes, units, groups, flags and fills equal on all "
                  "ranks.",
                  other, odd, words[other], words[0]);
    free(words);
}

/* Keeps what messages call the ranks' nodes, where there are several. */
static void nodes_keep(struct zero *z, const struct introduction *all)
{
    bool several = false;
    for (int r = 0; r < z->size; r++)
        several |= strcmp(all[r].facts.name, all->facts.name) != 0;
    if (several)
        z->node = parts_alloc(z, sizeof(*z->node));
    for (int r = 0; r < z->size && z->node; r++)
        memcpy(z->node[r], all[r].facts.name, sizeof(*z->node));
}

/* Of ranks none of which has failed. */
static void judge(struct zero *z, struct introduction *all)
{
    const struct introduction *me = &all[z->rank];
    const struct preflight_ranks ranks = {&all->facts, sizeof(*all), z->size};
    char warning[PREFLIGHT_TEXT];
    for (int r = 0; r < z->size && !z->error.status; r++)
        if (all[r].model != all->model)
            model_differs(z, all, r);
    for (int r = 0; r < z->size && !z->error.status; r++)
        settings_compare(me->settings, z->rank, all[r].settings, r, &z->error);
    if (!z->error.status && me->reach.asked)
        z->linked = reach_choose(z, all);
    for (int r = 0; r < z->size && z->linked; r++)
        preflight_shrink(&all[r].facts, all[r].reach.staging);
    z->echoes = z->log == log_to_stderr && another_warns(all, z->rank);
    nodes_keep(z, all);
    if (!z->error.status)
        preflight_judge(&ranks, &z->error);
    if (!z->error.status && preflight_warning(&me->facts, warning))
        warn_of_machine(z, "%s", warning);
    if (z->unprobed.status)
        warn_of_machine(z, "ZERO_PROBE=1, but the defaults are used: %.400s", z->unprobed.text);
    int threads = z->plan.set.threads;
    z->threads = threads ? threads : share_of_cpus(all, z->size, z->rank);
}

/* Through memory of its own, which stays where a transfer that was given up may still move it. */
int engine_exchange(struct zero *z, enum command_kind kind, const char *what, void *data,
                    int64_t bytes)
{
    size_t all = (size_t)bytes * (kind == COMMAND_EXCHANGE ? (size_t)z->size : 1);
    struct command c = {.kind = kind,
                        .unit = -1,
                        .chunk = -1,
                        .slot = -1,
                        .bytes = bytes,
                        .name = what,
                        .step = z->schedule.step,
                        .arguments = z->schedule.calls};
    struct error failure = {0};
    if (all && !(c.data = parts_alloc(z, (size_t)bytes)))
        return z->error.status;
    if (all)
        memcpy(c.data, data, all);
    if (queues_wait(z->queues, queues_append(z->queues, QUEUE_COMM, &c), &failure))
        error_set(&z->error, failure.status, "%s", failure.text);
    else if (all)
        memcpy(data, c.data, all);
    if (!is_held(z))
        free(c.data);
    return failure.status;
}

/* Of parts that each begin with a rank's error the first one is all ranks'. */
static void hear(struct zero *z, const void *all, size_t part)
{
    for (int r = 0; r < z->size && !z->error.status; r++) {
        const struct error *theirs = (const void *)((const char *)all + (size_t)r * part);
        if (theirs->status)
            error_set(&z->error, theirs->status, "Rank %d: %s", r, theirs->text);
    }
}

/* The ranks tell each other what they are, and whether they have failed so far. */
static int meet(struct zero *z)
{
    struct introduction *all = parts_alloc(z, sizeof(*all));
    if (!all)
        return z->error.status;
    introduce(z, &all[z->rank]);
    if (!engine_exchange(z, COMMAND_EXCHANGE, "zero_create", all, sizeof(*all))) {
        hear(z, all, sizeof(*all));
        if (!z->error.status)
            judge(z, all);
    }
    free(all);
    return z->error.status;
}

/* All ranks learn of the first that has failed. */
static int agree(struct zero *z, const char *what)
{
    struct error *all = parts_alloc(z, sizeof(*all));
    if (!all)
        return z->error.status;
    all[z->rank] = z->error;
    if (!engine_exchange(z, COMMAND_EXCHANGE, what, all, sizeof(*all)))
        hear(z, all, sizeof(*all));
    free(all);
    return z->error.status;
}

void engine_tell_order(struct zero *z)
{
    if (z->plan.set.local && z->size > 1 && z->schedule.accumulate > 1)
        engine_log(z, ZERO_LOG_INFO,
                   "Each rank adds up the gradients of its %d micro-steps before ranks add theirs "
                   "(ZERO_LOCAL): outside the law of equal bits.",
                   z->schedule.accumulate);
}

int engine_wait(struct zero *z, struct ref ref)
{
    int status = queues_wait(z->queues, ref, &z->error);
    tell_retries(z);
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

static int begin(struct zero *z, const struct zero_config *config)
{
    /* Of a config that settings_resolve will refuse nothing is read. */
    const struct zero_config nothing = {0};
    if (!config || config->size != sizeof(*config))
        config = &nothing;
    z->log = config->log ? config->log : log_to_stderr;
    z->log_arg = config->log_arg;
    z->log_level = config->log_level;
    z->trace = config->trace;
    z->trace_arg = config->trace_arg;
    z->size = 1;
    if (!config->comm)
        comm_default_deadline(config->deadline_seconds > 0 ? config->deadline_seconds
                                                           : DEADLINE_SECONDS);
    if (config->comm ? take_comm(z, config->comm)
                     : comm_default_create(config->device, &z->comm, &z->error))
        return z->error.status;
    z->owns_comm = !config->comm;
    z->rank = z->comm->rank;
    z->size = z->comm->size;
    z->muted = z->rank != 0 && z->log == log_to_stderr;
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
    z->fetches = table(z, parts, sizeof(*z->fetches));
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
        return z->seams->ring(ring, &options, &z->error);
    if (z->plan.set.ring == ZERO_RING_POSIX)
        return ring_posix_create(ring, &options, &z->error);
    if (!ring_uring_create(ring, &options, &refused)) {
        struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
        getrlimit(RLIMIT_MEMLOCK, &limit);
        if (!(*ring)->registered)
            warn_of_machine(
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
    warn_of_machine(z, "%s Using pread and pwrite instead.", refused.text);
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
        warn_of_machine(z, "%s", refused.text);
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
    z->pipeline.again = note_retry;
    z->pipeline.again_arg = z;
    engine_log(z, ZERO_LOG_INFO, "%lld bytes in %s (%s%s) by %s, %d blocks of %d KiB at once%s%s.",
               (long long)spill->bytes, p->set.nvme_path, spill->type,
               spill->direct ? ", O_DIRECT" : "", z->pipeline.ring->ops->name, z->probe.depth,
               z->probe.block >> 10, z->probe.read > 0 ? ", as measured on these drives" : "",
               p->set.verify ? "; every page that is read is checked" : "");
    for (int i = 0; i < spill->stripes.files; i++)
        if (spill->file[i].bytes > 0 && !spill->file[i].direct)
            warn_of_machine(
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
    bool good = config && config->size == sizeof(*config);
    struct zero_comm *comm = good ? config->comm : NULL;
    enum zero_device device = good ? config->device : ZERO_CPU;
    struct error unheard = {0};
    if (comm) {
        if (has_all_calls(comm) && !comm->taken)
            comm->ops->abort(comm, comm->sequence + 1);
    } else if (!comm_default_create(device, &comm, &unheard)) {
        comm->ops->abort(comm, comm->sequence + 1);
        comm->ops->destroy(comm);
    }
    return ZERO_ERR_MEMORY;
}

#define FILL_CHUNKS   2048               /* between two meetings of the ranks, at most, */
#define FILL_ELEMENTS ((int64_t)1 << 28) /* and so many elements or one chunk */

/* Initial values. Ranks meet on the way, so that no rank waits for longer than another one's disk
 * is slower in one part, and all hear soon of a fill that has failed. */
static int fill_all(struct zero *z)
{
    const struct plan *p = &z->plan;
    int64_t some = FILL_ELEMENTS / p->chunk, first = 0;
    some = some < 1 ? 1 : some < FILL_CHUNKS ? some : FILL_CHUNKS;
    do {
        int64_t end = first + some < p->chunks ? first + some : p->chunks;
        schedule_walk(&z->schedule, WALK_FILL, first, end);
        bool failed = engine_wait_all(z) != ZERO_OK;
        if (z->update.error.status && (!failed || z->update.refused)) /* of a fill: it came first */
            z->error = z->update.error; /* the ranks tell each other, within the deadline */
        if (failed)                     /* the queues, whose abort has told the others */
            return z->error.status;
        first = end;
    } while (!agree(z, "initial values") && first < p->chunks);
    return z->error.status;
}

int engine_create(struct zero **out, const struct zero_param *params, int count,
                  const struct zero_config *config, const struct engine_seams *seams)
{
    if (!out)
        return ZERO_ERR_ARGUMENT;
    struct zero *z = *out = calloc(1, sizeof(*z));
    if (!z)
        return no_engine(config);
    z->seams = seams;
    z->process = getpid();
    if (begin(z, config))
        return z->error.status;
    describe(z, params, count, config);
    int64_t chunks = z->error.status ? 0 : z->plan.chunks;
    struct error thread = {0};
    if (queues_create(&z->queues, chunks, &thread) ||
        queues_start(z->queues, &engine_queue_ops, z, &thread)) {
        z->comm->ops->abort(z->comm, z->comm->sequence + 1);
        return error_set(&z->error, thread.status, "%s", thread.text);
    }
    if (meet(z))
        return z->error.status;
    if (!reach_connect(z) && !make_tables(z))
        make_places(z);
    if (agree(z, "allocation"))
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
    queues_stop(z->queues, z->created, engine_deadline(z) + engine_grace(z));
    tell_retries(z);
    if (!told && queues_status(z->queues, &end)) /* what was under way has failed */
        warn(z, "zero_destroy: %.440s", end.text);
}

void zero_destroy(struct zero *z)
{
    if (!z || z->process != getpid()) /* a fork: all of it is the parent's */
        return;
    bool busy = false;
    leave(z);
    for (int i = 0; i < ZERO_COLLECTIVES; i++)
        busy |= z->operations[i].busy;
    if (busy) /* the other ranks expect more of this one */
        z->comm->ops->abort(z->comm, z->comm->sequence + 1);
    bool held = is_held(z);
    if (held)
        warn(z, "zero_destroy: transfers that were given up may still be under way, so the memory "
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
        comm_exit_deadline(engine_deadline(z));
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
