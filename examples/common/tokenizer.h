// SPDX-License-Identifier: Apache-2.0
/* The bytes of each token, from llm.c's gpt2_tokenizer.bin (256 uint32 of
 * header: magic 20240328, version 1 or 2, number of tokens, in version 2 the end
 * of text; then per token a byte of length and its bytes). It turns tokens into
 * text and refuses to do the opposite. */
#ifndef EXAMPLES_COMMON_TOKENIZER_H
#define EXAMPLES_COMMON_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

enum { TOKENIZER_BYTES = 255 }; /* of a token, at most */

struct tokenizer {
    unsigned char *file; /* the whole of it */
    int64_t bytes;
    uint32_t *at; /* (vocab): where a token's length byte is in file */
    int vocab;
    int end; /* the end of text */
};

/* Returns 0, or -1 with error set: the file cannot be read, is not as its header
 * says, or is for another vocabulary. */
int tokenizer_load(struct tokenizer *t, const char *path, int vocab, char *error,
                   size_t error_size);
void tokenizer_free(struct tokenizer *t);

/* The bytes of a token below vocab. */
const unsigned char *tokenizer_bytes(const struct tokenizer *t, int token, int *length);

#endif
