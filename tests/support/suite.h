// SPDX-License-Identifier: Apache-2.0
/* How every suite runs: all its cases, failing when none ran. */
#ifndef TESTS_SUPPORT_SUITE_H
#define TESTS_SUPPORT_SUITE_H

#include <check.h>
#include <stdbool.h>

#include "include/zero.h"

/* Runs and frees the suite, each test in a process of its own (but with CK_FORK=no): limits,
 * refusals and the environment stay there; the program's exit status. */
int suite_run_all(Suite *suite);

/* Whether ZERO_TEST_SHORT asks for a sample of the long products. */
bool suite_short(void);

/* Whether ZERO_TEST_FULL asks for all of what is sampled without it. */
bool suite_full(void);

/* Until alarm(0), or again: after so many seconds says what hangs, and aborts. */
void suite_watch(const char *doing, unsigned seconds);

/* Whether this build has checksums, for .verify_spill. */
bool suite_checksums(void);

/* Whether this build has io_uring, and this system lets us use it. */
bool suite_uring(void);

/* Whether text fits an extended regular expression. */
bool suite_matches(const char *text, const char *pattern);

/* As a program linked with -ffast-math has its threads compute: denormals are zeros. */
void suite_flush_denormals(void);

/* A .log that appends each line to its argument, of SUITE_LOG characters. */
#define SUITE_LOG 2000
void suite_log(void *text, enum zero_log_level level, const char *line);

#endif
