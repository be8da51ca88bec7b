// SPDX-License-Identifier: Apache-2.0
/* The marks that launchers leave, as src/comm/comm.c looks for them; mpirun's first, since
 * Slurm's are there too. */
#include "examples/zero/launcher.h"

#include <stdbool.h>
#include <stdlib.h>

#ifdef HAVE_MPI
#define BY_MPI      "libzero joins the job's ranks through MPI."
#define STARTS(how) how
#define BY_PMI                                                                                     \
    BY_MPI " The MPI of this build must speak PMI; Open MPI mostly does not, and needs srun "      \
           "--mpi=pmix or its own mpirun."
#else
#define BY_MPI                                                                                     \
    "This build has no MPI: libzero connects the ranks that srun started by TCP and NCCL if each " \
    "has a GPU, and refuses any other several (libopenmpi-dev)."
#define BY_PMI      BY_MPI
#define STARTS(how) "Several need a build with MPI (libopenmpi-dev), or srun and a GPU each."
#endif
#define ALONE "libzero takes this process to be alone."

static bool several(const char *size)
{
    const char *value = getenv(size);
    return value && atoi(value) != 1;
}

struct launcher launcher_find(void)
{
    struct launcher l = {0};
    bool worker = getenv("TORCHELASTIC_RUN_ID"); /* of torchrun, whatever has started that */
    if (!worker && getenv("OMPI_COMM_WORLD_SIZE")) {
        l.by = getenv("SLURM_JOB_ID") ? "mpirun (Open MPI) in a Slurm job" : "mpirun (Open MPI)";
        l.meaning = BY_MPI;
    } else if (!worker && getenv("PMIX_RANK") &&
               !(getenv("PMI_SIZE") && getenv("MPI_LOCALRANKID"))) {
        l.by = getenv("SLURM_JOB_ID") ? "Slurm with PMIx" : "a launcher with PMIx";
        l.meaning = BY_MPI;
    } else if (!worker &&
               (getenv("PMI_RANK") || getenv("PMI_SIZE") || getenv("MV2_COMM_WORLD_SIZE"))) {
        l.by = getenv("FLUX_TASK_RANK")    ? "Flux with PMI"
               : !getenv("SLURM_JOB_ID")   ? "mpirun (MPICH or kin)"
               : getenv("MPI_LOCALRANKID") ? "mpirun (MPICH or kin) in a Slurm job"
                                           : "Slurm with PMI";
        l.meaning = BY_PMI;
    } else if (getenv("RANK") && several("WORLD_SIZE") && getenv("MASTER_ADDR") &&
               (getenv("LOCAL_WORLD_SIZE") || !several("SLURM_STEP_NUM_TASKS"))) {
        l.by = "torchrun";
        l.meaning =
            "MPI's variables are not set: libzero connects the ranks by TCP and NCCL if each has a "
            "GPU, and refuses them otherwise unless it is given a communicator (.comm). " STARTS(
                "Start them with mpirun.");
    } else if (several("SLURM_STEP_NUM_TASKS")) {
        l.by = "Slurm without PMIx";
        l.meaning = "libzero connects the ranks of the step by TCP and NCCL if each has a GPU, and "
                    "refuses them otherwise. " STARTS(
                        "Start them with srun --mpi=pmix, or with mpirun inside the job.");
    } else if (getenv("SLURM_STEP_NUM_TASKS")) {
        l.by = "Slurm, one task in its step";
        l.meaning = ALONE " " STARTS("srun --mpi=pmix -n RANKS starts several.");
    } else if (getenv("SLURM_JOB_ID")) {
        l.by = "the shell of a Slurm job";
        l.meaning = ALONE " " STARTS("srun or mpirun starts the ranks.");
    } else {
        l.by = "nothing: a single process";
        l.meaning = ALONE " " STARTS("mpirun -n RANKS starts several.");
    }
    return l;
}

const char *const launcher_variables[] = {
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_NNODES",
    "SLURM_NTASKS",
    "SLURM_STEP_ID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_STEP_NODELIST",
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
    "PMI_LOCAL_RANK",
    "PMI_LOCAL_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "FLUX_TASK_RANK",
    "FLUX_TASK_LOCAL_ID",
    "FLUX_JOB_SIZE",
    "FLUX_JOB_NNODES",
    "MV2_COMM_WORLD_SIZE",
    "TORCHELASTIC_RUN_ID",
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
    "ZERO_PROBE",
    "ZERO_CUDA_PLUGIN",
    "GPT2_CUDA_PLUGIN",
    NULL,
};
