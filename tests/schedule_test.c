// SPDX-License-Identifier: Apache-2.0
/*
 * The schedule is a function of the calls and the plan: no order of execution
 * that the queues allow makes a command use what it must not, all ranks append
 * the same text, the bytes are the plan's and the design's, and the prediction
 * of a regular loop never misses. Dry: no data, no threads, no other rank.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/dry.h"
#include "tests/support/dry_model.h"
#include "tests/support/suite.h"

/* ------------------------------------------------------------ training loops */

/* How a program trains. */
struct loop {
    bool tied;      /* unit 0 again between forward and backward, its gradient held to the end */
    bool recompute; /* each unit is acquired twice in backward */
    bool nested;    /* a unit is released behind the next one's acquire, if slots allow */
    bool irregular; /* the orders of forward and backward change */
    bool sparse;    /* some units take no part in some micro-steps */
    bool late;      /* reduces trail the gradients as far as slots allow */
    bool looks;     /* gradients are read before some steps */
    int drops;      /* steps to be discarded */
};

static struct loop random_loop(struct dry *d)
{
    return (struct loop){
        .tied = d->plan.grad_slots > 1 && dry_random(d, 2),
        .recompute = dry_random(d, 3) == 0,
        .nested = dry_random(d, 3) == 0,
        .irregular = dry_random(d, 3) == 0,
        .sparse = dry_random(d, 4) == 0,
        .late = dry_random(d, 3) == 0,
        .looks = true,
        .drops = dry_random(d, 2) ? 0 : 1 + dry_random(d, 3),
    };
}

static bool trains(const struct dry *d, int unit)
{
    return d->layout.unit[unit].part[PART_LIVE].elements > 0;
}

static void must_acquire(struct dry *d, int unit)
{
    ck_assert_msg(dry_acquire(d, unit), "no slot for unit %d", unit);
}

/* Unit held stays acquired until the next one is, where that is possible. */
static int step_on(struct dry *d, bool nested, int held, int unit)
{
    bool got = nested && dry_acquire(d, unit);
    if (held >= 0)
        dry_release(d, held);
    if (!got)
        must_acquire(d, unit);
    if (nested)
        return unit;
    dry_release(d, unit);
    return -1;
}

static void forward(struct dry *d, const struct loop *how)
{
    int held = -1, units = d->layout.units;
    int start = how->irregular ? dry_random(d, units) : 0;
    int stride = how->irregular && units % 2 && units % 3 ? 1 + dry_random(d, 2) : 1;
    for (int i = 0; i < units; i++) {
        int u = (start + i * stride) % units;
        if (!how->sparse || dry_random(d, 3))
            held = step_on(d, how->nested, held, u);
    }
    if (held >= 0)
        dry_release(d, held);
}

static void backward_unit(struct dry *d, const struct loop *how, int unit)
{
    if (how->sparse && !dry_random(d, 3))
        return; /* its gradients are zero */
    for (int i = how->recompute; i >= 0; i--) {
        must_acquire(d, unit);
        if (i == 0 && trains(d, unit))
            ck_assert(dry_grad(d, unit) || how->late);
        dry_release(d, unit);
    }
}

/* Whether the step is discarded here, where no unit is acquired. */
static bool drop(struct dry *d, struct loop *how)
{
    if (!how->drops || dry_random(d, 3 * d->layout.units))
        return false;
    how->drops--;
    dry_discard(d);
    return true;
}

/* False: the step was discarded. */
static bool micro_step(struct dry *d, struct loop *how)
{
    int waiting[UNITS_MAX], count = 0, units = d->layout.units;
    int start = how->irregular ? dry_random(d, units) : 0;
    forward(d, how);
    if (how->tied) {
        must_acquire(d, 0);
        ck_assert(!trains(d, 0) || dry_grad(d, 0));
        dry_release(d, 0);
    }
    for (int left = units - 1; left >= 0; left--) {
        int u = (start + left) % units;
        if (drop(d, how))
            return false;
        backward_unit(d, how, u);
        waiting[count++] = u;
        bool held = d->schedule.units[u].grad >= 0;
        while (count && !(how->late && held && count < d->plan.grad_slots - how->tied && left)) {
            for (int i = 0; i < count; i++)
                ck_assert(dry_reduce(d, waiting[i]));
            count = 0;
        }
    }
    return !drop(d, how);
}

