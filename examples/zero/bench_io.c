// SPDX-License-Identifier: Apache-2.0
/*
 * Reads, writes, and both at once: all limits in turn tell which is the best;
 * that one and the rings then move the whole file once in every round, in turn.
 */
#include "examples/zero/bench_io.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "examples/zero/bench.h"
#include "examples/zero/disk.h"
#include "examples/zero/tool.h"
#include "include/zero.h"

enum { ENGINES_MAX = 16, RINGS = 2, RECORD = 12 * (int)ZERO_CHUNK_NVME };

/* As a step by default: records of ZERO_CHUNK_NVME elements, and four of the slots. */
static const struct io_engine rings[RINGS] = {
    {"uring", io_ring_uring_pass, RECORD, 4},
    {"posix", io_ring_posix_pass, RECORD, 4},
};

/* Of the limit and of fio, at least; of fio's CPU seconds a byte, at most. */
static const struct {
    double speed, cpu;
} ring_aims[RINGS] = {{0.95, 1.2}, {0.9, 0}};

struct series {
    struct samples speed, cpu;
};

static bool there(const struct io_engine *e, const struct io_file *file)
{
    return file->uring || strcmp(e->name, "uring") != 0;
}

/* ------------------------------------------------------------------- check */

/* A ring reads what was written, here the content of offset from, and what it
 * writes, the content that follows, is read back. */
static int check_ring(struct io_file *file, const struct io_engine *e, int64_t from)
{
    int64_t bytes = file->bytes, block = e->block;
    int depth = (int)(bytes / block); /* each block in a buffer of its own */
    memset(file->memory, 0, (size_t)bytes);
    if (e->pass(file, IO_READ, block, depth))
        return -1;
    snprintf(file->error, sizeof(file->error), "The ring %s read other bytes than were written.",
             e->name);
    if (!io_content_is(file->memory, from, bytes))
        return -1;
    io_content_fill(file->memory, from + bytes, bytes);
    if (e->pass(file, IO_WRITE, block, depth))
        return -1;
    memset(file->memory, 0, (size_t)bytes);
    snprintf(file->error, sizeof(file->error), "The ring %s wrote other bytes than it was given.",
             e->name);
    bool same = pread(file->fd, file->memory, (size_t)bytes, 0) == bytes &&
                io_content_is(file->memory, from + bytes, bytes);
    return same ? 0 : -1;
}

/* Over as much of the file as there is memory. */
static int check(struct io_file *file)
{
    int64_t whole = file->bytes, from = 0, most = file->memory_bytes / (2 * RECORD) * 2 * RECORD;
    int status = 0;
    file->bytes = whole < most ? whole : most;
    for (int i = 0; i < RINGS && !status; i++)
        if (there(&rings[i], file)) {
            status = check_ring(file, &rings[i], from);
            from += file->bytes;
        }
    file->bytes = whole;
    return status;
}

/* ------------------------------------------------------------------ measure */

static void speed_add(struct series *s, struct io_speed speed)
{
    samples_add(&s->speed, 1e-9 * speed.bytes_per_second);
    samples_add(&s->cpu, 1e9 * speed.cpu_per_byte);
}

static int series_add(struct io_file *file, const struct io_engine *e, enum io_mode mode,
                      struct series *s)
{
    struct io_speed speed;
    if (io_measure(file, e, mode, &speed))
        return -1;
    speed_add(s, speed);
    return 0;
}

int io_limit_find(struct io_file *file, enum io_mode mode, int rounds,
                  const struct io_engine **best)
{
    static struct series tried[ENGINES_MAX];
    int count, first = 0;
    const struct io_engine *limits = io_limits(file, &count);
    assert(count <= ENGINES_MAX);
    memset(tried, 0, sizeof(tried));
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < count; i++)
            if (series_add(file, &limits[i], mode, &tried[i]))
                return -1;
    for (int i = 1; i < count; i++)
        if (samples_median(&tried[i].speed) > samples_median(&tried[first].speed))
            first = i;
    *best = &limits[first];
    return 0;
}

/* The samples of one mode: the best limit's, the rings', and fio's where it is asked for. */
static struct {
    struct series limit, ours[RINGS], fio;
    const struct io_engine *best;
    struct io_engine fio_best;
} run;

