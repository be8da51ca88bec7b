// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks meet in slots (tests/support/fake_nccl_shared.c): the n-th send from one rank to
 * another and its n-th receive share one, numbered in the order in which the host's calls
 * enter the streams. What orders them, and TSan sees, is a slot's state:
 *
 *   SLOT_READY   released by the sender's operation, acquired by the receiver's
 *   SLOT_TAKEN   the other way round
 */
#include "tests/support/fake_nccl.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "kernels/bf16.h"
#include "kernels/fp16.h"
#include "src/clock.h"
#include "src/comm/nccl_api.h"
#include "tests/support/fake_cuda_parts.h"
#include "tests/support/fake_nccl_parts.h"

#define MOVES_MAX       (4 * RANKS_MAX) /* of a group */
#define SECONDS_DEFAULT 60
#define LOOKS_MAX       4

/* One end of a slot in a rank's operation. */
struct move {
    const char *call;
    bool send;
    int peer;
    const void *from;
    void *to;
    size_t bytes;
    struct slot *slot; /* NULL: from this rank to itself */
};

/* What enters a stream at once. */
struct group {
    ncclComm_t comm;
    cudaStream_t stream;
    int count;
    struct move move[MOVES_MAX];
    /* what is received is added up, if total is set */
    const void *own;
    void *total;
    ncclDataType_t type;
};

struct ncclComm {
    ncclComm_t before;
    struct clique *clique;
    int rank, size, gpu;
    atomic_int state; /* ncclResult_t: of what went wrong */
    atomic_bool aborted, gone;
    atomic_int running; /* operations in streams */
    bool found, finalizes;
    void *buffers;
    int looks;           /* that will still find it in progress */
    struct group *waits; /* to enter the stream */
    uint64_t random;
    int sends[RANKS_MAX], receives[RANKS_MAX]; /* so far, per peer */
};

static struct fake_nccl_options options;
static ncclComm_t comms;
static volatile int comms_locked;
static atomic_int counts[FAKE_NCCL_REPORTS + 1];
static atomic_int_least64_t groups;
static atomic_int aborts; /* under way: of threads that nobody may wait for */

static _Thread_local int depth;
static _Thread_local struct group *building;

/* -------------------------------------------------------------------- reports */

static ncclResult_t report(enum fake_nccl_report kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static ncclResult_t report(enum fake_nccl_report kind, const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "fake NCCL: %s\n", text);
    atomic_fetch_add_explicit(&counts[kind], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&counts[FAKE_NCCL_REPORTS], 1, memory_order_relaxed);
    return ncclInvalidUsage;
}

int fake_nccl_reported(enum fake_nccl_report kind)
{
    return atomic_load(&counts[kind]);
}

int64_t fake_nccl_groups(void)
{
    return atomic_load(&groups);
}

static bool strikes(enum fault_kind kind)
{
    return fault_strikes(options.fault, kind);
}

static void *zeroed(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p)
        abort();
    return p;
}

FAKE_UNSEEN static void comm_list(ncclComm_t comm)
{
    fake_lock(&comms_locked);
    comm->before = comms;
    comms = comm;
    fake_unlock(&comms_locked);
}

/* ------------------------------------------------------------ in the stream */

struct waiting {
    int round;
    double until;
};

static struct waiting waiting_begin(void)
{
    return (struct waiting){0,
                            seconds_now() + (options.seconds ? options.seconds : SECONDS_DEFAULT)};
}

/* Whether it is worth to look again. */
static bool goes_on(ncclComm_t comm, struct waiting *p, const struct move *m)
{
    if (atomic_load_explicit(&comm->aborted, memory_order_relaxed))
        return false;
    if (p->round++ < 50)
        sched_yield();
    else
        usleep(50);
    if (seconds_now() < p->until)
        return true;
    report(FAKE_NCCL_STUCK, "%s of %zu bytes %s rank %d to end in vain on rank %d", m->call,
           m->bytes, m->send ? "waits for" : "waits for a send of", m->peer, comm->rank);
    atomic_store_explicit(&comm->state, ncclSystemError, memory_order_relaxed);
    atomic_store_explicit(&comm->aborted, true, memory_order_relaxed);
    return false;
}

