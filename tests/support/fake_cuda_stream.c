// SPDX-License-Identifier: Apache-2.0
/*
 * Streams and events. A stream is a list of operations and the thread that runs
 * them. Its edges are atomics of the single operation, because one of the stream's
 * would order more than CUDA does: what the host does after an operation's appending
 * would seem to be done before it runs, when the thread takes both at once.
 *
 *   op->next, of the operation before: released by who appends, acquired by the thread
 *   op->done: released by the thread, acquired by who waits, thread or host
 *   stream->ended: likewise, by who finds it idle
 *
 * An event is the last operation that recorded it. Threads sleep on futexes, which
 * TSan does not know.
 */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "src/thread.h"
#include "tests/support/fake_cuda_parts.h"

#define WAIT_MAX_US 400 /* before an operation */

struct CUstream_st {
    struct CUstream_st *before; /* in the list of all */
    int gpu;
    bool blocks; /* in order with the default stream, where there is one */
    pthread_t thread;
    atomic_bool destroyed;
    struct fake_op start;           /* done: nothing is before the first operation */
    _Atomic(struct fake_op *) last; /* appended */
    atomic_uint appended, ended;
    uint64_t random; /* the thread's */
};

struct CUevent_st {
    struct CUevent_st *before;
    int gpu;
    bool timed, blocks;
    atomic_bool destroyed;
    _Atomic(struct fake_op *) recorded; /* NULL: never */
};

static _Atomic(struct CUstream_st *) streams;
static atomic_int listed; /* released by who made a stream, acquired by who waits for all */
static _Atomic(struct CUevent_st *) events;
static _Atomic(struct CUstream_st *) defaults[FAKE_CUDA_GPUS_MAX];

/* ---------------------------------------------------------------------- sleep */

/* A wake that is missed costs a little time. */
static void sleep_on(atomic_uint *word, unsigned while_value)
{
    struct timespec most = {.tv_nsec = 20 * 1000 * 1000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_value, &most, NULL, 0);
}

static void wake(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 0x7FFFFFFF, NULL, NULL, 0);
}

static bool op_done(struct fake_op *op)
{
    return atomic_load_explicit(&op->done, memory_order_acquire);
}

static void op_wait(struct fake_op *op)
{
    while (!op_done(op))
        sleep_on(&op->done, 0);
}

/* ----------------------------------------------------------------- the thread */

