// SPDX-License-Identifier: Apache-2.0
/* launch.h on fake GPUs: the bodies of kernels/cpu/scalar.c, which define the bits,
 * in the streams' threads. */
#include <stdlib.h>

#include "kernels/cuda/launch.h"
#include "src/norm.h"
#include "tests/support/fake_cuda_parts.h"

static const struct kernels *bodies(void)
{
    struct error error = {0};
    const struct kernels *kernels = kernels_select("scalar", &error);
    if (!kernels)
        abort();
    return kernels;
}

cudaError_t launch_load(void)
{
    (void)fake_gpu(__func__);
    return fake_result(fake_enter());
}

/* Refuses a negative length, as the kernels' launches do. */
static void *reach(struct fake_op *op, const void *address, int64_t n, size_t element)
{
    if (n < 0 && op->error == cudaSuccess)
        op->error = cudaErrorInvalidValue;
    return fake_reach(op, address, n * (int64_t)element, FAKE_VISIBLE);
}

static cudaError_t finish(struct fake_op *op, int64_t n, void (*run)(void *))
{
    return n > 0 ? fake_op_append(op, run) : fake_op_drop(op);
}

/* ----------------------------------------------------------------------- Adam */

struct adam_args {
    int64_t n;
    struct adam k;
    struct grads grads;
    float *master, *m, *v;
    uint16_t *half;
    int16_t *remainder;
};

static struct adam_args *adam_args(struct fake_op *op, int64_t n, const struct adam *k,
                                   struct grads grads, float *m, float *v)
{
    struct adam_args *a = op->arg;
    a->n = n;
    a->k = *k;
    if (grads.f32)
        a->grads.f32 = reach(op, grads.f32, n, sizeof(*grads.f32));
    else
        a->grads.bf16 = reach(op, grads.bf16, n, sizeof(*grads.bf16));
    a->m = reach(op, m, n, sizeof(*m));
    a->v = reach(op, v, n, sizeof(*v));
    return a;
}

static void adam_run(void *arg)
{
    const struct adam_args *a = arg;
    bodies()->adam(a->n, &a->k, a->grads, a->master, a->m, a->v, a->half);
}

cudaError_t launch_adam(cudaStream_t stream, int64_t n, const struct adam *k, struct grads grads,
                        float *master, float *m, float *v, uint16_t *bf16)
{
    struct fake_op *op = fake_op_create(__func__, stream, sizeof(struct adam_args));
    struct adam_args *a = adam_args(op, n, k, grads, m, v);
    a->master = reach(op, master, n, sizeof(*master));
    if (bf16)
        a->half = reach(op, bf16, n, sizeof(*bf16));
    return finish(op, n, adam_run);
}

static void adam_split_run(void *arg)
{
    const struct adam_args *a = arg;
    bodies()->adam_split(a->n, &a->k, a->grads, a->half, a->remainder, a->m, a->v);
}

cudaError_t launch_adam_split(cudaStream_t stream, int64_t n, const struct adam *k,
                              struct grads grads, uint16_t *weight, int16_t *remainder, float *m,
                              float *v)
{
    struct fake_op *op = fake_op_create(__func__, stream, sizeof(struct adam_args));
    struct adam_args *a = adam_args(op, n, k, grads, m, v);
    a->half = reach(op, weight, n, sizeof(*weight));
    a->remainder = reach(op, remainder, n, sizeof(*remainder));
    return finish(op, n, adam_split_run);
}

/* -------------------------------------------------------------------- formats */

struct format_args {
    int64_t n;
    float *wide;
    uint16_t *half;
};

static cudaError_t format(const char *call, cudaStream_t stream, const struct format_args *given,
                          void (*run)(void *))
{
    struct fake_op *op = fake_op_create(call, stream, sizeof(struct format_args));
    struct format_args *a = op->arg;
    int64_t n = a->n = given->n;
    a->wide = reach(op, given->wide, n, sizeof(*a->wide));
    a->half = reach(op, given->half, n, sizeof(*a->half));
    return finish(op, n, run);
}

/* Defines name, which runs a body of kernels.h on format_args a. */
#define FORMAT_RUN(name, call)                                                                     \
    static void name(void *arg)                                                                    \
    {                                                                                              \
        const struct format_args *a = arg;                                                         \
        bodies()->call;                                                                            \
    }

