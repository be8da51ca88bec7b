// SPDX-License-Identifier: Apache-2.0
/*
 * What a process holds, and that it holds no more after something than before
 * it. Programs that link this include tests/support/allocations.h in one file.
 */
#ifndef TESTS_SUPPORT_HELD_H
#define TESTS_SUPPORT_HELD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A sanitizer and valgrind take memory and replace malloc as they like. */
#ifdef HAVE_VALGRIND
#define SANITIZED 1
#elif defined(__has_feature) /* clang's way to say it */
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* Counted by tests/support/allocations.h; where SANITIZED nothing is. */
extern struct allocations {
    atomic_bool counting; /* calls, from here on */
    bool own_code_only;   /* only calls from this program's text, no library's */
    atomic_int_least64_t calls;
    void *_Atomic first;                /* who made the first of them: for addr2line */
    atomic_int_least64_t blocks, bytes; /* allocated and not freed, since the start */
} allocations;

struct held {
    int64_t blocks, bytes;        /* of malloc */
    int64_t mappings;             /* bytes, but for malloc's own */
    int64_t descriptors, threads; /* numbers of */
    int64_t peak;                 /* VmHWM, bytes */
};

struct held held_now(void);

/* Fails the test when this process does not hold what it held. Where SANITIZED,
 * descriptors and threads alone count. */
void held_expect(const struct held *before, const char *what);

#endif
