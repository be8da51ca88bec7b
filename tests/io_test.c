// SPDX-License-Identifier: Apache-2.0
/*
 * What the engine tells of its work: the bytes of each step against the plan's
 * formula, and the trace's spans against the bytes. Times are looked at for
 * order alone.
 */
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/clock.h"
#include "src/thread.h"
#include "tests/support/latch.h"
#include "tests/support/ranks.h"
#include "tests/support/suite.h"
#include "tests/support/toy.h"

#define STEPS 6
#define SPANS 20000

#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            char text[160];                                                                        \
            snprintf(text, sizeof(text), __VA_ARGS__);                                             \
            ck_abort_msg("row %d, rank %d: %s: %s; %s", row, zero_rank(z), #condition, text,       \
                         zero_last_error(z));                                                      \
        }                                                                                          \
    } while (0)

/* One run, equal on all ranks. */
struct setting {
    struct zero_config config;
    int row, ranks, micro;
    bool rare;                        /* the toy with frozen and empty tensors */
    bool eval;                        /* units are acquired in ZERO_EVAL before each step */
    bool drop;                        /* a micro-step is discarded before each step */
    int skipped;                      /* this step (from 1) has an infinite gradient; 0: none */
    const struct engine_seams *seams; /* may be NULL */
};

/* A rank's spans: the engine's thread writes, the caller reads what was done
 * before it waited. */
struct trace {
    struct zero_span span[SPANS];
    int count, created; /* at the end of zero_create */
    int late;           /* spans that were told before their end, or long after */
};

static void keep(void *arg, const struct zero_span *span)
{
    struct trace *t = arg;
    double seen = seconds_now();
    t->late += span->end > seen || span->end < seen - 10;
    if (t->count < SPANS)
        t->span[t->count] = *span;
    t->count++;
}

static int create(struct zero **z, struct zero_comm *comm, const struct setting *s,
                  struct trace *trace)
{
    const struct zero_adam adam = {.lr = 0.05, .beta1 = .9, .beta2 = .95, .eps = 1e-8};
    struct zero_param params[TOY_TENSORS_ALL];
    struct zero_config config = s->config;
    config.size = sizeof(config);
    config.comm = comm;
    config.threads = 1;
    config.accumulate = s->micro;
    config.trace = trace ? keep : NULL;
    config.trace_arg = trace;
    toy_describe_all(params);
    int status =
        engine_create(z, params, s->rare ? TOY_TENSORS_ALL : TOY_TENSORS, &config, s->seams);
    for (int g = 0; !status && g < 2; g++)
        status = zero_set_adam(*z, g, &adam);
    return status;
}

/* ------------------------------------------------------------- a step's bytes */

/* What each step must have moved. */
struct expected {
    int64_t gathers[STEPS];
    struct zero_io io[STEPS]; /* what the engine said, when it was complete */
    bool skipped[STEPS];
};

static void one_step(struct zero *z, const struct setting *s, int step, struct expected *e)
{
    int row = s->row, units = z->layout.units;
    struct zero_stats before, after;
    struct zero_step_info info;
    double loss = 0;
    EXPECT(!zero_stats(z, &before), "stats");
    if (s->eval) {
        EXPECT(!zero_phase(z, ZERO_EVAL), "phase");
        for (int u = 0; u < units; u++)
            EXPECT(!zero_acquire(z, u) && !zero_release(z, u), "unit %d", u);
        EXPECT(!zero_phase(z, ZERO_TRAIN), "phase");
    }
    if (s->drop)
        EXPECT(!toy_micro_step(z, 500 + step, true, &loss) && !zero_discard(z), "discard");
    for (int a = 0; a < s->micro; a++) {
        int batch = (step * s->micro + a) * s->ranks + zero_rank(z);
        bool poison = step + 1 == s->skipped && a == 0 && zero_rank(z) == 0;
        EXPECT(!toy_micro_step(z, batch, poison, &loss), "batch %d", batch);
    }
    EXPECT(!zero_step(z, &info), "step %d", step);
    EXPECT(!zero_stats(z, &after), "stats");
    e->gathers[step] = after.gathers - before.gathers;
    e->skipped[step] = info.skipped;
    if (step > 0)
        e->io[step - 1] = after.step_io[0];
}

