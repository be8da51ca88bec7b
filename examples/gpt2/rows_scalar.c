// SPDX-License-Identifier: Apache-2.0
/*
 * The loops for any CPU of this architecture.
 */
#define ROWS     rows_scalar
#define ROWS_ISA "scalar"
#include "examples/gpt2/rows_loops.h"
