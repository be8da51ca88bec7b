// SPDX-License-Identifier: Apache-2.0
/*
 * The contract suite over MPI: run it under mpirun with 1 to 4 or 6 ranks. All tests
 * are made by all ranks, which agree on the outcome; rank 0 prints it.
 */
#include "include/zero_mpi.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/comm/comm.h"
#include "src/comm/mpi_set.h"
#include "tests/support/comm_suite.h"
#include "tests/support/mpi_suite.h"

/* Frames of unloaded plugins could not be suppressed in leak reports. */
int dlclose(void *handle);
int dlclose(void *handle)
{
    (void)handle;
    return 0;
}

/* Ranks on several nodes, by the lowest rank of each one's node. */
static const struct nodes {
    int size, first[6];
    bool even; /* nodes have as many ranks each, so that parts are passed on */
} all_nodes[] = {
    {3, {0, 0, 2}, false},          {4, {0, 0, 2, 2}, true},
    {4, {0, 1, 0, 1}, true},        {4, {0, 1, 1, 0}, true},
    {4, {0, 1, 1, 1}, false},       {6, {0, 0, 2, 2, 4, 4}, true},
    {6, {0, 1, 2, 0, 1, 2}, true},  {6, {0, 1, 0, 1, 0, 1}, true},
    {6, {0, 0, 2, 3, 3, 3}, false}, /* three of two on the average */
};

#define NODES ((int)(sizeof(all_nodes) / sizeof(all_nodes[0])))

/* Of pieces: bytes that this rank sends to other nodes. */
static const int *watched; /* as .first */
static int64_t crossed;

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    if (watched && tag >= TAG_PIECES && watched[to] != watched[world_rank()])
        crossed += count;
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

static void barrier(void *arg)
{
    (void)arg;
    MPI_Barrier(MPI_COMM_WORLD);
}

