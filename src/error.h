// SPDX-License-Identifier: Apache-2.0
/* The first failure, kept: a category for code, a sentence for people.
 * tests/errors.txt lists all sentences; each has a test that provokes it. */
#ifndef SRC_ERROR_H
#define SRC_ERROR_H

#include <stdarg.h>

#include "include/zero.h"

struct error {
    int status; /* enum zero_status; ZERO_OK: none */
    char text[496];
};

#define ERROR_RANKS 8 /* that a sentence names */

/* Writes "2", "2 and 5" or "2, 5, 6, 7, 8, 9, 10, 11 and 190 more" into out, of size bytes: count
 * ranks, the first of which are in ranks. */
void error_ranks(char *out, size_t size, const int *ranks, int count);

/* What to do when an allocation fails. */
#define ERROR_FREE_MEMORY " Free some, or raise the limit on memory (ulimit -v)."

/* Records status and sentence unless one is recorded already. Returns the
 * recorded status, so that 'return error_set(...)' works. */
int error_set(struct error *error, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int error_setv(struct error *error, int status, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

/* The same into a communicator's text, the last failure's. Returns status. */
int error_comm(struct zero_comm *comm, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
