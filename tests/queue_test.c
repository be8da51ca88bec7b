// SPDX-License-Identifier: Apache-2.0
/* The engine thread's turns: what it starts before it looks at what is under way. */
#include <check.h>
#include <pthread.h>
#include <unistd.h>

#include "src/queue.h"
#include "tests/support/must.h"
#include "tests/support/suite.h"

enum { COMMANDS_OF = 40 };

/* Commands that are done when so many have been started. */
struct bed {
    int at_once;
    int started, ended, most; /* most: that were under way together */
    bool fails;
    int looked;
};

static bool always(void *arg, const struct command *c)
{
    (void)arg, (void)c;
    return true;
}

static int start(void *arg, struct command *c, struct error *error)
{
    struct bed *bed = arg;
    (void)c;
    bed->started++;
    if (bed->started - bed->ended > bed->most)
        bed->most = bed->started - bed->ended;
    return error->status;
}

static int test(void *arg, struct command *c, bool *done, struct error *error)
{
    struct bed *bed = arg;
    (void)c;
    bed->looked++;
    if (bed->fails)
        return error_set(error, ZERO_ERR_IO, "A command fails.");
    *done = bed->started >= __atomic_load_n(&bed->at_once, __ATOMIC_RELAXED);
    bed->ended += *done;
    return error->status;
}

static void nothing(void *arg)
{
    (void)arg;
}

static const struct queue_ops ops = {
    .ready = always, .start = start, .test = test, .poll = nothing, .failed = nothing};

static void run(struct bed *bed, enum queue_id queue, enum command_kind kind)
{
    struct error error = {0};
    struct queues *queues;
    must(queues_create(&queues, COMMANDS_OF, &error), &error);
    struct command c = command_make(kind, -1, 0, -1, 0);
    for (int i = 0; i < COMMANDS_OF; i++)
        queues_append(queues, queue, &c);
    must(queues_start(queues, &ops, bed, &error), &error);
    queues_stop(queues, true, 20);
    queues_destroy(queues);
    ck_assert_int_eq(bed->started, COMMANDS_OF);
    ck_assert_int_eq(bed->ended, COMMANDS_OF);
}

/* Who waits for the first update hears of it before the last is asked for. */
START_TEST(updates_one_by_one)
{
    struct bed bed = {.at_once = 1};
    run(&bed, QUEUE_UPDATE, COMMAND_UPDATE);
    ck_assert_int_eq(bed.most, 1);
}
END_TEST

/* And a device may have all of them at once. */
START_TEST(updates_together)
{
    struct bed bed = {.at_once = COMMANDS_OF};
    run(&bed, QUEUE_UPDATE, COMMAND_UPDATE);
    ck_assert_int_eq(bed.most, COMMANDS_OF);
}
END_TEST

/* What a ring is given at once it can submit at once. */
START_TEST(files_together)
{
    struct bed bed = {.at_once = 1};
    run(&bed, QUEUE_STATE_DISK, COMMAND_STATE_READ);
    ck_assert_int_eq(bed.most, COMMANDS_OF);
}
END_TEST

/* What else is under way is not looked at behind it. */
START_TEST(a_failure_is_the_last_look)
{
    struct bed bed = {.fails = true};
    struct error error = {0};
    struct queues *queues;
    must(queues_create(&queues, COMMANDS_OF, &error), &error);
    struct command read = command_make(COMMAND_STATE_READ, -1, 0, -1, 0), sum = read;
    sum.kind = COMMAND_SUM;
    for (int i = 0; i < COMMANDS_OF; i++) {
        queues_append(queues, QUEUE_COMM, &sum);
        queues_append(queues, QUEUE_STATE_DISK, &read);
    }
    must(queues_start(queues, &ops, &bed, &error), &error);
    ck_assert_int_eq(queues_wait(queues, queues_tail(queues, QUEUE_COMM), &error), ZERO_ERR_IO);
    queues_stop(queues, true, 20);
    queues_destroy(queues);
    ck_assert_int_eq(bed.looked, 1);
}
END_TEST

struct waiter {
    struct queues *queues;
    struct ref ref;
};

static void *wait_in(void *arg)
{
    struct waiter *w = arg;
    struct error error = {0};
    queues_wait(w->queues, w->ref, &error);
    pthread_testcancel();
    return NULL;
}

/* A thread that is cancelled in a wait leaves the lock to the others. */
START_TEST(a_cancelled_wait_ends_well)
{
    struct bed bed = {.at_once = 2};
    struct error error = {0};
    struct waiter w;
    pthread_t thread;
    void *ended = NULL;
    must(queues_create(&w.queues, COMMANDS_OF, &error), &error);
    struct command sum = command_make(COMMAND_SUM, -1, 0, -1, 0);
    must(queues_start(w.queues, &ops, &bed, &error), &error);
    w.ref = queues_append(w.queues, QUEUE_COMM, &sum);
    ck_assert_int_eq(pthread_create(&thread, NULL, wait_in, &w), 0);
    usleep(100000); /* it sleeps by now */
    ck_assert_int_eq(pthread_cancel(thread), 0);
    usleep(100000);
    ck_assert_int_ne(pthread_tryjoin_np(thread, &ended), 0);
    __atomic_store_n(&bed.at_once, 1, __ATOMIC_RELAXED);
    ck_assert_int_eq(pthread_join(thread, &ended), 0);
    ck_assert_ptr_eq(ended, PTHREAD_CANCELED);
    queues_stop(w.queues, true, 20);
    queues_destroy(w.queues);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("queue");
    TCase *tests = tcase_create("turns");
    tcase_add_test(tests, updates_one_by_one);
    tcase_add_test(tests, updates_together);
    tcase_add_test(tests, files_together);
    tcase_add_test(tests, a_failure_is_the_last_look);
    tcase_add_test(tests, a_cancelled_wait_ends_well);
    suite_add_tcase(suite, tests);
    return suite_run_all(suite);
}
