// SPDX-License-Identifier: Apache-2.0
#include "examples/common/refuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int refuse_v(struct sink sink, const char *format, va_list args)
{
    char *whole;
    int length = vasprintf(&whole, format, args);
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

int refuse(struct sink sink, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    refuse_v(sink, format, args);
    va_end(args);
    return -1;
}