static bool slot_take(struct slot *s)
{
    int ready = SLOT_READY;
    return atomic_compare_exchange_strong_explicit(&s->state, &ready, SLOT_TAKING,
                                                   memory_order_acquire, memory_order_relaxed);
}

/* From a rank of another process. false: that one is gone. */
static bool read_other(pid_t owner, void *to, const char *from, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        struct iovec here = {(char *)to + done, bytes - done};
        struct iovec there = {(char *)(uintptr_t)from + done, bytes - done};
        ssize_t n = process_vm_readv(owner, &here, 1, &there, 1, 0);
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static int *channel_of(ncclComm_t comm, const struct move *m)
{
    int from = m->send ? comm->rank : m->peer, to = m->send ? m->peer : comm->rank;
    return &comm->clique->channel[from][to];
}

static void receive(ncclComm_t comm, const struct move *m)
{
    struct waiting p = waiting_begin();
    while (!slot_take(m->slot))
        if (!goes_on(comm, &p, m))
            return;
    pid_t owner;
    const void *from = fake_slot_from(m->slot, &owner);
    if (owner == getpid())
        fake_copy(m->to, from, m->bytes);
    else if (!read_other(owner, m->to, from, m->bytes)) {
        atomic_store_explicit(&comm->state, ncclRemoteError, memory_order_relaxed);
        return;
    }
    atomic_store_explicit(&m->slot->state, SLOT_TAKEN, memory_order_release);
    fake_slot_done(comm->clique, channel_of(comm, m), m->slot);
}

/* Until the peer has taken it; of a communicator that is aborted, until it does not
 * read it any more. */
static void sent(ncclComm_t comm, const struct move *m)
{
    struct waiting p = waiting_begin();
    int state;
    while ((state = atomic_load_explicit(&m->slot->state, memory_order_acquire)) != SLOT_TAKEN) {
        if (goes_on(comm, &p, m))
            continue;
        if (state == SLOT_READY &&
            atomic_compare_exchange_strong(&m->slot->state, &state, SLOT_WITHDRAWN))
            return;
        if (comm->clique->process[m->peer] != getpid()) /* it may have died as it read */
            return;
        sched_yield();
    }
    fake_slot_done(comm->clique, channel_of(comm, m), m->slot);
}

static float load(const void *from, ncclDataType_t type, size_t i)
{
    if (type == ncclFloat32)
        return ((const float *)from)[i];
    uint16_t half = ((const uint16_t *)from)[i];
    return type == NCCL_BFLOAT16 ? bf16_to_float(half) : fp16_to_float(half);
}

static void store(void *to, ncclDataType_t type, size_t i, float x)
{
    if (type == ncclFloat32)
        ((float *)to)[i] = x;
    else
        ((uint16_t *)to)[i] = type == NCCL_BFLOAT16 ? bf16_from_float(x) : fp16_from_float(x);
}

static size_t size_of(ncclDataType_t type)
{
    return type == ncclUint8 ? 1 : type == ncclFloat32 ? 4 : 2;
}

/* Parts of ranks behind this one come in the order of its receives. */
static void add_up(const struct group *g, const char *landing)
{
    const struct move *m = g->move;
    int others = g->comm->size - 1;
    for (size_t i = 0; others && i < m->bytes / size_of(g->type); i++) {
        char sum[4] __attribute__((aligned(4)));
        store(sum, g->type, 0, load(landing, g->type, i));
        for (int r = 1; r < others; r++)
            store(sum, g->type, 0,
                  load(sum, g->type, 0) + load(landing + (size_t)r * m->bytes, g->type, i));
        store(g->total, g->type, i, load(sum, g->type, 0) + load(g->own, g->type, i));
    }
}

static void group_run(void *arg)
{
    struct group *g = arg;
    bool lost = strikes(FAULT_NCCL_LOST);
    char *landing = g->total ? zeroed((size_t)g->comm->size * g->move[0].bytes + 1) : NULL;
    for (int i = 0, r = 0; i < g->count && landing; i++)
        if (!g->move[i].send)
            g->move[i].to = landing + (size_t)r++ * g->move[i].bytes;
    for (int i = 0; i < g->count && !lost; i++) {
        const struct move *m = &g->move[i];
        if (!m->send)
            continue;
        fake_slot_offer(m->slot, m->from);
        atomic_store_explicit(&m->slot->state, SLOT_READY, memory_order_release);
    }
    for (int i = 0; i < g->count && !lost; i++) {
        const struct move *m = &g->move[i];
        if (!m->slot && m->from != m->to)
            fake_copy(m->to, m->from, m->bytes);
        else if (m->slot && !m->send)
            receive(g->comm, m);
    }
    for (int i = 0; i < g->count && !lost; i++)
        if (g->move[i].send)
            sent(g->comm, &g->move[i]);
    if (landing && !lost)
        add_up(g, landing);
    free(landing);
    struct waiting p = waiting_begin();
    while (lost && goes_on(g->comm, &p, &g->move[0]))
        fault_tick();
    atomic_fetch_sub_explicit(&g->comm->running, 1, memory_order_relaxed);
}

/* ------------------------------------------------------- on the way into it */

static void meet(ncclComm_t comm, struct move *m)
{
    struct clique *q = comm->clique;
    int n = m->send ? comm->sends[m->peer]++ : comm->receives[m->peer]++;
    char other[CALL_MAX];
    size_t bytes;
    m->slot = fake_slot_meet(q, channel_of(comm, m), n, m->send, m->call, m->bytes, other, &bytes);
    bool pair = strcmp(m->call, m->send ? "ncclSend" : "ncclRecv") == 0;
    const char *fits = !pair ? m->call : m->send ? "ncclRecv" : "ncclSend";
    bool same = !other[0] || (bytes == m->bytes && strcmp(other, fits) == 0);
    if (!same)
        report(FAKE_NCCL_DIFFER, "%s of %zu bytes on rank %d meets %s of %zu on rank %d", m->call,
               m->bytes, comm->rank, other, bytes, m->peer);
}

/* The group enters its stream. */
static ncclResult_t launch(ncclComm_t comm)
{
    struct group *waits = comm->waits;
    struct fake_op *op = fake_op_create("NCCL's group", waits->stream, sizeof(*waits));
    struct group *g = op->arg;
    *g = *waits;
    free(waits);
    comm->waits = NULL;
    for (int i = 0; i < g->count && op->error == cudaSuccess; i++) {
        struct move *m = &g->move[i];
        if (m->from)
            m->from = fake_reach(op, m->from, (int64_t)m->bytes, FAKE_VISIBLE);
        if (m->to)
            m->to = fake_reach(op, m->to, (int64_t)m->bytes, FAKE_VISIBLE);
    }
    if (g->total) {
        g->own = fake_reach(op, g->own, (int64_t)g->move[0].bytes, FAKE_VISIBLE);
        g->total = fake_reach(op, g->total, (int64_t)g->move[0].bytes, FAKE_VISIBLE);
    }
    if (op->error != cudaSuccess) {
        fake_op_drop(op);
        return ncclUnhandledCudaError;
    }
    for (int i = 0; i < g->count; i++)
        if (g->move[i].peer != comm->rank)
            meet(comm, &g->move[i]);
    atomic_fetch_add_explicit(&comm->running, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&groups, 1, memory_order_relaxed);
    return fake_op_append(op, group_run) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

static int draw_looks(ncclComm_t comm)
{
    comm->random = comm->random * 6364136223846793005u + 1442695040888963407u;
    return options.seed ? (int)((comm->random >> 40) % LOOKS_MAX) : 1;
}

/* -------------------------------------------------------------------- calls */

ncclResult_t ncclGetVersion(int *version)
{
    *version = 22809;
    return ncclSuccess;
}

static _Atomic(const char *) warning;

const char *ncclGetLastError(ncclComm_t comm)
{
    const char *last = atomic_load_explicit(&warning, memory_order_relaxed);
    (void)comm;
    return last ? last
                : "socketProgress: the connection was closed by the remote peer "
                  "node-with-a-long-name-0123.cluster.example.org, port 47110, which the fake NCCL "
                  "says of every failure, as long as those are that have to fit into a sentence";
}

/* As long as the longest of NCCL's own. */
const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess ? "no error"
                                 : "unhandled system error (run with NCCL_DEBUG=INFO for details)";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    if (strikes(FAULT_NCCL_CALL))
        return ncclSystemError;
    memset(id, 0, sizeof(*id));
    return fake_id_make(id) ? ncclSuccess : ncclSystemError;
}

static bool is_gone(const char *call, ncclComm_t comm)
{
    if (comm && !atomic_load_explicit(&comm->gone, memory_order_relaxed))
        return false;
    report(FAKE_NCCL_GONE, "%s: the communicator has ended", call);
    return true;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    *out = NULL;
    if (strikes(FAULT_NCCL_CALL))
        return ncclSystemError;
    if (options.settings)
        setenv("NCCL_COMM_BLOCKING", "1", 0);
    if (config->blocking != 0 || ranks < 1 || ranks > RANKS_MAX || rank < 0 || rank >= ranks)
        return report(FAKE_NCCL_WRONG, "rank %d of %d that blocks: %d", rank, ranks,
                      config->blocking);
    int gpu = fake_gpu(__func__);
    bool gone;
    struct clique *q = fake_clique_join(&id, ranks, rank, gpu, &gone);
    if (gone)
        return ncclRemoteError;
    if (!q)
        return report(FAKE_NCCL_DIFFER, "rank %d of %d on GPU %d: the clique has no place for it",
                      rank, ranks, gpu);
    ncclComm_t comm = *out = zeroed(sizeof(*comm));
    comm->clique = q;
    comm->rank = rank;
    comm->size = ranks;
    comm->gpu = gpu;
    comm->random = options.seed + (uint64_t)rank;
    comm->looks = draw_looks(comm);
    comm_list(comm);
    atomic_fetch_add_explicit(&q->joined, 1, memory_order_relaxed);
    return ncclInProgress;
}

static bool take_buffers(ncclComm_t comm)
{
    bool host = options.bytes < 0;
    if (!host &&
        (!options.bytes || cudaMalloc(&comm->buffers, (size_t)options.bytes) == cudaSuccess))
        return true;
    (void)cudaGetLastError();
    atomic_store_explicit(&warning,
                          host ? "Failed to CUDA host alloc the fake's bytes"
                               : "Failed to CUDA calloc the fake's bytes",
                          memory_order_relaxed);
    return false;
}

/* What a look finds. */
static ncclResult_t look(ncclComm_t comm)
{
    struct clique *q = comm->clique;
    if (strikes(FAULT_NCCL_ASYNC))
        atomic_store_explicit(&comm->state, ncclRemoteError, memory_order_relaxed);
    int state = atomic_load_explicit(&comm->state, memory_order_relaxed);
    if (state != ncclSuccess)
        return (ncclResult_t)state;
    if (!comm->found && atomic_load_explicit(&q->joined, memory_order_relaxed) < comm->size)
        return ncclInProgress;
    if (comm->finalizes && atomic_load_explicit(&q->finalized, memory_order_relaxed) < comm->size)
        return ncclInProgress;
    if ((!comm->found || comm->waits) && comm->looks-- > 0)
        return ncclInProgress;
    if (!comm->found && !take_buffers(comm)) {
        atomic_store_explicit(&comm->state, ncclUnhandledCudaError, memory_order_relaxed);
        return ncclUnhandledCudaError;
    }
    comm->found = true;
    ncclResult_t rc = comm->waits ? launch(comm) : ncclSuccess;
    atomic_store_explicit(&comm->state, rc, memory_order_relaxed);
    return rc;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    if (is_gone(__func__, comm))
        return ncclInvalidArgument;
    if (strikes(FAULT_NCCL_CALL))
        return ncclSystemError;
    *state = look(comm);
    return ncclSuccess;
}

/* What every call that moves something begins with. */
static ncclResult_t check(const char *call, ncclComm_t comm, int peer, bool sense)
{
    if (is_gone(call, comm))
        return ncclInvalidArgument;
    if (strikes(FAULT_NCCL_CALL))
        return ncclSystemError;
    if (!comm->found || comm->waits || comm->finalizes)
        return report(FAKE_NCCL_PROGRESS, "%s: rank %d is in progress", call, comm->rank);
    if (fake_gpu(call) != comm->gpu)
        return report(FAKE_NCCL_DEVICE, "%s: rank %d is GPU %d's, this thread's GPU is %d", call,
                      comm->rank, comm->gpu, fake_gpu(call));
    if (peer < 0 || peer >= comm->size || !sense)
        return report(FAKE_NCCL_WRONG, "%s: with rank %d, or of a wrong type or place", call, peer);
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    if (strikes(FAULT_NCCL_CALL))
        return ncclSystemError;
    depth++;
    return ncclSuccess;
}

static ncclResult_t group_end(void)
{
    struct group *g = building;
    bool fails = strikes(FAULT_NCCL_CALL);
    building = NULL;
    if (!g || fails) {
        free(g);
        return fails ? ncclSystemError : ncclSuccess;
    }
    g->comm->waits = g;
    g->comm->looks = draw_looks(g->comm);
    return ncclInProgress;
}

ncclResult_t ncclGroupEnd(void)
{
    if (depth == 0)
        return report(FAKE_NCCL_WRONG, "ncclGroupEnd without ncclGroupStart");
    return --depth > 0 ? ncclSuccess : group_end();
}

/* Adds a move to the thread's group. */
static ncclResult_t add(ncclComm_t comm, cudaStream_t stream, struct move move)
{
    if (!building) {
        building = zeroed(sizeof(*building));
        building->comm = comm;
        building->stream = stream;
    }
    if (building->comm != comm || building->stream != stream || building->count == MOVES_MAX)
        return report(FAKE_NCCL_WRONG,
                      "%s: a group of several communicators or streams, or of too "
                      "many calls",
                      move.call);
    building->move[building->count++] = move;
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t rc = check(__func__, comm, peer, type == ncclUint8);
    if (rc == ncclSuccess && (depth == 0 || peer == comm->rank))
        rc = report(FAKE_NCCL_WRONG, "ncclSend to rank %d outside a group", peer);
    if (rc == ncclSuccess)
        rc = add(comm, stream,
                 (struct move){
                     .call = __func__, .send = true, .peer = peer, .from = from, .bytes = count});
    return rc;
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    ncclResult_t rc = check(__func__, comm, peer, type == ncclUint8);
    if (rc == ncclSuccess && (depth == 0 || peer == comm->rank))
        rc = report(FAKE_NCCL_WRONG, "ncclRecv from rank %d outside a group", peer);
    if (rc == ncclSuccess)
        rc = add(comm, stream,
                 (struct move){.call = __func__, .peer = peer, .to = to, .bytes = count});
    return rc;
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t rc = check(__func__, comm, 0, type == ncclUint8);
    for (int r = 0; rc == ncclSuccess && r < comm->size; r++) {
        struct move m = {.call = __func__, .peer = r, .bytes = count};
        m.to = (char *)to + (size_t)r * count;
        if (r == comm->rank) {
            m.from = from;
            rc = add(comm, stream, m);
            continue;
        }
        rc = add(comm, stream, m);
        m.to = NULL;
        m.from = from;
        m.send = true;
        if (rc == ncclSuccess)
            rc = add(comm, stream, m);
    }
    return rc == ncclSuccess && depth == 0 ? group_end() : rc;
}

/* Whether a sum may be written there: at its own part of what is sent, or elsewhere. */
static bool in_place_or_apart(const char *from, const char *to, size_t bytes, ncclComm_t comm)
{
    size_t own = (size_t)comm->rank * bytes;
    return to == from + own || to + bytes <= from || to >= from + (size_t)comm->size * bytes;
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    size_t bytes = count * size_of(type);
    bool sense = type == ncclFloat32 || type == ncclFloat16 || type == NCCL_BFLOAT16;
    ncclResult_t rc = check(__func__, comm, 0,
                            sense && op == ncclSum && in_place_or_apart(from, to, bytes, comm));
    if (rc == ncclSuccess && (depth > 0 || comm->size == 1))
        return report(FAKE_NCCL_WRONG, "ncclReduceScatter in a group, or alone");
    for (int i = 1; rc == ncclSuccess && i < comm->size; i++) {
        int peer = (comm->rank + i) % comm->size;
        struct move m = {.call = __func__, .peer = peer, .bytes = bytes};
        rc = add(comm, stream, m);
        m.send = true;
        m.from = (const char *)from + (size_t)peer * bytes;
        if (rc == ncclSuccess)
            rc = add(comm, stream, m);
    }
    if (rc != ncclSuccess)
        return rc;
    building->own = (const char *)from + (size_t)comm->rank * bytes;
    building->total = to;
    building->type = type;
    return group_end();
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    if (is_gone(__func__, comm))
        return ncclInvalidArgument;
    if (strikes(FAULT_NCCL_CALL))
        return ncclSystemError;
    if (comm->waits || comm->finalizes)
        return report(FAKE_NCCL_PROGRESS, "%s: rank %d is in progress", __func__, comm->rank);
    comm->finalizes = true;
    atomic_fetch_add_explicit(&comm->clique->finalized, 1, memory_order_relaxed);
    return ncclInProgress;
}

/* Nothing of it is used any more. */
static void end(ncclComm_t comm)
{
    if (!comm->finalizes)
        atomic_fetch_add_explicit(&comm->clique->finalized, 1, memory_order_relaxed);
    free(comm->waits);
    comm->waits = NULL;
    if (comm->buffers)
        (void)cudaFree(comm->buffers);
    comm->buffers = NULL;
    fake_clique_leave(comm->clique);
    atomic_store_explicit(&comm->gone, true, memory_order_relaxed);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (is_gone(__func__, comm))
        return ncclInvalidArgument;
    if (strikes(FAULT_NCCL_CALL)) { /* and what is left of it is nobody's to use */
        end(comm);
        return ncclSystemError;
    }
    if (!comm->finalizes || atomic_load_explicit(&comm->running, memory_order_relaxed) > 0)
        report(FAKE_NCCL_GONE, "%s: rank %d is not finalized, or has work under way", __func__,
               comm->rank);
    end(comm);
    return ncclSuccess;
}

/* As NCCL's service threads do within a node. */
static void await_others(ncclComm_t comm)
{
    double until = waiting_begin().until;
    if (!comm->finalizes)
        atomic_fetch_add_explicit(&comm->clique->finalized, 1, memory_order_relaxed);
    comm->finalizes = true;
    while (atomic_load_explicit(&comm->clique->finalized, memory_order_relaxed) < comm->size &&
           seconds_now() < until)
        usleep(50);
    if (seconds_now() >= until)
        report(FAKE_NCCL_STUCK, "ncclCommAbort of rank %d waits for others in vain", comm->rank);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (is_gone(__func__, comm))
        return ncclInvalidArgument;
    atomic_fetch_add(&aborts, 1);
    atomic_store_explicit(&comm->aborted, true, memory_order_relaxed);
    while (atomic_load_explicit(&comm->running, memory_order_relaxed) > 0 &&
           fake_gpu_error(comm->gpu) == cudaSuccess)
        usleep(50);
    if (options.together)
        await_others(comm);
    end(comm);
    atomic_fetch_sub(&aborts, 1);
    return ncclSuccess;
}

/* ------------------------------------------------------------ start and stop */

void fake_nccl_start(const struct fake_nccl_options *given)
{
    for (int i = 0; i <= FAKE_NCCL_REPORTS; i++)
        atomic_store(&counts[i], 0);
    atomic_store(&groups, 0);
    atomic_store(&warning, NULL);
    options = *given;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* ranks of other processes may read */
}

void fake_nccl_stop(void)
{
    while (atomic_load(&aborts) > 0)
        usleep(50);
    for (ncclComm_t comm = comms, before; comm; comm = before) {
        before = comm->before;
        if (!atomic_load(&comm->gone))
            report(FAKE_NCCL_LEAK, "rank %d's communicator is never destroyed", comm->rank);
        free(comm->waits);
        free(comm);
    }
    comms = NULL;
    fake_cliques_clear();
}
