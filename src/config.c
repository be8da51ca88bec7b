// SPDX-License-Identifier: Apache-2.0
/* Checks the public configuration field by field. Allocates nothing and asks
 * the machine nothing but the environment's default folders. */
#include "src/config.h"

#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offload/verify.h"
#include "src/scaler.h"

#define PLACES                                                                                     \
    {                                                                                              \
        [ZERO_DEVICE] = "device", [ZERO_HOST] = "host", [ZERO_NVME] = "nvme"                       \
    }

const char *place_name(enum zero_place place)
{
    static const char *const names[] = PLACES;
    return names[place];
}

const char *dtype_name(enum zero_dtype dtype)
{
    return dtype == ZERO_FP32 ? "fp32" : dtype == ZERO_BF16 ? "bf16" : "fp16";
}

float dtype_limit(enum zero_dtype dtype)
{
    return dtype == ZERO_FP32 ? FLT_MAX : dtype == ZERO_BF16 ? 0x1.fefffep127f : 0x1.ffdffep15f;
}

/* Integers with a default for 0 and a range. */
static int take_int(int value, int fallback, int least, int most, const char *name, int *out,
                    struct error *error)
{
    if (value != 0 && (value < least || value > most))
        return error_set(error, ZERO_ERR_ARGUMENT, "%s is %d. Use %d to %d, or 0 for the default.",
                         name, value, least, most);
    *out = value == 0 ? fallback : value;
    return ZERO_OK;
}

static int check_enum(int value, int last, const char *name, const char *values,
                      struct error *error)
{
    if (value >= 0 && value <= last)
        return ZERO_OK;
    return error_set(error, ZERO_ERR_ARGUMENT, "%s is %d. Use %s.", name, value, values);
}

static int take_places(struct settings *s, const struct zero_config *c, struct error *error)
{
    const enum zero_place given[] = {c->offload, c->offload_optimizer, c->offload_param,
                                     c->offload_grad};
    const char *names[] = {".offload", ".offload_optimizer", ".offload_param", ".offload_grad"};
    for (int i = 0; i < 4; i++)
        if (check_enum((int)given[i], ZERO_NVME, names[i], "ZERO_DEVICE, ZERO_HOST or ZERO_NVME",
                       error))
            return error->status;
    if (c->offload_grad == ZERO_NVME)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         ".offload_grad is ZERO_NVME, but gradients "
                         "never go to files. Use ZERO_DEVICE or ZERO_HOST.");
    if (c->stage < 3 && c->offload_param > ZERO_DEVICE)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         ".offload_param is %s at stage %d, where every rank keeps whole "
                         "parameters on its device. Use .stage = 3, or leave it out.",
                         place_name(c->offload_param), c->stage);
    enum zero_place all = c->offload ? c->offload : ZERO_DEVICE;
    s->state = c->offload_optimizer ? c->offload_optimizer : all;
    s->param = s->stage < 3 ? ZERO_DEVICE : c->offload_param ? c->offload_param : all;
    s->grad = c->offload_grad                  ? c->offload_grad
              : all == ZERO_DEVICE || s->local ? ZERO_DEVICE
                                               : ZERO_HOST;
    if (c->host_bytes < 0)
        return error_set(error, ZERO_ERR_ARGUMENT, ".host_bytes is %lld. Use 0 or more.",
                         (long long)c->host_bytes);
    if (c->host_bytes > 0 && s->state != ZERO_NVME)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         ".host_bytes is %lld, but the optimizer state's place is %s, not nvme. "
                         "Leave .host_bytes out, or offload the optimizer to ZERO_NVME.",
                         (long long)c->host_bytes, place_name(s->state));
    s->host_bytes = c->host_bytes;
    return ZERO_OK;
}

/* How state and gradients are kept. */
static int take_formats(struct settings *s, const struct zero_config *c, struct error *error)
{
    if (check_enum((int)c->state, ZERO_STATE_SPLIT, ".state", "ZERO_STATE_FP32 or ZERO_STATE_SPLIT",
                   error) ||
        check_enum((int)c->grad_dtype, ZERO_BF16, ".grad_dtype", "ZERO_FP32 or ZERO_BF16", error) ||
        check_enum((int)c->accumulate_in, ZERO_LOCAL, ".accumulate_in", "ZERO_SHARD or ZERO_LOCAL",
                   error))
        return error->status;
    if (c->state == ZERO_STATE_SPLIT && c->dtype != ZERO_BF16)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         ".state is ZERO_STATE_SPLIT with %s parameters, but only a bf16 weight is "
                         "half of its master. Use .dtype = ZERO_BF16, or ZERO_STATE_FP32.",
                         dtype_name(c->dtype));
    if (c->accumulate_in == ZERO_LOCAL && c->stage > 1)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         ".accumulate_in is ZERO_LOCAL at stage %d, which shards the gradients it "
                         "would keep whole. Use stage 0 or 1, or ZERO_SHARD.",
                         c->stage);
    if (c->accumulate_in == ZERO_LOCAL && c->offload_grad == ZERO_HOST)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         ".accumulate_in is ZERO_LOCAL, which keeps whole gradients on the device, "
                         "and .offload_grad is ZERO_HOST. Leave one of them out.");
    if (c->loss_scale != 0 && !scaler_holds(c->loss_scale))
        return error_set(error, ZERO_ERR_ARGUMENT,
                         ".loss_scale is %g. Use 2^-64 to 2^64, or 0 for the default.",
                         c->loss_scale);
    s->split = c->state == ZERO_STATE_SPLIT;
    s->round_grads = c->grad_dtype == ZERO_BF16;
    s->local = c->accumulate_in == ZERO_LOCAL;
    s->loss_scale = c->loss_scale > 0 ? c->loss_scale : c->dtype == ZERO_FP16 ? 0 : 1;
    return take_int(c->accumulate, 1, 1, INT_MAX, ".accumulate", &s->accumulate, error);
}

