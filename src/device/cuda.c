// SPDX-License-Identifier: Apache-2.0
/*
 * An NVIDIA GPU as a device. Everything is asked for and nothing waited for, but
 * where device.h says that a call blocks.
 *
 * Who owns what: each kind of work has a stream, into which one thread appends (the
 * program's: who calls the engine; all others: the engine thread). How the host
 * learns that work is done: an event behind it, for which a second stream waits, the
 * watch; there a function of the host sets done and writes the eventfd. So no
 * stream that works stands still for the host, and no thread polls.
 *
 * What goes wrong: the first error of any call is kept, as a sentence; then nothing
 * more is asked for, what was asked for is never done, and status tells. An error of
 * the GPU itself comes with a call that looks at work it had, so status and copied make
 * one: the watch's function may be called in spite of it, or never.
 *
 * What shutdown does: waits for the streams, also the program's, whose work may use
 * the memory; then gives everything back.
 */
#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cuda/launch.h"
#include "src/clock.h"
#include "src/device/device.h"
#include "src/thread.h"

#define PIN_BYTES     ((int64_t)1 << 30) /* more at once is refused by some drivers */
#define LANDING_BYTES ((int64_t)1 << 20) /* of what is read while the caller waits */
#define REGIONS       4
#define LOOK_SECONDS  1e-3
#define NAPS          100 /* of a millisecond, for what a lost GPU does yet */

struct stream {
    cudaStream_t stream, watch;
    cudaEvent_t event; /* recorded in the one, waited for in the other */
    int event_fd;
    unsigned asked, came; /* functions of the host; came: in the watch's thread */
};

/* Host memory that was registered piece by piece. A copy may not cross their edges. */
struct region {
    char *base;
    int64_t bytes;
};

struct allocation {
    void *memory;
    struct allocation *next;
};

struct device_cuda {
    struct device device;
    int gpu, event_fd;
    char name[64];
    int major, minor; /* compute capability */
    int64_t pin_bytes;
    pthread_mutex_t lock; /* of error */
    struct error error;
    bool failed; /* error is set; read without the lock */
    struct stream streams[DEVICE_STREAMS];
    bool made_compute;  /* its stream is not the program's */
    cudaStream_t calls; /* of calls that block, and of the start */
    cudaEvent_t copied; /* what the engine's thread waits for: parts of a sum, or a piece */
    double looked;      /* when at all streams: the engine thread's */
    char *landing[2];   /* of the calling thread, and of the engine's for memory not registered */
    struct region region[REGIONS];
    int regions;
    struct allocation *allocations;
};

/* ------------------------------------------------------------------- errors */

static const char *remedy(cudaError_t rc)
{
    switch (rc) {
    case cudaErrorInsufficientDriver:
        return "Install an NVIDIA driver of this CUDA version or a later one (nvidia-smi shows "
               "it)";
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
        return "Look whether nvidia-smi lists a GPU, and whether CUDA_VISIBLE_DEVICES names it";
    case cudaErrorMemoryAllocation:
        return "Look for another process that fills its memory (nvidia-smi)";
    case cudaErrorDevicesUnavailable:
        return "Look for another process that has it for itself (nvidia-smi)";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
        return "Run the program under compute-sanitizer: a kernel of its own may be wrong";
    case cudaErrorECCUncorrectable: return "Use another GPU: this one's memory is defective";
    default: return "Look for the driver's messages (dmesg, Xid)";
    }
}

/* Keeps the first failure. */
static void fail(struct device_cuda *d, const char *what, cudaError_t rc)
{
    pthread_mutex_lock(&d->lock);
    if (rc == cudaErrorMemoryAllocation)
        error_set(&d->error, ZERO_ERR_MEMORY,
                  "GPU %d (%s) has too little memory to %s (%s, %d). Use a higher stage, more "
                  "ranks, or offload more.",
                  d->gpu, d->name, what, cudaGetErrorName(rc), (int)rc);
    else
        error_set(&d->error, ZERO_ERR_DEVICE, "GPU %d (%s) failed to %s: %s (%s, %d). %s.", d->gpu,
                  d->name, what, cudaGetErrorString(rc), cudaGetErrorName(rc), (int)rc, remedy(rc));
    pthread_mutex_unlock(&d->lock);
    __atomic_store_n(&d->failed, true, __ATOMIC_RELEASE);
}

