// SPDX-License-Identifier: Apache-2.0
/*
 * One tensor of more elements than 31 bits count takes a step: build/tests/
 * big_tensor [ELEMENTS], by default 2^31 + 64, bf16 with split state on NVMe,
 * gradients in bf16. It needs 6 bytes an element of memory and 10 of disk, looks
 * for both first, and ends with 77 where they are not. Some elements at both
 * ends, around 2^31 and in the middle get gradients; what becomes of them must
 * be what becomes of a small model's elements with the same start and gradients.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

#include "include/zero.h"

#define TOUCHED 8
#define ABSENT  77

static float start(int64_t i)
{
    return (float)(i % 1000 - 500) * 0.001f;
}

/* Where the elements that get a gradient lie. */
static int64_t touched(int64_t elements, int k)
{
    const int64_t at[TOUCHED] = {0,
                                 1,
                                 elements / 2 - 1,
                                 elements / 2,
                                 elements > (int64_t)1 << 31 ? ((int64_t)1 << 31) - 1 : 100,
                                 elements > (int64_t)1 << 31 ? ((int64_t)1 << 31) + 1 : 200,
                                 elements - 2,
                                 elements - 1};
    return at[k];
}

static int fill_big(void *arg, int64_t first, int64_t count, float *out)
{
    (void)arg;
    for (int64_t i = 0; i < count; i++)
        out[i] = start(first + i);
    return 0;
}

/* The small model is the touched elements alone. */
static int fill_small(void *arg, int64_t first, int64_t count, float *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = start(touched(*(const int64_t *)arg, (int)(first + i)));
    return 0;
}

static void die(const struct zero *z)
{
    fprintf(stderr, "%s\n", zero_last_error(z));
    exit(1);
}

/* bf16 1, 2, 4, ...: exact. */
static uint16_t gradient(int k)
{
    return (uint16_t)(0x3F80 + 0x80 * (k % 4) + (k % 2 ? 0x8000 : 0));
}

struct values {
    float master[TOUCHED], moment1[TOUCHED], moment2[TOUCHED];
    double norm;
};

static void train(struct zero *z, const int64_t at[TOUCHED], struct values *v)
{
    const struct zero_adam adam = {
        .lr = .01, .beta1 = .9, .beta2 = .95, .eps = 1e-8, .weight_decay = .1};
    struct zero_step_info info;
    if (zero_set_adam(z, 0, &adam))
        die(z);
    for (int step = 0; step < 2; step++) {
        if (zero_acquire(z, 0))
            die(z);
        const uint16_t *w = zero_param_data(z, 0);
        uint16_t *g = zero_grad_data(z, 0);
        if (!g || !w)
            die(z);
        for (int k = 0; k < TOUCHED; k++)
            g[at[k]] = gradient(k + step) ^ (w[at[k]] & 0x8000); /* depends on the parameter */
        if (zero_release(z, 0) || zero_reduce(z, 0) || zero_step(z, &info))
            die(z);
    }
    v->norm = info.norm;
    for (int k = 0; k < TOUCHED; k++)
        if (zero_read(z, 0, ZERO_MASTER, at[k], 1, &v->master[k]) ||
            zero_read(z, 0, ZERO_MOMENT1, at[k], 1, &v->moment1[k]) ||
            zero_read(z, 0, ZERO_MOMENT2, at[k], 1, &v->moment2[k]))
            die(z);
}

/* An element between the touched ones: it has decayed and nothing else. */
static void expect_decay(struct zero *z, int64_t at)
{
    float x, p = start(at), decay = (float)(1 - .01 * .1);
    for (int step = 0; step < 2; step++)
        p = p * decay;
    if (zero_read(z, 0, ZERO_MASTER, at, 1, &x))
        die(z);
    if (memcmp(&x, &p, 4) != 0) {
        fprintf(stderr, "element %" PRId64 " is %.9g, not %.9g\n", at, (double)x, (double)p);
        exit(1);
    }
}

static int64_t memory_there(void)
{
    FILE *f = fopen("/proc/meminfo", "r");
    char line[128];
    long long kib = 0;
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "MemAvailable: %lld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return (int64_t)kib * 1024;
}

/* Needs 'more' memory beside, for what runs on the machine with us. */
static void look_for_room(const struct zero_plan *p, const char *path)
{
    struct statvfs fs;
    const int64_t more = (int64_t)1 << 30;
    int64_t memory = p->device.total + p->host.total + more;
    int64_t disk = statvfs(path, &fs) ? 0 : (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
    printf("%" PRId64 " elements: device %" PRId64 ", host %" PRId64 ", files %" PRId64 " bytes\n",
           p->params, p->device.total, p->host.total, p->nvme.total);
    if (memory <= memory_there() && p->nvme.total <= disk)
        return;
    printf("skipped: a tensor of %" PRId64 " elements: needs %" PRId64 " bytes of memory (%" PRId64
           " are there) and %" PRId64 " in %s (%" PRId64 " are free)\n",
           p->params, memory, memory_there(), p->nvme.total, path, disk);
    exit(ABSENT);
}

static int compare(const struct values *a, const struct values *b)
{
    for (int k = 0; k < TOUCHED; k++)
        if (memcmp(&a->master[k], &b->master[k], 4) || memcmp(&a->moment1[k], &b->moment1[k], 4) ||
            memcmp(&a->moment2[k], &b->moment2[k], 4)) {
            fprintf(stderr,
                    "touched element %d: %.9g %.9g %.9g; in the small model %.9g %.9g %.9g\n", k,
                    (double)a->master[k], (double)a->moment1[k], (double)a->moment2[k],
                    (double)b->master[k], (double)b->moment1[k], (double)b->moment2[k]);
            return 1;
        }
    if (a->norm == b->norm)
        return 0;
    fprintf(stderr, "norms %.17g and %.17g\n", a->norm, b->norm);
    return 1;
}

int main(int argc, char **argv)
{
    int64_t elements = argc > 1 ? atoll(argv[1]) : ((int64_t)1 << 31) + 64;
    struct zero_config config = {.size = sizeof(config),
                                 .dtype = ZERO_BF16,
                                 .state = ZERO_STATE_SPLIT,
                                 .grad_dtype = ZERO_BF16};
    struct zero_param big = {.name = "big", .ndim = 1, .shape = {elements}, .fill = fill_big};
    struct zero_param small = {
        .name = "small", .ndim = 1, .shape = {TOUCHED}, .fill = fill_small, .fill_arg = &elements};
    struct values here, there;
    struct zero_plan plan;
    struct zero *z;
    char error[512];
    int64_t at[TOUCHED], alone[TOUCHED];
    for (int k = 0; k < TOUCHED; k++) {
        at[k] = touched(elements, k);
        alone[k] = k;
    }
    if (zero_create(&z, &small, 1, &config))
        die(z);
    train(z, alone, &there);
    zero_destroy(z);

    config.offload_optimizer = ZERO_NVME;
    const char *tmp = getenv("TMPDIR");
    if (zero_plan_make(&big, 1, &config, 1, 1, &plan, error, sizeof(error))) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    look_for_room(&plan, tmp && *tmp ? tmp : "/var/tmp");
    if (zero_create(&z, &big, 1, &config))
        die(z);
    train(z, at, &here);
    expect_decay(z, 5);
    expect_decay(z, elements / 2 + 7);
    expect_decay(z, elements - 33);
    zero_destroy(z);
    if (compare(&here, &there))
        return 1;
    printf("the touched elements of %" PRId64 " are those of the small model\n", elements);
    return 0;
}
