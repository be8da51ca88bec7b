// SPDX-License-Identifier: Apache-2.0
#include "examples/common/refuse.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int refuse(struct sink sink, const char *format, ...)
{
    char *whole;
    va_list args;
    va_start(args, format);
    int length = vasprintf(&whole, format, args);
    va_end(args);
    size_t head = sink.size / 4, tail = sink.size - head - sizeof("...");
    if (length < 0)
        snprintf(sink.text, sink.size, "No memory is left to say what went wrong.");
    else if ((size_t)length < sink.size)
        memcpy(sink.text, whole, (size_t)length + 1);
    else
        snprintf(sink.text, sink.size, "%.*s...%s", (int)head, whole, whole + length - tail);
    if (length >= 0)
        free(whole);
    return -1;
}
