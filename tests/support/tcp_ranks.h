// SPDX-License-Identifier: Apache-2.0
/* Ranks over TCP that are threads of this process, for suites of it. */
#ifndef TESTS_SUPPORT_TCP_RANKS_H
#define TESTS_SUPPORT_TCP_RANKS_H

#include <pthread.h>

#include "src/comm/job.h"
#include "tests/support/comm_suite.h"

#define TCP_PATIENCE 30 /* seconds, where nothing is missing */

struct tcp_rank {
    pthread_t thread;
    struct job job;
    int seconds;
    double late; /* seconds */
    void (*body)(struct tcp_rank *me);
    struct comm_world world;
    const struct comm_scenario *scenario;
    struct zero_comm *comm;
    struct error error;
    char text[496]; /* the comm's, at the end of body */
    double took;
};

/* A job of this process, all ranks on this node. Each process has ports of its own, for
 * four jobs. */
struct job tcp_job(int rank, int size);

/* Starts a rank, of me->job where that is set. */
void tcp_start(struct tcp_rank *me, int rank, int size);
void tcp_start_all(struct tcp_rank *ranks, int size);
void tcp_join(struct tcp_rank *ranks, int size);

/* What came of them: no error; no communicator, but a sentence that begins so; a
 * communicator whose last sentence begins so. */
void tcp_expect_joined(const struct tcp_rank *ranks, int size);
void tcp_expect_error(const struct tcp_rank *r, int status, const char *sentence);
void tcp_expect_text(const struct tcp_rank *r, const char *sentence);

/* One collective, to its end; the status. */
int tcp_run(struct zero_comm *comm, int kind, void *data, int64_t bytes, int root);

/* A body: some sums, checked. */
void tcp_sums(struct tcp_rank *me);

void tcp_nap(double seconds);

#endif
