// SPDX-License-Identifier: Apache-2.0
/* fio's own figure for the same file, where fio is installed: for those who
 * know it. It is no limit: fio's memory is not ours, and it runs after the
 * others, not in turn with them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "examples/zero/bench_io.h"

enum { ARGUMENTS = 32, LINE = 8192, RUNTIME = 1 /* seconds */ };

static bool fio_there(void)
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

/* Starts fio with its output in a pipe; returns the end to read from, or NULL. */
static FILE *fio_start(char *const *arguments, pid_t *child)
{
    int ends[2];
    if (pipe(ends) != 0)
        return NULL;
    *child = fork();
    if (*child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execvp(arguments[0], arguments);
        _exit(127);
    }
    close(ends[1]);
    FILE *output = *child > 0 ? fdopen(ends[0], "r") : NULL;
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

/* Jobs' bandwidths, read and written: fields 7 and 48 of version 3, in KiB/s. */
static double bandwidth(FILE *output)
{
    static char line[LINE];
    double sum = 0;
    while (fgets(line, sizeof(line), output))
        if (strncmp(line, "3;", 2) == 0)
            sum += 1024 * (field(line, 7) + field(line, 48));
    return sum;
}

static double seconds_of(const struct rusage *u)
{
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
           1e-6 * (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

bool io_fio(const struct io_file *file, enum io_mode mode, struct io_speed *speed)
{
    char name[64], half[64];
    char *arguments[ARGUMENTS] = {"fio",
                                  "--output-format=terse",
                                  "--terse-version=3",
                                  "--ioengine=libaio",
                                  "--direct=1",
                                  "--bs=1M",
                                  "--iodepth=8",
                                  "--time_based",
                                  "--runtime=1",
                                  "--thread",
                                  "--overwrite=1",
                                  name};
    int count = 12;
    char *const jobs[2][2] = {{"--name=read", "--rw=read"}, {"--name=write", "--rw=write"}};
    pid_t child = -1;
    if (!fio_there())
        return false;
    /* The file has no name: this is one while we live. */
    snprintf(name, sizeof(name), "--filename=/proc/%d/fd/%d", (int)getpid(), file->fd);
    snprintf(half, sizeof(half), mode == IO_MIXED ? "--size=50%%" : "--size=100%%");
    arguments[count++] = half;
    for (int i = 0; i < 2; i++) {
        if (mode != IO_MIXED && i != (mode == IO_WRITE))
            continue;
        arguments[count++] = jobs[i][0];
        arguments[count++] = jobs[i][1];
        if (mode == IO_MIXED && i == 1)
            arguments[count++] = "--offset=50%";
    }
    FILE *output = fio_start(arguments, &child);
    speed->bytes_per_second = output ? bandwidth(output) : 0;
    if (output)
        fclose(output);
    int status = 0;
    struct rusage used = {0}; /* with its start, and what it waits for at its end */
    if (child > 0 && (wait4(child, &status, 0, &used) != child || status != 0))
        return false;
    speed->cpu_per_byte = seconds_of(&used) / (RUNTIME * speed->bytes_per_second);
    return speed->bytes_per_second > 0;
}
