// SPDX-License-Identifier: Apache-2.0
/*
 * Transfers that are cut: engines over MPI whose transfers are larger than the
 * limit above which one becomes several (1 GiB, here lowered to 1 MiB and to an
 * odd number of bytes) end in the same bits as with the limit as it is. The
 * chunks are larger than the ring's block, too. Any number of ranks under mpirun;
 * the contract suite under 300 bytes is tests/mpi_test.c.
 */
#include <assert.h>
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "include/zero_mpi.h"
#include "offload/ring.h"
#include "src/comm/comm.h"
#include "tests/support/mpi_suite.h"

#define UNITS    2
#define ELEMENTS (3 << 20) /* of a unit: 6 MiB to gather, 12 MiB of sums */
#define STEPS    2

/* An assertion that only one of the ranks fails would leave the others waiting. */
static int train_unit(struct zero *z, int u, int step)
{
    int status = zero_acquire(z, u);
    const uint16_t *w = status ? NULL : zero_param_data(z, u);
    uint16_t *g = w ? zero_grad_data(z, u) : NULL;
    for (int i = 0; g && i < ELEMENTS; i++) /* half of the parameter, of another sign by rank */
        g[i] = (uint16_t)((w[i] & 0x7FFF ? w[i] - 0x80 : 0) ^
                          ((i * 7 + step + zero_rank(z)) % 3 ? 0 : 0x8000));
    return status || !g || zero_release(z, u) || zero_reduce(z, u);
}

static int train(struct zero *z)
{
    const struct zero_adam adam = {.lr = .01, .beta1 = .9, .beta2 = .95, .eps = 1e-8};
    int status = zero_set_adam(z, 0, &adam);
    for (int s = 0; !status && s < STEPS; s++) {
        for (int u = UNITS - 1; !status && u >= 0; u--)
            status = train_unit(z, u, s);
        if (!status)
            status = zero_step(z, NULL);
    }
    return status;
}

static struct zero_digest run(int stage, int64_t limit)
{
    static const struct zero_normal fill = {.seed = 3, .std = 0.5f};
    struct zero_param params[UNITS] = {{.name = "a"}, {.name = "b", .unit = 1}};
    struct zero_comm *comm;
    struct zero_digest digest = {0};
    struct zero *z;
    char text[512] = "";
    for (int u = 0; u < UNITS; u++) {
        params[u].ndim = 1;
        params[u].shape[0] = ELEMENTS;
        params[u].fill = zero_fill_normal;
        params[u].fill_arg = (void *)(uintptr_t)&fill;
    }
    ck_assert(all_agree(!zero_comm_mpi(MPI_COMM_WORLD, &comm, text, sizeof(text)), text));
    if (limit)
        comm_mpi_transfer_max(comm, limit);
    int status = zero_init(&z, params, UNITS, .stage = stage, .dtype = ZERO_BF16, .comm = comm,
                           .offload_optimizer = ZERO_NVME, .threads = 1);
    if (!status)
        status = train(z);
    if (!status)
        status = zero_digest(z, &digest);
    bool good = all_agree(status == ZERO_OK, zero_last_error(z));
    zero_destroy(z);
    comm->ops->destroy(comm);
    ck_assert(good);
    return digest;
}

START_TEST(limits_change_no_bit)
{
    static_assert(ZERO_CHUNK_NVME * 12 > RING_BLOCK, "a chunk's record is cut by the ring");
    const int stages[] = {0, 1, 3};
    struct zero_digest expected = run(stages[_i], 0);
    const int64_t limits[] = {1 << 20, 100001};
    for (int k = 0; k < 2; k++) {
        struct zero_digest digest = run(stages[_i], limits[k]);
        ck_assert(all_agree(!memcmp(&digest, &expected, sizeof(digest)), "other bits"));
    }
}
END_TEST

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    Suite *suite = suite_create("mpi large");
    TCase *tests = tcase_create("limits");
    tcase_add_loop_test(tests, limits_change_no_bit, 0, 3);
    suite_add_tcase(suite, tests);
    int failed = mpi_suite_run(suite);
    MPI_Finalize();
    return failed != 0;
}
