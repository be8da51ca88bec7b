// SPDX-License-Identifier: Apache-2.0
/*
 * What the commands of the tool share: their entry points, how a command line
 * that is wrong or a command that fails says so, the clock. No command calls
 * another.
 */
#ifndef EXAMPLES_ZERO_TOOL_H
#define EXAMPLES_ZERO_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "examples/common/clock.h"
#include "examples/common/figure.h"
#include "examples/common/options.h"

/* The commands. argv[0] is the command's name. They return the exit status:
 * 0 all went well, 1 it failed, 2 the command line is wrong. */
int info_command(int argc, char **argv);
int plan_command(int argc, char **argv);
int bench_command(int argc, char **argv);
int help_command(int argc, char **argv);

/* One sentence to standard error; returns the exit status. */
int tool_complain(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define tool_fail(...)   tool_complain(1, __VA_ARGS__)
#define tool_refuse(...) tool_complain(2, __VA_ARGS__)

/* One command's options. into's field help is where help points. */
struct tool_options {
    const char *usage; /* printed before the options */
    const struct option *table;
    int count;
};

#define TOOL_GO_ON (-1)

/* Fills into and given. TOOL_GO_ON, or the status to end with: --help was
 * printed, or what is wrong. */
int tool_parse(const struct tool_options *options, int argc, char **argv, void *into, bool *given,
               const bool *help);

#endif
