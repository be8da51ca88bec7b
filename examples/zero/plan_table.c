// SPDX-License-Identifier: Apache-2.0
/*
 * Stages by places, beside what this machine has. A row fits when each of the
 * node's devices, the node's memory and its folder for files hold what the
 * library's plan says: no reserve is kept for the program's own memory, which
 * only the program knows.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/choices.h"
#include "examples/common/launch.h"
#include "examples/common/predict.h"
#include "examples/common/stream.h"
#include "examples/zero/disk.h"
#include "examples/zero/plan.h"
#include "examples/zero/tool.h"
#include "offload/memory.h"
#include "offload/probe.h"
#include "offload/spill.h"

struct machine {
    int ranks; /* of the job, on nodes like this one */
    int64_t memory;
    char source[PATH_MAX];
    bool own_device; /* a GPU: device memory is not the machine's memory */
    int64_t device;  /* of each rank; INT64_MAX: as much as there is memory */
    const char *folders;
    struct disk disk[STRIPES_FILES]; /* under each folder */
    struct stripes stripes;          /* what each gets of a rank's bytes */
    char type[64];
    int64_t free;                  /* of all */
    int in_memory;                 /* folders that are in RAM */
    int on_network;                /* folders that all nodes share */
    char refused[DISK_PATH + 128]; /* why there is no space for files; "": there is */
    struct zero_probe probe;       /* of folders; zeros: never measured, */
    double stream;                 /* bytes per second of memory; 0: not known */
};

/* ----------------------------------------------------------------- the machine */

static int device_find(struct machine *m, const struct plan_options *o)
{
    const char *limit = getenv("ZERO_DEVICE_MEMORY");
    m->own_device = o->device_memory > 0;
    m->device = o->device_memory ? o->device_memory : INT64_MAX;
    if (!m->own_device && limit && !options_size(limit, &m->device))
        return tool_refuse("ZERO_DEVICE_MEMORY is '%s', which is no size. Set it to bytes, such as "
                           "4096, 512M or 4G.",
                           limit);
    return 0;
}

/* As the library deals files out, and what predicts an update's time. */
static int shares_find(struct machine *m, struct spill_paths *paths)
{
    struct probe probe;
    struct error why = {0};
    enum probe_when when;
    if (probe_asked(&when, &why))
        return tool_refuse("%s", why.text);
    probe_paths(&probe, paths, 0, when == PROBE_NEVER ? when : PROBE_CACHED, &why);
    stripes_deal(&m->stripes, paths->count, paths->weight, probe_stripe(&probe));
    m->probe = (struct zero_probe){.read = probe.read, .write = probe.write, .both = probe.both};
    return 0;
}

/* Folders on one file system share its space. */
static int folders_find(struct machine *m, const struct plan_options *o)
{
    struct spill_paths paths;
    struct error error = {0};
    m->folders = disk_folders(o->nvme_path);
    if (!m->folders)
        return 2;
    if (spill_paths_split(&paths, m->folders, &error))
        return tool_refuse("%s", error.text);
    for (int i = 0; i < paths.count; i++) {
        struct disk *d = &m->disk[i];
        bool known = false;
        disk_look(d, paths.path[i]);
        if (d->refused && !m->refused[0])
            snprintf(m->refused, sizeof(m->refused), "%s: %s", d->path, strerror(d->refused));
        for (int j = 0; j < i; j++)
            known = known || m->disk[j].id == d->id;
        m->free += known ? 0 : d->free < INT64_MAX - m->free ? d->free : INT64_MAX - m->free;
        m->in_memory += d->memory;
        m->on_network += d->network;
        snprintf(m->type, sizeof(m->type), "%s",
                 i && strcmp(m->type, d->type) ? "several" : d->type);
    }
    return shares_find(m, &paths);
}

/* Of all ranks that were started here: one, but under a launcher. */
static int node_threads(void)
{
    struct launch l = launch_find();
    return l.local * launch_threads(&l);
}

static int machine_find(struct machine *m, const struct plan_options *o)
{
    *m = (struct machine){.ranks = o->ranks};
    m->memory = memory_available("", m->source, sizeof(m->source));
    int status = device_find(m, o);
    if (!status)
        status = folders_find(m, o);
    if (!status)
        m->stream = stream_rate_apart(node_threads(), launch_bound(launch_find().local));
    return status;
}

