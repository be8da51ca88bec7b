// SPDX-License-Identifier: Apache-2.0
/*
 * Asynchrony, proved by latches instead of clocks: an operation is withheld
 * until something has happened that an engine which waited for the operation
 * would never come to. Such an engine hangs here, and Check ends it. All runs
 * end in the bits of the run that nobody disturbed.
 */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/bf16.h"
#include "tests/support/dry.h"
#include "tests/support/latch.h"
#include "tests/support/random.h"
#include "tests/support/ranks.h"
#include "tests/support/suite.h"

#define UNITS     5
#define ELEMENTS  1500 /* a unit's: one tensor */
#define RANKS_MAX 3
#define STEPS     3
#define SLOTS     3 /* of chunks */

/* Between which calls of the training loop the caller is. */
enum moment {
    BEFORE_REDUCE,
    AFTER_REDUCE,
    BEFORE_STEP,
    AFTER_STEP,
    AFTER_ACQUIRE, /* in forward */
    BEFORE_DIGEST,
};

struct trial;

struct rank {
    const struct trial *trial;
    struct zero *z;
    struct latch latch;
    struct plan plan;

    pthread_mutex_t lock; /* of what follows, up to the outcome */
    pthread_cond_t changed;
    bool closed;
    int64_t submitted, completed, appended, gathers, watched, sums, walks;

    uint64_t text; /* of the schedule */
    struct zero_digest digest;
    double norm[STEPS];
    struct error error;
};

struct trial {
    struct zero_config config;
    int ranks, accumulate;
    void (*moment)(struct rank *r, enum moment moment, int unit);
    void (*submitted)(struct rank *r, struct latch_op *op);
    bool (*withheld)(struct rank *r, const struct latch_op *op);
    void (*appended)(struct rank *r, const struct command *c);
    uint64_t random;
    bool blind; /* gradients alone: no unit is acquired */
    struct rank rank[RANKS_MAX];
};

/* ------------------------------------------------------------------ training */

static float noise(int64_t batch, int unit, int64_t i)
{
    uint64_t x = random_mix((uint64_t)batch << 40 ^ (uint64_t)unit << 32 ^ (uint64_t)i);
    return (float)(x >> 40) * 0x1p-24f - 0.5f;
}

/* Gradients that depend on the parameters gathered. */
static void add_gradient(int unit, int64_t batch, enum zero_dtype dtype, const void *w, void *g)
{
    for (int64_t i = 0; i < ELEMENTS; i++) {
        float x = noise(batch, unit, i);
        if (dtype == ZERO_BF16)
            ((uint16_t *)g)[i] = bf16_from_float(x + bf16_to_float(((const uint16_t *)w)[i]) * x);
        else
            ((float *)g)[i] = x + ((const float *)w)[i] * x;
    }
}

static void moment(struct rank *r, enum moment when, int unit)
{
    if (r->trial->moment)
        r->trial->moment(r, when, unit);
}

static int forward_unit(struct rank *r, int unit)
{
    if (r->trial->blind)
        return ZERO_OK;
    int status = zero_acquire(r->z, unit);
    moment(r, AFTER_ACQUIRE, unit);
    return status ? status : zero_release(r->z, unit);
}

static int backward_unit(struct rank *r, int unit, int64_t batch)
{
    bool blind = r->trial->blind;
    int status = blind ? ZERO_OK : zero_acquire(r->z, unit);
    void *g = status ? NULL : zero_grad_data(r->z, unit);
    const void *w = blind || !g ? g : zero_param_data(r->z, unit); /* g is zeros */
    if (!w)
        return r->z->error.status;
    add_gradient(unit, batch, r->trial->config.dtype, w, g);
    if (!blind)
        status = zero_release(r->z, unit);
    moment(r, BEFORE_REDUCE, unit);
    if (!status)
        status = zero_reduce(r->z, unit);
    moment(r, AFTER_REDUCE, unit);
    return status;
}

