// SPDX-License-Identifier: Apache-2.0
/* The lines that commands stand in and the thread that carries them out. What a command does
 * it leaves to struct queue_ops; of queues it knows that updates start one at a time and that
 * what is between ranks must be polled. */
#include "src/queue.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "src/clock.h"
#include "src/thread.h"

#define EAGER_ROUNDS 64     /* without progress, while ranks are polled, before the thread sleeps */
#define SLEEP_NS_MIN 20000L /* while something must be polled, growing to */
#define SLEEP_NS_MAX 500000L
#define SPIN_SECONDS 60e-6 /* before a thread sleeps: longer than another one takes to wake */
#define SPIN_PAUSE   6     /* after spins in vain: up to 2^6 waits go to sleep at once */

/* Room for an update, which starts when the one before is done, so that appending it does not
 * wait: what a walk asks of each queue for a chunk, and a unit's reads. */
static const uint64_t per_chunk[QUEUES] = {
    [QUEUE_PARAM_DISK] = 2, /* a gather's parts, and those of the next */
    [QUEUE_STATE_DISK] = 4, /* record and parameters, in and out */
    [QUEUE_UPDATE] = 1,     /* itself */
    [QUEUE_TO_DEVICE] = 2,  /* gradients and parameters, or new parameters */
    [QUEUE_TO_HOST] = 2,    /* likewise, the other way */
};

struct queue {
    struct command *ring;
    uint64_t capacity;
    uint64_t head;    /* all commands up to here are done */
    uint64_t started; /* up to here, started */
    uint64_t tail;    /* up to here, appended */
};

/* Looking on for a while before sleeping. It pays where what is waited for comes within
 * SPIN_SECONDS; after spins in vain, more and more waits go without. */
struct spin {
    int in_vain;     /* in a row */
    unsigned paused; /* so many waits yet */
};

struct queues {
    pthread_mutex_t lock; /* of everything below, but ops, arg and what ops touch */
    pthread_cond_t changed;
    struct queue queue[QUEUES];
    struct error error;
    bool failed, stop, running;
    bool asleep;                /* the engine thread, or about to be: event wakes it */
    uint64_t appended, seen;    /* commands, to all queues; by the engine thread */
    bool waited_for;            /* by the caller; read without the lock */
    bool told;                  /* the caller, of what it waits for; likewise */
    struct spin caller, engine; /* each one's own */
    struct ref awaited;         /* sequence 0: the caller waits for any change */
    int event;
    double waited;
    const struct queue_ops *ops;
    void *arg;
    pthread_t thread;
    void (*observe)(void *arg, const struct command *c);
    void *observe_arg;
};

/* ------------------------------------------------------------- the lines */

static struct command *at(const struct queue *q, uint64_t sequence)
{
    assert(sequence > q->head && sequence <= q->tail);
    return &q->ring[sequence % q->capacity];
}

static struct ref ref_to(enum queue_id queue, uint64_t sequence)
{
    static_assert(QUEUES <= 8, "a queue's number has three bits");
    return (struct ref){.queue = (unsigned)queue & 7, .sequence = sequence & ~(uint64_t)0 >> 4};
}

static bool done(const struct queues *s, struct ref ref)
{
    const struct queue *q = &s->queue[ref.queue];
    if (ref.sequence <= q->head)
        return true;
    if (ref.all || ref.sequence > q->started)
        return false;
    return at(q, ref.sequence)->done;
}

static bool may_start(const struct queues *s, const struct command *c)
{
    for (int i = 0; i < c->waits; i++)
        if (!done(s, c->wait[i]))
            return false;
    return true;
}

static void complete(struct queues *s, struct command *c)
{
    struct queue *q = &s->queue[c->queue];
    assert(!c->done && c->sequence <= q->started);
    c->done = true;
    while (q->head < q->started && q->ring[(q->head + 1) % q->capacity].done)
        q->head++;
}

static bool under_way(const struct queues *s)
{
    for (int i = 0; i < QUEUES; i++)
        if (s->queue[i].head < s->queue[i].started)
            return true;
    return false;
}

static bool empty(const struct queues *s)
{
    for (int i = 0; i < QUEUES; i++)
        if (s->queue[i].head < s->queue[i].tail)
            return false;
    return true;
}

