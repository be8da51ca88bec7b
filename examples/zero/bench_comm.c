// SPDX-License-Identifier: Apache-2.0
/*
 * All-gather and ordered reduction through struct zero_comm, as the engine
 * starts them, over all ranks of the job. Their limit is what each of them must
 * move through memory if nothing else cost anything: every rank writes the
 * whole that it gathers; every rank reads a part of each rank and writes the
 * sum. All ranks stream that at once, so they share the memory as they do then.
 */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "examples/common/counter.h"
#include "examples/common/stream.h"
#include "examples/zero/bench.h"
#include "examples/zero/tool.h"
#include "kernels/kernels.h"
#include "offload/arena.h"
#include "src/comm/comm.h"

#define PIECE         ((int64_t)256 << 10) /* of a reduction, as in the engine */
#define BLOCK         ((int64_t)4096)      /* elements that a plain sum keeps in the cache */
#define ENOUGH        ((int64_t)16 << 20)  /* bytes, for the clock: smaller ones are repeated */
#define START_SECONDS 300                  /* that the other ranks may take to come */
#define SECONDS_MAX   60                   /* that a collective may take */
#define AIM           0.8                  /* of the limit, from ENOUGH on */

struct state {
    struct zero_comm *comm;
    const struct kernels *kernels;
    struct arena arena;
    int64_t part;  /* bytes of one rank's part */
    char *data;    /* (ranks, part) */
    char *source;  /* likewise: what plain loops read */
    char *own;     /* (part) */
    float *sum;    /* (part) */
    char *scratch; /* 2 (ranks - 1) pieces */
    struct error error;
};

/* -------------------------------------------------------------- collectives */

/* Starts c and waits for its end. */
static int carry_out(struct state *s, struct zero_collective *c, const char *name)
{
    struct zero_comm *comm = s->comm;
    bool done = false;
    double start = clock_now();
    c->header.sequence = ++comm->sequence;
    c->header.unit = -1;
    snprintf(c->header.name, sizeof(c->header.name), "%s", name);
    int status = comm->ops->start(comm, c);
    while (!status && !done) {
        status = comm->ops->test(comm, c, &done);
        if (!status && !done && clock_now() - start > SECONDS_MAX)
            return error_set(&s->error, ZERO_ERR_DEADLINE, "rank %d did not arrive at the %s.",
                             comm->ops->missing(comm, c, 0), name);
        if (!done)
            sched_yield();
    }
    return status ? error_set(&s->error, status, "%s", comm->error) : ZERO_OK;
}

/* All ranks meet; *flags takes the sum of what each of them brought. */
static int meet(struct state *s, int64_t *flags)
{
    struct zero_collective c = {.header = {.kind = ZERO_COLLECTIVE_SUM, .bytes = 8}, .data = flags};
    return carry_out(s, &c, "meeting");
}

static void piece_sum(void *arg, int64_t offset, int64_t bytes, const void *const *parts)
{
    struct state *s = arg;
    s->kernels->sum_f32(bytes / 4, s->comm->size, (const float *const *)parts, true,
                        s->sum + offset / 4, NULL);
}

static int gather_ours(struct state *s)
{
    struct zero_collective c = {.header = {.kind = ZERO_COLLECTIVE_GATHER, .bytes = s->part},
                                .data = s->data,
                                .own = s->own};
    return carry_out(s, &c, "gather");
}

static int reduce_ours(struct state *s)
{
    struct zero_collective c = {.header = {.kind = ZERO_COLLECTIVE_REDUCE, .bytes = s->part},
                                .data = s->data,
                                .sum = piece_sum,
                                .sum_arg = s,
                                .piece_bytes = s->part < PIECE ? s->part : PIECE,
                                .scratch = s->scratch};
    return carry_out(s, &c, "reduce");
}

/* -------------------------------------------------------------------- limits */

static int gather_limit(struct state *s)
{
    memcpy(s->data, s->source, (size_t)(s->part * s->comm->size));
    return ZERO_OK;
}

/* The first two parts in one pass, each further one in another, by blocks that a cache holds. */
static int reduce_limit(struct state *s)
{
    const struct streams *streams = streams_select();
    int64_t count = s->part / 4;
    const float *source = (const float *)(const void *)s->source;
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = count - at < BLOCK ? count - at : BLOCK;
        const float *from = source + at;
        float *to = s->sum + at;
        if (s->comm->size == 1)
            memcpy(to, from, (size_t)n * 4);
        else
            streams->sum(to, from, from + count, n);
        for (int r = 2; r < s->comm->size; r++)
            streams->sum(to, from + r * count, NULL, n);
    }
    return ZERO_OK;
}

/* ------------------------------------------------------------------ check */

/* What rank brings at element i of a buffer. */
static float value_of(int rank, int64_t i)
{
    return (float)counter_uniform(7, (uint64_t)rank, (uint64_t)i) - 0.5f;
}

static int64_t wrong_gather(struct state *s)
{
    int64_t count = s->part / 4, wrong = 0;
    const float *data = (const float *)(const void *)s->data;
    for (int64_t i = 0; i < count; i++)
        ((float *)(void *)s->own)[i] = value_of(s->comm->rank, i);
    if (gather_ours(s))
        return 1;
    for (int r = 0; r < s->comm->size; r++)
        for (int64_t i = 0; i < count; i++)
            wrong += data[r * count + i] != value_of(r, i);
    return wrong;
}

