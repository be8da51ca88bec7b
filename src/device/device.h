// SPDX-License-Identifier: Apache-2.0
/*
 * Where the model is computed: memory, ordered streams that copy between that
 * memory and the host's, and the arithmetic that works on it. What rests in host
 * memory is computed there, by kernels/kernels.h.
 *
 * On the CPU device both memories are the process's own, but the accounts are
 * kept apart: ZERO_DEVICE_MEMORY=bytes caps the device's, and copies run on
 * threads, so that a missing dependency shows without a GPU. Arithmetic is done
 * by the thread that asks for it.
 */
#ifndef SRC_DEVICE_DEVICE_H
#define SRC_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "src/adam.h"
#include "src/error.h"
#include "src/norm.h"

enum device_stream { DEVICE_TO_DEVICE_MEMORY = 0, DEVICE_TO_HOST_MEMORY, DEVICE_STREAMS };

/* One copy; the caller's memory until done. */
struct device_copy {
    void *to;
    const void *from;
    int64_t bytes;
    struct device_copy *next; /* the device's own, as is done */
    bool done;
};

/* The ordered sum over ranks of one piece of a shard; kernels.h says in which order. */
struct device_sum {
    int64_t count; /* elements, a multiple of KERNELS_BLOCK */
    int ranks;
    const void **parts; /* (ranks) of them; the device may change the array */
    enum zero_dtype dtype;
    void *sum;   /* fp32; bf16 when narrow */
    bool fresh;  /* from +0, not from what is there */
    bool last;   /* the squares of the sums enter the norm, then, */
    bool round;  /* with last, the sums are rounded to bf16 */
    bool narrow; /* they rest so: a piece that is fresh, last and rounded */
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
    /* Zeroes gradients that the program is about to fill. */
    void (*clear)(struct device *device, void *memory, int64_t bytes);
    /* One thread at a time. */
    void (*sum)(struct device *device, const struct device_sum *sum);
    /* Takes what sums have entered in the norm since it was taken last. */
    int (*norm)(struct device *device, struct wide *norm, struct error *error);
    /* Any thread: stretches that do not overlap. */
    void (*adam)(struct device *device, const struct adam_stretch *stretch);
    /* Blocks: device memory that nothing writes, to memory of any kind. */
    int (*read)(struct device *device, void *to, const void *from, int64_t bytes,
                struct error *error);
    void (*destroy)(struct device *device);
};

struct device {
    const struct device_ops *ops;
};

struct device_options {
    int event_fd;                  /* written when a copy is done */
    const struct kernels *kernels; /* of the CPU */
};

int device_cpu_create(struct device **device, const struct device_options *options,
                      struct error *error);

#endif
