// SPDX-License-Identifier: Apache-2.0
/* Spans are appended under a lock: engine threads and the caller come together
 * here, a few thousand times a second at most. Times are whole nanoseconds when
 * lanes are dealt, so that what is printed overlaps no more than what was dealt. */
#include "examples/gpt2/trace.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TIDS_PER_LANE 2000 /* more than transfers under way at once (RING_REQUESTS_MAX) */

struct trace {
    pthread_mutex_t lock;
    int64_t room, count, dropped;
    struct event {
        struct zero_span span; /* its lane is in lane: the program has more */
        int lane;
    } * events;
};

int64_t trace_plan_bytes(int64_t spans)
{
    return spans * (int64_t)sizeof(struct event);
}

struct trace *trace_create(int64_t spans)
{
    assert(spans > 0);
    struct trace *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->events = malloc((size_t)trace_plan_bytes(spans));
    if (!t->events) {
        free(t);
        return NULL;
    }
    t->room = spans;
    pthread_mutex_init(&t->lock, NULL);
    return t;
}

void trace_destroy(struct trace *t)
{
    if (!t)
        return;
    pthread_mutex_destroy(&t->lock);
    free(t->events);
    free(t);
}

void trace_add(struct trace *t, int lane, const struct zero_span *span)
{
    assert(lane >= 0 && lane < TRACE_LANES);
    pthread_mutex_lock(&t->lock);
    if (t->count < t->room)
        t->events[t->count++] = (struct event){*span, lane};
    else
        t->dropped++;
    pthread_mutex_unlock(&t->lock);
}

void trace_engine(void *arg, const struct zero_span *span)
{
    trace_add(arg, (int)span->lane, span);
}

void trace_created(struct trace *t)
{
    pthread_mutex_lock(&t->lock);
    for (int64_t i = 0; i < t->count; i++)
        t->events[i].span.step = -1;
    pthread_mutex_unlock(&t->lock);
}

int64_t trace_dropped(struct trace *t)
{
    pthread_mutex_lock(&t->lock);
    int64_t dropped = t->dropped;
    pthread_mutex_unlock(&t->lock);
    return dropped;
}

static int64_t trace_count(struct trace *t)
{
    pthread_mutex_lock(&t->lock);
    int64_t count = t->count;
    pthread_mutex_unlock(&t->lock);
    return count;
}

double trace_first(struct trace *t, double otherwise)
{
    double first = otherwise;
    int64_t count = trace_count(t); /* these do not change any more */
    for (int64_t i = 0; i < count; i++)
        first = fmin(first, t->events[i].span.begin);
    return first;
}

/* ------------------------------------------------------------------ writing */

/* When each numbered lane of a lane is free again, in nanoseconds. */
struct numbered {
    int64_t *free_at;
    int count, room;
};

/* In order of their begin; of those that begin together the longest first. */
static int compare(const void *a, const void *b)
{
    const struct zero_span *x = &((const struct event *)a)->span;
    const struct zero_span *y = &((const struct event *)b)->span;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end > y->end ? -1 : x->end < y->end;
}

/* The first numbered lane that is free, from 0; -1: no memory for another. */
static int lane_take(struct numbered *n, int64_t begin, int64_t end)
{
    int k = 0;
    while (k < n->count && n->free_at[k] > begin)
        k++;
    if (k == n->room) {
        int room = n->room ? 2 * n->room : 8;
        room = room < TIDS_PER_LANE ? room : TIDS_PER_LANE;
        int64_t *grown = k < room ? realloc(n->free_at, (size_t)room * sizeof(*grown)) : NULL;
        if (!grown)
            return -1;
        n->free_at = grown;
        n->room = room;
    }
    n->count = k == n->count ? k + 1 : n->count;
    n->free_at[k] = end;
    return k;
}

static const char *lane_name(int lane)
{
    static const char *const own[] = {"step", "pass", "compute"};
    return lane < ZERO_LANES ? zero_lane_name(lane) : own[lane - ZERO_LANES];
}

/* The program's lanes stand first. */
static int tid_of(int lane, int k)
{
    int place = lane < ZERO_LANES ? lane + TRACE_LANES - ZERO_LANES : lane - ZERO_LANES;
    return (place + 1) * TIDS_PER_LANE + k;
}

static void print_event(FILE *f, const struct event *e, int rank, int tid, int64_t begin,
                        int64_t end)
{
    const struct zero_span *s = &e->span;
    int64_t size = end - begin;
    fprintf(f,
            ",\n{\"name\":\"%s\",\"ph\":\"X\",\"ts\":%" PRId64 ".%03d,\"dur\":%" PRId64
            ".%03d,\"pid\":%d,\"tid\":%d,\"args\":{\"unit\":%d,\"chunk\":%" PRId64
            ",\"bytes\":%" PRId64 ",\"step\":%" PRId64 "}}",
            s->name, begin / 1000, (int)(begin % 1000), size / 1000, (int)(size % 1000), rank, tid,
            s->unit, s->chunk, s->bytes, s->step + 1);
}

static void print_names(FILE *f, const struct numbered *lanes, int rank)
{
    for (int lane = 0; lane < TRACE_LANES; lane++)
        for (int k = 0; k < lanes[lane].count; k++)
            fprintf(f,
                    ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":"
                    "{\"name\":\"%s %d\"}}",
                    rank, tid_of(lane, k), lane_name(lane), k + 1);
}

const char trace_beginning[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";

void trace_begin(FILE *f)
{
    fputs(trace_beginning, f);
}

int trace_write(struct trace *t, FILE *f, int rank, double zero)
{
    struct numbered lanes[TRACE_LANES] = {{0}};
    int64_t count = trace_count(t);
    int status = 0;
    qsort(t->events, (size_t)count, sizeof(*t->events), compare);
    fprintf(f,
            "%s\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank "
            "%d\"}}",
            rank ? "," : "", rank, rank);
    for (int64_t i = 0; status == 0 && i < count; i++) {
        const struct event *e = &t->events[i];
        int64_t begin = llround(1e9 * fmax(0, e->span.begin - zero));
        int64_t end = llround(1e9 * fmax(0, e->span.end - zero));
        end = end < begin ? begin : end;
        int k = lane_take(&lanes[e->lane], begin, end);
        if (k >= 0)
            print_event(f, e, rank, tid_of(e->lane, k), begin, end);
        else
            status = -1;
    }
    print_names(f, lanes, rank);
    for (int lane = 0; lane < TRACE_LANES; lane++)
        free(lanes[lane].free_at);
    return status;
}

void trace_end(FILE *f)
{
    fputs("\n]}\n", f);
}
