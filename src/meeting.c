// SPDX-License-Identifier: Apache-2.0
/*
 * How the ranks of an engine meet: they tell each other what they are and how they fare, and
 * each comes to the same verdict, which names the first rank that is unlike or has failed.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "offload/groups.h"
#include "src/comm/comm.h"
#include "src/engine.h"

/* A rank that has failed tells of that alone. */
static void introduce(struct zero *z, struct introduction *me)
{
    if (!z->error.status) {
        const struct preflight_need need = {
            .arena = z->plan.host.total,
            .device = z->plan.device_apart ? 0 : z->plan.device.total,
            .program = z->plan.set.program_bytes,
            .files = z->plan.file.total,
        };
        me->model = layout_hash(&z->layout);
        me->tensors = z->layout.count;
        me->node_ranks = z->comm->local_size;
        settings_share(&z->plan.set, me->settings);
        sched_getaffinity(0, sizeof(me->cpus), me->cpus);
        me->quota = groups_cpus("", &me->quota_group);
        preflight_collect(&me->facts, "", &need, &z->paths, probe_stripe(&z->probe));
        reach_introduce(z, &me->reach);
    }
    me->error = z->error;
}

/* The CPUs this rank may use, divided by the node's ranks that may use some of them too; more
 * threads than a quota of CPU time is worth would be stopped, all at once, time and again. */
static int share_of_cpus(const struct introduction *all, int size, int rank)
{
    const struct introduction *me = &all[rank];
    int ranks = 0, sharers = 0;
    for (int r = 0; r < size; r++) {
        cpu_set_t both[sizeof(me->cpus) / sizeof(*me->cpus)];
        bool near = preflight_same_node(&all[r].facts, &me->facts);
        CPU_AND_S(sizeof(both), both, all[r].cpus, me->cpus);
        ranks += near && CPU_COUNT_S(sizeof(both), both) > 0;
        sharers += near && all[r].quota_group == me->quota_group;
    }
    int threads = ranks ? CPU_COUNT_S(sizeof(me->cpus), me->cpus) / ranks : 1;
    if (me->quota && me->quota / sharers < threads)
        threads = me->quota / sharers;
    return threads > 1024 ? 1024 : threads > 1 ? threads : 1;
}

/* Whether a rank before this one, of the same node, has its files on the same file systems. */
static bool another_warns(const struct introduction *all, int rank)
{
    const struct preflight_facts *me = &all[rank].facts;
    for (int r = 0; r < rank; r++)
        if (preflight_same_node(&all[r].facts, me) && preflight_same_folders(&all[r].facts, me))
            return true;
    return false;
}

/* A part for each rank; without memory this rank does not come to the next exchange. */
static void *parts_alloc(struct zero *z, size_t bytes)
{
    void *parts = calloc((size_t)z->size, bytes);
    if (!parts) {
        z->comm->ops->abort(z->comm, z->comm->sequence + 1);
        error_set(&z->error, ZERO_ERR_MEMORY,
                  "No memory for messages of %d ranks." ERROR_FREE_MEMORY, z->size);
    }
    return parts;
}

/* The first tensor that rank other describes otherwise than rank 0. A rank's hashes end with
 * zeros where another has more tensors. All go to all ranks: 8 bytes a tensor, once. */
static int odd_tensor(struct zero *z, const struct introduction *all, int other)
{
    int most = 0, odd = 0;
    for (int r = 0; r < z->size; r++)
        most = all[r].tensors > most ? all[r].tensors : most;
    uint64_t *hash = parts_alloc(z, (size_t)most * sizeof(*hash));
    if (!hash)
        return 0;
    uint64_t *mine = hash + (int64_t)z->rank * most, *theirs = hash + (int64_t)other * most;
    for (int i = 0; i < z->layout.count; i++)
        mine[i] = layout_tensor_hash(&z->layout.tensors[i]);
    if (!engine_exchange(z, COMMAND_EXCHANGE, "tensors", hash, most * (int64_t)sizeof(*hash)))
        while (odd < most - 1 && hash[odd] == theirs[odd])
            odd++;
    free(hash);
    return odd;
}

