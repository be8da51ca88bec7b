// SPDX-License-Identifier: Apache-2.0
/* The gpt2 program: trains a GPT on text with its state sharded and offloaded.
 * Exit status: 0 all went well, 1 the run failed, 2 the command line is wrong. */
#include <signal.h>
#include <stdio.h>

#include "examples/common/launch.h"
#include "examples/gpt2/plan.h"
#include "examples/gpt2/train.h"

/* Rank 0 speaks for all, as all would say the same. */
static int plan(struct arguments *a, int rank)
{
    char error[640] = "";
    int status = rank == 0 ? plan_run(a, error, sizeof(error)) : 0;
    if (status)
        fprintf(stderr, "rank %d: %s\n", rank, error);
    return status ? 1 : 0;
}

static int train(struct arguments *a, int rank)
{
    struct run run;
    int status = run_create(&run, a);
    if (status == 0) {
        rank = zero_rank(run.z);
        status = run_train(&run);
    }
    if (status == 0)
        status = run_finish(&run);
    if (status && run.error[0]) {
        if (run.live)
            putchar('\n');
        fflush(stdout);
        fprintf(stderr, "rank %d: %s\n", rank, run.error);
    }
    run_destroy(&run);
    return status ? 1 : 0;
}

int main(int argc, char **argv)
{
    struct arguments a;
    char error[512] = "";
    int rank = launch_find().rank;
    signal(SIGXFSZ, SIG_IGN); /* a write beyond ulimit -f fails, and is told */
    if (arguments_parse(&a, argc, argv, error, sizeof(error))) {
        fprintf(stderr, "rank %d: %s\n", rank, error);
        return 2;
    }
    if (!a.help)
        return a.plan ? plan(&a, rank) : train(&a, rank);
    if (rank == 0)
        arguments_help(stdout);
    return 0;
}
