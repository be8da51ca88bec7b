// SPDX-License-Identifier: Apache-2.0
/*
 * Units between GPUs by NCCL; everything else over a control channel, another
 * communicator of the same ranks. No call but abort and destroy blocks, and these for seconds
 * at most (end_by, which has the only thread): NCCL's communicator is made with blocking = 0,
 * because a call of one that blocks waits for the peers, in its start and when it meets one of
 * them first, and a peer may be dead.
 *
 * Who owns what: a collective under way has a set, made at creation. What is in host
 * memory the control channel moves, as it is. A unit's collective sends its header
 * over it first, so all sentences on ranks that differ, fail or are missing are the
 * control channel's. The stream that NCCL's kernels run in and its events are ours;
 * c->stream, which gradients are summed in, is the device's.
 *
 * What order is guaranteed: NCCL wants the same calls in the same order on all ranks.
 * So units go into the stream in the order of their starts, one after the other and each
 * whole, when their headers have matched. Between the two streams events order:
 *
 *     before    c->stream, as it is at the collective's beginning -> NCCL's: its data is
 *               there, and sums of REDUCEs before it have left the scratch
 *     arrived   NCCL's, behind a piece -> c->stream, in which it is summed
 *     summed    c->stream, behind a sum -> NCCL's, which puts the piece after next there
 *
 * A reduction is all in the streams before its first piece has moved, up to a bound: a
 * stream that is full would block who appends. What NCCL adds up by itself (reduce) enters
 * as one call, and c->stream hears of it when it is done.
 *
 * What shutdown does: abort tells the control channel, then ncclCommAbort ends what
 * NCCL does on this rank, and nothing touches the collectives' memory any more. A rank
 * whose peer is gone hears it from the control channel (listen), for NCCL does not say so.
 */
#include "src/comm/nccl.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/clock.h"
#include "src/comm/comm.h"
#include "src/comm/nccl_api.h"
#include "src/thread.h"

#define AHEAD         32  /* groups that the GPU has not reached: twice that at most */
#define END_SECONDS   5.0 /* for each of NCCL's last calls */
#define GRACE_SECONDS 1.0 /* for what a rank that gave up has left on its way */

enum set_state {
    SET_FREE,
    SET_CONTROL, /* until the control channel has moved it, or its header */
    SET_HELD,    /* moved there; until NCCL has found all ranks */
    SET_TURN,    /* a unit, until all units before it are in the stream */
    SET_ENTERS,  /* some of it is in the stream */
    SET_MOVES,   /* all of it is */
    SET_DONE,    /* until test has told */
};

struct set {
    enum set_state state;
    struct zero_collective *c;
    ncclDataType_t type;                    /* of what NCCL adds up; ncclUint8: it only moves */
    struct zero_collective over;            /* what the control channel moves for it */
    struct zero_collective_header *headers; /* (size) of a unit's */
    int64_t pieces, entered;                /* groups of NCCL's calls; in the stream */
    cudaEvent_t finished;
};

struct nccl {
    struct zero_comm comm; /* first: what callers hold */
    struct zero_comm *control;
    int gpu, status; /* of the first failure */
    bool gave_up;
    ncclComm_t nccl; /* NULL: not made, or aborted */
    bool found;      /* all ranks */
    bool enters;     /* a group is on its way into the stream: nothing else may enter */
    cudaStream_t stream;
    cudaEvent_t before, arrived, summed[2], near;
    int ahead;    /* groups that entered since near was recorded */
    double heard; /* when that a rank gave up behind what is under way; 0: not */
    struct set sets[ZERO_COLLECTIVES];
    struct set *busy[ZERO_COLLECTIVES]; /* in the order of their starts */
    int busy_count;
    const void **parts; /* (size) of one sum */
};

/* ------------------------------------------------------------------- errors */

/* Whether a call of NCCL has succeeded, or will. That its own buffers had no memory only its
 * words tell: src/include/alloc.h there. */
