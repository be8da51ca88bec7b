// SPDX-License-Identifier: Apache-2.0
/* Counter-based random numbers: each value depends on (seed, stream, index)
 * alone and has the same bits on every machine. kernels/random.h defines them. */
#ifndef SRC_RANDOM_H
#define SRC_RANDOM_H

#include <stdint.h>

#include "kernels/random.h"

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index);
double random_uniform(uint64_t seed, uint64_t stream, uint64_t index); /* in (0, 1) */
double random_normal(uint64_t seed, uint64_t stream, uint64_t index);  /* mean 0, variance 1 */

#endif
