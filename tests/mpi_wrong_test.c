// SPDX-License-Identifier: Apache-2.0
/*
 * Wrong use under real MPI, under mpirun with any number of ranks: ranks that
 * differ, parents that are none, calls of MPI that fail, MPI that is not there.
 * Functions of MPI are replaced here by ones that fail when a test says so.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "include/zero_mpi.h"
#include "src/comm/comm.h"
#include "tests/support/differ.h"
#include "tests/support/mpi_suite.h"
#include "tests/support/suite.h"

static const struct zero_param one = {.name = "a", .ndim = 1, .shape = {64}};
static bool dup_fails, nobody_has_memory, send_fails, pieces_go_on;

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *copy)
{
    return dup_fails ? MPI_ERR_INTERN : PMPI_Comm_dup(comm, copy);
}

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    int rc = PMPI_Allreduce(in, out, count, type, op, comm);
    if (nobody_has_memory)
        *(int *)out = 0;
    return rc;
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    return send_fails ? MPI_ERR_INTERN : PMPI_Isend(data, count, type, to, tag, comm, request);
}

/* A piece that its sender has not finished is neither there nor taken back: it is awaited by a
 * tag that nobody uses. (0 are headers, 1 notices.) */
int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    return PMPI_Irecv(data, count, type, from, pieces_go_on && tag > 1 ? 32000 : tag, comm,
                      request);
}

int MPI_Cancel(MPI_Request *request)
{
    return pieces_go_on ? MPI_SUCCESS : PMPI_Cancel(request);
}

/* Whether all ranks, or any, find something true. */
static bool vote(bool here, MPI_Op op)
{
    int mine = here, all = 0;
    PMPI_Allreduce(&mine, &all, 1, MPI_INT, op, MPI_COMM_WORLD);
    return all;
}

static struct zero_comm *communicator(void)
{
    struct zero_comm *comm;
    char text[512] = "";
    int status = zero_comm_mpi(MPI_COMM_WORLD, &comm, text, sizeof(text));
    ck_assert(all_agree(status == ZERO_OK, text));
    return comm;
}

/* ----------------------------------------------------------- ranks that differ */

/* The last rank is the odd one. A communicator that failed is not used again. */
static void expect_found(const char *(*differ)(struct zero_comm *, int, int, bool, bool *), int i)
{
    if (world_size() == 1)
        return;
    struct zero_comm *comm = communicator();
    bool named = false;
    const char *bad = differ(comm, 3 * (i % 2), i, world_rank() == world_size() - 1, &named);
    MPI_Barrier(MPI_COMM_WORLD);
    comm->ops->destroy(comm);
    ck_assert(all_agree(!bad, bad ? bad : ""));
    ck_assert_msg(vote(named, MPI_MAX), "case %d: no rank was told what differs", i);
}

static const char *create_of(struct zero_comm *comm, int stage, int i, bool odd, bool *named)
{
    (void)stage;
    return differ_create(comm, i, odd, named);
}

START_TEST(creation_differs)
{
    expect_found(create_of, _i);
}
END_TEST

START_TEST(calls_differ)
{
    expect_found(differ_call, _i);
}
END_TEST

/* -------------------------------------------------------------- communicators */

static void expect_refused(MPI_Comm parent, int expected, const char *says)
{
    struct zero_comm *comm = NULL;
    char text[512] = "";
    int status = zero_comm_mpi(parent, &comm, text, sizeof(text));
    bool good = status == expected && strstr(text, says) && !comm;
    ck_assert(all_agree(good, text));
}

START_TEST(parents_that_are_none)
{
    char text[512] = "";
    ck_assert_int_eq(zero_comm_mpi(MPI_COMM_WORLD, NULL, text, sizeof(text)), ZERO_ERR_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(text, "zero_comm_mpi was given NULL"));
    ck_assert_int_eq(zero_comm_mpi(MPI_COMM_WORLD, NULL, NULL, 0), ZERO_ERR_ARGUMENT);
    expect_refused(MPI_COMM_NULL, ZERO_ERR_ARGUMENT, "MPI_COMM_NULL");
    if (world_size() == 1)
        return;
    MPI_Comm half, between;
    int second = world_rank() > 0;
    MPI_Comm_split(MPI_COMM_WORLD, second, world_rank(), &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, second ? 0 : 1, 3, &between);
    expect_refused(between, ZERO_ERR_ARGUMENT, "an intercommunicator");
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
}
END_TEST

