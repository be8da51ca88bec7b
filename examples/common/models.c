// SPDX-License-Identifier: Apache-2.0
/* The one list of named shapes. A name stands in both tables, at the same place.
 * 1B to 4B are shapes of ZeRO-Offload (Ren et al., arXiv 2101.06840). */
#include "examples/common/models.h"

#define HEAD 64 /* channels of an attention head, where nobody says */

const struct model models[MODELS] = {
    {"d4", 4, 256, 4, 128, 256, 8},
    {"d6", 6, 384, 6, 128, 256, 8},
    {"d12", 12, 768, 12, 256, 256, 4},
    {"gpt2", 12, 768, 12, 1024, 50257, 1},
    {"gpt2-medium", 24, 1024, 16, 1024, 50257, 1},
    {"gpt2-large", 36, 1280, 20, 1024, 50257, 1},
    {"gpt2-xl", 48, 1600, 25, 1024, 50257, 1},
    {"1B", 20, 2048, 16, 1024, 256, 1},
    {"2B", 40, 2048, 16, 1024, 256, 1},
    {"3B", 60, 2048, 16, 1024, 256, 1},
    {"4B", 64, 2304, 24, 1024, 256, 1},
};

const struct option_choice model_choices[MODELS + 1] = {
    {.name = "d4", .value = 0},          {.name = "d6", .value = 1},
    {.name = "d12", .value = 2},         {.name = "gpt2", .value = 3},
    {.name = "gpt2-medium", .value = 4}, {.name = "gpt2-large", .value = 5},
    {.name = "gpt2-xl", .value = 6},     {.name = "1B", .value = 7},
    {.name = "2B", .value = 8},          {.name = "3B", .value = 9},
    {.name = "4B", .value = 10},         {.name = NULL},
};

int model_heads(const struct model *m, int channels)
{
    if (channels == m->channels)
        return m->heads;
    int heads = channels < HEAD ? 1 : channels / HEAD;
    while (channels % heads)
        heads--;
    return heads;
}
