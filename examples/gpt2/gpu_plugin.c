// SPDX-License-Identifier: Apache-2.0
/* The plugin with the layers on GPUs: where it is, and what is said where it is not. It
 * is opened for --device cuda alone, and stays open. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/gpt2/device.h"

/* Where it stands: beside the program, else where the loader looks. */
static void find(char *file, size_t size)
{
    char program[PATH_MAX] = "";
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    const char *slash = n > 0 ? strrchr(program, '/') : NULL;
    snprintf(file, size, "%.*s" GPU_PLUGIN_FILE, slash ? (int)(slash + 1 - program) : 0, program);
    if (access(file, R_OK) != 0)
        snprintf(file, size, GPU_PLUGIN_FILE);
}

static bool fits(const struct gpu_plugin *plugin, const char *file, char *error, size_t error_size)
{
    if (!plugin)
        snprintf(error, error_size,
                 "%.300s is no plugin of gpt2. Name gpt2_cuda.so in " GPU_PLUGIN_VARIABLE
                 ", or unset it.",
                 file);
    else if (strcmp(plugin->version, SOURCES) != 0)
        snprintf(error, error_size,
                 "%.300s is of libzero %.20s, built from other sources than this program, %s. "
                 "Build both together.",
                 file, plugin->version, SOURCES);
    else
        return true;
    return false;
}

const struct gpu_plugin *gpu_plugin_open(char *error, size_t error_size)
{
    char found[PATH_MAX + 32];
    const char *file = getenv(GPU_PLUGIN_VARIABLE);
    bool asked = file && *file;
    if (!asked) {
        find(found, sizeof(found));
        file = found;
    }
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *reason = dlerror();
        snprintf(error, error_size, "The plugin for --device cuda cannot be opened: %.300s. %s.",
                 reason ? reason : file,
                 asked ? "Name gpt2_cuda.so in " GPU_PLUGIN_VARIABLE ", or unset it"
                       : "Run make on a machine with the CUDA toolkit, and load the toolkit's "
                         "module if cuBLAS is missing");
        return NULL;
    }
    const struct gpu_plugin *plugin = dlsym(handle, GPU_PLUGIN_SYMBOL);
    return fits(plugin, file, error, error_size) ? plugin : NULL;
}
