// SPDX-License-Identifier: Apache-2.0
/*
 * What launchers other than MPI's leave in the environment: whether a process is one
 * of several, where rank 0 is, Slurm's lists; and what the library makes of it where
 * MPI is not started.
 */
#include "src/comm/job.h"

#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/launch.h"
#include "src/clock.h"
#include "src/comm/comm.h"
#include "tests/support/suite.h"

/* ------------------------------------------------------------ environments */

static const char *const all[] = {"RANK",
                                  "WORLD_SIZE",
                                  "LOCAL_RANK",
                                  "LOCAL_WORLD_SIZE",
                                  "MASTER_ADDR",
                                  "MASTER_PORT",
                                  "TORCHELASTIC_RUN_ID",
                                  "TORCHELASTIC_USE_AGENT_STORE",
                                  "SLURM_JOB_ID",
                                  "SLURM_STEP_ID",
                                  "SLURM_RESTART_COUNT",
                                  "SLURM_PROCID",
                                  "SLURM_NTASKS",
                                  "SLURM_STEP_NUM_TASKS",
                                  "SLURM_LOCALID",
                                  "SLURM_NODEID",
                                  "SLURM_TASKS_PER_NODE",
                                  "SLURM_STEP_TASKS_PER_NODE",
                                  "SLURM_JOB_NODELIST",
                                  "SLURM_STEP_NODELIST",
                                  "OMPI_COMM_WORLD_SIZE",
                                  "PMIX_RANK",
                                  "PMI_SIZE",
                                  "PMI_RANK",
                                  "PMI_LOCAL_RANK",
                                  "PMI_LOCAL_SIZE",
                                  "FLUX_TASK_RANK",
                                  "FLUX_TASK_LOCAL_ID",
                                  "FLUX_JOB_SIZE",
                                  "FLUX_JOB_NNODES",
                                  "MPI_LOCALRANKID",
                                  "MPI_LOCALNRANKS",
                                  "MV2_COMM_WORLD_SIZE"};

/* Words NAME=value are all that launchers have set. */
static void environment(const char *words)
{
    char copy[1024], *rest = copy, *word;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        unsetenv(all[i]);
    snprintf(copy, sizeof(copy), "%s", words);
    while ((word = strsep(&rest, " "))) {
        char *value = strchr(word, '=');
        if (!value)
            continue;
        *value++ = '\0';
        setenv(word, value, 1);
    }
}

#define SBATCH                                                                                     \
    "SLURM_JOB_ID=12 SLURM_JOB_NODELIST=n[1-2] SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_LOCALID=0 "     \
    "SLURM_NODEID=0 SLURM_TASKS_PER_NODE=2(x2) "
#define SRUN                                                                                       \
    "SLURM_JOB_ID=12 SLURM_STEP_ID=3 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=3 "        \
    "SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_TASKS_PER_NODE=9 SLURM_STEP_TASKS_PER_NODE=2(x2) "       \
    "SLURM_JOB_NODELIST=x[1-9] SLURM_STEP_NODELIST=n[4-5] "
#define TORCHRUN                                                                                   \
    "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node-a MASTER_PORT=29500 "    \
    "TORCHELASTIC_RUN_ID=run "

/* ------------------------------------------------------------- one of several */

START_TEST(alone_is_alone)
{
    static const char *const words[] = {
        "",
        SBATCH,                                                     /* the body of a batch script */
        "SLURM_JOB_ID=12 SLURM_NTASKS=4 SLURM_JOB_NODELIST=n[1-2]", /* a shell of salloc */
        SBATCH "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1", /* srun --pty bash, and from there */
        "WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1",      /* what scripts export for others */
        "RANK=0 WORLD_SIZE=4",
        "RANK=0 WORLD_SIZE=1 MASTER_ADDR=a MASTER_PORT=1",
    };
    struct zero_comm *comm;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        struct error error = {0};
        struct job job;
        environment(words[i]);
        ck_assert_msg(job_find(&job, &error) == ZERO_OK, "'%s': %s", words[i], error.text);
        ck_assert_msg(job.size == 1 && job.rank == 0 && job.launcher == JOB_ALONE, "'%s'",
                      words[i]);
        ck_assert_int_eq(comm_default_create(ZERO_CUDA, 300, &comm, &error), ZERO_OK);
        ck_assert_int_eq(comm->size, 1);
        comm->ops->destroy(comm);
    }
}
END_TEST