static bool fine(struct nccl *n, ncclResult_t rc, const char *what)
{
    if (rc == ncclSuccess || rc == ncclInProgress)
        return true;
    const char *said = ncclGetLastError(NULL);
    if (n->status)
        return false;
    if (rc == ncclUnhandledCudaError && strstr(said, "Failed to CUDA host alloc"))
        n->status = error_comm(
            &n->comm, ZERO_ERR_MEMORY,
            "NCCL failed to %s on rank %d, for which host memory that the driver registers does "
            "not suffice: '%.120s'. Leave more of it free, or raise the limit (ulimit -l).",
            what, n->comm.rank, said);
    else if (rc == ncclUnhandledCudaError &&
             (strstr(said, "out of memory") || strstr(said, "Failed to CUDA ")))
        n->status = error_comm(
            &n->comm, ZERO_ERR_MEMORY,
            "NCCL failed to %s on rank %d, GPU %d, whose memory does not suffice: '%.120s'. Leave "
            "it a few hundred MiB: use a higher stage, more ranks, or offload more.",
            what, n->comm.rank, n->gpu, said);
    else
        n->status = error_comm(&n->comm, ZERO_ERR_COMM,
                               "NCCL failed to %s on rank %d, GPU %d: %s (%d), its last warning "
                               "is '%.120s'. Look for another rank's own error, or set "
                               "NCCL_DEBUG=WARN for all of NCCL's reasons.",
                               what, n->comm.rank, n->gpu, ncclGetErrorString(rc), (int)rc, said);
    return false;
}

/* The same of the runtime. The program's own look at cudaGetLastError does not find it. */
static bool good(struct nccl *n, cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    if (!n->status && rc == cudaErrorMemoryAllocation)
        n->status = error_comm(&n->comm, ZERO_ERR_MEMORY,
                               "GPU %d has too little memory to %s for messages between ranks (%s, "
                               "%d). Use a higher stage, more ranks, or offload more.",
                               n->gpu, what, cudaGetErrorName(rc), (int)rc);
    else if (!n->status)
        n->status = error_comm(&n->comm, ZERO_ERR_DEVICE,
                               "GPU %d failed to %s for messages between ranks: %s (%s, %d). Look "
                               "for the driver's messages (dmesg, Xid).",
                               n->gpu, what, cudaGetErrorString(rc), cudaGetErrorName(rc), (int)rc);
    return false;
}

/* The control channel's failure is ours. */
static void control_failed(struct nccl *n, int status)
{
    if (!n->status)
        n->status = error_comm(&n->comm, status, "%s", n->control->error);
}

/* Behind the caller's own calls at the end. (The engine thread is never given another GPU:
 * cudaSetDevice takes memory of the GPU it chooses.) */
static void leave(const struct nccl *n, int before)
{
    if (before != n->gpu)
        (void)cudaSetDevice(before);
}

/* Whether all that NCCL was asked for has entered the stream. */
static bool settled(struct nccl *n)
{
    ncclResult_t state = ncclSuccess;
    const char *what = n->found ? "move data between ranks" : "reach all ranks";
    return fine(n, ncclCommGetAsyncError(n->nccl, &state), what) && fine(n, state, what) &&
           state == ncclSuccess;
}

/* --------------------------------------------------------------- the stream */

static bool order(struct nccl *n, cudaEvent_t event, cudaStream_t first, cudaStream_t then)
{
    return good(n, cudaEventRecord(event, first), "record an event") &&
           good(n, cudaStreamWaitEvent(then, event, 0), "wait for an event");
}

static bool passed(struct nccl *n, cudaEvent_t event)
{
    enum cudaStreamCaptureMode mode = cuda_capture_mode(cudaStreamCaptureModeRelaxed);
    cudaError_t rc = cudaEventQuery(event);
    (void)cuda_capture_mode(mode);
    return rc != cudaErrorNotReady && good(n, rc, "run its queued work");
}

/* Whether another group may enter: the GPU is not too far behind. */
static bool room(struct nccl *n)
{
    if (n->ahead < AHEAD)
        return true;
    if (!passed(n, n->near) || !good(n, cudaEventRecord(n->near, n->stream), "record an event"))
        return false;
    n->ahead = 0;
    return true;
}

