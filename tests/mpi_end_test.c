// SPDX-License-Identifier: Apache-2.0
/* Engines that fail, or end within a step, and what comes after them in the same
 * process: other engines, and an end that all ranks come to, however late. That MPI
 * has ended as it should is for mpirun to say, which this suite is given to. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "include/zero.h"
#include "tests/support/mpi_suite.h"

enum { ELEMENTS = 1 << 20 };

static int make(struct zero **z)
{
    const struct zero_param param = {.name = "a", .ndim = 1, .shape = {ELEMENTS}};
    const struct zero_adam adam = {.lr = 1e-3, .beta1 = .9, .beta2 = .95, .eps = 1e-8};
    int status =
        zero_init(z, &param, 1, .stage = 3, .deadline_seconds = 30, .log_level = ZERO_LOG_SILENT);
    return status ? status : zero_set_adam(*z, 0, &adam);
}

static struct zero *engine(void)
{
    struct zero *z = NULL;
    ck_assert(all_agree(make(&z) == ZERO_OK, zero_last_error(z)));
    return z;
}

static int backward(struct zero *z)
{
    int status = zero_acquire(z, 0) || zero_release(z, 0) || !zero_grad_data(z, 0);
    return status ? status : zero_reduce(z, 0);
}

START_TEST(ranks_differ)
{
    struct zero *z = engine();
    int status = zero_set_clip(z, zero_rank(z) + 1);
    status = status ? status : zero_acquire(z, 0);
    bool told = status == (zero_size(z) > 1 ? ZERO_ERR_MISMATCH : ZERO_OK);
    ck_assert(all_agree(told, zero_last_error(z)));
    zero_destroy(z);
}
END_TEST

START_TEST(all_end_within_a_step)
{
    struct zero *z = engine();
    ck_assert(all_agree(backward(z) == ZERO_OK, zero_last_error(z)));
    zero_destroy(z);
}
END_TEST

/* The first rank; the others are told. */
START_TEST(one_ends_within_a_step)
{
    struct zero *z = engine();
    int status = backward(z);
    if (zero_rank(z) > 0 && !status)
        status = zero_step(z, NULL);
    bool first = zero_rank(z) == 0, told = strstr(zero_last_error(z), "called zero_destroy") ||
                                           strstr(zero_last_error(z), "gave up before");
    char text[512];
    snprintf(text, sizeof(text), "%s", zero_last_error(z));
    zero_destroy(z); /* before the others' verdict, which waits for it */
    ck_assert(all_agree(first ? !status : told, text));
}
END_TEST

static void *reads_a_stream(void *arg)
{
    (void)getc(arg);
    return NULL;
}

/* A thread of the program's that waits for input, as for a user's, holds its stream: the end does
 * not wait for that. */
START_TEST(a_thread_reads)
{
    static int ends[2];
    pthread_t thread;
    FILE *stream = pipe(ends) ? NULL : fdopen(ends[0], "re");
    ck_assert_ptr_nonnull(stream);
    ck_assert_int_eq(pthread_create(&thread, NULL, reads_a_stream, stream), 0);
    ck_assert_int_eq(pthread_detach(thread), 0);
}
END_TEST

START_TEST(another_trains)
{
    struct zero *z = engine();
    for (int step = 0; step < 3; step++) {
        int status = backward(z) || zero_step(z, NULL);
        ck_assert(all_agree(status == ZERO_OK, zero_last_error(z)));
    }
    zero_destroy(z);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mpi end");
    TCase *tests = tcase_create("engines");
    tcase_add_test(tests, ranks_differ);
    tcase_add_test(tests, all_end_within_a_step);
    tcase_add_test(tests, one_ends_within_a_step);
    tcase_add_test(tests, another_trains);
    tcase_add_test(tests, a_thread_reads);
    suite_add_tcase(suite, tests);
    struct zero *first = NULL;
    if (make(&first)) /* starts MPI */
        return 1;
    zero_destroy(first);
    int failed = mpi_suite_run(suite);
    if (world_rank() == 0)
        sleep(1); /* it has work left, which the others must not end */
    return failed != 0;
}
