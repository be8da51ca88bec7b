// SPDX-License-Identifier: Apache-2.0
/* The marks that launchers leave. mpirun's come first: under Slurm it leaves
 * SLURM_PROCID 0 in every rank. */
#include "examples/zero/launch.h"

#include <stdlib.h>
#include <string.h>

/* The first of count names that is set to a number. */
static int number(const char *const *names, int count, int otherwise)
{
    for (int i = 0; i < count; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return atoi(value);
    }
    return otherwise;
}

#define NUMBER(otherwise, ...)                                                                     \
    number((const char *const[]){__VA_ARGS__},                                                     \
           (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)), otherwise)

#define THROUGH_MPI "libzero joins the job's ranks through MPI."
#define ALONE       "libzero takes this process to be alone."

static void launch_name(struct launch *l)
{
    if (getenv("OMPI_COMM_WORLD_SIZE")) {
        l->by = getenv("SLURM_JOB_ID") ? "mpirun (Open MPI) in a Slurm job" : "mpirun (Open MPI)";
        l->meaning = THROUGH_MPI;
    } else if (getenv("PMIX_RANK")) {
        l->by = getenv("SLURM_JOB_ID") ? "Slurm with PMIx" : "a launcher with PMIx";
        l->meaning = THROUGH_MPI;
    } else if (getenv("PMI_RANK") || getenv("PMI_SIZE") || getenv("MV2_COMM_WORLD_SIZE")) {
        l->by = getenv("SLURM_JOB_ID") ? "Slurm with PMI" : "mpirun (MPICH or kin)";
        l->meaning = THROUGH_MPI;
    } else if (getenv("SLURM_STEP_NUM_TASKS")) {
        l->by = "Slurm without PMIx";
        l->meaning = ALONE " Start it with srun --mpi=pmix, or with mpirun inside the job, to "
                           "join the ranks of the step.";
    } else if (getenv("SLURM_JOB_ID")) {
        l->by = "the shell of a Slurm job";
        l->meaning = ALONE " srun or mpirun starts the ranks.";
    } else if (getenv("WORLD_SIZE") && getenv("RANK")) {
        l->by = "torchrun";
        l->meaning = "MPI's variables are not there: without a communicator of its own "
                     "(.comm) this process is alone.";
    } else {
        l->by = "nothing: a single process";
        l->meaning = ALONE " mpirun -n RANKS starts several.";
    }
}

struct launch launch_find(void)
{
    struct launch l = {0};
    launch_name(&l);
    l.rank = NUMBER(0, "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK",
                    "SLURM_PROCID", "RANK");
    l.ranks = NUMBER(1, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE",
                     "SLURM_STEP_NUM_TASKS", "WORLD_SIZE");
    l.local_rank = NUMBER(0, "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK",
                          "MPI_LOCALRANKID", "SLURM_LOCALID", "LOCAL_RANK");
    return l;
}

static const char *const variables[] = {
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_NNODES",
    "SLURM_NTASKS",
    "SLURM_STEP_ID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_CPUS_PER_TASK",
    "SLURM_MEM_PER_NODE",
    "SLURM_MEM_PER_CPU",
    "SLURM_JOB_GPUS",
    "SLURM_GPUS_ON_NODE",
    "SLURM_TMPDIR",
    "SLURM_RESTART_COUNT",
    "SLURM_MPI_TYPE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMIX_RANK",
    "PMIX_NAMESPACE",
    "PMI_RANK",
    "PMI_SIZE",
    "MV2_COMM_WORLD_SIZE",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "CUDA_VISIBLE_DEVICES",
    "TMPDIR",
    "OMP_NUM_THREADS",
    "ZERO_ISA",
    "ZERO_DEVICE_MEMORY",
};

void launch_variables(void (*found)(const char *name, const char *value))
{
    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++) {
        const char *value = getenv(variables[i]);
        if (value)
            found(variables[i], value);
    }
}
