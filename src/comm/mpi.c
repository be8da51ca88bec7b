// SPDX-License-Identifier: Apache-2.0
/*
 * The four collectives over MPI, from nonblocking point-to-point messages. It
 * never waits in MPI once it is created, and has no thread: start and test,
 * called by the engine's thread, make all progress.
 *
 * Who owns what: a collective under way has a set, made at creation: its
 * requests, the peers' headers, room for a SUM. MPI reads and writes the
 * collective's data and scratch themselves; but a SUM goes through the set,
 * because MPI cannot be told to give up an all-reduce.
 *
 * What order is guaranteed: start exchanges headers with all ranks, in the
 * order of the starts, and data moves only when the headers of all ranks have
 * matched; so a rank that made another call is found before any message could
 * be mistaken for another. SUMs begin in the order of their starts (MPI demands
 * it), REDUCEs run one after the other (they may share scratch). Between nodes a
 * GATHER's parts come by way of other ranks (mpi_set.c: route), which are not done
 * with it before what they pass on has left them.
 *
 * What shutdown does: abort takes back the receives that have not begun, tells all
 * peers the first message that this rank has not completed and whether other receives
 * go on, then ends its own transfers within QUIESCE_SECONDS; after
 * that the collectives' memory is the caller's again, unless holds says that it
 * is not. A peer that still waits for this rank hears the notice in its next
 * test. MPI_Finalize with an engine alive does the same.
 */
#include "src/comm/mpi_set.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/clock.h"
#include "src/comm/comm.h"
#include "src/thread.h"

#define TRANSFER_BYTES_MAX ((int64_t)1 << 30)  /* MPI counts in int */
#define DIRECT_BYTES_MAX   ((int64_t)16 << 10) /* a second hop would take longer than the first */
#define TAG_MAX            32767               /* of every MPI */
#define QUIESCE_SECONDS    1.0
#define EXIT_SECONDS_MIN   10 /* ranks free memory and files before they come there */

/* MPI is one per process, and so is what is left to do at its exit. */
static atomic_bool finalize_at_exit;
static atomic_bool failed; /* an engine over it has, or the process ends with one */
static atomic_int living;  /* communicators */
static atomic_int exit_status;
static atomic_bool hurried;      /* at exit engines are still there, after a failure */
static _Atomic pid_t started_in; /* the process that has: a fork of it neither uses nor ends it */
static atomic_bool given_up;     /* its start: it may be half done for good */
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER; /* engines' threads may race for it */
static pthread_mutex_t ending = PTHREAD_MUTEX_INITIALIZER;   /* exit may race with zero_destroy */

void mpi_fail(struct mpi *m, int status)
{
    if (!m->status)
        m->status = status;
    atomic_store(&failed, true);
}

void mpi_never_finalize(void)
{
    atomic_store(&finalize_at_exit, false);
}

/* ------------------------------------------------------------------- forks */

/* A program may have started MPI, and its fork is where that would be too late to see. */
static void fork_begins(void)
{
    pid_t none = 0;
    if (!atomic_load(&started_in) && comm_mpi_started())
        atomic_compare_exchange_strong(&started_in, &none, getpid());
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(fork_begins, NULL, NULL);
}

/* In a fork MPI takes the messages that are its parent's. */
static bool forked(void)
{
    pid_t process = atomic_load(&started_in);
    return process && process != getpid();
}

static int check_process(struct error *error)
{
    if (!forked())
        return ZERO_OK;
    return error_set(error, ZERO_ERR_STATE,
                     "MPI was started in process %d, of which this one (%d) is a fork, where MPI "
                     "cannot be used. Make engines in that process, or fork before MPI starts.",
                     (int)atomic_load(&started_in), (int)getpid());
}

/* ----------------------------------------------------------------- notices */

static int notice_listen(struct mpi *m)
{
    return MPI_Irecv(&m->notice_in, (int)sizeof(m->notice_in), MPI_BYTE, MPI_ANY_SOURCE, TAG_FAILED,
                     m->world, &m->notice_receive);
}

