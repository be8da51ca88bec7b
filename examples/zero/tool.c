// SPDX-License-Identifier: Apache-2.0
/* Sentences and the common start of every command. */
#include "examples/zero/tool.h"

#include <stdarg.h>
#include <stdio.h>

#include "examples/common/launch.h"

int tool_complain(int status, const char *format, ...)
{
    struct launch l = launch_find();
    va_list args;
    fflush(stdout);
    fputs("zero: ", stderr);
    if (l.ranks > 1)
        fprintf(stderr, "rank %d: ", l.rank);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return status;
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
