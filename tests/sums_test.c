// SPDX-License-Identifier: Apache-2.0
/* What programs learn of all their ranks (examples/common/ranks.h), on 1 to 7 ranks. */
#include <check.h>

#include "examples/common/ranks.h"
#include "tests/support/ranks.h"
#include "tests/support/suite.h"

#define RANKS 7

#define LARGE (1LL << 48)

/* The largest first, last and in between; alike; zeros; whole numbers as large as may be. */
static const struct values {
    int64_t of[RANKS], most[RANKS + 1]; /* of so many ranks */
} values[] = {
    {{7, 1, 2, 3, 6, 8, 8}, {0, 7, 7, 7, 7, 7, 8, 8}},
    {{1, 2, 9, 4, 12, 3, 11}, {0, 1, 2, 9, 9, 12, 12, 12}},
    {{5, 5, 5, 5, 5, 5, 5}, {0, 5, 5, 5, 5, 5, 5, 5}},
    {{0, 0, 0, 0, 1, 0, 0}, {0, 0, 0, 0, 0, 1, 1, 1}},
    {{LARGE + 1, LARGE, LARGE + 2, 3, LARGE, LARGE + 2, LARGE + 3},
     {0, LARGE + 1, LARGE + 1, LARGE + 2, LARGE + 2, LARGE + 2, LARGE + 2, LARGE + 3}},
    {{LARGE + 29, LARGE + 29, LARGE + 29, LARGE + 29, LARGE + 29, LARGE + 29, LARGE + 29},
     {0, LARGE + 29, LARGE + 29, LARGE + 29, LARGE + 29, LARGE + 29, LARGE + 29, LARGE + 29}},
};

static int ranks;

static void ask(int rank, struct zero_comm *comm, void *arg)
{
    static const struct zero_param one = {.name = "one", .ndim = 1, .shape = {64}};
    const struct zero_config config = {.size = sizeof(config), .comm = comm, .threads = 1};
    const struct values *v = arg;
    struct zero *z;
    double all = -1, sum = 0;
    int64_t most = -1;
    bool alike = false;
    ck_assert_int_eq(zero_create(&z, &one, 1, &config), ZERO_OK);
    for (int r = 0; r < ranks; r++)
        sum += (double)v->of[r];
    ck_assert_int_eq(ranks_sum(z, (double)v->of[rank], &all), ZERO_OK);
    ck_assert(all >= sum && all <= sum);
    ck_assert_int_eq(ranks_most(z, v->of[rank], &most), ZERO_OK);
    ck_assert_int_eq(most, v->most[ranks]);
    ck_assert_int_eq(ranks_alike(z, ~(uint64_t)0, &alike), ZERO_OK);
    ck_assert(alike);
    uint64_t odd = rank == ranks - 1;
    ck_assert_int_eq(ranks_alike(z, odd << 32, &alike), ZERO_OK);
    ck_assert(alike == (ranks == 1));
    zero_destroy(z);
}

START_TEST(all_ranks_learn)
{
    for (ranks = 1; ranks <= RANKS; ranks++)
        ranks_run(ranks, ask, (void *)(uintptr_t)&values[_i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sums");
    TCase *tests = tcase_create("sums");
    tcase_add_loop_test(tests, all_ranks_learn, 0, sizeof(values) / sizeof(*values));
    suite_add_tcase(suite, tests);
    return suite_run_all(suite);
}
