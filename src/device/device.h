// SPDX-License-Identifier: Apache-2.0
/*
 * Where the model is computed: memory, and ordered streams that copy between
 * that memory and the host's. The numeric operations on device memory join
 * this table with the second device; on the CPU they are kernels/kernels.h.
 *
 * On the CPU device both memories are the process's own, but the accounts are
 * kept apart: ZERO_DEVICE_MEMORY=bytes caps the device's, and copies run on
 * threads, so that a missing dependency shows without a GPU.
 */
#ifndef SRC_DEVICE_DEVICE_H
#define SRC_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "src/error.h"

enum device_stream { DEVICE_TO_DEVICE_MEMORY = 0, DEVICE_TO_HOST_MEMORY, DEVICE_STREAMS };

/* One copy; the caller's memory until done. */
struct device_copy {
    void *to;
    const void *from;
    int64_t bytes;
    struct device_copy *next; /* the device's own, as is done */
    bool done;
};

struct device;

struct device_ops {
    const char *name;
    /* One zeroed allocation, 2 MiB aligned. ZERO_ERR_MEMORY with the numbers. */
    void *(*alloc)(struct device *device, int64_t bytes, struct error *error);
    void (*free)(struct device *device, void *memory, int64_t bytes);
    /* Appends a copy to a stream; returns at once. Copies of a stream run in order. */
    void (*copy)(struct device *device, enum device_stream stream, struct device_copy *copy);
    /* Whether the copy is done: everything it wrote is visible to the caller then. */
    bool (*copied)(struct device *device, const struct device_copy *copy);
    void (*destroy)(struct device *device);
};

struct device {
    const struct device_ops *ops;
};

/* event_fd is written when a copy is done. */
int device_cpu_create(struct device **device, int event_fd, struct error *error);

#endif