static char *own_part(const struct nccl *n, const struct zero_collective *c)
{
    return (char *)c->data + n->comm.rank * c->header.bytes;
}

static bool gather(struct nccl *n, const struct zero_collective *c)
{
    int64_t bytes = c->header.bytes;
    const char *own = c->own ? c->own : own_part(n, c);
    return fine(n, ncclAllGather(own, c->data, (size_t)bytes, ncclUint8, n->nccl, n->stream),
                "gather a unit");
}

/* In place: the sum of all ranks' parts for this one. */
static bool reduce_scatter(struct nccl *n, const struct set *s)
{
    const struct zero_collective *c = s->c;
    size_t count = (size_t)c->header.bytes / (s->type == ncclFloat32 ? 4 : 2);
    return fine(
        n, ncclReduceScatter(c->data, own_part(n, c), count, s->type, ncclSum, n->nccl, n->stream),
        "add gradients up");
}

static int64_t piece_length(const struct zero_collective *c, int64_t k)
{
    int64_t left = c->header.bytes - k * c->piece_bytes;
    return left < c->piece_bytes ? left : c->piece_bytes;
}

/* Where piece k from the i-th peer goes; peers are rotated, so that not all ranks send to
 * the same one. */
static char *landing(const struct nccl *n, const struct zero_collective *c, int64_t k, int i)
{
    return (char *)c->scratch + ((k & 1) * (n->comm.size - 1) + i) * c->piece_bytes;
}

static int sender(const struct nccl *n, int i)
{
    return (n->comm.rank + n->comm.size - 1 - i) % n->comm.size;
}

/* Piece k of a reduction, to and from all ranks. */
static bool exchange(struct nccl *n, const struct zero_collective *c, int64_t k)
{
    int size = n->comm.size;
    size_t length = (size_t)piece_length(c, k);
    if (k >= 2 && !good(n, cudaStreamWaitEvent(n->stream, n->summed[k & 1], 0), "wait for a sum"))
        return false;
    bool ok = fine(n, ncclGroupStart(), "begin a group");
    if (!ok)
        return false;
    for (int i = 0; i < size - 1 && ok; i++) {
        int to = (n->comm.rank + 1 + i) % size;
        const char *from = (const char *)c->data + to * c->header.bytes + k * c->piece_bytes;
        ok =
            fine(n, ncclSend(from, length, ncclUint8, to, n->nccl, n->stream), "send gradients") &&
            fine(n,
                 ncclRecv(landing(n, c, k, i), length, ncclUint8, sender(n, i), n->nccl, n->stream),
                 "receive gradients");
    }
    return fine(n, ncclGroupEnd(), "start a group") && ok;
}

/* Piece k is on its way: its sum behind it. */
static bool sum(struct nccl *n, const struct zero_collective *c, int64_t k)
{
    int64_t offset = k * c->piece_bytes;
    for (int i = 0; i < n->comm.size - 1; i++)
        n->parts[sender(n, i)] = landing(n, c, k, i);
    n->parts[n->comm.rank] = own_part(n, c) + offset;
    if (!order(n, n->arrived, n->stream, c->stream))
        return false;
    c->sum(c->sum_arg, offset, piece_length(c, k), n->parts);
    return good(n, cudaEventRecord(n->summed[k & 1], c->stream), "record an event");
}

/* What NCCL has added up, as if it came from one rank. Nothing is to wait for, so all of it may
 * be appended at once. */
static void sum_added(struct nccl *n, const struct zero_collective *c)
{
    for (int64_t k = 0; k * c->piece_bytes < c->header.bytes; k++) {
        n->parts[0] = own_part(n, c) + k * c->piece_bytes;
        c->sum(c->sum_arg, k * c->piece_bytes, piece_length(c, k), n->parts);
    }
}

static bool is_exchange(const struct set *s)
{
    return s->c->header.kind == ZERO_COLLECTIVE_REDUCE && s->type == ncclUint8;
}

static bool call(struct nccl *n, const struct set *s)
{
    if (s->type != ncclUint8)
        return reduce_scatter(n, s);
    return is_exchange(s) ? exchange(n, s->c, s->entered) : gather(n, s->c);
}