static void notice_take(struct mpi *m)
{
    int flag = 0;
    MPI_Status status;
    if (MPI_Test(&m->notice_receive, &flag, &status) != MPI_SUCCESS || !flag)
        return;
    if (status.MPI_SOURCE < 0) /* there was no receive to complete */
        return;
    if (m->failed_rank < 0 || m->notice_in.sequence < m->failed.sequence) {
        m->failed_rank = m->notice_in.unit;
        m->failed = m->notice_in;
    }
    m->takes_nothing[status.MPI_SOURCE] = m->notice_in.arguments == 0;
    notice_listen(m);
}

/* The error of message sequence where it needs a rank that gave up: it names the first one. */
static int notice_apply(struct mpi *m, uint64_t sequence)
{
    const struct zero_collective none = {0};
    struct zero_collective_header first = m->failed;
    first.sequence = (uint64_t)m->failed.bytes;
    if (m->failed_rank < 0 || sequence < m->failed.sequence)
        return ZERO_OK;
    return comm_header_compare(&m->comm, &none, m->failed_rank, &first);
}

static void progress(struct mpi *m)
{
    /* A notice comes behind its sender's headers. Taken before them and applied
     * after them, it never hides a mismatch between the two ranks. */
    notice_take(m);
    for (int i = 0; i < m->busy_count && !m->status; i++)
        set_progress(m, m->busy[i]);
    for (int i = 0; i < m->busy_count && !m->status; i++)
        if (m->busy[i]->state != SET_DONE && notice_apply(m, m->busy[i]->mine.sequence))
            mpi_fail(m, ZERO_ERR_COMM);
}

/* ------------------------------------------------------------ start, test */

static void set_release(struct mpi *m, struct set *s)
{
    int at = 0;
    while (m->busy[at] != s)
        at++;
    m->busy_count--;
    for (; at < m->busy_count; at++)
        m->busy[at] = m->busy[at + 1];
    s->state = SET_FREE;
    s->c->state = NULL;
    s->c = NULL;
}

static int start(struct mpi *m, struct zero_collective *c)
{
    struct error error = {0};
    c->state = NULL;
    if (!m->status && check_process(&error))
        m->status = error_comm(&m->comm, error.status, "%s", error.text);
    if (m->status)
        return m->status;
    assert(c->header.sequence > m->sequence && c->header.bytes >= 0);
    assert(m->busy_count < ZERO_COLLECTIVES);
    assert(c->header.kind != ZERO_COLLECTIVE_SUM ||
           (c->header.bytes <= ZERO_SUM_BYTES_MAX && c->header.bytes % 8 == 0));
    assert(c->header.kind != ZERO_COLLECTIVE_REDUCE ||
           (c->piece_bytes > 0 && c->piece_bytes % 256 == 0));
    m->sequence = c->header.sequence;
    struct set *s = m->sets;
    while (s->state != SET_FREE)
        s++;
    c->state = m->busy[m->busy_count++] = s;
    return set_start(m, s, c);
}

static int mpi_start(struct zero_comm *comm, struct zero_collective *c)
{
    struct mpi *m = (struct mpi *)comm;
    pthread_mutex_lock(&m->lock);
    int status = start(m, c);
    pthread_mutex_unlock(&m->lock);
    return status;
}

/* The status of the first failure. */
static int look(struct mpi *m)
{
    if (!m->status)
        progress(m);
    return m->status;
}

static int mpi_test(struct zero_comm *comm, struct zero_collective *c, bool *done)
{
    struct mpi *m = (struct mpi *)comm;
    pthread_mutex_lock(&m->lock); /* also for c's set, which the process's exit may end */
    int status = look(m);
    struct set *s = c->state;
    bool own = s && s->c == c;
    *done = own && s->state == SET_DONE;
    assert(own || status);
    if (*done)
        set_release(m, s);
    pthread_mutex_unlock(&m->lock);
    return *done ? ZERO_OK : status;
}

static int mpi_missing(struct zero_comm *comm, const struct zero_collective *c, int from)
{
    struct mpi *m = (struct mpi *)comm;
    pthread_mutex_lock(&m->lock);
    const struct set *s = c->state;
    int peer = s && s->c == c ? set_missing(m, s, from) : -1;
    pthread_mutex_unlock(&m->lock);
    return peer;
}

