// SPDX-License-Identifier: Apache-2.0
/* Devices that are not in the library itself. */
#include "src/device/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Opens the plugin in the folder of file, or in one that is named from there, "" or "NAME/".
 * path: what is there, "": nothing. */
static void *open_beside(const char *file, const char *from, char path[PATH_MAX])
{
    const char *slash = strrchr(file, '/');
    int length = slash ? (int)(slash - file) + 1 : 0;
    if (!slash ||
        snprintf(path, PATH_MAX, "%.*s%s" DEVICE_PLUGIN_FILE, length, file, from) >= PATH_MAX ||
        access(path, R_OK) != 0) {
        path[0] = '\0';
        return NULL;
    }
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* Beside the library, beside the program, from there in ../lib, where the loader looks. own: the
 * file that the library is in; path: the plugin's, where it is in one of these folders. */
static void *find(char own[PATH_MAX], char path[PATH_MAX])
{
    char program[PATH_MAX] = "";
    Dl_info info = {0};
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (n < 0)
        program[0] = '\0';
    dladdr(DEVICE_PLUGIN_FILE, &info);
    snprintf(own, PATH_MAX, "%s", info.dli_fname ? info.dli_fname : program);
    void *handle = open_beside(own, "", path);
    if (!*path)
        handle = open_beside(program, "", path);
    if (!*path)
        handle = open_beside(program, "../lib/", path);
    return *path ? handle : dlopen(DEVICE_PLUGIN_FILE, RTLD_NOW | RTLD_LOCAL);
}

static int check(const struct device_plugin *plugin, const char *file, struct error *error)
{
    if (!plugin)
        return error_set(error, ZERO_ERR_UNSUPPORTED,
                         "%.300s is no plugin of libzero. Name libzero_cuda.so in "
                         "ZERO_CUDA_PLUGIN, or unset it.",
                         file);
    if (strcmp(plugin->version, SOURCES) != 0)
        return error_set(error, ZERO_ERR_UNSUPPORTED,
                         "%.300s is of libzero %.20s, built from other sources than this library, "
                         "%s. Build and install both together.",
                         file, plugin->version, SOURCES);
    return ZERO_OK;
}

/* asked: the file that the environment names, or NULL. */
static void *open_plugin(const char *asked, struct error *error)
{
    char own[PATH_MAX] = "", path[PATH_MAX] = "";
    void *handle = asked ? dlopen(asked, RTLD_NOW | RTLD_LOCAL) : find(own, path);
    const char *reason = handle ? NULL : dlerror();
    size_t length = strlen(path);
    if (reason && length && !strncmp(reason, path, length) && !strncmp(reason + length, ": ", 2))
        reason += length + 2; /* the sentence names the file itself, and has room for it once */
    if (!handle && asked)
        error_set(error, ZERO_ERR_UNSUPPORTED,
                  "The CUDA plugin that ZERO_CUDA_PLUGIN names cannot be opened: %.300s. Name "
                  "libzero_cuda.so there, or unset it.",
                  reason ? reason : asked);
    else if (!handle && *path)
        error_set(error, ZERO_ERR_UNSUPPORTED,
                  "The CUDA plugin %.200s cannot be opened: %.150s. Install the libraries that it "
                  "was built with (ldd lists them), or add their folder to LD_LIBRARY_PATH.",
                  path, reason ? reason : "no reason is known");
    else if (!handle)
        error_set(error, ZERO_ERR_UNSUPPORTED,
                  "There is no CUDA plugin beside %.200s, nor could the loader open one (%.150s). "
                  "Run make on a machine with the CUDA toolkit, and install both.",
                  own, reason ? reason : DEVICE_PLUGIN_FILE);
    return handle;
}

/* The plugin, or NULL with a sentence. */
static const struct device_plugin *plugin_find(struct error *error)
{
    const char *asked = getenv(DEVICE_PLUGIN_VARIABLE);
    asked = asked && *asked ? asked : NULL;
    void *handle = open_plugin(asked, error);
    if (!handle)
        return NULL;
    const struct device_plugin *plugin = dlsym(handle, DEVICE_PLUGIN_SYMBOL);
    return check(plugin, asked ? asked : DEVICE_PLUGIN_FILE, error) ? NULL : plugin;
}

int device_plugin_create(struct device **device, const struct device_options *options,
                         struct error *error)
{
    *device = NULL;
    const struct device_plugin *plugin = plugin_find(error);
    return plugin ? plugin->create(device, options, error) : error->status;
}

int device_plugin_link(struct device_link *link, struct error *error)
{
    const struct device_plugin *plugin = plugin_find(error);
    return plugin ? plugin->describe(link, error) : error->status;
}

int device_plugin_gpu(int index, struct zero_gpu *gpu, struct error *error)
{
    const struct device_plugin *plugin = plugin_find(error);
    return plugin ? plugin->use_gpu(index, gpu, error) : error->status;
}