/* The next of a unit's groups into the stream, as far as it goes. */
static void enter(struct nccl *n, struct set *s)
{
    struct zero_collective *c = s->c;
    if (s->state == SET_TURN) {
        if (!n->found || !order(n, n->before, c->stream, n->stream))
            return;
        s->state = SET_ENTERS;
    }
    while (!n->status && s->entered < s->pieces) {
        if (!n->enters) {
            if (!room(n) || !call(n, s))
                return;
            n->enters = true;
            n->ahead++;
        }
        if (!settled(n) || (is_exchange(s) && !sum(n, c, s->entered)))
            return;
        n->enters = false;
        s->entered++;
    }
    if (!n->status && good(n, cudaEventRecord(s->finished, n->stream), "record an event"))
        s->state = SET_MOVES;
}

/* ----------------------------------------------------------------- progress */

static bool is_unit(const struct zero_collective *c)
{
    return c->header.unit >= 0 &&
           (c->header.kind == ZERO_COLLECTIVE_GATHER || c->header.kind == ZERO_COLLECTIVE_REDUCE);
}

static void control_moves(struct nccl *n, struct set *s)
{
    bool done = false;
    int status = n->control->ops->test(n->control, &s->over, &done);
    if (status)
        control_failed(n, status);
    if (status || !done)
        return;
    s->state = is_unit(s->c) ? SET_TURN : SET_HELD;
    for (int r = 0; r < n->comm.size && s->state == SET_TURN && !n->status; r++)
        n->status = comm_header_compare(&n->comm, s->c, r, &s->headers[r]);
}

/* Asks the control channel for ranks that gave up, while only NCCL waits for them. One that
 * did so behind message oldest has done its part of that; but what it left of it in NCCL's
 * hands may have gone with it. */
static void listen_for_failures(struct nccl *n, uint64_t oldest)
{
    int (*listen)(struct zero_comm *, uint64_t) = n->control->ops->listen;
    int status = listen ? listen(n->control, oldest) : ZERO_OK;
    if (listen && !status) {
        status = listen(n->control, UINT64_MAX);
        if (status && n->heard == 0)
            n->heard = seconds_now();
        if (status && seconds_now() < n->heard + GRACE_SECONDS)
            return;
    }
    if (status)
        control_failed(n, status);
}

static void progress(struct nccl *n)
{
    uint64_t oldest = 0; /* that waits for NCCL */
    bool turn = true;
    if (!n->enters && settled(n))
        n->found = true;
    for (int i = 0; i < n->busy_count && !n->status; i++)
        if (n->busy[i]->state == SET_CONTROL)
            control_moves(n, n->busy[i]);
    for (int i = 0; i < n->busy_count && !n->status; i++) {
        struct set *s = n->busy[i];
        if (turn && (s->state == SET_TURN || s->state == SET_ENTERS))
            enter(n, s);
        turn &= !is_unit(s->c) || s->state >= SET_MOVES;
        if ((s->state == SET_MOVES && passed(n, s->finished)) ||
            (s->state == SET_HELD && n->found)) {
            if (s->type != ncclUint8)
                sum_added(n, s->c);
            s->state = SET_DONE;
        }
        if (!oldest && s->state > SET_CONTROL && s->state < SET_DONE)
            oldest = s->over.header.sequence;
    }
    if (oldest && !n->status)
        listen_for_failures(n, oldest);
}

/* ------------------------------------------------------------- start, test */

static void describe(const struct nccl *n, struct set *s)
{
    const struct zero_collective *c = s->c;
    s->over = *c;
    s->over.state = NULL;
    if (!is_unit(c))
        return;
    /* A GATHER of the headers, under the call's own name for ranks that are elsewhere. */
    const char *kind = c->header.kind == ZERO_COLLECTIVE_GATHER ? "gather" : "reduce";
    s->headers[n->comm.rank] = c->header;
    s->over = (struct zero_collective){.header = c->header, .data = s->headers};
    s->over.header.kind = ZERO_COLLECTIVE_GATHER;
    s->over.header.bytes = sizeof(*s->headers);
    s->over.header.arguments = 0;
    if (!c->header.name[0])
        memcpy(s->over.header.name, kind, strlen(kind));
}

