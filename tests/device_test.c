// SPDX-License-Identifier: Apache-2.0
/* What runs beside the caller: the pool's jobs and the CPU device's streams. */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "offload/ring.h"
#include "src/device/device.h"
#include "src/pool.h"
#include "tests/support/deny.h"
#include "tests/support/device_suite.h"
#include "tests/support/must.h"
#include "tests/support/suite.h"

#define MIB ((int64_t)1 << 20)

static int event_make(void)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ck_assert_int_ge(fd, 0);
    return fd;
}

static void event_wait(int fd)
{
    struct pollfd event = {fd, POLLIN, 0};
    ck_assert_int_eq(poll(&event, 1, 20000), 1); /* 20 s: lost */
    uint64_t count;
    ck_assert_int_eq(read(fd, &count, sizeof(count)), sizeof(count));
}

/* ------------------------------------------------------------------- pool */

#define TASKS_MAX 1000

/* Plain integers: TSan sees a task that runs twice or a result read too early. */
static void task_count(void *arg, int64_t index)
{
    ((int *)arg)[index]++;
}

static void job_run(struct pool *pool, int event_fd, int *counts, int64_t tasks)
{
    int64_t number = pool_start(pool, task_count, counts, tasks, false);
    while (!pool_done(pool, number))
        event_wait(event_fd);
}

START_TEST(pool_each_task_once)
{
    int threads = _i, event_fd = event_make();
    struct error error = {0};
    struct pool *pool;
    must(pool_create(&pool, threads, event_fd, &error), &error);
    ck_assert(pool_done(pool, 0));
    static int counts[TASKS_MAX];
    static const int64_t sizes[] = {0, 1, 2, 7, 64, TASKS_MAX};
    int expected[TASKS_MAX] = {0};
    for (int job = 0; job < 300; job++) {
        int64_t tasks = sizes[job % 6];
        job_run(pool, event_fd, counts, tasks);
        for (int64_t i = 0; i < tasks; i++)
            expected[i]++;
        ck_assert_int_eq(memcmp(counts, expected, sizeof(counts)), 0);
    }
    pool_destroy(pool);
    close(event_fd);
}
END_TEST

/* Also a job without tasks ends with an event. */
START_TEST(pool_writes_event)
{
    int event_fd = event_make(), count = 0;
    struct error error = {0};
    struct pool *pool;
    must(pool_create(&pool, 2, event_fd, &error), &error);
    for (int64_t tasks = 0; tasks < 2; tasks++) {
        int64_t number = pool_start(pool, task_count, &count, tasks, false);
        event_wait(event_fd);
        ck_assert(pool_done(pool, number));
        ck_assert_int_eq(count, (int)tasks);
    }
    pool_destroy(pool);
    close(event_fd);
}
END_TEST

/* As many jobs at once as there is room for, over and over: each has its own tasks, and is done
 * when these are, whatever others do. */
START_TEST(pool_many_jobs)
{
    static int counts[POOL_JOBS][7];
    int64_t number[POOL_JOBS] = {0};
    int event_fd = event_make();
    struct error error = {0};
    struct pool *pool;
    must(pool_create(&pool, _i, event_fd, &error), &error);
    for (int64_t job = 0; job < 50 * POOL_JOBS; job++) {
        int64_t i = job % POOL_JOBS, round = job / POOL_JOBS;
        while (number[i] && !pool_done(pool, number[i]))
            event_wait(event_fd);
        for (int t = 0; t < 7; t++)
            ck_assert_int_eq(counts[i][t], round * (t < i % 8));
        number[i] = pool_start(pool, task_count, counts[i], i % 8, job % 3 > 0);
        ck_assert_int_eq(number[i], job + 1);
    }
    pool_destroy(pool);
    close(event_fd);
}
END_TEST

static void task_wait(void *arg, int64_t index)
{
    while (index == 0 && !__atomic_load_n((bool *)arg, __ATOMIC_ACQUIRE))
        sched_yield();
}

