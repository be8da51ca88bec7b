// SPDX-License-Identifier: Apache-2.0
/* What programs say they took of the machine, beside what the kernel says of the process. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "examples/common/usage.h"
#include "tests/support/suite.h"

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Keeps a CPU for so long; a thread's account may be a tick behind, so it sleeps once. */
static void work(double much)
{
    for (double end = seconds(CLOCK_THREAD_CPUTIME_ID) + much;
         seconds(CLOCK_THREAD_CPUTIME_ID) < end;)
        ;
    usleep(1000);
}

static pthread_barrier_t worked, counted;

static void *work_named(void *name)
{
    prctl(PR_SET_NAME, name);
    work(0.2);
    pthread_barrier_wait(&worked);
    pthread_barrier_wait(&counted);
    return NULL;
}

START_TEST(threads_counted_once)
{
    static char names[][16] = {"libzero engine", "mine"};
    pthread_t threads[2];
    struct usage_cpu program, library;
    if (access("/proc/self/schedstat", R_OK) != 0) {
        printf("skipped: this kernel keeps no accounts of threads\n");
        return;
    }
    pthread_barrier_init(&worked, NULL, 3);
    pthread_barrier_init(&counted, NULL, 3);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work_named, names[i]), 0);
    work(0.4);
    pthread_barrier_wait(&worked);
    double before = seconds(CLOCK_PROCESS_CPUTIME_ID);
    usage_cpu(&program, &library);
    double after = seconds(CLOCK_PROCESS_CPUTIME_ID);
    pthread_barrier_wait(&counted);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    ck_assert_double_ge_tol(library.ran, 0.2, 0.02);
    ck_assert_double_le_tol(library.ran, 0.2, 0.1);
    ck_assert_double_ge_tol(program.ran, 0.6, 0.02);
    ck_assert_double_ge_tol(program.ran + library.ran, before, 0.02);
    ck_assert_double_le_tol(program.ran + library.ran, after, 0.02);
}
END_TEST

/* Files that have no name any more, in folders that are asked about; of others none. */
START_TEST(files_without_names)
{
    char folder[] = "/tmp/usage.XXXXXX", path[64], both[64], block[4096] = {1};
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/file", folder);
    snprintf(both, sizeof(both), "/proc:%s", folder);
    int64_t before = usage_files(folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    for (int i = 0; i < 16; i++)
        ck_assert_int_eq(write(fd, block, sizeof(block)), sizeof(block));
    fsync(fd);
    ck_assert_int_eq(usage_files(folder), before);
    unlink(path);
    ck_assert_int_ge(usage_files(folder) - before, 16 * (int)sizeof(block));
    ck_assert_int_ge(usage_files(both) - before, 16 * (int)sizeof(block));
    ck_assert_int_eq(usage_files("/proc"), 0);
    ck_assert_int_eq(usage_files(""), 0);
    close(fd);
    ck_assert_int_eq(usage_files(folder), before);
    rmdir(folder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("usage");
    TCase *tests = tcase_create("usage");
    tcase_add_test(tests, threads_counted_once);
    tcase_add_test(tests, files_without_names);
    suite_add_tcase(suite, tests);
    return suite_run_all(suite);
}
