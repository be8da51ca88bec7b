// SPDX-License-Identifier: Apache-2.0
/*
 * Each rank brings what it did and what it could have done, and all get the sums:
 * ranks share caches, memory and drives, so only together they have a limit. What is
 * measured in is memory that is there: the model's, whose contents mean nothing
 * between two calls, or the text's, which is not read after the last step. The ranks
 * meet before each measurement. With GPUs it is these that are measured.
 */
#include "examples/gpt2/limits.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "examples/common/clock.h"
#include "examples/common/launch.h"
#include "examples/common/predict.h"
#include "examples/common/stream.h"
#include "examples/common/workers.h"
#include "examples/gpt2/device.h"

#define PAGE           4096
#define STREAM_SECONDS 0.04
#define COPY_SECONDS   0.03

enum figure_kind {
    STEP, /* seconds */
    WAITED,
    PRODUCT_FLOPS,
    PRODUCT_SECONDS,
    PRODUCT_PEAK,
    UPDATE_BYTES,
    UPDATE_SECONDS,
    STREAM_RATE,
    STREAM_MISSING, /* ranks whose memory is too little to measure in */
    SENT_BYTES,
    SENT_SECONDS,
    COPY_RATE,
    ELSEWHERE, /* ranks that others of the job are not on one node with */
    READ_BYTES,
    WRITTEN_BYTES,
    FILES_SECONDS,
    FILES_BYTES, /* in evaluations, too */
    PROBE_READ,  /* this rank's share of its node's drives */
    PROBE_WRITE,
    PROBE_BOTH,
    PROBE_MISSING,
    FIGURES,
};

int limits_mark(struct run *r, struct run_mark *mark)
{
    mark->when = clock_now();
    mark->products = matmul_flops_done();
    if (r->gpu)
        mark->products = (struct matmul_done){r->multiplied, r->computed};
    usage_cpu(&mark->program, &mark->library);
    return run_check(r, zero_stats(r->z, &mark->stats));
}

/* --------------------------------------------------------- measured limits */

struct peaks {
    enum zero_dtype dtype;
    atomic_int_fast64_t flops; /* per second, of all threads */
};

/* As many tasks as threads, and each takes so long that every thread has one. */
static void peak_task(void *arg, int64_t index, void *scratch)
{
    struct peaks *p = arg;
    (void)index, (void)scratch;
    atomic_fetch_add(&p->flops, (int64_t)matmul_peak(p->dtype));
}

/* The larger of the two, from a page's boundary on. */
static char *room_find(struct run *r, int64_t *bytes)
{
    char *model = gpt_memory(r->model, bytes), *text = (char *)r->data.text.train;
    int64_t length = r->data.text.train_bytes + r->data.text.held_bytes;
    if (!text || length <= *bytes)
        return model;
    int64_t skip = -(int64_t)(uintptr_t)text & (PAGE - 1);
    *bytes = length - skip;
    return text + skip;
}

/* Updates in GPUs' memory are at most as fast as copies there; those in the host's have no
 * threads here to be measured with. */
static int measure_gpu(struct run *r, double *figure)
{
    const struct gpu_plugin *on = r->gpu->plugin;
    int place = arguments_state_place(r->a);
    if (run_agree(r, true))
        return -1;
    figure[PRODUCT_PEAK] = on->product_rate(r->gpu, (enum zero_dtype)r->a->dtype);
    if (run_agree(r, true))
        return -1;
    figure[STREAM_RATE] = place == ZERO_DEVICE ? on->copy_rate(r->gpu) : 0;
    return 0;
}

static int measure(struct run *r, int threads, double *figure)
{
    struct workers *w = gpt_workers(r->model);
    struct peaks peaks = {.dtype = (enum zero_dtype)r->a->dtype};
    int64_t bytes;
    char *memory = room_find(r, &bytes);
    if (run_agree(r, true))
        return -1;
    workers_run(w, peak_task, &peaks, threads);
    figure[PRODUCT_PEAK] = (double)peaks.flops;
    if (run_agree(r, true))
        return -1;
    figure[STREAM_RATE] = stream_rate(w, memory, bytes, STREAM_SECONDS);
    if (run_agree(r, true))
        return -1;
    figure[COPY_RATE] = stream_copy_rate(memory, bytes, COPY_SECONDS);
    return 0;
}

