// SPDX-License-Identifier: Apache-2.0
/*
 * A GPU's life with a model: the memory, clocks, and what it could do at best. One thread, which
 * has opened it, makes all calls. The engine is not known here: the program hands over its stream.
 */
#include "examples/gpt2/cuda/gpu.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt2/cuda/room.h"
#include "examples/gpt2/model.h"

static struct gpu_cuda *cuda_of(const struct gpu *gpu)
{
    return (struct gpu_cuda *)gpu;
}

/* ------------------------------------------------------------------- errors */

static void keep(struct gpu_cuda *g, const char *sentence)
{
    if (!*g->failure)
        snprintf(g->failure, sizeof(g->failure), "%s", sentence);
}

#define NEED_LESS "Give a smaller --batch, --recompute, a higher --stage, or offload more."

static bool good_or(struct gpu_cuda *g, cudaError_t rc, const char *what, const char *memory)
{
    char text[sizeof(g->failure)];
    if (rc == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    snprintf(text, sizeof(text), "The model's GPU (%s) failed to %s: %s (%s, %d). %s", g->gpu.name,
             what, cudaGetErrorString(rc), cudaGetErrorName(rc), (int)rc,
             rc == cudaErrorMemoryAllocation ? memory
                                             : "Look for the driver's messages (dmesg, Xid).");
    keep(g, text);
    return false;
}

/* Kernels take memory of the GPU, too, when they are first used. */
bool gpu_good(struct gpu_cuda *g, cudaError_t rc, const char *what)
{
    return good_or(g, rc, what, NEED_LESS);
}

/* What takes memory of the host. */
static bool host_good(struct gpu_cuda *g, cudaError_t rc, const char *what)
{
    return good_or(g, rc, what,
                   "Free memory of the host, or raise the limit on locked memory (ulimit -l).");
}

void gpu_product_failed(struct gpu_cuda *g, const struct product *p, cublasStatus_t status)
{
    static const char *const names[] = {"fp32", "bf16", "fp16"};
    char text[sizeof(g->failure)];
    bool memory = status == CUBLAS_STATUS_ALLOC_FAILED;
    cudaError_t rc = cudaStreamQuery(g->stream);
    if (rc != cudaErrorNotReady && !gpu_good(g, rc, "multiply"))
        return; /* it is not the product's fault */
    snprintf(text, sizeof(text),
             "cuBLASLt on %s did not multiply (%d, %d)%s by (%d, %d)%s, %s to %s: %s (%d). %s%s%s",
             g->gpu.name, p->ta ? p->k : p->m, p->ta ? p->m : p->k, p->ta ? "^T" : "",
             p->tb ? p->n : p->k, p->tb ? p->k : p->n, p->tb ? "^T" : "", names[p->dtype],
             names[p->type], cublasLtGetStatusName(status), (int)status,
             memory ? NEED_LESS : "Give another --dtype, or use another version than ",
             memory ? "" : g->gpu.products, memory ? "" : ".");
    keep(g, text);
}

/* -------------------------------------------------------------- open, close */

ZERO_API extern const struct gpu_plugin gpt2_gpu_plugin;

static struct gpu *cuda_open(const struct zero_gpu *found, char *error, size_t error_size)
{
    struct gpu_cuda *g = calloc(1, sizeof(*g));
    if (!g) {
        snprintf(error, error_size, "No memory is left for a GPU's record.");
        return NULL;
    }
    g->gpu = (struct gpu){.plugin = &gpt2_gpu_plugin, .is = *found};
    snprintf(g->gpu.name, sizeof(g->gpu.name), "GPU %d of %d, %s", found->index, found->count,
             found->name);
    if (!gpu_good(g, cudaSetDevice(found->index), "be chosen") ||
        !gpu_good(g, cudaFree(NULL), "be chosen")) { /* and set up */
        snprintf(error, error_size, "%s", g->failure);
        free(g);
        return NULL;
    }
    size_t version = cublasLtGetVersion();
    snprintf(g->gpu.products, sizeof(g->gpu.products), "cuBLASLt %zu.%zu.%zu", version / 10000,
             version % 10000 / 100, version % 100);
    return &g->gpu;
}

/* ------------------------------------------------------------- start, stop */

static void turns_free(struct gpu_cuda *g)
{
    for (int i = 0; i < GPU_TURNS; i++) {
        struct gpu_turn *turn = &g->turns[i];
        for (int mark = 0; turn->events && mark < g->marks; mark++)
            if (turn->events[mark])
                (void)cudaEventDestroy(turn->events[mark]);
        free(turn->events);
        free(turn->what);
        *turn = (struct gpu_turn){0};
    }
    g->turn = 0;
}

static void cuda_stop(struct gpu *gpu)
{
    struct gpu_cuda *g = cuda_of(gpu);
    if (g->stream)
        (void)cudaStreamSynchronize(g->stream);
    turns_free(g);
    if (g->loss)
        (void)cudaEventDestroy(g->loss);
    g->loss = NULL;
    matmul_plans_destroy(g->plans);
    g->plans = NULL;
    g->attention_flops = 0;
    (void)cudaFree(g->memory);
    (void)cudaFreeHost(g->pinned);
    g->memory = g->pinned = NULL;
    g->stream = NULL; /* the engine's, which ends next */
    (void)cudaGetLastError();
}

static void cuda_close(struct gpu *gpu)
{
    if (!gpu)
        return;
    cuda_stop(gpu);
    free(gpu);
}

static bool make_event(struct gpu_cuda *g, cudaEvent_t *event, unsigned flags)
{
    return gpu_good(g, cudaEventCreateWithFlags(event, flags), "make an event");
}

/* Who waits for the GPU leaves its CPU to the engine's threads. */
static bool make_events(struct gpu_cuda *g)
{
    bool ok = make_event(g, &g->loss, cudaEventDisableTiming | cudaEventBlockingSync);
    for (int i = 0; ok && i < GPU_TURNS; i++) {
        struct gpu_turn *turn = &g->turns[i];
        turn->events = calloc((size_t)g->marks, sizeof(*turn->events));
        turn->what = calloc((size_t)g->marks, sizeof(*turn->what));
        ok = host_good(g, turn->events && turn->what ? cudaSuccess : cudaErrorMemoryAllocation,
                       "give events");
        for (int mark = 0; ok && mark < g->marks; mark++)
            ok = make_event(g, &turn->events[mark], cudaEventBlockingSync);
    }
    return ok;
}

static int no_memory(struct gpu_cuda *g, int64_t bytes, char *error, size_t error_size)
{
    size_t available = 0, total = 0;
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&available, &total);
    snprintf(error, error_size,
             "The model's activations need %lld bytes of GPU memory, and %zu of %zu are free on "
             "%s. " NEED_LESS,
             (long long)bytes, available, total, g->gpu.name);
    return -1;
}