struct place {
    const char *words;
    struct job job;
};

static const struct place places[] = {
    {SRUN, {JOB_SLURM, NULL, 3, 4, 1, 2, "n4", 0, "slurm 12.3."}},
    {SRUN "SLURM_RESTART_COUNT=1 MASTER_ADDR=10.0.0.1 MASTER_PORT=1234",
     {JOB_SLURM, NULL, 3, 4, 1, 2, "10.0.0.1", 1234, "slurm 12.3.1"}},
    {SRUN "SLURM_STEP_TASKS_PER_NODE=4 SLURM_NODEID=0 SLURM_LOCALID=3",
     {JOB_SLURM, NULL, 3, 4, 3, 4, "127.0.0.1", 0, "slurm 12.3."}},
    {SRUN "SLURM_STEP_TASKS_PER_NODE=3,1 SLURM_LOCALID=0",
     {JOB_SLURM, NULL, 3, 4, 0, 1, "n4", 0, "slurm 12.3."}},
    {SRUN "PMI_RANK=3 PMI_SIZE=4 ", {JOB_SLURM, NULL, 3, 4, 1, 2, "n4", 0, "slurm 12.3."}},
    {TORCHRUN, {JOB_TORCHRUN, NULL, 3, 4, 1, 2, "node-a", 29500, "torchrun run:29500"}},
    {SRUN TORCHRUN "TORCHELASTIC_USE_AGENT_STORE=True", /* the inner launcher counts */
     {JOB_TORCHRUN, NULL, 3, 4, 1, 2, "node-a", 29501, "torchrun run:29500"}},
    {SRUN
     "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 MASTER_ADDR=10.0.0.1 MASTER_PORT=1234", /* by a script */
     {JOB_SLURM, NULL, 3, 4, 1, 2, "10.0.0.1", 1234, "slurm 12.3."}},
    {TORCHRUN "LOCAL_WORLD_SIZE=4 LOCAL_RANK=3 MASTER_ADDR=unknown",
     {JOB_TORCHRUN, NULL, 3, 4, 3, 4, "127.0.0.1", 29500, "torchrun run:29500"}},
};

START_TEST(launchers_tell_where_rank_0_is)
{
    const struct place *p = &places[_i];
    const struct job *is = &p->job;
    struct error error = {0};
    struct job job;
    environment(p->words);
    ck_assert_msg(!job_find(&job, &error) && !job_locate(&job, &error), "%s", error.text);
    ck_assert_int_eq(job.launcher, is->launcher);
    ck_assert_int_eq(job.rank, is->rank);
    ck_assert_int_eq(job.size, is->size);
    ck_assert_int_eq(job.local_rank, is->local_rank);
    ck_assert_int_eq(job.local_size, is->local_size);
    /* Programs, which choose a GPU by it, find the same. */
    const struct launch l = launch_find();
    ck_assert_int_eq(l.rank, is->rank);
    ck_assert_int_eq(l.ranks, is->size);
    ck_assert_int_eq(l.local_rank, is->local_rank);
    ck_assert_int_eq(l.local, is->local_size);
    ck_assert_str_eq(job.host, is->host);
    ck_assert_str_eq(job.name, is->name);
    if (is->port)
        ck_assert_int_eq(job.port, is->port);
    else
        ck_assert(job.port >= 20000 && job.port < 32000);
}
END_TEST

/* Ranks of MPICH's mpirun, which has started one process a node by an srun that speaks PMIx. */
#define MPICH_IN_STEP                                                                              \
    SRUN "SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_PROCID=1 SLURM_LOCALID=0 "  \
         "PMIX_RANK=1 PMI_RANK=5 PMI_SIZE=6 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=3 "

