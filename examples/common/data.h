// SPDX-License-Identifier: Apache-2.0
/* What --data and --eval-data name, of one kind: text, whose tokens are bytes, or token
 * files. Mixtures are refused. */
#ifndef EXAMPLES_COMMON_DATA_H
#define EXAMPLES_COMMON_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "examples/common/paths.h"
#include "examples/common/text.h"
#include "examples/common/tokens.h"

struct data {
    struct paths paths;
    bool is_tokens;
    struct text text; /* one of the two is in use */
    struct tokens tokens;
    int vocab; /* tokens are below: 256, or GPT-2's */
    int files, held_files;
    int64_t train, held; /* tokens to learn from, to test on */
    int64_t bytes;       /* of memory that data_read takes: of text all, of token files none */
};

struct data_names {
    const char *const *paths; /* of --data */
    int count;
    const char *const *held; /* of --eval-data */
    int held_count;          /* 0: a part of --data is held out */
};

/* Says how much there is, and that it is good for sequences of length tokens, before any
 * memory is taken for it: all of the above is known. Returns 0, or -1 with error set. */
int data_find(struct data *d, const struct data_names *names, int length, char *error,
              size_t error_size);

/* Reads what was found, of token files one of shares equal parts, to check it; due before
 * data_hash and data_batch. Returns 0, or -1 with error set. */
int data_read(struct data *d, int share, int shares, char *error, size_t error_size);
void data_free(struct data *d);

/* Equal on ranks that may train together. */
uint64_t data_hash(const struct data *d);

/* Micro-batch number of the run with that seed, of what is held out or of the
 * rest: tokens and targets (batch, length). Returns 0, or -1 with error set: a token file
 * has changed. */
int data_batch(const struct data *d, bool held, uint64_t seed, int64_t number, int batch,
               int length, int32_t *tokens, int32_t *targets, char *error, size_t error_size);

#endif
