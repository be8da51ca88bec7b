// SPDX-License-Identifier: Apache-2.0
/* Looking inside: any element of any tensor at any stage and place, digests, counters;
 * and what needs no engine, plans, probes and GPUs. */
#include <assert.h>
#include <fenv.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "src/engine.h"

/* The elements of a tensor's range that one rank holds, in its state order. */
static bool overlap_with(const struct zero *z, int param, int64_t first, int64_t count, int rank,
                         struct run *o)
{
    if (!plan_run_of(&z->plan, &z->layout, param, rank, o))
        return false;
    int64_t from = o->first > first ? o->first : first;
    int64_t to = o->first + o->count < first + count ? o->first + o->count : first + count;
    o->begin += from - o->first;
    o->first = from;
    o->count = to - from;
    return from < to;
}

/* Checks what zero_read and zero_write have in common. */
static int enter_range(struct zero *z, const char *call, int param, enum zero_what what,
                       int64_t first, int64_t count, const void *memory)
{
    if (engine_enter_param(z, param, call))
        return engine_status(z);
    const struct tensor *t = &z->layout.tensors[param];
    if (!memory && count > 0)
        return error_set(&z->error, ZERO_ERR_ARGUMENT,
                         "%s of tensor %s with NULL. Pass memory of %lld floats.", call, t->name,
                         (long long)count);
    if (first < 0 || count < 0 || first > t->elements - count)
        return error_set(
            &z->error, ZERO_ERR_ARGUMENT,
            "%s of tensor %s, %lld elements from %lld on, but it has %lld. Stay within it.", call,
            t->name, (long long)count, (long long)first, (long long)t->elements);
    if ((int)what < ZERO_MASTER || what > ZERO_GRAD)
        return error_set(&z->error, ZERO_ERR_ARGUMENT,
                         "%s of %d, which is no enum zero_what. Use ZERO_MASTER, ZERO_MOMENT1 or "
                         "ZERO_MOMENT2, to read also ZERO_GRAD.",
                         call, (int)what);
    if (t->frozen && what != ZERO_MASTER)
        return error_set(&z->error, ZERO_ERR_ARGUMENT,
                         "%s of tensor %s, which is frozen: it has neither moments nor a gradient. "
                         "Use ZERO_MASTER.",
                         call, t->name);
    bool open = schedule_step_open(&z->schedule), complete = schedule_step_complete(&z->schedule);
    if (what == ZERO_GRAD ? open && !complete : open)
        return error_set(&z->error, ZERO_ERR_STATE,
                         "%s of tensor %s within a step. Call it between "
                         "zero_step and the next zero_reduce%s.",
                         call, t->name, what == ZERO_GRAD ? ", or after the last zero_reduce" : "");
    if (what == ZERO_GRAD && !complete && !z->grads_whole)
        return error_set(
            &z->error, ZERO_ERR_STATE,
            "%s of the gradient of tensor %s, but %s. Reduce all units first.", call, t->name,
            z->schedule.step > 0 ? "zero_discard dropped the sums" : "no step was made yet");
    return ZERO_OK;
}

/* A call that all checks have passed becomes known to the other ranks. */
static void announce(struct zero *z, const char *call, int param, enum zero_what what,
                     int64_t first, int64_t count)
{
    schedule_call(&z->schedule, call, param, (int64_t)what);
    schedule_call(&z->schedule, call, first, count);
}

/* Passes the chunks that hold o through the update, between them and memory. */
static int walk_over(struct zero *z, enum walk_kind kind, enum zero_what what, const struct run *o,
                     const float *in, float *out)
{
    struct update *u = &z->update;
    u->what = what;
    u->range = *o;
    u->in = in;
    u->out = out;
    int64_t first = o->begin / z->plan.chunk;
    int64_t last = (o->begin + o->count - 1) / z->plan.chunk + 1;
    return engine_wait(z, schedule_walk(&z->schedule, kind, first, last));
}

