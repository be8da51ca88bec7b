// SPDX-License-Identifier: Apache-2.0
/*
 * What a launcher other than MPI's leaves in the environment of the processes it
 * starts: torchrun, or Slurm's srun without PMI. Reads variables, opens nothing.
 */
#ifndef SRC_COMM_JOB_H
#define SRC_COMM_JOB_H

#include <stdbool.h>
#include <stddef.h>

#include "src/error.h"

enum job_launcher { JOB_ALONE = 0, JOB_TORCHRUN, JOB_SLURM };

/* Ports that rank 0 may listen at: the first free one from job.port on. */
#define JOB_PORTS 16

struct job {
    enum job_launcher launcher;
    const char *mark; /* the variable that tells the size, for messages */
    int rank, size;
    /* by job_locate: */
    int local_rank, local_size; /* among the ranks of this node */
    char host[256];             /* where rank 0 is: a name or an address */
    int port;
    char name[96]; /* equal on the ranks of a job, not to that of another */
};

/*
 * The launcher, rank and size. A process that no launcher started beside others is
 * a job of one rank: also in a Slurm allocation outside of any step (a shell of
 * salloc, the body of a batch script, which has SLURM_NTASKS and SLURM_PROCID), and
 * in a step of one task. ZERO_ERR_ARGUMENT: a variable is no number, or none that fits.
 */
int job_find(struct job *job, struct error *error);

/* The rest, of a job of several ranks. MASTER_ADDR and MASTER_PORT hold under Slurm
 * too, where sites set them. */
int job_locate(struct job *job, struct error *error);

/* The first host of a list as Slurm writes them: gpu[003-005,7]-ib,n1 is gpu003-ib.
 * What comes behind the first host's entry is not looked at. false: it is no such
 * list, or the name has no room in size bytes. */
bool job_first_host(const char *list, char *host, size_t size);

/* Tasks of node number node, from a list as Slurm writes them: 2(x3),1. 0: not in it,
 * or it is no such list. */
int job_tasks(const char *list, int node);

#endif
