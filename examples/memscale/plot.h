// SPDX-License-Identifier: Apache-2.0
/* The results as a picture: memory of a rank by the model's size, beside what the
 * theory says. */
#ifndef EXAMPLES_MEMSCALE_PLOT_H
#define EXAMPLES_MEMSCALE_PLOT_H

#include <stdio.h>

#include "examples/memscale/scale.h"

void plot_write(FILE *svg, const struct scale *s, const struct result *results, int count);

#endif
