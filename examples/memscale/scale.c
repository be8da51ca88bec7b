// SPDX-License-Identifier: Apache-2.0
/* Planned figures are the library's; measured ones come from the kernel, a GPU's from
 * its driver. On the CPU a device's memory is a mapping of its own, which is known by an
 * address of a parameter, and what else the process has taken is host memory. */
#include "examples/memscale/scale.h"

#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/clock.h"
#include "examples/common/counter.h"
#include "examples/common/figure.h"
#include "examples/common/launch.h"
#include "examples/common/ranks.h"
#include "examples/common/usage.h"
#include "src/comm/comm.h"

#define CAP_VARIABLE "ZERO_DEVICE_MEMORY"

struct model {
    struct zero_param *params;
    int count;
};

/* Without what malloc keeps of memory that was freed. */
static int64_t memory_now(void)
{
    malloc_trim(0);
    return usage_memory(NULL);
}

static bool on_gpu(const struct scale *s)
{
    return s->a->device == ZERO_CUDA;
}

/* ------------------------------------------------------------------- an engine */

static int check(struct scale *s, int status)
{
    if (status == ZERO_OK)
        return 0;
    s->status = status;
    const char *sentence = s->z ? zero_last_error(s->z) : "";
    snprintf(s->error, sizeof(s->error), "%s", *sentence ? sentence : zero_status_name(status));
    return -1;
}

static int create(struct scale *s, const struct model *m, const struct zero_config *config)
{
    const struct zero_adam adam = {
        .lr = 1e-3, .beta1 = .9, .beta2 = .95, .eps = 1e-8, .weight_decay = .1};
    int status = zero_create(&s->z, m->params, m->count, config);
    return status ? status : zero_set_adam(s->z, 0, &adam);
}

void scale_end(struct scale *s)
{
    zero_destroy(s->z);
    s->z = NULL;
    if (s->between)
        s->between->ops->destroy(s->between);
    s->between = NULL;
}

/* An engine that needs next to nothing, no GPU either, for ranks to meet in. They reach each
 * other as those of the test do: ranks with GPUs need no MPI. */
static int meet(struct scale *s)
{
    static const struct zero_param one = {.name = "one", .ndim = 1, .shape = {64}};
    struct zero_config config = {
        .size = sizeof(config), .threads = 1, .deadline_seconds = s->a->deadline};
    const struct model least = {(struct zero_param *)(uintptr_t)&one, 1};
    struct error error = {0};
    if (on_gpu(s)) {
        if (comm_default_create(ZERO_CUDA, s->a->deadline, &s->between, &error)) {
            snprintf(s->error, sizeof(s->error), "%s", error.text);
            return -1;
        }
        config.comm = s->between;
    }
    return check(s, create(s, &least, &config));
}

/* A forward and a backward pass without arithmetic, and the update. device takes an
 * address in the device's memory. */
static int step(struct scale *s, const struct model *m, const void **device)
{
    int units = m->params[m->count - 1].unit + 1;
    for (int u = 0; u < units; u++) {
        if (check(s, zero_acquire(s->z, u)))
            return -1;
        if (u == 0)
            *device = zero_param_data(s->z, 0);
        if (check(s, zero_release(s->z, u)))
            return -1;
    }
    for (int i = m->count - 1; i >= 0;) {
        int u = m->params[i].unit;
        if (check(s, zero_acquire(s->z, u)))
            return -1;
        for (; i >= 0 && m->params[i].unit == u; i--)
            if (!zero_grad_data(s->z, i))
                return check(s, ZERO_ERR_STATE);
        if (check(s, zero_release(s->z, u)) || check(s, zero_reduce(s->z, u)))
            return -1;
    }
    return check(s, zero_step(s->z, NULL));
}

/* ------------------------------------------------------------------- all ranks */

static int sum(struct scale *s, double mine, double *of_all)
{
    return check(s, ranks_sum(s->z, mine, of_all));
}