static void fio_print(const char *name, int ring)
{
    char line[80];
    const struct series *ours = &run.ours[ring];
    double peer_cpu = samples_median(&run.fio.cpu);
    snprintf(line, sizeof(line), "%s_fio", name);
    bench_value(line, &run.fio.speed, "GB/s");
    snprintf(line, sizeof(line), "%s_fio_ratio", name);
    bench_ratio(line, samples_median(&ours->speed) / samples_median(&run.fio.speed),
                (struct aim){.least = ring_aims[ring].speed});
    snprintf(line, sizeof(line), "%s_fio_cpu_ratio", name);
    if (peer_cpu > 0) /* else fio saw none of it: its clock ticks seldom */
        bench_ratio(line, samples_median(&ours->cpu) / peer_cpu,
                    (struct aim){.most = ring_aims[ring].cpu});
}

static void mode_print(const char *mode, const struct io_file *file, bool fio)
{
    char name[64];
    bench_note("io_%s limit: %s, blocks of %s, %d at once, %.4f CPU seconds per GB", mode,
               run.best->name, in_bytes(run.best->block).text, run.best->depth,
               samples_median(&run.limit.cpu));
    if (fio)
        bench_note("io_%s by fio: %s, blocks of %s, %d at once, %.4f CPU seconds per GB", mode,
                   run.fio_best.name, in_bytes(run.fio_best.block).text, run.fio_best.depth,
                   samples_median(&run.fio.cpu));
    for (int i = 0; i < RINGS; i++) {
        if (!there(&rings[i], file))
            continue;
        snprintf(name, sizeof(name), "io_%s_%s", mode, rings[i].name);
        bench_rate(name, &run.limit.speed, &run.ours[i].speed, "GB/s", ring_aims[i].speed);
        printf("%s_cpu %.4f s/GB\n", name, samples_median(&run.ours[i].cpu));
        if (fio)
            fio_print(name, i);
    }
    fflush(stdout);
}

/* The best limit, the rings and fio in turn, round after round. until: of the bench's
 * time, the part after which no round begins. */
static int mode_run(const struct bench *b, struct io_file *file, enum io_mode mode,
                    const char *name, double until)
{
    int rounds = b->quick ? 1 : b->full ? 25 : 9, tries = b->quick ? 1 : b->full ? 5 : 2;
    memset(&run, 0, sizeof(run));
    if (io_limit_find(file, mode, tries, &run.best) ||
        (b->fio && io_fio_find(file, mode, b->quick, &run.fio_best)))
        return -1;
    for (int r = 0; r < rounds; r++) {
        struct io_speed fio;
        if (r > 0 && !b->full && !b->fio && clock_now() - b->started > until)
            break;
        if (series_add(file, run.best, mode, &run.limit))
            return -1;
        for (int i = 0; i < RINGS; i++)
            if (there(&rings[i], file) && series_add(file, &rings[i], mode, &run.ours[i]))
                return -1;
        if (!b->fio)
            continue;
        if (io_fio(file, mode, &run.fio_best, &fio))
            return -1;
        speed_add(&run.fio, fio);
    }
    mode_print(name, file, b->fio);
    return 0;
}

int bench_io(const struct bench *b)
{
    static const char *const modes[IO_MODES] = {"read", "write", "mixed"};
    int64_t bytes = (int64_t)(b->quick ? 48 : b->full ? 4032 : b->fio ? 2016 : 384) << 20;
    struct io_file file;
    struct disk disk;
    if (b->fio && !fio_there())
        return tool_refuse("There is no fio in PATH. Install it (apt-get install fio), or leave "
                           "--fio out.");
    disk_look(&disk, b->nvme_path);
    int status = io_file_open(&file, b->nvme_path, bytes, !b->full && !b->fio);
    if (!status)
        bench_note("%s in %s (%s%s), %s", in_bytes(file.bytes).text, b->nvme_path, disk.type,
                   disk.memory ? ": this is RAM, no disk" : "",
                   file.direct ? "O_DIRECT" : "through the page cache: no disk is measured");
    if (!status && !file.uring)
        bench_note("the lines of io_uring are left out. %s", file.error);
    if (!status && b->fio)
        bench_note("fio's memory: %s", io_fio_huge()
                                           ? "huge pages, as the rings'"
                                           : "small pages, with which it is slower; "
                                             "tests/bench/io.sh sets huge ones aside, as root");
    if (!status)
        status = check(&file);
    for (int mode = 0; mode < IO_MODES && !status; mode++)
        status = mode_run(b, &file, (enum io_mode)mode, modes[mode], 11.0 * (mode + 1));
    if (status)
        status = tool_fail("%s", file.error);
    io_file_close(&file);
    return status;
}
