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

/* Threads of a rank, as the engine counts them, which asks the others: the CPUs that this process
 * may use, divided among the ranks that have the same ones, as many as must where each of the
 * node's local ranks has as many of all that the job has there, and no more than a quota is
 * worth, which they are taken to share; at least 1. */
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
