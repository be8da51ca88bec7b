// SPDX-License-Identifier: Apache-2.0
/* Checks tensor descriptions and lays them out. Touches no data. */
#include "src/layout.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/random.h"

#define ELEMENTS_MAX ((int64_t)1 << 48)
#define LAYOUT_NAME  200 /* a sentence has room for it */
#define NAME_END     40  /* of a name where two are beside each other */

static int take_shape(const struct zero_param *p, int i, struct tensor *t, struct error *error)
{
    if (p->ndim < 0 || p->ndim > ZERO_MAX_DIMS)
        return error_set(error, ZERO_ERR_ARGUMENT, "params[%d] (%s) has ndim %d. Use 0 to %d.", i,
                         p->name, p->ndim, ZERO_MAX_DIMS);
    /* A tensor without dimensions that are meant would be overrun. */
    for (int d = p->ndim; d < ZERO_MAX_DIMS; d++)
        if (p->shape[d] < 0 || p->shape[d] > 1)
            return error_set(error, ZERO_ERR_ARGUMENT,
                             "params[%d] (%s) has shape[%d] = %lld, but ndim %d. Set ndim to the "
                             "number of dimensions, and shape to 0 or 1 behind them.",
                             i, p->name, d, (long long)p->shape[d], p->ndim);
    t->elements = 1;
    t->ndim = p->ndim;
    for (int d = 0; d < p->ndim; d++) {
        int64_t n = p->shape[d];
        if (n < 0 || (n > 0 && t->elements > ELEMENTS_MAX / n))
            return error_set(error, ZERO_ERR_ARGUMENT,
                             "params[%d] (%s) has shape[%d] = %lld. Use dimensions of 0 or more, "
                             "and at most 2^48 elements in a tensor.",
                             i, p->name, d, (long long)n);
        t->elements *= n;
        t->shape[d] = n;
    }
    return ZERO_OK;
}

static int take_tensor(struct layout *l, const struct zero_param *p, int i, struct error *error)
{
    struct tensor *t = &l->tensors[i];
    if (!p->name || !*p->name)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "params[%d] has no name. Give each tensor a "
                         "unique one.",
                         i);
    if (strlen(p->name) > LAYOUT_NAME)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "params[%d]'s name, %.32s..., has %zu characters. Use %d at most.", i,
                         p->name, strlen(p->name), LAYOUT_NAME);
    for (const char *c = p->name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            return error_set(error, ZERO_ERR_ARGUMENT,
                             "params[%d]'s name has a control character, 0x%02x. Use printable "
                             "ones.",
                             i, (unsigned)(unsigned char)*c);
    if (p->unit < 0 || p->unit >= l->count)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "params[%d] (%s) has unit %d. Number units from 0 without holes.", i,
                         p->name, p->unit);
    if (p->flags & ~(ZERO_NO_DECAY | ZERO_FROZEN))
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "params[%d] (%s) has flags 0x%x. Use ZERO_NO_DECAY, ZERO_FROZEN or 0.", i,
                         p->name, p->flags);
    *t = (struct tensor){.unit = p->unit,
                         .group = p->group,
                         .decay = !(p->flags & ZERO_NO_DECAY),
                         .frozen = p->flags & ZERO_FROZEN,
                         .fill = p->fill,
                         .fill_arg = p->fill_arg};
    if (take_shape(p, i, t, error))
        return error->status;
    t->name = strdup(p->name);
    if (!t->name)
        return error_set(error, ZERO_ERR_MEMORY,
                         "No memory for the name of tensor %d." ERROR_FREE_MEMORY, i);
    if (l->units <= p->unit)
        l->units = p->unit + 1;
    if (l->groups <= p->group)
        l->groups = p->group + 1;
    t->global = l->params;
    l->params += t->elements;
    l->frozen += t->frozen ? t->elements : 0;
    if (l->params > ELEMENTS_MAX)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "The model has more than 2^48 elements. Describe "
                         "a smaller one.");
    return ZERO_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int check_names(const struct layout *l, struct error *error)
{
    char **names = malloc((size_t)l->count * sizeof(*names));
    if (!names)
        return error_set(error, ZERO_ERR_MEMORY, "No memory for %d names." ERROR_FREE_MEMORY,
                         l->count);
    for (int i = 0; i < l->count; i++)
        names[i] = l->tensors[i].name;
    qsort(names, (size_t)l->count, sizeof(*names), compare_names);
    for (int i = 1; i < l->count; i++)
        if (!strcmp(names[i - 1], names[i]))
            error_set(error, ZERO_ERR_ARGUMENT,
                      "Two tensors are named %s. Give each a name of its own.", names[i]);
    free(names);
    return error->status;
}

/* Tensors of one kind, in their order of declaration, one after the other. */
static void place_parts(struct layout *l, enum part_kind kind)
{
    for (int i = 0; i < l->count; i++) {
        struct tensor *t = &l->tensors[i];
        struct part *part = &l->unit[t->unit].part[kind];
        if (t->frozen != (kind == PART_FROZEN))
            continue;
        t->offset = l->unit[t->unit].elements + part->elements; /* behind the other part */
        part->elements += align_up(t->elements, LAYOUT_ALIGN);
        l->unit[t->unit].tensors++;
    }
    for (int u = 0; u < l->units; u++) {
        struct part *part = &l->unit[u].part[kind];
        part->elements = align_up(part->elements, (int64_t)LAYOUT_ALIGN * l->ranks);
        part->shard = part->elements / l->ranks;
        part->begin = l->whole[kind];
        part->offset = l->unit[u].elements;
        l->unit[u].elements += part->elements;
        l->whole[kind] += part->elements;
    }
}