/* COLLECTIVE. Says which tensor of rank other it is. */
static void model_differs(struct zero *z, const struct introduction *all, int other)
{
    char(*words)[160] = NULL;
    int odd = odd_tensor(z, all, other);
    if (z->error.status || !(words = parts_alloc(z, sizeof(*words))))
        return;
    snprintf(words[z->rank], sizeof(*words), "missing");
    if (odd < z->layout.count)
        layout_tensor_text(&z->layout.tensors[odd], words[z->rank], sizeof(*words));
    if (!engine_exchange(z, COMMAND_EXCHANGE, "tensor", words, sizeof(*words)))
        error_set(&z->error, ZERO_ERR_MISMATCH,
                  "Rank %d describes another model than rank 0: params[%d] is '%s' there and '%s' "
                  "on rank 0. Make names, shapes, units, groups, flags and fills equal on all "
                  "ranks.",
                  other, odd, words[other], words[0]);
    free(words);
}

/* Keeps what messages call the ranks' nodes, where there are several. */
static void nodes_keep(struct zero *z, const struct introduction *all)
{
    bool several = false;
    for (int r = 0; r < z->size; r++)
        several |= strcmp(all[r].facts.name, all->facts.name) != 0;
    if (several)
        z->node = parts_alloc(z, sizeof(*z->node));
    for (int r = 0; r < z->size && z->node; r++)
        memcpy(z->node[r], all[r].facts.name, sizeof(*z->node));
}

/* MPI passes what a node has received on to its other ranks where all nodes are alike. */
static void judge_nodes(const struct zero *z, const struct introduction *all)
{
    int least = all->node_ranks, most = least;
    for (int r = 1; r < z->size; r++) {
        least = all[r].node_ranks < least ? all[r].node_ranks : least;
        most = all[r].node_ranks > most ? all[r].node_ranks : most;
    }
    if (least < most && z->plan.set.stage > 0 && !z->linked && comm_mpi_is(z->comm))
        engine_log(z, ZERO_LOG_WARNING,
                   "Nodes have %d to %d ranks, so parameters go to each rank of another node and "
                   "not to each node once. Start as many ranks on every node.",
                   least, most);
}

int omp_get_num_threads(void) __attribute__((weak)); /* NULL in a program without OpenMP */

/* OpenMP binds a program's first thread as it is loaded, and what that starts inherits it. */
static void judge_cpus(const struct zero *z, const struct introduction *me)
{
    const char *bind = getenv("OMP_PROC_BIND");
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (omp_get_num_threads && z->plan.set.threads == 0 &&
        CPU_COUNT_S(sizeof(me->cpus), me->cpus) == 1 && online > 1 && bind && *bind &&
        strcasecmp(bind, "false") != 0)
        engine_warn_of_machine(z,
                               "The thread that creates this engine may use 1 of %ld CPUs, which "
                               "all of the engine's threads share, and OMP_PROC_BIND is '%.32s'. "
                               "Unset it, or widen the mask by sched_setaffinity around "
                               "zero_create.",
                               online, bind);
}

/* Of ranks none of which has failed. */
static void judge(struct zero *z, struct introduction *all)
{
    const struct introduction *me = &all[z->rank];
    const struct preflight_ranks ranks = {&all->facts, sizeof(*all), z->size};
    char warning[PREFLIGHT_TEXT];
    for (int r = 0; r < z->size && !z->error.status; r++)
        if (all[r].model != all->model)
            model_differs(z, all, r);
    for (int r = 0; r < z->size && !z->error.status; r++)
        settings_compare(me->settings, z->rank, all[r].settings, r, &z->error);
    if (!z->error.status && me->reach.asked)
        z->linked = reach_choose(z, all);
    for (int r = 0; r < z->size && z->linked; r++)
        preflight_shrink(&all[r].facts, all[r].reach.staging);
    z->echoes = z->log == engine_log_to_stderr && another_warns(all, z->rank);
    nodes_keep(z, all);
    if (!z->error.status)
        preflight_judge(&ranks, &z->error);
    if (!z->error.status)
        judge_nodes(z, all);
    if (!z->error.status && preflight_warning(&me->facts, warning))
        engine_warn_of_machine(z, "%s", warning);
    if (z->unprobed.status)
        engine_warn_of_machine(z, "ZERO_PROBE=1, but the defaults are used: %.400s",
                               z->unprobed.text);
    if (!z->error.status)
        judge_cpus(z, me);
    int threads = z->plan.set.threads;
    z->threads = threads ? threads : share_of_cpus(all, z->size, z->rank);
}