static void machine_print(const struct machine *m)
{
    if (m->memory == INT64_MAX)
        printf("this machine: memory unknown\n");
    else
        printf("this machine: memory %s available (%s)\n", in_bytes(m->memory).text, m->source);
    if (m->refused[0])
        printf("  files: none: %s\n", m->refused);
    else
        printf("  files: %s free in %s (%s%s%s)\n",
               m->free == INT64_MAX ? "an unknown amount" : in_bytes(m->free).text, m->folders,
               m->type,
               !m->in_memory ? ""
               : m->in_memory < m->stripes.files
                   ? ", in part RAM: those bytes are counted as memory too"
                   : ", which is RAM: these bytes are counted as memory too",
               !m->on_network ? ""
               : m->on_network < m->stripes.files
                   ? ", in part a server's: there the files of all nodes count"
                   : ", a server's: the files of all nodes count there");
    if (m->own_device)
        printf("  device: a GPU of %s for each rank\n", in_bytes(m->device).text);
    else if (m->device != INT64_MAX)
        printf("  device: the CPU, at most %s for each rank (ZERO_DEVICE_MEMORY); these bytes are "
               "counted as memory too\n",
               in_bytes(m->device).text);
    else
        printf("  device: the CPU; its bytes are counted as memory\n");
}

/* -------------------------------------------------------------------- one row */

enum { STAGES = 4 };

static struct zero_config config_of(const struct plan_options *o, int stage, enum zero_place place)
{
    return (struct zero_config){
        .size = sizeof(struct zero_config),
        .device = o->device_memory ? ZERO_CUDA : ZERO_CPU,
        .stage = stage,
        .offload = place,
        .dtype = (enum zero_dtype)o->dtype,
        .state = (enum zero_state)o->state,
        .grad_dtype = (enum zero_dtype)o->grad_dtype,
        .accumulate_in = stage < 2 ? (enum zero_accumulate)o->accumulate_in : ZERO_SHARD,
        .accumulate = o->accumulate,
        .chunk = o->chunk,
        .chunk_slots = o->slots,
        .gather_slots = o->gather_slots,
        .grad_slots = o->grad_slots,
        .nvme_path = o->nvme_path,
        .host_bytes = place == ZERO_NVME ? o->host_bytes : 0,
        .verify_spill = o->verify_spill,
    };
}

static void lacks(char *why, size_t size, const char *what, int64_t needed, int64_t there)
{
    snprintf(why, size, "%s: %s needed, %s available", what, in_bytes_beside(needed, there).text,
             in_bytes_beside(there, needed).text);
}

/* Of the node's files what one folder gets; a network's gets all nodes'. */
static int64_t folder_bytes(const struct machine *m, const struct zero_plan *p, int folder)
{
    double bytes = (double)stripes_file_bytes(&m->stripes, folder, p->nvme.total);
    double ranks = (double)m->ranks;
    if (!m->disk[folder].network)
        ranks = p->nvme.total ? (double)p->node_nvme / (double)p->nvme.total : 0;
    return (int64_t)(bytes * ranks);
}

/* Says which file system has no space for what its folders get. */
static void disk_lacks(const struct machine *m, const struct zero_plan *p, char *why, size_t size)
{
    for (int i = 0; i < m->stripes.files; i++) {
        int64_t needed = 0;
        for (int j = 0; j < m->stripes.files; j++)
            needed += m->disk[j].id == m->disk[i].id ? folder_bytes(m, p, j) : 0;
        if (needed <= m->disk[i].free)
            continue;
        lacks(why, size,
              m->stripes.files > 1 ? m->disk[i].path
              : m->disk[i].network ? "files of all nodes"
                                   : "files",
              needed, m->disk[i].free);
        return;
    }
}

/* Whether the plan fits; if not, why, the first of the reasons. */
static bool fits(const struct machine *m, const struct zero_plan *p, char *why, size_t size)
{
    int64_t memory = p->node_host + (m->own_device ? 0 : p->node_device);
    for (int i = 0; i < m->stripes.files; i++)
        memory += m->disk[i].memory ? folder_bytes(m, p, i) : 0;
    why[0] = 0;
    if (p->device.total > m->device)
        lacks(why, size, "device of a rank", p->device.total, m->device);
    else if (memory > m->memory)
        lacks(why, size, "memory", memory, m->memory);
    else if (p->node_nvme > 0 && m->refused[0])
        snprintf(why, size, "files: %s", m->refused);
    else if (p->node_nvme > 0)
        disk_lacks(m, p, why, size);
    return !why[0];
}

static void row_print(int stage, const char *place, const struct zero_plan *p, double seconds,
                      const char *unknown, const char *verdict)
{
    char update[24];
    snprintf(update, sizeof(update), "%s", unknown);
    if (seconds > 0)
        snprintf(update, sizeof(update), "%s", in_seconds(seconds).text);
    const int64_t columns[] = {p->device.total, p->host.total, p->nvme.total, p->node_device,
                               p->node_host,    p->node_nvme,  p->read_bytes, p->written_bytes};
    printf("%5d %-7s", stage, place);
    for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++)
        printf(" %10s", columns[i] ? in_bytes(columns[i]).text : "-");
    printf(" %10s  %s\n", update, verdict);
}

