// SPDX-License-Identifier: Apache-2.0
/* One rank's program ends MPI with its engine alive, as one does that has failed by itself: the
 * others hear so in the call that waits for it, long before the deadline, under mpirun with any
 * number of ranks. It itself comes back from MPI_Finalize when they have come there too. One rank
 * alone needs no MPI. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "include/zero.h"
#include "tests/support/mpi_suite.h"

enum { STEPS = 3 };

static struct zero *z;
static bool leaves, alone; /* leaves: this rank, the last */
static int status;
static char text[512];

START_TEST(heard)
{
    /* Of several that give up then, one hears of the first. */
    const char *says =
        leaves ? "MPI_Finalize while an engine still existed" : "Look for its own error";
    ck_assert_str_eq(zero_status_name(status), alone ? "ZERO_OK" : "ZERO_ERR_COMM");
    ck_assert_msg(alone || strstr(text, says), "%s", text);
}
END_TEST

static int step(void)
{
    int failed = zero_acquire(z, 0) || zero_release(z, 0) || !zero_grad_data(z, 0) ||
                 zero_reduce(z, 0) || zero_step(z, NULL);
    return failed ? zero_digest(z, &(struct zero_digest){0}) : ZERO_OK;
}

/* What the last call said is kept: it is looked at when no rank waits for another any more. */
static void run(void)
{
    const struct zero_adam adam = {.lr = 1e-3, .beta1 = .9, .beta2 = .95, .eps = 1e-8};
    const struct zero_param param = {.name = "a", .ndim = 1, .shape = {100000}};
    status = zero_init(&z, &param, 1, .stage = 3, .offload = ZERO_HOST, .deadline_seconds = 60,
                       .log_level = ZERO_LOG_SILENT);
    status = status ? status : zero_set_adam(z, 0, &adam);
    for (int i = 0; i < (leaves ? 1 : 2) * STEPS && !status; i++)
        status = step();
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    int rank = world_rank();
    leaves = rank == world_size() - 1;
    alone = world_size() == 1;
    run();
    if (leaves) {
        MPI_Finalize();
        status = zero_digest(z, &(struct zero_digest){0});
    }
    snprintf(text, sizeof(text), "%s", z ? zero_last_error(z) : "");
    zero_destroy(z);
    if (!leaves)
        MPI_Finalize();

    Suite *suite = suite_create("a rank that leaves");
    TCase *tests = tcase_create("engine");
    tcase_add_test(tests, heard);
    suite_add_tcase(suite, tests);
    return mpi_suite_run_own(suite, rank == 0) != 0;
}