/* An update reads and writes what the plan says. A step that is skipped has read
 * the first chunks already, and the next one finds them there. */
static void expect_update(struct zero *z, const struct setting *s, const struct expected *e)
{
    const struct zero_plan *p = &z->plan.report;
    int row = s->row;
    int64_t early = 0;
    for (int n = 0; n < STEPS; n++) {
        const struct zero_io *io = &e->io[n];
        int64_t written = io->state_written + io->param_written;
        EXPECT(written == (e->skipped[n] ? 0 : p->written_bytes), "step %d wrote %lld, not %lld", n,
               (long long)written, (long long)p->written_bytes);
        if (e->skipped[n]) {
            EXPECT(early == 0 && io->state_read <= p->read_bytes, "step %d", n);
            early = io->state_read;
            continue;
        }
        EXPECT(io->state_read == p->read_bytes - early, "step %d read %lld, not %lld - %lld", n,
               (long long)io->state_read, (long long)p->read_bytes, (long long)early);
        early = 0;
    }
}

/* Every unit as often as the others: the plan's bytes as often. */
static void expect_gathers(struct zero *z, const struct setting *s, const struct expected *e)
{
    const struct zero_plan *p = &z->plan.report;
    int row = s->row, units = z->layout.units;
    for (int n = 0; n < STEPS; n++) {
        EXPECT(n == 0 || e->skipped[n - 1] || e->gathers[n] == units, "step %d gathered %lld", n,
               (long long)e->gathers[n]);
        int64_t bytes = p->param_read_bytes * e->gathers[n] / units;
        EXPECT(e->io[n].param_read == bytes, "step %d read %lld of parameters, not %lld", n,
               (long long)e->io[n].param_read, (long long)bytes);
    }
}

static void io_body(int rank, struct zero_comm *comm, void *arg)
{
    const struct setting *s = arg;
    int row = s->row;
    struct expected *e = calloc(1, sizeof(*e));
    struct zero_digest digest;
    struct zero_stats stats;
    struct zero_io sum = {0};
    struct zero *z;
    (void)rank;
    EXPECT(!create(&z, comm, s, NULL), "create");
    EXPECT(!zero_stats(z, &stats), "stats");
    int64_t filled = stats.io.state_written + stats.io.param_written;
    EXPECT(filled == stats.plan.nvme.total, "%lld", (long long)filled);
    for (int n = 0; n < STEPS; n++)
        one_step(z, s, n, e);
    int64_t steps_asked = (int64_t)STEPS;
    EXPECT(!zero_digest(z, &digest) && !zero_stats(z, &stats), "digest");
    EXPECT(stats.steps + stats.skipped == steps_asked, "%lld", (long long)stats.steps);
    e->io[STEPS - 1] = stats.step_io[1];
    EXPECT(!memcmp(&stats.step_io[0], &e->io[STEPS - 2], sizeof(sum)), "the last but one");
    expect_update(z, s, e);
    if (!s->rare && s->config.gather_slots >= 3)
        expect_gathers(z, s, e);
    for (int n = 0; n < STEPS; n++) {
        sum.state_read += e->io[n].state_read;
        sum.param_read += e->io[n].param_read;
        sum.state_written += e->io[n].state_written;
        sum.param_written += e->io[n].param_written;
    }
    EXPECT(sum.param_read == stats.io.param_read, "%lld", (long long)sum.param_read);
    EXPECT(sum.state_written + sum.param_written + filled ==
               stats.io.state_written + stats.io.param_written,
           "%lld", (long long)sum.state_written);
    EXPECT(sum.state_read <= stats.io.state_read, "the digest reads more"); /* and is the next's */
    zero_destroy(z);
    free(e);
}

