// SPDX-License-Identifier: Apache-2.0
/*
 * zero_step to its last write, with the optimizer state in files: what a user
 * waits for when nothing hides it. Its limit is the bytes that all ranks moved,
 * divided by the bandwidth of reads and writes together, measured in the same
 * rounds; or those written by that of writes alone, where a drive limits these
 * by themselves. The engine is used as a program uses it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/launch.h"
#include "examples/common/predict.h"
#include "examples/common/stream.h"
#include "examples/zero/bench.h"
#include "examples/zero/bench_io.h"
#include "examples/zero/bench_model.h"
#include "examples/zero/disk.h"
#include "examples/zero/tool.h"
#include "include/zero.h"
#include "offload/probe.h"
#include "offload/spill.h"

enum { WARM_SECONDS = 15, SLOW_SECONDS = 1, USUAL = 64 << 20 };

#define PIECE ((int64_t)48 << 20) /* of the limit's files, and what they have at least */
#define LEAST (8 * PIECE)

#define AIM        0.9  /* of what the bytes take */
#define AIM_OF_SUM 0.95 /* of several drives together */

/* ------------------------------------------------------------------- check */

static bool has_other(const struct bench *b)
{
    return b->verify_spill || b->state || b->host_share;
}

/* The plain one, or the one with all that was asked for, beside it or alone. */
static struct zero_config config_of(const struct bench *b, bool other, int64_t elements)
{
    int64_t state = elements / launch_find().ranks * (b->state == ZERO_STATE_SPLIT ? 10 : 12);
    return (struct zero_config){.size = sizeof(struct zero_config),
                                .stage = 3,
                                .dtype = ZERO_BF16,
                                .offload = ZERO_HOST,
                                .offload_optimizer = ZERO_NVME,
                                .nvme_path = b->nvme_path,
                                .verify_spill = other && b->verify_spill,
                                .state = other ? (enum zero_state)b->state : ZERO_STATE_FP32,
                                .host_bytes = other ? state * b->host_share / 100 : 0};
}

/* step_24M, step_64K, or with what is beside it: step_checked_split_host30_24M. */
static void name_of(const struct bench *b, bool other, char *name, size_t size)
{
    char host[16] = "";
    if (other && b->host_share)
        snprintf(host, sizeof(host), "host%d_", b->host_share);
    snprintf(name, size, "step_%s%s%s%s", other && b->verify_spill ? "checked_" : "",
             other && b->state ? "split_" : "", host, bench_size(b->params).text);
}

/* A small model gives the same bits in files, in either way, and in memory. */
static int check(const struct bench *b)
{
    struct zero_digest here, there;
    struct zero_config memory = {.size = sizeof(memory), .dtype = ZERO_BF16};
    int status = model_digest(&memory, &here);
    for (int other = 0; other <= has_other(b) && !status; other++) {
        struct zero_config files = config_of(b, other, MODEL_CHECKED);
        files.chunk = 1 << 13;
        files.chunk_slots = 5;             /* which are used over and over */
        files.log_level = ZERO_LOG_SILENT; /* the engine that is measured tells of its ring */
        status = model_digest(&files, &there);
        if (!status && memcmp(&here, &there, sizeof(here)) != 0)
            status = tool_fail("Three steps with the state in files give other bits than in "
                               "memory. This is a fault of the library or of the machine: do not "
                               "train with it.");
    }
    return status;
}

/* ------------------------------------------------------------------- disks */

/* A file of this rank in each folder, how many of them share its disk, and what moves it best. */
struct disks {
    struct spill_paths paths;
    struct io_file file[STRIPES_FILES];
    int sharers[STRIPES_FILES];
    const struct io_engine *best[STRIPES_FILES];
};

/* Large files take longer a byte than small ones, so the limit's is as large as the rank's
 * state, or as a part of what is left beside that. */
static int64_t file_bytes(const struct bench *b, int ranks, int files, const struct disk *disk)
{
    int64_t state = b->params / ranks * 12 / files, least = b->quick ? PIECE : LEAST;
    int64_t room = disk->free / (2 * ranks * files); /* folders may be on one disk */
    if (state > room)
        state = room;
    return state > least ? state / PIECE * PIECE : least;
}

