// SPDX-License-Identifier: Apache-2.0
/* Reads text files into one block: what trains grows from its
 * front, what is held out from its back. */
#include "examples/common/text.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/common/counter.h"
#include "examples/common/figure.h"
#include "examples/common/file.h"
#include "examples/common/refuse.h"

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

/* The bytes of a file of text, at most room. -1: not text, or not to be read. */
static int64_t file_measure(int fd, int64_t room)
{
    unsigned char head[TEXT_HEAD];
    struct stat st;
    int64_t got = fstat(fd, &st) ? -1 : read_up_to(fd, head, TEXT_HEAD);
    if (got < 0 || memchr(head, 0, (size_t)got) || lseek(fd, 0, SEEK_SET))
        return -1;
    return st.st_size < room ? (int64_t)st.st_size : room;
}

/* As file_measure, and they are in to; NULL: they are not wanted. *reason is the errno of what is
 * not to be read; 0: it is not text. */
static int64_t file_read(const char *path, unsigned char *to, int64_t room, int *reason)
{
    errno = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int64_t bytes = fd < 0 ? -1 : file_measure(fd, room);
    if (to && bytes > 0)
        bytes = read_up_to(fd, to, bytes);
    *reason = bytes < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return bytes;
}

/* nth: of text. */
static bool is_held(const struct paths *files, int i, int nth)
{
    return files->held ? paths_held(files, i) : nth % TEXT_HOLD == TEXT_HOLD - 1;
}

/* Goes over all files: into t->train, which has room for so many bytes, or without it to
 * count alone. What the last file grows by between the two is not read. Returns the errno of
 * the first that is not to be read; 0: none. */
static int files_deal(struct text *t, const struct paths *files, int64_t room)
{
    int reason = 0, first = 0;
    t->held = t->train ? t->train + room : NULL;
    for (int i = 0; i < files->count; i++) {
        unsigned char *end = t->train ? t->train + t->train_bytes : NULL;
        int64_t left = room - t->train_bytes - t->held_bytes;
        int64_t bytes = file_read(files->items[i], end, left, &reason);
        assert(bytes <= left);
        t->sizes = counter_mix(t->sizes ^ (uint64_t)bytes);
        if (bytes < 0) {
            t->passed_over++;
            t->unreadable += reason != 0;
            first = first ? first : reason;
        } else if (is_held(files, i, t->files++)) {
            if (t->train)
                memmove(t->held -= bytes, end, (size_t)bytes);
            t->held_bytes += bytes;
            t->held_files++;
        } else {
            t->train_bytes += bytes;
        }
    }
    return first;
}

/* Too few files to hold any out: then the end of the text. */
static void hold_tail(struct text *t)
{
    if (t->held_files)
        return;
    t->held_bytes = t->train_bytes / TEXT_HOLD;
    t->train_bytes -= t->held_bytes;
    if (t->train)
        t->held = t->train + t->train_bytes;
}

static int check_enough(const struct text *t, const struct paths *files, int length,
                        struct sink sink)
{
    int unread = t->unreadable - files->unreadable;
    bool binary = t->passed_over - files->passed_over > unread; /* some have NUL bytes */
    int named = files->count - files->held, texts = t->files - (files->held ? t->held_files : 0);
    if (!named)
        return refuse(sink,
                      "No file was found under --data%s (links and folders passed over: %d). Give "
                      "--data files or folders of text.",
                      files->held ? " that --eval-data does not name" : "", files->passed_over);
    if (texts == 0)
        return refuse(sink,
                      "No text was found in %s: each has NUL bytes or cannot be read (links and "
                      "folders passed over: %d). Give --data files or folders of text%s.",
                      counted(named, "file").text, files->passed_over,
                      binary ? ", or token files with llm.c's header of 1024 bytes (magic "
                               "20240520), which nanoGPT's train.bin lacks"
                             : "");
    if (files->held && !t->held_files)
        return refuse(sink,
                      "No text was found in %s of --eval-data: each has NUL bytes or cannot be "
                      "read. Give --eval-data files or folders of text.",
                      counted(files->held, "file").text);
    if (t->train_bytes < text_needs(length))
        return refuse(
            sink,
            "The text of %s leaves %s to train on, and one sequence of %s needs %lld. Give "
            "more with --data or a smaller --seq.",
            counted(texts, "file").text, counted(t->train_bytes, "byte").text,
            counted(length, "token").text, (long long)text_needs(length));
    return 0;
}

int text_find(struct text *t, const struct paths *files, int length, char *error, size_t error_size)
{
    *t = (struct text){.passed_over = files->passed_over, .unreadable = files->unreadable};
    files_deal(t, files, INT64_MAX);
    hold_tail(t);
    return check_enough(t, files, length, (struct sink){error, error_size});
}

int text_read(struct text *t, const struct paths *files, char *error, size_t error_size)
{
    const struct text found = *t;
    int64_t bytes = found.train_bytes + found.held_bytes;
    struct sink sink = {error, error_size};
    assert(!t->train && bytes > 0);
    *t = (struct text){.passed_over = files->passed_over,
                       .unreadable = files->unreadable,
                       .train = malloc((size_t)bytes)};
    if (!t->train)
        return refuse(sink, "%lld bytes of text do not fit in memory. Give less with --data.",
                      (long long)bytes);
    int reason = files_deal(t, files, bytes);
    hold_tail(t);
    if (t->sizes == found.sizes)
        return 0;
    int64_t now = t->train_bytes + t->held_bytes;
    refuse(sink, "%lld bytes of text were found, and %lld could be read: %s. %s.", (long long)bytes,
           (long long)now,
           reason        ? file_reason(reason)
           : now < bytes ? "some files are shorter now, or have NUL bytes"
                         : "some files are longer now",
           reason == EMFILE ? "Raise that limit"
                            : "Files have changed meanwhile, or cannot be read any more: leave "
                              "them as they are, or name others");
    text_free(t);
    return -1;
}

void text_free(struct text *t)
{
    free(t->train);
    *t = (struct text){0};
}

/* ------------------------------------------------------------------ cutting */

uint64_t text_hash(const struct text *t)
{
    size_t train = (size_t)t->train_bytes, held = (size_t)t->held_bytes;
    uint64_t hash = counter_hash(counter_mix(train), t->train, train);
    return counter_hash(counter_mix(hash + held), t->held, held);
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