/* The most that a rank has. */
static int most(struct scale *s, int64_t *value)
{
    return check(s, ranks_most(s->z, *value, value));
}

/* Ranks with other options would wait for each other. */
static int check_alike(struct scale *s, int argc, char **argv)
{
    const char *cap = getenv(CAP_VARIABLE);
    char given[400] = "";
    uint64_t hash = (uint64_t)argc;
    for (int i = 1; i <= argc; i++) {
        const char *word = i < argc ? argv[i] : cap ? cap : "";
        size_t at = strlen(given);
        hash = counter_hash(hash, word, strlen(word) + 1);
        if (i < argc || cap)
            snprintf(given + at, sizeof(given) - at, "%s%s%s", at ? " " : "",
                     i < argc ? "" : CAP_VARIABLE "=", word);
    }
    bool alike = false;
    if (check(s, ranks_alike(s->z, hash, &alike)))
        return -1;
    if (!alike)
        snprintf(s->error, sizeof(s->error),
                 "The ranks were not given the same options or " CAP_VARIABLE
                 "; this one has '%s'. Start every rank with the same.",
                 given);
    return alike ? 0 : -1;
}

/* ---------------------------------------------------------------------- GPUs */

/* Who shares this rank's GPU. */
static int count_sharers(struct scale *s)
{
    uint64_t hash = counter_hash(0, s->gpu.uuid, sizeof(s->gpu.uuid));
    double mine = (double)(hash >> 32), of_rank;
    s->on_gpu = 0;
    for (int r = 0; r < s->ranks; r++) {
        if (sum(s, r == s->rank ? mine : 0, &of_rank))
            return -1;
        s->on_gpu += llround(of_rank) == llround(mine); /* a mean is rounded */
    }
    return 0;
}

/* Bytes in use on the GPU while no rank does anything; *bytes stays 0 on the CPU. Ranks meet
 * in their engine, or in one that needs no GPU. */
static int gpu_used(struct scale *s, int64_t *bytes)
{
    bool made = !s->z;
    double ignored;
    if (!on_gpu(s))
        return 0;
    if ((made && meet(s)) || sum(s, 0, &ignored))
        return -1;
    int status = zero_gpu_use(-1, &s->gpu, s->error, sizeof(s->error));
    *bytes = s->gpu.memory - s->gpu.memory_free;
    if (sum(s, status, &ignored) || ignored > 0)
        return -1;
    if (made)
        scale_end(s);
    return 0;
}

/* ---------------------------------------------------------- the smallest model */

static int describe_smallest(struct scale *s, struct model *m)
{
    const struct gpt_shape small = {1, 64, 1, 64, 64};
    return check(s, gpt_params(&small, 1, &m->params, &m->count));
}

/* What zero_create would allocate. Of a communicator it looks at no more than this. */
static int plan_make(const struct scale *s, const struct model *m, const struct zero_config *config,
                     struct zero_plan *plan, char sentence[512])
{
    struct zero_comm between_gpus = {.device_memory = true};
    struct zero_config c = *config;
    if (s->linked)
        c.comm = &between_gpus;
    return zero_plan_make(m->params, m->count, &c, s->ranks, s->local, plan, sentence, 512);
}

/* Whether an engine has planned anew, once it had found that units need no host memory. */
static bool is_linked(const struct scale *s, const struct model *m,
                      const struct zero_config *config)
{
    struct zero_plan plan;
    struct zero_stats stats;
    char sentence[512];
    return zero_stats(s->z, &stats) == ZERO_OK && !plan_make(s, m, config, &plan, sentence) &&
           memcmp(&stats.plan.host, &plan.host, sizeof(plan.host)) != 0;
}

/* Whether it works on all ranks: then what is refused to a larger one is room. */
static int try_smallest(struct scale *s, const struct zero_config *config, bool *works)
{
    struct model m = {0};
    const void *device;
    double failed;
    int status = describe_smallest(s, &m);
    if (!status)
        status = create(s, &m, config);
    if (!status) {
        s->linked = s->linked || is_linked(s, &m, config);
        status = step(s, &m, &device);
    }
    scale_end(s);
    free(m.params);
    if (meet(s) || sum(s, status != 0, &failed))
        return -1;
    scale_end(s);
    *works = failed == 0;
    return 0;
}