static int mpi_listen(struct zero_comm *comm, uint64_t sequence)
{
    struct mpi *m = (struct mpi *)comm;
    pthread_mutex_lock(&m->lock);
    int status = look(m);
    status = status ? status : notice_apply(m, sequence);
    pthread_mutex_unlock(&m->lock);
    return status;
}

/* ------------------------------------------------------------------- abort */

/* Takes back all receives; whether some have begun and go on. */
static bool cancel(struct mpi *m)
{
    bool go_on = false;
    for (int b = 0; b < m->busy_count; b++)
        if (m->busy[b]->state != SET_DONE)
            set_cancel(m, m->busy[b]);
    for (int b = 0; b < m->busy_count; b++)
        if (m->busy[b]->state != SET_DONE) {
            requests_drain(m, m->busy[b]->requests, set_requests(m), 0);
            go_on |= set_receives(m, m->busy[b]);
        }
    return go_on;
}

/* Ends all collectives that are not done, of which cancel has taken back what it could. */
static void quiesce(struct mpi *m)
{
    double until = seconds_now() + QUIESCE_SECONDS;
    int kept = 0;
    for (int b = 0; b < m->busy_count; b++)
        if (m->busy[b]->state != SET_DONE)
            requests_drain(m, m->busy[b]->requests, set_requests(m), until);
    for (int i = 0; i < m->peers; i++) /* who else has given up meanwhile */
        notice_take(m);
    for (int b = 0; b < m->busy_count; b++) {
        if (m->busy[b]->state == SET_DONE)
            m->busy[kept++] = m->busy[b];
        else
            set_end(m, m->busy[b]);
    }
    m->busy_count = kept;
}

static uint64_t first_unfinished(const struct mpi *m, uint64_t sequence)
{
    for (int b = 0; b < m->busy_count; b++)
        if (m->busy[b]->state != SET_DONE && m->busy[b]->mine.sequence < sequence)
            sequence = m->busy[b]->mine.sequence;
    return sequence;
}

/* A notice says from which message on this rank completes none, and who gave up first (unit),
 * before which message (bytes): whoever follows passes that on. And whether this rank still
 * takes some pieces (arguments). */
static void give_up(struct mpi *m, uint64_t sequence)
{
    bool follows = m->failed_rank >= 0;
    if (m->finalized || forked() || m->notice_out.kind == ZERO_COLLECTIVE_FAILED)
        return;
    sequence = first_unfinished(m, sequence);
    bool go_on = cancel(m); /* first: what the notice says is true when it arrives */
    m->notice_out =
        (struct zero_collective_header){.sequence = sequence,
                                        .kind = ZERO_COLLECTIVE_FAILED,
                                        .unit = follows ? m->failed_rank : m->comm.rank,
                                        .bytes = follows ? m->failed.bytes : (int64_t)sequence,
                                        .arguments = go_on};
    if (!m->status)
        comm_given_up(&m->comm, m->notice_out.sequence);
    mpi_fail(m, ZERO_ERR_COMM);
    for (int i = 0; i < m->peers; i++) {
        int rc = MPI_Isend(&m->notice_out, (int)sizeof(m->notice_out), MPI_BYTE,
                           mpi_other_end(m, TRACK_HEADER_OUT, i), TAG_FAILED, m->world,
                           &m->notice_sends[i]);
        if (rc != MPI_SUCCESS) /* a peer that is gone needs no notice */
            m->notice_sends[i] = MPI_REQUEST_NULL;
    }
    quiesce(m);
}

static void mpi_abort(struct zero_comm *comm, uint64_t sequence)
{
    struct mpi *m = (struct mpi *)comm;
    pthread_mutex_lock(&m->lock);
    give_up(m, sequence);
    pthread_mutex_unlock(&m->lock);
}

/* ---------------------------------------------------------------- MPI_Finalize */

/* Those sent and the one awaited. */
static void notices_end(struct mpi *m)
{
    double until = seconds_now() + QUIESCE_SECONDS;
    m->left |= requests_drain(m, m->notice_sends, m->peers, until) > 0;
    if (m->notice_receive != MPI_REQUEST_NULL)
        MPI_Cancel(&m->notice_receive);
    m->left |= requests_drain(m, &m->notice_receive, 1, until) > 0;
}