static bool failed(const struct device_cuda *d)
{
    return __atomic_load_n(&d->failed, __ATOMIC_ACQUIRE);
}

/* Whether a call of the runtime has succeeded. The program's own look at
 * cudaGetLastError does not find what was told here. */
static bool good(struct device_cuda *d, cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    fail(d, what, rc);
    return false;
}

static int tell(struct device_cuda *d, struct error *error)
{
    if (!failed(d))
        return error->status;
    pthread_mutex_lock(&d->lock);
    error_set(error, d->error.status, "%s", d->error.text);
    pthread_mutex_unlock(&d->lock);
    return error->status;
}

/* Whether a stream has work yet, or has ended it well. The engine thread asks, and may never have
 * chosen its GPU: CUDA would open GPU 0 for it. A GPU whose work has failed may say so there. */
static bool healthy(struct device_cuda *d, cudaStream_t stream)
{
    assert(stream);
    if (failed(d) || !good(d, cudaSetDevice(d->gpu), "run its queued work"))
        return false;
    enum cudaStreamCaptureMode mode = cuda_capture_mode(cudaStreamCaptureModeRelaxed);
    cudaError_t rc = cudaStreamQuery(stream);
    (void)cuda_capture_mode(mode);
    return rc == cudaErrorNotReady || good(d, rc, "run its queued work");
}

/* Asked for each command that is not done yet: what it costs, the program's launches wait for. */
static int cuda_status(struct device *device, struct error *error)
{
    struct device_cuda *d = (struct device_cuda *)device;
    double now = seconds_now();
    if (now - d->looked >= LOOK_SECONDS) {
        d->looked = now;
        for (int i = 0; i < DEVICE_STREAMS && healthy(d, d->streams[i].watch); i++)
            ;
    }
    return tell(d, error);
}

/* Calls of the engine thread begin so. False: nothing can be asked for any more. */
static bool enter(struct device_cuda *d)
{
    return !failed(d) && good(d, cudaSetDevice(d->gpu), "be chosen");
}

/* Calls of the program's threads begin and end so: they keep their GPU. (The engine's is
 * never given another: cudaSetDevice takes memory of the GPU it chooses.) */
static bool visit(struct device_cuda *d, int *before)
{
    *before = d->gpu;
    return !failed(d) && good(d, cudaGetDevice(before), "say which GPU the thread uses") &&
           enter(d);
}

static void leave(const struct device_cuda *d, int before)
{
    if (before != d->gpu)
        (void)cudaSetDevice(before);
}

/* ------------------------------------------------------------------- memory */

static int no_memory(struct device_cuda *d, int64_t bytes, struct error *error)
{
    size_t available = 0, total = 0;
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&available, &total);
    return error_set(error, ZERO_ERR_MEMORY,
                     "%" PRId64 " bytes of GPU memory are needed, %zu of %zu are free on GPU %d "
                     "(%s). Use a higher stage, more ranks, or offload more.",
                     bytes, available, total, d->gpu, d->name);
}

static void *cuda_alloc(struct device *device, int64_t bytes, struct error *error)
{
    struct device_cuda *d = (struct device_cuda *)device;
    struct allocation *a = calloc(1, sizeof(*a));
    int before;
    assert(bytes > 0);
    if (a == NULL) {
        error_set(error, ZERO_ERR_MEMORY,
                  "No memory for an allocation's record." ERROR_FREE_MEMORY);
        return NULL;
    }
    if (visit(d, &before)) {
        cudaError_t rc = cudaMalloc(&a->memory, (size_t)bytes);
        if (rc == cudaErrorMemoryAllocation)
            no_memory(d, bytes, error);
        else if (good(d, rc, "allocate memory") &&
                 good(d, cudaMemsetAsync(a->memory, 0, (size_t)bytes, d->calls), "clear memory"))
            good(d, cudaStreamSynchronize(d->calls), "clear memory");
    }
    leave(d, before);
    a->next = d->allocations;
    d->allocations = a;
    return tell(d, error) ? NULL : a->memory;
}

