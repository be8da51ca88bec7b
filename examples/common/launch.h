// SPDX-License-Identifier: Apache-2.0
/* What the launcher of a job tells its processes in their environment, for a
 * program that has no engine to ask: before one exists, or without any. */
#ifndef EXAMPLES_COMMON_LAUNCH_H
#define EXAMPLES_COMMON_LAUNCH_H

#include <stdbool.h>

struct launch {
    int rank;              /* 0 where there is no launcher */
    int ranks;             /* of the job; 1 */
    int local_rank, local; /* among those of this node: 0 of 1 */
};

struct launch launch_find(void);

/* Threads of a rank: what the engine counts, which asks the others, where all are bound alike over
 * the job's CPUs of the node, or not bound. The CPUs that this process may use, divided among the
 * ranks that would have the same ones then, and no more than a quota is worth, which all of the
 * node are taken to share; at least 1. A job that taskset or numactl confines looks bound. */
int launch_threads(const struct launch *l);
int launch_threads_alone(void); /* of one rank that has this machine to itself */
int launch_share(int cpus, int all, int local);
/* Whether this rank is bound to CPUs that not all ranks of the node have, it seems. */
bool launch_bound(int local);

int launch_cpus(void); /* that this process may use; 1 or more */

/* The status to end with. A rank of several that fails waits a tenth of a second before that:
 * launchers end the others then, and mpirun 5 shows nothing of what those say any more. */
int launch_end(int status);

#endif
