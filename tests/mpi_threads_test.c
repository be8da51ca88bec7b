// SPDX-License-Identifier: Apache-2.0
/* Threads that each make an engine of their own at once, in a program that has not
 * started MPI: the library starts it once, under mpirun with any number of ranks. Then
 * forks of the ranks, which have no part in it. */
#include <check.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "include/zero.h"
#include "tests/support/mpi_suite.h"

enum { THREADS = 4 };

struct maker {
    pthread_t thread;
    int status;
    char text[512];
};

static struct maker makers[THREADS];
static pthread_barrier_t together;

static int step_run(struct zero *z)
{
    const struct zero_adam adam = {.lr = 1e-3, .beta1 = .9, .beta2 = .95, .eps = 1e-8};
    int status = zero_set_adam(z, 0, &adam);
    status = status ? status : zero_acquire(z, 0) || zero_release(z, 0) || !zero_grad_data(z, 0);
    status = status ? status : zero_reduce(z, 0);
    return status ? status : zero_step(z, NULL);
}

static int make(struct zero **z)
{
    const struct zero_param param = {.name = "a", .ndim = 1, .shape = {1000}};
    return zero_init(z, &param, 1, .stage = 3, .deadline_seconds = 30);
}

static void *maker_main(void *arg)
{
    struct maker *m = arg;
    struct zero *z = NULL;
    pthread_barrier_wait(&together);
    m->status = make(&z);
    m->status = m->status ? m->status : step_run(z);
    strncpy(m->text, zero_last_error(z), sizeof(m->text) - 1);
    zero_destroy(z);
    return NULL;
}

START_TEST(each_has_an_engine)
{
    ck_assert_msg(makers[_i].status == ZERO_OK, "%s", makers[_i].text);
}
END_TEST

/* Whether a fork of this rank is refused an engine, with the sentence for it. */
static bool fork_is_refused(void)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        struct zero *z = NULL;
        alarm(30); /* for a child that hangs */
        bool good = make(&z) == ZERO_ERR_STATE && strstr(zero_last_error(z), "is a fork");
        if (!good)
            fprintf(stderr, "in a fork: '%s'\n", zero_last_error(z));
        zero_destroy(z);
        _exit(!good);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* With an engine there, and none; those of the ranks go on, and so does MPI's end. */
START_TEST(a_fork_has_no_part)
{
    struct zero *z = NULL;
    ck_assert(all_agree(fork_is_refused(), "without an engine"));
    ck_assert(all_agree(make(&z) == ZERO_OK, zero_last_error(z)));
    ck_assert(all_agree(fork_is_refused(), "with an engine"));
    ck_assert(all_agree(step_run(z) == ZERO_OK, zero_last_error(z)));
    zero_destroy(z);
}
END_TEST

int main(void)
{
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&makers[i].thread, NULL, maker_main, &makers[i]))
            return 1;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(makers[i].thread, NULL);
    pthread_barrier_destroy(&together);

    Suite *suite = suite_create("mpi threads");
    TCase *tests = tcase_create("engines");
    tcase_add_loop_test(tests, each_has_an_engine, 0, THREADS);
    tcase_add_test(tests, a_fork_has_no_part);
    suite_add_tcase(suite, tests);
    return mpi_suite_run(suite) != 0;
}