START_TEST(mpi_fails)
{
    if (world_size() == 1)
        return;
    dup_fails = true;
    expect_refused(MPI_COMM_WORLD, ZERO_ERR_COMM, "MPI_Comm_dup failed: ");
    dup_fails = false;
    nobody_has_memory = true;
    expect_refused(MPI_COMM_WORLD, ZERO_ERR_MEMORY, "has no memory for a communicator");
    nobody_has_memory = false;

    struct zero_comm *comm = communicator();
    uint64_t word = 1;
    struct zero_collective c = {
        .header = {.sequence = 1, .kind = ZERO_COLLECTIVE_SUM, .unit = -1, .bytes = 8},
        .data = &word};
    send_fails = true;
    int status = comm->ops->start(comm, &c);
    ck_assert(all_agree(status == ZERO_ERR_COMM && strstr(comm->error, "MPI failed to send"),
                        comm->error));
    send_fails = false;
    MPI_Barrier(MPI_COMM_WORLD);
    comm->ops->destroy(comm);
}
END_TEST

/* All ranks end an engine within a step, then one whose step they discard, and make another over
 * the same communicator. */
START_TEST(ended_within_a_step)
{
    char warned[SUITE_LOG] = "";
    struct zero_comm *comm = communicator();
    struct zero *z;
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(zero_init(&z, &one, 1, .comm = comm, .log = suite_log, .log_arg = warned),
                         ZERO_OK);
        ck_assert_int_eq(zero_reduce(z, 0), ZERO_OK);
        ck_assert(i != 1 || zero_discard(z) == ZERO_OK);
        zero_destroy(z);
        ck_assert(all_agree(!*warned, warned));
    }
    comm->ops->destroy(comm);
}
END_TEST

/* A communicator that was told to give up says so ever after. */
START_TEST(given_up)
{
    if (world_size() == 1)
        return;
    struct zero_comm *comm = communicator();
    uint64_t word = 1;
    struct zero_collective c = {
        .header = {.sequence = 1, .kind = ZERO_COLLECTIVE_SUM, .unit = -1, .bytes = 8},
        .data = &word};
    comm->ops->abort(comm, 1);
    int status = comm->ops->start(comm, &c);
    ck_assert(all_agree(status == ZERO_ERR_COMM && strstr(comm->error, "gave up before message 1"),
                        comm->error));
    MPI_Barrier(MPI_COMM_WORLD);
    comm->ops->destroy(comm);
}
END_TEST

/* Listens until somebody is known to have given up before message sequence. */
static int hear(struct zero_comm *comm, uint64_t sequence)
{
    int status = ZERO_OK;
    for (int i = 0; i < 20000 && !status; i++) {
        status = comm->ops->listen(comm, sequence);
        usleep(1000);
    }
    return status;
}