static struct setting setting(int row)
{
    const int64_t shares[] = {0, 0, 15000, 1 << 30};
    struct setting s = {.row = row, .ranks = 1 + row % 2, .micro = 1 + row / 2 % 2};
    struct zero_config *c = &s.config;
    int format = row / 4 % 3;
    c->stage = row % 5 == 4 ? 1 : 3;
    c->offload = ZERO_NVME;
    c->dtype = format ? ZERO_BF16 : ZERO_FP32;
    c->state = format == 2 ? ZERO_STATE_SPLIT : ZERO_STATE_FP32;
    c->host_bytes = shares[row / 12 % 4];
    c->chunk = row % 3 ? 320 : 1088;
    c->chunk_slots = 2 + row % 4;
    c->gather_slots = row % 7 == 6 ? 2 : 4;
    s.rare = row / 3 % 4 == 3;
    return s;
}

START_TEST(steps_are_exact)
{
    for (int row = 0; row < 48; row++) {
        struct setting s = setting(row);
        ranks_run(s.ranks, io_body, &s);
    }
}
END_TEST

/* In between come evaluations, discarded micro-steps and skipped steps. */
START_TEST(steps_are_exact_in_between)
{
    for (int row = 0; row < 48; row++) {
        struct setting s = setting(row);
        s.eval = row % 2 || row % 3 == 0;
        s.drop = row % 4 == 1;
        s.skipped = row % 3 ? 2 + row % 4 : 0;
        ranks_run(s.ranks, io_body, &s);
    }
}
END_TEST

/* Parameters and state in different places: each kind is counted as what it is. */
START_TEST(places_are_told_apart)
{
    for (int row = 0; row < 3 * 3 * 3; row++) {
        struct setting s = setting(4 * (row / 9));
        s.row = row;
        s.config.stage = 3;
        s.config.offload_optimizer = (enum zero_place)(ZERO_DEVICE + row % 3);
        s.config.offload_param = (enum zero_place)(ZERO_DEVICE + row / 3 % 3);
        s.config.host_bytes = 0;
        s.rare = false;
        ranks_run(2, io_body, &s);
    }
}
END_TEST

/* The ring withholds reads from the start of a step that will be skipped until
 * the next zero_step is under way. */
struct slow {
    struct latch latch;
    atomic_bool hold, stepping;
};

static bool withheld(void *arg, const struct latch_op *op)
{
    struct slow *s = arg;
    return op->kind == LATCH_RING && !op->request->write && atomic_load(&s->hold);
}

static void *let_go(void *arg)
{
    struct slow *s = arg;
    const struct timespec while_ = {.tv_nsec = 50000000};
    while (!atomic_load(&s->stepping))
        sched_yield();
    nanosleep(&while_, NULL);
    atomic_store(&s->hold, false);
    latch_wake(&s->latch);
    return NULL;
}

/* However late they are, a step's bytes are complete when the next one ends. */
START_TEST(late_reads_of_a_skipped_step)
{
    struct slow s = {.latch = {.withheld = withheld}};
    struct setting set = {.config = {.offload_optimizer = ZERO_NVME, .chunk = 320}, .micro = 1};
    struct zero_step_info info;
    struct zero_stats stats;
    struct zero *z;
    pthread_t thread;
    double loss = 0;
    int row = 0;
    s.latch.arg = &s;
    set.seams = latch_seams(&s.latch);
    EXPECT(!create(&z, NULL, &set, NULL), "create");
    EXPECT(!toy_micro_step(z, 1, false, &loss) && !zero_step(z, NULL), "one");
    do {
        sched_yield();
        EXPECT(!zero_stats(z, &stats), "stats");
    } while (stats.io.state_written < 2 * stats.plan.written_bytes); /* initial values, one */
    atomic_store(&s.hold, true);
    EXPECT(!toy_micro_step(z, 2, true, &loss) && !zero_step(z, &info) && info.skipped, "two");
    EXPECT(!toy_micro_step(z, 3, false, &loss), "three");
    EXPECT(!zero_stats(z, &stats) && stats.step_io[1].state_read == 0, "withheld");
    ck_assert_int_eq(thread_start(&thread, let_go, &s), 0);
    atomic_store(&s.stepping, true);
    EXPECT(!zero_step(z, &info) && !info.skipped && !zero_stats(z, &stats), "three");
    EXPECT(stats.step_io[0].state_read > 0, "of the skipped step");
    pthread_join(thread, NULL);
    EXPECT(!zero_digest(z, &(struct zero_digest){0}) && !zero_stats(z, &stats), "wait");
    EXPECT(stats.step_io[0].state_read + stats.step_io[1].state_read == stats.plan.read_bytes,
           "%lld + %lld", (long long)stats.step_io[0].state_read,
           (long long)stats.step_io[1].state_read);
    zero_destroy(z);
}
END_TEST

