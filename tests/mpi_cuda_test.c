// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks that are processes under mpirun, with fake GPUs: one for all, or one each with a
 * plugin that has no NCCL. Units go through host memory, the log says why, and a run
 * ends in the bits that the same ranks come to on the CPU. (By NCCL:
 * tests/cuda_test.c, tests/processes.sh.)
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/fake_cuda.h"
#include "tests/support/mpi_suite.h"
#include "tests/support/suite.h"
#include "tests/support/toy_cuda.h"

#define STEPS      3
#define ACCUMULATE 2

static char logged[SUITE_LOG];

static int train(struct zero *z, struct zero_digest *digest)
{
    const struct zero_adam adam = {.lr = .01, .beta1 = .9, .beta2 = .95, .eps = 1e-8};
    int status = zero_set_adam(z, 0, &adam);
    if (!status)
        status = zero_set_adam(z, 1, &adam);
    for (int s = 0; !status && s < STEPS; s++) {
        double loss = 0;
        for (int a = 0; !status && a < ACCUMULATE; a++)
            status =
                toy_micro_step(z, (s * ACCUMULATE + a) * zero_size(z) + zero_rank(z), false, &loss);
        if (!status)
            status = zero_step(z, NULL);
        toy_wait(z);
    }
    return status ? status : zero_digest(z, digest);
}

/* From creation to its end; the outcome is agreed on. */
static void run(struct zero_config config, struct zero_digest *digest)
{
    struct zero_param params[TOY_TENSORS_ALL];
    struct engine_seams seams = {0};
    struct zero *z;
    bool apart = config.device == ZERO_CUDA;
    toy_describe_all(params);
    config.size = sizeof(config);
    config.accumulate = ACCUMULATE;
    config.chunk = 256;
    config.threads = 1;
    config.log = suite_log;
    config.log_arg = logged;
    config.log_level = ZERO_LOG_INFO;
    if (apart) {
        seams = (struct engine_seams){.device = toy_apart->device, .link = toy_apart->link};
        toy_apart->begin(world_rank());
    }
    int status = engine_create(&z, params, TOY_TENSORS_ALL, &config, &seams);
    if (!status)
        status = train(z, digest);
    bool good = all_agree(status == ZERO_OK, zero_last_error(z));
    bool staged = z->plan.via_host == (apart && world_size() > 1);
    zero_destroy(z);
    if (apart)
        toy_apart->end();
    ck_assert(good);
    ck_assert(all_agree(staged, "units go another way"));
}

static void expect_equal(int gpus, int stage, enum zero_place offload, const char *says)
{
    const struct fake_cuda_options options = {.gpus = gpus, .bytes = 1 << 24, .seed = 5};
    struct zero_config config = {.stage = stage, .dtype = ZERO_BF16, .offload = offload};
    struct zero_digest cpu, gpu;
    char text[300];
    run(config, &cpu);
    config.device = ZERO_CUDA;
    logged[0] = '\0';
    fake_cuda_start(&options);
    toy_cuda_start(gpus, gpus == 1);
    run(config, &gpu);
    fake_cuda_stop();
    snprintf(text, sizeof(text), "%d GPUs, stage %d: master %016llx, expected %016llx", gpus, stage,
             (unsigned long long)gpu.master, (unsigned long long)cpu.master);
    ck_assert(all_agree(!memcmp(&cpu, &gpu, sizeof(cpu)), text));
    ck_assert(all_agree(fake_cuda_reported(FAKE_CUDA_REPORTS) == 0, "the fake reports something"));
    bool told = world_size() == 1 ? !strstr(logged, "Units go") : strstr(logged, says) != NULL;
    ck_assert(all_agree(told, logged));
}

START_TEST(one_gpu_for_all)
{
    expect_equal(1, _i, _i % 2 ? ZERO_NVME : ZERO_DEVICE,
                 "through host memory: ranks 0 and 1 share a GPU.");
}
END_TEST

START_TEST(a_gpu_each_without_nccl)
{
    expect_equal(FAKE_CUDA_GPUS_MAX, _i, _i % 2 ? ZERO_DEVICE : ZERO_HOST,
                 "through host memory: the CUDA plugin was built without NCCL (");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mpi cuda");
    TCase *tests = tcase_create("law");
    int provided;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    tcase_add_loop_test(tests, one_gpu_for_all, 0, 4);
    tcase_add_loop_test(tests, a_gpu_each_without_nccl, 0, 4);
    suite_add_tcase(suite, tests);
    int failed = mpi_suite_run(suite);
    MPI_Finalize();
    return failed != 0;
}