static void train_step(struct dry *d, struct loop *how, int accumulate, bool skip)
{
    d->schedule.accumulate = accumulate;
    for (int a = 0; a < accumulate;)
        a = micro_step(d, how) ? a + 1 : 0;
    if (how->looks && dry_random(d, 8) == 0)
        dry_read_grads(d, dry_random(d, d->layout.units));
    dry_step(d, skip);
}

static void evaluate(struct dry *d)
{
    dry_phase(d, ZERO_EVAL);
    for (int i = dry_random(d, 12); i > 0; i--) {
        int u = dry_random(d, 3) ? i % d->layout.units : dry_random(d, d->layout.units);
        must_acquire(d, u);
        dry_release(d, u);
    }
    dry_phase(d, ZERO_TRAIN);
}

static void read_some(struct dry *d, int unit, enum part_kind kind)
{
    int n = (int)d->layout.unit[unit].part[kind].elements, first = n ? dry_random(d, n) : 0;
    if (n > 0)
        dry_read(d, unit, kind, first, 1 + dry_random(d, n - first));
}

/* What programs do between steps, now and then. */
static void between(struct dry *d)
{
    int u = dry_random(d, d->layout.units);
    enum part_kind kind = dry_random(d, 3) ? PART_LIVE : PART_FROZEN;
    for (int more = 1; more; more = dry_random(d, 2))
        switch (dry_random(d, 8)) {
        case 0: evaluate(d); break;
        case 1: read_some(d, u, kind); break;
        case 2: dry_write(d, u, kind, dry_random(d, 1 + d->plan.ranks) - 1); break;
        case 3: dry_digest(d); break;
        case 4: dry_read_grads(d, u); break;
        }
}

/* ----------------------------------------------------------------- (a) hazards */

static void describe(char *text, size_t size, const struct dry *d, int seed)
{
    const struct settings *s = &d->set;
    snprintf(text, size,
             "seed %d, stage %d, %s%s%s, state %s, params %s, grads %s (%d), ranks %d, %d units, "
             "%lld chunks, %lld of them live, %lld in RAM, slots %d %d %d",
             seed, s->stage, dtype_name(s->dtype), s->split ? " split" : "",
             s->local ? " local" : "", place_name(s->state), place_name(s->param),
             place_name(s->grad), (int)d->plan.grad, d->plan.ranks, d->layout.units,
             (long long)d->plan.chunks, (long long)d->plan.live, (long long)d->plan.resident,
             d->plan.chunk_slots, d->plan.gather_slots, d->plan.grad_slots);
}

static void expect_no_fault(const struct dry *d, int seed)
{
    char text[400];
    describe(text, sizeof(text), d, seed);
    if (d->fault[0])
        ck_abort_msg("%s: %s", text, d->fault);
}

/* A random program on a random model in a random configuration, carried out in
 * a random order. */
static void try_seed(int seed)
{
    uint64_t random = (uint64_t)seed * 0x9E3779B97F4A7C15u + 1;
    struct model m;
    struct dry d;
    random_model(&m, &random);
    struct zero_config c = random_config(&random);
    int ranks = 1 + below(&random, 4);
    int rank = below(&random, ranks);
    ck_assert_msg(!dry_create(&d, m.params, m.tensors, &c, ranks, rank, (uint64_t)seed), "%s",
                  d.error.text);
    struct loop how = random_loop(&d);
    int accumulate = d.plan.grad == 2 ? 1 : 1 + dry_random(&d, 3);
    for (int step = 0; step < 4 && !d.fault[0]; step++) {
        train_step(&d, &how, accumulate, dry_random(&d, 6) == 0);
        between(&d);
    }
    dry_finish(&d);
    expect_no_fault(&d, seed);
    dry_destroy(&d);
}