/* -------------------------------------------------------------------- the trace */

/* The names of a lane's work. */
static const char *const names[ZERO_LANES][8] = {
    [ZERO_LANE_COMM] = {"gather", "accumulate", "reduce", "gather-sums", "sum", "broadcast",
                        "exchange"},
    [ZERO_LANE_PARAM_DISK] = {"param-read"},
    [ZERO_LANE_STATE_DISK] = {"state-read", "state-write", "param-write", "param-fetch"},
    [ZERO_LANE_UPDATE] = {"update"},
    [ZERO_LANE_TO_DEVICE] = {"copy-param", "copy-sum-in", "copy-grad", "copy-fetch",
                             "copy-publish"},
    [ZERO_LANE_TO_HOST] = {"copy-sum-out", "copy-grad", "copy-fetch", "copy-publish"},
};

static bool named(const struct zero_span *span)
{
    for (int i = 0; i < 8 && names[span->lane][i]; i++)
        if (!strcmp(names[span->lane][i], span->name))
            return true;
    return false;
}

static bool is(const struct zero_span *span, const char *name)
{
    return !strcmp(span->name, name);
}

static void expect_spans(struct zero *z, const struct setting *s, const struct trace *t,
                         double began)
{
    int row = s->row;
    double last = began;
    for (int i = 0; i < t->count; i++) {
        const struct zero_span *span = &t->span[i];
        EXPECT((int)span->lane >= 0 && span->lane < ZERO_LANES, "span %d", i);
        EXPECT(named(span), "%s on %s", span->name, zero_lane_name(span->lane));
        EXPECT(span->begin >= began && span->begin <= span->end, "span %d, %s", i, span->name);
        EXPECT(span->end >= last, "span %d, %s", i, span->name);
        last = span->end;
        EXPECT(span->step >= 0 && span->step <= STEPS, "span %d", i);
        EXPECT(i >= t->created || span->step == 0, "span %d", i);
        EXPECT(span->bytes >= 0, "span %d, %s", i, span->name);
        bool unit = is(span, "gather") || is(span, "reduce") || is(span, "param-read");
        EXPECT(unit ? span->unit >= 0 && span->unit < z->layout.units : span->unit >= -1,
               "span %d, %s, unit %d", i, span->name, span->unit);
        bool chunk = span->lane == ZERO_LANE_STATE_DISK || is(span, "update");
        EXPECT(chunk ? span->chunk >= 0 && span->chunk < z->plan.chunks : span->chunk >= -1,
               "span %d, %s, chunk %d", i, span->name, (int)span->chunk);
    }
    EXPECT(t->late == 0, "%d spans", t->late);
}

