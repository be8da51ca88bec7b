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

#endif
