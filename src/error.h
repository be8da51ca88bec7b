// SPDX-License-Identifier: Apache-2.0
/* The first failure, kept: a category for code, a sentence for people. */
#ifndef SRC_ERROR_H
#define SRC_ERROR_H

#include "include/zero.h"

struct error {
    int status; /* enum zero_status; ZERO_OK: none */
    char text[496];
};

/* Records status and sentence unless one is recorded already. Returns the
 * recorded status, so that 'return error_set(...)' works. */
int error_set(struct error *error, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
