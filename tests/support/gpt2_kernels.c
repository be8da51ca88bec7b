// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpt2_kernels.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt2/numeric.h"
#include "tests/support/gpus.h"
#include "tests/support/random.h"

#define MARGIN      256 /* bytes */
#define MARGIN_BYTE 0xA5
#define TWINS_MAX   32

/* Only there beside kernels that are compiled for the host. */
#pragma weak fake_nvcc_order
extern int fake_nvcc_order;

int twins_shift;

static cudaStream_t stream;
static struct twin twins[TWINS_MAX];
static void *firsts[TWINS_MAX]; /* what the first turn left */
static int made;
static uint64_t streams;

static void ok(cudaError_t error, const char *call)
{
    ck_assert_msg(error == cudaSuccess, "%s: %s", call, cudaGetErrorName(error));
}

cudaStream_t twins_begin(void)
{
    if (gpus_begin(NULL) == 0) {
        printf("skipped: there is no GPU\n");
        return NULL;
    }
    ok(cudaSetDevice(0), "cudaSetDevice");
    ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    return stream;
}

void twins_free(void)
{
    for (int i = 0; i < made; i++) {
        ok(cudaFree(twins[i].memory), "cudaFree");
        free(twins[i].cpu);
        free(twins[i].before);
        free(twins[i].after);
        free(firsts[i]);
    }
    made = 0;
}

void twins_end(void)
{
    twins_free();
    ok(cudaStreamDestroy(stream), "cudaStreamDestroy");
    ck_assert_int_eq(gpus_end(), 0);
}

/* -------------------------------------------------------------------- tensors */

static void *filled(int64_t bytes, int byte)
{
    void *memory = malloc((size_t)bytes + 1);
    ck_assert_ptr_nonnull(memory);
    return memset(memory, byte, (size_t)bytes + 1);
}

static struct twin *twin_new(enum zero_dtype dtype, int64_t n, int64_t element)
{
    struct twin *t = &twins[made];
    ck_assert_int_lt(made, TWINS_MAX);
    *t = (struct twin){.dtype = dtype, .n = n, .bytes = n * element};
    ok(cudaMalloc((void **)&t->memory, (size_t)t->bytes + 3 * MARGIN), "cudaMalloc");
    t->gpu = t->memory + MARGIN + twins_shift * element;
    t->cpu = filled(t->bytes, 0xFF);
    t->before = filled(t->bytes, 0xFF);
    t->after = filled(t->bytes, 0xFF);
    firsts[made++] = filled(t->bytes, 0xFF);
    return t;
}

struct twin *twin_unset(enum zero_dtype dtype, int64_t n)
{
    return twin_new(dtype, n, operand_bytes(dtype));
}

struct twin *twin_random(enum zero_dtype dtype, int64_t n, double scale, double add)
{
    struct twin *t = twin_unset(dtype, n);
    streams++;
    for (int64_t i = 0; i < n; i++)
        twin_set(t, i, add + scale * random_normal(1, streams, (uint64_t)i));
    return t;
}

struct twin *twin_bytes(int64_t bytes)
{
    int shift = twins_shift;
    twins_shift = 0;
    struct twin *t = twin_new(ZERO_FP32, bytes, 1);
    twins_shift = shift;
    return t;
}

struct twin *twin_ints(int64_t n, const int32_t *values)
{
    struct twin *t = twin_bytes(n * (int64_t)sizeof(*values));
    memcpy(t->before, values, (size_t)t->bytes);
    memcpy(t->cpu, values, (size_t)t->bytes);
    return t;
}

static double number(const struct twin *t, const void *from, int64_t i)
{
    float spare;
    return (double)*operand_view(t->dtype, from, i, 1, &spare);
}

double twin_before(const struct twin *t, int64_t i)
{
    return number(t, t->before, i);
}

double twin_after(const struct twin *t, int64_t i)
{
    return number(t, t->after, i);
}

void twin_set(struct twin *t, int64_t i, double x)
{
    float rounded = (float)x;
    operand_store(t->dtype, t->before, i, 1, &rounded);
    operand_store(t->dtype, t->cpu, i, 1, &rounded);
}

/* ------------------------------------------------------------------- launches */

void twins_turn_begin(int turn)
{
    for (int i = 0; i < made; i++) {
        struct twin *t = &twins[i];
        size_t bytes = (size_t)t->bytes + 3 * MARGIN;
        char *all = filled((int64_t)bytes, MARGIN_BYTE);
        memcpy(all + ((char *)t->gpu - t->memory), t->before, (size_t)t->bytes);
        ok(cudaMemcpy(t->memory, all, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
        free(all);
    }
    ok(cudaStreamSynchronize(NULL), "cudaStreamSynchronize"); /* copies from pageable memory */
    if (&fake_nvcc_order)
        fake_nvcc_order = turn;
}

static void twin_fetch(const struct twin *t, const char *call)
{
    size_t bytes = (size_t)t->bytes + 3 * MARGIN, begin = (size_t)((char *)t->gpu - t->memory);
    char *all = filled((int64_t)bytes, 0);
    ok(cudaMemcpy(all, t->memory, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (size_t at = 0; at < bytes; at++)
        if ((at < begin || at >= begin + (size_t)t->bytes) && (unsigned char)all[at] != MARGIN_BYTE)
            ck_abort_msg("%s: writes beside tensor %d", call, (int)(t - twins));
    memcpy(t->after, all + begin, (size_t)t->bytes);
    free(all);
}

void twins_turn_end(int turn, cudaError_t error, const char *call)
{
    ok(error, call);
    ok(cudaStreamSynchronize(stream), call);
    for (int i = 0; i < made; i++) {
        struct twin *t = &twins[i];
        twin_fetch(t, call);
        if (turn == 0)
            memcpy(firsts[i], t->after, (size_t)t->bytes);
        ck_assert_msg(memcmp(firsts[i], t->after, (size_t)t->bytes) == 0,
                      "%s: in another order tensor %d has other bits", call, i);
    }
}

/* ----------------------------------------------------------------- comparison */

double rounding_of(enum zero_dtype dtype)
{
    return dtype == ZERO_FP32 ? 0x1p-24 : dtype == ZERO_BF16 ? 0x1p-8 : 0x1p-11;
}

double least_of(enum zero_dtype dtype)
{
    return dtype == ZERO_FP16 ? 0x1p-25 : 0x1p-134;
}

double sum_error(int64_t n)
{
    return (double)(n / 16 + 32) * 0x1p-24;
}

void twin_check(const struct twin *t, int64_t i, double exact, double bound, bool cpu,
                const char *what)
{
    double most = bound + (fabs(exact) + bound) * rounding_of(t->dtype) + least_of(t->dtype);
    for (int where = 0; where < (cpu ? 2 : 1); where++) {
        double is = where == 0 ? twin_after(t, i) : number(t, t->cpu, i);
        if (!(fabs(is - exact) <= most)) /* an assertion that holds costs a system call */
            ck_abort_msg("%s: element %lld is %.9g%s, not %.9g within %.3g", what, (long long)i, is,
                         where == 0 ? "" : " on the CPU", exact, most);
    }
}

void twin_check_equal(const struct twin *t, const char *what)
{
    const char *after = t->after, *cpu = t->cpu;
    const int64_t size = t->bytes / t->n;
    for (int64_t i = 0; i < t->n; i++)
        if (memcmp(after + i * size, cpu + i * size, (size_t)size) != 0)
            ck_abort_msg("%s: element %lld is %.9g, on the CPU %.9g", what, (long long)i,
                         twin_after(t, i), number(t, t->cpu, i));
}
