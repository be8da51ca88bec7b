// SPDX-License-Identifier: Apache-2.0
/* Where the sentence of a failure goes, and how it gets there. */
#ifndef EXAMPLES_COMMON_REFUSE_H
#define EXAMPLES_COMMON_REFUSE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

struct sink {
    char *text;
    size_t size;
};

/* -1, to be returned. */
__attribute__((format(printf, 2, 3))) static inline int refuse(struct sink sink, const char *format,
                                                               ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(sink.text, sink.size, format, args);
    va_end(args);
    return -1;
}

#endif