/* What is offloaded as far as the test will. */
static struct zero_config config_farthest(const struct arguments *a)
{
    enum zero_place place = ZERO_DEVICE;
    for (int i = 0; i < a->offload_list.count; i++)
        place = a->offloads[i] > place ? a->offloads[i] : place;
    return arguments_config(a, 3, place);
}

/* What no model can be planned with ends the test. */
int scale_begin(struct scale *s, const struct arguments *a, int argc, char **argv)
{
    const struct zero_config config = config_farthest(a);
    const struct launch l = launch_find();
    struct zero_plan plan;
    struct model m = {0};
    *s = (struct scale){.a = a, .rank = l.rank, .local = l.local};
    if (on_gpu(s) && zero_gpu_use(l.local_rank, &s->gpu, s->error, sizeof(s->error)))
        return -1;
    if (describe_smallest(s, &m) || meet(s))
        return -1;
    s->rank = zero_rank(s->z);
    s->ranks = zero_size(s->z);
    int status = check_alike(s, argc, argv) || count_sharers(s);
    if (!status)
        status = zero_plan_make(m.params, m.count, &config, s->ranks, s->local, &plan, s->error,
                                sizeof(s->error));
    free(m.params);
    return status ? -1 : 0;
}

/* The smallest model says what there is to say of the machine, and MPI takes what it keeps. */
int scale_start(struct scale *s, bool well)
{
    const struct zero_config config = config_farthest(s->a);
    double failed;
    if (sum(s, !well, &failed) || failed > 0)
        return -1;
    scale_end(s);
    if (try_smallest(s, &config, &well))
        return -1;
    s->error[0] = 0; /* where it does not work, the rows say why */
    s->memory = memory_now();
    return gpu_used(s, &s->gpu_memory);
}

/* ----------------------------------------------------------- one configuration */

/* Whether what is planned keeps to the limits that are known beforehand; if not, why. */
static bool within(const int64_t limits[PLACES], struct result *r)
{
    static const char *const names[PLACES] = {"device", "host memory", "nvme"};
    for (int i = 0; i < PLACES; i++) {
        int64_t needs = r->planned[i], there = limits[i];
        if (there == 0 || needs <= there)
            continue;
        snprintf(r->why, sizeof(r->why), "%s needs %s of %s", names[i],
                 in_bytes_beside(needs, there).text, in_bytes_beside(there, needs).text);
        return false;
    }
    return true;
}

/* What the library says happened, without its advice, which is the last sentence. */
static void take_reason(struct result *r, const char *sentences)
{
    size_t length = strlen(sentences);
    for (const char *c = sentences; (c = strstr(c, ". ")); c++)
        length = (size_t)(c - sentences);
    snprintf(r->why, sizeof(r->why), "%.*s", (int)length, sentences);
}

static void take_plan(struct result *r, const struct zero_plan *plan)
{
    r->planned[0] = plan->device.total;
    r->planned[1] = plan->host.total;
    r->planned[2] = plan->nvme.total;
}

/* What there is without an engine. */
struct before {
    int64_t host, gpu;
};

/* What the process has beside that. device: an address in its memory. */
static int measure(struct scale *s, const struct before *before, const void *device,
                   const struct zero_stats *stats, struct result *r)
{
    int64_t host = usage_memory(NULL) - before->host, used = 0;
    if (gpu_used(s, &used))
        return -1;
    used -= used > before->gpu ? before->gpu : used; /* another process may have given some back */
    r->measured[0] = on_gpu(s) ? used / s->on_gpu : usage_memory(device);
    host -= on_gpu(s) ? 0 : r->measured[0];
    r->measured[1] = host > 0 ? host : 0;
    r->measured[2] = usage_files(stats->nvme_path);
    take_plan(r, &stats->plan);
    for (int i = 0; i < PLACES; i++)
        if (most(s, &r->planned[i]) || most(s, &r->measured[i]))
            return -1;
    return 0;
}

