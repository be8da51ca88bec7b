// SPDX-License-Identifier: Apache-2.0
/* The choice of a backend when the program brings none. Sends nothing. */
#include "src/comm/comm.h"

#include <stdlib.h>

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

int comm_default_create(struct zero_comm **comm, struct error *error)
{
    const struct launcher *launcher = launcher_find(); /* before MPI, which leaves marks too */
    *comm = NULL;
    if (!launcher && !comm_mpi_started())
        return comm_self_create(comm, error);
    if (comm_mpi_default(comm, error))
        return error->status;
    return launcher ? check_size(comm, launcher, error) : ZERO_OK;
}

void comm_default_deadline(int seconds)
{
    comm_mpi_deadline(seconds);
}

#else

int comm_default_create(struct zero_comm **comm, struct error *error)
{
    *comm = NULL;
    const struct launcher *launcher = launcher_find();
    const char *size = launcher ? getenv(launcher->size) : "1";
    /* A launched rank that cannot tell how many there are is not taken to be alone. */
    if (!size || atoi(size) != 1)
        return error_set(error, ZERO_ERR_UNSUPPORTED,
                         "This job has %s ranks (%s is set) and this build has no MPI. Build with "
                         "Open MPI installed (libopenmpi-dev), or start one process.",
                         size ? size : "several", launcher->mark);
    return comm_self_create(comm, error);
}

void comm_default_deadline(int seconds)
{
    (void)seconds;
}

#endif
