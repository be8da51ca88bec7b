// SPDX-License-Identifier: Apache-2.0
/*
 * What the suites of the kernels share: the instruction sets of this kind of
 * CPU, floats with every kind of bits, and the 16-bit formats defined a second
 * time and in another way than in kernels/. Knows no test.
 */
#ifndef TESTS_SUPPORT_KERNELS_H
#define TESTS_SUPPORT_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* How many instruction sets this build has kernels for. */
extern const int test_isa_count;

/* The kernels of one of them; NULL, and the reason printed, when this CPU does
 * not run them: the test then returns. */
const struct kernels *test_kernels(int i);

/* Constants of Adam, of which some are rare; this one and those behind it have L2. */
enum { TEST_ADAM_L2 = 3 };
extern const struct adam test_adams[];
extern const int test_adam_count;

uint32_t bits_of(float x);
float float_of(uint32_t bits);
/* Equal bits, or both NaN. */
bool same(float a, float b);
bool same_double(double a, double b);

/* Element i of a stream: half of them ordinary, the others specials, denormals
 * and any bit pattern. */
float sample(uint64_t stream, int64_t i);

/* From distances to the two neighbours, in double. */
uint16_t bf16_reference(float x);
uint16_t fp16_reference(float x);
float bf16_value(uint16_t x);
/* By its formula; a NaN as kernels.h says. */
float fp16_value(uint16_t x);

#endif