/* Quiet jobs end without an event while another one is to come, but for each POOL_QUIET-th. */
START_TEST(pool_tells_of_quiet_jobs_together)
{
    bool go[POOL_QUIET + 2] = {false};
    int64_t number[POOL_QUIET + 2];
    int event_fd = event_make();
    struct pollfd event = {event_fd, POLLIN, 0};
    struct error error = {0};
    struct pool *pool;
    must(pool_create(&pool, 1, event_fd, &error), &error);
    for (int i = 0; i < POOL_QUIET + 2; i++)
        number[i] = pool_start(pool, task_wait, &go[i], 1, true);
    for (int i = 0; i < POOL_QUIET + 2; i++) {
        bool told = number[i] % POOL_QUIET == 0 || i == POOL_QUIET + 1;
        ck_assert(!pool_done(pool, number[i]));
        __atomic_store_n(&go[i], true, __ATOMIC_RELEASE);
        while (!pool_done(pool, number[i]))
            sched_yield();
        ck_assert_int_eq(poll(&event, 1, 0), told);
        if (told)
            event_wait(event_fd);
    }
    pool_destroy(pool);
    close(event_fd);
}
END_TEST

START_TEST(pool_destroy_ends_jobs)
{
    static int counts[3][TASKS_MAX];
    for (int round = 1; round <= 20; round++) {
        int event_fd = event_make();
        struct error error = {0};
        struct pool *pool;
        must(pool_create(&pool, 4, event_fd, &error), &error);
        for (int job = 0; job < 3; job++)
            pool_start(pool, task_count, counts[job], TASKS_MAX, job == 1);
        pool_destroy(pool);
        for (int job = 0; job < 3; job++)
            for (int i = 0; i < TASKS_MAX; i++)
                ck_assert_int_eq(counts[job][i], round);
        close(event_fd);
    }
    pool_destroy(NULL);
}
END_TEST

static void task_signals(void *arg, int64_t index)
{
    (void)index;
    sigset_t *mask = arg;
    pthread_sigmask(SIG_SETMASK, NULL, mask);
}

/* The program's handlers stay in the program's threads. */
START_TEST(pool_blocks_signals)
{
    sigset_t mask, before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    int event_fd = event_make();
    struct error error = {0};
    struct pool *pool;
    must(pool_create(&pool, 1, event_fd, &error), &error);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    ck_assert_int_eq(sigismember(&before, SIGUSR1), sigismember(&after, SIGUSR1));
    int64_t number = pool_start(pool, task_signals, &mask, 1, false);
    while (!pool_done(pool, number))
        event_wait(event_fd);
    ck_assert(sigismember(&mask, SIGUSR1) && sigismember(&mask, SIGXFSZ));
    ck_assert(!sigismember(&mask, SIGSEGV));
    pool_destroy(pool);
    close(event_fd);
}
END_TEST

/* ----------------------------------------------------------------- device */

#define STREAMS 2 /* that copy between the memories */

static struct device *device_make(const char *cap, int event_fd)
{
    if (cap != NULL)
        setenv("ZERO_DEVICE_MEMORY", cap, 1);
    else
        unsetenv("ZERO_DEVICE_MEMORY");
    struct error error = {0};
    struct device *device;
    must(device_cpu_create(&device, &(struct device_options){.event_fd = event_fd}, &error),
         &error);
    return device;
}

static void copies_wait(struct device *device, int event_fd, struct device_copy *copies, int count)
{
    for (int i = 0; i < count; i++)
        while (!device->ops->copied(device, &copies[i]))
            event_wait(event_fd);
}

