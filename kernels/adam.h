// SPDX-License-Identifier: Apache-2.0
/*
 * Adam's arithmetic, written once: the step of one element. scalar.c is this in
 * a loop, the vector files repeat it operation by operation and call it for
 * their tails. Every operation is rounded to fp32; nothing may be contracted,
 * reordered or approximated.
 */
#ifndef KERNELS_ADAM_H
#define KERNELS_ADAM_H

#include <float.h>
#include <math.h>

#include "kernels/kernels.h"

#ifdef __FAST_MATH__
#error "-ffast-math changes results: compile without it"
#endif
_Static_assert(FLT_EVAL_METHOD == 0, "fp32 operations must be rounded to fp32");

/* AdamW, arXiv 1711.05101, algorithm 2, with the bias corrections folded into
 * step_size and root_scale. Bound by memory: division and root cost nothing.
 * l2 says whether k->l2 is not zero (Adam with L2 instead, the same page): loops
 * ask once, and without it not even a zero is added, which would turn -0 to 0. */
static inline void adam_element(const struct adam *k, bool l2, float grad, float *master, float *m,
                                float *v)
{
    float g = grad * k->grad_scale;
    if (l2)
        g = g + k->l2 * *master;
    float p = *master * k->decay;
    float m1 = k->beta1 * *m + k->one_minus_beta1 * g;
    float v1 = k->beta2 * *v + (k->one_minus_beta2 * g) * g;
    *m = m1;
    *v = v1;
    *master = p - k->step_size * (m1 / (sqrtf(v1) * k->root_scale + k->eps));
}

#endif
