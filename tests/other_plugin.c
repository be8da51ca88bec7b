// SPDX-License-Identifier: Apache-2.0
/* A plugin that was built from other sources, for tests/plugin_test.c. */
#include "src/device/plugin.h"

ZERO_API extern const struct device_plugin zero_device_plugin;
const struct device_plugin zero_device_plugin = {.version = ZERO_VERSION};
