// SPDX-License-Identifier: Apache-2.0
/* Files of text as one row of bytes, and the sequences cut from
 * it. A token is a byte. Every rank reads the same files and can cut any
 * sequence, so nothing is sent; it refuses to be a tokenizer. */
#ifndef EXAMPLES_COMMON_TEXT_H
#define EXAMPLES_COMMON_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "examples/common/paths.h"

struct text {
    unsigned char *train, *held; /* to learn from; to test on. train is the block to free; NULL:
                                    counted, and not read */
    int64_t train_bytes, held_bytes;
    int files, held_files; /* of text: all, and those in held */
    int passed_over;       /* files and folders that are not text or cannot be read, and links */
    int unreadable;        /* of them those that cannot be read */
    uint64_t sizes;        /* a hash of how many bytes each file gave, in their order */
};

enum {
    TEXT_HEAD = 4096, /* a file is text when its first bytes hold no NUL */
    TEXT_HOLD = 20,   /* unless files are named for it, every 20th is held out; with fewer, the last
                         20th of the bytes */
};

/* Looks at the files' beginnings and sizes: what there is, and what is to be held out. Returns 0,
 * or -1 with error set: nothing is text, or there is too little of it for one sequence of length
 * tokens. */
int text_find(struct text *t, const struct paths *files, int length, char *error,
              size_t error_size);

/* Reads what was found of the same files. Returns 0, or -1 with error set: it does not fit in
 * memory, or is no longer what was found. */
int text_read(struct text *t, const struct paths *files, char *error, size_t error_size);
void text_free(struct text *t);

/* A hash of all bytes and of where they are held: equal on ranks that may train together. */
uint64_t text_hash(const struct text *t);

/* Bytes that one sequence needs: its tokens, their targets, and room to move. */
int64_t text_needs(int length);

/* Where sequence number `sequence` of a run starts in bytes bytes, at least
 * text_needs(length): hash(seed, sequence) mod (bytes - length - 1). */
int64_t text_start(uint64_t seed, int64_t sequence, int64_t bytes, int length);

/* Micro-batch number `number` of a run: sequences number * batch and up.
 * tokens, targets: (batch, length); a target is the token that follows. */
void text_batch(const unsigned char *from, int64_t bytes, uint64_t seed, int64_t number, int batch,
                int length, int32_t *tokens, int32_t *targets);

#endif