static int train_step(struct rank *r, int step)
{
    struct zero_step_info info = {0};
    int status = 0;
    for (int a = 0; !status && a < r->trial->accumulate; a++) {
        int64_t micro = step * r->trial->accumulate + a;
        for (int u = 0; !status && u < UNITS; u++)
            status = forward_unit(r, u);
        for (int u = UNITS - 1; !status && u >= 0; u--)
            status = backward_unit(r, u, micro * r->trial->ranks + r->z->rank);
    }
    moment(r, BEFORE_STEP, -1);
    if (!status)
        status = zero_step(r->z, &info);
    moment(r, AFTER_STEP, -1);
    r->norm[step] = info.norm;
    return status;
}

static int train(struct rank *r)
{
    const struct zero_adam adam = {
        .lr = .01, .beta1 = .9, .beta2 = .95, .eps = 1e-8, .weight_decay = .1};
    int status = zero_set_adam(r->z, 0, &adam);
    if (!status)
        status = zero_set_accumulate(r->z, r->trial->accumulate);
    for (int s = 0; !status && s < STEPS; s++)
        status = train_step(r, s);
    if (!status)
        status = forward_unit(r, 0); /* the last walk has a next forward, too */
    moment(r, BEFORE_DIGEST, -1);
    return status ? status : zero_digest(r->z, &r->digest);
}

/* ------------------------------------------------------------------ the ranks */

static void describe(struct zero_param params[UNITS])
{
    static const char *const names[UNITS] = {"a", "b", "c", "d", "e"};
    static const struct zero_normal fill = {.seed = 3, .std = 0.5f};
    for (int u = 0; u < UNITS; u++)
        params[u] = (struct zero_param){.name = names[u],
                                        .unit = u,
                                        .ndim = 1,
                                        .shape = {ELEMENTS},
                                        .fill = zero_fill_normal,
                                        .fill_arg = (void *)&fill};
}

/* The engine's plan, for hooks that run before there is an engine. */
static void make_plan(struct rank *r)
{
    struct zero_param params[UNITS];
    struct layout layout;
    struct settings set;
    struct error error = {0};
    describe(params);
    if (settings_resolve(&set, &r->trial->config, &error) ||
        layout_create(&layout, params, UNITS, r->trial->ranks, &error) ||
        plan_make(&r->plan, &layout, &set, &error))
        abort();
    layout_destroy(&layout);
}

static void observe(void *arg, const struct command *c)
{
    struct rank *r = arg;
    char line[512] = "";
    FILE *out = fmemopen(line, sizeof(line), "w");
    command_print(out, c);
    fclose(out);
    for (const char *s = line; *s; s++)
        r->text = random_mix(r->text ^ (uint64_t)*s);
    pthread_mutex_lock(&r->lock);
    if (r->trial->appended)
        r->trial->appended(r, c);
    pthread_mutex_unlock(&r->lock);
}

