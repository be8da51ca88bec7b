// SPDX-License-Identifier: Apache-2.0
/* GPUs, asked through the driver's own library, which is opened at run time:
 * a machine without it answers too. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "examples/zero/info.h"
#include "examples/zero/tool.h"
#include "include/zero.h"

/* As cuda.h declares them; 0 is success. */
struct driver {
    int (*init)(unsigned flags);
    int (*version)(int *version);
    int (*count)(int *count);
    int (*get)(int *device, int ordinal);
    int (*name)(char *name, int size, int device);
    int (*memory)(size_t *bytes, int device);
};

static bool symbol(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof(found)); /* ISO C has no cast for this */
    return found != NULL;
}

static bool driver_open(void *library, struct driver *d)
{
    return symbol(library, "cuInit", &d->init) &&
           symbol(library, "cuDriverGetVersion", &d->version) &&
           symbol(library, "cuDeviceGetCount", &d->count) &&
           symbol(library, "cuDeviceGet", &d->get) &&
           symbol(library, "cuDeviceGetName", &d->name) &&
           symbol(library, "cuDeviceTotalMem_v2", &d->memory);
}

static void device_print(const struct driver *d, int ordinal)
{
    char label[32], name[256] = "";
    int device;
    size_t bytes = 0;
    snprintf(label, sizeof(label), "GPU %d", ordinal);
    if (d->get(&device, ordinal) || d->name(name, sizeof(name), device) ||
        d->memory(&bytes, device))
        info_fact(label, "does not answer");
    else
        info_fact(label, "%s, %s", name, in_bytes((int64_t)bytes).text);
}

static void driver_print(const struct driver *d)
{
    int version = 0, count = 0, status = d->init(0);
    if (status) {
        info_fact("GPUs", "none: the NVIDIA driver answers with error %d", status);
        return;
    }
    if (d->version(&version) == 0)
        info_fact("CUDA driver", "for CUDA %d.%d", version / 1000, version % 1000 / 10);
    if (d->count(&count) || count == 0) {
        info_fact("GPUs", "none");
        return;
    }
    for (int i = 0; i < count; i++)
        device_print(d, i);
}

/* Whether the library can use them: its plugin may lack, or not fit the driver. */
static void plugin_print(void)
{
    struct zero_gpu gpu;
    char why[1024] = "";
    if (zero_gpu_use(-1, &gpu, why, sizeof(why)) == ZERO_OK)
        info_fact("--device cuda", "works, here on GPU %d of %d: %s", gpu.index, gpu.count,
                  gpu.name);
    else
        info_fact("--device cuda", "%s", why);
}

void info_gpu(void)
{
    struct driver d = {0};
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    puts("GPUs");
    if (!library || !driver_open(library, &d))
        info_fact("GPUs", "no NVIDIA driver");
    else
        driver_print(&d);
    if (library)
        dlclose(library);
    plugin_print();
}