void command_wait(struct command *command, struct ref ref)
{
    if (!ref.sequence)
        return;
    assert(command->waits < COMMAND_WAITS);
    command->wait[command->waits++] = ref;
}

/* Looks for what the caller or the engine thread waits for, without the lock; whether it
 * came. */
static bool spin(struct queues *s, struct spin *spin, bool (*came)(const struct queues *s))
{
    if (spin->paused > 0) {
        spin->paused--;
        return false;
    }
    double until = seconds_now() + SPIN_SECONDS;
    do {
        if (came(s)) {
            spin->in_vain = 0;
            return true;
        }
    } while (seconds_now() < until);
    spin->in_vain += spin->in_vain < SPIN_PAUSE;
    spin->paused = (1U << spin->in_vain) - 1;
    return false;
}

static void wait_begin(struct queues *s, struct ref ref)
{
    s->awaited = ref;
    __atomic_store_n(&s->told, false, __ATOMIC_RELAXED);
    __atomic_store_n(&s->waited_for, true, __ATOMIC_RELAXED);
}

static void wait_end(struct queues *s)
{
    __atomic_store_n(&s->waited_for, false, __ATOMIC_RELAXED);
}

/* Tells the caller, if it waits for what is done now. */
static void tell_caller(struct queues *s)
{
    if (!s->waited_for || !(s->failed || !s->awaited.sequence || done(s, s->awaited)))
        return;
    __atomic_store_n(&s->told, true, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&s->changed);
}

static bool told(const struct queues *s)
{
    return __atomic_load_n(&s->told, __ATOMIC_RELAXED);
}

/* Waits for the next change, to a time or without end. A thread that is cancelled meanwhile ends
 * later: here it would leave the lock to nobody. */
static int wait_for_change(struct queues *s, const struct timespec *until)
{
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    int rc = until ? pthread_cond_timedwait(&s->changed, &s->lock, until)
                   : pthread_cond_wait(&s->changed, &s->lock);
    pthread_setcancelstate(state, NULL);
    return rc;
}

struct ref queues_append(struct queues *s, enum queue_id id, const struct command *command)
{
    struct queue *q = &s->queue[id];
    pthread_mutex_lock(&s->lock);
    while (q->tail - q->head == q->capacity && !s->failed) {
        assert(s->running);
        double start = seconds_now();
        wait_begin(s, (struct ref){0});
        wait_for_change(s, NULL);
        wait_end(s);
        s->waited += seconds_now() - start;
    }
    struct ref ref = ref_to(id, q->tail + 1);
    if (q->tail - q->head < q->capacity) {
        struct command *c = &q->ring[ref.sequence % q->capacity];
        *c = *command;
        c->queue = id;
        c->sequence = ref.sequence;
        c->done = false;
        q->tail++;
        if (s->observe)
            s->observe(s->observe_arg, c);
    }
    __atomic_store_n(&s->appended, s->appended + 1, __ATOMIC_RELAXED);
    bool wake = s->asleep;
    pthread_mutex_unlock(&s->lock);
    if (wake)
        event_write(s->event);
    return ref;
}

int queues_wait(struct queues *s, struct ref ref, struct error *error)
{
    pthread_mutex_lock(&s->lock);
    if (!s->failed && !done(s, ref)) {
        double start = seconds_now();
        wait_begin(s, ref);
        pthread_mutex_unlock(&s->lock);
        spin(s, &s->caller, told);
        pthread_mutex_lock(&s->lock);
        while (!s->failed && !done(s, ref))
            wait_for_change(s, NULL);
        wait_end(s);
        s->waited += seconds_now() - start;
    }
    if (s->failed)
        error_set(error, s->error.status, "%s", s->error.text);
    pthread_mutex_unlock(&s->lock);
    return error->status;
}

int queues_status(struct queues *s, struct error *error)
{
    return queues_wait(s, (struct ref){0}, error);
}

struct ref queues_tail(const struct queues *s, enum queue_id queue)
{
    struct ref ref = ref_to(queue, s->queue[queue].tail);
    ref.all = true;
    return ref;
}

double queues_waited(const struct queues *s)
{
    return s->waited;
}

bool queues_waited_for(const struct queues *s)
{
    return __atomic_load_n(&s->waited_for, __ATOMIC_RELAXED);
}

void queues_observe(struct queues *s, void (*observe)(void *, const struct command *), void *arg)
{
    pthread_mutex_lock(&s->lock);
    s->observe = observe;
    s->observe_arg = arg;
    pthread_mutex_unlock(&s->lock);
}