static void unpin(const struct device_cuda *d, const struct region *r)
{
    for (int64_t at = 0; at < r->bytes; at += d->pin_bytes)
        (void)cudaHostUnregister(r->base + at);
}

static int cuda_pin(struct device *device, void *memory, int64_t bytes, struct error *error)
{
    struct device_cuda *d = (struct device_cuda *)device;
    struct region r = {.base = memory};
    cudaError_t rc = cudaSuccess;
    int before;
    assert(d->regions < REGIONS);
    bool entered = visit(d, &before);
    while (entered && r.bytes < bytes && rc == cudaSuccess) {
        int64_t n = bytes - r.bytes < d->pin_bytes ? bytes - r.bytes : d->pin_bytes;
        rc = cudaHostRegister(r.base + r.bytes, (size_t)n, cudaHostRegisterDefault);
        r.bytes += rc == cudaSuccess ? n : 0;
    }
    if (rc == cudaSuccess) {
        d->region[d->regions++] = r;
        d->device.pinned_bytes += r.bytes;
    } else {
        (void)cudaGetLastError();
        unpin(d, &r);
        error_set(error, ZERO_ERR_UNSUPPORTED,
                  "%" PRId64 " bytes of host memory could not be registered with GPU %d: %s (%s, "
                  "%d). Copies wait for each other and are slower.",
                  bytes, d->gpu, cudaGetErrorString(rc), cudaGetErrorName(rc), (int)rc);
    }
    leave(d, before);
    return error->status;
}

/* Bytes from an address of the host on that one copy may move; 0: it is not registered. */
static int64_t pinned(const struct device_cuda *d, const void *host)
{
    for (int i = 0; i < d->regions; i++) {
        const struct region *r = &d->region[i];
        int64_t at = (const char *)host - r->base;
        if (at < 0 || at >= r->bytes)
            continue;
        int64_t piece = d->pin_bytes - at % d->pin_bytes;
        return piece < r->bytes - at ? piece : r->bytes - at;
    }
    return 0;
}

/* ------------------------------------------------------------------- copies */

/* In the watch's thread of the runtime, which allows no call of it. */
static void arrived(void *arg)
{
    struct device_copy *copy = arg;
    struct stream *s = copy->stream;
    /* Pairs with cuda_copied. The copy is the caller's again from here on. */
    __atomic_store_n(&copy->done, true, __ATOMIC_RELEASE);
    event_write(s->event_fd);
    __atomic_fetch_add(&s->came, 1, __ATOMIC_RELEASE); /* pairs with end_functions */
}

/* Calls arrived when the stream has done what it was given. */
static void watch(struct device_cuda *d, struct stream *s, struct device_copy *copy)
{
    copy->stream = s;
    if (good(d, cudaEventRecord(s->event, s->stream), "record an event") &&
        good(d, cudaStreamWaitEvent(s->watch, s->event, 0), "wait for an event") &&
        good(d, cudaLaunchHostFunc(s->watch, arrived, copy), "call the host"))
        s->asked++;
}

/* Waits for d->copied, asleep, on the engine's thread. */
static bool copied(struct device_cuda *d)
{
    enum cudaStreamCaptureMode mode = cuda_capture_mode(cudaStreamCaptureModeRelaxed);
    cudaError_t rc = cudaEventSynchronize(d->copied);
    (void)cuda_capture_mode(mode);
    return good(d, rc, "copy");
}