static int take_path(struct settings *s, const char *path, struct error *error)
{
    const char *const variables[] = {"SLURM_TMPDIR", "TMPDIR"}, *name = ".nvme_path";
    bool files = s->state == ZERO_NVME || s->param == ZERO_NVME;
    for (int i = 0; i < 2 && !(path && *path); i++)
        path = getenv(name = variables[i]);
    if (!(path && *path))
        path = "/var/tmp";
    if (files && name[0] != '.' && strchr(path, ':'))
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "%s is '%.200s', of which the ':' would make two folders. Name a folder "
                         "without one (--nvme-path, .nvme_path).",
                         name, path);
    if ((size_t)snprintf(s->nvme_path, sizeof(s->nvme_path), "%s", path) >= sizeof(s->nvme_path))
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "%s is longer than %zu bytes. Use a shorter one.", name,
                         sizeof(s->nvme_path) - 1);
    return ZERO_OK;
}

static int take_device(struct settings *s, const struct zero_config *c, struct error *error)
{
    if (check_enum((int)c->device, ZERO_CUDA, ".device", "ZERO_CPU or ZERO_CUDA", error) ||
        check_enum((int)c->reduction, ZERO_REDUCE_NCCL, ".reduction",
                   "ZERO_REDUCE_ORDERED or ZERO_REDUCE_NCCL", error))
        return error->status;
    if (c->stream && c->device == ZERO_CPU)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         ".stream is set with .device = ZERO_CPU, where the calling thread is the "
                         "stream. Leave it out, or use ZERO_CUDA.");
    if (c->reduction == ZERO_REDUCE_NCCL && c->device == ZERO_CPU)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         ".reduction is ZERO_REDUCE_NCCL with .device = ZERO_CPU, where there is "
                         "no NCCL. Leave it out, or use ZERO_CUDA.");
    s->device = c->device;
    s->added = c->reduction == ZERO_REDUCE_NCCL;
    s->stream = c->stream;
    s->comm_on_device = c->device == ZERO_CUDA && c->comm && c->comm->device_memory;
    s->via_host = c->device == ZERO_CUDA && !s->added && !s->comm_on_device;
    return ZERO_OK;
}

static int take_program(struct settings *s, const struct zero_config *c, struct error *error)
{
    s->program_bytes = c->program_bytes;
    if (c->program_bytes >= 0 && c->program_bytes <= (int64_t)1 << 50)
        return ZERO_OK;
    return error_set(error, ZERO_ERR_ARGUMENT, ".program_bytes is %lld. Use 0 to 2^50.",
                     (long long)c->program_bytes);
}

/* By default slots of files for 4M elements, from 4 to 32 of them, so that some can be read early;
 * else 4. */
static int take_chunks(struct settings *s, const struct zero_config *c, struct error *error)
{
    bool files = s->state == ZERO_NVME;
    s->chunk_grows = c->chunk == 0;
    s->chunk = c->chunk                 ? c->chunk
               : files                  ? ZERO_CHUNK_NVME
               : c->device == ZERO_CUDA ? ZERO_CHUNK_CUDA
                                        : ZERO_CHUNK;
    if (s->chunk < 64 || s->chunk % 64 || s->chunk > CHUNK_MAX)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         ".chunk is %lld elements. Use a multiple of 64 up to 2^30.",
                         (long long)c->chunk);
    int64_t slots = files ? 4 * ZERO_CHUNK / s->chunk : 4;
    slots = slots < 4 ? 4 : slots > 32 ? 32 : slots;
    return take_int(c->chunk_slots, (int)slots, 2, 64, ".chunk_slots", &s->chunk_slots, error);
}

