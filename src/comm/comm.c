// SPDX-License-Identifier: Apache-2.0
/* The choice of a backend when the program brings none. Sends nothing. */
#include "src/comm/comm.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/comm/job.h"
#include "src/comm/tcp.h"

/* What the launchers leave in the environment of each rank, with the number of
 * ranks where they tell it: Open MPI; the mpirun of MPICH and its kin, which passes on what it
 * has of the step that it runs in; PMIx under Slurm, PMI, MVAPICH. */
static const struct launcher {
    const char *mark, *size, *beside; /* without which it is not this one; or NULL */
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", NULL},
    {"PMI_SIZE", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", NULL},
    {"PMI_SIZE", "PMI_SIZE", NULL},
    {"PMI_RANK", "SLURM_STEP_NUM_TASKS", NULL},
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", NULL},
};

/* A worker of torchrun is no rank of what has started torchrun, though it has that one's marks. */
static const struct launcher *launcher_find(void)
{
    if (getenv("TORCHELASTIC_RUN_ID"))
        return NULL;
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
        if (getenv(launchers[i].mark) && (!launchers[i].beside || getenv(launchers[i].beside)))
            return &launchers[i];
    return NULL;
}

static atomic_int begun_seconds, ended_seconds; /* ended: 0, as long as none has */

void comm_exit_deadline(int seconds)
{
    int most = atomic_load(&ended_seconds);
    while (most < seconds && !atomic_compare_exchange_weak(&ended_seconds, &most, seconds))
        ;
}

int comm_exit_seconds(void)
{
    int ended = atomic_load(&ended_seconds);
    return ended ? ended : atomic_load(&begun_seconds);
}

/* How many ranks the launcher's variables tell of: one more than this one's number, where there is
 * no size or only that of the shell around the launcher. */
static int ranks_told(const struct launcher *launcher)
{
    const char *size = launcher ? getenv(launcher->size) : NULL;
    const char *rank = launcher && strstr(launcher->mark, "_RANK") ? getenv(launcher->mark) : NULL;
    int told = size ? atoi(size) : 0, least = rank ? atoi(rank) + 1 : 0;
    return least > 1 && least > told ? least : told;
}

#ifdef HAVE_MPI

/* Ranks that MPI's launcher did not start. */
static int not_launched(const struct job *job, struct error *error)
{
    return error_set(error, ZERO_ERR_UNSUPPORTED,
                     "This job has %d ranks (%s is set), but it was not started under MPI, which "
                     "ranks on the CPU need. Start them with %s -n %d, or unset %s for one rank.",
                     job->size, job->mark,
                     job->launcher == JOB_SLURM ? "srun --mpi=pmix" : "mpirun", job->size,
                     job->mark);
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

static int not_launched(const struct job *job, struct error *error)
{
    char size[16];
    snprintf(size, sizeof(size), "%d", job->size);
    return no_mpi(size, job->mark, error);
}

#endif

/* Without MPI: GPUs need of it no more than a control channel beside NCCL. */
static int create_without(enum zero_device device, int seconds, struct zero_comm **comm,
                          struct error *error)
{
    struct job job;
    if (job_find(&job, error))
        return error->status;
    if (job.size == 1)
        return comm_self_create(comm, error);
    if (device != ZERO_CUDA)
        return not_launched(&job, error);
    return job_locate(&job, error) ? error->status : comm_tcp_create(&job, seconds, comm, error);
}

#ifdef HAVE_MPI

/* A launcher of another kind than this MPI starts ranks that are each alone. */
static int not_together(const struct launcher *launcher, int told, struct error *error)
{
    return error_set(
        error, ZERO_ERR_UNSUPPORTED,
        "This job has %d ranks (%s is set), but the MPI of this build sees only this one. Start "
        "the job with the mpirun of that MPI (srun: --mpi=pmix), or unset %s for one rank.",
        told, launcher->mark, launcher->mark);
}

int comm_default_create(enum zero_device device, int seconds, struct zero_comm **comm,
                        struct error *error)
{
    const struct launcher *launcher = launcher_find(); /* before MPI, which leaves marks too */
    int told = ranks_told(launcher);
    *comm = NULL;
    atomic_store(&begun_seconds, seconds);
    if (!launcher && !comm_mpi_started())
        return create_without(device, seconds, comm, error);
    if (comm_mpi_default(seconds, comm, error))
        return error->status;
    if ((*comm)->size > 1 || told == 1)
        return ZERO_OK;
    (*comm)->ops->destroy(*comm);
    *comm = NULL;
    if (told > 1)
        return not_together(launcher, told, error);
    /* The program has started MPI, in which it is alone; torchrun or srun may tell of others. */
    return create_without(device, seconds, comm, error);
}

#else

static bool alike(const char *a, const char *b)
{
    const char *x = getenv(a), *y = getenv(b);
    return x && y && !strcmp(x, y);
}

/* What srun sets is there beside PMIx's, or beside PMI's (--mpi=pmi2), and tells of the same
 * ranks: an mpirun of MPICH's kin within a step has others. */
static bool started_by_srun(const struct launcher *launcher)
{
    bool pmi = !strcmp(launcher->size, "PMI_SIZE");
    return alike(launcher->size, "SLURM_STEP_NUM_TASKS") && getenv("SLURM_PROCID") &&
           (pmi ? alike("PMI_RANK", "SLURM_PROCID")
                : !strcmp(launcher->size, "SLURM_STEP_NUM_TASKS"));
}

bool comm_mpi_is(const struct zero_comm *comm)
{
    (void)comm;
    return false;
}

int comm_default_create(enum zero_device device, int seconds, struct zero_comm **comm,
                        struct error *error)
{
    const struct launcher *launcher = launcher_find();
    const char *size = launcher ? getenv(launcher->size) : NULL;
    int told = ranks_told(launcher);
    *comm = NULL;
    atomic_store(&begun_seconds, seconds);
    if (size && atoi(size) < told) /* a step's around the launcher */
        size = NULL;
    if (!launcher || (device == ZERO_CUDA && size && started_by_srun(launcher)))
        return create_without(device, seconds, comm, error);
    if (told != 1)
        return no_mpi(size, launcher->mark, error);
    return comm_self_create(comm, error);
}

#endif