static int disks_open(struct disks *d, const struct bench *b, struct model *m)
{
    struct error error = {0};
    int64_t bytes[STRIPES_FILES];
    struct disk disk[STRIPES_FILES];
    double ranks;
    for (int i = 0; i < STRIPES_FILES; i++)
        d->file[i].fd = -1;
    if (spill_paths_split(&d->paths, b->nvme_path, &error))
        return tool_fail("%s", error.text);
    for (int i = 0; i < d->paths.count; i++)
        disk_look(&disk[i], d->paths.path[i]);
    for (int i = 0; i < d->paths.count; i++) {
        bytes[i] = file_bytes(b, zero_size(m->z), d->paths.count, &disk[i]);
        for (int j = 0; j < d->paths.count; j++)
            d->sharers[i] += probe_one_drive(d->paths.path[j], d->paths.path[i]);
    }
    if (model_sum(m, 1, &ranks)) /* all have looked before one writes */
        return 1;
    for (int i = 0; i < d->paths.count; i++) {
        if (b->params > USUAL && zero_rank(m->z) == 0)
            bench_note("the limit's file of each rank in %s: %s are written", d->paths.path[i],
                       in_bytes(bytes[i]).text);
        if (io_file_open(&d->file[i], d->paths.path[i], bytes[i], !b->full && b->params <= USUAL))
            return tool_fail("%s", d->file[i].error);
    }
    return 0;
}

static void disks_close(struct disks *d)
{
    for (int i = 0; i < d->paths.count; i++)
        io_file_close(&d->file[i]);
}

/* Looked for in the beginnings of the files. */
static int disks_find(struct disks *d, int rounds)
{
    for (int i = 0; i < d->paths.count; i++) {
        struct io_file *file = &d->file[i];
        int64_t bytes = file->bytes;
        file->bytes = bytes < LEAST ? bytes : LEAST;
        if (io_limit_find(file, IO_MIXED, rounds, &d->best[i]))
            return tool_fail("%s", file->error);
        file->bytes = bytes;
    }
    return 0;
}

/* Bytes per second of all disks, one by one, from where all ranks begin to where the last ends. */
static int disks_measure(struct disks *d, struct model *m, enum io_mode mode, double *all)
{
    double ranks, bytes;
    *all = 0;
    for (int i = 0; i < d->paths.count; i++) {
        struct io_file *file = &d->file[i];
        if (model_sum(m, 1, &ranks))
            return 1;
        double start = clock_now();
        if (d->best[i]->pass(file, mode, d->best[i]->block, d->best[i]->depth))
            return tool_fail("%s", file->error);
        if (model_sum(m, (double)file->bytes, &bytes))
            return 1;
        *all += bytes / (clock_now() - start) / d->sharers[i];
    }
    return 0;
}

/* ----------------------------------------------------------------- measure */

struct series {
    struct samples limit, seconds, bytes, other, other_bytes;
    double write, written; /* bytes per second of writes alone, the best; bytes in a step */
};

static int64_t written(const struct zero_stats *s)
{
    return s->io.state_written + s->io.param_written;
}

static int64_t moved(const struct zero_stats *s)
{
    return s->io.state_read + s->io.param_read + written(s);
}

/* One step of all ranks, to its last write. What was read ahead of it, while there were
 * gradients to reduce, is not counted, neither as bytes nor as time. */
static int step_once(struct model *m, double *seconds, double *bytes, double *wrote)
{
    struct zero_stats before, after;
    if (model_ready(m))
        return 1;
    if (zero_stats(m->z, &before))
        return model_fail(m);
    if (model_step(m, seconds))
        return 1;
    if (zero_stats(m->z, &after))
        return model_fail(m);
    return model_sum(m, (double)(written(&after) - written(&before)), wrote) ||
           model_sum(m, (double)(moved(&after) - moved(&before)), bytes);
}

