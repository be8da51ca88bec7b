// SPDX-License-Identifier: Apache-2.0
/*
 * Where the model is computed: memory, ordered streams that copy between that
 * memory and the host's, and the arithmetic that works on it. What rests in host
 * memory is computed there, by kernels/kernels.h.
 *
 * On the CPU device both memories are the process's own, but the accounts are
 * kept apart: ZERO_DEVICE_MEMORY=bytes caps the device's, and copies run on
 * threads, so that a missing dependency shows without a GPU. Arithmetic is done
 * by the thread that asks for it. On another device (plan.h: device_apart) the host
 * reads no device memory, and calls of the table only ask for work (but alloc, pin,
 * norm and read, and copies of memory that is not registered): it is done when a
 * copy, or a mark behind it in its stream, is done. Streams are not ordered among
 * each other: who needs work of another stream waits for its mark before it asks.
 */
#ifndef SRC_DEVICE_DEVICE_H
#define SRC_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "src/adam.h"
#include "src/error.h"
#include "src/norm.h"

/* The program asks for marks of DEVICE_COMPUTE and for what it clears; all else is the
 * engine thread's. */
enum device_stream {
    DEVICE_TO_DEVICE_MEMORY = 0, /* copies */
    DEVICE_TO_HOST_MEMORY,
    DEVICE_SUMS,    /* sums, and copies within device memory */
    DEVICE_UPDATE,  /* Adam */
    DEVICE_COMPUTE, /* the program's own */
    DEVICE_STREAMS,
};

/* One copy, or a mark; the caller's memory until done. */
struct device_copy {
    void *to;
    const void *from;
    int64_t bytes;
    /* the device's own */
    struct device_copy *next;
    void *stream; /* NULL: nothing was asked for */
    bool done;
};

/* The ordered sum over ranks of one piece of a shard; kernels.h says in which order. */
struct device_sum {
    int64_t count; /* elements, a multiple of KERNELS_BLOCK */
    int ranks;
    const void **parts; /* (ranks) of them; the device may change the array */
    void *scratch;      /* not NULL: parts but that of own are in registered host memory, and
                           pass through here, one behind the other. They are read when the
                           call returns */
    int own;
    enum zero_dtype dtype;
    void *sum;   /* fp32; bf16 when narrow */
    bool fresh;  /* from +0, not from what is there */
    bool last;   /* the squares of the sums enter the norm, then, */
    bool round;  /* with last, the sums are rounded to bf16 */
    bool narrow; /* they rest so: a piece that is fresh, last and rounded */
};

struct device;

struct device_ops {
    /* One zeroed allocation, aligned to 256 bytes, on the CPU to 2 MiB; it stays until the
     * device is destroyed. ZERO_ERR_MEMORY with the numbers. */
    void *(*alloc)(struct device *device, int64_t bytes, struct error *error);
    /* Host memory that copies will use; it stays until the device is destroyed. Where it
     * cannot be registered copies are slower, and the sentence says so. */
    int (*pin)(struct device *device, void *memory, int64_t bytes, struct error *error);
    /* Appends a copy to a stream; returns at once. Copies of a stream run in order. */
    void (*copy)(struct device *device, enum device_stream stream, struct device_copy *copy);
    /* Appends a mark: done when everything before it in the stream is. */
    void (*mark)(struct device *device, enum device_stream stream, struct device_copy *mark);
    /* Whether it is done: everything it wrote is visible to the caller then. */
    bool (*copied)(struct device *device, const struct device_copy *copy);
    /* The first failure of what was asked for; from then on nothing is done any more. */
    int (*status)(struct device *device, struct error *error);
    /* Zeroes device memory, in a stream. */
    void (*clear)(struct device *device, enum device_stream stream, void *memory, int64_t bytes);
    /* In DEVICE_SUMS. */
    void (*sum)(struct device *device, const struct device_sum *sum);
    /* Takes what sums have entered in the norm since it was taken last; all are done. Blocks. */
    int (*norm)(struct device *device, struct wide *norm, struct error *error);
    /* In DEVICE_UPDATE. On the CPU any thread may, for stretches that do not overlap. */
    void (*adam)(struct device *device, const struct adam_stretch *stretch);
    /* Blocks: device memory that nothing writes, to memory of any kind. */
    int (*read)(struct device *device, void *to, const void *from, int64_t bytes,
                struct error *error);
    void (*destroy)(struct device *device);
};

struct device {
    const struct device_ops *ops;
    const char *name;     /* "cpu", or the GPU's */
    int64_t pinned_bytes; /* registered */
    void *room;   /* device_apart: device memory of device_sum_room bytes, given by the engine */
    void *stream; /* that the program computes on; NULL on the CPU */
    void *sums;   /* the stream of DEVICE_SUMS; NULL on the CPU */
    bool held;    /* the engine's: transfers between ranks may still use memory, which stays then
                     where it is host memory */
};

/* Bytes of device memory that sums of so many elements a piece need beside their arrays:
 * the norm, squares of blocks, and what is rounded; or the own part, of in_place parts whose
 * sums take its place, where these are more than a device reads at once. */
#define DEVICE_NORM_BYTES 256
#define DEVICE_PARTS_MOST 256 /* at once */
static inline int64_t device_squares_bytes(int64_t elements)
{
    return (elements / KERNELS_BLOCK * 8 + 255) / 256 * 256;
}
static inline int64_t device_sum_room(int64_t elements, bool round, int in_place)
{
    return DEVICE_NORM_BYTES + device_squares_bytes(elements) +
           (round || in_place > DEVICE_PARTS_MOST ? elements * 4 : 0);
}

struct device_options {
    int event_fd;                  /* written when a copy is done */
    const struct kernels *kernels; /* of the CPU */
    void *stream;                  /* the program's; NULL: one is made */
    int64_t pin_bytes;             /* registered at once; 0: 1 GiB */
    int threads;                   /* that touch memory first; 0: the caller alone */
};

int device_cpu_create(struct device **device, const struct device_options *options,
                      struct error *error);

/* Of the plugin alone: the calling thread's current GPU. */
int device_cuda_create(struct device **device, const struct device_options *options,
                       struct error *error);

/* One of another kind. ZERO_ERR_UNSUPPORTED where there is none. */
int device_plugin_create(struct device **device, const struct device_options *options,
                         struct error *error);

/* What there is beside a device: how ranks that have one each reach each other. */
#define DEVICE_LINK_ID 128
struct device_link {
    char gpu[16];   /* the calling thread's current one: no other in the world is called so */
    uint64_t place; /* of it on its node: slices of one (MIG) have names of their own */
    int gpus;       /* that this process sees */
    int version;    /* of what carries units between GPUs; 0: the plugin has nothing for that */
    /* What rank 0 makes and tells the others before all make the communicator. */
    int (*id)(char id[DEVICE_LINK_ID], struct error *error);
    /* Over control, which is borrowed until it is destroyed: src/comm/nccl.h. */
    int (*comm)(struct zero_comm **comm, struct zero_comm *control, const char id[DEVICE_LINK_ID],
                struct error *error);
};

/* Of the plugin alone, and through it. */
int device_cuda_link(struct device_link *link, struct error *error);
int device_plugin_link(struct device_link *link, struct error *error);

/* What zero_gpu_use does: of the plugin alone, and by it. */
int device_cuda_gpu(int index, struct zero_gpu *gpu, struct error *error);
int device_plugin_gpu(int index, struct zero_gpu *gpu, struct error *error);

#endif
