// SPDX-License-Identifier: Apache-2.0
/* Text written by the model, token after token. */
#ifndef EXAMPLES_GPT2_SAMPLE_H
#define EXAMPLES_GPT2_SAMPLE_H

#include "examples/gpt2/train.h"

/* COLLECTIVE. Draws --sample tokens, all ranks the same ones, and prints them on
 * rank 0. 0, or -1 with r->error set. */
int sample_write(struct run *r);

/* Of the text that the tokens may stand for. */
int64_t sample_bytes(const struct arguments *a);

/* The index drawn from softmax(logits / temperature) by u in [0, 1);
 * temperature 0: the largest. */
int sample_pick(const float *logits, int count, double temperature, double u);

/* Prints bytes in lines behind a bar; what is neither printable ASCII nor UTF-8 from U+00A0
 * on as \xNN. */
void sample_print(const unsigned char *bytes, int count, FILE *out);

/* Prints numbers of tokens in lines behind a bar. */
void sample_print_ids(const int32_t *tokens, int count, FILE *out);

#endif