/* MPI_Finalize calls it first, and then waits for the other ranks, which may be waiting for this
 * one's next collective: they are told. finalize_unwatch calls it too, when nothing is left to
 * say. */
static int finalize_begins(MPI_Comm self, int key, void *value, void *state)
{
    struct mpi *m = value;
    (void)self, (void)key, (void)state;
    pthread_mutex_lock(&m->lock);
    if (!m->status)
        m->status = error_comm(&m->comm, ZERO_ERR_COMM,
                               "The program has called MPI_Finalize while an engine still existed. "
                               "Call zero_destroy before it.");
    if (!m->finalized && !forked()) {
        give_up(m, m->sequence + 1);
        notices_end(m);
    }
    m->finalized = true;
    pthread_mutex_unlock(&m->lock);
    return MPI_SUCCESS;
}

static int finalize_watch(struct mpi *m)
{
    int rc = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, finalize_begins, &m->key, NULL);
    return rc ? rc : MPI_Comm_set_attr(MPI_COMM_SELF, m->key, m);
}

static void finalize_unwatch(struct mpi *m)
{
    if (m->key == MPI_KEYVAL_INVALID)
        return;
    m->finalized = true;
    MPI_Comm_delete_attr(MPI_COMM_SELF, m->key);
    MPI_Comm_free_keyval(&m->key);
}

/* ----------------------------------------------------------------- destroy */

static void mpi_free(struct mpi *m)
{
    for (int i = 0; i < ZERO_COLLECTIVES; i++)
        set_free(&m->sets[i]);
    free(m->parts);
    free(m->completed);
    free(m->statuses);
    free(m->notice_sends);
    free(m->takes_nothing);
    free(m->seat);
    free(m->who);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static void withdraw(struct mpi *m)
{
    if (m->finalized)
        return;
    bool clean = !m->status && first_unfinished(m, UINT64_MAX) == UINT64_MAX;
    cancel(m);
    quiesce(m);
    notices_end(m);
    /* With messages still on their way, another communicator must not get
     * this one's number. */
    if (clean)
        MPI_Comm_free(&m->world);
    else
        mpi_fail(m, ZERO_ERR_COMM);
    finalize_unwatch(m);
}

static void mpi_destroy(struct zero_comm *comm)
{
    struct mpi *m = (struct mpi *)comm;
    atomic_fetch_sub(&living, 1);
    if (!forked()) {
        pthread_mutex_lock(&ending);
        withdraw(m);
        pthread_mutex_unlock(&ending);
    }
    if (!m->left)
        mpi_free(m);
}

/* ------------------------------------------------------------------ create */

const struct zero_comm_ops mpi_ops = {
    .start = mpi_start,
    .test = mpi_test,
    .missing = mpi_missing,
    .abort = mpi_abort,
    .destroy = mpi_destroy,
    .listen = mpi_listen,
};

static struct mpi *mpi_alloc(int size)
{
    struct mpi *m = calloc(1, sizeof(*m));
    if (!m)
        return NULL;
    m->comm.size = size;
    m->peers = size - 1;
    m->places = 1;
    m->direct_max = DIRECT_BYTES_MAX;
    m->transfer_max = TRANSFER_BYTES_MAX;
    m->failed_rank = -1;
    m->world = MPI_COMM_NULL;
    m->notice_receive = MPI_REQUEST_NULL;
    m->key = MPI_KEYVAL_INVALID;
    pthread_mutex_init(&m->lock, NULL);
    size_t requests = (size_t)set_requests(m);
    m->parts = calloc((size_t)size, sizeof(*m->parts));
    m->completed = calloc(requests, sizeof(*m->completed));
    m->statuses = calloc(requests, sizeof(*m->statuses));
    m->notice_sends = calloc((size_t)size, sizeof(*m->notice_sends));
    m->takes_nothing = calloc((size_t)size, sizeof(*m->takes_nothing));
    m->seat = calloc((size_t)size, sizeof(*m->seat));
    m->who = calloc((size_t)size, sizeof(*m->who));
    bool ok = m->parts && m->completed && m->statuses && m->notice_sends && m->takes_nothing &&
              m->seat && m->who;
    for (int i = 0; i < ZERO_COLLECTIVES && ok; i++)
        ok = set_alloc(m, &m->sets[i]);
    if (ok) {
        requests_clear(m->notice_sends, m->peers);
        return m;
    }
    mpi_free(m);
    return NULL;
}

/* The world's own attribute, which other communicators need not have. */
static int tag_most(void)
{
    int known = 0, *most = NULL;
    int rc = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &known);
    return rc == MPI_SUCCESS && known ? *most : TAG_MAX;
}

