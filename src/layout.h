// SPDX-License-Identifier: Apache-2.0
/*
 * Where every element of the model is: arithmetic only.
 *
 * A unit has two parts: its trainable tensors, then its frozen ones. A part is
 * its tensors one after the other, each starting at a multiple of 64 elements,
 * padded to a multiple of 64 * ranks; of each part rank r owns the shard
 * [r * shard, (r + 1) * shard). "Whole order" is all parts of one kind one after
 * the other; what one rank holds of them is its shards one after the other, or
 * at stage 0 the whole. "State order" (src/plan.h) is that for trainable parts,
 * then for frozen ones.
 */
#ifndef SRC_LAYOUT_H
#define SRC_LAYOUT_H

#include "include/zero.h"
#include "src/error.h"

#define LAYOUT_ALIGN 64 /* elements */

static inline int64_t align_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

struct tensor {
    char *name;
    int unit;
    int64_t elements;
    int ndim;
    int64_t shape[ZERO_MAX_DIMS];
    int64_t offset; /* in its unit */
    int64_t global; /* index of its first element in declaration order, without padding */
    uint8_t group;
    bool decay, frozen;
    zero_fill_fn *fill;
    void *fill_arg;
};

enum part_kind { PART_LIVE, PART_FROZEN, PARTS };

struct part {
    int64_t offset;   /* of its first element in the unit */
    int64_t elements; /* padded; 0: the unit has no such tensors */
    int64_t shard;    /* elements / ranks */
    int64_t begin;    /* in whole order of its kind */
};

struct unit {
    int64_t elements; /* of both parts */
    int64_t begin;    /* among the elements of all units */
    int tensors;
    struct part part[PARTS];
};

struct layout {
    int ranks, count, units, groups;
    int64_t params;       /* elements, without padding */
    int64_t frozen;       /* of them in frozen tensors */
    int64_t whole[PARTS]; /* elements, padded */
    struct tensor *tensors;
    struct unit *unit;
};

int layout_create(struct layout *l, const struct zero_param *params, int count, int ranks,
                  struct error *error);
void layout_destroy(struct layout *l);

/* Mixes names, shapes, units, groups, flags and ready-made fills into one number. */
uint64_t layout_hash(const struct layout *l);
/* The same of one tensor. */
uint64_t layout_tensor_hash(const struct tensor *t);
/* As it was described, for a sentence. */
void layout_tensor_text(const struct tensor *t, char *text, size_t size);

#endif