FORMAT_RUN(to_bf16_run, to_bf16(a->n, a->wide, a->half))
FORMAT_RUN(from_bf16_run, from_bf16(a->n, a->half, a->wide))
FORMAT_RUN(to_fp16_run, to_fp16(a->n, a->wide, a->half))

cudaError_t launch_to_bf16(cudaStream_t stream, int64_t n, const float *in, uint16_t *out)
{
    struct format_args a = {n, (float *)(uintptr_t)in, out};
    return format(__func__, stream, &a, to_bf16_run);
}

cudaError_t launch_from_bf16(cudaStream_t stream, int64_t n, const uint16_t *in, float *out)
{
    struct format_args a = {n, out, (uint16_t *)(uintptr_t)in};
    return format(__func__, stream, &a, from_bf16_run);
}

cudaError_t launch_to_fp16(cudaStream_t stream, int64_t n, const float *in, uint16_t *out)
{
    struct format_args a = {n, (float *)(uintptr_t)in, out};
    return format(__func__, stream, &a, to_fp16_run);
}

/* ----------------------------------------------------------------------- sums */

struct sum_args {
    int64_t n;
    int ranks;
    bool fresh;
    float *acc;
    double *squares;
    const void *parts[LAUNCH_PARTS_MAX];
};

static cudaError_t sum(const char *call, cudaStream_t stream, size_t element,
                       const struct sum_args *given, void (*run)(void *))
{
    struct fake_op *op = fake_op_create(call, stream, sizeof(struct sum_args));
    struct sum_args *a = op->arg;
    *a = *given;
    bool sound = a->n % KERNELS_BLOCK == 0 && a->ranks >= 0 && a->ranks <= LAUNCH_PARTS_MAX;
    if (op->error == cudaSuccess && !sound)
        op->error = cudaErrorInvalidValue;
    for (int r = 0; r < a->ranks && op->error == cudaSuccess; r++)
        a->parts[r] = reach(op, given->parts[r], a->n, element);
    a->acc = reach(op, given->acc, a->n, sizeof(*a->acc));
    if (given->squares)
        a->squares = reach(op, given->squares, a->n / KERNELS_BLOCK, sizeof(*a->squares));
    return finish(op, a->n, run);
}

/* Defines launch_sum_name. */
#define SUM(name, type)                                                                            \
    static void sum_##name##_run(void *arg)                                                        \
    {                                                                                              \
        const struct sum_args *a = arg;                                                            \
        const type *parts[LAUNCH_PARTS_MAX];                                                       \
        for (int r = 0; r < a->ranks; r++)                                                         \
            parts[r] = a->parts[r];                                                                \
        bodies()->sum_##name(a->n, a->ranks, parts, a->fresh, a->acc, a->squares);                 \
    }                                                                                              \
                                                                                                   \
    cudaError_t launch_sum_##name(cudaStream_t stream, int64_t n, int ranks,                       \
                                  const type *const *parts, bool fresh, float *acc,                \
                                  double *squares)                                                 \
    {                                                                                              \
        struct sum_args a = {                                                                      \
            .n = n, .ranks = ranks, .fresh = fresh, .acc = acc, .squares = squares};               \
        for (int r = 0; r < ranks && r < LAUNCH_PARTS_MAX; r++)                                    \
            a.parts[r] = parts[r];                                                                 \
        return sum(__func__, stream, sizeof(type), &a, sum_##name##_run);                          \
    }

SUM(f32, float)
SUM(bf16, uint16_t)
SUM(fp16, uint16_t)

struct wide_args {
    int64_t n;
    const double *values;
    struct wide *sum;
};

static void wide_add_run(void *arg)
{
    const struct wide_args *a = arg;
    for (int64_t i = 0; i < a->n; i++)
        wide_add(a->sum, a->values[i]);
}

cudaError_t launch_wide_add(cudaStream_t stream, int64_t n, const double *values, struct wide *sum)
{
    struct fake_op *op = fake_op_create(__func__, stream, sizeof(struct wide_args));
    struct wide_args *a = op->arg;
    a->n = n;
    a->values = reach(op, values, n, sizeof(*values));
    a->sum = reach(op, sum, 1, sizeof(*sum));
    return finish(op, n, wide_add_run);
}
