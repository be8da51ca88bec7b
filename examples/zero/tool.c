// SPDX-License-Identifier: Apache-2.0
/* Sentences, figures and the common start of every command. */
#include "examples/zero/tool.h"

#include <stdarg.h>
#include <stdio.h>

#include "examples/common/launch.h"

static void complain(const char *format, va_list args)
{
    struct launch l = launch_find();
    fflush(stdout);
    fputs("zero: ", stderr);
    if (l.ranks > 1)
        fprintf(stderr, "rank %d: ", l.rank);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

int tool_refuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    complain(format, args);
    va_end(args);
    return 2;
}

int tool_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    complain(format, args);
    va_end(args);
    return 1;
}

int tool_parse(const struct tool_options *options, int argc, char **argv, void *into, bool *given,
               const bool *help)
{
    char error[512] = "";
    int status = options_parse(options->table, options->count, argc, argv, into, given, error,
                               sizeof(error));
    if (*help) {
        fputs(options->usage, stdout);
        fputc('\n', stdout);
        options_help(options->table, options->count, stdout);
        return 0;
    }
    return status ? tool_refuse("%s", error) : TOOL_GO_ON;
}
