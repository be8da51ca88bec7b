// SPDX-License-Identifier: Apache-2.0
/*
 * The list of the model's tensors, as zero_create takes it: names, units,
 * shapes and initial values. Described, never allocated.
 */
#include "examples/gpt2/tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt2/numeric.h"

enum filling { FILL_ZERO, FILL_ONE, FILL_NORMAL, FILL_RESIDUAL };

static const struct {
    const char *name;
    int rows, cols; /* in units of C; rows 0: one dimension */
    enum filling filling;
} block_tensors[BLOCK_TENSORS] = {
    [LN1_WEIGHT] = {"ln_1.weight", 0, 1, FILL_ONE},
    [LN1_BIAS] = {"ln_1.bias", 0, 1, FILL_ZERO},
    [QKV_WEIGHT] = {"attn.c_attn.weight", 1, 3, FILL_NORMAL},
    [QKV_BIAS] = {"attn.c_attn.bias", 0, 3, FILL_ZERO},
    [PROJ_WEIGHT] = {"attn.c_proj.weight", 1, 1, FILL_RESIDUAL},
    [PROJ_BIAS] = {"attn.c_proj.bias", 0, 1, FILL_ZERO},
    [LN2_WEIGHT] = {"ln_2.weight", 0, 1, FILL_ONE},
    [LN2_BIAS] = {"ln_2.bias", 0, 1, FILL_ZERO},
    [FC_WEIGHT] = {"mlp.c_fc.weight", 1, 4, FILL_NORMAL},
    [FC_BIAS] = {"mlp.c_fc.bias", 0, 4, FILL_ZERO},
    [OUT_WEIGHT] = {"mlp.c_proj.weight", 4, 1, FILL_RESIDUAL},
    [OUT_BIAS] = {"mlp.c_proj.bias", 0, 1, FILL_ZERO},
};

#define NAME_SIZE 40

/* Everything a list of parameters points to; params comes first, so that its
 * address frees all. */
struct param_list {
    struct zero_param *params;
    struct zero_normal *normals;
    float *one;
    char (*names)[NAME_SIZE];
    uint64_t seed;
    float residual_std;
};

bool tensors_shape_valid(const struct gpt_shape *s)
{
    return s->layers >= 1 && s->layers <= 10000 && s->heads >= 1 && s->channels >= 1 &&
           s->channels <= 1 << 20 && s->channels % s->heads == 0 && s->seq >= 1 &&
           s->seq <= 1 << 20 && s->vocab >= 1 && s->vocab <= 1 << 24;
}

static int64_t list_carve(struct param_list *list, void *base, int count)
{
    struct carve carve = {base, 0};
    list->params = carve_take(&carve, count * (int64_t)sizeof(*list->params));
    list->normals = carve_take(&carve, count * (int64_t)sizeof(*list->normals));
    list->one = carve_take(&carve, (int64_t)sizeof(*list->one));
    list->names = carve_take(&carve, count * (int64_t)sizeof(*list->names));
    return carve.used;
}

/* Describes tensor index; its name stands in list->names already. */
static void param_set(const struct param_list *list, int index, int unit, int64_t rows,
                      int64_t cols, enum filling filling)
{
    struct zero_param *p = &list->params[index];
    bool matrix = rows > 0;
    *p = (struct zero_param){.name = list->names[index],
                             .unit = unit,
                             .ndim = matrix ? 2 : 1,
                             .shape = {matrix ? rows : cols, matrix ? cols : 0},
                             .flags = matrix ? 0 : ZERO_NO_DECAY};
    if (filling == FILL_ONE) {
        p->fill = zero_fill_constant;
        p->fill_arg = list->one;
    } else if (filling != FILL_ZERO) {
        float std = filling == FILL_RESIDUAL ? list->residual_std : 0.02f;
        list->normals[index] = (struct zero_normal){list->seed, (uint64_t)index, 0.0f, std};
        p->fill = zero_fill_normal;
        p->fill_arg = &list->normals[index];
    }
}

int gpt_params(const struct gpt_shape *shape, uint64_t seed, struct zero_param **params,
               int *count)
{
    struct param_list list = {.seed = seed};
    if (!tensors_shape_valid(shape))
        return ZERO_ERR_ARGUMENT;
    int n = tensors_final(shape) + 2, c = shape->channels;
    size_t bytes = (size_t)list_carve(&list, NULL, n);
    void *memory = aligned_alloc(64, bytes);
    if (!memory)
        return ZERO_ERR_MEMORY;
    list_carve(&list, memset(memory, 0, bytes), n);
    *list.one = 1.0f;
    list.residual_std = (float)(0.02 / sqrt(2.0 * shape->layers));

    snprintf(list.names[WTE], NAME_SIZE, "wte.weight");
    param_set(&list, WTE, 0, gpt_padded_vocab(shape->vocab), c, FILL_NORMAL);
    snprintf(list.names[WPE], NAME_SIZE, "wpe.weight");
    param_set(&list, WPE, 0, shape->seq, c, FILL_NORMAL);
    for (int layer = 0; layer < shape->layers; layer++)
        for (int t = 0; t < BLOCK_TENSORS; t++) {
            int i = tensors_block(layer, t);
            snprintf(list.names[i], NAME_SIZE, "h.%d.%s", layer, block_tensors[t].name);
            param_set(&list, i, layer + 1, (int64_t)block_tensors[t].rows * c,
                      (int64_t)block_tensors[t].cols * c, block_tensors[t].filling);
        }
    snprintf(list.names[n - 2], NAME_SIZE, "ln_f.weight");
    param_set(&list, n - 2, shape->layers + 1, 0, c, FILL_ONE);
    snprintf(list.names[n - 1], NAME_SIZE, "ln_f.bias");
    param_set(&list, n - 1, shape->layers + 1, 0, c, FILL_ZERO);
    *params = list.params;
    *count = n;
    return ZERO_OK;
}

int64_t gpt_param_count(const struct gpt_shape *shape)
{
    int64_t c = shape->channels, block = 12 * c * c + 13 * c;
    return (gpt_padded_vocab(shape->vocab) + shape->seq) * c + shape->layers * block + 2 * c;
}