/* Seats by node and place, of the lowest rank of each rank's node, which m->who is until then. */
static void seats_take(struct mpi *m)
{
    const int *first = m->who;
    int size = m->comm.size, nodes = 0, places = 0;
    for (int r = 0; r < size; r++) {
        nodes += first[r] == r;
        places += first[r] == 0;
    }
    bool even = nodes * places == size && nodes <= (tag_most() - TAG_PIECES) / TAGS_OF_PIECES;
    for (int r = 0; r < size && even; r++) {
        int node = 0, place = 0;
        for (int q = 0; q < r; q++) {
            node += q < first[r] && first[q] == q;
            place += first[q] == first[r];
        }
        m->seat[r] = node * places + place;
        even = place < places;
    }
    m->places = even ? places : 1;
    for (int r = 0; r < size && !even; r++)
        m->seat[r] = r;
    for (int r = 0; r < size; r++)
        m->who[m->seat[r]] = r;
}

/* Everything that all ranks do together; the caller looks at the first error. */
static int join(struct mpi *m, MPI_Comm world)
{
    MPI_Comm node = MPI_COMM_NULL;
    int first = 0; /* of its node */
    int rc = MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    m->world = world;
    m->comm.ops = &mpi_ops;
    rc = rc ? rc : MPI_Comm_rank(world, &m->comm.rank);
    rc = rc ? rc : MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    rc = rc ? rc : MPI_Comm_rank(node, &m->comm.local_rank);
    rc = rc ? rc : MPI_Comm_size(node, &m->comm.local_size);
    first = m->comm.rank;
    rc = rc ? rc : MPI_Bcast(&first, 1, MPI_INT, 0, node);
    rc = rc ? rc : MPI_Allgather(&first, 1, MPI_INT, m->who, 1, MPI_INT, world);
    rc = rc ? rc : MPI_Comm_free(&node);
    if (!rc)
        seats_take(m);
    rc = rc ? rc : finalize_watch(m);
    return rc ? rc : notice_listen(m);
}

static int mpi_error(struct error *error, const char *what, int rc)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;
    MPI_Error_string(rc, text, &length);
    return error_set(error, ZERO_ERR_COMM,
                     "%s failed: %.200s. Check the MPI installation and "
                     "the job's network.",
                     what, text);
}

static int level_check(struct error *error)
{
    static const char *const names[] = {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED",
                                        "MPI_THREAD_SERIALIZED"};
    const int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED};
    int initialized = 0, finalized = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (!initialized || finalized)
        return error_set(error, ZERO_ERR_UNSUPPORTED,
                         "MPI %s. Make the communicator between "
                         "MPI_Init_thread and MPI_Finalize.",
                         finalized ? "was finalized already" : "was not started");
    MPI_Query_thread(&level);
    for (int i = 0; i < 3; i++)
        if (level == levels[i])
            return error_set(error, ZERO_ERR_UNSUPPORTED,
                             "MPI was started with %s and libzero needs MPI_THREAD_MULTIPLE, "
                             "because its engine communicates from a thread of its own. Call "
                             "MPI_Init_thread with MPI_THREAD_MULTIPLE, or let zero_create start "
                             "MPI.",
                             names[i]);
    return ZERO_OK;
}