START_TEST(an_mpirun_in_a_step_counts)
{
    environment(MPICH_IN_STEP);
    const struct launch l = launch_find();
    ck_assert_int_eq(l.rank, 5);
    ck_assert_int_eq(l.ranks, 6);
    ck_assert_int_eq(l.local_rank, 2);
    ck_assert_int_eq(l.local, 3);
}
END_TEST

/* Those that start MPI's ranks: HPE's PALS; Flux, which does not tell how many are on a node. */
START_TEST(other_launchers_tell_which_gpu)
{
    environment("PMI_RANK=5 PMI_SIZE=6 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=2");
    struct launch l = launch_find();
    ck_assert(l.rank == 5 && l.ranks == 6 && l.local_rank == 1 && l.local == 2);
    environment("FLUX_TASK_RANK=5 FLUX_JOB_SIZE=6 FLUX_TASK_LOCAL_ID=1 FLUX_JOB_NNODES=4 "
                "PMI_RANK=5 PMI_SIZE=6");
    l = launch_find();
    ck_assert(l.rank == 5 && l.ranks == 6 && l.local_rank == 1 && l.local == 2);
}
END_TEST

/* Steps of a job, and jobs, are likely to begin at ports of their own. */
START_TEST(ports_differ_by_step)
{
    int ports[8];
    for (int i = 0; i < 8; i++) {
        char words[600];
        struct error error = {0};
        struct job job;
        snprintf(words, sizeof(words), "%sSLURM_JOB_ID=%d SLURM_STEP_ID=%d", SRUN, 100 + i / 4,
                 i % 4);
        environment(words);
        ck_assert(!job_find(&job, &error) && !job_locate(&job, &error));
        ports[i] = job.port;
        for (int j = 0; j < i; j++)
            ck_assert(abs(ports[i] - ports[j]) >= JOB_PORTS);
    }
}
END_TEST

struct wrong {
    const char *words, *sentence;
};

static const struct wrong wrongs[] = {
    {SRUN "SLURM_STEP_NUM_TASKS=four",
     "SLURM_STEP_NUM_TASKS is 'four', not a number of 1 to 1000000. Start all ranks with srun, "
     "which sets it, or unset SLURM_STEP_NUM_TASKS for one rank."},
    {SRUN "SLURM_PROCID=4", "SLURM_PROCID is '4', not a number of 0 to 3. "},
    {SRUN "SLURM_PROCID=-1", "SLURM_PROCID is '-1', "},
    {SRUN "SLURM_PROCID=99999999999", "SLURM_PROCID is '99999999999', "},
    {SRUN "SLURM_NODEID=", "SLURM_NODEID is '', not a number "},
    {SRUN "SLURM_LOCALID=2", "SLURM_LOCALID is '2', not a number of 0 to 1. "},
    {SRUN "SLURM_STEP_TASKS_PER_NODE=2", "SLURM_STEP_TASKS_PER_NODE is '2', which does not say "},
    {SRUN "SLURM_STEP_TASKS_PER_NODE=5(x2)", "SLURM_STEP_TASKS_PER_NODE is '5(x2)', which "},
    {SRUN "SLURM_STEP_NODELIST=n[4", "SLURM_STEP_NODELIST is 'n[4', not a list of hosts. "},
    {SRUN "SLURM_PROCID=0 SLURM_LOCALID=0",
     "Rank 0 runs on node 1 of this step, and the other ranks look for it on the first (n4)."},
    {SRUN "MASTER_ADDR=", "MASTER_ADDR is a name of 0 characters. "},
    {SRUN "MASTER_PORT=65536", "MASTER_PORT is '65536', not a number of 1 to 65519. Set it "},
    {TORCHRUN "WORLD_SIZE=2x", "WORLD_SIZE is '2x', not a number of 1 to 1000000. Start all "
                               "ranks with torchrun, "},
    {TORCHRUN "LOCAL_RANK=2", "LOCAL_RANK is '2', not a number of 0 to 1. "},
    {SRUN "SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 MASTER_ADDR=a "
          "MASTER_PORT=1", /* started from an interactive step */
     "LOCAL_WORLD_SIZE is '', not a number of 1 to 4. "},
    {TORCHRUN "MASTER_PORT=0", "MASTER_PORT is '0', "},
    {TORCHRUN "MASTER_PORT=65520", "MASTER_PORT is '65520', not a number of 1 to 65519. "},
};

