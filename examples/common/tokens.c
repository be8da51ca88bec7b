// SPDX-License-Identifier: Apache-2.0
/* Nothing of a file is believed before its size has been compared with what its
 * header says; no token before it has been looked at. */
#include "examples/common/tokens.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/common/counter.h"
#include "examples/common/refuse.h"
#include "examples/common/text.h"

enum { MAGIC_GPT2 = 20240520, MAGIC_LLAMA = 20240801, VERSION = 1 };

#define PIECE (1 << 20) /* tokens looked at before their pages are let go */

enum token_kind tokens_kind(const char *path)
{
    int32_t magic = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : pread(fd, &magic, sizeof(magic), 0);
    if (fd >= 0)
        close(fd);
    if (got != sizeof(magic))
        return TOKENS_NONE;
    return magic == MAGIC_GPT2 ? TOKENS_GPT2 : magic == MAGIC_LLAMA ? TOKENS_LLAMA : TOKENS_NONE;
}

/* ------------------------------------------------------------------ loading */

/* Whether header and size belong together; *tokens takes their number. */
static int header_check(const char *path, const int32_t header[3], int64_t bytes, int64_t *tokens,
                        struct sink sink)
{
    if (header[0] != MAGIC_GPT2)
        return refuse(sink,
                      "'%s' begins with %d, and a token file with %d. Give --data files that "
                      "llm.c's scripts wrote.",
                      path, (int)header[0], (int)MAGIC_GPT2);
    if (header[1] != VERSION)
        return refuse(sink,
                      "'%s' is a token file of version %d, and version %d is read here. Write "
                      "it anew with llm.c's scripts.",
                      path, (int)header[1], (int)VERSION);
    int64_t expected = TOKENS_HEADER + 2 * (int64_t)header[2];
    if (header[2] < 0 || bytes != expected)
        return refuse(sink,
                      "'%s' says that it holds %d tokens, but its %lld bytes have room for %lld. "
                      "It was cut or changed: write it anew.",
                      path, (int)header[2], (long long)bytes,
                      (long long)(bytes > TOKENS_HEADER ? (bytes - TOKENS_HEADER) / 2 : 0));
    *tokens = header[2];
    return 0;
}

static int map_open(struct token_map *m, const char *path, struct sink sink)
{
    struct stat st;
    int32_t header[3];
    int fd = open(path, O_RDONLY | O_CLOEXEC), status = 0;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        status = refuse(sink, "'%s' cannot be read: %s. Give --data files that can.", path,
                        fd < 0 ? strerror(errno) : "it is no file");
        goto exit;
    }
    if (st.st_size < TOKENS_HEADER || pread(fd, header, sizeof(header), 0) != sizeof(header)) {
        status = refuse(sink,
                        "'%s' has %lld bytes, and the header of a token file has %d. It was "
                        "cut: write it anew.",
                        path, (long long)st.st_size, (int)TOKENS_HEADER);
        goto exit;
    }
    status = header_check(path, header, st.st_size, &m->tokens, sink);
    if (status)
        goto exit;
    void *address = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
        status = refuse(sink, "'%s' cannot be mapped: %s. Give fewer files with --data.", path,
                        strerror(errno));
        goto exit;
    }
    m->address = address;
    m->bytes = (size_t)st.st_size;
exit:
    if (fd >= 0)
        close(fd);
    return status;
}

static const uint16_t *map_tokens(const struct token_map *m)
{
    return (const uint16_t *)(const void *)((const char *)m->address + TOKENS_HEADER);
}

static uint64_t piece_hash(uint64_t hash, const uint16_t *from, int64_t count)
{
    for (int64_t i = 0; i < count; i += 4) {
        uint64_t word = 0;
        memcpy(&word, from + i, (size_t)(count - i < 4 ? count - i : 4) * sizeof(*from));
        hash = counter_mix(hash ^ word) + 0x9E3779B97F4A7C15u;
    }
    return hash;
}

/* Looks at every token, a piece at a time: a rank's memory stays small. */
static int map_check(const struct token_map *m, const char *path, uint64_t *hash, struct sink sink)
{
    const uint16_t *tokens = map_tokens(m);
    *hash = counter_mix(*hash + (uint64_t)m->tokens);
    for (int64_t first = 0; first < m->tokens; first += PIECE) {
        int64_t count = m->tokens - first < PIECE ? m->tokens - first : PIECE;
        for (int64_t i = first; i < first + count; i++)
            if (tokens[i] >= TOKENS_VOCAB)
                return refuse(sink,
                              "'%s' has %u as token %lld, and GPT-2 has tokens 0 to %d. Write "
                              "the file anew with GPT-2's tokenizer.",
                              path, (unsigned)tokens[i], (long long)i, TOKENS_VOCAB - 1);
        *hash = piece_hash(*hash, tokens + first, count);
        madvise(m->address, m->bytes, MADV_DONTNEED); /* the kernel's cache keeps them */
    }
    return 0;
}

