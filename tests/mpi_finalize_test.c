// SPDX-License-Identifier: Apache-2.0
/* A program that ends MPI while its engine has work under way is told so, under mpirun
 * with any number of ranks; one rank alone needs no MPI. What is asserted is what each rank
 * saw after that: nothing can be agreed on any more. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "include/zero.h"
#include "tests/support/mpi_suite.h"

enum { UNITS = 2, STEPS = 3 };

static struct zero *z;

START_TEST(engine_says_it)
{
    int status = zero_digest(z, &(struct zero_digest){0});
    ck_assert_str_eq(zero_status_name(status), zero_size(z) > 1 ? "ZERO_ERR_COMM" : "ZERO_OK");
    if (!status)
        return;
    /* Where another rank came there first, this one may have heard of that (mpi_leave_test has
     * the first). */
    ck_assert_msg(strstr(zero_last_error(z), "MPI_Finalize while an engine still existed") ||
                      strstr(zero_last_error(z), "Look for its own error"),
                  "%s", zero_last_error(z));
}
END_TEST

START_TEST(engine_can_be_destroyed)
{
    zero_destroy(z);
    z = NULL;
}
END_TEST

/* The last step's gathers and files are under way when it comes back. */
static int steps_run(void)
{
    const struct zero_adam adam = {.lr = 1e-3, .beta1 = .9, .beta2 = .95, .eps = 1e-8};
    const struct zero_param params[UNITS] = {
        {.name = "a", .unit = 0, .ndim = 1, .shape = {100000}},
        {.name = "b", .unit = 1, .ndim = 1, .shape = {100000}}};
    const struct zero_config config = {
        .size = sizeof(config), .stage = 3, .offload = ZERO_NVME, .deadline_seconds = 30};
    int status = zero_create(&z, params, UNITS, &config);
    status = status ? status : zero_set_adam(z, 0, &adam);
    for (int step = 0; step < STEPS && !status; step++) {
        for (int u = UNITS - 1; u >= 0 && !status; u--) {
            status = zero_acquire(z, u) || zero_release(z, u) || !zero_grad_data(z, u) ||
                     zero_reduce(z, u);
        }
        status = status ? status : zero_step(z, NULL);
    }
    return status;
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    if (steps_run()) {
        fprintf(stderr, "%s\n", zero_last_error(z));
        return 1;
    }
    bool first = zero_rank(z) == 0;
    MPI_Finalize();

    Suite *suite = suite_create("MPI_Finalize");
    TCase *tests = tcase_create("engine");
    tcase_add_test(tests, engine_says_it);
    tcase_add_test(tests, engine_can_be_destroyed);
    suite_add_tcase(suite, tests);
    return mpi_suite_run_own(suite, first) != 0;
}
