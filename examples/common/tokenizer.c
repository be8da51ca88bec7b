// SPDX-License-Identifier: Apache-2.0
/* The file is walked once, every step held against its end. */
#include "examples/common/tokenizer.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/file.h"
#include "examples/common/refuse.h"

enum { MAGIC = 20240328, HEADER = 1024, GPT2_END = 50256 };

/* The whole file, or the first most bytes of one that is longer. */
static int file_read(struct tokenizer *t, const char *path, int64_t most, struct sink sink)
{
    FILE *f = file_to_read(path);
    t->file = f ? malloc((size_t)most) : NULL;
    size_t got = t->file ? fread(t->file, 1, (size_t)most, f) : 0;
    int status = 0;
    if (!f || (t->file && ferror(f)))
        status = refuse(sink,
                        "'%s' cannot be read: %s. Give --tokenizer llm.c's "
                        "gpt2_tokenizer.bin.",
                        path, strerror(errno));
    else if (!t->file)
        status = refuse(sink, "No memory is left for '%s'. Leave --tokenizer out.", path);
    t->bytes = (int64_t)got;
    if (f)
        fclose(f);
    return status;
}

static int header_check(struct tokenizer *t, const char *path, int vocab, struct sink sink)
{
    uint32_t header[4] = {0};
    if (t->bytes < HEADER)
        return refuse(sink,
                      "'%s' has %lld bytes, but the header of a tokenizer alone has %d. Give "
                      "--tokenizer llm.c's gpt2_tokenizer.bin, whole.",
                      path, (long long)t->bytes, (int)HEADER);
    memcpy(header, t->file, sizeof(header));
    if (header[0] != MAGIC || (header[1] != 1 && header[1] != 2))
        return refuse(
            sink,
            "'%s' has %lld bytes and begins with the numbers %u and %u, but a tokenizer begins "
            "with %d and then 1 or 2. Give --tokenizer llm.c's gpt2_tokenizer.bin.",
            path, (long long)t->bytes, header[0], header[1], (int)MAGIC);
    if (header[2] != (uint32_t)vocab)
        return refuse(sink,
                      "'%s' has %u tokens and the model %d. Give --tokenizer the one that made "
                      "the token files.",
                      path, header[2], vocab);
    uint32_t end = header[1] == 2 ? header[3] : GPT2_END;
    if (end >= (uint32_t)vocab)
        return refuse(sink,
                      "'%s' has token %u for the end of text, and %d tokens. Give --tokenizer "
                      "llm.c's gpt2_tokenizer.bin.",
                      path, end, vocab);
    t->vocab = vocab;
    t->end = (int)end;
    return 0;
}

static int walk(struct tokenizer *t, const char *path, struct sink sink)
{
    int64_t at = HEADER;
    t->at = malloc((size_t)t->vocab * sizeof(*t->at));
    if (!t->at)
        return refuse(sink, "No memory is left for '%s'. Leave --tokenizer out.", path);
    for (int i = 0; i < t->vocab; i++) {
        if (at >= t->bytes || at + 1 + t->file[at] > t->bytes)
            return refuse(sink, "'%s' ends within token %d of %d. It was cut: write it anew.", path,
                          i, t->vocab);
        t->at[i] = (uint32_t)at;
        at += 1 + t->file[at];
    }
    if (at != t->bytes)
        return refuse(sink, "'%s' goes on after its %d tokens. It was changed: write it anew.",
                      path, t->vocab);
    return 0;
}

int tokenizer_load(struct tokenizer *t, const char *path, int vocab, char *error, size_t error_size)
{
    struct sink sink = {error, error_size};
    *t = (struct tokenizer){0};
    assert(vocab > 0 && vocab <= 1 << 22);
    int64_t most = HEADER + (int64_t)vocab * (1 + TOKENIZER_BYTES) + 1;
    if (file_read(t, path, most, sink) || header_check(t, path, vocab, sink) ||
        walk(t, path, sink)) {
        tokenizer_free(t);
        return -1;
    }
    return 0;
}

void tokenizer_free(struct tokenizer *t)
{
    free(t->file);
    free(t->at);
    *t = (struct tokenizer){0};
}

const unsigned char *tokenizer_bytes(const struct tokenizer *t, int token, int *length)
{
    assert(token >= 0 && token < t->vocab);
    *length = t->file[t->at[token]];
    return t->file + t->at[token] + 1;
}