static int place_units(struct layout *l, struct error *error)
{
    int64_t begin = 0;
    if ((int64_t)LAYOUT_ALIGN * l->ranks > ELEMENTS_MAX / l->units)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "%d units in shards of %d ranks have more than 2^48 elements of padding. "
                         "Use fewer units or ranks.",
                         l->units, l->ranks);
    l->unit = calloc((size_t)l->units, sizeof(*l->unit));
    if (!l->unit)
        return error_set(error, ZERO_ERR_MEMORY, "No memory for %d units." ERROR_FREE_MEMORY,
                         l->units);
    place_parts(l, PART_LIVE);
    place_parts(l, PART_FROZEN);
    for (int u = 0; u < l->units; u++) {
        struct unit *unit = &l->unit[u];
        if (unit->tensors == 0)
            return error_set(error, ZERO_ERR_ARGUMENT,
                             "Unit %d has no tensor, but unit %d has. Number units from 0 without "
                             "holes.",
                             u, l->units - 1);
        unit->begin = begin;
        begin += unit->elements;
    }
    if (begin == 0)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "None of the %d tensors has an element. Pass at least one that has.",
                         l->count);
    return ZERO_OK;
}

int layout_create(struct layout *l, const struct zero_param *params, int count, int ranks,
                  struct error *error)
{
    *l = (struct layout){.ranks = ranks, .count = count};
    if (!params)
        return error_set(error, ZERO_ERR_ARGUMENT, "params is NULL. Pass the model's tensors.");
    if (count < 1)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "A model of %d tensors was given. Pass at least one.", count);
    l->tensors = calloc((size_t)count, sizeof(*l->tensors));
    if (!l->tensors)
        return error_set(error, ZERO_ERR_MEMORY, "No memory for %d tensors." ERROR_FREE_MEMORY,
                         count);
    for (int i = 0; i < count; i++)
        if (take_tensor(l, &params[i], i, error))
            return error->status;
    if (check_names(l, error))
        return error->status;
    return place_units(l, error);
}

void layout_destroy(struct layout *l)
{
    for (int i = 0; l->tensors && i < l->count; i++)
        free(l->tensors[i].name);
    free(l->tensors);
    free(l->unit);
    l->tensors = NULL;
    l->unit = NULL;
}

/* What of a fill can be compared: whether there is one, and what a ready-made one is
 * given. Of a function of the program's own even the address may differ. */
static uint64_t fill_hash(const struct tensor *t)
{
    uint64_t words[3] = {0}, hash = t->fill != NULL;
    size_t bytes = t->fill == zero_fill_normal     ? sizeof(struct zero_normal)
                   : t->fill == zero_fill_constant ? sizeof(float)
                                                   : 0;
    static_assert(sizeof(struct zero_normal) == sizeof(words), "without padding");
    if (t->fill_arg)
        memcpy(words, t->fill_arg, bytes);
    hash += bytes;
    for (int i = 0; i < 3; i++)
        hash = random_mix(hash ^ words[i]);
    return hash;
}

uint64_t layout_tensor_hash(const struct tensor *t)
{
    uint64_t hash = random_mix((uint64_t)t->ndim);
    for (int d = 0; d < t->ndim; d++)
        hash = random_mix(hash ^ (uint64_t)t->shape[d]);
    for (const char *c = t->name; *c; c++)
        hash = random_mix(hash ^ (unsigned char)*c); /* char has a sign on some CPUs */
    hash = random_mix(hash ^ 0xFFFF);                /* the name's end */
    hash = random_mix(hash ^ (uint64_t)t->unit);
    hash = random_mix(hash ^ (uint64_t)(t->group * 4 + t->frozen * 2 + t->decay));
    return random_mix(hash ^ fill_hash(t));
}

uint64_t layout_hash(const struct layout *l)
{
    uint64_t hash = random_mix((uint64_t)l->count);
    for (int i = 0; i < l->count; i++)
        hash = random_mix(hash ^ layout_tensor_hash(&l->tensors[i]));
    return hash;
}

static void fill_text(const struct tensor *t, char *text, size_t size)
{
    const struct zero_normal *normal = t->fill_arg;
    if (t->fill == zero_fill_normal && normal)
        snprintf(text, size, "normal, seed %llu, stream %llu, mean %.9g, std %.9g",
                 (unsigned long long)normal->seed, (unsigned long long)normal->stream,
                 (double)normal->mean, (double)normal->std);
    else if (t->fill == zero_fill_constant && t->fill_arg)
        snprintf(text, size, "constant %.9g", (double)*(const float *)t->fill_arg);
    else
        snprintf(text, size, "%s", t->fill ? "its own" : "none");
}

/* Of a long name the end, where names differ; of a shape what there is room for. */
void layout_tensor_text(const struct tensor *t, char *text, size_t size)
{
    char shape[64] = "", fill[128];
    size_t length = strlen(t->name), at = 0;
    for (int d = 0; d < t->ndim && at < sizeof(shape); d++)
        at += (size_t)snprintf(shape + at, sizeof(shape) - at, "%s%lld", d ? ", " : "",
                               (long long)t->shape[d]);
    if (at >= sizeof(shape))
        memcpy(shape + sizeof(shape) - 4, "...", 4);
    fill_text(t, fill, sizeof(fill));
    snprintf(text, size, "%s%s (%s), unit %d, group %d%s%s, fill %s",
             length > NAME_END ? "..." : "", t->name + (length > NAME_END ? length - NAME_END : 0),
             shape, t->unit, t->group, t->decay ? "" : ", no decay", t->frozen ? ", frozen" : "",
             fill);
}
