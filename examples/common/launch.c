// SPDX-License-Identifier: Apache-2.0
/* One row per kind of launcher. Open MPI's mpirun is first: under Slurm it
 * leaves SLURM_PROCID 0 everywhere. */
#include "examples/common/launch.h"

#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

static const struct launcher {
    const char *rank, *ranks, *local_rank, *local; /* variables; local may hold "2(x3)" */
} launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"PMI_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
};

static int number(const char *variable, int otherwise)
{
    const char *value = getenv(variable);
    return value && *value ? atoi(value) : otherwise;
}

struct launch launch_find(void)
{
    struct launch l = {.ranks = 1, .local = 1};
    for (size_t i = 0; i < sizeof(launchers) / sizeof(*launchers); i++) {
        int rank = number(launchers[i].rank, -1), ranks = number(launchers[i].ranks, 0);
        if (rank < 0 || ranks < 1)
            continue;
        int local = number(launchers[i].local, ranks);
        return (struct launch){.rank = rank,
                               .ranks = ranks,
                               .local_rank = number(launchers[i].local_rank, 0),
                               .local = local < 1 || local > ranks ? ranks : local};
    }
    return l;
}

int launch_cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

int launch_threads(const struct launch *l)
{
    int cpus = launch_cpus();
    int share = cpus < sysconf(_SC_NPROCESSORS_ONLN) ? 1 : l->local; /* bound: its own CPUs */
    return cpus / share > 1 ? cpus / share : 1;
}
