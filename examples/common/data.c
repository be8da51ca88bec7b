// SPDX-License-Identifier: Apache-2.0
/* The first bytes of every file decide of which kind all are. */
#include "examples/common/data.h"

#include <errno.h>

#include "examples/common/counter.h"
#include "examples/common/file.h"
#include "examples/common/refuse.h"

/* The option that file number i was named with. */
static const char *option_of(const struct paths *files, int i)
{
    return paths_held(files, i) ? "--eval-data" : "--data";
}

/* 1: token files, 0: none, -1: refused. */
static int kind_of(const struct paths *files, struct sink sink)
{
    const char *options = files->held ? "--data and --eval-data" : "--data";
    const char *token = NULL, *other = NULL, *unreadable = NULL;
    int reason = 0;
    for (int i = 0; i < files->count; i++) {
        enum token_kind kind = tokens_kind(files->items[i]);
        if (kind == TOKENS_LLAMA)
            return refuse(sink,
                          "'%s' holds tokens of Llama 3 (magic 20240801, uint32), and "
                          "this model is GPT-2. Give %s token files with magic 20240520.",
                          files->items[i], option_of(files, i));
        if (kind == TOKENS_GPT2)
            token = token ? token : files->items[i];
        else if (kind == TOKENS_UNREADABLE)
            unreadable = files->items[i], reason = errno;
        else
            other = other ? other : files->items[i];
    }
    if (token && unreadable)
        return refuse(sink,
                      "'%s' cannot be read (%s), and beside a token file ('%s') no file is left "
                      "out. Make it readable, or name the others alone.",
                      unreadable, file_reason(reason), token);
    if (token && files->unreadable)
        return refuse(
            sink,
            "%d of the folders below %s cannot be read, and beside a token file ('%s') no file is "
            "left out. Make them readable, or name the others alone.",
            files->unreadable, options, token);
    if (token && other)
        return refuse(sink,
                      "'%s' is a token file and '%s' is not. Give %s text, or token files, not "
                      "both.",
                      token, other, options);
    return token != NULL;
}

static void take_text(struct data *d)
{
    d->vocab = 256;
    d->files = d->text.files;
    d->held_files = d->text.held_files;
    d->train = d->text.train_bytes;
    d->held = d->text.held_bytes;
    d->bytes = d->train + d->held;
}

static void take_tokens(struct data *d)
{
    d->vocab = TOKENS_VOCAB;
    d->files = d->tokens.files;
    d->held_files = d->tokens.held_files;
    d->train = d->tokens.train.tokens;
    d->held = d->tokens.held.tokens;
}

int data_find(struct data *d, const struct data_names *names, int length, char *error,
              size_t error_size)
{
    *d = (struct data){0};
    int kind = -1, status = paths_collect(&d->paths, names->paths, names->count, error, error_size);
    if (status == 0 && names->held_count)
        status = paths_hold(&d->paths, names->held, names->held_count, error, error_size);
    if (status == 0)
        kind = kind_of(&d->paths, (struct sink){error, error_size});
    d->is_tokens = kind == 1;
    if (kind == 0) {
        status = text_find(&d->text, &d->paths, length, error, error_size);
        take_text(d);
    } else if (kind == 1) {
        status = tokens_find(&d->tokens, &d->paths, length, error, error_size);
        take_tokens(d);
    } else {
        status = -1;
    }
    if (status)
        data_free(d);
    return status;
}

int data_read(struct data *d, int share, int shares, char *error, size_t error_size)
{
    return d->is_tokens ? tokens_check(&d->tokens, share, shares, error, error_size)
                        : text_read(&d->text, &d->paths, error, error_size);
}

void data_free(struct data *d)
{
    text_free(&d->text);
    tokens_free(&d->tokens);
    paths_free(&d->paths);
    *d = (struct data){0};
}

uint64_t data_hash(const struct data *d)
{
    return d->is_tokens ? ~counter_mix(d->tokens.hash + (uint64_t)d->train) : text_hash(&d->text);
}

int data_batch(const struct data *d, bool held, uint64_t seed, int64_t number, int batch,
               int length, int32_t *tokens, int32_t *targets, char *error, size_t error_size)
{
    const struct text *t = &d->text;
    if (d->is_tokens)
        return tokens_batch(held ? &d->tokens.held : &d->tokens.train, seed, number, batch, length,
                            tokens, targets, error, error_size);
    text_batch(held ? t->held : t->train, held ? t->held_bytes : t->train_bytes, seed, number,
               batch, length, tokens, targets);
    return 0;
}
