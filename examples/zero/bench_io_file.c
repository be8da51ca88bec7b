// SPDX-License-Identifier: Apache-2.0
/* The file that is measured on, its content, and the clock around a pass. */
#include "examples/zero/bench_io.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "examples/common/counter.h"
#include "examples/common/refuse.h"
#include "examples/zero/tool.h"
#include "offload/arena.h"
#include "offload/spill.h"

#define MEMORY ((int64_t)64 << 20)
#define PIECE  ((int64_t)48 << 20) /* all sizes of block divide its half */

static int fail(struct io_file *file, const char *what, const char *folder)
{
    return refuse((struct sink){file->error, sizeof(file->error)}, "Cannot %s in %s: %s. %s.", what,
                  folder, strerror(errno),
                  errno == EFBIG ? "Raise the limit on file sizes (ulimit -f)"
                                 : "Choose another folder with --nvme-path");
}

/* Words that tell their offset, and no disk can compress. */
static uint64_t word_at(int64_t offset)
{
    return counter_mix((uint64_t)offset);
}

void io_content_fill(char *memory, int64_t offset, int64_t bytes)
{
    uint64_t *words = (uint64_t *)(void *)memory;
    for (int64_t i = 0; i < bytes / 8; i++)
        words[i] = word_at(offset + 8 * i);
}

bool io_content_is(const char *memory, int64_t offset, int64_t bytes)
{
    const uint64_t *words = (const uint64_t *)(const void *)memory;
    for (int64_t i = 0; i < bytes / 8; i++)
        if (words[i] != word_at(offset + 8 * i))
            return false;
    return true;
}

static bool space_suffices(struct io_file *file, const char *folder)
{
    int64_t there = spill_space(file->fd);
    if (file->bytes <= there)
        return true;
    snprintf(file->error, sizeof(file->error),
             "%s has %s free, and %s are needed. Choose another "
             "folder with --nvme-path.",
             folder, in_bytes(there).text, in_bytes(file->bytes).text);
    return false;
}

/* Where hurry is set the file ends where half a second has gone by: on a slow
 * disk a bench is to end in time, too. */
static int file_write(struct io_file *file, const char *folder, bool hurry)
{
    double start = clock_now();
    for (int64_t at = 0; at < file->bytes;) {
        int64_t left = file->bytes - at, n = left < PIECE ? left : PIECE;
        io_content_fill(file->memory, at, n);
        ssize_t written = pwrite(file->fd, file->memory, (size_t)n, (off_t)at);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 4096) { /* none, or less than can be gone on from */
            if ((uint64_t)(at + n) > spill_size_limit()) /* which the kernel does not always say */
                errno = EFBIG;
            else if (written >= 0)
                errno = ENOSPC;
            return fail(file, "write the file", folder);
        }
        at += written / 4096 * 4096; /* what was cut is written again */
        if (hurry && at % PIECE == 0 && clock_now() - start > 0.5)
            file->bytes = at;
    }
    return fsync(file->fd) ? fail(file, "write the file", folder) : 0;
}

int io_file_open(struct io_file *file, const char *folder, int64_t bytes, bool hurry)
{
    struct error error = {0};
    struct arena *arena = calloc(1, sizeof(*arena));
    *file = (struct io_file){.fd = -1, .bytes = bytes};
    if (!arena || arena_create(arena, MEMORY, 1, &error)) {
        snprintf(file->error, sizeof(file->error), "%s", arena ? error.text : "Out of memory.");
        free(arena);
        return -1;
    }
    file->arena = arena;
    file->memory = arena->base;
    file->memory_bytes = MEMORY;
    file->fd = spill_open(folder);
    if (file->fd < 0)
        return fail(file, "create a file", folder);
    if (!space_suffices(file, folder))
        return -1;
    file->direct = spill_direct(file->fd);
    if (file_write(file, folder, hurry))
        return -1;
    file->uring = io_uring_there(file);
    return 0;
}

void io_file_close(struct io_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
    if (file->arena)
        arena_destroy(file->arena);
    free(file->arena);
    file->arena = NULL;
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

int io_measure(struct io_file *file, const struct io_engine *engine, enum io_mode mode,
               struct io_speed *speed)
{
    double cpu = cpu_seconds(), start = clock_now();
    if (engine->pass(file, mode, engine->block, engine->depth))
        return -1;
    speed->bytes_per_second = (double)file->bytes / (clock_now() - start);
    speed->cpu_per_byte = (cpu_seconds() - cpu) / (double)file->bytes;
    return 0;
}
