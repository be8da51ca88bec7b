// SPDX-License-Identifier: Apache-2.0
/*
 * What the files of the fake CUDA runtime offer each other, and fakes of other
 * libraries that work on its streams: operations, and the memory they reach.
 *
 * TSan must see no order between threads that CUDA does not guarantee, so there is
 * no lock: what the calls share is kept in lists that only grow, by functions that
 * TSan does not look into (FAKE_UNSEEN), and is freed when the fake stops.
 */
#ifndef TESTS_SUPPORT_FAKE_CUDA_PARTS_H
#define TESTS_SUPPORT_FAKE_CUDA_PARTS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "kernels/cuda/runtime.h"
#include "tests/support/fake_cuda.h"

/* Neither accesses nor atomics of such a function are seen. */
#ifdef __clang__
#define FAKE_UNSEEN __attribute__((disable_sanitizer_instrumentation))
#else
#define FAKE_UNSEEN __attribute__((no_sanitize("thread"), noinline))
#endif

/* ------------------------------------------------------------------ fake_cuda.c */

extern struct fake_cuda_options fake_options;

void fake_report(enum fake_cuda_report kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What every call ends with: keeps an error for cudaGetLastError, and returns it. */
cudaError_t fake_result(cudaError_t error);

/* What every call that may fail begins with: the injected error, or the first of
 * the calling thread's GPU. */
cudaError_t fake_enter(void);
/* No capture forbids the calling thread to ask. */
bool fake_may_query(void);
bool fake_strikes(enum fault_kind kind);

/* The calling thread's GPU; 0 and a report when it has set none. */
int fake_gpu(const char *call);

/* The calling thread is a stream's: calls of the runtime are reported from here on. */
void fake_within(void);
bool fake_refuses(void);

void fake_gpu_lose(int gpu);
cudaError_t fake_gpu_error(int gpu);

/* ----------------------------------------------------------- fake_cuda_memory.c */

struct fake_block; /* an allocation or a registration */

/* An address as the fake's own threads use it, of bytes that a call named by its
 * operation reads or writes; NULL: reported, and the operation has an error. */
enum fake_place {
    FAKE_GPU,     /* memory of the operation's GPU, or of any: a copy */
    FAKE_HOST,    /* registered; other memory is reported, and then used: a copy */
    FAKE_VISIBLE, /* memory of the operation's GPU, or registered: a kernel */
};
struct fake_op;
void *fake_reach(struct fake_op *op, const void *address, int64_t bytes, enum fake_place place);

/* Whether the program has given a block back by now. */
bool fake_block_gone(struct fake_block *block);
/* Seen by TSan as an access to the block, so that giving it back has to be ordered. */
void fake_block_touch(struct fake_block *block);

/* memcpy and memset that TSan sees also where it overlooks the C library. */
void fake_copy(void *to, const void *from, size_t bytes);
void fake_fill(void *to, int value, size_t bytes);

/* GPUs' memory given out from here on is read and written at its addresses by all: what
 * runs kernels cannot see which arguments are addresses. */
extern bool fake_plain_memory;

/* In which order a block's threads run, and when copies happen: tests/support/fake_nvcc.h. */
extern int fake_nvcc_order;
/* Launches of kernels that were not loaded before. */
extern int fake_unloaded;

/* Leaks are reported, all blocks are gone. */
void fake_memory_stop(void);

/* ----------------------------------------------------------- fake_cuda_stream.c */

/* An operation on its way into a stream. */
struct fake_op {
    const char *call;
    struct CUstream_st *stream;
    int gpu;
    cudaError_t error;
    void (*run)(void *arg); /* in the stream's thread; NULL: the stream ends */
    void *arg;              /* zeros at first; the operation's own */
    struct fake_block **blocks;
    int block_count;
    _Atomic(struct fake_op *) next;
    bool sound;       /* when done: the GPU was not lost before */
    int64_t ended_ns; /* CLOCK_MONOTONIC, when done */
    atomic_uint done;
};

/* For a call on a stream of the calling thread's GPU. Never NULL; with an error it
 * is not appended. */
struct fake_op *fake_op_create(const char *call, cudaStream_t stream, size_t arg_bytes);
/* Appends it, or ends it because it has an error; returns that. */
cudaError_t fake_op_append(struct fake_op *op, void (*run)(void *arg));
/* Ends one that there is no work for. */
cudaError_t fake_op_drop(struct fake_op *op);

/* For cudaMemcpy: on the default stream, which takes no other operation. */
struct fake_op *fake_op_default(const char *call, size_t arg_bytes);
cudaError_t fake_op_append_wait(struct fake_op *op, void (*run)(void *arg));

/* A kernel as tests/support/fake_nvcc.h has it: run, with a copy of what arg points to. */
cudaError_t fake_kernel(cudaStream_t stream, const void *arg, size_t bytes, void (*run)(void *));

/* Waits for all streams to end; leaks are reported. */
void fake_streams_stop(void);

#endif
