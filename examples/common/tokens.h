// SPDX-License-Identifier: Apache-2.0
/* Token files as llm.c writes them (256 int32 of header: magic 20240520, version
 * 1, number of tokens; then uint16 tokens of GPT-2), as one row of tokens.
 * Mapped, so that ranks share what the kernel has read. A file must not shrink
 * while it is mapped. Little-endian machines only. */
#ifndef EXAMPLES_COMMON_TOKENS_H
#define EXAMPLES_COMMON_TOKENS_H

#include <stddef.h>
#include <stdint.h>

#include "examples/common/paths.h"

enum {
    TOKENS_VOCAB = 50257, /* of GPT-2 */
    TOKENS_END = 50256,   /* its end of text */
    TOKENS_HOLD = 20,     /* every 20th file is held out; with fewer, the last 20th of the tokens */
    TOKENS_HEADER = 1024, /* bytes */
};

struct token_part { /* within one file */
    const uint16_t *tokens;
    int64_t first, count; /* place of its first token in the row; > 0 */
};

struct token_row {
    struct token_part *parts;
    int count;
    int64_t tokens;
};

struct token_map {
    void *address;
    size_t bytes;
    int64_t tokens;
};

struct tokens {
    struct token_map *maps; /* (files) */
    int files, held_files;
    struct token_row train, held;
    int64_t bytes; /* mapped */
    uint64_t hash; /* of all tokens and the files' edges */
};

/* What a file begins with. */
enum token_kind { TOKENS_NONE, TOKENS_GPT2, TOKENS_LLAMA };
enum token_kind tokens_kind(const char *path);

/* Maps and checks every file, every token. Returns 0, or -1 with error set: a
 * file is not as its header says, a token is out of GPT-2's vocabulary, or there
 * are too few for one sequence of length tokens. */
int tokens_load(struct tokens *t, const struct paths *files, int length, char *error,
                size_t error_size);
void tokens_free(struct tokens *t);

/* Tokens [first, first + count) of a row, which has as many. */
void tokens_copy(const struct token_row *row, int64_t first, int count, int32_t *out);

/* As text_batch. */
void tokens_batch(const struct token_row *row, uint64_t seed, int64_t number, int batch, int length,
                  int32_t *tokens, int32_t *targets);

#endif
