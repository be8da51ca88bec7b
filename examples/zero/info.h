// SPDX-License-Identifier: Apache-2.0
/* The parts of `zero info`. Each prints its facts, one a line, and says so
 * where the machine does not answer; none of them can fail. */
#ifndef EXAMPLES_ZERO_INFO_H
#define EXAMPLES_ZERO_INFO_H

#include <stdbool.h>
#include <stddef.h>

/* A line "  name   text". */
void info_fact(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The first line of a file without its end; false when there is none. */
bool info_line(const char *path, char *line, size_t size);

/* The text behind "key:" or "key<blanks>:" in a file of such lines. */
bool info_value(const char *path, const char *key, char *value, size_t size);

void info_versions(void);
void info_cpu(void);
void info_memory(void);
void info_gpu(void);

#endif