/* Sums at rest, widened. */
static int load_sums(struct zero *z, const char *sums, int64_t n, float *out)
{
    uint16_t block[2048];
    bool device = z->plan.set.grad == ZERO_DEVICE;
    int64_t most = z->plan.grad == 2 ? 2048 : n;
    for (int64_t at = 0; at < n; at += most) {
        int64_t count = n - at < most ? n - at : most, bytes = count * z->plan.grad;
        void *to = z->plan.grad == 2 ? (void *)block : out;
        if (!device)
            memcpy(to, sums + at * z->plan.grad, (size_t)bytes);
        else if (z->device->ops->read(z->device, to, sums + at * z->plan.grad, bytes, &z->error))
            return engine_device_failed(z);
        if (z->plan.grad == 2)
            z->kernels->from_bf16(count, block, out + at);
    }
    return ZERO_OK;
}

/* The mean gradient: the sums at rest, divided. */
static int load_grads(struct zero *z, int unit, const struct run *o, float *out)
{
    if (engine_wait(z, queues_tail(z->queues, QUEUE_COMM)) ||
        engine_wait(z, queues_tail(z->queues, QUEUE_TO_HOST)) ||
        load_sums(z, grads_at_rest(z, unit, o->begin), o->count, out))
        return engine_status(z);
    fenv_t program; /* whose modes may flush denormals */
    fegetenv(&program);
    kernels_thread_init();
    float scale = (float)(1 / z->grads_divisor);
    for (int64_t i = 0; i < o->count; i++)
        out[i] *= scale;
    fesetenv(&program);
    return ZERO_OK;
}

/* Elements that rank root has at 'to' come there on all others: through memory of the engine's,
 * as the program may free its own when this has failed and a transfer is under way yet. */
static int pass_around(struct zero *z, int root, float *to, int64_t count)
{
    for (int64_t at = 0; at < count; at += ENGINE_PASSING) {
        int64_t n = count - at < ENGINE_PASSING ? count - at : ENGINE_PASSING;
        size_t bytes = (size_t)n * sizeof(*to);
        if (root == z->rank)
            memcpy(z->passing, to + at, bytes);
        if (engine_wait(z, schedule_broadcast(&z->schedule, root, z->passing, (int64_t)bytes)))
            return engine_status(z);
        if (root != z->rank)
            memcpy(to + at, z->passing, bytes);
    }
    return ZERO_OK;
}

int zero_read(struct zero *z, int param, enum zero_what what, int64_t first, int64_t count,
              float *out)
{
    if (enter_range(z, "zero_read", param, what, first, count, out))
        return engine_status(z);
    announce(z, "zero_read", param, what, first, count);
    if (engine_settle(z, "zero_read", z->plan.live))
        return engine_status(z);
    for (int r = 0; r < z->size; r++) {
        struct run o;
        if (!overlap_with(z, param, first, count, r, &o))
            continue;
        float *to = out + o.first - first;
        if ((r == z->rank || z->plan.whole_state) &&
            (what == ZERO_GRAD ? load_grads(z, z->layout.tensors[param].unit, &o, to)
                               : walk_over(z, WALK_LOAD, what, &o, NULL, to)))
            return engine_status(z);
        if (z->plan.whole_state)
            break; /* every rank has them all */
        if (z->size > 1 && pass_around(z, r, to, o.count))
            return engine_status(z);
    }
    return ZERO_OK;
}

static int refuse_value(struct zero *z, const struct tensor *t, int64_t element, float x,
                        float limit)
{
    fenv_t program; /* whose modes may trap what is no number */
    fegetenv(&program);
    kernels_thread_init();
    error_set(&z->error, ZERO_ERR_ARGUMENT,
              "zero_write of %.9g to element %lld of tensor %s. Write values that are finite, "
              "masters also when rounded to parameters: at most %.9g.",
              (double)x, (long long)element, t->name, (double)limit);
    fesetenv(&program);
    return z->error.status;
}

