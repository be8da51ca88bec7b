// SPDX-License-Identifier: Apache-2.0
/* Models to plan for: GPTs as gpt2 describes them, tensor for tensor, or so
 * many elements in units of one size. */
#include <stdio.h>
#include <stdlib.h>

#include "examples/common/figure.h"
#include "examples/common/models.h"
#include "examples/gpt2/model.h"
#include "examples/zero/plan.h"

#define UNITS_MAX ((int64_t)1 << 20)

/* Units of unit_size elements, the last one with what is left. */
static int equal_units(struct plan_model *m, const struct plan_options *o, char *error,
                       size_t error_size)
{
    enum { NAME = 24 };
    int64_t units = (o->params + o->unit_size - 1) / o->unit_size;
    if (units > UNITS_MAX) {
        snprintf(error, error_size,
                 "--params %lld in units of %lld are %lld units, at most %lld are possible. Give a "
                 "larger --unit-size.",
                 (long long)o->params, (long long)o->unit_size, (long long)units,
                 (long long)UNITS_MAX);
        return -1;
    }
    m->params = calloc((size_t)units, sizeof(*m->params) + NAME);
    if (!m->params) {
        snprintf(error, error_size, "Out of memory for %lld units.", (long long)units);
        return -1;
    }
    m->count = (int)units;
    char *names = (char *)(m->params + units);
    for (int u = 0; u < m->count; u++) {
        int64_t left = o->params - u * o->unit_size;
        snprintf(names + (size_t)u * NAME, NAME, "unit.%d", u);
        m->params[u] = (struct zero_param){.name = names + (size_t)u * NAME,
                                           .unit = u,
                                           .ndim = 1,
                                           .shape = {left < o->unit_size ? left : o->unit_size}};
    }
    snprintf(m->title, sizeof(m->title), "%s parameters in %s of %lld", in_words(o->params).text,
             counted(m->count, "unit").text, (long long)o->unit_size);
    return 0;
}

static int gpt(struct plan_model *m, const struct plan_options *o, char *error, size_t error_size)
{
    const struct model *named = &models[o->model];
    int channels = o->channels ? o->channels : named->channels;
    int heads = o->heads ? o->heads : 1;
    struct gpt_shape shape = {.layers = o->layers ? o->layers : named->layers,
                              .channels = channels,
                              .heads = heads,
                              .seq = o->seq ? o->seq : named->seq,
                              .vocab = o->vocab ? o->vocab : named->vocab};
    int status = gpt_params(&shape, 0, &m->params, &m->count);
    if (status != ZERO_OK) {
        snprintf(error, error_size,
                 status == ZERO_ERR_MEMORY
                     ? "Out of memory for the list of tensors."
                     : "--channels %d cannot be divided among %d heads. Give --channels a multiple "
                       "of --heads.",
                 channels, heads);
        return -1;
    }
    snprintf(m->title, sizeof(m->title), "GPT of %s, %s, %s, vocabulary %d: %s parameters",
             counted(shape.layers, "layer").text, counted(channels, "channel").text,
             counted(shape.seq, "token").text, shape.vocab, in_words(gpt_param_count(&shape)).text);
    return 0;
}

int plan_model_make(struct plan_model *m, const struct plan_options *o, char *error,
                    size_t error_size)
{
    *m = (struct plan_model){0};
    return o->params ? equal_units(m, o, error, error_size) : gpt(m, o, error, error_size);
}

void plan_model_free(struct plan_model *m)
{
    free(m->params);
}
