// SPDX-License-Identifier: Apache-2.0
/* The engine thread's turns: what it starts before it looks at what is under way. */
#include <check.h>

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
    *done = bed->started >= bed->at_once;
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

int main(void)
{
    Suite *suite = suite_create("queue");
    TCase *tests = tcase_create("turns");
    tcase_add_test(tests, updates_one_by_one);
    tcase_add_test(tests, updates_together);
    tcase_add_test(tests, files_together);
    tcase_add_test(tests, a_failure_is_the_last_look);
    suite_add_tcase(suite, tests);
    return suite_run_all(suite);
}
