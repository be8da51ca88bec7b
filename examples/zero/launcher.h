// SPDX-License-Identifier: Apache-2.0
/* Who started this process and what that means, from its environment alone:
 * nothing is initialised, no other rank is asked. Which rank it is:
 * examples/common/launch.h. */
#ifndef EXAMPLES_ZERO_LAUNCHER_H
#define EXAMPLES_ZERO_LAUNCHER_H

struct launcher {
    const char *by;      /* "mpirun (Open MPI)", "Slurm with PMIx", ... */
    const char *meaning; /* what libzero makes of it */
};

struct launcher launcher_find(void);

/* Names of what is set where ranks are launched, sorted by launcher; NULL ends them. */
extern const char *const launcher_variables[];

#endif
