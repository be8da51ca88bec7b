// SPDX-License-Identifier: Apache-2.0
/* The choice of a backend when the program brings none. Sends nothing. */
#include "src/comm/comm.h"

#include <stdio.h>
#include <stdlib.h>

#include "src/comm/job.h"

/* What the launchers leave in the environment of each rank, with the number of
 * ranks where they tell it: Open MPI, PMIx under Slurm, MPICH and its kin, MVAPICH. */
static const struct launcher {
    const char *mark, *size;
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"},
    {"PMI_SIZE", "PMI_SIZE"},
    {"PMI_RANK", "SLURM_STEP_NUM_TASKS"},
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"},
};

static const struct launcher *launcher_find(void)
{
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
        if (getenv(launchers[i].mark))
            return &launchers[i];
    return NULL;
}

#ifdef HAVE_MPI

/* Ranks that MPI's launcher did not start. */
static int not_launched(enum zero_device device, const struct job *job, struct error *error)
{
    return error_set(error, ZERO_ERR_UNSUPPORTED,
                     "This job has %d ranks (%s is set), and ranks that compute on %s reach each "
                     "other by MPI, which did not start them. Start them with %s -n %d, or unset "
                     "%s for one rank.",
                     job->size, job->mark, device == ZERO_CUDA ? "GPUs" : "the CPU",
                     job->launcher == JOB_SLURM ? "srun --mpi=pmix" : "mpirun", job->size,
                     job->mark);
}

/* A launcher of another kind than this MPI starts ranks that are each alone. */
static int check_size(struct zero_comm **comm, const struct launcher *launcher, struct error *error)
{
    const char *size = getenv(launcher->size);
    int told = size ? atoi(size) : 0;
    if ((*comm)->size > 1 || told <= 1)
        return ZERO_OK;
    (*comm)->ops->destroy(*comm);
    *comm = NULL;
    return error_set(error, ZERO_ERR_UNSUPPORTED,
                     "This job has %d ranks (%s is set), and to the MPI of this build this rank is "
                     "alone. Start it with that MPI's own mpirun (srun: --mpi=pmix), or unset %s "
                     "for one rank.",
                     told, launcher->size, launcher->mark);
}

int comm_default_create(enum zero_device device, struct zero_comm **comm, struct error *error)
{
    const struct launcher *launcher = launcher_find(); /* before MPI, which leaves marks too */
    struct job job;
    *comm = NULL;
    if (!launcher && !comm_mpi_started()) {
        if (job_find(&job, error))
            return error->status;
        return job.size > 1 ? not_launched(device, &job, error) : comm_self_create(comm, error);
    }
    if (comm_mpi_default(comm, error))
        return error->status;
    return launcher ? check_size(comm, launcher, error) : ZERO_OK;
}

void comm_default_deadline(int seconds)
{
    comm_mpi_deadline(seconds);
}

#else

/* A launched rank that cannot tell how many there are is not taken to be alone. */
static int no_mpi(const char *size, const char *mark, struct error *error)
{
    return error_set(error, ZERO_ERR_UNSUPPORTED,
                     "This job has %s ranks (%s is set) and this build has no MPI. Build with "
                     "Open MPI installed (libopenmpi-dev), or start one process.",
                     size ? size : "several", mark);
}

int comm_default_create(enum zero_device device, struct zero_comm **comm, struct error *error)
{
    const struct launcher *launcher = launcher_find();
    const char *size = launcher ? getenv(launcher->size) : NULL;
    struct job job;
    char told[16];
    (void)device;
    *comm = NULL;
    if (launcher && (!size || atoi(size) != 1))
        return no_mpi(size, launcher->mark, error);
    if (launcher)
        return comm_self_create(comm, error);
    if (job_find(&job, error))
        return error->status;
    snprintf(told, sizeof(told), "%d", job.size);
    return job.size > 1 ? no_mpi(told, job.mark, error) : comm_self_create(comm, error);
}

void comm_default_deadline(int seconds)
{
    (void)seconds;
}

#endif
