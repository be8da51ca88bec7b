// SPDX-License-Identifier: Apache-2.0
/* Devices that are not in the library itself. */
#include "src/device/device.h"

int device_plugin_create(struct device **device, const struct device_options *options,
                         struct error *error)
{
    (void)options;
    *device = NULL;
    return error_set(error, ZERO_ERR_UNSUPPORTED,
                     "This build has no CUDA device. Use .device = ZERO_CPU.");
}