int settings_resolve(struct settings *s, const struct zero_config *c, struct error *error)
{
    /* The deadline comes first: ranks are told of all other refusals within it. */
    *s = (struct settings){.deadline_seconds = DEADLINE_SECONDS};
    if (!c)
        return error_set(error, ZERO_ERR_ARGUMENT, "config is NULL. Pass a struct zero_config.");
    if (c->size != sizeof(*c))
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "config.size is %zu where this library has %zu. Set it to sizeof(struct "
                         "zero_config) and compile with the header of this library.",
                         c->size, sizeof(*c));
    if (take_int(c->deadline_seconds, DEADLINE_SECONDS, 1, DEADLINE_SECONDS_MAX,
                 ".deadline_seconds", &s->deadline_seconds, error) ||
        check_enum(c->stage, 3, ".stage", "0, 1, 2 or 3", error) ||
        check_enum((int)c->dtype, ZERO_FP16, ".dtype", "ZERO_FP32, ZERO_BF16 or ZERO_FP16",
                   error) ||
        check_enum((int)c->ring, ZERO_RING_POSIX, ".ring",
                   "ZERO_RING_AUTO, ZERO_RING_URING or ZERO_RING_POSIX", error) ||
        check_enum((int)c->log_level, ZERO_LOG_SILENT, ".log_level",
                   "ZERO_LOG_WARNING, ZERO_LOG_INFO or ZERO_LOG_SILENT", error))
        return error->status;
    s->stage = c->stage;
    s->dtype = c->dtype;
    s->ring = c->ring;
    s->verify = c->verify_spill;
    if (take_program(s, c, error) || take_device(s, c, error) || take_formats(s, c, error) ||
        take_places(s, c, error) || take_path(s, c->nvme_path, error) || take_chunks(s, c, error) ||
        take_int(c->gather_slots, 3, 1, 64, ".gather_slots", &s->gather_slots, error) ||
        take_int(c->grad_slots, 3, 1, 64, ".grad_slots", &s->grad_slots, error) ||
        take_int(c->threads, 0, 1, 1024, ".threads", &s->threads, error) ||
        (s->verify && verify_supported(error)))
        return error->status;
    return ZERO_OK;
}

#define FIELD(field)                                                                               \
    .at = offsetof(struct settings, field), .bytes = sizeof(((struct settings *)0)->field)

/* Where a field is, what it is called, and its values where they are no whole numbers. */
static const struct {
    size_t at, bytes;
    const char *name, *words[4];
    bool real;
} shared[] = {
    {FIELD(stage), .name = ".stage"},
    {FIELD(dtype), .name = ".dtype",
     .words = {[ZERO_FP32] = "fp32", [ZERO_BF16] = "bf16", [ZERO_FP16] = "fp16"}},
    {FIELD(device), .name = ".device", .words = {[ZERO_CPU] = "cpu", [ZERO_CUDA] = "cuda"}},
    {FIELD(state), .name = "the place of optimizer state", .words = PLACES},
    {FIELD(param), .name = "the place of parameters", .words = PLACES},
    {FIELD(grad), .name = "the place of gradients", .words = PLACES},
    {FIELD(split), .name = ".state", .words = {"fp32", "split"}},
    {FIELD(round_grads), .name = ".grad_dtype", .words = {"fp32", "bf16"}},
    {FIELD(local), .name = ".accumulate_in", .words = {"shard", "local"}},
    {FIELD(added), .name = ".reduction", .words = {"ordered", "nccl"}},
    {FIELD(accumulate), .name = ".accumulate"},
    {FIELD(loss_scale), .name = ".loss_scale", .real = true},
    {FIELD(host_bytes), .name = ".host_bytes"},
    {FIELD(verify), .name = ".verify_spill", .words = {"false", "true"}},
    {FIELD(chunk), .name = ".chunk"},
    {FIELD(chunk_slots), .name = ".chunk_slots"},
    {FIELD(gather_slots), .name = ".gather_slots"},
    {FIELD(grad_slots), .name = ".grad_slots"},
    {FIELD(comm_on_device), .name = ".comm->device_memory", .words = {"false", "true"}},
};

static_assert(sizeof(shared) / sizeof(shared[0]) == SETTINGS_SHARED, "a row each");

void settings_share(const struct settings *s, int64_t values[SETTINGS_SHARED])
{
    memset(values, 0, SETTINGS_SHARED * sizeof(*values));
    for (int i = 0; i < SETTINGS_SHARED; i++) /* of one, four or eight bytes, the lowest first */
        memcpy(&values[i], (const char *)s + shared[i].at, shared[i].bytes);
}

static void value_print(int field, int64_t value, char out[32])
{
    const char *word = value >= 0 && value < 4 ? shared[field].words[value] : NULL;
    double real;
    memcpy(&real, &value, sizeof(real));
    if (word)
        snprintf(out, 32, "%s", word);
    else if (shared[field].real)
        snprintf(out, 32, "%g", real);
    else
        snprintf(out, 32, "%lld", (long long)value);
}

int settings_compare(const int64_t *mine, int me, const int64_t *theirs, int other,
                     struct error *error)
{
    char here[32], there[32];
    int field = 0;
    while (field < SETTINGS_SHARED && mine[field] == theirs[field])
        field++;
    if (field == SETTINGS_SHARED)
        return ZERO_OK;
    value_print(field, mine[field], here);
    value_print(field, theirs[field], there);
    return error_set(error, ZERO_ERR_MISMATCH,
                     "Ranks differ in %s: rank %d has %s, rank %d has %s. Make it equal on all "
                     "ranks.",
                     shared[field].name, other, there, me, here);
}
