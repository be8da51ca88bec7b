// SPDX-License-Identifier: Apache-2.0
/* What libzero_cuda.so is to the library: the device of src/device/cuda.c and, where it was
 * built with NCCL, the communicator of src/comm/nccl.c. */
#include <string.h>

#include "kernels/cuda/runtime.h"
#include "src/comm/nccl.h"
#include "src/device/plugin.h"

int device_cuda_link(struct device_link *link, struct error *error)
{
    struct cudaDeviceProp properties;
    int gpu = 0;
    *link = (struct device_link){0};
    cudaError_t rc = cudaGetDevice(&gpu);
    if (rc == cudaSuccess)
        rc = cudaGetDeviceProperties(&properties, gpu);
    if (rc == cudaSuccess)
        rc = cudaGetDeviceCount(&link->gpus);
    if (rc != cudaSuccess) {
        (void)cudaGetLastError();
        return error_set(error, ZERO_ERR_UNSUPPORTED,
                         "GPU %d does not say which it is: %s (%s, %d). Look whether nvidia-smi "
                         "lists it.",
                         gpu, cudaGetErrorString(rc), cudaGetErrorName(rc), (int)rc);
    }
    _Static_assert(sizeof(link->gpu) == sizeof(properties.uuid), "a name for each GPU");
    memcpy(link->gpu, &properties.uuid, sizeof(link->gpu));
    link->place = (uint64_t)properties.pciDomainID << 16 | (uint64_t)properties.pciBusID << 8 |
                  (uint64_t)properties.pciDeviceID;
#ifdef HAVE_NCCL
    _Static_assert(DEVICE_LINK_ID == COMM_NCCL_ID, "an id is an id");
    link->version = comm_nccl_version();
    link->id = comm_nccl_id;
    link->comm = comm_nccl_create;
#endif
    return ZERO_OK;
}

ZERO_API extern const struct device_plugin zero_device_plugin;
const struct device_plugin zero_device_plugin = {
    .version = SOURCES,
    .create = device_cuda_create,
    .describe = device_cuda_link,
    .use_gpu = device_cuda_gpu,
};
