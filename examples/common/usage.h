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

/* Seconds that threads ran on a CPU, and that they were ready to and had to wait for one. Of
 * the library's are those named libzero and the kernel's behind io_uring; the others, MPI's
 * among them, are the program's. Threads that have ended count no more. */
struct usage_cpu {
    double ran, ready;
};
void usage_cpu(struct usage_cpu *program, struct usage_cpu *library);

#endif
