// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpus.h"

#include <stdio.h>

#include "kernels/cuda/runtime.h"
#include "tests/support/fake_cublas.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/fake_nccl.h"

/* Not there beside the real ones. */
#pragma weak fake_cuda_start
#pragma weak fake_cuda_stop
#pragma weak fake_cuda_reported
#pragma weak fake_nccl_start
#pragma weak fake_nccl_stop
#pragma weak fake_nccl_reported
#pragma weak fake_cublas_alive

bool gpus_fake(void)
{
    return fake_cuda_start != NULL;
}

int gpus_begin(const struct fake_cuda_options *fakes)
{
    int count = 0;
    if (fakes && fake_cuda_start)
        fake_cuda_start(fakes);
    if (fakes && fake_nccl_start)
        fake_nccl_start(&(struct fake_nccl_options){.seed = fakes->seed});
    cudaError_t none = cudaGetDeviceCount(&count);
    if (none != cudaSuccess || count == 0) {
        printf("no GPU: %s\n", cudaGetErrorName(none));
        return 0;
    }
    return count;
}

int gpus_end(void)
{
    int reports = 0;
    if (fake_cuda_stop) {
        fake_cuda_stop();
        reports += fake_cuda_reported(FAKE_CUDA_REPORTS);
    }
    if (fake_nccl_stop) {
        fake_nccl_stop();
        reports += fake_nccl_reported(FAKE_NCCL_REPORTS);
    }
    return reports + (fake_cublas_alive ? fake_cublas_alive() : 0);
}
