// SPDX-License-Identifier: Apache-2.0
#include "tests/support/comm_suite.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/clock.h"

#define PIECE      512
#define GUARD      64
#define GUARD_BYTE 0xA5
#define UNTOUCHED  0xEE
#define PATIENCE   60 /* seconds until a scenario is taken to hang */
#define NO_RANK    1000000
#define RANKS_MAX  64

static void wrong(struct comm_world *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void wrong(struct comm_world *w, const char *format, ...)
{
    if (w->text[0])
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(w->text, sizeof(w->text), format, args);
    va_end(args);
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state += 0x9e3779b97f4a7c15u;
    return mix(*state) % below;
}

/* -------------------------------------------------------------- operations */

/* A collective with memory of its own, guarded on both sides. */
struct op {
    struct zero_collective c;
    struct comm_world *w;
    unsigned char *block, *scratch_block, *own;
    const struct op *before; /* a REDUCE that must be summed first, or NULL */
    int64_t data_bytes, scratch_bytes, summed;
    bool done;
    const struct comm_memory *memory; /* of a unit that is elsewhere; or NULL */
};

/* Byte at of what rank from holds for rank to in one collective. */
static unsigned char expected(const struct op *op, int from, int to, int64_t at)
{
    uint64_t key = mix(op->c.header.sequence * 4096 + (uint64_t)from) + (uint64_t)to;
    return (unsigned char)(mix(key + (uint64_t)at / 8) >> (at % 8 * 8));
}

static void write_expected(const struct op *op, int from, int to, void *out, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++)
        ((unsigned char *)out)[i] = expected(op, from, to, i);
}

/* The first byte at which data differs from what is expected from first on; -1: none. */
static int64_t differs(const struct op *op, int from, int to, const void *data, int64_t first,
                       int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++)
        if (((const unsigned char *)data)[i] != expected(op, from, to, first + i))
            return first + i;
    return -1;
}

/* A piece that is offered, for when it is there. */
struct offer {
    struct op *op;
    int rank, size;
    int64_t offset, bytes;
    const void *parts[RANKS_MAX];
};

static void offer_take(void *arg)
{
    const struct offer *o = arg;
    struct op *op = o->op;
    const void *const *parts = o->parts;
    int64_t total = op->c.header.bytes, offset = o->offset, bytes = o->bytes;
    if (offset != op->summed)
        wrong(op->w, "the piece at %lld was offered where %lld is next", (long long)offset,
              (long long)op->summed);
    if (op->before && op->before->summed != op->before->c.header.bytes)
        wrong(op->w, "message %llu was summed too early",
              (unsigned long long)op->c.header.sequence);
    if (bytes <= 0 || bytes > op->c.piece_bytes || offset + bytes > total ||
        (offset + bytes < total && bytes % 256))
        wrong(op->w, "a piece of %lld bytes at %lld of %lld", (long long)bytes, (long long)offset,
              (long long)total);
    for (int r = 0; r < o->size; r++) {
        int64_t at = differs(op, r, o->rank, parts[r], offset, bytes);
        if (at >= 0)
            wrong(op->w, "reduce: byte %lld of rank %d's part is wrong", (long long)at, r);
    }
    if (parts[o->rank] != (const char *)op->c.data + o->rank * total + offset)
        wrong(op->w, "reduce: this rank's part was copied");
    op->summed += bytes;
}

static void sum_callback(void *arg, int64_t offset, int64_t bytes, const void *const *parts)
{
    struct op *op = arg;
    const struct zero_comm *comm = op->w->comm;
    struct offer o = {
        .op = op, .rank = comm->rank, .size = comm->size, .offset = offset, .bytes = bytes};
    memcpy(o.parts, parts, (size_t)comm->size * sizeof(*parts));
    if (op->memory)
        op->memory->later(op->w->stream, offer_take, &o, sizeof(o));
    else
        offer_take(&o);
}

static void *take_memory(const struct op *op, int64_t bytes)
{
    void *memory = op->memory ? op->memory->alloc(bytes) : malloc((size_t)bytes);
    if (!memory)
        abort();
    return memory;
}

static unsigned char *guarded(const struct op *op, int64_t bytes, unsigned char **block)
{
    *block = take_memory(op, bytes + 2 * GUARD);
    memset(*block, GUARD_BYTE, (size_t)bytes + 2 * GUARD);
    memset(*block + GUARD, UNTOUCHED, (size_t)bytes);
    return *block + GUARD;
}

