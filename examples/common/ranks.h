// SPDX-License-Identifier: Apache-2.0
/* What programs learn of all their ranks: by zero_mean, so COLLECTIVE. Each returns the engine's
 * status. */
#ifndef EXAMPLES_COMMON_RANKS_H
#define EXAMPLES_COMMON_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "include/zero.h"

/* Of whole numbers: exact as long as it is below 2^51. */
int ranks_sum(struct zero *z, double mine, double *sum);

/* The most that a rank has, of values of 0 or more whose sum is below 2^51. Each of some fifty
 * sums at most tells whether a rank has more: as many for a thousand ranks as for two. */
int ranks_most(struct zero *z, int64_t mine, int64_t *most);

/* Whether a hash is the same on all ranks. Its upper 32 bits are compared. */
int ranks_alike(struct zero *z, uint64_t hash, bool *alike);

#endif
