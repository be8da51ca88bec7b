// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ranks.h"

#include <stdio.h>
#include <stdlib.h>

#include "src/thread.h"
#include "tests/support/comm_threads.h"

struct rank {
    pthread_t thread;
    int rank;
    struct zero_comm *comm;
    void (*body)(int rank, struct zero_comm *comm, void *arg);
    void *arg;
};

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    r->body(r->rank, r->comm, r->arg);
    return NULL;
}

void ranks_run(int n, void (*body)(int rank, struct zero_comm *comm, void *arg), void *arg)
{
    struct rank *ranks = calloc((size_t)n, sizeof(*ranks));
    struct comm_threads *comm = comm_threads_create(n);
    for (int r = 0; r < n; r++) {
        ranks[r] = (struct rank){.rank = r, .comm = comm_threads_rank(comm, r), .body = body,
                                 .arg = arg};
        if (thread_start(&ranks[r].thread, rank_main, &ranks[r])) {
            fprintf(stderr, "no thread for rank %d\n", r);
            abort();
        }
    }
    for (int r = 0; r < n; r++)
        pthread_join(ranks[r].thread, NULL);
    comm_threads_destroy(comm);
    free(ranks);
}
