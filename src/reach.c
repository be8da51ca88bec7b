// SPDX-License-Identifier: Apache-2.0
/*
 * How ranks that compute on GPUs reach each other, chosen at creation, when each has told
 * which GPU it has: units go from GPU to GPU where every rank has one of its own and all
 * plugins can do it (src/comm/nccl.h), over the engine's communicator then as a control
 * channel; else they go through host memory (src/collective.c), which the plan counts
 * until then.
 */
#include <string.h>

#include "src/comm/comm.h"
#include "src/engine.h"

void reach_introduce(struct zero *z, struct reach *me)
{
    struct error unheard = {0};
    struct settings direct = z->plan.set;
    struct plan plan;
    int (*find_link)(struct device_link *, struct error *) =
        z->seams && z->seams->link ? z->seams->link : device_plugin_link;
    if (z->plan.set.device != ZERO_CUDA || z->size == 1 || z->comm->device_memory)
        return;
    me->asked = 1;
    me->answers = !find_link(&z->link, z->plan.set.added ? &z->error : &unheard);
    if (!me->answers)
        return;
    me->version = z->link.version;
    me->gpus = z->link.gpus;
    memcpy(me->gpu, z->link.gpu, sizeof(me->gpu));
    me->place = z->link.place;
    direct.via_host = false;
    if (!plan_make(&plan, &z->layout, &direct, &unheard))
        me->staging = z->plan.host.total - plan.host.total;
}

/* By its name, or by its place, which is what NCCL refuses two ranks on. */
static bool share_gpu(const struct introduction *a, const struct introduction *b)
{
    return !memcmp(a->reach.gpu, b->reach.gpu, sizeof(a->reach.gpu)) ||
           (a->reach.place == b->reach.place && preflight_same_node(&a->facts, &b->facts));
}

/* Two ranks that have one GPU, or differ in their versions. false: none do. */
static bool find_two(const struct zero *z, const struct introduction *all, bool gpus, int two[2])
{
    for (int i = 0; i < z->size; i++)
        for (int j = 0; j < (gpus ? i : 1); j++)
            if (gpus ? share_gpu(&all[i], &all[j]) : all[i].reach.version != all[j].reach.version) {
                two[0] = j, two[1] = i;
                return true;
            }
    return false;
}

/* How many GPUs a rank sees that no rank has, at least: those that it does not see are counted
 * among the ranks', too. */
static int spare_gpus(const struct zero *z, const struct introduction *all, int rank)
{
    int taken = 0;
    for (int i = 0; i < z->size; i++) {
        bool first = preflight_same_node(&all[i].facts, &all[rank].facts);
        for (int j = 0; j < i && first; j++)
            first = !share_gpu(&all[i], &all[j]);
        taken += first;
    }
    return (int)all[rank].reach.gpus - taken;
}

/* The first rank that cannot say which GPU it has, or -1. */
static int silent(const struct zero *z, const struct introduction *all)
{
    for (int r = 0; r < z->size; r++)
        if (!all[r].reach.answers)
            return r;
    return -1;
}

/* Why units do not go from GPU to GPU, or NULL; level: whether it could be otherwise. */
static const char *against(const struct zero *z, const struct introduction *all,
                           enum zero_log_level *level, char text[200])
{
    int two[2], rank = silent(z, all);
    *level = ZERO_LOG_WARNING;
    if (rank >= 0) {
        snprintf(text, 200, "rank %d's GPU has not answered", rank);
        return text;
    }
    if (find_two(z, all, true, two)) {
        int spare = spare_gpus(z, all, two[1]);
        *level = spare > 0 ? ZERO_LOG_WARNING : ZERO_LOG_INFO;
        int used = snprintf(text, 200, "ranks %d and %d share a GPU", two[0], two[1]);
        if (spare > 0)
            snprintf(text + used, 200 - (size_t)used,
                     ", and of those that they see %d %s no rank (zero_gpu_use chooses one)", spare,
                     spare == 1 ? "has" : "have");
        return text;
    }
    if (find_two(z, all, false, two)) {
        snprintf(text, 200, "ranks %d and %d have different versions of NCCL, or one has none",
                 two[0], two[1]);
        return text;
    }
    return all->reach.version ? NULL
                              : "the CUDA plugin was built without NCCL (libnccl-dev brings it)";
}

bool reach_choose(struct zero *z, const struct introduction *all)
{
    char text[200];
    enum zero_log_level level;
    const char *why = against(z, all, &level, text);
    int version = (int)all->reach.version;
    /* A GPU that is not there says why itself, when it is asked for memory. */
    if (why && silent(z, all) < 0 && comm_tcp_is(z->comm))
        error_set(&z->error, ZERO_ERR_UNSUPPORTED,
                  "Units cannot go from rank to rank by NCCL: %s. Start the ranks with mpirun -n "
                  "%d (srun: --mpi=pmix), then they go through host memory.",
                  why, z->size);
    else if (why && z->plan.set.added)
        error_set(&z->error, ZERO_ERR_UNSUPPORTED,
                  "NCCL cannot add gradients up: %s. Give each rank a GPU of its own and the same "
                  "plugin, built with NCCL, or use .reduction = ZERO_REDUCE_ORDERED.",
                  why);
    else if (why)
        engine_log(z, level, "Units go from rank to rank through host memory: %s.", why);
    else
        engine_log(z, ZERO_LOG_INFO, "Units go from GPU to GPU by NCCL %d.%d.%d%s.",
                   version / 10000, version % 10000 / 100, version % 100,
                   z->plan.set.added ? ", which adds gradients up outside the law of equal bits"
                                     : "");
    return !why;
}

/* What rank 0 tells the others. */
struct told {
    struct error error;
    char id[DEVICE_LINK_ID];
};

/* All ranks learn of the id; each makes its communicator. A rank where that fails tells the
 * others through the control channel, for they wait for it. */
int reach_connect(struct zero *z)
{
    struct told told = {0};
    struct zero_comm *comm;
    if (!z->linked && z->plan.set.added && z->size > 1 && !z->comm->ops->reduce)
        return error_set(&z->error, ZERO_ERR_UNSUPPORTED,
                         ".reduction is ZERO_REDUCE_NCCL, and .comm takes GPU memory but adds "
                         "nothing up (ops->reduce). Use ZERO_REDUCE_ORDERED, or leave .comm out.");
    if (!z->linked)
        return ZERO_OK;
    if (z->rank == 0)
        z->link.id(told.id, &told.error);
    if (engine_exchange(z, COMMAND_BROADCAST, "NCCL's id", &told, sizeof(told)))
        return z->error.status;
    if (told.error.status)
        return error_set(&z->error, told.error.status, "Rank 0: %s", told.error.text);
    if (z->link.comm(&comm, z->comm, told.id, &z->error)) {
        z->comm->ops->abort(z->comm, z->comm->sequence + 1);
        return z->error.status;
    }
    z->control = z->comm;
    z->comm = comm;
    z->plan.set.via_host = false;
    return engine_plan(z);
}
