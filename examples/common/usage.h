// SPDX-License-Identifier: Apache-2.0
/* What this process takes of the machine, by the kernel's own accounts; 0 where
 * it does not say. Nothing here asks the library. */
#ifndef EXAMPLES_COMMON_USAGE_H
#define EXAMPLES_COMMON_USAGE_H

#include <stdint.h>

/* Bytes in memory: the most at any time, code and libraries included (VmHWM). */
int64_t usage_peak(void);

/* Bytes in memory now that are neither a file's nor shared; within: of the one mapping
 * that address is in, NULL: of all. */
int64_t usage_memory(const void *within);

/* Disk space of the files without a name that this process holds open on the file
 * systems of folders (with ':' between them): the engines'. */
int64_t usage_files(const char *folders);

#endif