/* Bit for bit the sum in the order of the ranks. */
static int64_t wrong_reduce(struct state *s)
{
    int64_t count = s->part / 4, first = s->comm->rank * count, wrong = 0;
    for (int64_t i = 0; i < count * s->comm->size; i++)
        ((float *)(void *)s->data)[i] = value_of(s->comm->rank, i);
    if (reduce_ours(s))
        return 1;
    for (int64_t i = 0; i < count; i++) {
        float sum = 0;
        for (int r = 0; r < s->comm->size; r++)
            sum += value_of(r, first + i);
        wrong += memcmp(&sum, &s->sum[i], sizeof(sum)) != 0;
    }
    return wrong;
}

static int check(struct state *s)
{
    int64_t wrong[2] = {wrong_gather(s)};
    if (!s->error.status)
        wrong[1] = wrong_reduce(s);
    for (int i = 0; i < 2 && !s->error.status; i++)
        if (!meet(s, &wrong[i]) && wrong[i])
            error_set(&s->error, ZERO_ERR_COMM, "%lld elements of a %s are wrong.",
                      (long long)wrong[i], i ? "reduce" : "gather");
    return s->error.status;
}

/* ------------------------------------------------------------------ measure */

/* Gives the memory to its parts for a whole of so many bytes. */
static void size_set(struct state *s, int64_t whole)
{
    int64_t ranks = s->comm->size, at = 0;
    s->part = whole / ranks / 256 * 256;
    s->data = s->arena.base;
    s->source = s->data + (at += s->part * ranks);
    s->own = s->data + (at += s->part * ranks);
    s->sum = (float *)(void *)(s->data + (at += s->part));
    s->scratch = s->data + (at += s->part);
}

static int64_t size_bytes(int64_t ranks, int64_t whole)
{
    return 4 * whole + 2 * (ranks - 1) * PIECE;
}

/* Seconds of one call when all ranks make it at once, from their meeting before
 * to that behind. < 0: failed. */
static double timed(struct state *s, int (*call)(struct state *), int repeats)
{
    int64_t flags = 0;
    if (meet(s, &flags))
        return -1;
    double start = clock_now();
    for (int i = 0; i < repeats; i++)
        if (call(s))
            return -1;
    if (meet(s, &flags))
        return -1;
    return (clock_now() - start) / repeats;
}

static int measure(const struct bench *b, struct state *s, const char *kind, int64_t whole,
                   int (*limit)(struct state *), int (*ours)(struct state *))
{
    struct samples limits = {0}, oursamples = {0};
    int repeats = (int)(whole < ENOUGH ? ENOUGH / whole : 1), rounds = b->full ? 31 : 9;
    for (int r = 0; r <= (b->quick ? 2 : rounds); r++) { /* round 0 warms up */
        int64_t over = r > 1 && bench_over(b);
        if (meet(s, &over))
            return s->error.status;
        if (over)
            break;
        double a = timed(s, limit, repeats), c = timed(s, ours, repeats);
        if (a < 0 || c < 0)
            return s->error.status;
        if (r > 0) {
            samples_add(&limits, 1e-9 * (double)whole / a);
            samples_add(&oursamples, 1e-9 * (double)whole / c);
        }
    }
    char name[64];
    snprintf(name, sizeof(name), "comm_%s_%lldM", kind, (long long)(whole >> 20));
    if (s->comm->rank == 0)
        bench_rate(name, &limits, &oursamples, "GB/s", whole < ENOUGH ? 0 : AIM);
    return ZERO_OK;
}

static int sizes_run(const struct bench *b, struct state *s)
{
    static const int64_t sizes[] = {1, 16, 64, 256}; /* MiB */
    int count = b->quick ? 1 : b->full ? 4 : 3, ranks = s->comm->size;
    if (arena_create(&s->arena, size_bytes(ranks, sizes[count - 1] << 20), 1, &s->error))
        return s->error.status;
    if (s->comm->rank == 0)
        bench_note("%s%s; GB/s of the whole that is gathered, or reduced",
                   counted(ranks, "rank").text,
                   ranks > 1 ? "" : ", alone: mpirun -n N measures several");
    for (int i = 0; i < count; i++) {
        size_set(s, sizes[i] << 20);
        if (check(s) || measure(b, s, "gather", sizes[i] << 20, gather_limit, gather_ours) ||
            measure(b, s, "reduce", sizes[i] << 20, reduce_limit, reduce_ours))
            return s->error.status;
    }
    return ZERO_OK;
}

int bench_comm(const struct bench *b)
{
    struct state s = {0};
    s.kernels = kernels_select(NULL, &s.error);
    if (!s.kernels || comm_default_create(ZERO_CPU, START_SECONDS, &s.comm, &s.error))
        return tool_fail("%s", s.error.text);
    kernels_thread_init();
    int status = sizes_run(b, &s);
    if (status) /* the others learn of it */
        s.comm->ops->abort(s.comm, s.comm->sequence + 1);
    s.comm->ops->destroy(s.comm);
    arena_destroy(&s.arena);
    return status ? tool_fail("%s", s.error.text) : 0;
}