static void see(void *arg, struct latch_op *op)
{
    struct rank *r = arg;
    pthread_mutex_lock(&r->lock);
    if (r->trial->submitted)
        r->trial->submitted(r, op);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static void see_done(void *arg, const struct latch_op *op)
{
    struct rank *r = arg;
    pthread_mutex_lock(&r->lock);
    r->completed += op->kind == LATCH_COPY;
    pthread_mutex_unlock(&r->lock);
}

static bool ask(void *arg, const struct latch_op *op)
{
    struct rank *r = arg;
    pthread_mutex_lock(&r->lock);
    bool held = r->trial->withheld && r->trial->withheld(r, op);
    pthread_mutex_unlock(&r->lock);
    return held;
}

static void rank_body(int rank, struct zero_comm *comm, void *arg)
{
    struct trial *t = arg;
    struct rank *r = &t->rank[rank];
    struct zero_param params[UNITS];
    struct zero_config config = t->config;
    *r = (struct rank){.trial = t};
    r->latch.submitted = see;
    r->latch.withheld = ask;
    r->latch.completed = see_done;
    r->latch.arg = r;
    r->latch.seams.observe = observe;
    r->latch.seams.observe_arg = r;
    r->latch.random = t->random ? t->random * 1000003 + (uint64_t)rank : 0;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    make_plan(r);
    describe(params);
    config.comm = latch_comm(&r->latch, comm);
    int status = engine_create(&r->z, params, UNITS, &config, latch_seams(&r->latch));
    if (!status)
        status = train(r);
    if (status)
        error_set(&r->error, status, "%s", zero_last_error(r->z));
    zero_destroy(r->z);
    config.comm->ops->destroy(config.comm);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
}

static void run(struct trial *t)
{
    t->config.size = sizeof(t->config);
    t->config.threads = 1;
    t->config.nvme_path = access("/dev/shm", W_OK) ? NULL : "/dev/shm"; /* quick, and as good */
    t->config.log_level = ZERO_LOG_SILENT;                              /* about the page cache */
    ranks_run(t->ranks, rank_body, t);
    for (int r = 0; r < t->ranks; r++)
        ck_assert_msg(!t->rank[r].error.status, "rank %d: %s", r, t->rank[r].error.text);
}

/* Runs t and the same without its hooks: equal digests, norms and schedules, on
 * all ranks. */
static void run_both(struct trial *t)
{
    struct trial calm = {
        .config = t->config, .ranks = t->ranks, .accumulate = t->accumulate, .blind = t->blind};
    run(&calm);
    run(t);
    const struct rank *expected = &calm.rank[0];
    for (int r = 0; r < 2 * t->ranks; r++) {
        const struct rank *got = r < t->ranks ? &t->rank[r] : &calm.rank[r - t->ranks];
        ck_assert_msg(!memcmp(&got->digest, &expected->digest, sizeof(got->digest)),
                      "stage %d: rank %d has another digest", t->config.stage, r);
        ck_assert(!memcmp(got->norm, expected->norm, sizeof(got->norm)));
        ck_assert_msg(got->text == expected->text, "stage %d: rank %d has another schedule",
                      t->config.stage, r);
    }
}

/* -------------------------------------------- (a) the caller opens the latch */

static void close_latch(struct rank *r)
{
    pthread_mutex_lock(&r->lock);
    r->closed = true;
    pthread_mutex_unlock(&r->lock);
}

static void open_latch(struct rank *r)
{
    pthread_mutex_lock(&r->lock);
    r->closed = false;
    pthread_mutex_unlock(&r->lock);
    latch_wake(&r->latch);
}

static void closed_in_reduce(struct rank *r, enum moment when, int unit)
{
    (void)unit;
    if (when == BEFORE_REDUCE)
        close_latch(r);
    if (when == AFTER_REDUCE)
        open_latch(r);
}

static void closed_in_step(struct rank *r, enum moment when, int unit)
{
    (void)unit;
    if (when == BEFORE_STEP)
        close_latch(r);
    if (when == AFTER_STEP)
        open_latch(r);
}

static void count_copies(struct rank *r, struct latch_op *op)
{
    r->submitted += op->kind == LATCH_COPY;
}

static bool hold_copies(struct rank *r, const struct latch_op *op)
{
    return op->kind == LATCH_COPY && r->closed;
}

/* Copies of sums to host memory begin when zero_reduce has returned. */
START_TEST(reduce_returns_before_its_copy)
{
    for (int stage = 0; stage <= 3; stage++)
        for (int accumulate = 1; accumulate <= 2; accumulate++) {
            struct trial t = {.config = {.stage = stage, .offload = ZERO_HOST, .chunk = 320},
                              .ranks = 2,
                              .accumulate = accumulate,
                              .moment = closed_in_reduce,
                              .submitted = count_copies,
                              .withheld = hold_copies};
            run_both(&t);
            ck_assert_int_ge(t.rank[0].submitted, STEPS * UNITS * accumulate);
        }
}
END_TEST

/* Copies of new parameters to the device begin when zero_step has returned. */
START_TEST(step_returns_before_its_copies)
{
    for (int stage = 0; stage <= 3; stage++)
        for (int state = ZERO_HOST; state <= ZERO_NVME; state++) {
            struct trial t = {.config = {.stage = stage,
                                         .offload_optimizer = (enum zero_place)state,
                                         .dtype = ZERO_BF16,
                                         .chunk = 320},
                              .ranks = 2,
                              .accumulate = 1,
                              .moment = closed_in_step,
                              .submitted = count_copies,
                              .withheld = hold_copies};
            run_both(&t);
            ck_assert_int_ge(t.rank[0].submitted, STEPS * t.rank[0].plan.chunks);
        }
}
END_TEST

/* ------------------------------------- (b) as many transfers as there are slots */

/* Where in the arena a request's buffer lies: the ring is given the slots, its end. */
static int64_t arena_offset(const struct rank *r, const struct latch_op *op)
{
    int64_t slots = r->plan.host.total - r->plan.report.host.slots;
    return slots + (op->request->buffer - (char *)r->latch.base);
}

/* The chunk whose record a request moves; -1: it moves parameters. */
static int64_t record_chunk(const struct rank *r, const struct latch_op *op)
{
    const struct plan *p = &r->plan;
    bool record = false;
    for (int i = 0; i < p->chunk_slots; i++)
        record |= arena_offset(r, op) == p->host.record[i];
    for (int64_t c = 0; record && c < p->live; c++)
        if (plan_chunk_in_file(p, c) && plan_record_offset(p, c) == op->request->offset)
            return c;
    return -1;
}

static void number_records(struct rank *r, struct latch_op *op)
{
    if (op->kind == LATCH_RING && record_chunk(r, op) >= 0)
        op->tag = ++r->submitted;
}

/* The last submission of the walk that number belongs to. The first walk writes
 * initial values, the last reads for the digest, all others do both. */
static int64_t walk_last(const struct rank *r, int64_t number)
{
    int64_t n = r->plan.chunks - r->plan.resident;
    if (number <= n)
        return n;
    int64_t walk = (number - n - 1) / (2 * n);
    return walk < STEPS ? n + (walk + 1) * 2 * n : n + STEPS * 2 * n + n;
}

/* Record k is done when k + slots - 1 is submitted, or all of its walk are. (The
 * last batch is as large as the others here: in a smaller one a read would wait
 * for its own write.) */
static bool hold_record(struct rank *r, const struct latch_op *op)
{
    if (op->kind != LATCH_RING || !op->tag)
        return false;
    int64_t until = op->tag + r->plan.chunk_slots - 1, last = walk_last(r, op->tag);
    return r->submitted < (until < last ? until : last);
}

/* Configurations with optimizer state in files: every stage, and at stage 3
 * every place of parameters; fp32 and bf16; some state in memory or none. */
static int nvme_config(int i, struct zero_config *c)
{
    const int stages[] = {0, 1, 2, 3, 3, 3};
    const enum zero_place params[] = {0, 0, 0, ZERO_DEVICE, ZERO_HOST, ZERO_NVME};
    *c = (struct zero_config){.stage = stages[i % 6],
                              .offload_optimizer = ZERO_NVME,
                              .offload_param = params[i % 6],
                              .chunk = 320,
                              .chunk_slots = SLOTS,
                              .dtype = i / 6 % 2 ? ZERO_BF16 : ZERO_FP32,
                              .offload_grad = i / 12 % 2 ? ZERO_HOST : ZERO_DEVICE,
                              .verify_spill = i % 2 && suite_checksums()};
    c->host_bytes = i / 12 % 2 ? 12 * 320 * SLOTS : 0;
    return 24;
}

static void each_nvme(struct trial *base, void (*check)(const struct trial *t))
{
    struct zero_config c;
    for (int i = 0; i < nvme_config(i < 24 ? i : 0, &c); i++) {
        struct trial t = *base;
        t.config = c;
        t.ranks = 2;
        t.accumulate = 1 + i % 2;
        run_both(&t);
        check(&t);
    }
}

static void all_records_submitted(const struct trial *t)
{
    const struct rank *r = &t->rank[0];
    int64_t n = r->plan.chunks - r->plan.resident;
    ck_assert_int_gt(n, 2 * SLOTS);
    ck_assert_int_eq(n % SLOTS, 0);
    ck_assert_int_eq(r->submitted, n + STEPS * 2 * n + n);
}

START_TEST(slots_are_under_way_together)
{
    struct trial t = {.submitted = number_records, .withheld = hold_record};
    each_nvme(&t, all_records_submitted);
}
END_TEST

/* -------------------------------------------------- (c) gathered ahead of use */

static void count_gathers(struct rank *r, const struct command *c)
{
    r->appended += c->kind == COMMAND_GATHER;
}

static void number_gathers(struct rank *r, struct latch_op *op)
{
    if (op->kind == LATCH_COMM && op->collective->header.kind == ZERO_COLLECTIVE_GATHER &&
        op->collective->header.unit >= 0)
        op->tag = ++r->gathers;
}

/*
 * The loop's gathers, a step: in forward 0 1 2 3 4; and at stage 3, where the
 * last three units are still in the slots when backward begins, 1 0. Each is
 * done when the next one is appended. Behind 4 and the last one none is
 * predicted.
 */
static bool hold_gather(struct rank *r, const struct latch_op *op)
{
    if (op->kind != LATCH_COMM || !op->tag)
        return false;
    int64_t a_step = r->plan.whole_params ? UNITS : UNITS + 2;
    int64_t place = (op->tag - 1) % a_step;
    bool ahead = op->tag <= STEPS * a_step && place != UNITS - 1 && place != a_step - 1;
    return ahead && r->appended <= op->tag;
}

START_TEST(gathers_run_ahead)
{
    for (int i = 0; i < 6; i++) {
        struct trial t = {.ranks = 2,
                          .accumulate = 1,
                          .appended = count_gathers,
                          .submitted = number_gathers,
                          .withheld = hold_gather};
        nvme_config(i, &t.config);
        t.config.gather_slots = 3;
        if (t.config.stage == 0)
            continue; /* gathers no parameters */
        run_both(&t);
        for (int r = 0; r < t.ranks; r++)
            ck_assert_int_eq(t.rank[r].gathers,
                             t.config.stage < 3 ? STEPS * UNITS + 2 : STEPS * (UNITS + 2) + 2);
    }
}
END_TEST

/* ----------------------------- (d) the next forward starts behind its own chunks */

/* The chunk that a request of the update's walk moves, or -1. */
static int64_t walk_chunk(const struct rank *r, const struct latch_op *op)
{
    const struct plan *p = &r->plan;
    int64_t at = arena_offset(r, op), chunk = record_chunk(r, op);
    for (int i = 0; chunk < 0 && i < p->chunk_slots && p->set.param == ZERO_NVME; i++)
        if (!p->shared && op->request->write && at == p->host.chunk_param[i])
            chunk = (op->request->offset - p->file.params) / plan_param_bytes(p, 0);
    return chunk;
}

/* From a first reduce on, which begins to read ahead. */
static void closed_to_next_forward(struct rank *r, enum moment when, int unit)
{
    struct error error = {0};
    if (when == BEFORE_REDUCE && unit == UNITS - 1) {
        /* Writes of the walk before are none of this walk's. */
        queues_wait(r->z->queues, queues_tail(r->z->queues, QUEUE_STATE_DISK), &error);
        close_latch(r);
    }
    if (when == AFTER_ACQUIRE && unit == 0)
        open_latch(r);
}

static void mark_later_chunks(struct rank *r, struct latch_op *op)
{
    int64_t first_end = ELEMENTS; /* of unit 0 in state order */
    first_end = r->plan.whole_state ? first_end : (first_end + r->plan.ranks - 1) / r->plan.ranks;
    first_end = (first_end + 63) / 64 * 64;
    if (op->kind != LATCH_RING)
        return;
    op->tag = walk_chunk(r, op) * r->plan.chunk >= first_end;
    r->submitted += op->tag;
}

static bool hold_later_chunks(struct rank *r, const struct latch_op *op)
{
    return op->kind == LATCH_RING && op->tag && r->closed;
}

static void later_chunks_submitted(const struct trial *t)
{
    ck_assert_int_gt(t->rank[0].submitted, STEPS);
}

START_TEST(forward_waits_for_its_unit_alone)
{
    struct trial t = {.moment = closed_to_next_forward,
                      .submitted = mark_later_chunks,
                      .withheld = hold_later_chunks};
    each_nvme(&t, later_chunks_submitted);
}
END_TEST

/* -------------------------------------------- (e) state is read during backward */

static void count_reads(struct rank *r, struct latch_op *op)
{
    r->submitted += op->kind == LATCH_RING && !op->request->write && record_chunk(r, op) >= 0;
}

/* Before it reduces the first micro-step's last unit, the caller waits until the ring has seen as
 * many reads as there are slots. */
static void wait_for_reads(struct rank *r, enum moment when, int unit)
{
    pthread_mutex_lock(&r->lock);
    if (when == BEFORE_REDUCE && unit == 0 && r->z->schedule.micro == 0)
        while (r->submitted - r->watched < r->plan.chunk_slots)
            pthread_cond_wait(&r->changed, &r->lock);
    if (when == AFTER_STEP) /* the walk's reads, of which some may come later */
        r->watched += r->plan.chunks - r->plan.resident;
    pthread_mutex_unlock(&r->lock);
}

static void all_reads_submitted(const struct trial *t)
{
    const struct rank *r = &t->rank[0];
    ck_assert_int_eq(r->submitted, (STEPS + 1) * (r->plan.chunks - r->plan.resident));
}

START_TEST(state_is_read_during_backward)
{
    struct trial t = {.moment = wait_for_reads, .submitted = count_reads};
    each_nvme(&t, all_reads_submitted);
}
END_TEST

/* ------------------------------------------- a walk that the next step overtakes */

static void count_walks(struct rank *r, const struct command *c)
{
    r->walks += c->kind == COMMAND_UPDATE && c->part == WALK_ADAM && c->chunk == 0;
}

static void number_walks(struct rank *r, struct latch_op *op)
{
    if (op->kind == LATCH_COMM && op->collective->header.kind == ZERO_COLLECTIVE_SUM)
        r->sums++; /* one a step: the verdict */
    if (op->kind == LATCH_COPY && op->stream == DEVICE_TO_DEVICE_MEMORY)
        op->tag = r->walks;
    r->submitted += op->tag > 0;
}

/* A walk's parameters are copied once the next step's verdict is on its way, and
 * then slowly, so that its updates wait for slots. */
static bool hold_to_next_verdict(struct rank *r, const struct latch_op *op)
{
    return op->tag && r->sums <= op->tag && r->closed;
}

static void closed_to_the_end(struct rank *r, enum moment when, int unit)
{
    (void)unit;
    if (when == BEFORE_STEP)
        close_latch(r);
    if (when == BEFORE_DIGEST)
        open_latch(r);
}

/* A caller that never waits for parameters: the walk still uses the constants of
 * its own step. */
START_TEST(constants_are_the_steps)
{
    for (int stage = 0; stage <= 2; stage++) {
        struct trial t = {.config = {.stage = stage,
                                     .offload = ZERO_HOST,
                                     .chunk = 320,
                                     .chunk_slots = 2,
                                     .grad_slots = UNITS,
                                     .dtype = ZERO_BF16},
                          .ranks = 2,
                          .accumulate = 1,
                          .blind = true,
                          .random = (uint64_t)stage + 1,
                          .appended = count_walks,
                          .moment = closed_to_the_end,
                          .submitted = number_walks,
                          .withheld = hold_to_next_verdict};
        run_both(&t);
        ck_assert_int_eq(t.rank[0].sums, STEPS + 1);
        ck_assert_int_ge(t.rank[0].submitted, STEPS * t.rank[0].plan.chunks);
    }
}
END_TEST

/* ----------------------------------------------------- zero_write and its chunks */

/* Unit 0's last chunk is unit 1's first, and unit 1 is in use: when zero_write
 * returns, nobody copies parameters any more. */
static void write_beside(struct rank *r, enum moment when, int unit)
{
    float values[ELEMENTS];
    if (when != AFTER_ACQUIRE || unit != 1)
        return;
    for (int i = 0; i < ELEMENTS; i++)
        values[i] = 0.25f * noise(1, 0, i);
    int status = zero_write(r->z, 0, ZERO_MASTER, 0, ELEMENTS, values);
    pthread_mutex_lock(&r->lock);
    int64_t left = r->submitted - r->completed;
    pthread_mutex_unlock(&r->lock);
    if (status || left)
        error_set(&r->error, ZERO_ERR_STATE, "%d, %lld copies under way: %s", status,
                  (long long)left, zero_last_error(r->z));
}

START_TEST(write_returns_behind_its_copies)
{
    for (int stage = 0; stage <= 2; stage++) {
        struct trial t = {.config = {.stage = stage, .offload_optimizer = ZERO_HOST, .chunk = 320},
                          .ranks = 2,
                          .accumulate = 1,
                          .random = (uint64_t)stage + 1,
                          .submitted = count_copies,
                          .moment = write_beside};
        run(&t);
        ck_assert_int_gt(t.rank[0].submitted, 0);
    }
}
END_TEST

/* ------------------------------------------------------------ random lateness */

static void nothing_more(const struct trial *t)
{
    (void)t;
}

START_TEST(lateness_changes_nothing)
{
    const enum zero_place places[] = {ZERO_DEVICE, ZERO_HOST, ZERO_NVME};
    struct trial t = {.random = (uint64_t)_i + 1};
    each_nvme(&t, nothing_more);
    for (int i = 0; i < 24; i++) {
        struct trial other = {.ranks = 1 + i % 3,
                              .accumulate = 1 + (i + _i) % 3,
                              .random = (uint64_t)(_i * 100 + i + 1)};
        other.config = (struct zero_config){.stage = i % 4,
                                            .offload = places[(i / 4) % 3],
                                            .chunk = 320,
                                            .chunk_slots = 2 + _i,
                                            .gather_slots = 1 + _i + i % 3,
                                            .grad_slots = 1 + i % 3,
                                            .dtype = i / 12 ? ZERO_BF16 : ZERO_FP32};
        run_both(&other);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("asynchrony");
    TCase *c = tcase_create("latches");
    tcase_set_timeout(c, 20);
    tcase_add_test(c, reduce_returns_before_its_copy);
    tcase_add_test(c, step_returns_before_its_copies);
    tcase_add_test(c, slots_are_under_way_together);
    tcase_add_test(c, gathers_run_ahead);
    tcase_add_test(c, forward_waits_for_its_unit_alone);
    tcase_add_test(c, state_is_read_during_backward);
    tcase_add_test(c, constants_are_the_steps);
    tcase_add_test(c, write_returns_behind_its_copies);
    tcase_add_loop_test(c, lateness_changes_nothing, 0, 2);
    suite_add_tcase(s, c);
    return suite_run_all(s);
}