static int begin(struct zero_comm *comm, struct zero_collective *c, ncclDataType_t type)
{
    struct nccl *n = (struct nccl *)comm;
    c->state = NULL;
    if (n->status)
        return n->status;
    assert(n->busy_count < ZERO_COLLECTIVES && (c->stream || !is_unit(c)));
    struct set *s = n->sets;
    while (s->state != SET_FREE)
        s++;
    s->c = c;
    s->type = type;
    s->entered = 0;
    s->pieces = c->header.bytes > 0;
    if (is_exchange(s))
        s->pieces = (c->header.bytes + c->piece_bytes - 1) / c->piece_bytes;
    describe(n, s);
    int status = n->control->ops->start(n->control, &s->over);
    if (status) {
        control_failed(n, status);
        return n->status;
    }
    s->state = SET_CONTROL;
    c->state = n->busy[n->busy_count++] = s;
    return ZERO_OK;
}

static int nccl_start(struct zero_comm *comm, struct zero_collective *c)
{
    return begin(comm, c, ncclUint8);
}

static int nccl_reduce(struct zero_comm *comm, struct zero_collective *c, enum zero_dtype dtype)
{
    assert(is_unit(c) && c->header.kind == ZERO_COLLECTIVE_REDUCE);
    return begin(comm, c,
                 dtype == ZERO_FP32   ? ncclFloat32
                 : dtype == ZERO_BF16 ? NCCL_BFLOAT16
                                      : ncclFloat16);
}

static void set_release(struct nccl *n, struct set *s)
{
    int at = 0;
    while (n->busy[at] != s)
        at++;
    n->busy_count--;
    for (; at < n->busy_count; at++)
        n->busy[at] = n->busy[at + 1];
    s->state = SET_FREE;
    s->c->state = NULL;
    s->c = NULL;
}

static int nccl_test(struct zero_comm *comm, struct zero_collective *c, bool *done)
{
    struct nccl *n = (struct nccl *)comm;
    struct set *s = c->state;
    *done = false;
    if (!n->status && good(n, cudaSetDevice(n->gpu), "be chosen"))
        progress(n);
    if (s && s->state == SET_DONE) {
        set_release(n, s);
        *done = true;
        return ZERO_OK;
    }
    return n->status;
}

/* Whom NCCL waits for it does not tell, and all have made the call by then. */
static int nccl_missing(struct zero_comm *comm, const struct zero_collective *c, int from)
{
    const struct nccl *n = (const struct nccl *)comm;
    const struct set *s = c->state;
    return s && s->state == SET_CONTROL ? n->control->ops->missing(n->control, &s->over, from) : -1;
}

/* ---------------------------------------------------------- abort, destroy */

static uint64_t first_unfinished(const struct nccl *n, uint64_t sequence)
{
    for (int i = 0; i < n->busy_count; i++)
        if (n->busy[i]->state != SET_DONE && n->busy[i]->over.header.sequence < sequence)
            sequence = n->busy[i]->over.header.sequence;
    return sequence;
}

struct ending {
    ncclResult_t (*call)(ncclComm_t);
    ncclComm_t nccl;
    int gpu;
};

static void *ending_main(void *arg)
{
    struct ending *e = arg;
    (void)cudaSetDevice(e->gpu);
    (void)e->call(e->nccl); /* who fails in it may have freed it */
    free(e);
    return NULL;
}

/* NCCL's last calls are collective among the ranks of a node: there its service threads wait for
 * those of the others (src/proxy.cc there), which may be stopped, or call this much later. What
 * they tell the kernels, to end, comes first. So they have a thread, which is left where it waits
 * for too long, with NCCL's own memory. */
