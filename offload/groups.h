// SPDX-License-Identifier: Apache-2.0
/*
 * Control groups of Linux, versions 1 and 2: what a batch system or a container
 * lets this process have. root is put before /proc and /sys: "" outside of tests.
 */
#ifndef OFFLOAD_GROUPS_H
#define OFFLOAD_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

/* folder: where a group of this version keeps its numbers. */
typedef void groups_fn(void *arg, const char *folder, int version);

/* The group in which a controller ("memory", "cpu") has this process, and all above it. */
void groups_each(const char *root, const char *controller, groups_fn *visit, void *arg);

/* A group is the same in every container that sees it. */
uint64_t groups_id(const char *folder);

/* The number behind key in a file of folder, or the file's first where key is NULL. False when
 * there is none: no such file, "max", or what no amount can be. */
bool groups_number(const char *folder, const char *file, const char *key, int64_t *number);

/* CPUs that the tightest quota of CPU time is worth, rounded up, and its group; 0: none is set. */
int groups_cpus(const char *root, uint64_t *group);

#endif
