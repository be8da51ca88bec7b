// SPDX-License-Identifier: Apache-2.0
/* Reads text files into one block: what trains grows from its
 * front, what is held out from its back. */
#include "examples/common/text.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/common/counter.h"
#include "examples/common/figure.h"
#include "examples/common/refuse.h"

struct reader {
    struct text *text;
    const struct paths *files;
    struct sink sink;
};

/* ------------------------------------------------------------------ reading */

static int64_t read_up_to(int fd, unsigned char *to, int64_t bytes)
{
    int64_t got = 0;
    while (got < bytes) {
        ssize_t n = read(fd, to + got, (size_t)(bytes - got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        got += n;
    }
    return got;
}

/* Up to room bytes of a file into to. -1: not text, or not to be read. */
static int64_t file_read(const char *path, unsigned char *to, int64_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int64_t head = room < TEXT_HEAD ? room : TEXT_HEAD;
    int64_t got = read_up_to(fd, to, head);
    bool is_text = got >= 0 && (got == 0 || !memchr(to, 0, (size_t)got));
    int64_t rest = is_text ? read_up_to(fd, to + got, room - got) : -1;
    close(fd);
    return rest < 0 ? -1 : got + rest;
}

/* Sizes as they are now; what a file grows by later is not read. */
static int64_t *sizes_of(const struct paths *files, int64_t *total)
{
    int64_t *sizes = calloc((size_t)files->count + 1, sizeof(*sizes));
    *total = 0;
    for (int i = 0; sizes && i < files->count; i++) {
        struct stat st;
        sizes[i] = stat(files->items[i], &st) == 0 ? (int64_t)st.st_size : 0;
        *total += sizes[i];
    }
    return sizes;
}

static int read_all(struct reader *r)
{
    struct text *t = r->text;
    int64_t total, *sizes = sizes_of(r->files, &total);
    t->train = sizes ? malloc((size_t)total + 1) : NULL;
    if (!t->train) {
        free(sizes);
        return refuse(r->sink, "%lld bytes of text do not fit in memory. Give less with --data.",
                      (long long)total);
    }
    t->held = t->train + total;
    for (int i = 0; i < r->files->count; i++) {
        unsigned char *end = t->train + t->train_bytes;
        int64_t bytes = file_read(r->files->items[i], end, sizes[i]);
        if (bytes < 0) {
            t->passed_over++;
        } else if (t->files++ % TEXT_HOLD == TEXT_HOLD - 1) {
            t->held -= bytes;
            assert(t->held >= end);
            memmove(t->held, end, (size_t)bytes);
            t->held_bytes += bytes;
            t->held_files++;
        } else {
            t->train_bytes += bytes;
        }
    }
    free(sizes);
    return 0;
}

/* Too few files to hold any out: then the end of the text. */
static void hold_tail(struct text *t)
{
    t->held_bytes = t->train_bytes / TEXT_HOLD;
    t->train_bytes -= t->held_bytes;
    t->held = t->train + t->train_bytes;
}

static int check_enough(struct reader *r, int length)
{
    const struct text *t = r->text;
    if (t->files == 0)
        return refuse(r->sink,
                      "No text was found in %s: none can be read and is free of NUL bytes, "
                      "and %d links and folders were passed over. Give --data files or folders of "
                      "text.",
                      counted(r->files->count, "file").text, r->files->passed_over);
    if (t->train_bytes < text_needs(length))
        return refuse(r->sink,
                      "The text of %s leaves %lld bytes to train on, and one sequence of %d "
                      "tokens needs %lld. Give more with --data or a smaller --seq.",
                      counted(t->files, "file").text, (long long)t->train_bytes, length,
                      (long long)text_needs(length));
    return 0;
}

int text_load(struct text *t, const struct paths *files, int length, char *error, size_t error_size)
{
    *t = (struct text){.passed_over = files->passed_over};
    struct reader r = {.text = t, .files = files, .sink = {error, error_size}};
    int status = read_all(&r);
    if (status == 0 && t->held_files == 0)
        hold_tail(t);
    if (status == 0)
        status = check_enough(&r, length);
    if (status)
        text_free(t);
    return status;
}

void text_free(struct text *t)
{
    free(t->train);
    *t = (struct text){0};
}

/* ------------------------------------------------------------------ cutting */

static uint64_t hash_bytes(uint64_t hash, const unsigned char *from, int64_t bytes)
{
    uint64_t word;
    hash = counter_mix(hash + (uint64_t)bytes);
    for (int64_t i = 0; i < bytes; i += 8) {
        int64_t left = bytes - i < 8 ? bytes - i : 8;
        word = 0;
        memcpy(&word, from + i, (size_t)left);
        hash = counter_mix(hash ^ word) + 0x9E3779B97F4A7C15u;
    }
    return hash;
}

uint64_t text_hash(const struct text *t)
{
    return hash_bytes(hash_bytes(0, t->train, t->train_bytes), t->held, t->held_bytes);
}

int64_t text_needs(int length)
{
    return (int64_t)length + 2;
}

int64_t text_start(uint64_t seed, int64_t sequence, int64_t bytes, int length)
{
    assert(bytes >= text_needs(length) && sequence >= 0);
    return (int64_t)(counter_bits(seed, 0, (uint64_t)sequence) % (uint64_t)(bytes - length - 1));
}

void text_batch(const unsigned char *from, int64_t bytes, uint64_t seed, int64_t number, int batch,
                int length, int32_t *tokens, int32_t *targets)
{
    for (int b = 0; b < batch; b++) {
        const unsigned char *s = from + text_start(seed, number * batch + b, bytes, length);
        for (int i = 0; i < length; i++) {
            tokens[(int64_t)b * length + i] = s[i];
            targets[(int64_t)b * length + i] = s[i + 1];
        }
    }
}