static void end_by(struct nccl *n, ncclResult_t (*last)(ncclComm_t))
{
    struct ending *e = malloc(sizeof(*e));
    pthread_t thread;
    if (e)
        *e = (struct ending){last, n->nccl, n->gpu};
    if (!e || thread_start(&thread, ending_main, e)) {
        free(e);
        (void)last(n->nccl);
    } else if (!thread_join_by(thread, seconds_now() + END_SECONDS)) {
        pthread_detach(thread);
    }
    n->nccl = NULL;
}

/* NCCL's kernels end, those too that stand in the stream; then the stream is empty. */
static void end_nccl(struct nccl *n)
{
    int before = n->gpu;
    if (!n->nccl && !n->stream) /* n->gpu was never asked for: 0 is another's */
        return;
    (void)cudaGetDevice(&before);
    (void)cudaSetDevice(n->gpu);
    if (n->nccl)
        end_by(n, ncclCommAbort);
    if (n->stream)
        (void)cudaStreamSynchronize(n->stream);
    leave(n, before);
}

static void nccl_abort(struct zero_comm *comm, uint64_t sequence)
{
    struct nccl *n = (struct nccl *)comm;
    int kept = 0;
    bool moves = false;
    if (n->gave_up)
        return;
    n->gave_up = true;
    sequence = first_unfinished(n, sequence);
    n->control->ops->abort(n->control, sequence);
    control_failed(n, ZERO_ERR_COMM);
    for (int i = 0; i < n->busy_count; i++)
        moves |= n->busy[i]->state == SET_ENTERS || n->busy[i]->state == SET_MOVES;
    if (moves) /* else others may still come to the end of what they have of this rank */
        end_nccl(n);
    for (int i = 0; i < n->busy_count; i++) {
        struct set *s = n->busy[i];
        if (s->state == SET_DONE)
            n->busy[kept++] = s;
        else
            s->state = SET_FREE;
    }
    n->busy_count = kept;
}

/* Waits until no rank needs anything of this one any more. */
static bool finalized(const struct nccl *n)
{
    const struct timespec nap = {.tv_nsec = 100000};
    double until = seconds_now() + END_SECONDS;
    ncclResult_t state = ncclCommFinalize(n->nccl);
    while (state == ncclInProgress && seconds_now() < until) {
        if (ncclCommGetAsyncError(n->nccl, &state) != ncclSuccess)
            return false;
        nanosleep(&nap, NULL);
    }
    return state == ncclSuccess;
}

static void nccl_free(struct nccl *n)
{
    const cudaEvent_t events[] = {n->before, n->arrived, n->summed[0], n->summed[1], n->near};
    for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++)
        if (events[i])
            (void)cudaEventDestroy(events[i]);
    for (int i = 0; i < ZERO_COLLECTIVES; i++) {
        if (n->sets[i].finished)
            (void)cudaEventDestroy(n->sets[i].finished);
        if (!n->control->holds)
            free(n->sets[i].headers);
    }
    if (n->stream)
        (void)cudaStreamDestroy(n->stream);
    (void)cudaGetLastError();
    free(n->parts);
    free(n);
}

static void nccl_destroy(struct zero_comm *comm)
{
    struct nccl *n = (struct nccl *)comm;
    int before = n->gpu;
    if (first_unfinished(n, UINT64_MAX) != UINT64_MAX) /* the control channel has our memory */
        nccl_abort(comm, comm->sequence + 1);
    (void)cudaGetDevice(&before);
    (void)cudaSetDevice(n->gpu);
    if (n->nccl && !n->status && n->found && finalized(n))
        end_by(n, ncclCommDestroy);
    end_nccl(n);
    n->control->sequence = comm->sequence;
    leave(n, before);
    nccl_free(n);
}

/* ------------------------------------------------------------------- create */

static const struct zero_comm_ops nccl_ops = {
    .start = nccl_start,
    .test = nccl_test,
    .missing = nccl_missing,
    .abort = nccl_abort,
    .destroy = nccl_destroy,
    .reduce = nccl_reduce,
};

static bool nccl_alloc(struct nccl *n)
{
    size_t size = (size_t)n->comm.size;
    n->parts = calloc(size, sizeof(*n->parts));
    bool ok = n->parts != NULL;
    for (int i = 0; i < ZERO_COLLECTIVES; i++) {
        n->sets[i].headers = calloc(size, sizeof(*n->sets[i].headers));
        ok = ok && n->sets[i].headers;
    }
    return ok;
}

