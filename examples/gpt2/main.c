// SPDX-License-Identifier: Apache-2.0
/* The gpt2 program: trains a GPT on text with its state sharded and offloaded.
 * Exit status: 0 all went well, 1 the run failed, 2 the command line is wrong,
 * 128 + n signal n ended it. */
#include <signal.h>
#include <stdio.h>

#include "examples/common/file.h"
#include "examples/common/launch.h"
#include "examples/common/stop.h"
#include "examples/gpt2/matmul.h"
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

/* Rank 0's, as all ranks stop after the same step. Its status is what a shell
 * makes of a process that the signal ended. */
static int stopped(const struct run *r)
{
    if (zero_rank(r->z) == 0)
        fprintf(stderr,
                "rank 0: %s stopped all ranks after step %lld of %d. %s: to make all steps, start "
                "the run again.\n",
                stop_name(r->stopped), (long long)(r->before + r->made), r->a->steps,
                r->kept ? "It goes on from its checkpoint" : "Nothing of the model is saved");
    return 128 + r->stopped;
}

static void explain(struct run *r, int rank)
{
    if (r->live)
        putchar('\n');
    fflush(stdout);
    if (stop_asked())
        fprintf(stderr, "rank %d: after %s: %s\n", rank, stop_name(stop_asked()), r->error);
    else
        fprintf(stderr, "rank %d: %s\n", rank, r->error);
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
    if (status && run.error[0])
        explain(&run, rank);
    status = status ? 1 : run.stopped ? stopped(&run) : 0;
    run_destroy(&run);
    return status;
}

static int help(int rank)
{
    if (rank == 0)
        arguments_help(stdout);
    return file_printed_by(rank);
}

int main(int argc, char **argv)
{
    struct arguments a;
    char error[512] = "";
    file_hold_standard();
    stop_begin();
    int rank = launch_find().rank;
    signal(SIGXFSZ, SIG_IGN); /* a write beyond ulimit -f fails, and is told */
    if (arguments_parse(&a, argc, argv, error, sizeof(error))) {
        fprintf(stderr, "rank %d: %s\n", rank, error);
        return launch_end(2);
    }
    if (a.bf16x3 && !a.help && !matmul_by_terms(true) && !a.plan) {
        fprintf(stderr,
                "rank %d: --bf16x3 needs AMX, which is missing here: in this CPU, in Linux "
                "(needed: 5.16 or later) or in this build (needed: gcc 11, clang 12 or later). "
                "Leave --bf16x3 out.\n",
                rank);
        return launch_end(1);
    }
    return launch_end(a.help ? help(rank) : a.plan ? plan(&a, rank) : train(&a, rank));
}