/* Through memory of its own, which stays where a transfer that was given up may still move it. */
int engine_exchange(struct zero *z, enum command_kind kind, const char *what, void *data,
                    int64_t bytes)
{
    size_t all = (size_t)bytes * (kind == COMMAND_EXCHANGE ? (size_t)z->size : 1);
    struct command c = {.kind = kind,
                        .unit = -1,
                        .chunk = -1,
                        .slot = -1,
                        .bytes = bytes,
                        .name = what,
                        .step = z->schedule.step,
                        .arguments = z->schedule.calls};
    struct error failure = {0};
    if (all && !(c.data = parts_alloc(z, (size_t)bytes)))
        return z->error.status;
    if (all)
        memcpy(c.data, data, all);
    if (queues_wait(z->queues, queues_append(z->queues, QUEUE_COMM, &c), &failure))
        error_set(&z->error, failure.status, "%s", failure.text);
    else if (all)
        memcpy(data, c.data, all);
    if (!engine_is_held(z))
        free(c.data);
    return failure.status;
}

/* Of parts that each begin with a rank's error the first one is all ranks'. */
static void hear(struct zero *z, const void *all, size_t part)
{
    for (int r = 0; r < z->size && !z->error.status; r++) {
        const struct error *theirs = (const void *)((const char *)all + (size_t)r * part);
        if (theirs->status)
            error_set(&z->error, theirs->status, "Rank %d: %s", r, theirs->text);
    }
}

int engine_meet(struct zero *z)
{
    struct introduction *all = parts_alloc(z, sizeof(*all));
    if (!all)
        return z->error.status;
    introduce(z, &all[z->rank]);
    if (!engine_exchange(z, COMMAND_EXCHANGE, "zero_create", all, sizeof(*all))) {
        hear(z, all, sizeof(*all));
        if (!z->error.status)
            judge(z, all);
    }
    free(all);
    return z->error.status;
}

#define WALK_CHUNKS   2048               /* between two meetings of the ranks, at most, */
#define WALK_ELEMENTS ((int64_t)1 << 28) /* and so many elements or one chunk */

int64_t engine_meeting_after(const struct zero *z, int64_t chunk)
{
    int64_t some = WALK_ELEMENTS / z->plan.chunk;
    some = some < 1 ? 1 : some < WALK_CHUNKS ? some : WALK_CHUNKS;
    return chunk + some < z->plan.chunks ? chunk + some : z->plan.chunks;
}

int engine_settle(struct zero *z, const char *call, int64_t chunks)
{
    for (int64_t end = engine_meeting_after(z, z->settled); end <= chunks && end < z->plan.live;
         end = engine_meeting_after(z, end)) {
        z->verdict[0] = 0;
        if (engine_wait(z, z->schedule.published[end - 1]) ||
            engine_wait(z, schedule_sum(&z->schedule, call, z->verdict, sizeof(*z->verdict))))
            return engine_status(z);
        z->settled = end;
    }
    if (chunks >= z->plan.live)
        z->settled = z->plan.live;
    return ZERO_OK;
}

int engine_agree(struct zero *z, const char *what)
{
    struct error *all = parts_alloc(z, sizeof(*all));
    if (!all)
        return z->error.status;
    all[z->rank] = z->error;
    if (!engine_exchange(z, COMMAND_EXCHANGE, what, all, sizeof(*all)))
        hear(z, all, sizeof(*all));
    free(all);
    return z->error.status;
}