/* ------------------------------------------------------------------ holding */

static void row_append(struct token_row *row, const uint16_t *tokens, int64_t count)
{
    if (count == 0)
        return;
    row->parts[row->count++] = (struct token_part){tokens, row->tokens, count};
    row->tokens += count;
}

/* Deals the files, or with too few of them the tokens, to the two rows. */
static void rows_deal(struct tokens *t)
{
    int64_t all = 0, at = 0;
    for (int i = 0; i < t->files; i++)
        all += t->maps[i].tokens;
    int64_t edge = all - all / TOKENS_HOLD;
    for (int i = 0; i < t->files; i++) {
        const struct token_map *m = &t->maps[i];
        bool held = i % TOKENS_HOLD == TOKENS_HOLD - 1;
        int64_t train = held ? 0 : m->tokens;
        if (t->files < TOKENS_HOLD)
            train = edge <= at ? 0 : edge - at < m->tokens ? edge - at : m->tokens;
        row_append(&t->train, map_tokens(m), train);
        row_append(&t->held, map_tokens(m) + train, m->tokens - train);
        t->held_files += held;
        at += m->tokens;
    }
}

static int load(struct tokens *t, const struct paths *files, struct sink sink)
{
    size_t count = (size_t)files->count;
    t->maps = calloc(count, sizeof(*t->maps));
    t->train.parts = calloc(count, sizeof(*t->train.parts));
    t->held.parts = calloc(count, sizeof(*t->held.parts));
    if (!t->maps || !t->train.parts || !t->held.parts)
        return refuse(sink, "No memory is left for a list of %d files. Give fewer with --data.",
                      files->count);
    for (; t->files < files->count; t->files++) {
        struct token_map *m = &t->maps[t->files];
        const char *path = files->items[t->files];
        if (map_open(m, path, sink))
            return -1;
        t->bytes += (int64_t)m->bytes;
        if (map_check(m, path, &t->hash, sink)) {
            t->files++;
            return -1;
        }
    }
    return 0;
}

int tokens_load(struct tokens *t, const struct paths *files, int length, char *error,
                size_t error_size)
{
    struct sink sink = {error, error_size};
    *t = (struct tokens){0};
    assert(files->count > 0);
    int status = load(t, files, sink);
    if (status == 0)
        rows_deal(t);
    if (status == 0 && t->train.tokens < text_needs(length))
        status =
            refuse(sink,
                   "%d token files leave %lld tokens to train on, and one sequence of %d "
                   "needs %lld. Give more with --data or a smaller --seq.",
                   t->files, (long long)t->train.tokens, length, (long long)text_needs(length));
    if (status)
        tokens_free(t);
    return status;
}

void tokens_free(struct tokens *t)
{
    for (int i = 0; i < t->files; i++)
        munmap(t->maps[i].address, t->maps[i].bytes);
    free(t->maps);
    free(t->train.parts);
    free(t->held.parts);
    *t = (struct tokens){0};
}

/* ------------------------------------------------------------------ cutting */

/* The part that holds token number at of the row. */
static int part_of(const struct token_row *row, int64_t at)
{
    int low = 0, high = row->count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (row->parts[middle].first <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

void tokens_copy(const struct token_row *row, int64_t first, int count, int32_t *out)
{
    assert(first >= 0 && count >= 0 && first + count <= row->tokens);
    for (int p = part_of(row, first), done = 0; done < count; p++) {
        const struct token_part *part = &row->parts[p];
        int64_t at = first + done - part->first;
        for (; at < part->count && done < count; at++)
            out[done++] = part->tokens[at];
    }
}

void tokens_batch(const struct token_row *row, uint64_t seed, int64_t number, int batch, int length,
                  int32_t *tokens, int32_t *targets)
{
    for (int b = 0; b < batch; b++) {
        int64_t at = text_start(seed, number * batch + b, row->tokens, length);
        tokens_copy(row, at, length, tokens + (int64_t)b * length);
        tokens_copy(row, at + 1, length, targets + (int64_t)b * length);
    }
}
