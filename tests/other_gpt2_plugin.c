// SPDX-License-Identifier: Apache-2.0
/* A plugin of gpt2 that was built from other sources, for tests/gpu_model.sh. */
#include "examples/gpt2/device.h"

ZERO_API extern const struct gpu_plugin gpt2_gpu_plugin;
const struct gpu_plugin gpt2_gpu_plugin = {.version = ZERO_VERSION};
