// SPDX-License-Identifier: Apache-2.0
/* What suites under mpirun share: all ranks make all tests and agree on each
 * outcome, since one that fails alone would leave the others waiting. A header,
 * because an archive's member would need MPI in every build. */
#ifndef TESTS_SUPPORT_MPI_SUITE_H
#define TESTS_SUPPORT_MPI_SUITE_H

#include <check.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>

static inline int world_rank(void)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

static inline int world_size(void)
{
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

/* Whether all ranks find something true; text: of one that does not. The
 * profiling interface, for suites that make MPI itself fail. */
static inline bool all_agree(bool good, const char *text)
{
    int mine = good, all = 0;
    if (!good)
        fprintf(stderr, "rank %d: %s\n", world_rank(), text);
    PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all;
}

/* Runs and frees the suite, in this process, for a fork of it could not
 * communicate; one rank prints. The number of tests that failed on this one. */
static inline int mpi_suite_run_own(Suite *suite, bool prints)
{
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, prints ? CK_ENV : CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed;
}

/* The same where MPI is there yet: over all ranks. */
static inline int mpi_suite_run(Suite *suite)
{
    int failed = mpi_suite_run_own(suite, world_rank() == 0), all = 0;
    PMPI_Allreduce(&failed, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

#endif