/* Values that can be kept, and a mix of them that the ranks compare. */
static int check_values(struct zero *z, const struct tensor *t, enum zero_what what, int64_t first,
                        int64_t count, const float *in, uint64_t *mix)
{
    float limit = what == ZERO_MASTER ? dtype_limit(z->plan.set.dtype) : FLT_MAX;
    uint32_t most; /* in bits: comparing what is no number may be a trap */
    memcpy(&most, &limit, 4);
    *mix = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &in[i], 4);
        *mix = (*mix ^ bits) * 0x9E3779B97F4A7C15u;
        if ((bits & 0x7FFFFFFFu) > most)
            return refuse_value(z, t, first + i, in[i], limit);
        if (what == ZERO_MOMENT2 && bits > 0x80000000u) /* negative: it may be a denormal one */
            return error_set(&z->error, ZERO_ERR_ARGUMENT,
                             "zero_write of %g to element %lld of the second moment of tensor %s, "
                             "whose root an update takes. Write values of 0 or more.",
                             (double)in[i], (long long)(first + i), t->name);
    }
    return ZERO_OK;
}

int zero_write(struct zero *z, int param, enum zero_what what, int64_t first, int64_t count,
               const float *in)
{
    uint64_t mix;
    if (engine_enter(z))
        return engine_status(z);
    if (what == ZERO_GRAD)
        return error_set(&z->error, ZERO_ERR_ARGUMENT,
                         "zero_write of ZERO_GRAD, which is only read. Add gradients to "
                         "zero_grad_data instead.");
    if (enter_range(z, "zero_write", param, what, first, count, in))
        return engine_status(z);
    const struct tensor *t = &z->layout.tensors[param];
    int unit = t->unit;
    if (z->schedule.units[unit].acquired)
        return error_set(&z->error, ZERO_ERR_STATE,
                         "zero_write of tensor %s while its unit %d is "
                         "acquired. Release it first.",
                         t->name, unit);
    if (check_values(z, t, what, first, count, in, &mix))
        return engine_status(z);
    if (engine_settle(z, "zero_write", z->plan.live))
        return engine_status(z);
    announce(z, "zero_write", param, what, first, count);
    schedule_call(&z->schedule, "values", (int64_t)mix, 0);
    z->settled = 0; /* others, with nothing to write, would wait for all of it later */
    struct run o;
    if (overlap_with(z, param, first, count, z->rank, &o) &&
        walk_over(z, WALK_ASSIGN, what, &o, in + o.first - first, NULL))
        return engine_status(z);
    /* Whole chunks are published, with parameters of other units, which stay usable. */
    if (engine_wait(z, queues_tail(z->queues, QUEUE_TO_DEVICE)))
        return engine_status(z);
    schedule_forget(&z->schedule, unit, t->frozen ? PART_FROZEN : PART_LIVE);
    return ZERO_OK;
}

/* A call has nowhere to put its answer, a struct of that type. */
static int no_result(struct error *error, const char *call, const char *type)
{
    return error_set(error, ZERO_ERR_ARGUMENT,
                     "%s was given NULL for its result. Pass a struct %s.", call, type);
}

/* Where each rank has all of the state, all must have the same. sum: of all ranks' digests. */
static int replicas_compare(struct zero *z, const struct zero_digest *sum)
{
    static const char *const names[] = {"masters", "first moments", "second moments"};
    const struct zero_digest *mine = &z->update.digest;
    const uint64_t own[] = {mine->master, mine->moment1, mine->moment2};
    const uint64_t all[] = {sum->master, sum->moment1, sum->moment2};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names) && !z->failure.status; i++)
        if (own[i] * (uint64_t)z->size != all[i])
            error_set(&z->failure, ZERO_ERR_MISMATCH,
                      "Ranks differ in their %s, which must be the same on all ranks at stage 0: "
                      "this rank (%d) has the digest %016llx, another rank a different one. Make "
                      "fills give the same values on every rank.",
                      names[i], z->rank, (unsigned long long)own[i]);
    z->error = z->failure;
    return z->error.status;
}