static int cuda_start(struct gpu *gpu, const struct gpu_start *start, void **memory, void **pinned,
                      char *error, size_t error_size)
{
    struct gpu_cuda *g = cuda_of(gpu);
    cublasStatus_t status;
    g->stream = start->stream;
    g->bytes = start->bytes;
    g->marks = start->marks;
    cudaError_t rc = cudaMalloc(&g->memory, (size_t)start->bytes);
    if (rc == cudaErrorMemoryAllocation)
        return no_memory(g, start->bytes, error, error_size);
    if (gpu_good(g, rc, "allocate memory") &&
        host_good(g, cudaHostAlloc(&g->pinned, (size_t)start->pinned_bytes, cudaHostAllocDefault),
                  "allocate registered memory") &&
        make_events(g)) {
        g->plans = matmul_plans_create(start->tf32, ROOM_WORKSPACE, &status);
        if (!g->plans)
            snprintf(g->failure, sizeof(g->failure),
                     "%s cannot be used on %s: %s (%d). Install the driver and cuBLAS of the CUDA "
                     "that this build is of.",
                     g->gpu.products, g->gpu.name, cublasLtGetStatusName(status), (int)status);
    }
    *memory = g->memory;
    *pinned = g->pinned;
    if (!*g->failure)
        return 0;
    snprintf(error, error_size, "%s", g->failure);
    return -1;
}