START_TEST(wrong_variables_are_named)
{
    struct error error = {0};
    struct job job;
    environment(wrongs[_i].words);
    if (!job_find(&job, &error))
        job_locate(&job, &error);
    ck_assert_int_eq(error.status, ZERO_ERR_ARGUMENT);
    ck_assert_msg(strstr(error.text, wrongs[_i].sentence) == error.text, "%s", error.text);
}
END_TEST

START_TEST(a_name_without_end_is_named)
{
    static char words[1000] = TORCHRUN "MASTER_ADDR=";
    struct error error = {0};
    struct job job;
    char sentence[40], *name = words + strlen(words);
    int most = (int)sizeof(job.host) - 1;
    memset(name, 'a', (size_t)most);
    environment(words);
    ck_assert(!job_find(&job, &error) && !job_locate(&job, &error));
    ck_assert_str_eq(job.host, name);
    name[most] = 'a';
    environment(words);
    ck_assert_int_eq(job_find(&job, &error), ZERO_OK);
    ck_assert_int_eq(job_locate(&job, &error), ZERO_ERR_ARGUMENT);
    snprintf(sentence, sizeof(sentence), "a name of %d characters", most + 1);
    ck_assert_msg(strstr(error.text, sentence), "%s", error.text);
}
END_TEST

/* --------------------------------------------------------------- selection */

static void expect_refused(const char *words, enum zero_device device, const char *part)
{
    struct zero_comm *comm;
    struct error error = {0};
    environment(words);
    ck_assert_int_eq(comm_default_create(device, 300, &comm, &error), ZERO_ERR_UNSUPPORTED);
    ck_assert_ptr_null(comm);
    ck_assert_msg(strstr(error.text, part), "%s", error.text);
}

/* A rank of several that fails is outlived by what the others say. */
START_TEST(a_rank_that_fails_lingers)
{
    for (int i = 0; i < 3; i++) { /* of several, well; alone, failed; of several, failed */
        environment(i == 1 ? "" : SRUN);
        double least = 1;
        for (int tries = 0; tries < 5; tries++) {
            double begin = seconds_now();
            ck_assert_int_eq(launch_end(i), i);
            double seconds = seconds_now() - begin;
            least = seconds < least ? seconds : least;
        }
        ck_assert_msg((least >= 0.1) == (i == 2), "%d: %g s", i, least);
    }
}
END_TEST

START_TEST(several_ranks_are_told_how_to_start)
{
#ifdef HAVE_MPI
    expect_refused(SRUN, ZERO_CPU,
                   "This job has 4 ranks (SLURM_STEP_NUM_TASKS is set), but it was not started "
                   "under MPI, which ranks on the CPU need. Start them with srun --mpi=pmix -n 4, "
                   "or unset SLURM_STEP_NUM_TASKS for one rank.");
    expect_refused(
        TORCHRUN, ZERO_CPU,
        "This job has 4 ranks (WORLD_SIZE is set), but it was not started under MPI, which ranks "
        "on the CPU need. Start them with mpirun -n 4, or unset WORLD_SIZE for one rank.");
    /* Under an srun that speaks PMIx: torchrun is that one's rank, not its workers. */
    expect_refused(SRUN "PMIX_RANK=1 PMI_RANK=1 SLURM_STEP_NUM_TASKS=1 " TORCHRUN, ZERO_CPU,
                   "This job has 4 ranks (WORLD_SIZE is set), but it was not started under MPI");
#else
    expect_refused(SRUN, ZERO_CPU,
                   "This job has 4 ranks (SLURM_STEP_NUM_TASKS is set) and this build has no MPI.");
    expect_refused(TORCHRUN, ZERO_CPU,
                   "This job has 4 ranks (WORLD_SIZE is set) and this build has no MPI.");
#endif
}
END_TEST

