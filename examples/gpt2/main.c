// SPDX-License-Identifier: Apache-2.0
/* The gpt2 program: trains a GPT on text with its state sharded and offloaded.
 * Exit status: 0 all went well, 1 the run failed, 2 the command line is wrong. */
#include <stdio.h>
#include <stdlib.h>

#include "examples/gpt2/train.h"

/* The rank as the launcher tells it, while there is no engine to ask. mpirun's
 * own variable is first: under Slurm, mpirun leaves SLURM_PROCID 0 everywhere. */
static int launched_rank(void)
{
    const char *names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (int i = 0; i < 4; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return atoi(value);
    }
    return 0;
}

static int train(const struct arguments *a)
{
    struct run run;
    int rank = launched_rank();
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
    if (arguments_parse(&a, argc, argv, error, sizeof(error))) {
        fprintf(stderr, "rank %d: %s\n", launched_rank(), error);
        return 2;
    }
    if (!a.help)
        return train(&a);
    if (launched_rank() == 0)
        arguments_help(stdout);
    return 0;
}