/* A piece of a copy between the memories by way of registered memory, done on return. */
static bool move_slowly(struct device_cuda *d, cudaStream_t stream, char *to, const char *from,
                        int64_t bytes, enum cudaMemcpyKind kind)
{
    bool in = kind == cudaMemcpyHostToDevice;
    char *landing = d->landing[1];
    if (in)
        memcpy(landing, from, (size_t)bytes);
    if (!good(d,
              cudaMemcpyAsync(in ? to : landing, in ? landing : from, (size_t)bytes, kind, stream),
              "copy") ||
        !good(d, cudaEventRecord(d->copied, stream), "record an event") || !copied(d))
        return false;
    if (!in)
        memcpy(to, landing, (size_t)bytes);
    return true;
}

/* Appends a copy between the memories, in pieces that were registered at once. */
static bool move(struct device_cuda *d, cudaStream_t stream, void *to, const void *from,
                 int64_t bytes, enum cudaMemcpyKind kind)
{
    for (int64_t at = 0, n; at < bytes; at += n) {
        char *here = (char *)to + at;
        const char *there = (const char *)from + at;
        int64_t most = pinned(d, kind == cudaMemcpyHostToDevice ? there : here);
        n = most > 0 ? most : LANDING_BYTES;
        n = n < bytes - at ? n : bytes - at;
        if (most > 0 ? !good(d, cudaMemcpyAsync(here, there, (size_t)n, kind, stream), "copy")
                     : !move_slowly(d, stream, here, there, n, kind))
            return false;
    }
    return true;
}

static void cuda_copy(struct device *device, enum device_stream which, struct device_copy *copy)
{
    struct device_cuda *d = (struct device_cuda *)device;
    struct stream *s = &d->streams[which];
    size_t bytes = (size_t)copy->bytes;
    assert(which <= DEVICE_SUMS && copy->bytes >= 0);
    copy->done = false;
    if (enter(d)) {
        bool asked = which == DEVICE_SUMS
                         ? good(d,
                                cudaMemcpyAsync(copy->to, copy->from, bytes,
                                                cudaMemcpyDeviceToDevice, s->stream),
                                "copy")
                         : move(d, s->stream, copy->to, copy->from, copy->bytes,
                                which == DEVICE_TO_DEVICE_MEMORY ? cudaMemcpyHostToDevice
                                                                 : cudaMemcpyDeviceToHost);
        if (asked)
            watch(d, s, copy);
    }
}

static void cuda_mark(struct device *device, enum device_stream which, struct device_copy *mark)
{
    struct device_cuda *d = (struct device_cuda *)device;
    int before = d->gpu;
    mark->done = false;
    if (which == DEVICE_COMPUTE ? visit(d, &before) : enter(d))
        watch(d, &d->streams[which], mark);
    leave(d, before);
}

static bool cuda_copied(struct device *device, const struct device_copy *copy)
{
    if (!__atomic_load_n(&copy->done, __ATOMIC_ACQUIRE))
        return false;
    const struct stream *s = copy->stream;
    return !s || healthy((struct device_cuda *)device, s->watch);
}

static int cuda_read(struct device *device, void *to, const void *from, int64_t bytes,
                     struct error *error)
{
    struct device_cuda *d = (struct device_cuda *)device;
    int before;
    bool more = visit(d, &before);
    for (int64_t at = 0, n; more && at < bytes; at += n) {
        n = bytes - at < LANDING_BYTES ? bytes - at : LANDING_BYTES;
        more = good(d,
                    cudaMemcpyAsync(d->landing[0], (const char *)from + at, (size_t)n,
                                    cudaMemcpyDeviceToHost, d->calls),
                    "copy") &&
               good(d, cudaStreamSynchronize(d->calls), "copy");
        if (more)
            memcpy((char *)to + at, d->landing[0], (size_t)n);
    }
    leave(d, before);
    return tell(d, error);
}

/* --------------------------------------------------------------- arithmetic */

static void cuda_clear(struct device *device, enum device_stream which, void *memory, int64_t bytes)
{
    struct device_cuda *d = (struct device_cuda *)device;
    int before = d->gpu;
    if (which == DEVICE_COMPUTE ? visit(d, &before) : enter(d))
        good(d, cudaMemsetAsync(memory, 0, (size_t)bytes, d->streams[which].stream),
             "clear memory");
    leave(d, before);
}