/* The spans' bytes are the steps' bytes. */
static void expect_span_bytes(struct zero *z, const struct setting *s, const struct trace *t,
                              const struct expected *e)
{
    struct zero_io io[STEPS + 1] = {{0}};
    int row = s->row;
    for (int i = t->created; i < t->count; i++) {
        const struct zero_span *span = &t->span[i];
        struct zero_io *of = &io[span->step];
        if (span->lane == ZERO_LANE_PARAM_DISK)
            of->param_read += span->bytes;
        else if (is(span, "state-read") || is(span, "param-fetch"))
            of->state_read += span->bytes;
        else if (is(span, "state-write"))
            of->state_written += span->bytes;
        else if (is(span, "param-write"))
            of->param_written += span->bytes;
    }
    for (int n = 0; n < STEPS; n++)
        EXPECT(!memcmp(&io[n], &e->io[n], sizeof(*io)),
               "step %d: spans read %lld %lld, the step %lld %lld", n, (long long)io[n].state_read,
               (long long)io[n].param_read, (long long)e->io[n].state_read,
               (long long)e->io[n].param_read);
}

static void expect_lanes(struct zero *z, const struct setting *s, const struct trace *t,
                         const struct zero_stats *stats, double began)
{
    int row = s->row;
    double seconds = seconds_now() - began;
    EXPECT((stats->sent_bytes > 0) == (s->ranks > 1), "%lld bytes sent",
           (long long)stats->sent_bytes);
    for (int lane = 0; lane < ZERO_LANES; lane++) {
        const struct zero_lane_stats *l = &stats->lanes[lane];
        int64_t bytes = 0;
        int n = 0;
        for (int i = 0; i < t->count; i++)
            if ((int)t->span[i].lane == lane) {
                bytes += t->span[i].bytes;
                n++;
            }
        EXPECT(l->bytes == bytes, "%s: %lld, spans %lld", zero_lane_name(lane), (long long)l->bytes,
               (long long)bytes);
        EXPECT(l->busy_seconds <= seconds && (l->busy_seconds > 0) == (n > 0), "%s: %g of %g s",
               zero_lane_name(lane), l->busy_seconds, seconds);
    }
    EXPECT(stats->to_device_bytes == stats->lanes[ZERO_LANE_TO_DEVICE].bytes &&
               stats->to_host_bytes == stats->lanes[ZERO_LANE_TO_HOST].bytes,
           "copied %lld in, %lld out", (long long)stats->to_device_bytes,
           (long long)stats->to_host_bytes);
}

static int earlier(const void *a, const void *b)
{
    double x = ((const struct zero_span *)a)->begin, y = ((const struct zero_span *)b)->begin;
    return (x > y) - (x < y);
}

/* Time in which a transfer was under way counts once, however many there were. */
static void expect_files_seconds(struct zero *z, const struct setting *s, struct trace *t,
                                 double files_seconds)
{
    double seconds = 0, until = 0;
    int row = s->row;
    qsort(t->span, (size_t)t->count, sizeof(*t->span), earlier);
    for (int i = 0; i < t->count; i++) {
        const struct zero_span *span = &t->span[i];
        if (span->lane != ZERO_LANE_PARAM_DISK && span->lane != ZERO_LANE_STATE_DISK)
            continue;
        double from = span->begin > until ? span->begin : until;
        seconds += span->end > from ? span->end - from : 0;
        until = span->end > until ? span->end : until;
    }
    EXPECT(fabs(files_seconds - seconds) < 1e-8 * (1 + t->count), "files: %.9f, spans %.9f s",
           files_seconds, seconds);
}

/* Updates, verdicts and reductions belong to the step that asked for them. */
static void expect_work(struct zero *z, const struct setting *s, const struct trace *t)
{
    int updates[STEPS + 1] = {0}, sums[STEPS + 1] = {0}, reduces[STEPS + 1] = {0}, row = s->row;
    int64_t chunks[STEPS + 1] = {0}, units[STEPS + 1] = {0}, live = z->plan.live; /* added up */
    for (int i = t->created; i < t->count; i++) {
        const struct zero_span *span = &t->span[i];
        updates[span->step] += is(span, "update");
        sums[span->step] += is(span, "sum");
        reduces[span->step] += is(span, "reduce");
        chunks[span->step] += is(span, "update") ? span->chunk : 0;
        units[span->step] += is(span, "reduce") ? span->unit : 0;
    }
    for (int n = 0; n < STEPS; n++) {
        EXPECT(updates[n] == live && chunks[n] == live * (live - 1) / 2, "step %d: %d updates", n,
               updates[n]);
        EXPECT(sums[n] == 1, "step %d: %d sums", n, sums[n]);
        EXPECT(reduces[n] == 3 * s->micro && units[n] == (0 + 1 + 2) * s->micro,
               "step %d: %d reductions", n, reduces[n]);
    }
    EXPECT(updates[STEPS] == z->plan.chunks && sums[STEPS] == 1, "%d of the digest",
           updates[STEPS]);
}

