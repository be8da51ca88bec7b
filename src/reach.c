// SPDX-License-Identifier: Apache-2.0
/*
 * How ranks that compute on GPUs reach each other, chosen at creation, when each has told
 * which GPU it has: units go from GPU to GPU where every rank has one of its own and all
 * plugins can do it (src/comm/nccl.h), over the engine's communicator then as a control
 * channel; else they go through host memory (src/collective.c). It chooses alike on all
 * ranks, and tells the log once.
 */
#include <stdlib.h>
#include <string.h>

#include "src/engine.h"

/* What each rank tells the others. */
struct reached {
    int64_t status; /* with the id: rank 0's */
    char text[496];
    int64_t answers, version; /* this rank has a GPU; of what carries units */
    char gpu[16];
    char id[DEVICE_LINK_ID];
};

/* Two ranks that differ in their versions, or have one GPU. false: none do. */
static bool find_two(const struct zero *z, const struct reached *all, bool gpus, int two[2])
{
    for (int a = 0; a < z->size; a++)
        for (int b = 0; b < a; b++)
            if (gpus ? !memcmp(all[a].gpu, all[b].gpu, sizeof(all[a].gpu))
                     : all[a].version != all[b].version) {
                two[0] = b, two[1] = a;
                return true;
            }
    return false;
}

static bool choose(const struct zero *z, const struct reached *all)
{
    int two[2], version = (int)all[0].version, minor = version % 10000 / 100;
    for (int r = 0; r < z->size; r++)
        if (!all[r].answers) { /* if it is not there, the making of its device says why */
            engine_log(z, ZERO_LOG_WARNING,
                       "Units go from rank to rank through host memory: rank %d's GPU has not "
                       "answered.",
                       r);
            return false;
        }
    if (find_two(z, all, true, two)) {
        engine_log(z, ZERO_LOG_INFO,
                   "Units go from rank to rank through host memory: ranks %d and %d share a GPU.",
                   two[0], two[1]);
        return false;
    }
    if (find_two(z, all, false, two)) {
        engine_log(z, ZERO_LOG_WARNING,
                   "Units go from rank to rank through host memory: rank %d has NCCL %lld, rank "
                   "%d has %lld (0: none). Use one build on all nodes.",
                   two[0], (long long)all[two[0]].version, two[1], (long long)all[two[1]].version);
        return false;
    }
    if (version == 0) {
        engine_log(z, ZERO_LOG_WARNING,
                   "Units go from rank to rank through host memory: the CUDA plugin was built "
                   "without NCCL. Build it where NCCL is (libnccl-dev).");
        return false;
    }
    engine_log(z, ZERO_LOG_INFO, "Units go from GPU to GPU by NCCL %d.%d.%d.", version / 10000,
               minor, version % 100);
    return true;
}

/* All ranks learn of the id; each makes its communicator. A rank where that fails tells the
 * others through the control channel, for they wait for it. */
static void connect(struct zero *z, const struct device_link *link, struct reached *all)
{
    struct reached *me = &all[z->rank];
    struct error failure = {0};
    if (z->rank == 0 && link->id(me->id, &failure)) {
        me->status = failure.status;
        memcpy(me->text, failure.text, sizeof(me->text) - 1);
    }
    if (engine_exchange(z, "NCCL's id", all, sizeof(*all)))
        return;
    if (all[0].status) {
        error_set(&z->error, (int)all[0].status, "Rank 0: %s", all[0].text);
        return;
    }
    struct zero_comm *comm;
    if (link->comm(&comm, z->comm, all[0].id, &failure)) {
        error_set(&z->error, failure.status, "%s", failure.text);
        z->comm->ops->abort(z->comm, z->comm->sequence + 1);
        return;
    }
    z->control = z->comm;
    z->comm = comm;
    z->set.staged = false;
    if (!z->error.status)
        engine_plan(z);
}

int engine_reach(struct zero *z, const struct zero_config *config)
{
    bool apart = config && config->size == sizeof(*config) && config->device == ZERO_CUDA;
    if (!apart || z->size == 1 || z->comm->device_memory)
        return ZERO_OK;
    struct reached *all = calloc((size_t)z->size, sizeof(*all));
    if (!all) {
        z->comm->ops->abort(z->comm, z->comm->sequence + 1);
        return error_set(&z->error, ZERO_ERR_MEMORY,
                         "No memory to hear %d ranks." ERROR_FREE_MEMORY, z->size);
    }
    struct reached *me = &all[z->rank];
    struct device_link link = {0};
    struct error unheard = {0};
    int (*describe)(struct device_link *, struct error *) =
        z->seams && z->seams->link ? z->seams->link : device_plugin_link;
    if (!describe(&link, &unheard)) {
        me->answers = 1;
        me->version = link.version;
        memcpy(me->gpu, link.gpu, sizeof(me->gpu));
    }
    if (!engine_exchange(z, "GPUs of all ranks", all, sizeof(*all)) && choose(z, all))
        connect(z, &link, all);
    free(all);
    return z->error.status;
}
