// SPDX-License-Identifier: Apache-2.0
/* Which tensor has which index in the list that gpt_params makes: wte, wpe,
 * the blocks' (enum block_tensor), the final norm's two. */
#ifndef EXAMPLES_GPT2_TENSORS_H
#define EXAMPLES_GPT2_TENSORS_H

#include <stdbool.h>

#include "examples/gpt2/block.h"
#include "examples/gpt2/model.h"

enum { WTE, WPE, FIRST_BLOCK };

static inline int tensors_block(int layer, int tensor)
{
    return FIRST_BLOCK + layer * BLOCK_TENSORS + tensor; /* tensor: enum block_tensor */
}

/* Weight; the bias comes next and is the last tensor. */
static inline int tensors_final(const struct gpt_shape *shape)
{
    return FIRST_BLOCK + shape->layers * BLOCK_TENSORS;
}

bool tensors_shape_valid(const struct gpt_shape *shape);

#endif
