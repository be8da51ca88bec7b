// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of the fake GPUs, and registered memory of the host. An allocation of a
 * GPU has two ranges: one without access, whose addresses the program is given, and
 * one that the streams' threads use.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/support/fake_cuda_parts.h"

#define PAGE       ((size_t)4096)
#define KEPT_BYTES ((size_t)1 << 20) /* larger blocks give their pages back */
#define FILL       0xFF              /* NaN in every format */

enum block_kind { ON_GPU, ON_HOST, REGISTERED };

struct fake_block {
    struct fake_block *before; /* in the list of all, which only grows */
    enum block_kind kind;
    int gpu;
    char *address, *memory; /* the program's, and the fake's */
    size_t bytes, span;     /* asked for; of address, with a page that nobody may use */
    atomic_bool gone;
    volatile char touched;
};

bool fake_plain_memory;
int fake_nvcc_order, fake_unloaded;

static _Atomic(struct fake_block *) blocks;
static _Atomic(size_t) used[FAKE_CUDA_GPUS_MAX];

/* --------------------------------------------------------------- what TSan sees */

#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
void __tsan_read_range(void *address, long bytes);
void __tsan_write_range(void *address, long bytes);
#else
#define __tsan_read_range(address, bytes)  ((void)0)
#define __tsan_write_range(address, bytes) ((void)0)
#endif

void fake_copy(void *to, const void *from, size_t bytes)
{
    __tsan_read_range((void *)(uintptr_t)from, (long)bytes);
    __tsan_write_range(to, (long)bytes);
    memcpy(to, from, bytes);
}

void fake_fill(void *to, int value, size_t bytes)
{
    __tsan_write_range(to, (long)bytes);
    memset(to, value, bytes);
}

/* ----------------------------------------------------------------- the blocks */

FAKE_UNSEEN static void block_list(struct fake_block *b)
{
    b->before = atomic_load(&blocks);
    while (!atomic_compare_exchange_weak(&blocks, &b->before, b))
        ;
}

FAKE_UNSEEN bool fake_block_gone(struct fake_block *block)
{
    return atomic_load(&block->gone);
}

void fake_block_touch(struct fake_block *block)
{
    (void)block->touched;
}

/* What an address belongs to: a block that is there, else one that was. NULL: pageable memory. */
FAKE_UNSEEN static struct fake_block *block_at(const void *address)
{
    struct fake_block *was = NULL;
    for (struct fake_block *b = atomic_load(&blocks); b; b = b->before) {
        if ((const char *)address < b->address || (const char *)address >= b->address + b->span)
            continue;
        if (!atomic_load(&b->gone))
            return b;
        if (!was)
            was = b;
    }
    return was;
}

FAKE_UNSEEN static struct fake_block *block_overlapping(const void *address, size_t bytes)
{
    for (struct fake_block *b = atomic_load(&blocks); b; b = b->before)
        if (!atomic_load(&b->gone) && (const char *)address < b->address + b->bytes &&
            b->address < (const char *)address + bytes)
            return b;
    return NULL;
}

/* Takes a block out of use once; NULL: there is none of that kind that begins there. */
FAKE_UNSEEN static struct fake_block *block_take(const void *address, enum block_kind kind)
{
    struct fake_block *b = block_at(address);
    bool is = b && b->address == (const char *)address && b->kind == kind;
    return is && !atomic_exchange(&b->gone, true) ? b : NULL;
}

FAKE_UNSEEN static enum block_kind block_kind(const struct fake_block *b)
{
    return b->kind;
}

FAKE_UNSEEN static int block_gpu(const struct fake_block *b)
{
    return b->gpu;
}

/* The fake's address of bytes within a block; NULL: not within it. */
FAKE_UNSEEN static void *block_memory(const struct fake_block *b, const void *address,
                                      int64_t bytes)
{
    size_t at = (size_t)((const char *)address - b->address);
    return bytes >= 0 && (size_t)bytes <= b->bytes && at <= b->bytes - (size_t)bytes
               ? b->memory + at
               : NULL;
}

