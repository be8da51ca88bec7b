// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks that are processes and share what GPUs there are, by way of MPI and host memory:
 * stages and places end in the bits of the CPU's simplest run. Run it under mpirun with 1
 * to 4 ranks. tests/cuda_test.c has the rows whose ranks are threads.
 */
#include <check.h>
#include <stdio.h>

#include "kernels/cuda/runtime.h"
#include "src/comm/comm.h"
#include "tests/support/equal.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/gpus.h"
#include "tests/support/mpi_suite.h"
#include "tests/support/suite.h"
#include "tests/support/toy_cuda.h"

static struct zero_comm *comm;
static struct toy reference[2]; /* per dtype */
static int rows, ran;

static int begin(void)
{
    const struct fake_cuda_options options = {.gpus = 1, .bytes = 1 << 24};
    int count = gpus_begin(&options);
    ck_assert(all_agree(count > 0, "there is no GPU"));
    return count;
}

static void run_place(const struct zero_config *config)
{
    const struct toy *expected = &reference[config->dtype == ZERO_BF16];
    struct toy t = {.config = *config,
                    .ranks = world_size(),
                    .accumulate = EQUAL_BATCH / world_size(),
                    .steps = EQUAL_STEPS};
    char text[1000] = "the fake has reported something";
    if (rows++ % (suite_short() ? 5 : 1))
        return;
    ran++;
    toy_cuda_start(begin(), true);
    toy_run_rank(&t, comm);
    bool good = equal_ended(&t, expected, text, sizeof(text));
    ck_assert(all_agree(gpus_end() == 0 && good, text));
}

START_TEST(places)
{
    rows = ran = 0;
    for (int dtype = 0; dtype < 2; dtype++) {
        struct zero_config c = {.stage = _i,
                                .dtype = dtype ? ZERO_BF16 : ZERO_FP32,
                                .device = ZERO_CUDA,
                                .chunk = 1088,
                                .threads = 1};
        equal_each_place(c, run_place);
    }
    ck_assert(rows >= 20 && ran >= rows / (suite_short() ? 5 : 1));
    if (world_rank() == 0)
        printf("stage %d on %d ranks: %d places, equal bits\n", _i, world_size(), ran);
}
END_TEST

/* The library starts MPI, as for a program that knows nothing of it. */
int main(void)
{
    struct error error = {0};
    Suite *suite = suite_create("ranks on GPUs");
    TCase *tests = tcase_create("places");
    if (comm_mpi_default(300, &comm, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    for (int d = 0; d < 2; d++) {
        reference[d] = equal_simplest(d ? ZERO_BF16 : ZERO_FP32, EQUAL_BATCH);
        if (!all_agree(toy_run(&reference[d]) == ZERO_OK, reference[d].error.text))
            return 1;
    }
    tcase_add_loop_test(tests, places, 0, 4);
    suite_add_tcase(suite, tests);
    int failed = mpi_suite_run(suite);
    comm->ops->destroy(comm);
    MPI_Finalize();
    return failed != 0;
}
