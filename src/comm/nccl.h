// SPDX-License-Identifier: Apache-2.0
/* Of the plugin for GPUs alone: units between ranks that have a GPU each. */
#ifndef SRC_COMM_NCCL_H
#define SRC_COMM_NCCL_H

#include "src/error.h"

#define COMM_NCCL_ID 128

/* 22809 is 2.28.9; 0: NCCL does not answer. */
int comm_nccl_version(void);

/* What one rank makes and all ranks of a communicator are given. */
int comm_nccl_id(char id[COMM_NCCL_ID], struct error *error);

/*
 * Collectives of units (GATHER and REDUCE with header.unit >= 0) between the calling
 * threads' current GPUs, each rank another one; all others over control, which is
 * borrowed, has the same ranks, and is used by nobody else until destroy. Returns at
 * once: the first collective of any kind is done when NCCL has found all ranks.
 * Where this fails the caller aborts control, so that the other ranks hear of it.
 */
int comm_nccl_create(struct zero_comm **comm, struct zero_comm *control,
                     const char id[COMM_NCCL_ID], struct error *error);

#endif
