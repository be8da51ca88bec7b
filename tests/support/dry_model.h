// SPDX-License-Identifier: Apache-2.0
/* Models and configurations for programs without data, given or drawn. No program
 * and no check is here. */
#ifndef TESTS_SUPPORT_DRY_MODEL_H
#define TESTS_SUPPORT_DRY_MODEL_H

#include "include/zero.h"

#define UNITS_MAX   6
#define TENSORS_MAX (4 * UNITS_MAX)

struct model {
    int units, tensors;
    struct zero_param params[TENSORS_MAX];
    char names[TENSORS_MAX][16];
};

void add_tensor(struct model *m, int unit, int64_t elements, bool frozen);

/* Units of elements each, as one tensor. */
void equal_units(struct model *m, int units, int64_t elements);

/* A number below n. */
int below(uint64_t *random, int n);

/* Half of the models are trained in full; the others have parts and units that are
 * frozen, and some units without an element. */
void random_model(struct model *m, uint64_t *random);

struct zero_config random_config(uint64_t *random);

#endif
