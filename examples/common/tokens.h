// SPDX-License-Identifier: Apache-2.0
/* Token files as llm.c writes them (256 int32 of header: magic 20240520, version
 * 1, number of tokens; then uint16 tokens of GPT-2), as one row of tokens.
 * Read when a batch needs them, so that ranks share what the kernel has read and no
 * memory is kept; a file that has changed since it was found is refused then.
 * Little-endian machines only. */
#ifndef EXAMPLES_COMMON_TOKENS_H
#define EXAMPLES_COMMON_TOKENS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "examples/common/paths.h"

enum {
    TOKENS_VOCAB = 50257, /* of GPT-2 */
    TOKENS_END = 50256,   /* its end of text */
    TOKENS_HOLD = 20,     /* unless files are named for it, every 20th is held out; with fewer, the
                             last 20th of the tokens */
    TOKENS_HEADER = 1024, /* bytes */
};

struct token_part { /* within one file */
    const struct token_file *file;
    int64_t begin;        /* its first token in the file */
    int64_t first, count; /* place of that in the row; > 0 */
};

struct token_row {
    struct token_part *parts;
    int count;
    int64_t tokens;
};

struct token_file {
    char *path;
    struct stat is; /* when it was found */
    int64_t tokens;
};

struct tokens {
    struct token_file *list; /* (files) */
    int files, held_files;
    struct token_row train, held;
    uint64_t hash; /* by tokens_check, of what the files begin and end with and their sizes */
};

/* What a file begins with; of one that cannot be opened errno says why. */
enum token_kind { TOKENS_NONE, TOKENS_GPT2, TOKENS_LLAMA, TOKENS_UNREADABLE };
enum token_kind tokens_kind(const char *path);

/* Looks at the files' headers and sizes. Returns 0, or -1 with error set: a file is not as its
 * header says, or there are too few tokens for one sequence of length tokens. */
int tokens_find(struct tokens *t, const struct paths *files, int length, char *error,
                size_t error_size);

/* Looks at every token of one of shares equal parts of what was found: each rank at its own, for
 * files may be larger than is read in a while. Returns 0, or -1 with error set: a token is out
 * of GPT-2's vocabulary, or as tokens_copy. */
int tokens_check(struct tokens *t, int share, int shares, char *error, size_t error_size);
void tokens_free(struct tokens *t);

/* Tokens [first, first + count) of a row, which has as many. Returns 0, or -1 with error
 * set: their file cannot be read any more, is not the one that was found, or has a token that
 * GPT-2 does not know. */
int tokens_copy(const struct token_row *row, int64_t first, int count, int32_t *out, char *error,
                size_t error_size);

/* As text_batch; returns as tokens_copy, or there is no memory. */
int tokens_batch(const struct token_row *row, uint64_t seed, int64_t number, int batch, int length,
                 int32_t *tokens, int32_t *targets, char *error, size_t error_size);

#endif
