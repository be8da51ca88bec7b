// SPDX-License-Identifier: Apache-2.0
/*
 * One configuration of the memory-scaling test: a fresh engine, some steps, and
 * what was planned and measured.
 *
 * On a GPU the device's memory is what its driver has less of, divided by the ranks that
 * share it; of other programs that use it at the time nothing is known.
 *
 * Nothing is computed: gradients are the zeros that zero_grad_data gives, so what
 * is measured is the engine, which a program's activations only add to (gpt2
 * --plan tells of those), and the test never touches the device's memory.
 */
#ifndef EXAMPLES_MEMSCALE_SCALE_H
#define EXAMPLES_MEMSCALE_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#include "examples/memscale/arguments.h"
#include "include/zero.h"

enum { LAYERS_MAX = 10000 };

struct result {
    int stage;
    enum zero_place offload;
    struct size size; /* its layers are those that were tried */
    int64_t params;
    int64_t planned[PLACES], measured[PLACES]; /* bytes of the rank that has most there */
    double seconds;                            /* of a step */
    bool fits;
    bool failed;   /* neither fits nor does not: something else is wrong */
    bool largest;  /* one layer more does not fit */
    char why[400]; /* what does not fit, of this or of one layer more: "needs X of Y"; or failed */
};

struct scale {
    const struct arguments *a;
    struct zero *z;            /* while there is one */
    struct zero_comm *between; /* of an engine in which ranks with GPUs meet */
    int rank, ranks, local;
    struct zero_gpu gpu; /* this rank's; its count is 0 on the CPU */
    int on_gpu;          /* ranks that have the same */
    bool linked;         /* units go from GPU to GPU, which no plan knows beforehand */
    int64_t gpu_memory;  /* in use on it before the first configuration */
    int64_t memory;      /* of this process before the first configuration */
    int64_t left;        /* after one: the most by which there was more */
    int64_t left_on_gpu; /* likewise, there */
    int status; /* of the last call of the library that failed */
    char error[640];
    char where[64]; /* the configuration in which that was, for the sentence; "": in none */
};

/* COLLECTIVE, all of them; 0, or -1 with error set ("" when only another rank failed). */

/* Makes an engine that finds out who takes part, and that all were given the same. */
int scale_begin(struct scale *s, const struct arguments *a, int argc, char **argv);
/* Ends it, where every rank is well. */
int scale_start(struct scale *s, bool well);

/* Layers: instead of the size's own. What does not fit is a result, and so is what fails, where
 * all ranks meet again: then error has this rank's sentence, unless it has none. */
int scale_try(struct scale *s, int stage, enum zero_place offload, const struct size *size,
              int layers, struct result *r);

/* As many layers as fit; none: r is of one, which does not. */
int scale_largest(struct scale *s, int stage, enum zero_place offload, const struct size *size,
                  struct result *r);

void scale_end(struct scale *s);

#endif