static bool guards_hold(const unsigned char *block, int64_t bytes)
{
    for (int i = 0; i < GUARD; i++)
        if (block[i] != GUARD_BYTE || block[GUARD + bytes + i] != GUARD_BYTE)
            return false;
    return true;
}

/* What a rank brings to its collective. */
static void op_fill(struct op *op, bool own_apart)
{
    struct zero_comm *comm = op->w->comm;
    int64_t bytes = op->c.header.bytes;
    unsigned char *data = op->c.data, *part = data + comm->rank * bytes;
    switch (op->c.header.kind) {
    case ZERO_COLLECTIVE_GATHER:
        if (own_apart) {
            op->own = part = take_memory(op, bytes + 1);
            op->c.own = op->own;
        }
        write_expected(op, comm->rank, NO_RANK, part, bytes);
        break;
    case ZERO_COLLECTIVE_REDUCE:
        for (int r = 0; r < comm->size; r++)
            write_expected(op, comm->rank, r, data + r * bytes, bytes);
        break;
    case ZERO_COLLECTIVE_SUM: write_expected(op, comm->rank, NO_RANK, data, bytes); break;
    default:
        if (comm->rank == op->c.root)
            write_expected(op, comm->rank, NO_RANK, data, bytes);
        break;
    }
}

/* choice: the root, and whether own is apart. */
static void op_make(struct op *op, struct comm_world *w, uint64_t sequence, int kind, int64_t bytes,
                    int64_t piece, uint64_t choice)
{
    int size = w->comm->size;
    bool parts = kind == ZERO_COLLECTIVE_GATHER || kind == ZERO_COLLECTIVE_REDUCE;
    int unit = (int)(sequence % 7) - 1;
    if (kind == ZERO_COLLECTIVE_REDUCE && w->units) /* a control channel may have none */
        unit = (int)(sequence % 6);
    *op = (struct op){.w = w, .memory = parts && unit >= 0 ? w->units : NULL};
    op->data_bytes = parts ? size * bytes : bytes;
    op->scratch_bytes = 2 * (size - 1) * piece;
    op->c = (struct zero_collective){
        .header = {.sequence = sequence,
                   .kind = kind,
                   .unit = unit,
                   .bytes = bytes,
                   .arguments = mix(sequence)},
        .root = kind == ZERO_COLLECTIVE_BROADCAST ? (int)(choice % (uint64_t)size) : 0,
        .data = guarded(op, op->data_bytes, &op->block),
        .sum = sum_callback,
        .sum_arg = op,
        .piece_bytes = piece,
        .scratch = guarded(op, op->scratch_bytes, &op->scratch_block),
        .stream = w->stream,
    };
    op_fill(op, choice & 1);
}

static void op_settle(const struct op *op)
{
    if (op->memory)
        op->memory->settle(op->w->stream);
}

static void op_free(struct op *op)
{
    void (*give)(void *) = op->memory ? op->memory->free : free;
    op_settle(op);
    give(op->block);
    give(op->scratch_block);
    give(op->own);
}

/* What must be in data when the collective is done. */
static void result_check(struct op *op)
{
    struct zero_comm *comm = op->w->comm;
    int64_t bytes = op->c.header.bytes, at = -1;
    const unsigned char *data = op->c.data;
    switch (op->c.header.kind) {
    case ZERO_COLLECTIVE_GATHER:
        for (int r = 0; r < comm->size && at < 0; r++)
            at = differs(op, r, NO_RANK, data + r * bytes, 0, bytes);
        break;
    case ZERO_COLLECTIVE_REDUCE: at = op->summed == bytes ? -1 : op->summed; break;
    case ZERO_COLLECTIVE_SUM:
        for (int64_t i = 0; i < bytes / 8 && at < 0; i++) {
            uint64_t sum = 0, word;
            for (int r = 0; r < comm->size; r++) {
                write_expected(op, r, NO_RANK, &word, 0);
                for (int b = 0; b < 8; b++)
                    ((unsigned char *)&word)[b] = expected(op, r, NO_RANK, 8 * i + b);
                sum += word;
            }
            at = memcmp(&sum, data + 8 * i, 8) ? 8 * i : -1;
        }
        break;
    default: at = differs(op, op->c.root, NO_RANK, data, 0, bytes); break;
    }
    if (at >= 0)
        wrong(op->w, "message %llu, kind %d, %lld bytes: wrong at byte %lld",
              (unsigned long long)op->c.header.sequence, op->c.header.kind, (long long)bytes,
              (long long)at);
}