/* ---------------------------------------------------------------- figures */

/* Seconds of walks over optimizer state. */
static double busy(const struct zero_stats *s)
{
    return s->lanes[ZERO_LANE_UPDATE].busy_seconds;
}

void limits_leave_out(struct run *r, const struct run_mark *from, const struct run_mark *to)
{
#define LEAVE_OUT(field) r->begun.field += to->field - from->field
    LEAVE_OUT(when);
    LEAVE_OUT(products.flops);
    LEAVE_OUT(products.seconds);
    LEAVE_OUT(program.ran);
    LEAVE_OUT(program.ready);
    LEAVE_OUT(library.ran);
    LEAVE_OUT(library.ready);
    LEAVE_OUT(stats.wait_seconds);
    LEAVE_OUT(stats.files_seconds);
    LEAVE_OUT(stats.io.state_read);
    LEAVE_OUT(stats.io.state_written);
    LEAVE_OUT(stats.io.param_read);
    LEAVE_OUT(stats.io.param_written);
    LEAVE_OUT(stats.lanes[ZERO_LANE_COMM].bytes);
    LEAVE_OUT(stats.lanes[ZERO_LANE_COMM].busy_seconds);
#undef LEAVE_OUT
    r->updated_apart += busy(&to->stats) - busy(&from->stats);
}

/* What this rank did in all steps, evaluation apart. */
static void own_figures(const struct run *r, double *figure)
{
    const struct zero_stats *a = &r->begun.stats, *b = &r->ended.stats;
    const struct launch l = launch_find();
    double local = l.local;
    int64_t sent = b->lanes[ZERO_LANE_COMM].bytes - a->lanes[ZERO_LANE_COMM].bytes;
    double updated = busy(b) - busy(a);
    figure[STEP] = r->ended.when - r->begun.when;
    figure[WAITED] = b->wait_seconds - a->wait_seconds;
    figure[PRODUCT_FLOPS] = r->ended.products.flops - r->begun.products.flops;
    figure[PRODUCT_SECONDS] =
        (r->ended.products.seconds - r->begun.products.seconds) / (r->gpu ? 1.0 : b->threads);
    figure[UPDATE_SECONDS] = updated - r->updated_apart;
    if (updated > 0)
        figure[UPDATE_BYTES] = (double)((b->steps - a->steps) * b->plan.update_bytes) *
                               figure[UPDATE_SECONDS] / updated;
    if (zero_size(r->z) > 1) {
        figure[SENT_BYTES] = (double)sent;
        figure[SENT_SECONDS] =
            b->lanes[ZERO_LANE_COMM].busy_seconds - a->lanes[ZERO_LANE_COMM].busy_seconds;
    }
    figure[ELSEWHERE] = l.local != zero_size(r->z);
    figure[READ_BYTES] =
        (double)(b->io.state_read + b->io.param_read - a->io.state_read - a->io.param_read);
    figure[WRITTEN_BYTES] = (double)(b->io.state_written + b->io.param_written -
                                     a->io.state_written - a->io.param_written);
    figure[FILES_SECONDS] = b->files_seconds - a->files_seconds;
    figure[FILES_BYTES] =
        (double)(b->io.state_read + b->io.state_written + b->io.param_read + b->io.param_written);
    figure[PROBE_READ] = b->probe_read / local;
    figure[PROBE_WRITE] = b->probe_write / local;
    figure[PROBE_BOTH] = b->probe_both / local;
    figure[PROBE_MISSING] = !(b->probe_both > 0);
}

static struct roofline_row row(const double *sum, int done, int seconds, double steps, double ranks)
{
    return (struct roofline_row){.done = sum[done] / steps,
                                 .seconds = sum[seconds] / ranks / steps};
}

