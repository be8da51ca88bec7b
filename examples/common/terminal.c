// SPDX-License-Identifier: Apache-2.0
#include "examples/common/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool terminal_watched(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDOUT_FILENO) && isatty(STDERR_FILENO) && kind && strcmp(kind, "dumb") != 0;
}

void terminal_line(const char *line, bool stays)
{
    struct winsize size;
    int width = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
    printf("\r\033[K%.*s%s", stays ? (int)strlen(line) : width - 1, line, stays ? "\n" : "");
    fflush(stdout);
}