START_TEST(device_memory)
{
    int event_fd = event_make();
    struct device *device = device_make(NULL, event_fd);
    struct error error = {0};
    char *a = device->ops->alloc(device, 5 * MIB, &error);
    char *b = device->ops->alloc(device, 100, &error);
    must(error.status, &error);
    ck_assert_uint_eq((uintptr_t)a % (uintptr_t)(2 * MIB), 0);
    ck_assert_uint_eq((uintptr_t)b % (uintptr_t)(2 * MIB), 0);
    for (int64_t i = 0; i < 5 * MIB; i++)
        if (a[i] != 0)
            ck_abort_msg("not zero");
    memset(a, 1, 5 * MIB);
    device->ops->destroy(device); /* they go with it */
    close(event_fd);
}
END_TEST

START_TEST(device_cap)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } caps[] = {{"3145728", 3 * MIB}, {"3072K", 3 * MIB}, {"3m", 3 * MIB}};
    for (int i = 0; i < 3; i++) {
        int event_fd = event_make();
        struct device *device = device_make(caps[i].text, event_fd);
        struct error error = {0};
        ck_assert_ptr_nonnull(device->ops->alloc(device, 2 * MIB, &error));
        ck_assert_ptr_null(device->ops->alloc(device, MIB + 1, &error));
        ck_assert_int_eq(error.status, ZERO_ERR_MEMORY);
        ck_assert_msg(strstr(error.text, "1048577 bytes of device memory are needed, 1048576 of "
                                         "3145728 are free") != NULL,
                      "%s", error.text);
        error = (struct error){0};
        ck_assert_ptr_nonnull(device->ops->alloc(device, MIB, &error));
        device->ops->destroy(device);
        close(event_fd);
    }
}
END_TEST

START_TEST(device_cap_malformed)
{
    static const char *const texts[] = {"",
                                        "0",
                                        "-1",
                                        " 5",
                                        "5 G",
                                        "4GB",
                                        "1.5G",
                                        "abc",
                                        "K",
                                        "9223372036854775808",
                                        "9007199254740992K"};
    int event_fd = event_make();
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        setenv("ZERO_DEVICE_MEMORY", texts[i], 1);
        struct error error = {0};
        struct device *device;
        ck_assert_msg(device_cpu_create(&device, &(struct device_options){.event_fd = event_fd},
                                        &error) == ZERO_ERR_ARGUMENT,
                      "'%s'", texts[i]);
        ck_assert_ptr_null(device);
        ck_assert_ptr_nonnull(strstr(error.text, "ZERO_DEVICE_MEMORY="));
        ck_assert_ptr_nonnull(strstr(error.text, texts[i]));
    }
    close(event_fd);
}
END_TEST

/* Each copy of a chain reads what the one before it wrote. */
START_TEST(device_copies_in_order)
{
    enum { LINKS = 200, BYTES = 10000 };
    int event_fd = event_make();
    struct device *device = device_make(NULL, event_fd);
    static char data[STREAMS][LINKS + 1][BYTES];
    static struct device_copy copies[STREAMS][LINKS];
    for (int s = 0; s < STREAMS; s++)
        memset(data[s][0], 'a' + s, BYTES);
    for (int i = 0; i < LINKS; i++)
        for (int s = 0; s < STREAMS; s++) {
            copies[s][i] =
                (struct device_copy){.to = data[s][i + 1], .from = data[s][i], .bytes = BYTES};
            device->ops->copy(device, (enum device_stream)s, &copies[s][i]);
        }
    for (int s = 0; s < STREAMS; s++) {
        copies_wait(device, event_fd, copies[s], LINKS);
        for (int i = 0; i < BYTES; i++)
            ck_assert_int_eq(data[s][LINKS][i], 'a' + s);
    }
    device->ops->destroy(device);
    close(event_fd);
}
END_TEST

/* A copy that is done is the caller's: it may be used again at once, and what
 * it wrote may be read (TSan watches both). */