/* The steps, and what there is after them. */
static int run(struct scale *s, const struct model *m, const struct before *before,
               struct result *r)
{
    struct zero_stats stats;
    const void *device = NULL;
    if (step(s, m, &device) || check(s, zero_wait(s->z)))
        return -1;
    double begun = clock_now();
    for (int i = 0; i < s->a->steps; i++)
        if (step(s, m, &device))
            return -1;
    if (check(s, zero_wait(s->z)))
        return -1;
    r->seconds = (clock_now() - begun) / s->a->steps;
    if (check(s, zero_stats(s->z, &stats)))
        return -1;
    return measure(s, before, device, &stats, r);
}

/* How a configuration ended on a rank. */
enum outcome {
    FITS,
    REFUSED, /* memory or space: for its size, if the smallest is not */
    LEFT,    /* by another rank, that may have been refused */
    FAILED,
};

static enum outcome attempt(struct scale *s, const struct model *m,
                            const struct zero_config *config, const struct before *before,
                            struct result *r)
{
    s->status = ZERO_OK;
    bool made = !check(s, create(s, m, config));
    if (made && !run(s, m, before, r))
        return FITS;
    if (s->status == ZERO_ERR_MEMORY || (!made && s->status == ZERO_ERR_IO))
        return REFUSED;
    return s->status == ZERO_ERR_COMM ? LEFT : FAILED;
}

/* COLLECTIVE: what it is for all ranks, of which one may have failed alone. Leaves in s->error
 * this rank's sentence where it is a failure. */
static int settle(struct scale *s, const struct zero_config *config, enum outcome outcome,
                  struct result *r)
{
    char sentence[sizeof(s->error)];
    double refused, failed, left;
    bool room = true;
    memcpy(sentence, s->error, sizeof(sentence));
    s->error[0] = 0;
    int status = meet(s) || sum(s, outcome == REFUSED, &refused) ||
                 sum(s, outcome == FAILED, &failed) || sum(s, outcome == LEFT, &left);
    scale_end(s);
    if (!status && refused == 0)
        failed += left;
    if (!status && refused > 0 && failed == 0)
        status = try_smallest(s, config, &room);
    if (status) {
        if (sentence[0]) /* the cause */
            memcpy(s->error, sentence, sizeof(sentence));
        return -1;
    }
    r->failed = failed > 0 || !room;
    r->fits = outcome == FITS && !r->failed && refused == 0;
    if (r->failed)
        take_reason(r, sentence[0] ? sentence : "another rank failed");
    else if (refused > 0)
        take_reason(r, outcome == REFUSED ? sentence : "it does not fit on another rank");
    if (r->failed)
        memcpy(s->error, sentence, sizeof(sentence));
    return 0;
}

/* memory: of the process without the list of tensors. */
static int try_model(struct scale *s, int64_t memory, const struct model *m,
                     const struct zero_config *config, struct result *r)
{
    struct before before = {.host = memory_now()};
    if (gpu_used(s, &before.gpu))
        return -1;
    enum outcome outcome = attempt(s, m, config, &before, r);
    scale_end(s);
    int64_t left = memory_now() - before.host + memory - s->memory, used = s->gpu_memory;
    if (settle(s, config, outcome, r) || gpu_used(s, &used))
        return -1;
    if (r->failed) { /* what a failed engine keeps is no other's */
        s->memory += left;
        s->gpu_memory = used;
        return 0;
    }
    used -= s->gpu_memory;
    s->left = left > s->left ? left : s->left;
    s->left_on_gpu = used > s->left_on_gpu ? used : s->left_on_gpu;
    return 0;
}