/* ------------------------------------------------------------------- clocks */

static void cuda_mark(struct gpu *gpu, enum gpu_mark mark)
{
    struct gpu_cuda *g = cuda_of(gpu);
    struct gpu_turn *turn = &g->turns[g->turn];
    if (mark == GPU_FORWARD)
        turn->count = 0;
    else if (turn->count == 0)
        return;
    assert(turn->count < g->marks);
    if (*g->failure ||
        !gpu_good(g, cudaEventRecord(turn->events[turn->count], g->stream), "record an event"))
        return;
    turn->what[turn->count++] = mark;
    if (mark == GPU_END)
        g->turn = (g->turn + 1) % GPU_TURNS;
}

static double between(struct gpu_cuda *g, cudaEvent_t begin, cudaEvent_t end)
{
    float milliseconds = 0;
    gpu_good(g, cudaEventElapsedTime(&milliseconds, begin, end), "read its clock");
    return 1e-3 * (double)milliseconds;
}

/* Each mark ends what the one before it of its sort began. */
static void turn_read(struct gpu_cuda *g, struct gpu_turn *turn, struct gpt_times *times)
{
    cudaEvent_t pass = NULL, work = NULL;
    for (int i = 0; i < turn->count; i++) {
        cudaEvent_t now = turn->events[i];
        switch (turn->what[i]) {
        case GPU_FORWARD: pass = now; break;
        case GPU_BACKWARD: times->forward += between(g, pass, now), pass = now; break;
        case GPU_END: times->backward += between(g, pass, now); break;
        case GPU_WORKS: work = now; break;
        case GPU_RESTS: times->busy += between(g, work, now); break;
        }
    }
    turn->count = 0;
}

static void cuda_seconds(struct gpu *gpu, bool wait, struct gpt_times *times)
{
    struct gpu_cuda *g = cuda_of(gpu);
    for (int i = 0; i < GPU_TURNS; i++) {
        struct gpu_turn *turn = &g->turns[i];
        int last = turn->count - 1;
        if (last < 0 || turn->what[last] != GPU_END || *g->failure)
            continue;
        cudaEvent_t end = turn->events[last];
        cudaError_t rc = wait ? cudaEventSynchronize(end) : cudaEventQuery(end);
        if (rc != cudaErrorNotReady && gpu_good(g, rc, "end a step"))
            turn_read(g, turn, times);
    }
}

/* ------------------------------------------------------ what it is, could do */

static double cuda_flops(const struct gpu *gpu)
{
    const struct gpu_cuda *g = cuda_of(gpu);
    return matmul_plans_flops(g->plans) + g->attention_flops;
}

#define MEASURED_MS 20.0f /* is enough for the clock */
#define TIMES_MAX   64

/* Seconds of one of a number of equal things, of which work appends one; 0: something failed. */
static double seconds_of(struct gpu_cuda *g, bool (*work)(struct gpu_cuda *g, void *arg), void *arg)
{
    cudaEvent_t begin = g->turns[0].events[0], end = g->turns[0].events[1];
    double best = 0;
    for (int times = 1; times <= TIMES_MAX; times *= 2) {
        float ms = 0;
        bool ok = work(g, arg) && gpu_good(g, cudaEventRecord(begin, g->stream), "record an event");
        for (int i = 0; ok && i < times; i++)
            ok = work(g, arg);
        if (!ok || !gpu_good(g, cudaEventRecord(end, g->stream), "record an event") ||
            !gpu_good(g, cudaEventSynchronize(end), "be measured") ||
            !gpu_good(g, cudaEventElapsedTime(&ms, begin, end), "read its clock"))
            return 0;
        best = 1e-3 * (double)ms / times;
        if (ms >= MEASURED_MS)
            break;
    }
    return best;
}

