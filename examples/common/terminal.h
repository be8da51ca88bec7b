// SPDX-License-Identifier: Apache-2.0
/* What a person who watches sees of a run under way: one line that is written over and over. */
#ifndef EXAMPLES_COMMON_TERMINAL_H
#define EXAMPLES_COMMON_TERMINAL_H

#include <stdbool.h>

/* mpirun gives its ranks a terminal of their own for standard output, wherever that ends, but
 * not for standard error: a person watches where both are one, and can go back in a line. */
bool terminal_watched(void);

/* In place of the line before, if that was to go: as much of it as the terminal is wide. One
 * that stays is whole, and has its end. */
void terminal_line(const char *line, bool stays);

#endif