#define SEEDS 1500

START_TEST(no_order_hurts)
{
    for (int seed = 0; seed < (suite_short() ? SEEDS / 7 : SEEDS); seed++)
        try_seed(_i * SEEDS + seed);
}
END_TEST

/* Units are written while a gather may be under way, or the program's stream read what one has
 * brought, and this rank walks over nothing that would wait for that. */
static void write_beside_gathers(const struct model *m, const struct zero_config *c, int owner,
                                 int seed)
{
    struct dry d;
    ck_assert(!dry_create(&d, m->params, m->tensors, c, 2, 0, (uint64_t)seed));
    must_acquire(&d, 0); /* gathers unit 1 ahead */
    dry_release(&d, 0);
    for (int u = 1; u >= 0; u--) {
        dry_write(&d, u, PART_LIVE, owner);
        must_acquire(&d, u);
        dry_release(&d, u);
    }
    dry_finish(&d);
    expect_no_fault(&d, seed);
    dry_destroy(&d);
}

START_TEST(an_empty_part_hides_no_gather)
{
    for (int seed = 0; seed < 50; seed++) {
        struct model m = {0};
        struct zero_config c = {.size = sizeof(c), .stage = 1 + seed % 3, .chunk = 128};
        add_tensor(&m, 0, 640, false);
        add_tensor(&m, 1, 0, false);
        add_tensor(&m, 1, 640, true);
        write_beside_gathers(&m, &c, -1, seed);
    }
}
END_TEST

START_TEST(another_ranks_elements_hide_no_gather)
{
    for (int seed = 0; seed < 50; seed++) {
        struct model m;
        struct zero_config c = {.size = sizeof(c),
                                .device = seed % 4 < 2 ? ZERO_CUDA : ZERO_CPU,
                                .stage = 1 + seed % 2,
                                .chunk = 128};
        equal_units(&m, 2, 640);
        write_beside_gathers(&m, &c, 1, seed);
    }
}
END_TEST

/* A unit's gradients come through another slot in each micro-step, because the order of
 * the reduces changes. */
START_TEST(sums_grow_in_turn)
{
    for (int seed = 0; seed < 100; seed++) {
        struct model m;
        struct dry d;
        struct zero_config c = {.size = sizeof(c),
                                .stage = seed % 4,
                                .chunk = 128,
                                .grad_slots = 2,
                                .accumulate = 3,
                                .accumulate_in = seed % 4 < 2 ? ZERO_LOCAL : ZERO_SHARD,
                                .offload_grad = seed % 4 < 3 ? ZERO_DEVICE : ZERO_HOST};
        equal_units(&m, 2, 640);
        ck_assert(!dry_create(&d, m.params, m.tensors, &c, 2, 0, (uint64_t)seed));
        for (int i = 0; i < 6; i++)
            ck_assert(dry_reduce(&d, (i % 2) ^ (i / 2 % 2)));
        dry_step(&d, seed % 2);
        dry_finish(&d);
        expect_no_fault(&d, seed);
        dry_destroy(&d);
    }
}
END_TEST

/* ------------------------------------------------------------ (b) the text */

/* How state and gradients are kept. */
static const struct zero_config formats[] = {
    {.dtype = ZERO_FP32},
    {.dtype = ZERO_BF16},
    {.dtype = ZERO_BF16, .state = ZERO_STATE_SPLIT},
    {.dtype = ZERO_FP16, .grad_dtype = ZERO_BF16},
    {.dtype = ZERO_BF16, .accumulate_in = ZERO_LOCAL},
};
#define FORMATS ((int)(sizeof(formats) / sizeof(*formats)))

