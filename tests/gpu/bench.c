// SPDX-License-Identifier: Apache-2.0
/*
 * How near the library comes to what a GPU can do: gpu_bench [--quick] [kernels] [copies]
 * [units]. Linked with the runtime for tests it measures nothing worth keeping,
 * and shows that what is measured is right. tests/gpu/bench.sh makes a table of its lines.
 */
#include "tests/gpu/bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/gpus.h"

void bench_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

void bench_check(cudaError_t rc, const char *call)
{
    if (rc != cudaSuccess)
        bench_fail("%s: %s (%s, %d).", call, cudaGetErrorString(rc), cudaGetErrorName(rc), (int)rc);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bench_measure(const struct bench *b, struct pass *passes, int count)
{
    enum { PASSES = 4 };
    double seconds[PASSES][BENCH_ROUNDS];
    int rounds = b->quick ? 2 : BENCH_ROUNDS;
    if (count > PASSES)
        bench_fail("%d passes.", count);
    for (int r = -1; r < rounds; r++)
        for (int i = 0; i < count; i++) {
            double value = passes[i].run(passes[i].arg);
            if (r >= 0)
                seconds[i][r] = value;
        }
    for (int i = 0; i < count; i++) {
        qsort(seconds[i], (size_t)rounds, sizeof(double), ascending);
        passes[i].median = (seconds[i][(rounds - 1) / 2] + seconds[i][rounds / 2]) / 2;
    }
}

void bench_rate(const char *name, double bytes, double limit_seconds, double seconds)
{
    printf("%s_limit %.4g GB/s\n%s_ours %.4g GB/s\n%s_share %.3f\n", name,
           1e-9 * bytes / limit_seconds, name, 1e-9 * bytes / seconds, name,
           limit_seconds / seconds);
    fflush(stdout);
}

/* Arrays of which five fit, and are many times a cache. */
static struct bench sizes(bool quick)
{
    struct bench b = {.quick = quick,
                      .tile = 1 << 20,
                      .tiles = 128,
                      .repeats = 20,
                      .host_bytes = (int64_t)1 << 30,
                      .units = 64,
                      .steps = 200};
    size_t available, total;
    bench_ok(cudaMemGetInfo(&available, &total));
    while (b.tiles > 8 && (size_t)(b.tiles * b.tile) * 24 > available)
        b.tiles /= 2;
    if (quick)
        b = (struct bench){.quick = true,
                           .tile = 1 << 12,
                           .tiles = 3,
                           .repeats = 2,
                           .host_bytes = 3 << 20,
                           .units = 4,
                           .steps = 3};
    return b;
}

static void tell_gpu(void)
{
    struct cudaDeviceProp p;
    int driver = 0, runtime = 0;
    bench_ok(cudaGetDeviceProperties(&p, 0));
    bench_ok(cudaDriverGetVersion(&driver));
    bench_ok(cudaRuntimeGetVersion(&runtime));
    printf("# %s, compute capability %d.%d, %d multiprocessors, %.1f GiB; driver for CUDA %d.%d, "
           "built with %d.%d\n",
           p.name, p.major, p.minor, p.multiProcessorCount, (double)p.totalGlobalMem / (1 << 30),
           driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    fflush(stdout);
}

static const struct group {
    const char *name;
    void (*run)(const struct bench *b);
} groups[] = {{"kernels", bench_kernels}, {"copies", bench_copies}, {"units", bench_units}};
enum { GROUPS = sizeof(groups) / sizeof(*groups) };

int main(int argc, char **argv)
{
    bool wanted[GROUPS] = {0}, quick = false, some = false;
    for (int i = 1; i < argc; i++) {
        int g = 0;
        while (g < GROUPS && strcmp(argv[i], groups[g].name))
            g++;
        if (g < GROUPS)
            wanted[g] = some = true;
        else if (!strcmp(argv[i], "--quick"))
            quick = true;
        else
            bench_fail("There is no '%s'. Give kernels, copies, units, or --quick.", argv[i]);
    }
    if (gpus_begin(NULL) == 0)
        return 1;
    bench_ok(cudaSetDevice(0));
    tell_gpu();
    const struct bench b = sizes(quick);
    for (int i = 0; i < GROUPS; i++)
        if (!some || wanted[i])
            groups[i].run(&b);
    return gpus_end() > 0;
}
