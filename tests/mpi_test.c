// SPDX-License-Identifier: Apache-2.0
/*
 * The contract suite over MPI: run it under mpirun with 1 to 4 ranks. All tests
 * are made by all ranks, which agree on the outcome; rank 0 prints it.
 */
#include "include/zero_mpi.h"

#include <check.h>
#include <stdio.h>

#include "src/comm/comm.h"
#include "tests/support/comm_suite.h"
#include "tests/support/mpi_suite.h"

/* Frames of unloaded plugins could not be suppressed in leak reports. */
int dlclose(void *handle);
int dlclose(void *handle)
{
    (void)handle;
    return 0;
}

#define RANKS_MAX 4

static void barrier(void *arg)
{
    (void)arg;
    MPI_Barrier(MPI_COMM_WORLD);
}

/* first: the lowest rank of each rank's node, or NULL: as they are. */
static void run(const struct comm_scenario *scenario, int64_t transfer_max, const int *first)
{
    struct comm_world w = {.barrier = barrier, .seed = 11, .operations = 200};
    char error[512] = "";
    int status = zero_comm_mpi(MPI_COMM_WORLD, &w.comm, error, sizeof(error));
    ck_assert(all_agree(status == ZERO_OK, error));
    if (transfer_max)
        comm_mpi_transfer_max(w.comm, transfer_max);
    if (first)
        comm_mpi_nodes(w.comm, first);
    scenario->run(&w);
    MPI_Barrier(MPI_COMM_WORLD);
    if (w.comm)
        w.comm->ops->destroy(w.comm);
    ck_assert_msg(all_agree(!w.text[0], w.text), "%s", scenario->name);
}

START_TEST(mpi_keeps_the_contract)
{
    run(&comm_scenarios[_i], 0, NULL);
}
END_TEST

/* Transfers in many pieces, smaller than those that are summed. */
START_TEST(mpi_cuts_large_transfers)
{
    run(&comm_scenarios[_i], 300, NULL);
}
END_TEST

/* Parts that cross to other nodes are passed on there, piece by piece; with uneven nodes none. */
START_TEST(mpi_passes_parts_on)
{
    static const int nodes[][RANKS_MAX] = {{0, 0, 2, 2}, {0, 1, 0, 1}, {0, 1, 1, 0}, {0, 1, 1, 1}};
    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
        run(&comm_scenarios[_i], 300, nodes[i]);
}
END_TEST

START_TEST(ranks_are_those_of_the_parent)
{
    struct zero_comm *comm;
    MPI_Comm backwards, node;
    int rank, local_rank, local_size;
    char text[128];
    MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank(), &backwards);
    MPI_Comm_rank(backwards, &rank);
    MPI_Comm_split_type(backwards, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local_rank);
    MPI_Comm_size(node, &local_size);
    int status = zero_comm_mpi(backwards, &comm, NULL, 0);
    ck_assert(all_agree(status == ZERO_OK, "zero_comm_mpi failed"));
    snprintf(text, sizeof(text), "rank %d of %d, on the node %d of %d", comm->rank, comm->size,
             comm->local_rank, comm->local_size);
    ck_assert(all_agree(comm->rank == rank && comm->size == world_size() &&
                            comm->local_rank == local_rank && comm->local_size == local_size,
                        text));
    comm->ops->destroy(comm);
    MPI_Comm_free(&node);
    MPI_Comm_free(&backwards);
}
END_TEST

START_TEST(default_is_the_whole_job)
{
    struct zero_comm *comm;
    struct error error = {0};
    int status = comm_default_create(ZERO_CPU, &comm, &error);
    ck_assert(all_agree(status == ZERO_OK, error.text));
    ck_assert(all_agree(comm->rank == world_rank() && comm->size == world_size(),
                        "the default communicator has other ranks than the job"));
    comm->ops->destroy(comm);
}
END_TEST

/* Two communicators at work at the same time do not hear each other. */
START_TEST(communicators_are_apart)
{
    struct zero_comm *comm[2];
    uint64_t words[2] = {1, 1000};
    struct zero_collective c[2];
    bool good = true;
    for (int i = 0; i < 2; i++) {
        int status = zero_comm_mpi(MPI_COMM_WORLD, &comm[i], NULL, 0);
        ck_assert(all_agree(status == ZERO_OK, "zero_comm_mpi failed"));
        c[i] = (struct zero_collective){.header = {.sequence = 1,
                                                   .kind = ZERO_COLLECTIVE_SUM,
                                                   .bytes = 8,
                                                   .arguments = (uint64_t)i},
                                        .data = &words[i]};
    }
    for (int i = 0; i < 2; i++) /* each rank in another order */
        comm[(i + world_rank()) % 2]->ops->start(comm[(i + world_rank()) % 2],
                                                 &c[(i + world_rank()) % 2]);
    for (int i = 0; i < 2; i++)
        for (bool done = false; !done && good;)
            good = comm[i]->ops->test(comm[i], &c[i], &done) == ZERO_OK;
    uint64_t n = (uint64_t)world_size();
    ck_assert(all_agree(good && words[0] == n && words[1] == 1000 * n, "the sums are wrong"));
    comm[0]->ops->destroy(comm[0]);
    comm[1]->ops->destroy(comm[1]);
}
END_TEST

static Suite *suite_make(void)
{
    Suite *suite = suite_create("mpi");
    TCase *tests = tcase_create("contract");
    for (int i = 0; i < comm_scenario_count; i++) {
        if (comm_scenarios[i].ranks_min > world_size())
            continue;
        tcase_add_loop_test(tests, mpi_keeps_the_contract, i, i + 1);
        tcase_add_loop_test(tests, mpi_cuts_large_transfers, i, i + 1);
        if (world_size() > 1 && world_size() <= RANKS_MAX)
            tcase_add_loop_test(tests, mpi_passes_parts_on, i, i + 1);
    }
    tcase_add_test(tests, ranks_are_those_of_the_parent);
    tcase_add_test(tests, default_is_the_whole_job);
    tcase_add_test(tests, communicators_are_apart);
    suite_add_tcase(suite, tests);
    return suite;
}

/* The library starts MPI, as for a program that knows nothing of it. */
int main(void)
{
    struct zero_comm *comm;
    struct error error = {0};
    if (comm_mpi_default(&comm, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    comm->ops->destroy(comm);
    int failed = mpi_suite_run(suite_make());
    /* The library leaves this to us after the failures that were provoked. */
    MPI_Finalize();
    return failed != 0;
}