/* Behind what only a measurement has asked for: a GPU that still works is none the worse. */
static void forget(struct gpu_cuda *g, bool failed)
{
    (void)cudaGetLastError();
    if (!failed && cudaStreamSynchronize(g->stream) == cudaSuccess)
        *g->failure = '\0';
}

static bool multiply_once(struct gpu_cuda *g, void *arg)
{
    const struct product *p = arg;
    cublasStatus_t status = cuda_matmul(g->plans, g->stream, g->memory, p);
    if (status != CUBLAS_STATUS_SUCCESS)
        gpu_product_failed(g, p, status);
    return status == CUBLAS_STATUS_SUCCESS;
}

/* The model's memory holds the workspace, and behind it three square matrices of whatever is
 * there: zeros would take less power, and so less time than any model's numbers. */
static double cuda_product_rate(struct gpu *gpu, enum zero_dtype dtype)
{
    struct gpu_cuda *g = cuda_of(gpu);
    bool failed = *g->failure;
    double best = 0, ms = failed ? MEASURED_MS : 0;
    char *room = (char *)g->memory + ROOM_WORKSPACE;
    int64_t bytes = g->bytes - ROOM_WORKSPACE;
    for (int n = 128; n <= 8192 && 3 * operand_bytes(dtype) * n * n <= bytes && ms < 5; n *= 2) {
        int64_t one = operand_bytes(dtype) * n * n;
        struct product p = {.dtype = dtype,
                            .m = n,
                            .n = n,
                            .k = n,
                            .a = room,
                            .lda = n,
                            .b = room + one,
                            .ldb = n,
                            .type = dtype,
                            .c = room + 2 * one,
                            .ldc = n};
        double seconds = seconds_of(g, multiply_once, &p);
        ms = 1e3 * seconds;
        if (seconds > 0 && 2.0 * n * n * n / seconds > best)
            best = 2.0 * n * n * n / seconds;
    }
    forget(g, failed);
    return best;
}

static bool copy_once(struct gpu_cuda *g, void *arg)
{
    const int64_t *bytes = arg;
    return gpu_good(g,
                    cudaMemcpyAsync((char *)g->memory + *bytes, g->memory, (size_t)*bytes,
                                    cudaMemcpyDeviceToDevice, g->stream),
                    "copy");
}

#define COPY_LEAST ((int64_t)64 << 20) /* more than what fits the caches */
#define COPY_MOST  ((int64_t)512 << 20)

static double cuda_copy_rate(struct gpu *gpu)
{
    struct gpu_cuda *g = cuda_of(gpu);
    int64_t half = g->bytes / 2 / 256 * 256;
    half = half < COPY_MOST ? half : COPY_MOST;
    if (*g->failure || half < COPY_LEAST)
        return 0;
    double seconds = seconds_of(g, copy_once, &half);
    forget(g, false);
    return seconds > 0 ? 2.0 * (double)half / seconds : 0;
}

static void cuda_algorithms(const struct gpu *gpu, FILE *out)
{
    matmul_plans_print(cuda_of(gpu)->plans, out);
}

const struct gpu_plugin gpt2_gpu_plugin = {
    .version = SOURCES,
    .table = &layers_cuda,
    .open = cuda_open,
    .close = cuda_close,
    .start = cuda_start,
    .stop = cuda_stop,
    .mark = cuda_mark,
    .seconds = cuda_seconds,
    .flops = cuda_flops,
    .product_rate = cuda_product_rate,
    .copy_rate = cuda_copy_rate,
    .algorithms = cuda_algorithms,
};
