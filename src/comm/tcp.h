// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks that MPI did not start, over TCP: for calls of the host and little data. It
 * compares calls, sums, broadcasts and gathers; a REDUCE is refused.
 */
#ifndef SRC_COMM_TCP_H
#define SRC_COMM_TCP_H

#include "src/comm/job.h"

/*
 * Connects the ranks of a job and makes their communicator. All ranks wait for each
 * other, as long as bootstrap_connect says; errors are those of it, and
 * ZERO_ERR_MEMORY. All data of a GATHER passes through rank 0, to each rank all of it.
 */
int comm_tcp_create(const struct job *job, int seconds, struct zero_comm **comm,
                    struct error *error);

/* The same over sockets that are connected, as bootstrap_connect leaves them. They are
 * the communicator's from then on, and closed where there is none. */
int comm_tcp_over(const struct job *job, const int *fds, struct zero_comm **comm,
                  struct error *error);

#endif
