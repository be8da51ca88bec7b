// SPDX-License-Identifier: Apache-2.0
/* Ranks that start under mpirun, beside one that never comes to MPI, or leaves too soon. */
#include <check.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/clock.h"
#include "src/comm/comm.h"
#include "tests/support/deny.h"
#include "tests/support/suite.h"

#define REFUSED 7 /* exit status of a rank that was told what it should be */
#define TOLD    8 /* of one that heard of another's end */

static char program[512];

/* What each rank does. */
static int rank_main(void)
{
    struct zero_comm *comm;
    bool told = true;
    for (int i = 0; i < 2; i++) { /* MPI dies of being started a second time */
        struct error error = {0};
        int status = comm_default_create(ZERO_CPU, 1, &comm, &error);
        puts(error.text);
        told &= status == ZERO_ERR_DEADLINE && !comm &&
                !strncmp(error.text,
                         "MPI did not bring this job's ranks together within 1 s: a rank may not "
                         "have called",
                         82);
    }
    return told ? REFUSED : 1;
}

/* A rank whose launcher is of another kind of MPI: it would train alone. */
static int alone_main(void)
{
    struct zero_comm *comm;
    struct error error = {0};
    int status = comm_default_create(ZERO_CPU, 1, &comm, &error);
    puts(error.text);
    char sentence[48];
    snprintf(sentence, sizeof(sentence), "This job has 3 ranks (%s is set)",
             getenv("PMI_SIZE") ? "PMI_SIZE" : "PMIX_RANK");
    bool told =
        status == ZERO_ERR_UNSUPPORTED && !comm && !strncmp(error.text, sentence, strlen(sentence));
    return told ? REFUSED : 1;
}

/* Of a program that exits with an engine the sanitizer has more to say than is asked here. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);

const char *__tsan_default_options(void)
{
    return "report_thread_leaks=0";
}

/* Rank 1 leaves as programs do: after a failure, with its engine or without, or with success;
 * rank 0 waits for it, or (late) computes. */
static int leaves_main(const char *how)
{
    static struct zero *z; /* static: an engine that is left is no leak */
    struct zero_param p = {.name = "a", .ndim = 1, .shape = {64}};
    if (zero_init(&z, &p, 1, .stage = 3) || zero_size(z) != 2)
        return 1;
    if (zero_rank(z) == 1) {
        if (!strcmp(how, "destroys"))
            zero_destroy(z);
        exit(!strcmp(how, "ends") ? 0 : REFUSED);
    }
    if (!strcmp(how, "late"))
        sleep(45);
    int status = zero_mean(z, NULL, 0, &(double){0});
    puts(zero_last_error(z));
    return status == ZERO_ERR_MISMATCH || status == ZERO_ERR_COMM ? TOLD : 1;
}

/* Rank 0 gives up before rank 1 comes, whose deadline is long. */
static int waits_main(void)
{
    struct zero *z;
    struct zero_param p = {.name = "a", .ndim = 1, .shape = {64}};
    const char *open_mpi = getenv("OMPI_COMM_WORLD_RANK"), *others = getenv("PMI_RANK");
    if (!strcmp(open_mpi ? open_mpi : others ? others : "0", "0")) {
        int refused = rank_main();
        sleep(40); /* mpirun ends it when rank 1 has ended */
        return refused;
    }
    sleep(4);
    int status = zero_init(&z, &p, 1, .stage = 3);
    puts(zero_last_error(z));
    bool told = status == ZERO_ERR_COMM && strstr(zero_last_error(z), "Rank 0 gave up");
    zero_destroy(z);
    return told ? TOLD : 1;
}

START_TEST(a_launcher_of_another_mpi_is_named)
{
    static const char *const marks[] = {
        "PMI_SIZE=3", "PMI_SIZE=3 MPI_LOCALRANKID=0 PMIX_RANK=0 SLURM_STEP_NUM_TASKS=1",
        "PMIX_RANK=2", "PMIX_RANK=2 SLURM_STEP_NUM_TASKS=1"}; /* as of a shell around it */
    char command[700];
    snprintf(command, sizeof(command), "%s timeout 50 %s alone", marks[_i], program);
    int status = system(command);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == REFUSED, "status %x",
                  (unsigned)status);
}
END_TEST

