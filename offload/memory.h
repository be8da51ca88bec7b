// SPDX-License-Identifier: Apache-2.0
/*
 * How much memory this process may still take: the kernel commits more than
 * there is and kills whom it likes when that turns out, so ask beforehand.
 */
#ifndef OFFLOAD_MEMORY_H
#define OFFLOAD_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/*
 * The smallest of MemAvailable and what each memory cgroup above this process
 * (version 1 or 2) has left, page cache not counted as used; INT64_MAX when
 * none is known. source takes what set it: "MemAvailable" or a cgroup's folder.
 * root is put before /proc and /sys: "" outside of tests.
 */
int64_t memory_available(const char *root, char *source, size_t source_size);

#endif
