// SPDX-License-Identifier: Apache-2.0
/* The contract of src/device/device.h, for every device: what a suite calls with a device
 * of its own, and memory of the host as that device reaches it. */
#ifndef TESTS_SUPPORT_DEVICE_SUITE_H
#define TESTS_SUPPORT_DEVICE_SUITE_H

#include "src/device/device.h"

#define DEVICE_SUITE_CASES  7
#define DEVICE_SUITE_STAGED 5                  /* the case of devices that are apart alone */
#define DEVICE_SUITE_HOST   ((int64_t)1 << 20) /* bytes of host memory that copies use */

/* Case i, 0 .. DEVICE_SUITE_CASES - 1. host is pinned with the device or not; nobody else
 * uses the device. Ends the test where the device breaks the contract. */
void device_suite_run(int i, struct device *device, char *host);

#endif