/* other: the model beside the plain one, or NULL. */
static int round_run(struct model *m, struct model *other, struct disks *disks, struct series *s)
{
    double speed = 0, seconds = 0, bytes = 0, others;
    if (disks_measure(disks, m, IO_MIXED, &speed))
        return 1;
    samples_add(&s->limit, speed);
    if (step_once(m, &seconds, &bytes, &s->written))
        return 1;
    samples_add(&s->seconds, seconds);
    samples_add(&s->bytes, bytes);
    if (!other)
        return 0;
    if (step_once(other, &seconds, &bytes, &others))
        return 1;
    samples_add(&s->other, seconds);
    samples_add(&s->other_bytes, bytes);
    return 0;
}

/* Bytes that an update plans to move, on all ranks. */
static double planned(const struct model *m)
{
    struct zero_stats s;
    zero_stats(m->z, &s);
    return (double)zero_size(m->z) * (double)(s.plan.read_bytes + s.plan.written_bytes);
}

/* Seconds of updates as if each had moved all its bytes in the time that was measured, at the
 * rate at which it moved those that were not read ahead. */
static struct samples whole(const struct model *m, const struct samples *seconds,
                            const struct samples *bytes)
{
    struct samples all = {0};
    for (int i = 0; i < seconds->count; i++)
        samples_add(&all,
                    seconds->value[i] * (bytes->value[i] > 0 ? planned(m) / bytes->value[i] : 1));
    return all;
}

/* Seconds that each round's bytes take at the rate of that round, or what is written of them. */
static struct samples limit_seconds(const struct series *s)
{
    struct samples limit = {0};
    for (int i = 0; i < s->limit.count; i++)
        samples_add(&limit, fmax(s->bytes.value[i] / s->limit.value[i], s->written / s->write));
    return limit;
}

/* The model beside the plain one moves fewer bytes, and should take as much less time; that
 * checking costs none is not asked for. */
static double other_aim(const struct bench *b, const struct model *m, const struct model *other)
{
    double bytes = planned(other);
    return b->verify_spill || bytes <= 0 ? 0 : planned(m) / bytes;
}

/* What zero plan would have said of these steps before there was one, for the ranks of this
 * node. */
static void print_predicted(const struct bench *b, const struct zero_stats *s, const char *name,
                            double measured)
{
    int local = launch_find().local;
    const struct zero_probe probe = {
        .read = s->probe_read, .write = s->probe_write, .both = s->probe_both};
    char advice[2 * DISK_PATH + 120], line[80];
    double stream = stream_rate_apart(local * s->threads, launch_bound(local));
    struct prediction p = predict_update(&s->plan, local, &probe, stream);
    if (p.seconds <= 0) {
        if (getenv("ZERO_PROBE")) /* why there is none was told */
            bench_note("nothing is predicted without a probe");
        else
            bench_note("nothing is predicted without a probe: %s makes it",
                       predict_advice(b->nvme_path, advice, sizeof(advice)));
        return;
    }
    bench_note("predicted: files %.4g s at %.4g GB/s, read and written at once as probed; memory "
               "%.4g s at %.4g GB/s; measured, with what was read ahead at the same rate, %.4g s",
               p.disk, 1e-9 * probe.both, p.memory, 1e-9 * stream, measured);
    printf("%s_predicted %.4g s\n", name, p.seconds);
    snprintf(line, sizeof(line), "%s_predicted_share", name);
    bench_ratio(line, p.seconds / measured, (struct aim){.least = 0.75, .most = 1.25});
}

