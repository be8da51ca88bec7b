// SPDX-License-Identifier: Apache-2.0
/*
 * What the engine adds to the public table of struct zero_comm: the backends it
 * makes by itself, and the one place where headers are compared.
 */
#ifndef SRC_COMM_COMM_H
#define SRC_COMM_COMM_H

#include <stdbool.h>

#include "include/zero.h"
#include "src/error.h"

/* One rank alone. */
int comm_self_create(struct zero_comm **comm, struct error *error);

/*
 * For ranks that compute on device: MPI as the job's launcher provides it, started
 * when the program has not; self when the process was not launched beside others. Where
 * torchrun or srun without PMI and PMIx (this build without MPI: also with) has started several
 * ranks, TCP with ZERO_CUDA, over which units do not go (src/comm/tcp.h), else
 * ZERO_ERR_UNSUPPORTED, as when they need MPI and this build has none, or MPI runs with less
 * than MPI_THREAD_MULTIPLE. ZERO_ERR_DEADLINE when the others do not come within seconds; with
 * MPI from then on. A library-started MPI is finalised at exit.
 */
int comm_default_create(enum zero_device device, int seconds, struct zero_comm **comm,
                        struct error *error);
/* How long its end at exit waits for the other ranks: the most of what those say that were in use,
 * or before any was done with, what the last start waited. */
void comm_exit_deadline(int seconds);
int comm_exit_seconds(void);

/* Whether it is that over TCP, or one of MPI's. */
bool comm_tcp_is(const struct zero_comm *comm);
bool comm_mpi_is(const struct zero_comm *comm);

/*
 * ZERO_OK when rank peer made the same call; else sets comm->error to a
 * sentence that names both calls (or the peer's failure) and returns
 * ZERO_ERR_MISMATCH (or ZERO_ERR_COMM).
 */
int comm_header_compare(struct zero_comm *comm, const struct zero_collective *mine, int peer,
                        const struct zero_collective_header *theirs);

/* Sets comm->error for calls of this rank after it gave up itself, before message sequence. */
void comm_given_up(struct zero_comm *comm, uint64_t sequence);

/* Of src/comm/mpi.c, in builds with MPI: whether MPI runs in this process; the
 * backend over all ranks of the job, started if need be; and what a test wants else: the size
 * above which a transfer is cut in several (1 GiB), and nodes, by the lowest rank of each
 * rank's (size), between which also the smallest parts are passed on. */
bool comm_mpi_started(void);
int comm_mpi_default(int seconds, struct zero_comm **comm, struct error *error);
void comm_mpi_transfer_max(struct zero_comm *comm, int64_t bytes);
void comm_mpi_nodes(struct zero_comm *comm, const int *first);

#endif