static struct fake_block *block_new(enum block_kind kind, int gpu, size_t bytes)
{
    struct fake_block *b = calloc(1, sizeof(*b));
    if (!b)
        abort();
    b->kind = kind;
    b->gpu = gpu;
    b->bytes = bytes;
    b->span = bytes;
    return b;
}

/* ------------------------------------------------------------ what calls reach */

static void *fail(struct fake_op *op, cudaError_t error)
{
    op->error = error;
    return NULL;
}

static void block_use(struct fake_op *op, struct fake_block *b)
{
    size_t count = (size_t)op->block_count + 1;
    op->blocks = realloc(op->blocks, count * sizeof(*op->blocks));
    if (!op->blocks)
        abort();
    op->blocks[op->block_count++] = b;
}

/* Host memory that no call has registered. */
static void *reach_pageable(struct fake_op *op, const void *address, int64_t bytes,
                            enum fake_place place)
{
    if (place == FAKE_GPU) {
        fake_report(FAKE_CUDA_OUTSIDE, "%s: %p is not memory of a GPU", op->call, address);
        return fail(op, cudaErrorInvalidValue);
    }
    fake_report(FAKE_CUDA_UNREGISTERED,
                "%s: %" PRId64 " bytes of host memory at %p are not "
                "registered",
                op->call, bytes, address);
    if (place == FAKE_VISIBLE)
        return fail(op, cudaErrorInvalidValue);
    return (void *)(uintptr_t)address;
}

static bool place_wrong(struct fake_op *op, const struct fake_block *b, const void *address,
                        enum fake_place place)
{
    bool on_gpu = block_kind(b) == ON_GPU;
    if (place == FAKE_VISIBLE && on_gpu && block_gpu(b) != op->gpu) {
        fake_report(FAKE_CUDA_OTHER_DEVICE, "%s: a kernel of GPU %d, memory of GPU %d", op->call,
                    op->gpu, block_gpu(b));
        return true;
    }
    if (place == FAKE_VISIBLE || on_gpu == (place == FAKE_GPU))
        return false;
    fake_report(FAKE_CUDA_OUTSIDE, "%s: %p is not memory of %s", op->call, address,
                on_gpu ? "the host" : "a GPU");
    return true;
}

void *fake_reach(struct fake_op *op, const void *address, int64_t bytes, enum fake_place place)
{
    if (op->error != cudaSuccess || bytes == 0)
        return NULL;
    struct fake_block *b = block_at(address);
    if (!b)
        return reach_pageable(op, address, bytes, place);
    if (fake_block_gone(b) && block_kind(b) == REGISTERED)
        return reach_pageable(op, address, bytes, place);
    if (fake_block_gone(b)) {
        fake_report(FAKE_CUDA_FREED, "%s: the memory at %p was freed", op->call, address);
        return fail(op, cudaErrorInvalidValue);
    }
    if (place_wrong(op, b, address, place))
        return fail(op, cudaErrorInvalidValue);
    void *memory = block_memory(b, address, bytes);
    if (!memory) {
        fake_report(block_kind(b) == ON_GPU ? FAKE_CUDA_OUTSIDE : FAKE_CUDA_UNREGISTERED,
                    "%s: %" PRId64 " bytes at %p end beyond what was given out, or registered, at "
                    "once",
                    op->call, bytes, address);
        return fail(op, cudaErrorInvalidValue);
    }
    fake_block_touch(b);
    block_use(op, b);
    return memory;
}

/* ---------------------------------------------------------- giving out and back */

