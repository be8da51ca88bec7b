// SPDX-License-Identifier: Apache-2.0
/* fio on the file that the rings move, for --fio: a process of its own that
 * moves the whole file once, with its memory in huge pages where enough are set
 * aside. Both at once is two jobs of the same depth, one on each half. */
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "examples/zero/bench_io.h"
#include "examples/zero/info.h"

enum { ARGUMENTS = 20, WORD = 64, LINE = 8192 };

bool fio_there(void)
{
    const char *path = getenv("PATH");
    char list[4096], program[4200], *rest = list, *folder;
    snprintf(list, sizeof(list), "%s", path ? path : "");
    while ((folder = strsep(&rest, ":")) != NULL) {
        snprintf(program, sizeof(program), "%s/fio", folder);
        if (access(program, X_OK) == 0)
            return true;
    }
    return false;
}

/* Starts fio with its output in a pipe; returns the end to read from, or NULL. Not by
 * fork: what the child shares of memory that a ring has registered, the kernel then copies in
 * small pages, and all that follows is half as fast. */
static FILE *fio_start(char *const *arguments, pid_t *child)
{
    int ends[2];
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return NULL;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    bool started = posix_spawnp(child, arguments[0], &actions, NULL, arguments, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (!started)
        *child = -1;
    FILE *output = started ? fdopen(ends[0], "r") : NULL;
    if (!output)
        close(ends[0]);
    return output;
}

/* Field number (from 1) of a terse line: fields end with semicolons. */
static double field(const char *line, int number)
{
    for (int i = 1; line && i < number; i++) {
        line = strchr(line, ';');
        line += line != NULL;
    }
    return line ? atof(line) : 0;
}

/* What the jobs moved, until the last was done: KiB read and written and their milliseconds
 * (fields 6 and 47, 9 and 50 of version 3), and processor time, the program's and the kernel's (88
 * and 89, in percent of them). */
static struct io_speed jobs_read(FILE *output)
{
    static char line[LINE];
    double bytes = 0, cpu = 0, longest = 0;
    while (fgets(line, sizeof(line), output))
        if (strncmp(line, "3;", 2) == 0) {
            double seconds = (field(line, 9) + field(line, 50)) / 1000;
            bytes += 1024 * (field(line, 6) + field(line, 47));
            cpu += seconds * (field(line, 88) + field(line, 89)) / 100;
            longest = seconds > longest ? seconds : longest;
        }
    return longest > 0 && bytes > 0 ? (struct io_speed){bytes / longest, cpu / bytes}
                                    : (struct io_speed){0};
}

/* What two jobs use at most, 32 blocks of 4 MiB each and some more, is there in huge pages. */
bool io_fio_huge(void)
{
    char pages[64] = "", kib[64] = "";
    info_value("/proc/meminfo", "HugePages_Free", pages, sizeof(pages));
    info_value("/proc/meminfo", "Hugepagesize", kib, sizeof(kib));
    return atol(pages) * atol(kib) >= 320 << 10;
}

static int fail(struct io_file *file, const struct io_engine *way, int status)
{
    snprintf(file->error, sizeof(file->error),
             "fio with --ioengine=%s ended with status %d and no result. Leave --fio out, or run "
             "fio by itself to see why.",
             way->name, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return -1;
}

int io_fio(struct io_file *file, enum io_mode mode, const struct io_engine *way,
           struct io_speed *speed)
{
    char words[6][WORD],
        *arguments[ARGUMENTS] = {"fio", "--output-format=terse", "--terse-version=3",
                                 "--overwrite=1", file->direct ? "--direct=1" : "--direct=0"};
    char *const jobs[2][2] = {{"--name=read", "--rw=read"}, {"--name=write", "--rw=write"}};
    int count = 5, status = 0;
    pid_t child = -1;
    /* The file has no name: this is one while we live. */
    snprintf(words[0], WORD, "--filename=/proc/%d/fd/%d", (int)getpid(), file->fd);
    snprintf(words[1], WORD, "--size=%d%%", mode == IO_MIXED ? 50 : 100);
    snprintf(words[2], WORD, "--ioengine=%s", way->name);
    snprintf(words[3], WORD, "--bs=%" PRId64, way->block);
    snprintf(words[4], WORD, "--iodepth=%d", way->depth);
    snprintf(words[5], WORD, "--mem=%s", io_fio_huge() ? "shmhuge" : "mmap");
    for (int i = 0; i < 6; i++)
        arguments[count++] = words[i];
    for (int i = 0; i < 2; i++) {
        if (mode != IO_MIXED && i != (mode == IO_WRITE))
            continue;
        arguments[count++] = jobs[i][0];
        arguments[count++] = jobs[i][1];
        if (mode == IO_MIXED && i == 1)
            arguments[count++] = "--offset=50%";
    }
    FILE *output = fio_start(arguments, &child);
    *speed = output ? jobs_read(output) : (struct io_speed){0};
    if (output)
        fclose(output);
    if (child > 0 && waitpid(child, &status, 0) != child)
        status = 0;
    return status == 0 && speed->bytes_per_second > 0 ? 0 : fail(file, way, status);
}

int io_fio_find(struct io_file *file, enum io_mode mode, bool quick, struct io_engine *best)
{
    static const char *const names[] = {"libaio", "io_uring"};
    static const int blocks[] = {1, 2, 4}, depths[] = {8, 4, 16, 32};
    double most = 0;
    for (int i = 0; i < (quick ? 1 : 2 * 3 * 4); i++) {
        struct io_engine way = {.name = names[i % 2],
                                .block = (int64_t)blocks[i / 2 % 3] << 20,
                                .depth = depths[i / 6]};
        struct io_speed speed;
        if (i % 2 == 1 && !file->uring)
            continue;
        if (io_fio(file, mode, &way, &speed))
            return -1;
        if (speed.bytes_per_second > most) {
            most = speed.bytes_per_second;
            *best = way;
        }
    }
    return 0;
}