static int mpi_create(MPI_Comm parent, struct zero_comm **comm, struct error *error)
{
    int size = 0, between = 0;
    if (!comm)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "zero_comm_mpi was given NULL for its result. Pass the address of a "
                         "struct zero_comm *.");
    *comm = NULL;
    if (check_process(error) || level_check(error))
        return error->status;
    if (parent != MPI_COMM_NULL)
        MPI_Comm_test_inter(parent, &between);
    if (parent == MPI_COMM_NULL || between)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "zero_comm_mpi of %s. Pass a communicator of "
                         "the ranks that train.",
                         between ? "an intercommunicator" : "MPI_COMM_NULL");
    int rc = MPI_Comm_size(parent, &size);
    if (rc)
        return mpi_error(error, "MPI_Comm_size", rc);
    if (size == 1)
        return comm_self_create(comm, error);
    MPI_Comm world = MPI_COMM_NULL;
    rc = MPI_Comm_dup(parent, &world);
    if (rc)
        return mpi_error(error, "MPI_Comm_dup", rc);
    struct mpi *m = mpi_alloc(size);
    int here = m != NULL, all = 0;
    /* One rank without memory must not leave the others waiting for it. */
    rc = MPI_Allreduce(&here, &all, 1, MPI_INT, MPI_MIN, world);
    if (!rc && !all)
        error_set(error, ZERO_ERR_MEMORY,
                  "%s has no memory for a communicator of %d ranks." ERROR_FREE_MEMORY,
                  here ? "Another rank" : "This rank", size);
    if (!rc && all)
        rc = join(m, world);
    if (rc)
        mpi_error(error, "MPI", rc);
    if (error->status) {
        if (m) {
            finalize_unwatch(m);
            mpi_free(m);
        }
        if (!rc) /* all ranks come to it */
            MPI_Comm_free(&world);
        return error->status;
    }
    atomic_fetch_add(&living, 1);
    *comm = &m->comm;
    return ZERO_OK;
}

int zero_comm_mpi(MPI_Comm parent, struct zero_comm **comm, char *error, size_t error_size)
{
    struct error e = {0};
    int status = mpi_create(parent, comm, &e);
    if (error && error_size)
        snprintf(error, error_size, "%s", e.text);
    return status;
}

void comm_mpi_transfer_max(struct zero_comm *comm, int64_t bytes)
{
    assert(bytes >= 256 && bytes <= TRANSFER_BYTES_MAX);
    if (comm->ops == &mpi_ops)
        ((struct mpi *)comm)->transfer_max = bytes / 256 * 256;
}

void comm_mpi_nodes(struct zero_comm *comm, const int *first)
{
    struct mpi *m = (struct mpi *)comm;
    if (comm->ops != &mpi_ops)
        return;
    memcpy(m->who, first, (size_t)comm->size * sizeof(*first));
    m->direct_max = 0;
    seats_take(m);
}

/* ------------------------------------------------ MPI of the library's own */

bool comm_mpi_started(void)
{
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    return initialized && !finalized;
}

/* With the program's own status, where that tells of an error already. */
static void on_alarm(int number)
{
    (void)number;
    _exit(atomic_load(&exit_status));
}

static void set_alarm(int seconds, void (*handler)(int))
{
    struct sigaction fatal = {.sa_handler = handler};
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    sigaction(SIGALRM, &fatal, NULL);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    alarm((unsigned)seconds);
}

/* MPI_Finalize waits for all ranks and has no deadline: one that is stopped for
 * good would keep the others for ever. So the alarm ends this process, and that the
 * launcher ends the job. What was printed is written first. After an engine's failure all
 * ranks may well be there, each with work to end, or an engine that has replaced it. */
static void finalize(void)
{
    int finalized = 0, seconds = atomic_load(&hurried) ? EXIT_SECONDS_MIN : comm_exit_seconds();
    if (forked() || MPI_Finalized(&finalized) || finalized || !atomic_load(&finalize_at_exit))
        return;
    set_alarm(seconds > EXIT_SECONDS_MIN ? seconds : EXIT_SECONDS_MIN,
              atomic_load(&exit_status) ? on_alarm : SIG_DFL);
    fflush(stdout); /* not all streams: a thread of the program's may be reading one */
    fflush(stderr);
    pthread_mutex_lock(&ending);
    MPI_Finalize();
    pthread_mutex_unlock(&ending);
    alarm(0);
}