/* Parts that other ranks sent, to the device: read when this returns. */
static bool upload(struct device_cuda *d, cudaStream_t stream, const struct device_sum *s,
                   int64_t bytes)
{
    char *to = s->scratch;
    for (int r = 0; r < s->ranks; r++) {
        if (r == s->own)
            continue;
        if (!move(d, stream, to, s->parts[r], bytes, cudaMemcpyHostToDevice))
            return false;
        s->parts[r] = to;
        to += (bytes + 255) / 256 * 256;
    }
    return good(d, cudaEventRecord(d->copied, stream), "record an event");
}

/* Parts [first, first + ranks) into acc. */
static cudaError_t sum_some(cudaStream_t stream, const struct device_sum *s, int first, int ranks,
                            float *acc, double *squares)
{
    const void **parts = s->parts + first;
    bool fresh = s->fresh && first == 0;
    if (s->dtype == ZERO_FP32)
        return launch_sum_f32(stream, s->count, ranks, (const float *const *)parts, fresh, acc,
                              squares);
    return (s->dtype == ZERO_BF16 ? launch_sum_bf16 : launch_sum_fp16)(
        stream, s->count, ranks, (const uint16_t *const *)parts, fresh, acc, squares);
}

static_assert(DEVICE_PARTS_MOST == LAUNCH_PARTS_MAX, "plans know how many");

static void sum_all(struct device_cuda *d, cudaStream_t stream, const struct device_sum *s)
{
    char *room = d->device.room;
    double *squares = (double *)(void *)(room + DEVICE_NORM_BYTES);
    char *rounded = room + DEVICE_NORM_BYTES + device_squares_bytes(s->count);
    float *acc = s->narrow ? (float *)(void *)rounded : s->sum;
    uint16_t *half = s->narrow ? s->sum : (uint16_t *)(void *)rounded;
    cudaError_t rc = cudaSuccess;
    if (s->ranks > LAUNCH_PARTS_MAX && s->parts[s->own] == acc) { /* read when acc was written */
        rc = cudaMemcpyAsync(rounded, acc, (size_t)s->count * sizeof(float),
                             cudaMemcpyDeviceToDevice, stream);
        s->parts[s->own] = rounded;
    }
    for (int r = 0; r < s->ranks && rc == cudaSuccess; r += LAUNCH_PARTS_MAX) {
        int n = s->ranks - r < LAUNCH_PARTS_MAX ? s->ranks - r : LAUNCH_PARTS_MAX;
        rc = sum_some(stream, s, r, n, acc, s->last && r + n == s->ranks ? squares : NULL);
    }
    if (s->last && rc == cudaSuccess)
        rc = launch_wide_add(stream, s->count / KERNELS_BLOCK, squares, (struct wide *)room);
    if (s->last && s->round && rc == cudaSuccess)
        rc = launch_to_bf16(stream, s->count, acc, half);
    if (s->last && s->round && !s->narrow && rc == cudaSuccess)
        rc = launch_from_bf16(stream, s->count, half, acc);
    good(d, rc, "sum gradients");
}

static void cuda_sum(struct device *device, const struct device_sum *s)
{
    struct device_cuda *d = (struct device_cuda *)device;
    cudaStream_t stream = d->streams[DEVICE_SUMS].stream;
    assert(!s->narrow || (s->fresh && s->last && s->round));
    if (enter(d) &&
        (!s->scratch || upload(d, stream, s, s->count * (s->dtype == ZERO_FP32 ? 4 : 2)))) {
        sum_all(d, stream, s);
        if (s->scratch)
            (void)copied(d);
    }
}