static bool make_event(struct nccl *n, cudaEvent_t *event)
{
    return good(n, cudaEventCreateWithFlags(event, cudaEventDisableTiming), "make an event");
}

static bool make_stream(struct nccl *n)
{
    bool ok =
        good(n, cudaGetDevice(&n->gpu), "say which GPU the thread uses") &&
        good(n, cudaSetDevice(n->gpu), "be chosen") &&
        good(n,
             cudaStreamCreateWithPriority(&n->stream, cudaStreamNonBlocking, CUDA_PRIORITY_FIRST),
             "make a stream") &&
        make_event(n, &n->before) && make_event(n, &n->arrived) && make_event(n, &n->summed[0]) &&
        make_event(n, &n->summed[1]) && make_event(n, &n->near) &&
        good(n, cudaEventRecord(n->near, n->stream), "record an event");
    for (int i = 0; i < ZERO_COLLECTIVES && ok; i++)
        ok = make_event(n, &n->sets[i].finished);
    return ok;
}

static bool make_nccl(struct nccl *n, const char *bytes)
{
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    memcpy(id.internal, bytes, sizeof(id.internal));
    config.blocking = 0;
    return fine(n, ncclCommInitRankConfig(&n->nccl, n->comm.size, id, n->comm.rank, &config),
                "begin");
}

int comm_nccl_version(void)
{
    int version = 0;
    return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

/* The variable counts more than our blocking = 0, where NCCL reads a 1 in it, as here. */
static int must_not_block(struct error *error)
{
    const char *blocking = getenv("NCCL_COMM_BLOCKING");
    if (!blocking || (int)strtoll(blocking, NULL, 0) != 1)
        return ZERO_OK;
    return error_set(error, ZERO_ERR_ARGUMENT,
                     "NCCL_COMM_BLOCKING is '%.64s', with which NCCL waits for ranks that may be "
                     "gone. Unset it, also in NCCL's own file (/etc/nccl.conf, ~/.nccl.conf).",
                     blocking);
}

/* NCCL puts what is in this node's file into the environment here, where no rank waits for it yet;
 * on the other nodes when a communicator begins, so that is looked for again then. */
int comm_nccl_id(char id[COMM_NCCL_ID], struct error *error)
{
    ncclUniqueId made;
    ncclResult_t rc = ncclGetUniqueId(&made);
    _Static_assert(sizeof(made) == COMM_NCCL_ID, "an id fits");
    if (rc != ncclSuccess)
        return error_set(error, ZERO_ERR_COMM,
                         "NCCL failed to make an id for the job: %s (%d). Look whether "
                         "NCCL_SOCKET_IFNAME names an interface of this node, or set "
                         "NCCL_DEBUG=WARN for NCCL's reasons.",
                         ncclGetErrorString(rc), (int)rc);
    memcpy(id, made.internal, sizeof(made));
    return must_not_block(error);
}

int comm_nccl_create(struct zero_comm **comm, struct zero_comm *control,
                     const char id[COMM_NCCL_ID], struct error *error)
{
    *comm = NULL;
    if (must_not_block(error))
        return error->status;
    struct nccl *n = calloc(1, sizeof(*n));
    if (n) {
        n->comm = *control;
        n->comm.ops = &nccl_ops;
        n->comm.device_memory = true;
        n->comm.error[0] = '\0';
        n->control = control;
    }
    if (!n || !nccl_alloc(n)) {
        error_set(error, ZERO_ERR_MEMORY,
                  "No memory for a communicator of %d ranks." ERROR_FREE_MEMORY, control->size);
    } else if (make_stream(n) && make_nccl(n, id) && !must_not_block(error)) {
        *comm = &n->comm;
        return ZERO_OK;
    } else if (!error->status) {
        error_set(error, n->status, "%s", n->comm.error);
    }
    if (n) {
        end_nccl(n);
        nccl_free(n);
    }
    return error->status;
}
