// SPDX-License-Identifier: Apache-2.0
/* The command line of the memory-scaling test: one table of options, and the
 * stages, places and models that it asks for. */
#ifndef EXAMPLES_MEMSCALE_ARGUMENTS_H
#define EXAMPLES_MEMSCALE_ARGUMENTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "examples/common/options.h"
#include "examples/gpt2/model.h"
#include "include/zero.h"

enum { PLACES = 3 }; /* device, host, nvme: enum zero_place from ZERO_DEVICE on */

/* A model to be tried; with --find-largest its number of layers is what is looked for. */
struct size {
    char name[24]; /* "gpt2", or "12x768" */
    struct gpt_shape shape;
};

struct arguments {
    struct option_list stage_list, offload_list, model_list;
    int device; /* enum zero_device */
    int layers, channels, state, grad_dtype, steps, slots, threads, deadline;
    int64_t memory[PLACES]; /* of each rank there; 0: as much as there is */
    int64_t chunk;
    const char *nvme_path, *csv, *svg;
    bool find_largest, help;
    /* What the lists amount to, word by word. */
    int stages[OPTION_LIST_MAX];
    enum zero_place offloads[OPTION_LIST_MAX];
    struct size sizes[OPTION_LIST_MAX];
    int size_count;
};

/* Returns 0, or -1 with a sentence in error. With --help nothing else is looked
 * at. The strings are argv's. */
int arguments_parse(struct arguments *a, int argc, char **argv, char *error, size_t error_size);
void arguments_help(FILE *out);

/* The engine's configuration at one stage and place. */
struct zero_config arguments_config(const struct arguments *a, int stage, enum zero_place offload);

const char *arguments_offload(enum zero_place place); /* "none", "cpu" or "nvme" */

#endif