int zero_digest(struct zero *z, struct zero_digest *digest)
{
    if (engine_enter_between_steps(z, "zero_digest"))
        return engine_status(z);
    if (!digest)
        return no_result(&z->error, "zero_digest", "zero_digest");
    schedule_call(&z->schedule, "zero_digest", 0, 0);
    if (engine_settle(z, "zero_digest", z->plan.live))
        return engine_status(z);
    const struct zero_digest *own = &z->update.digest;
    z->update.digest = (struct zero_digest){0};
    int64_t first = 0, end;
    do { /* the last sum is that of all chunks */
        end = engine_meeting_after(z, first);
        if (engine_wait(z, schedule_walk(&z->schedule, WALK_DIGEST, first, end)))
            return engine_status(z);
        memcpy(z->verdict, own, sizeof(*own));
        if (engine_wait(z, schedule_sum(&z->schedule, "zero_digest", z->verdict, sizeof(*own))))
            return engine_status(z);
        first = end;
    } while (first < z->plan.chunks);
    struct zero_digest sum;
    memcpy(&sum, z->verdict, sizeof(sum));
    *digest = z->plan.whole_state ? *own : sum;
    return z->plan.whole_state ? replicas_compare(z, &sum) : ZERO_OK;
}

int zero_wait(struct zero *z)
{
    return engine_enter(z) ? engine_status(z) : engine_wait_all(z);
}

const char *zero_lane_name(int lane)
{
    return lane >= 0 && lane < ZERO_LANES ? queue_name((enum queue_id)lane) : "unknown";
}

/* What a call without an engine returns; its sentence goes where there is room for one. */
static int answer(const struct error *error, char *text, size_t text_size)
{
    if (text && text_size)
        snprintf(text, text_size, "%s", error->text);
    return error->status;
}

int zero_plan_make(const struct zero_param *params, int count, const struct zero_config *config,
                   int ranks, int local_ranks, struct zero_plan *plan, char *text, size_t text_size)
{
    struct error error = {0};
    struct settings set;
    struct layout layout = {0};
    struct plan p;
    if (!plan)
        no_result(&error, "zero_plan_make", "zero_plan");
    if (ranks < 1 || local_ranks < 1 || local_ranks > ranks)
        error_set(&error, ZERO_ERR_ARGUMENT,
                  "A plan for %d ranks, %d of them on this node, was asked for. Use at least one "
                  "rank, and at most all of them on one node.",
                  ranks, local_ranks);
    if (!error.status && !settings_resolve(&set, config, &error) &&
        !layout_create(&layout, params, count, ranks, &error) &&
        !plan_make(&p, &layout, &set, &error) && !plan_node(&p.report, local_ranks, &error))
        *plan = p.report;
    layout_destroy(&layout);
    return answer(&error, text, text_size);
}

static_assert(sizeof(((struct zero_probe *)0)->nvme_path) ==
                  sizeof(((struct settings *)0)->nvme_path),
              "folders fit");

int zero_probe_known(const struct zero_config *config, struct zero_probe *probe, char *text,
                     size_t text_size)
{
    struct error error = {0};
    struct settings set;
    struct spill_paths paths;
    struct probe found = {0};
    enum probe_when when;
    if (!probe)
        no_result(&error, "zero_probe_known", "zero_probe");
    else if (!settings_resolve(&set, config, &error) && !probe_asked(&when, &error) &&
             !spill_paths_split(&paths, set.nvme_path, &error))
        probe_paths(&found, &paths, 0, when == PROBE_NEVER ? when : PROBE_CACHED, &error);
    if (!error.status) {
        *probe = (struct zero_probe){.read = found.read, .write = found.write, .both = found.both};
        memcpy(probe->nvme_path, set.nvme_path, sizeof(set.nvme_path));
    }
    return answer(&error, text, text_size);
}