/* Calls visit with every stage and places, and two host shares of NVMe. */
static void each_place(const struct zero_config *base,
                       void (*visit)(const struct zero_config *c, int *n), int *n)
{
    bool local = base->accumulate_in == ZERO_LOCAL;
    for (int stage = 0; stage <= (local ? 1 : 3); stage++)
        for (int state = ZERO_DEVICE; state <= ZERO_NVME; state++)
            for (int param = ZERO_DEVICE; param <= (stage == 3 ? ZERO_NVME : ZERO_DEVICE); param++)
                for (int grad = ZERO_DEVICE; grad <= (local ? ZERO_DEVICE : ZERO_HOST); grad++)
                    for (int share = 0; share < (state == ZERO_NVME ? 2 : 1); share++) {
                        struct zero_config c = *base;
                        c.size = sizeof(c);
                        c.stage = stage;
                        c.offload_optimizer = (enum zero_place)state;
                        c.offload_param = (enum zero_place)param;
                        c.offload_grad = (enum zero_place)grad;
                        c.host_bytes = share * 12 * 256;
                        visit(&c, n);
                    }
}

/* 6 places of which 2 have two shares; 18 of which 6 do. */
static int places(const struct zero_config *c)
{
    return c->accumulate_in == ZERO_LOCAL ? 2 * 4 : 3 * 8 + 24;
}

/* The calls of a tied loop with a skipped step, a discarded one and an evaluation; with
 * inspect also calls that walk on the ranks that own what is read. */
static void calls(struct dry *d, bool inspect)
{
    struct loop how = {.tied = true};
    for (int step = 0; step < 3; step++) {
        dry_reduce(d, 1);
        dry_discard(d);
        train_step(d, &how, d->plan.grad == 2 ? 1 : 2, step == 1);
        dry_phase(d, ZERO_EVAL);
        for (int u = 0; u < d->layout.units; u++) {
            must_acquire(d, u);
            dry_release(d, u);
        }
        dry_phase(d, ZERO_TRAIN);
        if (!inspect)
            continue;
        dry_read(d, 1, PART_LIVE, 70, 300);
        dry_write(d, 1, PART_LIVE, -1);
        dry_write(d, 1, PART_FROZEN, -1);
        dry_digest(d);
    }
    dry_finish(d);
}

struct seen {
    uint64_t text, collectives;
};

static void small_model(struct model *m, bool frozen)
{
    equal_units(m, 3, 700);
    add_tensor(m, 1, 130, false);
    if (!frozen)
        return;
    add_tensor(m, 1, 300, true);
    add_tensor(m, 3, 200, true);
}

static struct seen run_rank(const struct zero_config *c, int ranks, int rank, bool inspect)
{
    struct model m;
    struct dry d;
    small_model(&m, true);
    /* Another order of execution on each rank. */
    ck_assert_msg(!dry_create(&d, m.params, m.tensors, c, ranks, rank, (uint64_t)rank + 99), "%s",
                  d.error.text);
    calls(&d, inspect);
    expect_no_fault(&d, rank);
    struct seen seen = {d.text, d.collectives};
    dry_destroy(&d);
    return seen;
}

static void same_on_all(const struct zero_config *c, int ranks)
{
    struct seen first = run_rank(c, ranks, 0, false), looks = run_rank(c, ranks, 0, true);
    ck_assert(first.text != looks.text);
    for (int r = 1; r < ranks; r++) {
        struct seen other = run_rank(c, ranks, r, false);
        ck_assert_msg(other.text == first.text, "stage %d: ranks 0 and %d of %d differ", c->stage,
                      r, ranks);
        ck_assert(other.collectives == first.collectives);
        if (ranks > 100 && r % 16)
            continue;
        other = run_rank(c, ranks, r, true);
        ck_assert_msg(other.collectives == looks.collectives,
                      "stage %d: the collectives of ranks 0 and %d of %d differ", c->stage, r,
                      ranks);
    }
}

static void few_ranks(const struct zero_config *c, int *n)
{
    const int ranks[] = {2, 3, 4, 7};
    for (int i = 0; i < 4; i++, ++*n)
        same_on_all(c, ranks[i]);
}

START_TEST(same_text_in_all_places)
{
    int n = 0;
    struct zero_config c = formats[_i];
    c.chunk = 128;
    each_place(&c, few_ranks, &n);
    ck_assert_int_eq(n, places(&c) * 4);
}
END_TEST

