// SPDX-License-Identifier: Apache-2.0
/* What SIGTERM and SIGINT do to a program before, in and after a run; each test
 * is a process of its own. What they do to ranks together is tests/dying.sh's. */
#include <check.h>
#include <signal.h>
#include <unistd.h>

#include "examples/common/stop.h"
#include "src/engine.h"
#include "tests/support/suite.h"

static struct zero *engine(void)
{
    struct zero_param p = {.name = "a", .ndim = 1, .shape = {64}};
    struct zero *z;
    ck_assert_int_eq(zero_init(&z, &p, 1, .stage = 0), ZERO_OK);
    ck_assert_int_eq(zero_set_adam(z, 0, &(struct zero_adam){.lr = .01, .eps = 1e-8}), ZERO_OK);
    return z;
}

/* Sends a signal, and waits until it is taken. */
static void send(int number)
{
    sigset_t pending;
    kill(getpid(), number);
    do {
        usleep(1000);
        sigpending(&pending);
    } while (sigismember(&pending, number));
}

static int voted(struct zero *z)
{
    struct zero_step_info info;
    ck_assert_int_eq(stop_vote(z), ZERO_OK);
    ck_assert_int_eq(zero_reduce(z, 0), ZERO_OK);
    ck_assert_int_eq(zero_step(z, &info), ZERO_OK);
    return stop_voted(info.votes);
}

static const int numbers[] = {SIGTERM, SIGINT};

START_TEST(the_first_is_noted)
{
    stop_begin();
    struct zero *z = engine();
    stop_watch(z);
    ck_assert_int_eq(voted(z), 0);
    ck_assert_int_eq(engine_deadline(z), 300);
    send(numbers[_i]);
    while (!stop_asked())
        usleep(1000);
    ck_assert_int_eq(stop_asked(), numbers[_i]);
    ck_assert_int_eq(voted(z), numbers[_i]);
    while (engine_deadline(z) != STOP_DEADLINE)
        usleep(1000);
    stop_agreed(77);
    ck_assert_int_eq(engine_deadline(z), 77);
    stop_watch(NULL);
    zero_destroy(z);
}
END_TEST

/* A rank may be told when the others already agreed. */
START_TEST(behind_the_last_step_it_shortens_nothing)
{
    stop_begin();
    struct zero *z = engine();
    stop_watch(z);
    stop_agreed(77);
    send(SIGTERM);
    while (!stop_asked())
        usleep(1000);
    usleep(50000); /* to be shortened in */
    ck_assert_int_eq(engine_deadline(z), 77);
    stop_watch(NULL);
    zero_destroy(z);
}
END_TEST

START_TEST(all_ranks_take_one_of_two)
{
    ck_assert_int_eq(stop_voted(1), SIGTERM);
    ck_assert_int_eq(stop_voted(2), SIGINT);
    ck_assert_int_eq(stop_voted(3), SIGTERM);
    ck_assert_int_eq(stop_voted(4), 0);
    ck_assert_str_eq(stop_name(SIGTERM), "SIGTERM");
    ck_assert_str_eq(stop_name(SIGINT), "SIGINT");
}
END_TEST

/* timeout signals a process and its group: that is one request. */
START_TEST(what_follows_at_once_is_the_same)
{
    stop_begin();
    stop_watch(engine());
    send(SIGTERM);
    send(SIGTERM);
    send(SIGINT);
    usleep(50000); /* to die in */
    ck_assert_int_eq(stop_asked(), SIGTERM);
}
END_TEST

/* As nohup leaves SIGHUP, and a shell a background command's SIGINT. */
START_TEST(what_is_ignored_stays_so)
{
    signal(SIGINT, SIG_IGN);
    stop_begin();
    stop_watch(engine());
    send(SIGINT);
    send(SIGTERM);
    while (!stop_asked())
        usleep(1000);
    ck_assert_int_eq(stop_asked(), SIGTERM);
}
END_TEST

/* The run is complete, or has failed: the process ends with the status of that. */
START_TEST(behind_a_run_it_changes_nothing)
{
    stop_begin();
    struct zero *z = engine();
    stop_watch(z);
    stop_watch(NULL);
    zero_destroy(z);
    send(numbers[_i]);
    while (!stop_asked())
        usleep(1000);
    usleep(50000); /* to die in */
    ck_assert_int_eq(stop_asked(), numbers[_i]);
}
END_TEST

START_TEST(before_a_run_it_ends_the_process)
{
    stop_begin();
    send(numbers[_i]);
    pause();
}
END_TEST

START_TEST(a_second_ends_the_process)
{
    stop_begin();
    stop_watch(engine());
    send(SIGTERM);
    usleep(1200000);
    send(numbers[_i]);
    pause();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("stop");
    TCase *c = tcase_create("signals");
    tcase_set_timeout(c, 20);
    tcase_add_loop_test(c, the_first_is_noted, 0, 2);
    tcase_add_test(c, behind_the_last_step_it_shortens_nothing);
    tcase_add_test(c, all_ranks_take_one_of_two);
    tcase_add_test(c, what_follows_at_once_is_the_same);
    tcase_add_test(c, what_is_ignored_stays_so);
    tcase_add_loop_test(c, behind_a_run_it_changes_nothing, 0, 2);
    tcase_add_loop_test_raise_signal(c, before_a_run_it_ends_the_process, SIGTERM, 0, 1);
    tcase_add_loop_test_raise_signal(c, before_a_run_it_ends_the_process, SIGINT, 1, 2);
    tcase_add_loop_test_raise_signal(c, a_second_ends_the_process, SIGTERM, 0, 1);
    tcase_add_loop_test_raise_signal(c, a_second_ends_the_process, SIGINT, 1, 2);
    suite_add_tcase(s, c);
    return suite_run_all(s);
}
