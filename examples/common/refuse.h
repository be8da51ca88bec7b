// SPDX-License-Identifier: Apache-2.0
/* Where the sentence of a failure goes, and how it gets there. */
#ifndef EXAMPLES_COMMON_REFUSE_H
#define EXAMPLES_COMMON_REFUSE_H

#include <stddef.h>

struct sink {
    char *text;
    size_t size;
};

/* Returns -1, to be returned. A sentence that is too long for the sink loses its middle: a
 * path, and neither what happened to it nor what to do. */
int refuse(struct sink sink, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