#ifndef HAVE_MPI
/* Under an srun that speaks PMIx or PMI GPUs need of it no more than without. */
static const char *const spoken[] = {"PMIX_RANK=3 ", "PMI_RANK=3 PMI_SIZE=4 "};
START_TEST(gpus_need_no_mpi)
{
    char words[1024];
    struct zero_comm *comm;
    struct error error = {0};
    expect_refused(SRUN "PMIX_RANK=3", ZERO_CPU,
                   "This job has 4 ranks (PMIX_RANK is set) and this build has no MPI.");
    expect_refused(SRUN "PMI_RANK=3 PMI_SIZE=8", ZERO_CUDA, /* an mpirun in the step */
                   "This job has 8 ranks (PMI_SIZE is set) and this build has no MPI.");
    expect_refused(MPICH_IN_STEP, ZERO_CUDA,
                   "This job has 6 ranks (PMI_SIZE is set) and this build has no MPI.");
    expect_refused(MPICH_IN_STEP "SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 ", ZERO_CPU,
                   "This job has 6 ranks (PMI_SIZE is set) and this build has no MPI.");
    snprintf(words, sizeof(words), SRUN "%sMASTER_ADDR=127.0.0.1 MASTER_PORT=1", spoken[_i]);
    environment(words);
    ck_assert_int_eq(comm_default_create(ZERO_CUDA, 1, &comm, &error), ZERO_ERR_DEADLINE);
    ck_assert_msg(strstr(error.text, "Rank 0 did not answer rank 3 at 127.0.0.1"), "%s",
                  error.text);
}
END_TEST
#endif

START_TEST(a_wrong_variable_is_no_lone_rank)
{
    struct zero_comm *comm;
    struct error error = {0};
    environment(SRUN "SLURM_STEP_NUM_TASKS=");
    ck_assert_int_eq(comm_default_create(ZERO_CPU, 300, &comm, &error), ZERO_ERR_ARGUMENT);
    ck_assert_ptr_null(comm);
}
END_TEST

/* ------------------------------------------------------------ Slurm's lists */

START_TEST(first_hosts)
{
    static const char *const lists[][2] = {
        {"n1", "n1"},
        {"n1,n2", "n1"},
        {"gpu[003-005,7]-ib", "gpu003-ib"},
        {"gpu[003-005,7]-ib,other[1-2]", "gpu003-ib"},
        {"gpu[7]", "gpu7"},
        {"gpu[10,2,3-4]", "gpu10"},
        {"rack[2-3]node[08-15]", "rack2node08"},
        {"[1-2]", "1"},
        {"a.b-c_d.example.org", "a.b-c_d.example.org"},
        {"n1,broken[", "n1"},
    };
    static const char *const malformed[] = {
        "",      ",n1",     "n[",    "n[]",  "n[1",    "n[1-",    "n[1-]",
        "n[-2]", "n[1,]",   "n[,1]", "n[a]", "n[1-b]", "n[1--2]", "n[1-2-3]",
        "n]1",   "n[1[2]]", "n 1",   "n\n",  "n[1 ]",  "n;rm",    "(null)"};
    char host[256];
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        ck_assert_msg(job_first_host(lists[i][0], host, sizeof(host)), "%s", lists[i][0]);
        ck_assert_str_eq(host, lists[i][1]);
    }
    for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++)
        ck_assert_msg(!job_first_host(malformed[i], host, sizeof(host)), "'%s'", malformed[i]);
    ck_assert(job_first_host("abc[1]", host, 5));
    ck_assert(!job_first_host("abc[1]", host, 4));
    ck_assert(!job_first_host("abcd", host, 4));
}
END_TEST

