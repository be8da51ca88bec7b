// SPDX-License-Identifier: Apache-2.0
/* How this process was started, read from its environment alone: nothing is
 * initialised, no other rank is asked. */
#ifndef EXAMPLES_ZERO_LAUNCH_H
#define EXAMPLES_ZERO_LAUNCH_H

struct launch {
    const char *by;      /* "mpirun (Open MPI)", "Slurm with PMIx", ... */
    const char *meaning; /* what libzero makes of it: one sentence */
    int rank, ranks;     /* as the launcher tells them; 0 of 1 when it does not */
    int local_rank;
};

struct launch launch_find(void);

/* Calls back with each launch variable that is set; sorted by launcher. */
void launch_variables(void (*found)(const char *name, const char *value));

#endif
