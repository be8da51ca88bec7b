// SPDX-License-Identifier: Apache-2.0
/* What makes the plugin over fake GPUs, for tests of whole programs, begin and end them:
 * nobody else in its process knows of them. ZERO_FAKE_GPUS and ZERO_FAKE_GPU_BYTES say how
 * many there are, and the memory of each, ZERO_FAKE_GPU_ALIKE=1 that they are of one kind;
 * ZERO_FAKE_NCCL_FAILS=n that NCCL's n-th call fails, ZERO_FAKE_NCCL_BYTES what memory of a GPU
 * it takes. */
#include <stdlib.h>

#include "tests/support/fake_cuda.h"
#include "tests/support/fake_nccl.h"

static int64_t number(const char *variable, int64_t otherwise)
{
    const char *value = getenv(variable);
    return value ? atoll(value) : otherwise;
}

static struct fault failing = {.kind = FAULT_NCCL_CALL};

__attribute__((constructor)) static void start(void)
{
    failing.nth = number("ZERO_FAKE_NCCL_FAILS", 0);
    fake_cuda_start(&(struct fake_cuda_options){.gpus = (int)number("ZERO_FAKE_GPUS", 1),
                                                .bytes = number("ZERO_FAKE_GPU_BYTES", 0),
                                                .alike = number("ZERO_FAKE_GPU_ALIKE", 0)});
    fake_nccl_start(
        &(struct fake_nccl_options){.bytes = number("ZERO_FAKE_NCCL_BYTES", 0), .fault = &failing});
}

__attribute__((destructor)) static void stop(void)
{
    fake_cuda_stop();
    fake_nccl_stop();
}
