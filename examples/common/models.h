// SPDX-License-Identifier: Apache-2.0
/* The GPT shapes that have a name, for every program that takes --model. A table,
 * no more: what the shapes mean is for the programs. */
#ifndef EXAMPLES_COMMON_MODELS_H
#define EXAMPLES_COMMON_MODELS_H

#include "examples/common/options.h"

/* seq and batch are the defaults that go with the shape. */
struct model {
    const char *name;
    int layers, channels, heads, seq, vocab, batch;
};

enum { MODELS = 11 };

extern const struct model models[MODELS];
extern const struct option_choice model_choices[MODELS + 1]; /* values index models */

/* How many heads go with channels: the shape's own, or the most of 64 or more
 * each, which divide them; at least one. */
int model_heads(const struct model *m, int channels);

#endif
