// SPDX-License-Identifier: Apache-2.0
/*
 * A run of two steps on all ranks, state in files, with one defect at the end, made by the last
 * rank: tests/planted.sh sees that the tools report it although they overlook what is Open MPI's.
 *     planted none | leak | overflow | sum | race | unset
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/zero.h"

static int train(struct zero **z)
{
    struct zero_normal normal = {.seed = 1, .std = 1};
    const struct zero_param params[] = {
        {"one", .unit = 0, .ndim = 1, .shape = {5000}, .fill = zero_fill_normal,
         .fill_arg = &normal},
        {"two", .unit = 1, .ndim = 1, .shape = {3000}},
    };
    const struct zero_adam adam = {.lr = .1, .beta1 = .9, .beta2 = .9, .eps = 1e-8};
    int status = zero_init(z, params, 2, .stage = 3, .offload = ZERO_NVME, .chunk = 1024);
    if (!status)
        status = zero_set_adam(*z, 0, &adam);
    for (int unit = 0; !status && unit < 4; unit++) {
        status = zero_acquire(*z, unit % 2);
        const float *weights = zero_param_data(*z, unit % 2);
        float *grads = zero_grad_data(*z, unit % 2);
        for (int i = 0; weights && grads && i < 3000; i++)
            grads[i] += weights[i] + 1;
        if (!status)
            status = zero_release(*z, unit % 2);
        if (!status)
            status = zero_reduce(*z, unit % 2);
        if (!status && unit % 2)
            status = zero_step(*z, NULL);
    }
    return status;
}

/* ------------------------------------------------------------------ defects */

static int *volatile somewhere;
static volatile int shared, large = 2147483647;

__attribute__((noinline)) static void lose(void)
{
    somewhere = malloc(100);
    somewhere[0] = 1;
    somewhere = NULL;
}

__attribute__((noinline)) static void write_beyond(void)
{
    somewhere = malloc(10 * sizeof(int));
    somewhere[large % 7 + 9] = 1;
    free(somewhere);
}

__attribute__((noinline)) static void add_too_much(void)
{
    shared = large + large;
}

static void *count(void *arg)
{
    for (int i = 0; i < 1000; i++)
        shared++;
    return arg;
}

__attribute__((noinline)) static void race(void)
{
    pthread_t other;
    if (pthread_create(&other, NULL, count, NULL) == 0) {
        count(NULL);
        pthread_join(other, NULL);
    }
}

__attribute__((noinline)) static void look_at_nothing(void)
{
    somewhere = malloc(10 * sizeof(int));
    if (somewhere[large % 3] > 7)
        puts("more than seven");
    free(somewhere);
}

static const struct {
    const char *name;
    void (*make)(void);
} defects[] = {
    {"none", NULL},        {"leak", lose}, {"overflow", write_beyond},
    {"sum", add_too_much}, {"race", race}, {"unset", look_at_nothing},
};

int main(int argc, char **argv)
{
    struct zero *z;
    struct zero_digest digest;
    int status = train(&z);
    if (!status)
        status = zero_digest(z, &digest);
    if (status)
        fprintf(stderr, "%s\n", zero_last_error(z));
    bool last = z && zero_rank(z) == zero_size(z) - 1;
    for (size_t i = 0; last && argc > 1 && i < sizeof(defects) / sizeof(*defects); i++)
        if (strcmp(defects[i].name, argv[1]) == 0 && defects[i].make)
            defects[i].make();
    zero_destroy(z);
    return status != ZERO_OK;
}