START_TEST(tasks_of_nodes)
{
    static const struct {
        const char *list;
        int node, tasks;
    } rows[] = {
        {"2", 0, 2},           {"2", 1, 0},          {"2(x3),1", 0, 2},
        {"2(x3),1", 2, 2},     {"2(x3),1", 3, 1},    {"2(x3),1", 4, 0},
        {"4,8(x2)", 2, 8},     {"", 0, 0},           {"x", 0, 0},
        {"2(x", 0, 0},         {"2(x3", 0, 0},       {"2(x0),1", 0, 0},
        {"2(x-1)", 0, 0},      {"2,", 1, 0},         {"2 3", 1, 0},
        {"99999999999", 0, 0}, {"2147483648", 0, 0}, {"2(x99999999999)", 0, 0},
        {"-2", 0, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        ck_assert_msg(job_tasks(rows[i].list, rows[i].node) == rows[i].tasks, "'%s', node %d: %d",
                      rows[i].list, rows[i].node, job_tasks(rows[i].list, rows[i].node));
}
END_TEST

/* Ranks bound to a socket each, or two to one; ranks that are not bound, and too few CPUs. */
START_TEST(cpus_are_shared)
{
    static const struct {
        int cpus, all, local, threads;
    } rows[] = {{8, 8, 1, 8},   {8, 8, 2, 4},     {8, 8, 3, 2},     {1, 8, 8, 1}, {4, 8, 2, 4},
                {3, 4, 2, 1},   {1, 2, 3, 1},     {2, 2, 5, 1},     {8, 4, 1, 8}, {16, 32, 4, 8},
                {32, 32, 8, 4}, {32, 128, 8, 16}, {16, 128, 8, 16}, {6, 16, 4, 3}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int threads = launch_share(rows[i].cpus, rows[i].all, rows[i].local);
        ck_assert_msg(threads == rows[i].threads, "%d CPUs of %d, %d ranks: %d threads",
                      rows[i].cpus, rows[i].all, rows[i].local, threads);
    }
}
END_TEST

/* What the job has is found by way of this thread's mask. */
START_TEST(a_mask_stays)
{
    cpu_set_t mine, one, now;
    ck_assert(!sched_getaffinity(0, sizeof(mine), &mine));
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    ck_assert(!sched_setaffinity(0, sizeof(one), &one));
    ck_assert_int_eq(launch_bound(CPU_COUNT(&mine)), CPU_COUNT(&mine) > 1);
    ck_assert(!sched_getaffinity(0, sizeof(now), &now));
    ck_assert(CPU_EQUAL(&now, &one));
    ck_assert(!sched_setaffinity(0, sizeof(mine), &mine));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("job");
    TCase *tests = tcase_create("job");
    tcase_add_test(tests, alone_is_alone);
    tcase_add_loop_test(tests, launchers_tell_where_rank_0_is, 0,
                        (int)(sizeof(places) / sizeof(places[0])));
    tcase_add_test(tests, an_mpirun_in_a_step_counts);
    tcase_add_test(tests, other_launchers_tell_which_gpu);
    tcase_add_test(tests, ports_differ_by_step);
    tcase_add_loop_test(tests, wrong_variables_are_named, 0,
                        (int)(sizeof(wrongs) / sizeof(wrongs[0])));
    tcase_add_test(tests, a_name_without_end_is_named);
    tcase_add_test(tests, a_rank_that_fails_lingers);
    tcase_add_test(tests, several_ranks_are_told_how_to_start);
#ifndef HAVE_MPI
    tcase_add_loop_test(tests, gpus_need_no_mpi, 0, 2);
#endif
    tcase_add_test(tests, a_wrong_variable_is_no_lone_rank);
    tcase_add_test(tests, cpus_are_shared);
    tcase_add_test(tests, a_mask_stays);
    tcase_add_test(tests, first_hosts);
    tcase_add_test(tests, tasks_of_nodes);
    suite_add_tcase(suite, tests);
    return suite_run_all(suite);
}