static void trace_body(int rank, struct zero_comm *comm, void *arg)
{
    const struct setting *s = arg;
    struct trace *t = calloc(1, sizeof(*t));
    struct expected *e = calloc(1, sizeof(*e));
    struct zero_digest digest;
    struct zero_stats stats;
    struct zero *z;
    int row = s->row;
    double began = seconds_now();
    (void)rank;
    EXPECT(!create(&z, comm, s, t), "create");
    t->created = t->count;
    for (int n = 0; n < STEPS; n++)
        one_step(z, s, n, e);
    EXPECT(!zero_digest(z, &digest) && !zero_stats(z, &stats), "digest");
    e->io[STEPS - 1] = stats.step_io[1];
    EXPECT(t->count > 20 * STEPS && t->count < SPANS, "%d spans", t->count);
    expect_spans(z, s, t, began);
    expect_span_bytes(z, s, t, e);
    expect_lanes(z, s, t, &stats, began);
    expect_work(z, s, t);
    expect_files_seconds(z, s, t, stats.files_seconds);
    int count = t->count + (z->size > 1); /* the ranks leave together */
    zero_destroy(z);
    z = NULL;
    EXPECT(t->count == count, "nothing was left to do");
    free(e);
    free(t);
}

START_TEST(spans)
{
    for (int row = 0; row < 24; row++) {
        struct setting s = setting(row);
        s.rare = false;
        s.eval = row % 3 == 0;
        s.config.stage = 3;
        if (row % 4 == 3) { /* all lanes: Adam on the host, the rest on the device */
            s.config.offload_param = ZERO_HOST;
            s.config.offload_grad = ZERO_DEVICE;
        }
        ranks_run(s.ranks, trace_body, &s);
    }
}
END_TEST

START_TEST(lane_names)
{
    for (int a = 0; a < ZERO_LANES; a++)
        for (int b = 0; b < a; b++)
            ck_assert_str_ne(zero_lane_name(a), zero_lane_name(b));
    ck_assert_str_eq(zero_lane_name(ZERO_LANE_COMM), "comm");
    ck_assert_str_eq(zero_lane_name(ZERO_LANE_PARAM_DISK), "param-disk");
    ck_assert_str_eq(zero_lane_name(ZERO_LANE_STATE_DISK), "state-disk");
    ck_assert_str_eq(zero_lane_name(ZERO_LANE_UPDATE), "update");
    ck_assert_str_eq(zero_lane_name(ZERO_LANE_TO_DEVICE), "to-device");
    ck_assert_str_eq(zero_lane_name(ZERO_LANE_TO_HOST), "to-host");
    ck_assert_str_eq(zero_lane_name(-1), "unknown");
    ck_assert_str_eq(zero_lane_name(ZERO_LANES), "unknown");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("bytes of a step");
    TCase *c = tcase_create("step_io");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, steps_are_exact);
    tcase_add_test(c, steps_are_exact_in_between);
    tcase_add_test(c, places_are_told_apart);
    tcase_add_test(c, late_reads_of_a_skipped_step);
    suite_add_tcase(s, c);
    c = tcase_create("trace");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, spans);
    tcase_add_test(c, lane_names);
    suite_add_tcase(s, c);
    return suite_run_all(s);
}
