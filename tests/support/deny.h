// SPDX-License-Identifier: Apache-2.0
/*
 * Makes one system call of this process fail from now on, by a seccomp filter:
 * what a site's rules, an old kernel or a poor file system would do. It cannot
 * be taken back, so it is for forked tests.
 */
#ifndef TESTS_SUPPORT_DENY_H
#define TESTS_SUPPORT_DENY_H

#include <stdbool.h>
#include <stdint.h>

/* The call fails with errnum when (argument & mask) == value; mask 0 and value
 * 0: always. False: the kernel has no seccomp. */
bool deny_call(long number, int argument, uint32_t mask, uint32_t value,
               int errnum);

#endif