START_TEST(same_text_on_1024_ranks)
{
    struct zero_config c = {.size = sizeof(c),
                            .stage = _i,
                            .offload = ZERO_NVME,
                            .dtype = ZERO_BF16,
                            .state = _i % 2 ? ZERO_STATE_SPLIT : ZERO_STATE_FP32,
                            .chunk = _i ? 128 : 1 << 16};
    same_on_all(&c, suite_short() ? 128 : 1024);
}
END_TEST

/* ------------------------------------------------------------- (c) no stop */

/* Everything is carried out in each place, with any number of slots, with and without
 * frozen parts: one command at a time, all that can start before any ends, and mixed. */
static void carries_on(const struct zero_config *base, int *n)
{
    for (int i = 0; i < 8; i++, ++*n) {
        struct zero_config c = *base;
        struct model m;
        struct dry d;
        c.chunk_slots = (const int[]){2, 4, 5, 9}[i / 2];
        small_model(&m, i % 2);
        ck_assert_msg(!dry_create(&d, m.params, m.tensors, &c, 2, *n % 2, (uint64_t)*n), "%s",
                      d.error.text);
        if (*n % 3 == 0)
            d.limit = 1;
        if (*n % 3 == 1)
            d.eager = 100;
        calls(&d, true);
        expect_no_fault(&d, *n);
        dry_destroy(&d);
    }
}

START_TEST(no_place_stops)
{
    int n = 0;
    struct zero_config c = formats[_i];
    c.chunk = 64;
    each_place(&c, carries_on, &n);
    ck_assert_int_eq(n, places(&c) * 8);
}
END_TEST

/* ----------------------------------------------------------- (d) the bytes */

/* Of one step. */
struct step_bytes {
    int64_t bytes[COMMANDS];
    int64_t served, served_reads; /* what acquires from a slot would have gathered, and read */
};

static int64_t file_bytes(struct dry *d, int unit)
{
    int64_t bytes = 0;
    int n;
    const struct segment *s = schedule_segments(&d->schedule, unit, &n);
    for (int i = 0; i < n; i++)
        bytes += s[i].bytes;
    return bytes;
}

static void counted_acquire(struct dry *d, int unit, struct step_bytes *b)
{
    int64_t served = d->schedule.served;
    must_acquire(d, unit);
    dry_release(d, unit);
    if (d->schedule.served == served || d->plan.whole_params)
        return;
    b->served +=
        d->layout.unit[unit].elements / d->plan.ranks * (d->plan.ranks - 1) * d->plan.element;
    b->served_reads += file_bytes(d, unit);
}

static struct step_bytes count_step(struct dry *d)
{
    struct step_bytes b = {0};
    int64_t before[COMMANDS];
    memcpy(before, d->bytes, sizeof(before));
    for (int u = 0; u < d->layout.units; u++)
        counted_acquire(d, u, &b);
    for (int u = d->layout.units - 1; u >= 0; u--) {
        counted_acquire(d, u, &b);
        ck_assert(dry_reduce(d, u));
    }
    dry_step(d, false);
    for (int k = 0; k < COMMANDS; k++)
        b.bytes[k] = d->bytes[k] - before[k];
    return b;
}

/* The plan's numbers, and those of the table of stages: sent per step and rank, if no unit
 * were still in a slot. What is frozen is gathered where parameters are sharded; else
 * once, in the first step. */