#ifdef __GLIBC__
/* Engines that are still there: MPI_Finalize tells the other ranks, which then end rather soon.
 * Where they have known of a failure there is nothing to wait for. */
static void hurry(int status, void *arg)
{
    (void)arg;
    if (forked())
        return;
    atomic_store(&exit_status, status & 0xff);
    if (status != 0 && atomic_load(&failed))
        mpi_never_finalize();
    if (status != 0 && atomic_load(&living))
        atomic_store(&hurried, true);
}
#endif

/* MPI's start, in a thread of its own: who waits for it owns it as long as it does. */
struct launch {
    struct zero_comm *comm;
    struct error error;
    atomic_bool left; /* one of the two is done with it: the other owns it */
};

static void *launch_main(void *arg)
{
    struct launch *launch = arg;
    int initialized = 0, level, rc = MPI_SUCCESS;
    pthread_mutex_lock(&starting);
    MPI_Initialized(&initialized);
    if (!initialized) {
        atomic_store(&started_in, getpid());
        rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
        atomic_store(&finalize_at_exit, rc == MPI_SUCCESS);
        if (atomic_load(&launch->left)) /* in this order: who leaves sets it before it clears */
            atomic_store(&finalize_at_exit, false);
        atexit(finalize);
#ifdef __GLIBC__
        on_exit(hurry, NULL); /* before finalize */
#endif
    }
    if (rc)
        mpi_error(&launch->error, "MPI_Init_thread", rc);
    else
        mpi_create(MPI_COMM_WORLD, &launch->comm, &launch->error);
    pthread_mutex_unlock(&starting);
    if (atomic_exchange(&launch->left, true)) {
        if (launch->comm) {
            launch->comm->ops->abort(launch->comm, 1); /* a rank that came late waits for it */
            launch->comm->ops->destroy(launch->comm);
        }
        free(launch);
    }
    return NULL;
}

#ifdef __GLIBC__
/* A start that was given up goes on in its thread, and what libraries do at a process's end
 * would pull the ground from under it: the end comes before that, behind all that the
 * program does at its exit. */
static void leave(int status, void *arg)
{
    (void)arg;
    if (!atomic_load(&given_up))
        return;
    atomic_store(&exit_status, status & 0xff);
    /* For a stream that a thread of the program's is reading. */
    set_alarm(EXIT_SECONDS_MIN, on_alarm);
    fflush(NULL);
    _exit(status);
}

/* What on_exit calls must be there then, also where a plugin with this library in it was closed. */
__attribute__((constructor)) static void leave_at_exit(void)
{
    Dl_info own;
    if (dladdr(&given_up, &own) && own.dli_fname)
        dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    on_exit(leave, NULL);
}
#endif

static int not_started(int seconds, struct error *error)
{
    return error_set(error, ZERO_ERR_DEADLINE,
                     "MPI did not bring this job's ranks together within %d s: a rank may not have "
                     "called zero_create. Look for what stopped it, or raise the deadline "
                     "(--deadline, .deadline_seconds).",
                     seconds);
}

/* MPI starts when all ranks have come, and has no deadline either. Where it takes
 * too long, its thread is left to itself, and MPI is not started again beside it. */
int comm_mpi_default(int seconds, struct zero_comm **comm, struct error *error)
{
    pthread_t thread;
    *comm = NULL;
    if (check_process(error))
        return error->status;
    if (atomic_load(&given_up))
        return not_started(seconds, error);
    struct launch *launch = calloc(1, sizeof(*launch));
    double until = seconds_now() + seconds;
    int rc = launch ? pthread_create(&thread, NULL, launch_main, launch) : ENOMEM;
    if (rc) {
        free(launch);
        return error_set(error, ZERO_ERR_MEMORY,
                         "The thread that starts MPI cannot be created: %s. Raise the limit on "
                         "processes or memory (ulimit -u, ulimit -v).",
                         strerror(rc));
    }
    if (!thread_join_or_leave(thread, until, &launch->left)) {
        atomic_store(&given_up, true);
        atomic_store(&finalize_at_exit, false);
        return not_started(seconds, error);
    }
    *comm = launch->comm;
    *error = launch->error;
    free(launch);
    return error->status;
}
