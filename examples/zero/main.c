// SPDX-License-Identifier: Apache-2.0
/* The tool around the library: what a machine is, what a model needs, how near
 * the library comes to the machine's limits. Chooses the command, no more.
 * Exit status: 0 all went well, 1 a command failed, 2 the command line is wrong. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "examples/common/file.h"
#include "examples/common/launch.h"
#include "examples/zero/tool.h"
#include "include/zero.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"info", info_command, "what this machine and this build offer"},
    {"plan", plan_command, "what a model needs at every stage and place, and whether it fits here"},
    {"bench", bench_command, "adam, memory, io, comm, step, fixed against what the machine can do"},
    {"help", help_command, "a page on one topic; without a topic, the list of them"},
};
enum { COMMANDS = sizeof(commands) / sizeof(*commands) };

static void usage(void)
{
    fputs("usage: zero COMMAND [options]\n\n", stdout);
    for (int i = 0; i < COMMANDS; i++)
        printf("  %-8s %s\n", commands[i].name, commands[i].summary);
    fputs("\nEach command prints its options with --help; zero --version prints the library's.\n",
          stdout);
}

static int finish(int status)
{
    if (!file_printed() && status == 0)
        status = tool_fail("Standard output could not be written.");
    return launch_end(status);
}

int main(int argc, char **argv)
{
    file_hold_standard();
    if (argc < 2)
        return tool_refuse("No command is given. zero --help lists them.");
    signal(SIGXFSZ, SIG_IGN); /* a write beyond ulimit -f fails, and is told */
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return finish(commands[i].run(argc - 1, argv + 1));
    if (options_is_help(argv[1])) {
        usage();
        return finish(0);
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        printf("zero %s\n", ZERO_VERSION);
        return finish(0);
    }
    return tool_refuse("There is no command '%s'. zero --help lists them.", argv[1]);
}
