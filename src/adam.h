// SPDX-License-Identifier: Apache-2.0
/*
 * One optimizer step over a stretch of one tensor, in memory that the CPU sees:
 * the kernel for its formats, block by block. Knows neither chunks nor devices.
 */
#ifndef SRC_ADAM_H
#define SRC_ADAM_H

#include "include/zero.h"
#include "kernels/kernels.h"

struct adam_stretch {
    int64_t count; /* elements, of every array */
    struct adam constants;
    struct grads grads;
    float *master;      /* NULL: it is kept as param and remainder */
    int16_t *remainder; /* NULL but for those */
    float *m, *v;
    void *param; /* the new parameters, of dtype; NULL: the master is the parameter */
    enum zero_dtype dtype;
};

void adam_step(const struct kernels *kernels, const struct adam_stretch *s);

#endif