static void compare_bytes(struct dry *d, const struct step_bytes *b, bool first)
{
    const struct zero_plan *p = &d->plan.report;
    const int64_t *n = b->bytes, e = d->plan.element, wide = d->set.local ? 4 : e;
    int64_t frozen = d->layout.whole[PART_FROZEN], live = d->layout.whole[PART_LIVE];
    int64_t times = d->plan.whole_params ? 1 : 2; /* gathered in forward, and in backward */
    int64_t once =
        !d->plan.whole_state && times == 1 && first ? frozen * e * (d->plan.ranks - 1) : 0;
    int64_t gathered = n[COMMAND_GATHER] + b->served;
    ck_assert_int_eq(n[COMMAND_STATE_READ] + n[COMMAND_PARAM_FETCH], p->read_bytes);
    ck_assert_int_eq(n[COMMAND_STATE_WRITE] + n[COMMAND_PARAM_WRITE], p->written_bytes);
    ck_assert_int_eq(n[COMMAND_REDUCE] + n[COMMAND_GATHER_SUMS], p->reduce_bytes);
    ck_assert_int_eq(gathered, times * p->gather_bytes + once / d->plan.ranks);
    ck_assert_int_eq(n[COMMAND_PARAM_READ] + b->served_reads, 2 * p->param_read_bytes);

    int64_t sums = d->set.round_grads && !d->set.local ? 2 : 4;
    int64_t per_element[] = {wide + sums, wide + e, wide + e, wide + 2 * e};
    int64_t sent = per_element[d->set.stage] * live + (times == 2 ? 2 * e * frozen : 0);
    ck_assert_int_eq((n[COMMAND_REDUCE] + n[COMMAND_GATHER_SUMS] + gathered) * d->plan.ranks,
                     sent * (d->plan.ranks - 1) + once);
}

static void count_place(const struct zero_config *c, int *n)
{
    for (int ranks = 1; ranks <= 8; ranks += 1 + (ranks > 3), ++*n) {
        struct model m = {0};
        struct dry d;
        for (int u = 0; u < 5; u++)
            add_tensor(&m, u, (u + 1) * 64 * ranks, u == 3);
        add_tensor(&m, 2, 128 * ranks, true);
        ck_assert(!dry_create(&d, m.params, m.tensors, c, ranks, ranks - 1, 5));
        ck_assert_int_eq(d.plan.report.elements, d.plan.report.params); /* no padding */
        for (int step = 0; step < 3; step++) {
            struct step_bytes b = count_step(&d);
            compare_bytes(&d, &b, step == 0);
        }
        expect_no_fault(&d, ranks);
        dry_destroy(&d);
    }
}

START_TEST(bytes_are_the_plans)
{
    int n = 0;
    struct zero_config c = formats[_i % FORMATS];
    c.chunk = _i / FORMATS ? 64 : 192;
    c.gather_slots = 2 + _i / 2;
    each_place(&c, count_place, &n);
    ck_assert_int_eq(n, places(&c) * 6);
}
END_TEST

/* ------------------------------------------------------- (e) the prediction */

/* How often acquires in this order must gather with so many slots, each one
 * behind the acquire before it, whose unit is in use: the unit given up is the
 * one needed last (Belady, IBM Systems Journal 1966). */
static int needed_gathers(const int *order, int count, int slots)
{
    int held[UNITS_MAX + 2], gathers = 0;
    for (int i = 0; i < slots; i++)
        held[i] = -1;
    for (int i = 0; i < count; i++) {
        int out = 0, out_use = -1;
        bool here = false;
        for (int j = 0; j < slots; j++) {
            int use = i + 1;
            here |= held[j] == order[i];
            if (i > 0 && slots > 1 && held[j] == order[i - 1])
                continue;
            while (use < count && order[use] != held[j])
                use++;
            if (held[j] < 0 || use > out_use) {
                out = j;
                out_use = held[j] < 0 ? count + 1 : use;
            }
        }
        gathers += !here;
        if (!here)
            held[out] = order[i];
    }
    return gathers;
}

/* Forward and backward, tied or not, as acquires. */
static int acquires(int units, bool tied, int *order)
{
    int n = 0;
    for (int u = 0; u < units; u++)
        order[n++] = u;
    if (tied)
        order[n++] = 0;
    for (int u = units - 1; u >= 0; u--)
        order[n++] = u;
    return n;
}