START_TEST(device_copy_reused)
{
    int event_fd = event_make();
    struct device *device = device_make(NULL, event_fd);
    enum { COUNT = 1 << 18 };
    static int64_t from[COUNT], to[COUNT];
    struct device_copy copy = {.to = to, .from = from};
    for (int64_t round = 1; round <= 100; round++) {
        int64_t count = round % 5 == 0 ? COUNT : 64;
        copy.bytes = count * 8;
        for (int64_t i = 0; i < count; i++)
            from[i] = round + i;
        device->ops->copy(device, round % 2 ? DEVICE_TO_HOST_MEMORY : DEVICE_TO_DEVICE_MEMORY,
                          &copy);
        while (!device->ops->copied(device, &copy))
            ;
        ck_assert_int_eq(to[count - 1], round + count - 1);
        ck_assert_int_eq(memcmp(to, from, (size_t)copy.bytes), 0);
        memset(to, 0, (size_t)copy.bytes);
    }
    device->ops->destroy(device);
    close(event_fd);
}
END_TEST

START_TEST(device_contract)
{
    static char host[DEVICE_SUITE_HOST];
    struct error error = {0};
    int event_fd = event_make();
    struct device *device;
    const struct device_options options = {event_fd, kernels_select(NULL, &error), NULL, 0, 2};
    must(device_cpu_create(&device, &options, &error), &error);
    must(device->ops->pin(device, host, sizeof(host), &error), &error);
    if (_i != DEVICE_SUITE_STAGED) /* its memory is the host's: nothing is staged */
        device_suite_run(_i, device, host);
    device->ops->destroy(device);
    close(event_fd);
}
END_TEST

/* Whichever call the C library makes threads with. */
static void threads_deny(void)
{
    ck_assert(deny_call(SYS_clone3, 0, 0, 0, EAGAIN));
    ck_assert(deny_call(SYS_clone, 0, CLONE_THREAD, CLONE_THREAD, EAGAIN));
}

/* Threads that cannot be had are an error, not a crash. */
START_TEST(threads_refused)
{
    threads_deny();
    int event_fd = event_make();
    struct error error = {0};
    struct pool *pool = NULL;
    struct device *device = NULL;
    unsetenv("ZERO_DEVICE_MEMORY");
    struct ring *ring = NULL;
    const struct stripes files = {.files = 1};
    if (_i == 0)
        ck_assert_int_eq(pool_create(&pool, 3, event_fd, &error), ZERO_ERR_MEMORY);
    else if (_i == 1)
        ck_assert_int_eq(
            ring_posix_create(&ring, &(struct ring_options){.event_fd = event_fd, .files = &files},
                              &error),
            ZERO_ERR_MEMORY);
    else
        ck_assert_int_eq(
            device_cpu_create(&device, &(struct device_options){.event_fd = event_fd}, &error),
            ZERO_ERR_MEMORY);
    ck_assert(pool == NULL && ring == NULL && device == NULL);
    ck_assert_ptr_nonnull(strstr(error.text, "be started: Resource temporarily unavailable"));
    close(event_fd);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device");
    TCase *pool = tcase_create("pool");
    tcase_set_timeout(pool, 60);
    tcase_add_loop_test(pool, pool_each_task_once, 1, 9);
    tcase_add_test(pool, pool_writes_event);
    tcase_add_loop_test(pool, pool_many_jobs, 1, 5);
    tcase_add_test(pool, pool_tells_of_quiet_jobs_together);
    tcase_add_test(pool, pool_destroy_ends_jobs);
    tcase_add_test(pool, pool_blocks_signals);
    suite_add_tcase(suite, pool);

    TCase *device = tcase_create("device");
    tcase_set_timeout(device, 60);
    tcase_add_test(device, device_memory);
    tcase_add_test(device, device_cap);
    tcase_add_test(device, device_cap_malformed);
    tcase_add_test(device, device_copies_in_order);
    tcase_add_test(device, device_copy_reused);
    tcase_add_loop_test(device, device_contract, 0, DEVICE_SUITE_CASES);
    tcase_add_loop_test(device, threads_refused, 0, 3);
    suite_add_tcase(suite, device);
    return suite_run_all(suite);
}
