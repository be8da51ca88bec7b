// SPDX-License-Identifier: Apache-2.0
/*
 * What a plugin with a device exports. It is a library of its own because what it is
 * linked with costs every process that loads it; it is opened when it is asked for,
 * and stays open.
 */
#ifndef SRC_DEVICE_PLUGIN_H
#define SRC_DEVICE_PLUGIN_H

#include "src/device/device.h"

#define DEVICE_PLUGIN_FILE     "libzero_cuda.so"
#define DEVICE_PLUGIN_SYMBOL   "zero_device_plugin"
#define DEVICE_PLUGIN_VARIABLE "ZERO_CUDA_PLUGIN" /* names a file instead */

struct device_plugin {
    const char *version; /* SOURCES, of the Makefile: ZERO_VERSION and a sum of the headers */
    int (*create)(struct device **device, const struct device_options *options,
                  struct error *error);
    int (*describe)(struct device_link *link, struct error *error);
    int (*use_gpu)(int index, struct zero_gpu *gpu, struct error *error);
};

#endif