/* frozen: of every second unit, all. */
static void regular_loop(int stage, int units, int slots, bool tied, bool frozen)
{
    struct model m = {0};
    struct dry d;
    int order[2 * UNITS_MAX + 1], count = acquires(units, tied, order);
    struct zero_config c = {.size = sizeof(c), .stage = stage, .gather_slots = slots, .chunk = 128};
    for (int u = 0; u < units; u++)
        add_tensor(&m, u, 640, frozen && u % 2);
    ck_assert(!dry_create(&d, m.params, m.tensors, &c, 2, 0, 1));
    int stale = frozen ? (units + 1) / 2 : units; /* what an update makes so */
    for (int step = 0; step < 4; step++) {
        int64_t gathers = d.schedule.gathers, late = 0;
        for (int i = 0; i < count; i++) {
            const struct unit_state *u = &d.schedule.units[order[i]];
            late += !(stage < 3 ? u->fresh[PART_LIVE] && u->fresh[PART_FROZEN] : u->slot >= 0);
            must_acquire(&d, order[i]);
            dry_release(&d, order[i]);
        }
        for (int u = 0; u < units; u++)
            ck_assert(dry_reduce(&d, u));
        dry_step(&d, false);
        if (step == 0)
            continue; /* the prediction is untied until it has seen a micro-step */
        int needed = stage < 3 ? stale : needed_gathers(order, count, d.plan.gather_slots);
        /* What is frozen may still be here from the last step. */
        int least = needed - (stage == 3 ? units - stale : 0);
        int seen = (int)(d.schedule.gathers - gathers);
        ck_assert_msg(seen <= needed && seen >= least,
                      "stage %d, %d units, %d slots, %s%s: %d gathers, not %d", stage, units, slots,
                      tied ? "tied" : "untied", frozen ? ", frozen" : "", seen, needed);
        ck_assert_int_eq(d.schedule.missed, 0);
        ck_assert_msg(late == 1 || (stage == 3 && slots == 1),
                      "stage %d, %d units, %d slots, %s%s: %d gathers came late", stage, units,
                      slots, tied ? "tied" : "untied", frozen ? ", frozen" : "", (int)late);
    }
    expect_no_fault(&d, units);
    dry_destroy(&d);
}

START_TEST(regular_orders_never_miss)
{
    for (int stage = 1; stage <= 3; stage++)
        for (int units = 1; units <= UNITS_MAX; units++)
            for (int slots = 1; slots <= UNITS_MAX + 1; slots++)
                for (int how = 0; how < 4; how++)
                    regular_loop(stage, units, slots, how & 1, how & 2);
}
END_TEST

/* The next order is another: some gathers were in vain, none is missing, and
 * the regular loop that follows is predicted again. */
START_TEST(irregular_orders_miss)
{
    struct model m;
    struct dry d;
    struct loop odd = {.irregular = true}, even = {0};
    struct zero_config c = {.size = sizeof(c), .stage = 3, .offload = ZERO_NVME, .chunk = 128};
    equal_units(&m, 5, 640);
    ck_assert(!dry_create(&d, m.params, m.tensors, &c, 3, 1, 7));
    for (int step = 0; step < 8; step++)
        train_step(&d, &odd, 2, false);
    int64_t missed = d.schedule.missed;
    ck_assert_int_gt(missed, 0);
    train_step(&d, &even, 1, false);
    missed = d.schedule.missed;
    for (int step = 0; step < 3; step++)
        train_step(&d, &even, 2, false);
    ck_assert_int_eq(d.schedule.missed, missed);
    dry_finish(&d);
    expect_no_fault(&d, 0);
    dry_destroy(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("schedule");
    TCase *c = tcase_create("function of the calls");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, no_order_hurts, 0, 4);
    tcase_add_test(c, an_empty_part_hides_no_gather);
    tcase_add_test(c, another_ranks_elements_hide_no_gather);
    tcase_add_test(c, sums_grow_in_turn);
    tcase_add_loop_test(c, same_text_in_all_places, 0, FORMATS);
    tcase_add_loop_test(c, same_text_on_1024_ranks, 0, 4);
    tcase_add_loop_test(c, no_place_stops, 0, FORMATS);
    tcase_add_loop_test(c, bytes_are_the_plans, 0, 2 * FORMATS);
    tcase_add_test(c, regular_orders_never_miss);
    tcase_add_test(c, irregular_orders_miss);
    suite_add_tcase(s, c);
    return suite_run_all(s);
}
