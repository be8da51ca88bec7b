// SPDX-License-Identifier: Apache-2.0
#include "tests/support/suite.h"

#include <errno.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "offload/verify.h"

/* Tools that watch one process ask for no others. */
static bool suite_forks(void)
{
    const char *value = getenv("CK_FORK");
    return !value || strcmp(value, "no");
}

int suite_run_all(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, suite_forks() ? CK_FORK : CK_NOFORK);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);
    srunner_free(runner);
    if (ran == 0)
        fprintf(stderr, "no test ran: is CK_RUN_SUITE or CK_RUN_CASE set?\n");
    return failed || ran == 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

bool suite_checksums(void)
{
    struct error error = {0};
    return verify_supported(&error) == ZERO_OK;
}

bool suite_uring(void)
{
#ifdef HAVE_URING
    return syscall(SYS_io_uring_setup, 1, NULL) < 0 && errno == EFAULT;
#else
    return false;
#endif
}

bool suite_matches(const char *text, const char *pattern)
{
    regex_t r;
    ck_assert(!regcomp(&r, pattern, REG_EXTENDED | REG_NOSUB));
    bool does = !regexec(&r, text, 0, NULL, 0);
    regfree(&r);
    return does;
}

static bool asked(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value && *value != '0';
}

bool suite_short(void)
{
    return asked("ZERO_TEST_SHORT");
}

bool suite_full(void)
{
    return asked("ZERO_TEST_FULL");
}

static const char *watched = "";

static void barked(int signal)
{
    (void)signal;
    ssize_t n = write(STDERR_FILENO, watched, strlen(watched));
    n = write(STDERR_FILENO, ": hangs\n", 8);
    (void)n;
    abort();
}

void suite_watch(const char *doing, unsigned seconds)
{
    watched = doing;
    signal(SIGALRM, barked); /* Check has taken it for itself */
    alarm(seconds);
}

void suite_log(void *text, enum zero_log_level level, const char *line)
{
    size_t length = strlen(text);
    (void)level;
    snprintf((char *)text + length, SUITE_LOG - length, "%s\n", line);
}

void suite_flush_denormals(void)
{
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr | 1 << 24));
#endif
}
