// SPDX-License-Identifier: Apache-2.0
/* A program whose own MPI_Init gave too little is told so, under mpirun with any
 * number of ranks. */
#include <check.h>
#include <string.h>

#include "include/zero_mpi.h"
#include "src/comm/comm.h"
#include "tests/support/mpi_suite.h"

static void expect_sentence(int status, const char *text)
{
    ck_assert_str_eq(zero_status_name(status), "ZERO_ERR_UNSUPPORTED");
    ck_assert_msg(strstr(text, "MPI was started with MPI_THREAD_SINGLE") &&
                      strstr(text, "needs MPI_THREAD_MULTIPLE"), "%s", text);
}

START_TEST(communicator_is_refused)
{
    struct zero_comm *comm;
    char text[512] = "";
    expect_sentence(zero_comm_mpi(MPI_COMM_WORLD, &comm, text, sizeof(text)), text);
    ck_assert_ptr_null(comm);
}
END_TEST

START_TEST(default_is_refused)
{
    struct zero_comm *comm;
    struct error error = {0};
    expect_sentence(comm_default_create(ZERO_CPU, 300, &comm, &error), error.text);
    ck_assert_ptr_null(comm);
}
END_TEST

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &level);
    Suite *suite = suite_create("mpi level");
    TCase *tests = tcase_create("level");
    tcase_add_test(tests, communicator_is_refused);
    tcase_add_test(tests, default_is_refused);
    suite_add_tcase(suite, tests);
    int failed = mpi_suite_run(suite);
    MPI_Finalize();
    return failed != 0;
}
