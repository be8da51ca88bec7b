// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks that differ: what one rank does otherwise than the others, at creation
 * and after it, for thread ranks and for MPI's. All ranks must learn of it.
 */
#ifndef TESTS_SUPPORT_DIFFER_H
#define TESTS_SUPPORT_DIFFER_H

#include <stdbool.h>

#include "include/zero.h"

/* At creation: in the model, in the configuration. */
extern const int differ_creations;
/* After creation: in the calls and their arguments. */
extern const int differ_calls;

/* Each makes an engine on comm, lets the rank that is odd differ in case i, and
 * destroys it. Returns NULL, or what was wrong (static, of this thread). *named:
 * the rank was told what differs, not only that another gave up. */
const char *differ_create(struct zero_comm *comm, int i, bool odd, bool *named);
const char *differ_call(struct zero_comm *comm, int stage, int i, bool odd, bool *named);

#endif
