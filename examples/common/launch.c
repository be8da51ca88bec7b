// SPDX-License-Identifier: Apache-2.0
/* One row per kind of launcher, as src/comm/comm.c and job.c choose among them: a worker of
 * torchrun is that whatever has started torchrun. An mpirun is before Slurm: Open MPI's
 * leaves SLURM_PROCID 0 everywhere, MPICH's what each node's step has, PMIX_RANK too. */
#include "examples/common/launch.h"

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "offload/groups.h"

static const struct launcher {
    const char *rank, *ranks, *local_rank, *local; /* variables; local may hold "2(x3),1" */
    const char *mark;                              /* without which it is not this one; or NULL */
} launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", NULL},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"},
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", NULL},
    {"PMI_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", NULL},
    {"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", "", NULL},
    {"PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE", "PMI_LOCAL_RANK"}, /* PALS */
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE", NULL},
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LOCAL_WORLD_SIZE"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", NULL},
};

static int number(const char *variable, int otherwise)
{
    const char *value = getenv(variable);
    return value && *value ? atoi(value) : otherwise;
}

/* Ranks of this node: a number, or Slurm's list of all nodes', 2(x3),1. */
static int local_number(const char *variable, int otherwise)
{
    const char *at = getenv(variable);
    int node = at && at[strspn(at, "0123456789")] ? number("SLURM_NODEID", 0) : 0;
    while (at && *at) {
        const char *behind = at + strspn(at, "0123456789");
        int nodes = strncmp(behind, "(x", 2) ? 1 : atoi(behind + 2);
        if (node < nodes)
            return atoi(at);
        node -= nodes;
        at = strchr(at, ',');
        at += at != NULL;
    }
    return otherwise;
}

struct launch launch_find(void)
{
    struct launch l = {.ranks = 1, .local = 1};
    for (size_t i = 0; i < sizeof(launchers) / sizeof(*launchers); i++) {
        int rank = number(launchers[i].rank, -1), ranks = number(launchers[i].ranks, 0);
        if (rank < 0 || rank >= ranks || (launchers[i].mark && !getenv(launchers[i].mark)))
            continue;
        /* Flux does not tell how many are here. */
        int nodes = *launchers[i].local ? 1 : number("FLUX_JOB_NNODES", 1);
        int local =
            local_number(launchers[i].local, nodes > 1 ? (ranks + nodes - 1) / nodes : ranks);
        return (struct launch){.rank = rank,
                               .ranks = ranks,
                               .local_rank = number(launchers[i].local_rank, 0),
                               .local = local < 1 || local > ranks ? ranks : local};
    }
    return l;
}

/* Of 64 sets one would do for 1024 CPUs, and the kernel fills none but a whole one. */
struct cpus {
    cpu_set_t sets[64];
};

static int cpus_count(const struct cpus *c)
{
    return CPU_COUNT_S(sizeof(c->sets), c->sets);
}

static bool cpus_take(struct cpus *c)
{
    return sched_getaffinity(0, sizeof(c->sets), c->sets) == 0;
}

int launch_cpus(void)
{
    struct cpus mine;
    return cpus_take(&mine) ? cpus_count(&mine) : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* All that the node lets this job have: of a mask of all CPUs the kernel leaves those of the
 * process's control group. */
static int job_cpus(void)
{
    struct cpus mine, all;
    int count = launch_cpus();
    memset(&all, -1, sizeof(all));
    if (cpus_take(&mine) && sched_setaffinity(0, sizeof(all.sets), all.sets) == 0) {
        count = cpus_take(&all) ? cpus_count(&all) : count;
        sched_setaffinity(0, sizeof(mine.sets), mine.sets);
    }
    return count;
}

/* The node's ranks that have the same CPUs as this one, where all have as many. */
static int sharers(int cpus, int all, int local)
{
    int64_t ranks = ((int64_t)cpus * local + all - 1) / all;
    return ranks < local ? (int)ranks : local;
}

bool launch_bound(int local)
{
    return sharers(launch_cpus(), job_cpus(), local) < local;
}

int launch_share(int cpus, int all, int local)
{
    int threads = cpus / sharers(cpus, all, local);
    return threads > 1 ? threads : 1;
}

int launch_threads(const struct launch *l)
{
    uint64_t group;
    int threads = launch_share(launch_cpus(), job_cpus(), l->local);
    int quota = groups_cpus("", &group), mine = quota / l->local > 1 ? quota / l->local : 1;
    return quota && mine < threads ? mine : threads;
}

int launch_threads_alone(void)
{
    return launch_threads(&(struct launch){.local = 1});
}

int launch_end(int status)
{
    if (status && launch_find().ranks > 1)
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    return status;
}
