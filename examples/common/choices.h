// SPDX-License-Identifier: Apache-2.0
/* The words for what the library enumerates, for every program that takes an option of them. */
#ifndef EXAMPLES_COMMON_CHOICES_H
#define EXAMPLES_COMMON_CHOICES_H

#include "examples/common/options.h"

extern const struct option_choice device_choices[];     /* enum zero_device */
extern const struct option_choice place_choices[];      /* enum zero_place */
extern const struct option_choice dtype_choices[];      /* enum zero_dtype */
extern const struct option_choice grad_dtype_choices[]; /* the same, of sums at rest */
extern const struct option_choice state_choices[];      /* enum zero_state */
extern const struct option_choice accumulate_choices[]; /* enum zero_accumulate */

/* What options say that several programs have. */
#define STATE_HELP                                                                                 \
    "what is kept of a bf16 model's fp32 master: all of it, or (split) the 16 bits that the "      \
    "weight lacks; the same bits, 10 instead of 12 bytes of optimizer state"
#define GRAD_DTYPE_HELP                                                                            \
    "of gradient sums at rest; bf16 rounds them once, when a step's sum is complete, and takes "   \
    "half of the memory with --accumulate 1 and --accumulate-in shard"
#define ACCUMULATE_IN_HELP                                                                         \
    "where micro-steps add up: in each rank's shard, or in whole sums on every rank (stages 0 "    \
    "and 1), which sends less and, with several ranks and micro-steps, gives other bits"
#define CHUNK_HELP                                                                                 \
    "elements of optimizer state moved at once, a multiple of 64; by default more where a rank "   \
    "would have over 80000 chunks"
#define SLOTS_SHOWN     "32 in files (fewer with a larger --chunk), else 4"
#define SLOTS_HELP      "chunks that pass through memory at once"
#define NVME_PATH_VALUE "DIR[:DIR...]"
#define NVME_PATH_SHOWN "$SLURM_TMPDIR, $TMPDIR or /var/tmp: the first that is set"
#define NVME_PATH_HELP  "folder for files, or up to 8 that share them by their bandwidth"

#endif
