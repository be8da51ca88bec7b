// SPDX-License-Identifier: Apache-2.0
/* Communication over MPI, for programs that bring their own communicator. */
#ifndef ZERO_MPI_H
#define ZERO_MPI_H

#include "zero.h"
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * COLLECTIVE over parent. Duplicates parent; needs MPI_THREAD_MULTIPLE.
 * Hand the result to zero_create as .comm; destroy it after the engine with
 * (*comm)->ops->destroy(*comm). error (may be NULL) takes the sentence of a
 * failure: ZERO_ERR_UNSUPPORTED when MPI was started with less, not yet, or has
 * ended; ZERO_ERR_STATE in a fork of the process that started it; ZERO_ERR_COMM;
 * ZERO_ERR_MEMORY; ZERO_ERR_ARGUMENT for comm NULL or a parent that is
 * MPI_COMM_NULL or an intercommunicator.
 *
 * The CPUs and the memory of a node are divided among the ranks of parent alone. Where others
 * train there too, .threads says how many are this engine's, and .program_bytes counts what the
 * others will need.
 */
ZERO_API int zero_comm_mpi(MPI_Comm parent, struct zero_comm **comm, char *error,
                           size_t error_size);

#ifdef __cplusplus
}
#endif
#endif
