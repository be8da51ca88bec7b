// SPDX-License-Identifier: Apache-2.0
/* Reads /proc without allocating. */
#include "tests/support/held.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Reads a file of /proc; its length. */
static size_t slurp(const char *path, char *text, size_t size)
{
    size_t length = 0;
    int fd = open(path, O_RDONLY);
    ck_assert_msg(fd >= 0, "%s", path);
    for (ssize_t n = 1; n > 0 && length < size - 1; length += (size_t)n)
        n = read(fd, text + length, size - 1 - length);
    close(fd);
    text[length] = '\0';
    return length;
}

/* How many entries of a folder count; NULL: all do. */
static int64_t entries(const char *path, bool (*counts)(const char *name))
{
    char buffer[4096];
    int64_t n = 0;
    int fd = open(path, O_RDONLY | O_DIRECTORY);
    ck_assert_msg(fd >= 0, "%s", path);
    for (long got = 1; got > 0;) {
        got = syscall(SYS_getdents64, fd, buffer, sizeof(buffer));
        for (long at = 0; at < got;) {
            n += !counts || counts(buffer + at + 19);      /* d_name */
            at += *(uint16_t *)(void *)(buffer + at + 16); /* d_reclen */
        }
    }
    close(fd);
    return n;
}

/* The kernel's own workers for io_uring end when it pleases. */
static bool is_ours(const char *task)
{
    char path[64], name[32] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task);
    int fd = open(path, O_RDONLY);
    ssize_t n = fd >= 0 ? read(fd, name, sizeof(name) - 1) : 0;
    if (fd >= 0)
        close(fd);
    return n > 0 && strncmp(name, "iou-", 4);
}

static int64_t threads(void)
{
    return entries("/proc/self/task", is_ours); /* "." and ".." have no comm */
}

static int64_t mapped(void)
{
    static char text[1 << 18];
    int64_t bytes = 0;
    if (SANITIZED)
        return 0;
    ck_assert(slurp("/proc/self/maps", text, sizeof(text)) < sizeof(text) - 1);
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        char *next;
        int64_t from = (int64_t)strtoull(line, &next, 16);
        int64_t to = (int64_t)strtoull(next + 1, NULL, 16);
        if (strstr(line, "/dev/shm/"))
            ck_abort_msg("%s", line);
        if (!strstr(line, "[heap]") && !strstr(line, "[stack]"))
            bytes += to - from;
    }
    return bytes;
}

static int64_t peak_memory(void)
{
    char text[4096], *at;
    slurp("/proc/self/status", text, sizeof(text));
    at = strstr(text, "VmHWM:");
    ck_assert_ptr_nonnull(at);
    return strtoll(at + 6, NULL, 10) * 1024;
}

/* A thread that was joined may be listed a moment longer. */
static int64_t settled_threads(void)
{
    int64_t now = threads(), last = -1;
    for (int i = 0; i < 100 && now != last; i++) {
        usleep(10000);
        last = now;
        now = threads();
    }
    return now;
}

static struct held held_but_threads(void)
{
    /* Check takes memory with each assertion: what malloc has is read first. */
    struct held h = {.blocks = allocations.blocks, .bytes = allocations.bytes};
    h.mappings = mapped();
    h.descriptors = entries("/proc/self/fd", NULL);
    h.peak = peak_memory();
    return h;
}

struct held held_now(void)
{
    struct held h = held_but_threads();
    h.threads = settled_threads();
    return h;
}

void held_expect(const struct held *before, const char *what)
{
    struct held now = held_but_threads();
    now.threads = threads();
    if (now.threads != before->threads)
        now.threads = settled_threads();
    /* Blocks are as large as malloc finds good: their bytes may differ a little. */
    ck_assert_msg(now.blocks == before->blocks && llabs(now.bytes - before->bytes) < 4096,
                  "%s: %lld blocks of %lld bytes are not freed", what,
                  (long long)(now.blocks - before->blocks), (long long)(now.bytes - before->bytes));
    ck_assert_msg(now.mappings == before->mappings, "%s: %lld bytes more are mapped", what,
                  (long long)(now.mappings - before->mappings));
    ck_assert_msg(now.descriptors == before->descriptors, "%s: %lld descriptors, before it %lld",
                  what, (long long)now.descriptors, (long long)before->descriptors);
    ck_assert_msg(now.threads == before->threads, "%s: %lld threads, before it %lld", what,
                  (long long)now.threads, (long long)before->threads);
}
