// SPDX-License-Identifier: Apache-2.0
/* `zero help`: finds the page. */
#include "examples/zero/help.h"

#include <stdio.h>
#include <string.h>

#include "examples/zero/tool.h"

static void topics_print(void)
{
    fputs("usage: zero help TOPIC\n\n", stdout);
    for (int i = 0; i < HELP_PAGES; i++)
        printf("  %-12s %s\n", help_pages[i].topic, help_pages[i].summary);
    fputs("\ninclude/zero.h is the reference; build/gpt2 --help and build/zero COMMAND --help "
          "list all options.\n",
          stdout);
}

int help_command(int argc, char **argv)
{
    if (argc < 2 || options_is_help(argv[1])) {
        topics_print();
        return 0;
    }
    if (argc > 2)
        return tool_refuse("zero help takes one topic, and %d are given. zero help lists them.",
                           argc - 1);
    for (int i = 0; i < HELP_PAGES; i++)
        if (strcmp(argv[1], help_pages[i].topic) == 0) {
            fputs(help_pages[i].text, stdout);
            return 0;
        }
    return tool_refuse("There is no page on '%s'. zero help lists the topics.", argv[1]);
}