static void print(const struct bench *b, const struct model *m, const struct model *other,
                  const struct disks *disks, const struct series *s)
{
    struct zero_stats stats;
    char name[64], line[80];
    double limit = samples_median(&s->limit);
    struct samples ideal = limit_seconds(s), all = whole(m, &s->seconds, &s->bytes);
    int ranks = zero_size(m->z);
    if (zero_stats(m->z, &stats) == ZERO_OK)
        bench_note("ring %s in %s (%s), %s, %s each; %s moved in the time of a step, "
                   "which plans %s",
                   stats.ring, stats.nvme_path, stats.nvme_type, counted(ranks, "rank").text,
                   counted(stats.threads, "thread").text,
                   in_bytes((int64_t)samples_median(&s->bytes)).text,
                   in_bytes((int64_t)planned(m)).text);
    bench_note("limit: %.4g GB/s read and written together, %.4g written alone%s by all ranks at "
               "once",
               1e-9 * limit, 1e-9 * s->write,
               disks->paths.count > 1 ? ", one folder after the other, those of a disk as one, "
                                        "and added,"
                                      : "");
    for (int i = 0; i < disks->paths.count; i++)
        bench_note("  in %s by %s, blocks of %s, %d at once", disks->paths.path[i],
                   disks->best[i]->name, in_bytes(disks->best[i]->block).text,
                   disks->best[i]->depth);
    name_of(b, b->alone, name, sizeof(name));
    bench_seconds(name, &ideal, &s->seconds, disks->paths.count > 1 ? AIM_OF_SUM : AIM);
    bench_note("%s_whole is computed: with what was read ahead at the same rate", name);
    snprintf(line, sizeof(line), "%s_whole", name);
    bench_value(line, &all, "s"); /* for others to compare */
    print_predicted(b, &stats, name, samples_median(&all));
    if (!other)
        return;
    name_of(b, true, name, sizeof(name));
    struct samples beside = whole(other, &s->other, &s->other_bytes);
    bench_note("limit of %s: steps without these options, whose bytes it moves %.2f times; the "
               "seconds of both with what was read ahead at the same rate; a share above 1 is "
               "faster",
               name, samples_median(&s->other_bytes) / samples_median(&s->bytes));
    bench_seconds(name, &all, &beside, other_aim(b, m, other));
}

/* The best of three, unless one takes long: what is slower now and then is no limit. */
static int write_measure(struct disks *disks, struct model *m, double *best)
{
    double rate = 0, started = clock_now();
    bool slow = false;
    for (int i = 0; i < 3 && !slow; i++) {
        if (disks_measure(disks, m, IO_WRITE, &rate) ||
            model_any(m, clock_now() - started > SLOW_SECONDS, &slow))
            return 1;
        *best = fmax(*best, rate);
    }
    return 0;
}

static int measure(const struct bench *b, struct model *m, struct model *other, struct disks *disks)
{
    struct series s = {0};
    double write = 0;
    int rounds = b->quick ? 1 : b->full ? 15 : 7;
    bool over = false, slow;
    if (disks_find(disks, b->quick ? 1 : 2) || write_measure(disks, m, &write) ||
        round_run(m, other, disks, &s) ||
        model_any(m, !b->full && clock_now() - b->started > WARM_SECONDS, &slow))
        return 1;
    if (slow)
        rounds = b->params > USUAL;
    if (rounds > 0) /* the first warmed up; of the usual model, where it took long, it counts */
        s = (struct series){0};
    s.write = write;
    for (int r = 0; r < rounds && !over; r++)
        if (round_run(m, other, disks, &s) || model_any(m, bench_over(b), &over))
            return 1;
    if (zero_rank(m->z) == 0)
        print(b, m, other, disks, &s);
    return 0;
}

int bench_step(const struct bench *b)
{
    struct model m = {0}, other = {0};
    struct disks disks = {0};
    struct zero_config first = config_of(b, b->alone, b->params);
    struct zero_config beside = config_of(b, true, b->params);
    int status = check(b);
    if (status)
        return status;
    model_describe(&m, MODEL_UNITS, b->params);
    model_describe(&other, MODEL_UNITS, b->params);
    status = model_create(&m, &first);
    if (!status && has_other(b) && !b->alone)
        status = model_create(&other, &beside);
    if (!status)
        status = disks_open(&disks, b, &m);
    if (!status)
        status = measure(b, &m, other.z ? &other : NULL, &disks);
    zero_destroy(m.z);
    zero_destroy(other.z);
    disks_close(&disks);
    return status;
}