/* of: what the limit is, or why there is none. */
static void limit(struct roofline_row *row, double value, const char *of)
{
    row->limit = value > 0 ? value : 0;
    snprintf(row->of, sizeof(row->of), "%s", of);
}

static void limits_set(struct roofline *f, const double *sum, double ranks)
{
    bool stopped = sum[PRODUCT_PEAK] <= 0, room = sum[STREAM_MISSING] <= 0;
    const char *none =
        stopped || f->layers ? "not measured" : "not measured: the program's memory is too small";
    limit(&f->row[ROOFLINE_COMPUTE], sum[PRODUCT_PEAK],
          stopped     ? none
          : f->layers ? "large products alone"
                      : "products in cache");
    limit(&f->row[ROOFLINE_MEMORY], room ? sum[STREAM_RATE] : 0,
          !room       ? none
          : f->layers ? "copies in GPU memory"
                      : "Adam's reads and writes alone");
    if (ranks < 2)
        limit(&f->row[ROOFLINE_NETWORK], 0, "one rank");
    else if (f->layers)
        limit(&f->row[ROOFLINE_NETWORK], 0, "not known between GPUs");
    else if (sum[ELSEWHERE] > 0)
        limit(&f->row[ROOFLINE_NETWORK], 0, "not known between nodes");
    else
        limit(&f->row[ROOFLINE_NETWORK], room ? sum[COPY_RATE] : 0,
              room ? "copies in memory (the time: also waiting for ranks)" : none);
    double read = sum[READ_BYTES], written = sum[WRITTEN_BYTES];
    const struct zero_probe probe = {
        .read = sum[PROBE_READ], .write = sum[PROBE_WRITE], .both = sum[PROBE_BOTH]};
    if (sum[FILES_BYTES] <= 0)
        limit(&f->row[ROOFLINE_DISK], 0, "no files");
    else if (sum[PROBE_MISSING] > 0)
        limit(&f->row[ROOFLINE_DISK], 0,
              getenv("ZERO_PROBE") ? "not probed" : "not probed: set ZERO_PROBE=1");
    else
        limit(&f->row[ROOFLINE_DISK],
              read + written > 0 ? (read + written) / predict_files(read, written, &probe)
                                 : probe.both,
              "the drive's probe");
}

/* The sums over all ranks become rows. */
static void rows_make(struct roofline *f, const double *sum, double steps, double ranks, bool gpu)
{
    *f = (struct roofline){
        .layers = gpu, .step = sum[STEP] / ranks / steps, .waited = sum[WAITED] / ranks / steps};
    f->row[ROOFLINE_COMPUTE] = row(sum, PRODUCT_FLOPS, PRODUCT_SECONDS, steps, ranks);
    f->row[ROOFLINE_MEMORY] = row(sum, UPDATE_BYTES, UPDATE_SECONDS, steps, ranks);
    f->row[ROOFLINE_NETWORK] = row(sum, SENT_BYTES, SENT_SECONDS, steps, ranks);
    f->row[ROOFLINE_DISK] = row(sum, READ_BYTES, FILES_SECONDS, steps, ranks);
    f->row[ROOFLINE_DISK].done += sum[WRITTEN_BYTES] / steps;
    limits_set(f, sum, ranks);
}

int limits_find(struct run *r, bool measured, struct roofline *roofline)
{
    double figure[FIGURES] = {0}, sum[FIGURES], ranks = zero_size(r->z);
    own_figures(r, figure);
    if (measured && (r->gpu ? measure_gpu(r, figure) : measure(r, r->ended.stats.threads, figure)))
        return -1;
    figure[STREAM_MISSING] = !(figure[STREAM_RATE] > 0 && (r->gpu || figure[COPY_RATE] > 0));
    for (int i = 0; i < FIGURES; i++) {
        if (run_check(r, zero_mean(r->z, &figure[i], 1, &sum[i])))
            return -1;
        sum[i] *= ranks;
    }
    rows_make(roofline, sum, r->made > 0 ? (double)r->made : 1, ranks, r->gpu != NULL);
    return 0;
}