static int cuda_norm(struct device *device, struct wide *norm, struct error *error)
{
    struct device_cuda *d = (struct device_cuda *)device;
    int before;
    if (visit(d, &before) &&
        good(d,
             cudaMemcpyAsync(d->landing[0], d->device.room, sizeof(*norm), cudaMemcpyDeviceToHost,
                             d->calls),
             "copy") &&
        good(d, cudaMemsetAsync(d->device.room, 0, sizeof(*norm), d->calls), "clear memory") &&
        good(d, cudaStreamSynchronize(d->calls), "copy"))
        memcpy(norm, d->landing[0], sizeof(*norm));
    leave(d, before);
    return tell(d, error);
}

static cudaError_t step(cudaStream_t stream, const struct adam_stretch *s)
{
    const struct adam *k = &s->constants;
    if (s->remainder)
        return launch_adam_split(stream, s->count, k, s->grads, s->param, s->remainder, s->m, s->v);
    uint16_t *bf16 = s->dtype == ZERO_BF16 ? s->param : NULL;
    cudaError_t rc = launch_adam(stream, s->count, k, s->grads, s->master, s->m, s->v, bf16);
    if (rc != cudaSuccess || bf16 || !s->param)
        return rc;
    return s->dtype == ZERO_FP16 ? launch_to_fp16(stream, s->count, s->master, s->param)
                                 : cudaMemcpyAsync(s->param, s->master, (size_t)s->count * 4,
                                                   cudaMemcpyDeviceToDevice, stream);
}

static void cuda_adam(struct device *device, const struct adam_stretch *stretch)
{
    struct device_cuda *d = (struct device_cuda *)device;
    if (enter(d))
        good(d, step(d->streams[DEVICE_UPDATE].stream, stretch), "update parameters");
}

/* ---------------------------------------------------------- create, destroy */

/* A GPU that has failed may call functions of the host all the same, or never: they get a
 * moment, while what they write is there. */
static void end_functions(const struct device_cuda *d)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    unsigned missing = 1;
    for (int nth = 0; nth < NAPS && missing; nth++) {
        missing = 0;
        for (int i = 0; i < DEVICE_STREAMS; i++)
            missing += d->streams[i].asked - __atomic_load_n(&d->streams[i].came, __ATOMIC_ACQUIRE);
        if (missing)
            nanosleep(&nap, NULL);
    }
}

/* All that was asked for. A failed wait says nothing of the work: then for all of the GPU's. */
static void end_work(struct device_cuda *d)
{
    cudaError_t rc = cudaSuccess;
    for (int i = 0; i <= 2 * DEVICE_STREAMS; i++) {
        const struct stream *s = &d->streams[i / 2 % DEVICE_STREAMS];
        cudaStream_t stream = i == 2 * DEVICE_STREAMS ? d->calls : i % 2 ? s->watch : s->stream;
        if (stream && rc == cudaSuccess)
            rc = cudaStreamSynchronize(stream);
    }
    if (rc == cudaSuccess)
        return;
    (void)cudaDeviceSynchronize();
    end_functions(d);
}

static void free_all(struct device_cuda *d)
{
    for (int i = 0; i < d->regions; i++)
        unpin(d, &d->region[i]);
    for (struct allocation *a; (a = d->allocations) != NULL;) {
        d->allocations = a->next;
        if (a->memory)
            (void)cudaFree(a->memory);
        free(a);
    }
    for (int i = 0; i < 2; i++)
        if (d->landing[i])
            (void)cudaFreeHost(d->landing[i]);
}