/* The exit status of a job of some ranks; -1, and a line that says what is skipped: there is
 * no mpirun. */
static int job_status(const char *what, int ranks, const char *words)
{
    const char *mpirun = getenv("MPIRUN");
    char command[1200];
    mpirun = mpirun ? mpirun : "mpirun";
    if (!*mpirun) {
        printf("skipped: %s: needs mpirun\n", what);
        return -1;
    }
    snprintf(command, sizeof(command), "timeout -k 5 50 %s -n %d %s", mpirun, ranks, words);
    int status = system(command);
    ck_assert_msg(WIFEXITED(status), "status %x", (unsigned)status);
    return WEXITSTATUS(status);
}

START_TEST(a_rank_that_never_comes_is_not_waited_for)
{
    char words[600];
    snprintf(words, sizeof(words),
             "sh -c '[ ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} = 0 ] && exec sleep 60; exec %s rank'",
             program);
    int status = job_status("a rank that never comes", 2 + _i, words);
    ck_assert_msg(status == REFUSED || status == -1, "status %d", status);
}
END_TEST

START_TEST(a_rank_that_comes_late_hears_that_it_is)
{
    char words[600];
    double begun = seconds_now();
    snprintf(words, sizeof(words), "%s waits", program);
    int status = job_status("a rank that comes late", 2, words);
    ck_assert_msg(status == TOLD || status == -1, "status %d", status);
    ck_assert_double_lt(seconds_now() - begun, 30);
}
END_TEST

START_TEST(a_rank_that_leaves_ends_the_others)
{
    const char *const how[] = {"exits", "ends", "destroys", "late"};
    char words[600];
    double begun = seconds_now();
    snprintf(words, sizeof(words), "%s leaves %s", program, how[_i]);
    int status = job_status("a rank that leaves", 2, words);
    bool own = _i >= 2; /* it does not wait for the others, or not until they hear of it */
    ck_assert_msg((status == TOLD && _i < 3) || (status == REFUSED && own) || status == -1,
                  "%s: status %d", how[_i], status);
    ck_assert_double_lt(seconds_now() - begun, 40);
}
END_TEST

START_TEST(a_thread_that_cannot_be_made_is_named)
{
    struct zero_comm *comm;
    struct error error = {0};
    if (!deny_call(SYS_clone3, 0, 0, 0, ENOSYS) ||
        !deny_call(SYS_clone, 0, CLONE_THREAD, CLONE_THREAD, EAGAIN)) {
        puts("skipped: threads that are refused: needs seccomp");
        return;
    }
    ck_assert_int_eq(comm_mpi_default(1, &comm, &error), ZERO_ERR_MEMORY);
    ck_assert_ptr_null(comm);
    ck_assert_msg(strstr(error.text, "thread that starts MPI cannot be created"), "%s", error.text);
}
END_TEST

int main(int argc, char **argv)
{
    if (argc > 1)
        return *argv[1] == 'a'   ? alone_main()
               : *argv[1] == 'l' ? leaves_main(argv[2])
               : *argv[1] == 'w' ? waits_main()
                                 : rank_main();
    snprintf(program, sizeof(program), "%s", argv[0]);
    Suite *suite = suite_create("launch");
    TCase *tests = tcase_create("launch");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, a_rank_that_never_comes_is_not_waited_for, 0, 2);
    tcase_add_test(tests, a_rank_that_comes_late_hears_that_it_is);
    tcase_add_loop_test(tests, a_rank_that_leaves_ends_the_others, 0, 4);
    tcase_add_loop_test(tests, a_launcher_of_another_mpi_is_named, 0, 4);
    tcase_add_test(tests, a_thread_that_cannot_be_made_is_named);
    suite_add_tcase(suite, tests);
    return suite_run_all(suite);
}
