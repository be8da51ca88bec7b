// SPDX-License-Identifier: Apache-2.0
/* `zero plan` in three parts: the command line (plan.c), the model it describes
 * (plan_model.c), and this machine with the table (plan_table.c). The bytes are
 * zero_plan_make's, none are computed here. */
#ifndef EXAMPLES_ZERO_PLAN_H
#define EXAMPLES_ZERO_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "include/zero.h"

struct plan_options {
    int model, layers, channels, heads, seq, vocab;
    int64_t params, unit_size; /* a model of equal units instead */
    int ranks, ranks_per_node;
    int dtype, state, grad_dtype, accumulate_in; /* enums of zero.h */
    int accumulate, gather_slots, grad_slots, slots;
    int64_t chunk, host_bytes, device_memory;
    const char *nvme_path;
    bool verify_spill, csv, help;
};

/* The list of tensors, without values: a plan needs shapes only. */
struct plan_model {
    char title[160];
    struct zero_param *params;
    int count;
};

/* 0, or -1 with a sentence in error. */
int plan_model_make(struct plan_model *m, const struct plan_options *o, char *error,
                    size_t error_size);
void plan_model_free(struct plan_model *m);

/* Prints the table, or rows of CSV. Returns the exit status. */
int plan_table(const struct plan_options *o, const struct plan_model *m);

#endif