static void cuda_destroy(struct device *device)
{
    struct device_cuda *d = (struct device_cuda *)device;
    if (d == NULL)
        return;
    int before = d->gpu;
    (void)cudaGetDevice(&before);
    (void)cudaSetDevice(d->gpu);
    end_work(d);
    for (int i = 0; i < DEVICE_STREAMS; i++) {
        const struct stream *s = &d->streams[i];
        if (s->event)
            (void)cudaEventDestroy(s->event);
        if (s->watch)
            (void)cudaStreamDestroy(s->watch);
        if (s->stream && (i != DEVICE_COMPUTE || d->made_compute))
            (void)cudaStreamDestroy(s->stream);
    }
    if (d->copied)
        (void)cudaEventDestroy(d->copied);
    if (d->calls)
        (void)cudaStreamDestroy(d->calls);
    free_all(d);
    leave(d, before);
    (void)cudaGetLastError();
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static const struct device_ops cuda_ops = {
    .alloc = cuda_alloc,
    .pin = cuda_pin,
    .copy = cuda_copy,
    .mark = cuda_mark,
    .copied = cuda_copied,
    .status = cuda_status,
    .clear = cuda_clear,
    .sum = cuda_sum,
    .norm = cuda_norm,
    .adam = cuda_adam,
    .read = cuda_read,
    .destroy = cuda_destroy,
};

static int no_gpu(cudaError_t rc, struct error *error)
{
    int driver = 0, runtime = 0;
    char found[64] = "There is no driver";
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaGetLastError();
    if (driver)
        snprintf(found, sizeof(found), "The driver is for CUDA %d.%d", driver / 1000,
                 driver % 1000 / 10);
    return error_set(error, ZERO_ERR_UNSUPPORTED,
                     "No GPU can be used: %s (%s, %d). %s, this build is for CUDA %d.%d. %s.",
                     cudaGetErrorString(rc), cudaGetErrorName(rc), (int)rc, found, runtime / 1000,
                     runtime % 1000 / 10, remedy(rc));
}

static cudaError_t count_gpus(int *count)
{
    *count = 0;
    cudaError_t rc = cudaGetDeviceCount(count);
    return rc == cudaSuccess && *count == 0 ? cudaErrorNoDevice : rc;
}

/* The thread's GPU, with a driver that can use it. */
static int find_gpu(struct device_cuda *d, struct error *error)
{
    struct cudaDeviceProp properties;
    int count;
    cudaError_t rc = count_gpus(&count);
    if (rc == cudaSuccess)
        rc = cudaGetDevice(&d->gpu);
    if (rc == cudaSuccess)
        rc = cudaGetDeviceProperties(&properties, d->gpu);
    if (rc == cudaSuccess) {
        snprintf(d->name, sizeof(d->name), "%.63s", properties.name);
        d->major = properties.major;
        d->minor = properties.minor;
        return ZERO_OK;
    }
    return no_gpu(rc, error);
}

int device_cuda_gpu(int index, struct zero_gpu *gpu, struct error *error)
{
    struct cudaDeviceProp properties;
    struct zero_gpu found = {0};
    size_t total = 0, available = 0;
    cudaError_t rc = count_gpus(&found.count);
    if (rc == cudaSuccess && index < 0)
        rc = cudaGetDevice(&found.index);
    else if (rc == cudaSuccess)
        found.index = index % found.count;
    if (rc == cudaSuccess)
        rc = cudaSetDevice(found.index);
    if (rc == cudaSuccess)
        rc = cudaGetDeviceProperties(&properties, found.index);
    if (rc == cudaSuccess)
        rc = cudaMemGetInfo(&available, &total);
    if (rc != cudaSuccess)
        return no_gpu(rc, error);
    memcpy(found.uuid, &properties.uuid, sizeof(found.uuid));
    snprintf(found.name, sizeof(found.name), "%.63s", properties.name);
    found.memory = (int64_t)total;
    found.memory_free = (int64_t)available;
    *gpu = found;
    return ZERO_OK;
}

static bool make_stream(struct device_cuda *d, struct stream *s, unsigned flags, int priority)
{
    s->event_fd = d->event_fd;
    return (s->stream ||
            good(d, cudaStreamCreateWithPriority(&s->stream, flags, priority), "make a stream")) &&
           good(d, cudaStreamCreateWithFlags(&s->watch, cudaStreamNonBlocking), "make a stream") &&
           good(d, cudaEventCreateWithFlags(&s->event, cudaEventDisableTiming), "make an event");
}

/* No memory of the host has the code of a GPU's. Nobody else has the device yet. */
static bool make_landing(struct device_cuda *d, char **landing)
{
    cudaError_t rc = cudaHostAlloc((void **)landing, LANDING_BYTES, cudaHostAllocDefault);
    if (rc != cudaErrorMemoryAllocation)
        return good(d, rc, "allocate registered memory");
    (void)cudaGetLastError();
    error_set(&d->error, ZERO_ERR_MEMORY,
              "%" PRId64 " bytes of host memory that the driver registers with GPU %d (%s) were "
              "refused (%s, %d). Leave more of it free, or raise the limit (ulimit -l).",
              LANDING_BYTES, d->gpu, d->name, cudaGetErrorName(rc), (int)rc);
    d->failed = true;
    return false;
}

/* What the program waits for goes before what it computes meanwhile. A program that computes in
 * CUDA's default stream all the same is in order with a stream that is made with no flag. */
static bool make_all(struct device_cuda *d, void *compute)
{
    d->streams[DEVICE_COMPUTE].stream = compute;
    bool ok = good(d, cudaSetDevice(d->gpu), "be chosen") &&
              make_stream(d, &d->streams[DEVICE_COMPUTE], cudaStreamDefault, 0);
    for (int i = 0; ok && i < DEVICE_STREAMS; i++)
        ok = i == DEVICE_COMPUTE ||
             make_stream(d, &d->streams[i], cudaStreamNonBlocking, CUDA_PRIORITY_FIRST);
    for (int i = 0; ok && i < 2; i++)
        ok = make_landing(d, &d->landing[i]);
    return ok &&
           good(d, cudaStreamCreateWithFlags(&d->calls, cudaStreamNonBlocking), "make a stream") &&
           good(
               d,
               cudaEventCreateWithFlags(&d->copied, cudaEventDisableTiming | cudaEventBlockingSync),
               "make an event");
}

/* Neither machine code for this GPU, nor PTX that its driver can compile. */
static bool lacks_kernels(cudaError_t rc)
{
    return rc == cudaErrorNoKernelImageForDevice || rc == cudaErrorUnsupportedPtxVersion ||
           rc == cudaErrorInvalidPtx || rc == cudaErrorJitCompilerNotFound;
}

/* A kernel runs, so that a build that has none for this GPU is known at once; then all are
 * there. */
static int try_kernel(struct device_cuda *d, struct error *error)
{
    char *landing = d->landing[0];
    memset(landing, 0, 8);
    cudaError_t rc = launch_from_bf16(d->calls, 1, (const uint16_t *)(void *)landing,
                                      (float *)(void *)(landing + 4));
    if (lacks_kernels(rc)) {
        (void)cudaGetLastError();
        return error_set(error, ZERO_ERR_UNSUPPORTED,
                         "This build has no kernels for GPU %d (%s), whose compute capability is "
                         "%d.%d. Build it with make CUDA_ARCH=%d%d.",
                         d->gpu, d->name, d->major, d->minor, d->major, d->minor);
    }
    if (good(d, rc, "run a kernel") && good(d, cudaStreamSynchronize(d->calls), "run a kernel"))
        good(d, launch_load(), "load its kernels");
    return tell(d, error);
}

int device_cuda_create(struct device **device, const struct device_options *options,
                       struct error *error)
{
    *device = NULL;
    struct device_cuda *d = calloc(1, sizeof(*d));
    if (d == NULL)
        return error_set(error, ZERO_ERR_MEMORY, "No memory for a device." ERROR_FREE_MEMORY);
    if (find_gpu(d, error) != ZERO_OK) {
        free(d);
        return error->status;
    }
    pthread_mutex_init(&d->lock, NULL);
    d->device.ops = &cuda_ops;
    d->device.name = d->name;
    d->event_fd = options->event_fd;
    d->pin_bytes = options->pin_bytes ? options->pin_bytes : PIN_BYTES;
    d->made_compute = options->stream == NULL;
    if (!make_all(d, options->stream) ? tell(d, error) : try_kernel(d, error)) {
        cuda_destroy(&d->device);
        return error->status;
    }
    d->device.stream = d->streams[DEVICE_COMPUTE].stream;
    d->device.sums = d->streams[DEVICE_SUMS].stream;
    *device = &d->device;
    return ZERO_OK;
}