/* Who gives up because another rank has, passes on who that was: the others look there first. */
START_TEST(the_first_to_give_up_is_named)
{
    int last = world_size() - 1, status = ZERO_ERR_COMM;
    char first[64];
    if (world_size() < 3)
        return;
    struct zero_comm *comm = communicator();
    snprintf(first, sizeof(first), "Rank %d gave up before message 5. ", last);
    if (world_rank() == last)
        comm->ops->abort(comm, 5);
    if (world_rank() == 0) {
        status = hear(comm, 5);
        comm->ops->abort(comm, 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank() % last)
        status = hear(comm, 1);
    bool named = !(world_rank() % last) || strstr(comm->error, first);
    ck_assert(all_agree(status == ZERO_ERR_COMM && named, comm->error));
    comm->ops->abort(comm, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    comm->ops->destroy(comm);
}
END_TEST

/* Pieces that a rank does not take cannot be taken back: their memory is held by those who sent
 * them, and by them alone; by nobody where that rank gives up too, but by all where it does so
 * while it takes some. */
START_TEST(pieces_are_held)
{
    enum { BYTES = 32 << 20 };
    static char *kept;
    if (world_size() == 1)
        return;
    struct zero_comm *comm = communicator();
    bool idle = world_rank() == world_size() - 1, done = false;
    if (!kept)
        kept = calloc((size_t)world_size(), BYTES);
    struct zero_collective c = {
        .header = {.sequence = 1, .kind = ZERO_COLLECTIVE_GATHER, .unit = 0, .bytes = BYTES},
        .data = kept};
    ck_assert(all_agree(kept && comm->ops->start(comm, &c) == ZERO_OK, comm->error));
    pieces_go_on = idle && _i == 2;
    for (int i = 0; i < 500 && (!idle || _i == 2); i++) {
        comm->ops->test(comm, &c, &done);
        usleep(1000);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (!idle || _i)
        comm->ops->abort(comm, 1);
    pieces_go_on = false;
    bool right = !done && comm->holds == (_i == 2 || (!idle && !_i));
    ck_assert(all_agree(right, comm->holds ? "held" : "not held"));
    if (idle && !_i)
        comm->ops->abort(comm, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    comm->ops->destroy(comm);
}
END_TEST

/* ----------------------------------------------------------------------- forks */

/* What a fork is told that makes an engine over MPI, or a communicator, or uses one of its
 * parent's, where there is one. It starts no thread: sanitizers take none behind a fork. */
static bool child_is_told(struct zero_comm *parents)
{
    struct zero_comm *comm = NULL;
    struct zero *z;
    char text[512] = "";
    bool good = zero_init(&z, &one, 1) == ZERO_ERR_STATE && strstr(zero_last_error(z), "is a fork");
    zero_destroy(z);
    good &= zero_comm_mpi(MPI_COMM_SELF, &comm, text, sizeof(text)) == ZERO_ERR_STATE && !comm;
    if (!parents)
        return good;
    uint64_t word = 1;
    struct zero_collective c = {
        .header = {.sequence = 1, .kind = ZERO_COLLECTIVE_SUM, .unit = -1, .bytes = 8},
        .data = &word};
    good &= parents->ops->start(parents, &c) == ZERO_ERR_STATE;
    good &= strstr(parents->error, "is a fork") != NULL;
    parents->ops->abort(parents, 1);
    parents->ops->destroy(parents);
    return good;
}

static bool fork_is_told(struct zero_comm *parents)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        alarm(30); /* for a child that hangs */
        _exit(!child_is_told(parents));
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

START_TEST(forked)
{
    if (world_size() == 1)
        return;
    struct zero_comm *comm = communicator();
    struct zero *z;
    ck_assert(all_agree(fork_is_told(comm), "a fork"));
    ck_assert_int_eq(zero_init(&z, &one, 1, .comm = comm), ZERO_OK);
    zero_destroy(z);
    comm->ops->destroy(comm);
}
END_TEST

/* Rank 0 is alone on its node and the others are together, as their communicators say: what of
 * parameters then passes more than once is told, where there are any. */
START_TEST(nodes_of_unlike_size)
{
    char log[SUITE_LOG] = "", says[64];
    int ranks = world_size(), rank = world_rank();
    struct zero_comm *comm = communicator();
    struct zero *z;
    if (ranks > 1) {
        comm->local_size = rank ? ranks - 1 : 1;
        comm->local_rank = rank ? rank - 1 : 0;
    }
    int status =
        zero_init(&z, &one, 1, .comm = comm, .stage = _i, .log = suite_log, .log_arg = log);
    snprintf(says, sizeof(says), "Nodes have 1 to %d ranks, so parameters go to ", ranks - 1);
    bool told = strstr(log, says) != NULL;
    ck_assert(all_agree(!status && told == (_i > 0 && ranks > 2), log));
    zero_destroy(z);
    comm->ops->destroy(comm);
}
END_TEST

/* ------------------------------------------------------------------- the suite */

/* Before MPI_Init_thread and after MPI_Finalize there is a sentence. */
static bool refused_without_mpi(const char *says)
{
    struct zero_comm *comm;
    char text[512] = "";
    int status = zero_comm_mpi(MPI_COMM_WORLD, &comm, text, sizeof(text));
    if (status == ZERO_ERR_UNSUPPORTED && strstr(text, says))
        return true;
    fprintf(stderr, "without MPI: %s: '%s', not '%s'\n", zero_status_name(status), text, says);
    return false;
}

int main(void)
{
    int level;
    bool good = refused_without_mpi("MPI was not started");
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    good &= fork_is_told(NULL); /* of a process whose MPI the library has not seen yet */
    Suite *suite = suite_create("mpi wrong use");
    TCase *ranks = tcase_create("ranks"), *calls = tcase_create("calls");
    tcase_add_loop_test(ranks, creation_differs, 0, differ_creations);
    tcase_add_loop_test(ranks, calls_differ, 0, differ_calls);
    tcase_add_test(calls, parents_that_are_none);
    tcase_add_test(calls, mpi_fails);
    tcase_add_test(calls, given_up);
    tcase_add_test(calls, the_first_to_give_up_is_named);
    tcase_add_loop_test(calls, pieces_are_held, 0, 3);
    tcase_add_test(calls, ended_within_a_step);
    tcase_add_test(calls, forked);
    tcase_add_loop_test(calls, nodes_of_unlike_size, 0, 4);
    suite_add_tcase(suite, ranks);
    suite_add_tcase(suite, calls);
    int failed = mpi_suite_run(suite);
    MPI_Finalize();
    return !refused_without_mpi("MPI was finalized") || failed > 0 || !good;
}