int queues_event(const struct queues *s)
{
    return s->event;
}

/* ----------------------------------------------------- the engine thread */

/* Starts what may be started in one queue. Of updates only one: asking a device for them takes as
 * long as they do, and who waits for the first would not hear of it until the last was asked for.
 * The lock is held, but not while a command is started: it is the thread's alone. */
static bool start_some(struct queues *s, struct queue *q, struct error *error)
{
    bool progress = false, one = q == &s->queue[QUEUE_UPDATE];
    while (!s->stop && q->started < q->tail && !error->status && !(one && progress)) {
        struct command *c = at(q, q->started + 1);
        if (!may_start(s, c) || !s->ops->ready(s->arg, c))
            break;
        q->started++;
        c->started = seconds_now();
        pthread_mutex_unlock(&s->lock);
        s->ops->start(s->arg, c, error);
        pthread_mutex_lock(&s->lock);
        progress = true;
    }
    return progress;
}

static bool test_some(struct queues *s, struct queue *q, struct error *error)
{
    bool progress = false;
    uint64_t last = q->started;
    for (uint64_t i = q->head + 1; i <= last && !error->status; i++) {
        struct command *c = &q->ring[i % q->capacity];
        bool finished = false;
        if (c->done)
            continue;
        pthread_mutex_unlock(&s->lock);
        s->ops->test(s->arg, c, &finished, error);
        pthread_mutex_lock(&s->lock);
        if (!finished || error->status)
            continue;
        complete(s, c);
        progress = true;
    }
    return progress;
}

/* One pass over all queues; whether anything moved. */
static bool round_once(struct queues *s)
{
    struct error error = {0};
    bool progress = false;
    if (under_way(s)) {
        pthread_mutex_unlock(&s->lock);
        s->ops->poll(s->arg);
        pthread_mutex_lock(&s->lock);
    }
    for (int i = 0; i < QUEUES && !error.status; i++) {
        bool moved = test_some(s, &s->queue[i], &error);
        moved |= start_some(s, &s->queue[i], &error);
        /* At once: what the next queue has to test, checksums of files, takes its time. */
        if (moved)
            tell_caller(s);
        progress |= moved;
    }
    if (error.status) {
        /* Before anybody hears of it: what is under way lets go of the callers' memory. */
        pthread_mutex_unlock(&s->lock);
        s->ops->failed(s->arg);
        pthread_mutex_lock(&s->lock);
        s->failed = true;
        s->error = error;
        tell_caller(s);
        return true;
    }
    return progress;
}

/* What is under way is looked at each second, for it may be overdue. */
static void sleep_until_woken(struct queues *s, bool poll_needed, int naps)
{
    struct pollfd fd = {.fd = s->event, .events = POLLIN};
    struct timespec nap = {.tv_sec = 1};
    if (poll_needed) {
        long ns = SLEEP_NS_MIN << (naps < 5 ? naps : 5);
        nap = (struct timespec){.tv_nsec = ns < SLEEP_NS_MAX ? ns : SLEEP_NS_MAX};
    }
    if (ppoll(&fd, 1, poll_needed || under_way(s) ? &nap : NULL, NULL) > 0) {
        uint64_t count;
        ssize_t n = read(s->event, &count, sizeof(count));
        (void)n;
    }
}

static bool woken(const struct queues *s)
{
    uint64_t count;
    return __atomic_load_n(&s->appended, __ATOMIC_RELAXED) != s->seen ||
           read(s->event, &count, sizeof(count)) > 0;
}