static uint64_t random_next(uint64_t *state) /* splitmix64 */
{
    uint64_t x = *state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* Half of the operations wait, so that now the host is ahead and now the stream. */
static void delay(struct CUstream_st *s)
{
    uint64_t r = random_next(&s->random);
    if (fake_options.seed && r & 1)
        usleep((useconds_t)((r >> 32) % WAIT_MAX_US));
}

static struct fake_op *op_after(struct CUstream_st *s, struct fake_op *op)
{
    for (;;) {
        unsigned appended = atomic_load_explicit(&s->appended, memory_order_relaxed);
        struct fake_op *next = atomic_load_explicit(&op->next, memory_order_acquire);
        if (next)
            return next;
        sleep_on(&s->appended, appended);
    }
}

static bool op_sound(struct fake_op *op)
{
    bool sound = fake_gpu_error(op->gpu) == cudaSuccess;
    for (int i = 0; i < op->block_count; i++) {
        fake_block_touch(op->blocks[i]);
        if (!fake_block_gone(op->blocks[i]))
            continue;
        sound = false;
        fake_report(FAKE_CUDA_FREED, "%s: its memory was given back before it ran", op->call);
    }
    if (sound && fake_strikes(FAULT_CUDA_LOST)) {
        fake_gpu_lose(op->gpu);
        sound = false;
    }
    return sound;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void host_call_run(void *arg);

/* The manual says that a lost GPU calls no functions of the host; real ones have been seen to. */
static bool op_runs(struct CUstream_st *s, struct fake_op *op)
{
    op->sound = op_sound(op);
    return op->sound || (op->run == host_call_run && random_next(&s->random) & 1);
}

static void *stream_run(void *arg)
{
    struct CUstream_st *s = arg;
    struct fake_op *op = &s->start;
    kernels_thread_init();
    fake_within();
    bool more = true;
    while (more) {
        op = op_after(s, op);
        delay(s);
        more = op->run != NULL;
        if (more && op_runs(s, op))
            op->run(op->arg);
        op->ended_ns = now_ns();
        atomic_fetch_add_explicit(&s->ended, 1, memory_order_release);
        atomic_store_explicit(&op->done, 1, memory_order_release);
        wake(&op->done);
    }
    return NULL;
}

/* ----------------------------------------------------------------- operations */

/* Between threads of the host, which append to one stream, this gives no order. */
FAKE_UNSEEN static struct fake_op *last_exchange(struct CUstream_st *s, struct fake_op *op)
{
    return atomic_exchange(&s->last, op);
}

FAKE_UNSEEN static struct fake_op *last_of(struct CUstream_st *s)
{
    return atomic_load(&s->last);
}

static void append(struct CUstream_st *s, struct fake_op *op)
{
    struct fake_op *before = last_exchange(s, op);
    atomic_store_explicit(&before->next, op, memory_order_release);
    atomic_fetch_add_explicit(&s->appended, 1, memory_order_relaxed);
    wake(&s->appended);
}

static struct fake_op *op_new(const char *call, struct CUstream_st *s, size_t arg_bytes)
{
    struct fake_op *op = calloc(1, sizeof(*op));
    if (!op || !(op->arg = calloc(1, arg_bytes + 1)))
        abort();
    op->call = call;
    op->stream = s;
    op->gpu = s ? s->gpu : 0;
    return op;
}

static void op_free(struct fake_op *op)
{
    free(op->arg);
    free(op->blocks);
    free(op);
}

static bool stream_valid(const char *call, struct CUstream_st *s)
{
    if (!atomic_load_explicit(&s->destroyed, memory_order_relaxed))
        return true;
    fake_report(FAKE_CUDA_FREED, "%s: the stream was destroyed", call);
    return false;
}

static struct CUstream_st *stream_default(int gpu);

struct fake_op *fake_op_create(const char *call, cudaStream_t stream, size_t arg_bytes)
{
    cudaError_t error = fake_enter();
    int gpu = fake_gpu(call);
    if (!stream && fake_options.legacy)
        stream = stream_default(gpu);
    if (error == cudaSuccess && !stream) {
        fake_report(FAKE_CUDA_DEFAULT, "%s: in the default stream, which orders others", call);
        error = cudaErrorInvalidResourceHandle;
    } else if (error == cudaSuccess && !stream_valid(call, stream)) {
        error = cudaErrorInvalidResourceHandle;
    } else if (error == cudaSuccess && stream->gpu != gpu) {
        fake_report(FAKE_CUDA_OTHER_DEVICE, "%s: the stream is GPU %d's, this thread's GPU is %d",
                    call, stream->gpu, gpu);
        error = cudaErrorInvalidResourceHandle;
    }
    struct fake_op *op = op_new(call, stream, arg_bytes);
    op->error = error;
    return op;
}

struct fake_op *fake_op_default(const char *call, size_t arg_bytes)
{
    cudaError_t error = fake_enter();
    struct fake_op *op =
        op_new(call, error == cudaSuccess ? stream_default(fake_gpu(call)) : NULL, arg_bytes);
    op->error = error;
    return op;
}

cudaError_t fake_op_drop(struct fake_op *op)
{
    cudaError_t error = op->error;
    op_free(op);
    return fake_result(error);
}

/* -------------------------------------------------------------------- streams */

FAKE_UNSEEN static void stream_list(struct CUstream_st *s)
{
    s->before = atomic_load(&streams);
    while (!atomic_compare_exchange_weak(&streams, &s->before, s))
        ;
}

/* The next of a GPU's, or of all when it is negative; NULL: begins, or ends. */
FAKE_UNSEEN static struct CUstream_st *stream_next(struct CUstream_st *s, int gpu)
{
    do {
        s = s ? s->before : atomic_load(&streams);
    } while (s && gpu >= 0 && s->gpu != gpu);
    return s;
}

static struct CUstream_st *stream_create(int gpu, bool blocks)
{
    static atomic_int created;
    struct CUstream_st *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    int number = atomic_fetch_add_explicit(&created, 1, memory_order_relaxed);
    s->gpu = gpu;
    s->blocks = blocks;
    s->random = fake_options.seed ^ (uint64_t)number << 32;
    atomic_init(&s->start.done, 1);
    atomic_init(&s->last, &s->start);
    if (thread_start(&s->thread, stream_run, s) != 0) {
        free(s);
        return NULL;
    }
    char name[16];
    snprintf(name, sizeof(name), "gpu%d stream%d", gpu, number % 1000);
    pthread_setname_np(s->thread, name);
    atomic_fetch_add_explicit(&listed, 1, memory_order_release);
    stream_list(s);
    return s;
}

/* The thread ends when it has run what is there; nobody waits for that. */
static void stream_end(struct CUstream_st *s)
{
    atomic_store_explicit(&s->destroyed, true, memory_order_relaxed);
    append(s, op_new("", s, 0));
}

FAKE_UNSEEN static struct CUstream_st *default_set(int gpu, struct CUstream_st *s)
{
    struct CUstream_st *none = NULL;
    if (s && atomic_compare_exchange_strong(&defaults[gpu], &none, s))
        return s;
    return atomic_load(&defaults[gpu]);
}

static struct CUstream_st *stream_default(int gpu)
{
    struct CUstream_st *is = default_set(gpu, NULL);
    if (is)
        return is;
    struct CUstream_st *mine = stream_create(gpu, false);
    if (!mine)
        abort();
    is = default_set(gpu, mine);
    if (is != mine)
        stream_end(mine);
    return is;
}

static void event_wait_run(void *arg)
{
    op_wait(*(struct fake_op **)arg);
}

/* One more operation of then: it waits for all that stands in first. */
static void append_behind(struct CUstream_st *first, struct CUstream_st *then)
{
    struct fake_op *op = op_new("order", then, sizeof(op));
    *(struct fake_op **)op->arg = last_of(first);
    op->run = event_wait_run;
    append(then, op);
}

static void order_default(struct CUstream_st *to)
{
    struct CUstream_st *is = fake_options.legacy ? default_set(to->gpu, NULL) : NULL;
    if (is && to->blocks)
        append_behind(is, to);
    for (struct CUstream_st *s = stream_next(NULL, to->gpu); s && is == to;
         s = stream_next(s, to->gpu))
        if (s->blocks)
            append_behind(s, to);
}

cudaError_t fake_op_append(struct fake_op *op, void (*run)(void *arg))
{
    if (op->error != cudaSuccess)
        return fake_op_drop(op);
    op->run = run;
    order_default(op->stream);
    append(op->stream, op);
    return cudaSuccess;
}

cudaError_t fake_op_append_wait(struct fake_op *op, void (*run)(void *arg))
{
    if (op->error != cudaSuccess)
        return fake_op_drop(op);
    op->run = run;
    append(op->stream, op);
    op_wait(op);
    return fake_result(fake_gpu_error(op->gpu));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    cudaError_t error = fake_enter();
    if (error != cudaSuccess)
        return fake_result(error);
    (void)priority; /* threads share no GPU */
    if (fake_strikes(FAULT_CUDA_MAKE))
        return fake_result(cudaErrorMemoryAllocation);
    *stream = stream_create(fake_gpu(__func__), !(flags & cudaStreamNonBlocking));
    return fake_result(*stream ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if (fake_refuses())
        return fake_result(cudaErrorNotPermitted);
    if (!stream || !stream_valid(__func__, stream))
        return fake_result(cudaErrorInvalidResourceHandle);
    stream_end(stream);
    return fake_result(fake_gpu_error(stream->gpu));
}

/* The stream a call asks about, and the call's error. NULL: there is none. */
static struct CUstream_st *stream_asked(const char *call, cudaStream_t stream, cudaError_t *error)
{
    *error = fake_enter();
    if (fake_options.gpus == 0 || *error == cudaErrorNotPermitted)
        return NULL;
    int gpu = fake_gpu(call);
    if (!stream)
        return stream_default(gpu); /* it may have had no work */
    if (stream_valid(call, stream))
        return stream;
    *error = cudaErrorInvalidResourceHandle;
    return NULL;
}

/* The last operation may be another thread's, appended just now. */
FAKE_UNSEEN static bool idle_unseen(struct CUstream_st *s)
{
    return atomic_load(&atomic_load(&s->last)->done);
}

static bool stream_idle(struct CUstream_st *s)
{
    if (!idle_unseen(s))
        return false;
    (void)atomic_load_explicit(&s->ended, memory_order_acquire);
    return true;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    cudaError_t error;
    struct CUstream_st *s = stream_asked(__func__, stream, &error);
    if (s && !fake_may_query())
        error = cudaErrorStreamCaptureUnsupported;
    else if (s && error == cudaSuccess)
        error = stream_idle(s) ? fake_gpu_error(s->gpu) : cudaErrorNotReady;
    return fake_result(error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    cudaError_t error;
    struct CUstream_st *s = stream_asked(__func__, stream, &error);
    if (s) {
        op_wait(last_of(s));
        error = error == cudaSuccess ? fake_gpu_error(s->gpu) : error;
    }
    return fake_result(error);
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t error = fake_enter();
    int gpu = fake_gpu(__func__);
    for (struct CUstream_st *s = stream_next(NULL, gpu); s; s = stream_next(s, gpu)) {
        (void)atomic_load_explicit(&listed, memory_order_acquire);
        while (!stream_idle(s))
            usleep(100);
    }
    return fake_result(error == cudaSuccess ? fake_gpu_error(gpu) : error);
}

struct host_call {
    cudaHostFn_t run;
    void *arg;
};

static void host_call_run(void *arg)
{
    struct host_call *h = arg;
    h->run(h->arg);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t run, void *arg)
{
    struct fake_op *op = fake_op_create(__func__, stream, sizeof(struct host_call));
    *(struct host_call *)op->arg = (struct host_call){run, arg};
    return fake_op_append(op, host_call_run);
}

cudaError_t fake_kernel(cudaStream_t stream, const void *arg, size_t bytes, void (*run)(void *))
{
    struct fake_op *op = fake_op_create("kernel", stream, bytes);
    memcpy(op->arg, arg, bytes);
    return fake_op_append(op, run);
}

/* --------------------------------------------------------------------- events */

FAKE_UNSEEN static void event_list(struct CUevent_st *e)
{
    e->before = atomic_load(&events);
    while (!atomic_compare_exchange_weak(&events, &e->before, e))
        ;
}

static bool event_valid(const char *call, cudaEvent_t event)
{
    if (event && !atomic_load_explicit(&event->destroyed, memory_order_relaxed))
        return true;
    fake_report(FAKE_CUDA_FREED, "%s: the event was destroyed", call);
    return false;
}

/* Which record a wait means is for the host's own order to say: none comes of this. */
static struct fake_op *event_recorded(const char *call, cudaEvent_t event)
{
    struct fake_op *op = atomic_load_explicit(&event->recorded, memory_order_relaxed);
    if (!op)
        fake_report(FAKE_CUDA_UNRECORDED, "%s: the event was never recorded", call);
    return op;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    cudaError_t error = fake_enter();
    if (error != cudaSuccess)
        return fake_result(error);
    int gpu = fake_gpu(__func__);
    struct CUevent_st *e = fake_strikes(FAULT_CUDA_MAKE) ? NULL : calloc(1, sizeof(*e));
    if (!e)
        return fake_result(cudaErrorMemoryAllocation);
    e->gpu = gpu;
    e->timed = !(flags & cudaEventDisableTiming);
    e->blocks = flags & cudaEventBlockingSync;
    event_list(e);
    *event = e;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (fake_refuses())
        return fake_result(cudaErrorNotPermitted);
    if (!event_valid(__func__, event))
        return fake_result(cudaErrorInvalidResourceHandle);
    atomic_store_explicit(&event->destroyed, true, memory_order_relaxed);
    return fake_result(fake_gpu_error(event->gpu));
}

static void nothing_run(void *arg)
{
    (void)arg;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    struct fake_op *op = fake_op_create(__func__, stream, 0);
    if (op->error == cudaSuccess && !event_valid(__func__, event))
        op->error = cudaErrorInvalidResourceHandle;
    if (op->error == cudaSuccess && event->gpu != op->gpu) {
        fake_report(FAKE_CUDA_OTHER_DEVICE, "%s: the event is GPU %d's, the stream GPU %d's",
                    __func__, event->gpu, op->gpu);
        op->error = cudaErrorInvalidResourceHandle;
    }
    if (op->error == cudaSuccess)
        atomic_store_explicit(&event->recorded, op, memory_order_relaxed);
    return fake_op_append(op, nothing_run);
}

/* The stream may be another GPU's than the event, and than the thread's. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    cudaError_t error;
    struct CUstream_st *s = stream_asked(__func__, stream, &error);
    (void)flags;
    if (!s || error != cudaSuccess)
        return fake_result(error);
    if (!stream) {
        fake_report(FAKE_CUDA_DEFAULT, "%s: in the default stream, which orders others", __func__);
        return fake_result(cudaErrorInvalidResourceHandle);
    }
    if (!event_valid(__func__, event))
        return fake_result(cudaErrorInvalidResourceHandle);
    struct fake_op *recorded = event_recorded(__func__, event);
    if (!recorded)
        return cudaSuccess;
    struct fake_op *op = op_new(__func__, s, sizeof(recorded));
    *(struct fake_op **)op->arg = recorded;
    return fake_op_append(op, event_wait_run);
}

/* The record an event stands for, and the call's error. NULL: there is none. */
static struct fake_op *event_asked(const char *call, cudaEvent_t event, cudaError_t *error)
{
    *error = fake_enter();
    if (fake_options.gpus == 0 || *error == cudaErrorNotPermitted)
        return NULL;
    (void)fake_gpu(call);
    if (event_valid(call, event))
        return event_recorded(call, event);
    *error = cudaErrorInvalidResourceHandle;
    return NULL;
}

/* What has passed has passed, though the GPU was lost since. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    cudaError_t error;
    struct fake_op *op = event_asked(__func__, event, &error);
    if (op && !fake_may_query())
        error = cudaErrorStreamCaptureUnsupported;
    else if (op && op_done(op) && op->sound && error == fake_gpu_error(event->gpu))
        error = cudaSuccess;
    else if (op && error == cudaSuccess)
        error = op_done(op) ? fake_gpu_error(event->gpu) : cudaErrorNotReady;
    return fake_result(error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t error;
    struct fake_op *op = event_asked(__func__, event, &error);
    if (op && !fake_may_query()) {
        error = cudaErrorStreamCaptureUnsupported;
    } else if (op) {
        if (!event->blocks)
            fake_report(FAKE_CUDA_SPINS, "%s: the thread spins until the event", __func__);
        op_wait(op);
        error = error == cudaSuccess ? fake_gpu_error(event->gpu) : error;
    }
    return fake_result(error);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
    cudaError_t error, second;
    struct fake_op *from = event_asked(__func__, begin, &error);
    struct fake_op *to = event_asked(__func__, end, &second);
    error = error == cudaSuccess ? second : error;
    if (!from || !to || (error == cudaSuccess && (!begin->timed || !end->timed)))
        error = cudaErrorInvalidResourceHandle;
    else if (error == cudaSuccess && (!op_done(from) || !op_done(to)))
        error = cudaErrorNotReady;
    if (error == cudaSuccess)
        *milliseconds = 1e-6f * (float)(to->ended_ns - from->ended_ns);
    return fake_result(error);
}

/* ------------------------------------------------------------------------ end */

static void stream_free(struct CUstream_st *s)
{
    struct fake_op *op = atomic_load(&s->start.next);
    while (op) {
        struct fake_op *next = atomic_load(&op->next);
        op_free(op);
        op = next;
    }
    free(s);
}

/* Operations of one stream wait for those of others, so all end before one is freed. */
void fake_streams_stop(void)
{
    for (int i = 0; i < FAKE_CUDA_GPUS_MAX; i++) {
        struct CUstream_st *s = atomic_exchange(&defaults[i], NULL);
        if (s)
            stream_end(s);
    }
    for (struct CUstream_st *s = stream_next(NULL, -1); s; s = stream_next(s, -1)) {
        if (!atomic_load(&s->destroyed)) {
            fake_report(FAKE_CUDA_LEAK, "a stream of GPU %d is never destroyed", s->gpu);
            stream_end(s);
        }
    }
    for (struct CUstream_st *s = stream_next(NULL, -1); s; s = stream_next(s, -1))
        pthread_join(s->thread, NULL);
    struct CUstream_st *s = atomic_exchange(&streams, NULL);
    while (s) {
        struct CUstream_st *before = s->before;
        stream_free(s);
        s = before;
    }
    struct CUevent_st *e = atomic_exchange(&events, NULL);
    while (e) {
        struct CUevent_st *before = e->before;
        if (!atomic_load(&e->destroyed))
            fake_report(FAKE_CUDA_LEAK, "an event of GPU %d is never destroyed", e->gpu);
        free(e);
        e = before;
    }
}