/* n: NULL: nodes are as they are. */
static void run(const struct comm_scenario *scenario, int64_t transfer_max, const struct nodes *n)
{
    struct comm_world w = {.barrier = barrier, .seed = 11, .operations = 200};
    char error[512] = "";
    int status = zero_comm_mpi(MPI_COMM_WORLD, &w.comm, error, sizeof(error));
    ck_assert(all_agree(status == ZERO_OK, error));
    if (transfer_max)
        comm_mpi_transfer_max(w.comm, transfer_max);
    if (n) {
        comm_mpi_nodes(w.comm, n->first);
        w.gathers = true;
    }
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

START_TEST(mpi_passes_parts_on)
{
    for (int i = 0; i < NODES; i++)
        if (all_nodes[i].size == world_size())
            run(&comm_scenarios[_i], 300, &all_nodes[i]);
}
END_TEST

static char byte_of(int rank, int64_t at)
{
    return (char)(17 * rank + at % 251);
}

/* A gather of parts so large; whether it gives what it should. */
static bool gathers(struct zero_comm *comm, int64_t bytes)
{
    char *data = calloc((size_t)comm->size, (size_t)bytes), *own = data + comm->rank * bytes;
    bool good = data != NULL, done = false;
    struct zero_collective c = {
        .header = {.sequence = 1, .kind = ZERO_COLLECTIVE_GATHER, .bytes = bytes}, .data = data};
    for (int64_t i = 0; good && i < bytes; i++)
        own[i] = byte_of(comm->rank, i);
    good = good && comm->ops->start(comm, &c) == ZERO_OK;
    while (good && !done)
        good = comm->ops->test(comm, &c, &done) == ZERO_OK;
    for (int64_t i = 0; good && i < comm->size * bytes; i++)
        good = data[i] == byte_of((int)(i / bytes), i % bytes);
    free(data);
    return good;
}

/* How often a part of this rank, or as many bytes of others, are to cross. */
static int crossings(const struct nodes *n)
{
    int count = 0;
    for (int r = 0; r < n->size; r++)
        if (n->first[r] != n->first[world_rank()])
            count += !n->even || n->first[r] == r;
    return count;
}

START_TEST(parts_cross_to_each_node_once)
{
    static const int64_t sizes[] = {1, 700, ((int64_t)17 << 20) + 3};
    const struct nodes *n = &all_nodes[_i];
    for (int i = 0; i < 3; i++) {
        struct zero_comm *comm;
        char text[128];
        ck_assert(all_agree(!zero_comm_mpi(MPI_COMM_WORLD, &comm, NULL, 0), "zero_comm_mpi"));
        comm_mpi_nodes(comm, n->first);
        crossed = 0, watched = n->first;
        bool good = gathers(comm, sizes[i]);
        watched = NULL;
        comm->ops->destroy(comm);
        snprintf(text, sizeof(text), "of %lld bytes %lld cross, %d times that should",
                 (long long)sizes[i], (long long)crossed, crossings(n));
        ck_assert(all_agree(good, "not what was sent"));
        ck_assert(all_agree(crossed == crossings(n) * sizes[i], text));
    }
}
END_TEST

/* Whether the ranks that c waits for are these, behind which -1 stands. */
static bool waits_for(struct zero_comm *comm, const struct zero_collective *c, const int *ranks)
{
    int from = 0;
    for (; *ranks >= 0; from = *ranks++ + 1)
        if (comm->ops->missing(comm, c, from) != *ranks)
            return false;
    return comm->ops->missing(comm, c, from) < 0;
}

/* Rank 3 does nothing after its start. Ranks 0 and 2 wait for a part that ranks 1 and 3 pass on,
 * and cannot tell whether that one or the part's owner is late: both are. */
START_TEST(who_passes_parts_on_is_missed)
{
    static const int late[4][3] = {{1, 3, -1}, {3, -1}, {1, 3, -1}}, nodes[] = {0, 0, 2, 2};
    char data[4] = {0};
    struct zero_comm *comm;
    struct zero_collective c = {
        .header = {.sequence = 1, .kind = ZERO_COLLECTIVE_GATHER, .bytes = 1}, .data = data};
    bool done = false, good;
    int seen = 0, all = 0;
    ck_assert(all_agree(!zero_comm_mpi(MPI_COMM_WORLD, &comm, NULL, 0), "zero_comm_mpi"));
    comm_mpi_nodes(comm, nodes);
    good = comm->ops->start(comm, &c) == ZERO_OK;
    for (int i = 0; !all && i < 10000; i++) {
        if (good && world_rank() != 3)
            good = comm->ops->test(comm, &c, &done) == ZERO_OK && !done;
        seen = good && (world_rank() == 3 || waits_for(comm, &c, late[world_rank()]));
        MPI_Allreduce(&seen, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    }
    ck_assert(all_agree(seen, "other ranks are missing than should be"));
    while (good && !done)
        good = comm->ops->test(comm, &c, &done) == ZERO_OK;
    ck_assert(all_agree(good, "the gather has failed"));
    comm->ops->destroy(comm);
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
    if (local_size == world_size() && comm->size > 1) { /* one node: seats are ranks */
        const struct mpi *m = (const struct mpi *)comm;
        bool seated = m->places == local_size;
        for (int r = 0; r < comm->size; r++)
            seated &= m->seat[r] == r && m->who[r] == r;
        ck_assert(all_agree(seated, "ranks of one node have other seats"));
    }
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
    int status = comm_default_create(ZERO_CPU, 300, &comm, &error);
    ck_assert(all_agree(status == ZERO_OK, error.text));
    ck_assert(all_agree(comm->rank == world_rank() && comm->size == world_size(),
                        "the default communicator has other ranks than the job"));
    comm->ops->destroy(comm);
}
END_TEST

/* Of four by torchrun: MPI, which runs here, is the job's where it has them; a rank that is alone
 * in it would train alone. */
START_TEST(one_of_several_is_not_alone)
{
    static const char *const words[][2] = {{"RANK", "0"},
                                           {"WORLD_SIZE", "4"},
                                           {"LOCAL_RANK", "0"},
                                           {"MASTER_PORT", "1"},
                                           {"LOCAL_WORLD_SIZE", "4"},
                                           {"MASTER_ADDR", "127.0.0.1"},
                                           {"TORCHELASTIC_RUN_ID", "run"}};
    struct zero_comm *comm;
    struct error error = {0};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        setenv(words[i][0], words[i][1], 1);
    int status = comm_default_create(ZERO_CPU, 300, &comm, &error);
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        unsetenv(words[i][0]);
    bool good = world_size() == 1
                    ? status == ZERO_ERR_UNSUPPORTED && !comm &&
                          strstr(error.text, "This job has 4 ranks (WORLD_SIZE is set)")
                    : status == ZERO_OK && comm->size == world_size();
    ck_assert(all_agree(good, error.text));
    if (comm)
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
        if (world_size() > 2)
            tcase_add_loop_test(tests, mpi_passes_parts_on, i, i + 1);
    }
    for (int i = 0; i < NODES; i++)
        if (all_nodes[i].size == world_size())
            tcase_add_loop_test(tests, parts_cross_to_each_node_once, i, i + 1);
    if (world_size() == 4)
        tcase_add_test(tests, who_passes_parts_on_is_missed);
    tcase_add_test(tests, ranks_are_those_of_the_parent);
    tcase_add_test(tests, default_is_the_whole_job);
    tcase_add_test(tests, one_of_several_is_not_alone);
    tcase_add_test(tests, communicators_are_apart);
    suite_add_tcase(suite, tests);
    return suite;
}

/* The library starts MPI, as for a program that knows nothing of it. */
int main(void)
{
    struct zero_comm *comm;
    struct error error = {0};
    if (comm_mpi_default(300, &comm, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    comm->ops->destroy(comm);
    int failed = mpi_suite_run(suite_make());
    /* The library leaves this to us after the failures that were provoked. */
    MPI_Finalize();
    return failed != 0;
}