static void op_check(struct op *op)
{
    op_settle(op);
    result_check(op);
    if (!guards_hold(op->block, op->data_bytes))
        wrong(op->w, "bytes beside data were written");
    if (!guards_hold(op->scratch_block, op->scratch_bytes))
        wrong(op->w, "bytes beside scratch were written");
    if (op->own && differs(op, op->w->comm->rank, NO_RANK, op->own, 0, op->c.header.bytes) >= 0)
        wrong(op->w, "own was written");
}

/* Whether data is as op_fill left it. */
static bool op_untouched(const struct op *op, const unsigned char *before)
{
    return !memcmp(before, op->block, (size_t)op->data_bytes + 2 * GUARD);
}

/* ----------------------------------------------------------------- driving */

static int op_start(struct op *op)
{
    return op->w->comm->ops->start(op->w->comm, &op->c);
}

static int op_test(struct op *op)
{
    return op->w->comm->ops->test(op->w->comm, &op->c, &op->done);
}

/* Many ranks share few cores: who waits must not keep the others from working. */
static void nap(int round)
{
    if (round < 4)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = 10000L << (round < 9 ? round - 4 : 5)}, NULL);
}

/* Tests until it is done or fails; the status. */
static int op_finish(struct op *op)
{
    double until = seconds_now() + PATIENCE;
    int status = ZERO_OK;
    for (int round = 0; !op->done && !status; round++) {
        status = op_test(op);
        if (!op->done && !status && seconds_now() > until) {
            wrong(op->w, "message %llu does not end", (unsigned long long)op->c.header.sequence);
            return ZERO_ERR_DEADLINE;
        }
        if (!op->done)
            nap(round);
    }
    return status;
}

static void op_run(struct op *op)
{
    int status = op_start(op);
    if (!status)
        status = op_finish(op);
    if (!status) {
        op_check(op);
        return;
    }
    wrong(op->w, "message %llu: %s: %s", (unsigned long long)op->c.header.sequence,
          zero_status_name(status), op->w->comm->error);
    op->w->comm->ops->abort(op->w->comm, op->c.header.sequence);
}

/* --------------------------------------------------------------- scenarios */

static const int all_kinds[] = {ZERO_COLLECTIVE_GATHER, ZERO_COLLECTIVE_REDUCE, ZERO_COLLECTIVE_SUM,
                                ZERO_COLLECTIVE_BROADCAST};

/* One of all_kinds that the backend has. */
static int kind_at(const struct comm_world *w, uint64_t i)
{
    int kind = all_kinds[i];
    return kind == ZERO_COLLECTIVE_REDUCE && w->no_reduce ? ZERO_COLLECTIVE_BROADCAST : kind;
}