static void row_csv(int stage, const char *place, const struct zero_plan *p, double seconds,
                    bool fit, const char *why)
{
    const int64_t columns[] = {p->device.total, p->host.total,    p->nvme.total,
                               p->node_device,  p->node_host,     p->node_nvme,
                               p->read_bytes,   p->written_bytes, p->param_read_bytes,
                               p->gather_bytes, p->reduce_bytes};
    printf("%d,%s", stage, place);
    for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++)
        printf(",%lld", (long long)columns[i]);
    printf(seconds > 0 ? ",%.6g" : ",", seconds); /* empty: not known */
    printf(",%d,\"", fit);
    for (; *why; why++)
        putchar(*why == '"' ? '\'' : *why);
    puts("\"");
}

/* Returns the bytes that a gather of all units reads from files. */
static int64_t row(const struct plan_options *o, const struct plan_model *model,
                   const struct machine *m, int stage, enum zero_place place)
{
    struct zero_config config = config_of(o, stage, place);
    const char *name = options_choice_name(place_choices, (int)place);
    struct zero_plan plan = {0};
    char why[DISK_PATH + 256], verdict[sizeof(why) + 8];
    int status = zero_plan_make(model->params, model->count, &config, o->ranks, o->ranks_per_node,
                                &plan, why, sizeof(why));
    bool fit = status == ZERO_OK && fits(m, &plan, why, sizeof(why));
    snprintf(verdict, sizeof(verdict), fit ? "✓" : "✗ %s", why);
    bool on_gpu = predict_is_gpus(config.device, &plan);
    double seconds =
        on_gpu ? 0 : predict_update(&plan, o->ranks_per_node, &m->probe, m->stream).seconds;
    if (o->csv)
        row_csv(stage, name, &plan, seconds, fit, why);
    else
        row_print(stage, name, &plan, seconds, on_gpu ? "GPU's" : "?", verdict);
    return plan.param_read_bytes;
}

static void header_print(const struct plan_options *o, const struct plan_model *model,
                         const struct machine *m)
{
    if (o->csv) {
        puts("stage,offload,device,host,nvme,node_device,node_host,node_nvme,read,written,"
             "param_read,gather,reduce,update_seconds,fits,reason");
        return;
    }
    printf("%s; %s, %d on this node\n", model->title, counted(o->ranks, "rank").text,
           o->ranks_per_node);
    machine_print(m);
    printf("\n%13s %-32s %-32s %s\n", "", "  a rank has", "  a node has", "  a step, per rank");
    printf("%5s %-7s %10s %10s %10s %10s %10s %10s %10s %10s %10s  %s\n", "stage", "offload",
           "device", "host", "nvme", "device", "host", "nvme", "read", "written", "update",
           "fits here");
}

/* A folder whose files would be measured through the page cache, or NULL. */
static const char *not_direct(const struct machine *m)
{
    for (int i = 0; i < m->stripes.files; i++)
        if (!m->disk[i].direct && !m->disk[i].memory && !m->disk[i].refused)
            return m->disk[i].path;
    return NULL;
}

/* Where the column of seconds comes from. */
static void predicted_print(const struct machine *m)
{
    char advice[3 * DISK_PATH + 120];
    printf(
        "Update: seconds of one alone, for its files or for its memory, whichever takes longer.\n");
    if (m->own_device)
        printf("  GPU's: the GPU updates the state in its memory; how long that takes is not known "
               "here\n");
    if (m->stream > 0)
        printf("  memory: %s/s, measured now by %d threads\n", in_bytes((int64_t)m->stream).text,
               node_threads());
    else
        printf("  memory: not measured, as too little is free\n");
    if (m->probe.read > 0)
        printf("  files: %s/s read and written at once, by an earlier probe of %s\n",
               in_bytes((int64_t)m->probe.both).text, m->folders);
    else if (not_direct(m))
        printf("  files: %s refuses O_DIRECT, so its drive cannot be measured\n", not_direct(m));
    else
        printf("  files: %s\n", predict_unknown(m->folders, advice, sizeof(advice)));
}

int plan_table(const struct plan_options *o, const struct plan_model *model)
{
    struct machine m;
    int status = machine_find(&m, o);
    if (status)
        return status;
    header_print(o, model, &m);
    int64_t gathered = 0;
    for (int stage = 0; stage < STAGES; stage++)
        for (enum zero_place place = ZERO_DEVICE; place <= ZERO_NVME; place++)
            gathered += row(o, model, &m, stage, place);
    if (o->csv)
        return 0;
    printf("\nActivations, code and libraries come on top. Read and written: from and to files, "
           "by the update.\n");
    if (gathered > 0) /* 0: there is no such plan */
        printf("At stage 3 with nvme each gather of all units, two in a micro-step, reads a "
               "further %s per rank.\n",
               in_bytes(gathered).text);
    predicted_print(&m);
    return 0;
}
