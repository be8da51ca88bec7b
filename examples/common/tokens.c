// SPDX-License-Identifier: Apache-2.0
/* Nothing of a file is believed before its size has been compared with what its
 * header says; no token is given out that was not looked at. */
#include "examples/common/tokens.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/common/counter.h"
#include "examples/common/file.h"
#include "examples/common/refuse.h"
#include "examples/common/text.h"

enum { MAGIC_GPT2 = 20240520, MAGIC_LLAMA = 20240801, VERSION = 1 };

enum {
    PIECE = 1 << 16, /* tokens that are read at once */
    ENDS = 1 << 12,  /* tokens at each end of a file that are compared between ranks */
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

enum token_kind tokens_kind(const char *path)
{
    int32_t magic = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return TOKENS_UNREADABLE;
    ssize_t got = pread(fd, &magic, sizeof(magic), 0);
    close(fd);
    if (got != sizeof(magic))
        return TOKENS_NONE;
    return magic == MAGIC_GPT2 ? TOKENS_GPT2 : magic == MAGIC_LLAMA ? TOKENS_LLAMA : TOKENS_NONE;
}

/* ------------------------------------------------------------------ reading */

/* Whether header and size belong together; *tokens takes their number. */
static int header_check(const char *path, const int32_t header[3], int64_t bytes, int64_t *tokens,
                        struct sink sink)
{
    if (header[0] != MAGIC_GPT2)
        return refuse(sink,
                      "'%s' begins with the number %d, but a token file begins with %d. Give "
                      "files that llm.c's scripts wrote.",
                      path, (int)header[0], (int)MAGIC_GPT2);
    if (header[1] != VERSION)
        return refuse(sink,
                      "'%s' is a token file of version %d, and version %d is read here. Write "
                      "it anew with llm.c's scripts.",
                      path, (int)header[1], (int)VERSION);
    int64_t expected = TOKENS_HEADER + 2 * (int64_t)header[2];
    if (bytes != expected)
        return refuse(sink,
                      "'%s' says that it holds %d tokens, which are %lld bytes with its header, "
                      "but it has %lld. It was cut or changed: write it anew.",
                      path, (int)header[2], (long long)expected, (long long)bytes);
    *tokens = header[2];
    return 0;
}

/* Sees what a file is by its size and header. */
static int header_read(struct token_file *f, struct sink sink)
{
    int32_t header[3];
    int fd = open(f->path, O_RDONLY | O_CLOEXEC), status;
    if (fd < 0 || fstat(fd, &f->is) < 0 || !S_ISREG(f->is.st_mode))
        status = refuse(sink, "'%s' cannot be read: %s. Give files that can.", f->path,
                        fd < 0 ? strerror(errno) : "it is no file");
    else if (f->is.st_size < TOKENS_HEADER ||
             pread(fd, header, sizeof(header), 0) != sizeof(header))
        status = refuse(sink,
                        "'%s' has %lld bytes, but the header of a token file has %d. It was cut: "
                        "write it anew.",
                        f->path, (long long)f->is.st_size, (int)TOKENS_HEADER);
    else
        status = header_check(f->path, header, f->is.st_size, &f->tokens, sink);
    if (fd >= 0)
        close(fd);
    return status;
}

/* Whether tokens [begin, begin + count) could be read; if not, errno is 0 where the file ends
 * early. */
static bool tokens_read(int fd, int64_t begin, int64_t count, uint16_t *out)
{
    char *to = (char *)out;
    int64_t left = count * (int64_t)sizeof(*out), at = TOKENS_HEADER + begin * 2;
    while (left > 0) {
        ssize_t n = pread(fd, to, (size_t)left, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = 0;
        if (n <= 0)
            return false;
        to += n, at += n, left -= n;
    }
    return true;
}

/* Of a file that was read before: by errno, 0 where it is another one now. */
static int lost(const struct token_file *f, struct sink sink)
{
    if (errno && errno != ENOENT && errno != ESTALE)
        return refuse(sink,
                      "'%s' cannot be read any more: %s. Give files that can be read as long as "
                      "the run takes.",
                      f->path, file_reason(errno));
    return refuse(sink,
                  "'%s' is not what it was when the run began: it was changed, cut or removed. "
                  "Leave token files as they are while they are read.",
                  f->path);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Tokens [first, first + count) of a file. It is asked behind the reading whether it is still
 * the one that was found. */
static int piece_read(const struct token_file *f, int fd, int64_t first, int64_t count,
                      uint16_t *piece, struct sink sink)
{
    struct stat is;
    if (!tokens_read(fd, first, count, piece) || fstat(fd, &is) < 0)
        return lost(f, sink);
    errno = 0;
    if (!same_file(&is, &f->is))
        return lost(f, sink);
    for (int64_t i = 0; i < count; i++)
        if (piece[i] >= TOKENS_VOCAB)
            return refuse(sink,
                          "'%s' has %u as token %lld, and GPT-2 has tokens 0 to %d. Write "
                          "the file anew with GPT-2's tokenizer.",
                          f->path, (unsigned)piece[i], (long long)(first + i), TOKENS_VOCAB - 1);
    return 0;
}

/* ------------------------------------------------------------------ holding */

static void row_append(struct token_row *row, const struct token_file *file, int64_t begin,
                       int64_t count)
{
    if (count == 0)
        return;
    row->parts[row->count++] = (struct token_part){file, begin, row->tokens, count};
    row->tokens += count;
}

/* Deals the files, or with too few of them the tokens, to the two rows; where some are named to be
 * held out, these. */
static void rows_deal(struct tokens *t, const struct paths *files)
{
    int64_t all = 0, at = 0;
    for (int i = 0; i < t->files; i++)
        all += t->list[i].tokens;
    int64_t edge = all - all / TOKENS_HOLD;
    for (int i = 0; i < t->files; i++) {
        const struct token_file *f = &t->list[i];
        bool held = files->held ? paths_held(files, i) : i % TOKENS_HOLD == TOKENS_HOLD - 1;
        int64_t train = held ? 0 : f->tokens;
        if (!files->held && t->files < TOKENS_HOLD)
            train = edge <= at ? 0 : edge - at < f->tokens ? edge - at : f->tokens;
        row_append(&t->train, f, 0, train);
        row_append(&t->held, f, train, f->tokens - train);
        t->held_files += held;
        at += f->tokens;
    }
}

static int find(struct tokens *t, const struct paths *files, struct sink sink)
{
    size_t count = (size_t)files->count;
    t->list = calloc(count, sizeof(*t->list));
    t->train.parts = calloc(count, sizeof(*t->train.parts));
    t->held.parts = calloc(count, sizeof(*t->held.parts));
    bool memory = t->list && t->train.parts && t->held.parts;
    while (memory && t->files < files->count) {
        struct token_file *f = &t->list[t->files];
        f->path = strdup(files->items[t->files]);
        memory = f->path != NULL;
        if (memory) {
            t->files++;
            if (header_read(f, sink))
                return -1;
        }
    }
    if (memory)
        return 0;
    return refuse(sink, "No memory is left for a list of %d files. Give fewer with --data.",
                  files->count);
}

int tokens_find(struct tokens *t, const struct paths *files, int length, char *error,
                size_t error_size)
{
    struct sink sink = {error, error_size};
    *t = (struct tokens){0};
    assert(files->count > 0);
    int status = find(t, files, sink);
    if (status == 0)
        rows_deal(t, files);
    if (status == 0 && t->train.tokens < text_needs(length))
        status = refuse(sink,
                        "%d token files leave %lld tokens to train on, and one sequence of %d "
                        "needs %lld. Give more with --data or a smaller --seq.",
                        t->files - files->held, (long long)t->train.tokens, length,
                        (long long)text_needs(length));
    if (status)
        tokens_free(t);
    return status;
}

void tokens_free(struct tokens *t)
{
    for (int i = 0; i < t->files; i++)
        free(t->list[i].path);
    free(t->list);
    free(t->train.parts);
    free(t->held.parts);
    *t = (struct tokens){0};
}

/* ----------------------------------------------------------------- checking */

/* Looks at tokens [begin, end) of a file. */
static int range_check(const struct token_file *f, int fd, int64_t begin, int64_t end,
                       uint16_t *piece, struct sink sink)
{
    int status = 0;
    for (int64_t n; begin < end && status == 0; begin += n) {
        n = least(end - begin, PIECE);
        status = piece_read(f, fd, begin, n, piece, sink);
    }
    return status;
}

/* Takes a file's ends into the hash. */
static int ends_hash(const struct token_file *f, int fd, uint64_t *hash, uint16_t *piece,
                     struct sink sink)
{
    int64_t count = least(f->tokens, ENDS), ends[] = {0, f->tokens - count};
    int status = 0;
    *hash = counter_mix(*hash + (uint64_t)f->tokens);
    for (int i = 0; i < 2 && status == 0; i++) {
        status = piece_read(f, fd, ends[i], count, piece, sink);
        *hash = counter_hash(*hash, piece, (size_t)count * sizeof(*piece));
    }
    return status;
}

int tokens_check(struct tokens *t, int share, int shares, char *error, size_t error_size)
{
    assert(0 <= share && share < shares);
    struct sink sink = {error, error_size};
    const int64_t all = t->train.tokens + t->held.tokens;
    const int64_t begin = all * share / shares, end = all * (share + 1) / shares;
    uint16_t *piece = malloc(PIECE * sizeof(*piece));
    int status = piece ? 0 : refuse(sink, "No memory is left to look at tokens. Free some.");
    const bool hashed = t->hash != 0; /* with an earlier share */
    uint64_t hash = 0;
    for (int64_t i = 0, at = 0; i < t->files && status == 0; i++) {
        const struct token_file *f = &t->list[i];
        int64_t first = begin > at ? begin - at : 0, last = least(end - at, f->tokens);
        at += f->tokens;
        if (hashed && first >= last)
            continue;
        int fd = open(f->path, O_RDONLY | O_CLOEXEC);
        status = fd < 0 ? lost(f, sink) : range_check(f, fd, first, last, piece, sink);
        if (status == 0 && !hashed)
            status = ends_hash(f, fd, &hash, piece, sink);
        if (fd >= 0)
            close(fd);
    }
    if (status == 0 && !hashed)
        t->hash = hash;
    free(piece);
    return status;
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

/* Tokens [at, at + count) of a part. */
static int part_copy(const struct token_part *part, int64_t at, int64_t count, int32_t *out,
                     struct sink sink)
{
    uint16_t piece[8192];
    const int64_t room = sizeof(piece) / sizeof(*piece);
    int fd = open(part->file->path, O_RDONLY | O_CLOEXEC);
    int status = fd < 0 ? lost(part->file, sink) : 0;
    for (int64_t done = 0, n; done < count && status == 0; done += n) {
        n = least(count - done, room);
        status = piece_read(part->file, fd, part->begin + at + done, n, piece, sink);
        for (int64_t i = 0; i < n && status == 0; i++)
            out[done + i] = piece[i];
    }
    if (fd >= 0)
        close(fd);
    return status;
}

int tokens_copy(const struct token_row *row, int64_t first, int count, int32_t *out, char *error,
                size_t error_size)
{
    assert(first >= 0 && count >= 0 && first + count <= row->tokens);
    for (int p = part_of(row, first), done = 0; done < count; p++) {
        const struct token_part *part = &row->parts[p];
        int64_t at = first + done - part->first, n = part->count - at;
        n = n < count - done ? n : count - done;
        if (part_copy(part, at, n, out + done, (struct sink){error, error_size}))
            return -1;
        done += (int)n;
    }
    return 0;
}

int tokens_batch(const struct token_row *row, uint64_t seed, int64_t number, int batch, int length,
                 int32_t *tokens, int32_t *targets, char *error, size_t error_size)
{
    const size_t bytes = (size_t)length * sizeof(*tokens);
    int32_t *read = malloc(bytes + sizeof(*read)); /* a target is the token that comes next */
    int status = read ? 0
                      : refuse((struct sink){error, error_size},
                               "No memory is left for %d tokens. Give a smaller --seq.", length);
    for (int b = 0; b < batch && status == 0; b++) {
        int64_t at = text_start(seed, number * batch + b, row->tokens, length);
        status = tokens_copy(row, at, length + 1, read, error, error_size);
        if (status == 0) {
            memcpy(tokens + (int64_t)b * length, read, bytes);
            memcpy(targets + (int64_t)b * length, read + 1, bytes);
        }
    }
    free(read);
    return status;
}