static int describe(struct scale *s, const struct size *size, int layers, struct model *m,
                    struct result *r)
{
    r->size = *size;
    r->size.shape.layers = layers;
    r->params = gpt_param_count(&r->size.shape);
    if (s->a->find_largest)
        snprintf(r->size.name, sizeof(r->size.name), "%dx%d", layers, size->shape.channels);
    if (gpt_params(&r->size.shape, 1, &m->params, &m->count) == ZERO_OK)
        return 0;
    snprintf(s->error, sizeof(s->error), "A model of %s cannot be described. Give a smaller one.",
             r->size.name);
    return -1;
}

/* A model that is too large for a plan does not fit. */
static bool planned(const struct scale *s, const struct model *m, const struct zero_config *config,
                    struct result *r)
{
    struct zero_plan plan;
    char sentence[512];
    if (plan_make(s, m, config, &plan, sentence) == ZERO_OK) {
        take_plan(r, &plan);
        return true;
    }
    take_reason(r, sentence);
    return false;
}

int scale_try(struct scale *s, int stage, enum zero_place offload, const struct size *size,
              int layers, struct result *r)
{
    struct zero_config config = arguments_config(s->a, stage, offload);
    struct model m;
    int64_t memory = memory_now();
    config.log_level = ZERO_LOG_SILENT; /* the smallest has said all */
    *r = (struct result){.stage = stage, .offload = offload};
    if (describe(s, size, layers, &m, r))
        return -1;
    int status = 0;
    if (planned(s, &m, &config, r) && within(s->a->memory, r))
        status = try_model(s, memory, &m, &config, r);
    free(m.params);
    if (s->error[0])
        snprintf(s->where, sizeof(s->where), "stage %d, %s, %s: ", stage,
                 arguments_offload(offload), r->size.name);
    return status;
}

/* ------------------------------------------------------------- the largest model */

/* By the plan alone: how many layers keep to the limits that were given, and to what a GPU
 * has. */
static int layers_planned(struct scale *s, int stage, enum zero_place offload,
                          const struct size *size)
{
    const struct zero_config config = arguments_config(s->a, stage, offload);
    int64_t limits[PLACES];
    int fits = 0, over = LAYERS_MAX + 1;
    memcpy(limits, s->a->memory, sizeof(limits));
    if (on_gpu(s) && limits[0] == 0)
        limits[0] = s->gpu.memory_free / s->on_gpu;
    while (over - fits > 1) {
        int layers = fits + (over - fits) / 2;
        struct result r;
        struct model m;
        if (describe(s, size, layers, &m, &r))
            return -1;
        bool good = planned(s, &m, &config, &r) && within(limits, &r);
        free(m.params);
        if (good)
            fits = layers;
        else
            over = layers;
    }
    return fits;
}

/* What is free differs from GPU to GPU: all ranks begin with the least of their guesses. */
static int agree_guess(struct scale *s, int *layers)
{
    int64_t less = LAYERS_MAX - *layers;
    if (meet(s) || most(s, &less))
        return -1;
    scale_end(s);
    *layers = LAYERS_MAX - (int)less;
    return 0;
}

/* Bisects with engines, from what the plan says on: where that holds, two of them do. */
int scale_largest(struct scale *s, int stage, enum zero_place offload, const struct size *size,
                  struct result *r)
{
    int fits = 0, over = LAYERS_MAX + 1, guess = layers_planned(s, stage, offload, size);
    char why[sizeof(r->why)] = "";
    if (guess < 0 || agree_guess(s, &guess))
        return -1;
    for (int next = guess > 0 ? guess : 1; over - fits > 1;) {
        struct result tried;
        if (scale_try(s, stage, offload, size, next, &tried))
            return -1;
        if (tried.failed) {
            *r = tried;
            return 0;
        }
        if (tried.fits) {
            *r = tried;
            fits = next;
        } else {
            if (fits == 0)
                *r = tried;
            memcpy(why, tried.why, sizeof(why));
            over = next;
        }
        next = fits == guess ? fits + 1 : fits + (over - fits) / 2;
    }
    r->largest = fits > 0 && over <= LAYERS_MAX;
    memcpy(r->why, why, sizeof(why));
    return 0;
}