int zero_gpu_use(int index, struct zero_gpu *gpu, char *text, size_t text_size)
{
    struct error error = {0};
    if (!gpu || index < -1)
        error_set(&error, ZERO_ERR_ARGUMENT,
                  "zero_gpu_use of GPU %d into %s. Pass 0 or more, or -1 for the thread's own, and "
                  "a struct zero_gpu.",
                  index, gpu ? "a struct" : "NULL");
    else
        device_plugin_gpu(index, gpu, &error);
    return answer(&error, text, text_size);
}

/* Of the engine the sentence alone is written. */
static int into_null(const struct zero *z, const char *call)
{
    struct zero *own = (struct zero *)z;
    if (engine_enter(own))
        return engine_status(own);
    return no_result(&own->error, call, call);
}

int zero_progress(const struct zero *z, struct zero_progress *progress)
{
    if (!z || !progress)
        return into_null(z, "zero_progress");
    if (!z->created)
        return engine_status(z);
    *progress = (struct zero_progress){.steps = z->steps,
                                       .loss_scale = z->scaler.scale,
                                       .since_skip = z->scaler.good,
                                       .forgiven = z->scaler.hysteresis - 1};
    return ZERO_OK;
}

static struct zero_io io_counted(const struct zero_io *io)
{
    return (struct zero_io){counted(&io->state_read), counted(&io->state_written),
                            counted(&io->param_read), counted(&io->param_written)};
}

int zero_stats(const struct zero *z, struct zero_stats *stats)
{
    if (!z || !stats)
        return into_null(z, "zero_stats");
    if (!z->created)
        return engine_status(z);
    const struct schedule *s = &z->schedule;
    const struct ring *ring = z->pipeline.ring;
    *stats = (struct zero_stats){
        .plan = z->plan.report,
        .steps = z->steps,
        .skipped = z->skipped,
        .acquires = s->acquires,
        .gathers = s->gathers,
        .served = s->served,
        .missed = s->missed,
        .sent_bytes = counted(&z->sent_bytes),
        .io = io_counted(&z->io),
        .step_io = {io_counted(&z->step_io[(s->step + STEPS_KEPT - 2) % STEPS_KEPT]),
                    io_counted(&z->step_io[(s->step + STEPS_KEPT - 1) % STEPS_KEPT])},
        .to_device_bytes = counted(&z->to_device_bytes),
        .to_host_bytes = counted(&z->to_host_bytes),
        .io_retried = counted(&z->retries.noted) + counted(&z->retries.lost),
        .wait_seconds = queues_waited(z->queues),
        .threads = z->threads,
        .device = z->device->name,
        .pinned_bytes = z->device->pinned_bytes,
        .isa = z->kernels->isa,
        .ring = ring ? ring->ops->name : "none",
        .nvme_path = z->spill.bytes ? z->plan.set.nvme_path : "",
        .nvme_type = z->spill.type,
        .nvme_direct = z->spill.direct,
        .ring_registered = ring && ring->registered,
        .huge_bytes = z->huge_bytes,
        .ring_block = ring ? ring->block : 0,
        .ring_depth = ring ? ring->depth : 0,
        .probe_read = z->probe.read,
        .probe_write = z->probe.write,
        .probe_both = z->probe.both,
        .files_seconds = 1e-9 * (double)counted(&z->files.busy_ns),
        .numa_nodes = z->numa.nodes,
        .numa_mine = z->numa.mine,
    };
    for (int i = 0; i < ZERO_LANES; i++)
        stats->lanes[i] =
            (struct zero_lane_stats){.bytes = counted(&z->lanes[i].bytes),
                                     .busy_seconds = 1e-9 * (double)counted(&z->lanes[i].busy_ns)};
    return ZERO_OK;
}