static void run_sizes(struct comm_world *w)
{
    static const int64_t sizes[] = {
        0, 1, 4, 8, 100, 256, 512, 516, 1024, 1280, 5 * 512 + 12, 9 * 512, 16384, 40000};
    uint64_t sequence = 0;
    for (size_t k = 0; k < sizeof(all_kinds) / sizeof(all_kinds[0]); k++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
            for (uint64_t choice = 0; choice < (uint64_t)w->comm->size + 1; choice++) {
                int kind = kind_at(w, k);
                bool sum = kind == ZERO_COLLECTIVE_SUM;
                if ((sum && (sizes[i] % 8 || sizes[i] > ZERO_SUM_BYTES_MAX)) || choice > 3)
                    continue;
                struct op op;
                int64_t piece = choice == 2 ? 32 << 10 : PIECE;
                op_make(&op, w, ++sequence, kind, sizes[i], piece, choice);
                op_run(&op);
                op_free(&op);
            }
}

static void delay(uint64_t *dice)
{
    if (draw(dice, 4) == 0)
        nanosleep(&(struct timespec){.tv_nsec = (long)draw(dice, 50000)}, NULL);
    else if (draw(dice, 2))
        sched_yield();
}

/* Tests one of the operations under way, drawn by each rank for itself; gives
 * back the place of one that ended. */
static struct op *test_any(struct op *ops, uint64_t *dice)
{
    struct op *op = &ops[draw(dice, ZERO_COLLECTIVES)];
    if (!op->block)
        return NULL;
    int status = op_test(op);
    if (status)
        wrong(op->w, "message %llu: %s", (unsigned long long)op->c.header.sequence,
              op->w->comm->error);
    if (!op->done)
        return NULL;
    op_check(op);
    op_free(op);
    *op = (struct op){0};
    return op;
}

static void run_several(struct comm_world *w)
{
    struct op ops[ZERO_COLLECTIVES] = {0};
    uint64_t shared = w->seed, dice = mix(w->seed + 77) + (uint64_t)w->comm->rank * 1000;
    int started = 0, ended = 0;
    double until = seconds_now() + PATIENCE;
    while (ended < w->operations && !w->text[0]) {
        struct op *place = NULL;
        for (int i = 0; i < ZERO_COLLECTIVES && started < w->operations; i++)
            if (!ops[i].block)
                place = &ops[i];
        if (place && draw(&dice, 3)) {
            int kind = kind_at(w, draw(&shared, 4));
            int64_t bytes = (int64_t)draw(&shared, 3000);
            if (kind == ZERO_COLLECTIVE_SUM)
                bytes = bytes / 8 * 8;
            uint64_t choice = draw(&shared, 16);
            op_make(place, w, (uint64_t)++started, kind, bytes, PIECE, choice);
            if (op_start(place))
                wrong(w, "message %d: %s", started, w->comm->error);
        } else {
            ended += test_any(ops, &dice) != NULL;
        }
        delay(&dice);
        if (seconds_now() > until)
            wrong(w, "%d of %d operations ended", ended, w->operations);
    }
    if (w->text[0])
        w->comm->ops->abort(w->comm, (uint64_t)started + 1);
    for (int i = 0; i < ZERO_COLLECTIVES; i++)
        op_free(&ops[i]);
}

/* What a backend does not have costs nothing: the next collective runs. */
static void run_refused(struct comm_world *w)
{
    struct op op;
    op_make(&op, w, 1, ZERO_COLLECTIVE_REDUCE, 1024, PIECE, 0);
    if (op_start(&op) != ZERO_ERR_UNSUPPORTED)
        wrong(w, "a reduce is not refused: %s", w->comm->error);
    op_free(&op);
    op_make(&op, w, 1, ZERO_COLLECTIVE_SUM, 1024, PIECE, 0);
    op_run(&op);
    op_free(&op);
}

/* REDUCEs that share their scratch, under way together. */
static void run_scratch(struct comm_world *w)
{
    struct op ops[ZERO_COLLECTIVES];
    if (w->no_reduce) {
        run_refused(w);
        return;
    }
    for (int i = 0; i < ZERO_COLLECTIVES; i++) {
        op_make(&ops[i], w, (uint64_t)i + 1, ZERO_COLLECTIVE_REDUCE, 20 * PIECE + 256, PIECE, 0);
        ops[i].c.scratch = ops[0].c.scratch;
        ops[i].before = i ? &ops[i - 1] : NULL;
        if (op_start(&ops[i]))
            wrong(w, "message %d: %s", i + 1, w->comm->error);
    }
    for (int i = ZERO_COLLECTIVES - 1; i >= 0; i--) {
        if (op_finish(&ops[i]))
            wrong(w, "message %d: %s", i + 1, w->comm->error);
        else
            op_check(&ops[i]);
    }
    for (int i = 0; i < ZERO_COLLECTIVES; i++)
        op_free(&ops[i]);
}

static void expect_text(struct comm_world *w, const char *part)
{
    if (!strstr(w->comm->error, part))
        wrong(w, "the sentence lacks '%s': %s", part, w->comm->error);
}

/* The last rank's second message differs from that of the others, in what. */
static void mismatch(struct comm_world *w, void (*alter)(struct zero_collective *c),
                     const char *there, const char *here)
{
    int odd = w->comm->size - 1, me = w->comm->rank;
    struct op first, op;
    op_make(&first, w, 1, ZERO_COLLECTIVE_SUM, 64, PIECE, 0);
    op_run(&first);
    op_make(&op, w, 2, ZERO_COLLECTIVE_GATHER, 3000, PIECE, 1);
    op.c.header.unit = 3;
    if (me == odd)
        alter(&op.c);
    unsigned char *before = malloc((size_t)op.data_bytes + 2 * GUARD);
    memcpy(before, op.block, (size_t)op.data_bytes + 2 * GUARD);
    int status = op_start(&op);
    if (!status)
        status = op_finish(&op);
    if (status != ZERO_ERR_MISMATCH)
        wrong(w, "%s where ranks differ", zero_status_name(status));
    char who[32];
    snprintf(who, sizeof(who), "Rank %d called", odd);
    if (me != odd)
        expect_text(w, who);
    expect_text(w, me == odd ? here : there);
    expect_text(w, me == odd ? there : here);
    if (!op_untouched(&op, before))
        wrong(w, "data was written although ranks differ");
    w->barrier(w->barrier_arg);
    struct op next;
    op_make(&next, w, 4, ZERO_COLLECTIVE_SUM, 64, PIECE, 0);
    if (op_start(&next) == ZERO_OK)
        wrong(w, "a collective started after a failure");
    w->comm->ops->abort(w->comm, 4);
    op_free(&first);
    op_free(&op);
    op_free(&next);
    free(before);
}

static void alter_kind(struct zero_collective *c)
{
    c->header.kind = ZERO_COLLECTIVE_BROADCAST;
}

static void alter_unit(struct zero_collective *c)
{
    c->header.unit = 2;
}

static void alter_bytes(struct zero_collective *c)
{
    c->header.bytes = 2900;
}

static void alter_arguments(struct zero_collective *c)
{
    c->header.arguments++;
}

static void alter_name(struct zero_collective *c)
{
    snprintf(c->header.name, sizeof(c->header.name), "zero_read");
}

static void alter_sequence(struct zero_collective *c)
{
    c->header.sequence = 3;
}

static void run_mismatch_kind(struct comm_world *w)
{
    mismatch(w, alter_kind, "broadcast of unit 3", "gather of unit 3");
}

static void run_mismatch_unit(struct comm_world *w)
{
    mismatch(w, alter_unit, "gather of unit 2", "gather of unit 3");
}

static void run_mismatch_bytes(struct comm_world *w)
{
    mismatch(w, alter_bytes, "2900", "3000");
}

static void run_mismatch_arguments(struct comm_world *w)
{
    mismatch(w, alter_arguments, "gather of unit 3", "other arguments");
}

static void run_mismatch_name(struct comm_world *w)
{
    mismatch(w, alter_name, "zero_read of unit 3", "gather of unit 3");
}

static void run_mismatch_sequence(struct comm_world *w)
{
    mismatch(w, alter_sequence, "message 3", "message 2");
}

static void expect_given_up(struct comm_world *w, struct op *op, int odd, int message)
{
    char sentence[64];
    snprintf(sentence, sizeof(sentence), "Rank %d gave up before message %d", odd, message);
    int status = op_start(op);
    if (!status)
        status = op_finish(op);
    if (status != ZERO_ERR_COMM)
        wrong(w, "%s after rank %d gave up", zero_status_name(status), odd);
    expect_text(w, sentence);
}

static void run_abort(struct comm_world *w)
{
    int odd = w->comm->size - 1;
    struct op ops[3];
    for (int i = 0; i < 3; i++)
        op_make(&ops[i], w, (uint64_t)i + 1, kind_at(w, (uint64_t)i), 1024, PIECE, 0);
    op_run(&ops[0]);
    op_run(&ops[1]);
    if (w->comm->rank == odd) {
        w->comm->ops->abort(w->comm, 3);
        if (op_start(&ops[2]) != ZERO_ERR_COMM)
            wrong(w, "a collective started after abort");
    } else {
        expect_given_up(w, &ops[2], odd, 3);
    }
    w->barrier(w->barrier_arg);
    w->comm->ops->abort(w->comm, 4);
    for (int i = 0; i < 3; i++)
        op_free(&ops[i]);
}

/* The memory of what was under way is the caller's again after abort. */
static void run_abort_under_way(struct comm_world *w)
{
    int odd = w->comm->size - 1;
    struct op op, behind;
    bool gathers = w->no_reduce || w->gathers;
    int kind = gathers ? ZERO_COLLECTIVE_GATHER : ZERO_COLLECTIVE_REDUCE;
    op_make(&op, w, 1, kind, 300 << 10, 64 << 10, 0);
    op_make(&behind, w, 2, ZERO_COLLECTIVE_SUM, 1024, PIECE, 0);
    if (w->comm->rank == odd) {
        if (op_start(&op) || op_start(&behind))
            wrong(w, "start: %s", w->comm->error);
        w->comm->ops->abort(w->comm, 3);
        op_free(&op);
        w->barrier(w->barrier_arg);
    } else {
        expect_given_up(w, &op, odd, 1);
        w->barrier(w->barrier_arg);
        w->comm->ops->abort(w->comm, 2);
        op_free(&op);
    }
    op_free(&behind);
}

/* Nothing is under way: who asks hears it all the same, and only of what it concerns. */
static void run_listen(struct comm_world *w)
{
    int (*listen)(struct zero_comm *, uint64_t) = w->comm->ops->listen;
    int odd = w->comm->size - 1, status = ZERO_OK;
    double until = seconds_now() + PATIENCE;
    struct op op;
    op_make(&op, w, 1, ZERO_COLLECTIVE_SUM, 1024, PIECE, 0);
    op_run(&op);
    if (listen && listen(w->comm, UINT64_MAX))
        wrong(w, "somebody has given up: %s", w->comm->error);
    w->barrier(w->barrier_arg);
    if (w->comm->rank == odd)
        w->comm->ops->abort(w->comm, 7);
    for (int i = 0; listen && w->comm->rank != odd && !status && seconds_now() < until; i++) {
        status = listen(w->comm, 7);
        nap(i);
    }
    if (listen && w->comm->rank != odd) {
        if (status != ZERO_ERR_COMM)
            wrong(w, "%s after rank %d gave up", zero_status_name(status), odd);
        expect_text(w, " gave up before message 7");
        if (listen(w->comm, 6))
            wrong(w, "message 6 is lost: %s", w->comm->error);
    }
    w->barrier(w->barrier_arg);
    w->comm->ops->abort(w->comm, 8);
    op_free(&op);
}

static void run_missing(struct comm_world *w)
{
    int late = w->comm->size - 1;
    double until = seconds_now() + PATIENCE;
    struct op op;
    op_make(&op, w, 1, ZERO_COLLECTIVE_GATHER, 5000, PIECE, 0);
    if (w->comm->rank != late) {
        if (op_start(&op))
            wrong(w, "start: %s", w->comm->error);
        while (w->comm->ops->missing(w->comm, &op.c, 0) != late && seconds_now() < until) {
            if (op_test(&op) || op.done)
                wrong(w, "a gather ended without rank %d", late);
            nap(4);
        }
        int missing = w->comm->ops->missing(w->comm, &op.c, 0);
        if (missing != late)
            wrong(w, "rank %d is said to be missing, not %d", missing, late);
        if (w->comm->ops->missing(w->comm, &op.c, late) != late)
            wrong(w, "rank %d is not missing among those from it on", late);
        if (w->comm->ops->missing(w->comm, &op.c, late + 1) != -1)
            wrong(w, "behind rank %d another is said to be missing", late);
    }
    w->barrier(w->barrier_arg);
    if (w->comm->rank == late && op_start(&op))
        wrong(w, "start: %s", w->comm->error);
    if (op_finish(&op))
        wrong(w, "%s", w->comm->error);
    else
        op_check(&op);
    op_free(&op);
}

/* Destroy with collectives under way that never end. */
static void run_destroy(struct comm_world *w)
{
    bool late = w->comm->size > 1 && w->comm->rank == w->comm->size - 1;
    struct op ops[ZERO_COLLECTIVES];
    for (int i = 0; i < ZERO_COLLECTIVES; i++) {
        op_make(&ops[i], w, (uint64_t)i + 1, kind_at(w, (uint64_t)i), 1024, PIECE, 0);
        if (!late && op_start(&ops[i]))
            wrong(w, "start: %s", w->comm->error);
    }
    for (int i = 0; i < ZERO_COLLECTIVES && !late; i++)
        op_test(&ops[i]);
    w->barrier(w->barrier_arg);
    w->comm->ops->destroy(w->comm);
    w->comm = NULL;
    for (int i = 0; i < ZERO_COLLECTIVES; i++)
        op_free(&ops[i]);
}

const struct comm_scenario comm_scenarios[] = {
    {"sizes", 1, run_sizes},
    {"several under way", 1, run_several},
    {"reduces share their scratch", 1, run_scratch},
    {"ranks differ in kind", 2, run_mismatch_kind},
    {"ranks differ in unit", 2, run_mismatch_unit},
    {"ranks differ in bytes", 2, run_mismatch_bytes},
    {"ranks differ in arguments", 2, run_mismatch_arguments},
    {"ranks differ in name", 2, run_mismatch_name},
    {"ranks differ in sequence", 2, run_mismatch_sequence},
    {"a rank gives up", 2, run_abort},
    {"a rank gives up with collectives under way", 2, run_abort_under_way},
    {"a rank that gave up is heard of", 2, run_listen},
    {"a rank is missing", 2, run_missing},
    {"destroy with collectives under way", 1, run_destroy},
};
const int comm_scenario_count = (int)(sizeof(comm_scenarios) / sizeof(comm_scenarios[0]));
