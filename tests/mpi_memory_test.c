// SPDX-License-Identifier: Apache-2.0
/*
 * Under mpirun, with any number of ranks: after a few steps the library's code
 * allocates nothing, opens nothing and starts no thread, whatever MPI itself
 * does. Every stage, state and parameters in files; the ranks agree on each
 * outcome. Under a sanitizer allocations are not seen.
 */

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/allocations.h"
#include "tests/support/mpi_suite.h"
#include "tests/support/toy.h"

#define STEPS      30
#define SETTLED    3
#define ACCUMULATE 2

/* How many entries a folder of /proc has. */
static int64_t entries(const char *path)
{
    char buffer[4096];
    int64_t n = 0;
    int fd = open(path, O_RDONLY | O_DIRECTORY);
    for (long got = 1; fd >= 0 && got > 0;) {
        got = syscall(SYS_getdents64, fd, buffer, sizeof(buffer));
        for (long at = 0; at < got; n++)
            at += *(uint16_t *)(void *)(buffer + at + 16); /* d_reclen */
    }
    close(fd);
    return n;
}

static int train_step(struct zero *z, int step)
{
    double loss = 0, mean;
    int status = ZERO_OK;
    for (int a = 0; !status && a < ACCUMULATE; a++)
        status =
            toy_micro_step(z, (step * ACCUMULATE + a) * zero_size(z) + zero_rank(z), false, &loss);
    if (!status)
        status = zero_mean(z, &loss, 1, &mean);
    return status ? status : zero_step(z, NULL);
}

static int train(struct zero *z, int64_t opened[2], int64_t started[2])
{
    const struct zero_adam adam = {.lr = .01, .beta1 = .9, .beta2 = .95, .eps = 1e-8};
    int status = zero_set_adam(z, 0, &adam);
    if (!status)
        status = zero_set_adam(z, 1, &adam);
    for (int s = 1; !status && s <= STEPS; s++) {
        status = train_step(z, s - 1);
        if (s != SETTLED && s != STEPS)
            continue;
        allocations.counting = false;
        opened[s == STEPS] = entries("/proc/self/fd");
        started[s == STEPS] = entries("/proc/self/task");
        allocations.own_code_only = true;
        allocations.counting = s == SETTLED;
    }
    return status;
}

START_TEST(steps_take_nothing)
{
    struct zero_param params[TOY_TENSORS_ALL];
    struct zero *z;
    int64_t opened[2] = {0}, started[2] = {0};
    char text[256];
    toy_describe_all(params);
    allocations.calls = 0;
    int status = zero_init(&z, params, TOY_TENSORS_ALL, .stage = _i % 4, .chunk = 256,
                           .dtype = _i < 4 ? ZERO_BF16 : ZERO_FP32, .accumulate = ACCUMULATE,
                           .offload = _i < 4 ? ZERO_NVME : ZERO_AUTO);
    if (!status)
        status = train(z, opened, started);
    ck_assert(all_agree(status == ZERO_OK, zero_last_error(z)));
    snprintf(text, sizeof(text), "%lld allocations, the first from %p (malloc is at %p)",
             (long long)allocations.calls, allocations.first, (void *)(uintptr_t)malloc);
    bool none = all_agree(allocations.calls == 0, text);
    snprintf(text, sizeof(text), "%lld descriptors, then %lld; %lld threads, then %lld",
             (long long)opened[0], (long long)opened[1], (long long)started[0],
             (long long)started[1]);
    bool same = all_agree(opened[0] == opened[1] && started[0] == started[1], text);
    zero_destroy(z);
    ck_assert(none && same);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mpi memory");
    TCase *tests = tcase_create("steps");
    int provided;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    tcase_add_loop_test(tests, steps_take_nothing, 0, 8);
    suite_add_tcase(suite, tests);
    int failed = mpi_suite_run(suite);
    MPI_Finalize();
    return failed != 0;
}
