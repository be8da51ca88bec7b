// SPDX-License-Identifier: Apache-2.0
/*
 * What the library uses of NCCL, and the one home of its header: calls that there are
 * since 2.14. Where there is no NCCL the same is declared here, so that src/comm/nccl.c
 * compiles, and is tested on tests/support/fake_nccl.h, everywhere; where there is one
 * the compiler holds these declarations to it.
 */
#ifndef SRC_COMM_NCCL_API_H
#define SRC_COMM_NCCL_API_H

#include <stddef.h>

#include "kernels/cuda/runtime.h"

#define NCCL_RESULTS(X)                                                                            \
    X(ncclSuccess, 0)                                                                              \
    X(ncclUnhandledCudaError, 1)                                                                   \
    X(ncclSystemError, 2)                                                                          \
    X(ncclInvalidArgument, 4)                                                                      \
    X(ncclInvalidUsage, 5)                                                                         \
    X(ncclRemoteError, 6)                                                                          \
    X(ncclInProgress, 7)

#ifdef HAVE_NCCL
#include <nccl.h>

#if NCCL_VERSION_CODE < 21400
#error "NCCL before 2.14 has no communicators that do not block: build with NCCL=0"
#endif
#define NCCL_SAME(name, value) _Static_assert(name == (value), "another value of " #name);
NCCL_RESULTS(NCCL_SAME)
NCCL_SAME(ncclUint8, 1)
NCCL_SAME(ncclFloat16, 6)
NCCL_SAME(ncclFloat32, 7)
NCCL_SAME(ncclSum, 0)
NCCL_SAME(NCCL_UNIQUE_ID_BYTES, 128)
#undef NCCL_SAME

#else

#define NCCL_NAME(name, value) name = (value),
typedef enum { NCCL_RESULTS(NCCL_NAME) } ncclResult_t;
#undef NCCL_NAME
typedef enum { ncclUint8 = 1, ncclFloat16 = 6, ncclFloat32 = 7 } ncclDataType_t;
typedef enum { ncclSum = 0 } ncclRedOp_t;

typedef struct ncclComm *ncclComm_t;

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

/* Of many members those that are used: only who is compiled with this reads it. */
typedef struct {
    size_t size;
    int blocking;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER                                                                    \
    {                                                                                              \
        .size = sizeof(ncclConfig_t), .blocking = 1                                                \
    }
#endif

/* Headers before 2.24 name it for C++ alone; what it is, it has been since 2.10. */
#define NCCL_BFLOAT16 ((ncclDataType_t)9)

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm); /* of any, NULL too: its last warning's text */

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);

ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

#endif