static void *engine_main(void *arg)
{
    struct queues *s = arg;
    kernels_thread_init();
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
    int idle = 0;
    pthread_mutex_lock(&s->lock);
    while (!s->stop && !s->failed) {
        s->seen = s->appended;
        /* Behind a queue's turn a command may have been appended without a wake. */
        idle = round_once(s) || s->appended != s->seen ? 0 : idle + (idle < 2 * EAGER_ROUNDS);
        if (!idle || s->stop || s->failed)
            continue;
        const struct queue *comm = &s->queue[QUEUE_COMM];
        bool polled = comm->head < comm->started;
        if (!polled) {
            pthread_mutex_unlock(&s->lock);
            bool came = spin(s, &s->engine, woken);
            pthread_mutex_lock(&s->lock);
            if (came || s->appended != s->seen)
                continue;
        }
        s->asleep = !polled || idle >= EAGER_ROUNDS;
        pthread_mutex_unlock(&s->lock);
        if (s->asleep)
            sleep_until_woken(s, polled, idle - EAGER_ROUNDS);
        else
            sched_yield();
        pthread_mutex_lock(&s->lock);
        s->asleep = false;
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

int queues_start(struct queues *s, const struct queue_ops *ops, void *arg, struct error *error)
{
    s->ops = ops;
    s->arg = arg;
    int rc = thread_start(&s->thread, engine_main, s);
    if (rc)
        return error_set(error, ZERO_ERR_MEMORY,
                         "The engine's thread could not be started: %s. "
                         "Raise the limit on processes or memory (ulimit -u, ulimit -v).",
                         strerror(rc));
    s->running = true;
    return ZERO_OK;
}

void queues_stop(struct queues *s, bool drain, int seconds)
{
    if (!s || !s->running)
        return;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds + 1; /* what is overdue fails before, with its reason */
    pthread_mutex_lock(&s->lock);
    int rc = 0;
    if (drain)
        wait_begin(s, (struct ref){0});
    while (drain && !s->failed && !empty(s) && rc != ETIMEDOUT)
        rc = wait_for_change(s, &until);
    s->stop = true;
    pthread_mutex_unlock(&s->lock);
    event_write(s->event);
    pthread_join(s->thread, NULL);
    s->running = false;
}

/* -------------------------------------------------------- create, destroy */

int queues_create(struct queues **queues, int64_t chunks, struct error *error)
{
    struct queues *s = *queues = calloc(1, sizeof(*s));
    if (!s)
        return error_set(error, ZERO_ERR_MEMORY,
                         "No memory for the engine's queues." ERROR_FREE_MEMORY);
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t clock; /* that queues_stop waits by: nobody sets it */
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &clock);
    pthread_condattr_destroy(&clock);
    s->event = fd_not_standard(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (s->event < 0)
        return error_set(
            error, ZERO_ERR_MEMORY,
            "The engine's eventfd could not be made: %s. Raise the limit on files (ulimit -n).",
            strerror(errno));
    for (int i = 0; i < QUEUES; i++) {
        uint64_t capacity = QUEUE_MARKS + per_chunk[i] * (uint64_t)chunks;
        s->queue[i].capacity = capacity;
        s->queue[i].ring = calloc(capacity, sizeof(struct command));
        if (!s->queue[i].ring)
            return error_set(error, ZERO_ERR_MEMORY,
                             "No memory for queues of %llu commands." ERROR_FREE_MEMORY,
                             (unsigned long long)capacity);
    }
    return ZERO_OK;
}

void queues_destroy(struct queues *s)
{
    if (!s)
        return;
    assert(!s->running);
    for (int i = 0; i < QUEUES; i++)
        free(s->queue[i].ring);
    if (s->event >= 0)
        close(s->event);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ------------------------------------------------------------ without one */

struct command *queues_dry_next(struct queues *s, enum queue_id from)
{
    assert(!s->running);
    for (int i = 0; i < QUEUES; i++) {
        struct queue *q = &s->queue[((int)from + i) % QUEUES];
        if (q->started == q->tail || !may_start(s, at(q, q->started + 1)))
            continue;
        return at(q, ++q->started);
    }
    return NULL;
}

void queues_dry_complete(struct queues *s, struct command *command)
{
    complete(s, command);
}

/* ---------------------------------------------------------------- as text */

const char *queue_name(enum queue_id queue)
{
    static const char *const names[QUEUES] = {"comm",      "param-disk", "state-disk", "update",
                                              "to-device", "to-host",    "mark"};
    return names[queue];
}

const char *command_name(enum command_kind kind)
{
    static const char *const names[] = {
        "gather",       "accumulate",  "reduce",     "gather-sums",  "sum",
        "broadcast",    "exchange",    "param-read", "state-read",   "state-write",
        "param-write",  "param-fetch", "update",     "copy-param",   "copy-sum-in",
        "copy-sum-out", "copy-grad",   "copy-fetch", "copy-publish", "mark",
    };
    static_assert(sizeof(names) / sizeof(*names) == COMMANDS, "every kind has a name");
    return names[kind];
}