static void *map(size_t bytes, int access)
{
    void *p = mmap(NULL, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static bool block_map(struct fake_block *b)
{
    size_t bytes = (b->bytes + PAGE - 1) / PAGE * PAGE;
    bool apart = b->kind == ON_GPU && !fake_plain_memory;
    b->span = bytes + PAGE;
    b->address = map(b->span, apart ? PROT_NONE : PROT_READ | PROT_WRITE);
    b->memory = apart && b->address ? map(bytes, PROT_READ | PROT_WRITE) : b->address;
    if (!b->memory && b->address)
        munmap(b->address, b->span);
    if (b->memory)
        fake_fill(b->memory, FILL, b->bytes);
    return b->memory != NULL;
}

static cudaError_t block_create(enum block_kind kind, int gpu, void **memory, size_t bytes)
{
    struct fake_block *b = block_new(kind, gpu, bytes);
    if (!block_map(b)) {
        free(b);
        return cudaErrorMemoryAllocation;
    }
    block_list(b);
    *memory = b->address;
    return cudaSuccess;
}

/* The memory stays: what still uses it is to be found out, not to crash. */
static void block_spoil(struct fake_block *b)
{
    b->touched = 1;
    fake_fill(b->memory, FILL, b->bytes);
    if (b->bytes > KEPT_BYTES)
        madvise(b->memory, b->bytes, MADV_DONTNEED);
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    cudaError_t error = fake_enter();
    if (error != cudaSuccess)
        return fake_result(error);
    int gpu = fake_gpu(__func__);
    size_t before = atomic_fetch_add_explicit(&used[gpu], bytes, memory_order_relaxed);
    bool fits =
        before <= (size_t)fake_options.bytes && bytes <= (size_t)fake_options.bytes - before;
    if (!fits || fake_strikes(FAULT_CUDA_MEMORY))
        error = cudaErrorMemoryAllocation;
    else if (bytes == 0)
        *memory = NULL;
    else
        error = block_create(ON_GPU, gpu, memory, bytes);
    if (error != cudaSuccess)
        atomic_fetch_sub_explicit(&used[gpu], bytes, memory_order_relaxed);
    return fake_result(error);
}

static cudaError_t not_there(const char *call, void *memory, cudaError_t error)
{
    fake_report(FAKE_CUDA_FREED, "%s: at %p there is nothing to give back, or no more", call,
                memory);
    return fake_result(error);
}

cudaError_t cudaFree(void *memory)
{
    if (!memory)
        return fake_result(cudaSuccess);
    if (fake_refuses())
        return fake_result(cudaErrorNotPermitted);
    struct fake_block *b = block_take(memory, ON_GPU);
    if (!b)
        return not_there(__func__, memory, cudaErrorInvalidValue);
    block_spoil(b);
    atomic_fetch_sub_explicit(&used[b->gpu], b->bytes, memory_order_relaxed);
    return fake_result(fake_gpu_error(b->gpu));
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    cudaError_t error = fake_enter();
    if (error != cudaSuccess)
        return fake_result(error);
    int gpu = fake_gpu(__func__);
    *total = (size_t)fake_options.bytes;
    *available = *total - atomic_load_explicit(&used[gpu], memory_order_relaxed);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    cudaError_t error = fake_enter();
    if (error != cudaSuccess)
        return fake_result(error);
    (void)flags;
    (void)fake_gpu(__func__);
    if (fake_strikes(FAULT_CUDA_MEMORY))
        return fake_result(cudaErrorMemoryAllocation);
    return fake_result(block_create(ON_HOST, 0, memory, bytes));
}

cudaError_t cudaFreeHost(void *memory)
{
    if (!memory)
        return fake_result(cudaSuccess);
    if (fake_refuses())
        return fake_result(cudaErrorNotPermitted);
    struct fake_block *b = block_take(memory, ON_HOST);
    if (!b)
        return not_there(__func__, memory, cudaErrorInvalidValue);
    block_spoil(b);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
    cudaError_t error = fake_enter();
    if (error != cudaSuccess)
        return fake_result(error);
    (void)flags;
    (void)fake_gpu(__func__);
    if (!memory || bytes == 0)
        return fake_result(cudaErrorInvalidValue);
    size_t before = (uintptr_t)memory % PAGE; /* pages are registered, each once */
    if (block_overlapping((char *)memory - before, (before + bytes + PAGE - 1) / PAGE * PAGE))
        return fake_result(cudaErrorHostMemoryAlreadyRegistered);
    if (fake_strikes(FAULT_CUDA_REGISTER))
        return fake_result(cudaErrorNotSupported);
    struct fake_block *b = block_new(REGISTERED, 0, bytes);
    b->address = b->memory = memory;
    block_list(b);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
    if (fake_refuses())
        return fake_result(cudaErrorNotPermitted);
    struct fake_block *b = block_take(memory, REGISTERED);
    if (!b)
        return not_there(__func__, memory, cudaErrorHostMemoryNotRegistered);
    b->touched = 1;
    return cudaSuccess;
}

void fake_memory_stop(void)
{
    static const char *const names[] = {
        [ON_GPU] = "cudaFree", [ON_HOST] = "cudaFreeHost", [REGISTERED] = "cudaHostUnregister"};
    struct fake_block *b = atomic_exchange(&blocks, NULL);
    while (b) {
        struct fake_block *before = b->before;
        if (!atomic_load(&b->gone))
            fake_report(FAKE_CUDA_LEAK, "%zu bytes at %p wait for %s in vain", b->bytes,
                        (void *)b->address, names[b->kind]);
        if (b->kind != REGISTERED)
            munmap(b->address, b->span);
        if (b->memory != b->address)
            munmap(b->memory, b->bytes);
        free(b);
        b = before;
    }
    for (int i = 0; i < FAKE_CUDA_GPUS_MAX; i++)
        atomic_store(&used[i], 0);
}

/* --------------------------------------------------------------------- copies */

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

static void copy_run(void *arg)
{
    const struct copy *c = arg;
    fake_copy(c->to, c->from, c->bytes);
}

static bool on_gpu(const void *address)
{
    struct fake_block *b = block_at(address);
    return b && block_kind(b) == ON_GPU;
}

/* Where a copy of a kind finds its ends. */
static enum fake_place place_to(enum cudaMemcpyKind kind, const void *to)
{
    if (kind == cudaMemcpyDefault)
        return on_gpu(to) ? FAKE_GPU : FAKE_HOST;
    return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice ? FAKE_GPU
                                                                              : FAKE_HOST;
}

static enum fake_place place_from(enum cudaMemcpyKind kind, const void *from)
{
    if (kind == cudaMemcpyDefault)
        return on_gpu(from) ? FAKE_GPU : FAKE_HOST;
    return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice ? FAKE_GPU
                                                                              : FAKE_HOST;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    struct fake_op *op = fake_op_create(__func__, stream, sizeof(struct copy));
    struct copy *c = op->arg;
    c->bytes = bytes;
    c->to = fake_reach(op, to, (int64_t)bytes, place_to(kind, to));
    c->from = fake_reach(op, from, (int64_t)bytes, place_from(kind, from));
    return bytes ? fake_op_append(op, copy_run) : fake_op_drop(op);
}

/* An end in pageable memory is the host's own business: it is read, or written, by the
 * time that the call returns. */
static void *reach_any(struct fake_op *op, const void *address, size_t bytes, enum fake_place place)
{
    if (place == FAKE_HOST && !block_at(address))
        return op->error == cudaSuccess ? (void *)(uintptr_t)address : NULL;
    return fake_reach(op, address, (int64_t)bytes, place);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    enum fake_place to_place = place_to(kind, to), from_place = place_from(kind, from);
    bool staged = to_place == FAKE_GPU && from_place == FAKE_HOST && !block_at(from);
    struct fake_op *op = fake_op_default(__func__, sizeof(struct copy) + (staged ? bytes : 0));
    struct copy *c = op->arg;
    c->bytes = bytes;
    c->to = reach_any(op, to, bytes, to_place);
    c->from = reach_any(op, from, bytes, from_place);
    if (bytes == 0 || op->error != cudaSuccess)
        return fake_op_drop(op);
    if (!staged)
        return fake_op_append_wait(op, copy_run);
    fake_copy(c + 1, from, bytes);
    c->from = c + 1;
    return fake_op_append(op, copy_run);
}

struct set {
    void *to;
    int value;
    size_t bytes;
};

static void set_run(void *arg)
{
    const struct set *s = arg;
    fake_fill(s->to, s->value, s->bytes);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    struct fake_op *op = fake_op_create(__func__, stream, sizeof(struct set));
    void *memory = fake_reach(op, to, (int64_t)bytes, FAKE_VISIBLE);
    *(struct set *)op->arg = (struct set){memory, value, bytes};
    return bytes ? fake_op_append(op, set_run) : fake_op_drop(op);
}
