// SPDX-License-Identifier: Apache-2.0
/*
 * The public interface beyond training: reads and writes of any element at any
 * stage and place, means, evaluation, plans, slots, and ranks that must agree.
 */
#include <check.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "offload/groups.h"
#include "src/engine.h"
#include "tests/support/deny.h"
#include "tests/support/random.h"
#include "tests/support/ranks.h"
#include "tests/support/suite.h"
#include "tests/support/toy.h"

static const struct zero_adam adam = {.lr = 0.05, .beta1 = .9, .beta2 = .95, .eps = 1e-8};

static int create(struct zero **z, struct zero_comm *comm, struct zero_config config)
{
    return toy_create(z, comm, config, false, &adam);
}

/* An engine alone, for the tests that need no ranks. */
static struct zero *alone(struct zero_config config)
{
    struct zero *z;
    int status = create(&z, NULL, config);
    ck_assert_msg(!status, "%s", zero_last_error(z));
    return z;
}

static struct zero_config place(int stage, enum zero_place offload, enum zero_dtype dtype)
{
    return (struct zero_config){.stage = stage, .offload = offload, .dtype = dtype, .chunk = 1088};
}

/* Ranks report here; the test's thread asserts. */
struct report {
    struct zero_config config;
    pthread_mutex_t lock;
    char text[256];
    int how; /* which case */
};

static void complain(struct report *r, const char *text)
{
    pthread_mutex_lock(&r->lock);
    if (!r->text[0])
        snprintf(r->text, sizeof(r->text), "%s", text);
    pthread_mutex_unlock(&r->lock);
}

static void run_ranks(int ranks, struct report *r,
                      void (*body)(int rank, struct zero_comm *comm, void *arg))
{
    pthread_mutex_init(&r->lock, NULL);
    ranks_run(ranks, body, r);
    const struct zero_config *c = &r->config;
    ck_assert_msg(!r->text[0], "stage %d, offload %d, dtype %d, %d ranks: %s", c->stage, c->offload,
                  c->dtype, ranks, r->text);
}

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            char text[256];                                                                        \
            snprintf(text, sizeof(text), "line %d: %s (%s)", __LINE__, #condition,                 \
                     zero_last_error(z));                                                          \
            complain(r, text);                                                                     \
            zero_destroy(z);                                                                       \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* --------------------------------------------------------- reads and writes */

/* Writes patterns over parts of tensors that cross shards and chunks, reads
 * them back with their surroundings, and sees the parameters follow. */
static void write_and_read(int rank, struct zero_comm *comm, void *arg)
{
    struct report *r = arg;
    struct zero *z;
    enum { TENSOR = 2, COUNT = 1300, FIRST = 100, LENGTH = 900 };
    float before[COUNT], after[COUNT], in[LENGTH], expected[COUNT];
    (void)rank;
    EXPECT(create(&z, comm, r->config) == ZERO_OK);
    EXPECT(!zero_acquire(z, 1) && !zero_release(z, 1)); /* leaves a copy that must go stale */
    for (int what = ZERO_MASTER; what <= ZERO_MOMENT2; what++) {
        for (int i = 0; i < LENGTH; i++)
            in[i] = (float)(i + 1000 * what) * 0.01f + 0.001f;
        EXPECT(!zero_read(z, TENSOR, (enum zero_what)what, 0, COUNT, before));
        EXPECT(!zero_write(z, TENSOR, (enum zero_what)what, FIRST, LENGTH, in));
        EXPECT(!zero_read(z, TENSOR, (enum zero_what)what, 0, COUNT, after));
        memcpy(expected, before, sizeof(before));
        memcpy(expected + FIRST, in, sizeof(in));
        EXPECT(!memcmp(after, expected, sizeof(after)));
        if (what == ZERO_MASTER) {
            EXPECT(!zero_acquire(z, 1));
            const void *w = zero_param_data(z, TENSOR);
            for (int i = 0; i < COUNT; i++) {
                float x = r->config.dtype == ZERO_FP32 ? ((const float *)w)[i] : 0;
                uint16_t half = 0;
                z->kernels->to_bf16(1, &expected[i], &half);
                EXPECT(r->config.dtype == ZERO_FP32 ? x == expected[i]
                                                    : ((const uint16_t *)w)[i] == half);
            }
            EXPECT(!zero_release(z, 1));
        }
    }
    EXPECT(!zero_read(z, 4, ZERO_MASTER, 0, 1, after));      /* a scalar, */
    EXPECT(!zero_read(z, TENSOR, ZERO_MASTER, 5, 0, after)); /* and nothing */
    zero_destroy(z);
}

START_TEST(reads_and_writes)
{
    for (int ranks = 1; ranks <= 3; ranks += 2)
        for (int offload = ZERO_DEVICE; offload <= ZERO_NVME; offload++)
            for (int dtype = ZERO_FP32; dtype <= ZERO_BF16; dtype++) {
                struct report r = {.config =
                                       place(_i, (enum zero_place)offload, (enum zero_dtype)dtype)};
                run_ranks(ranks, &r, write_and_read);
            }
}
END_TEST

/* A communicator may go on with memory behind a call that failed: it is never the program's. */
struct passing {
    float *out;
    int64_t count;
    bool seen;
};

static void see_passing(void *arg, const struct command *c)
{
    struct passing *p = arg;
    uintptr_t at = (uintptr_t)c->data, begin = (uintptr_t)p->out;
    p->seen |= p->out && c->data && at + (uintptr_t)c->bytes > begin &&
               at < begin + (uintptr_t)p->count * sizeof(float);
}

/* Reads what no single piece holds, but for its first and last elements. */
static void read_in_pieces(int rank, struct zero_comm *comm, void *arg)
{
    enum { ELEMENTS = 5 * ENGINE_PASSING + 300, FIRST = 70, COUNT = ELEMENTS - 75 };
    struct report *r = arg;
    struct zero *z;
    struct zero_normal normal = {.seed = 4, .stream = 2, .std = 1};
    struct zero_param param = {
        .name = "w", .ndim = 1, .shape = {ELEMENTS}, .fill = zero_fill_normal, .fill_arg = &normal};
    struct passing passing = {.count = COUNT};
    const struct engine_seams seams = {.observe = see_passing, .observe_arg = &passing};
    struct zero_config c = r->config;
    struct zero_stats stats;
    struct run own;
    c.size = sizeof(c), c.comm = comm, c.threads = 1;
    EXPECT(engine_create(&z, &param, 1, &c, &seams) == ZERO_OK);
    EXPECT(!zero_stats(z, &stats) && stats.sent_bytes == 0);
    float *expected = malloc(COUNT * sizeof(float));
    passing.out = calloc(COUNT, sizeof(float));
    EXPECT(!zero_fill_normal(&normal, FIRST, COUNT, expected));
    EXPECT(!zero_read(z, 0, ZERO_MASTER, FIRST, COUNT, passing.out));
    EXPECT(!memcmp(passing.out, expected, COUNT * sizeof(float)));
    EXPECT(!passing.seen);
    /* Each rank sends what it has of them to every other. */
    EXPECT(plan_run_of(&z->plan, &z->layout, 0, rank, &own));
    int64_t end = own.first + own.count < FIRST + COUNT ? own.first + own.count : FIRST + COUNT;
    int64_t sent = c.stage < 3 ? 0 : end - (own.first > FIRST ? own.first : FIRST);
    EXPECT(!zero_stats(z, &stats) && stats.sent_bytes == 4 * sent * (zero_size(z) - 1));
    free(expected);
    free(passing.out);
    zero_destroy(z);
}

START_TEST(reads_in_pieces)
{
    for (int stage = 0; stage <= 3; stage += 3)
        for (int ranks = 1; ranks <= 3; ranks++) {
            struct report r = {.config = place(stage, ZERO_HOST, ZERO_FP32)};
            r.config.chunk = 0;
            run_ranks(ranks, &r, read_in_pieces);
        }
}
END_TEST

/* Nor is what is summed on a stack that the call leaves. */
struct sums {
    struct zero *z;
    int seen, elsewhere;
};

static void see_sum(void *arg, const struct command *c)
{
    struct sums *sums = arg;
    sums->seen += c->kind == COMMAND_SUM;
    sums->elsewhere += c->kind == COMMAND_SUM && c->data != sums->z->verdict;
}

START_TEST(sums_have_memory_that_stays)
{
    struct sums sums = {0};
    const struct engine_seams seams = {.observe = see_sum, .observe_arg = &sums};
    const struct zero_config config = {.size = sizeof(config)};
    const struct zero_param param = {.name = "w", .ndim = 1, .shape = {100}};
    struct zero_digest digest;
    double value = 3, mean;
    ck_assert_int_eq(engine_create(&sums.z, &param, 1, &config, &seams), ZERO_OK);
    ck_assert_int_eq(zero_mean(sums.z, &value, 1, &mean), ZERO_OK);
    ck_assert_int_eq(zero_digest(sums.z, &digest), ZERO_OK);
    ck_assert_int_eq(sums.seen, 2);
    ck_assert_int_eq(sums.elsewhere, 0);
    zero_destroy(sums.z);
}
END_TEST

/* The gradient is the mean over ranks and micro-steps; readable before and
 * after its step. */
static void read_gradient(int rank, struct zero_comm *comm, void *arg)
{
    struct report *r = arg;
    struct zero *z;
    float before[3], after[3];
    EXPECT(create(&z, comm, r->config) == ZERO_OK);
    EXPECT(!zero_set_accumulate(z, 2));
    for (int a = 0; a < 2; a++)
        for (int u = TOY_UNITS - 1; u >= 0; u--) {
            float *g = u == 2 ? zero_grad_data(z, 5) : NULL;
            for (int i = 0; g && i < 3; i++)
                g[i] = (float)((rank + 1) * (i + 1) * (a + 1));
            EXPECT(!zero_reduce(z, u));
        }
    int n = zero_size(z);
    double sum = (double)n * (n + 1) / 2 * 3 / (2 * n);
    EXPECT(!zero_read(z, 5, ZERO_GRAD, 0, 3, before));
    for (int i = 0; i < 3; i++)
        EXPECT(fabs(before[i] - sum * (i + 1)) < 1e-5);
    struct zero_step_info info;
    EXPECT(!zero_step(z, &info));
    EXPECT(info.step == 1 && !info.skipped && info.factor == 1);
    EXPECT(fabs(info.norm - sum * sqrt(14)) < 1e-4);
    EXPECT(!zero_set_accumulate(z, 1)); /* not of the sums that are there */
    EXPECT(!zero_read(z, 5, ZERO_GRAD, 0, 3, after));
    EXPECT(!memcmp(before, after, sizeof(after)));
    if (rank == 0) /* what was refused is no call: the others need not make it */
        EXPECT(zero_write(z, 5, ZERO_GRAD, 0, 3, after) == ZERO_ERR_ARGUMENT);
    EXPECT(!zero_digest(z, &(struct zero_digest){0}));
    zero_destroy(z);
}

START_TEST(gradients)
{
    for (int stage = 0; stage <= 3; stage++)
        for (int offload = ZERO_DEVICE; offload <= ZERO_NVME; offload++) {
            struct report r = {.config = place(stage, (enum zero_place)offload, ZERO_FP32)};
            run_ranks(3, &r, read_gradient);
        }
}
END_TEST

/* ------------------------------------------------------- means, evaluation */

static void means(int rank, struct zero_comm *comm, void *arg)
{
    struct report *r = arg;
    struct zero *z;
    EXPECT(create(&z, comm, r->config) == ZERO_OK);
    /* Each rank brings another number of values; cancellation must be exact. */
    const double values[] = {1e30, 1, -1e30, 0x1p-200};
    double mean = 0;
    EXPECT(!zero_mean(z, values, rank == 0 ? 4 : 0, &mean));
    EXPECT(mean == 0.25);
    EXPECT(!zero_mean(z, &(double){rank + 1.0}, 1, &mean));
    EXPECT(mean == (zero_size(z) + 1) / 2.0);
    EXPECT(!zero_mean(z, &(double){rank ? 1.0 : NAN}, 1, &mean));
    EXPECT(isnan(mean));
    EXPECT(!zero_mean(z, &(double){rank ? 1.0 : 0x1p318}, 1, &mean));
    EXPECT(isnan(mean));
    EXPECT(!zero_mean(z, NULL, 0, &mean));
    EXPECT(isnan(mean));
    zero_destroy(z);
}

START_TEST(mean_is_exact)
{
    struct report r = {.config = place(1, ZERO_DEVICE, ZERO_FP32)};
    run_ranks(3, &r, means);
}
END_TEST

static void evaluate(int rank, struct zero_comm *comm, void *arg)
{
    struct report *r = arg;
    struct zero *z;
    double loss = 0;
    struct zero_digest with, without;
    EXPECT(create(&z, comm, r->config) == ZERO_OK);
    for (int evals = 0; evals < 2; evals++) {
        EXPECT(!toy_micro_step(z, rank, false, &loss));
        EXPECT(!zero_step(z, NULL));
    }
    EXPECT(!zero_digest(z, &without));
    EXPECT(!zero_phase(z, ZERO_EVAL));
    const int order[] = {2, 0, 1, 1, 0, 2, 2};
    for (int i = 0; i < 7; i++)
        EXPECT(!zero_acquire(z, order[i]) && !zero_release(z, order[i]));
    EXPECT(!zero_grad_data(z, 0) && strstr(zero_last_error(z), "ZERO_EVAL"));
    EXPECT(zero_reduce(z, 0) == ZERO_ERR_STATE);
    EXPECT(!zero_phase(z, ZERO_TRAIN));
    EXPECT(!zero_digest(z, &with));
    EXPECT(!memcmp(&with, &without, sizeof(with)));
    EXPECT(!toy_micro_step(z, rank, false, &loss));
    EXPECT(!zero_step(z, NULL));
    zero_destroy(z);
}

START_TEST(evaluation)
{
    for (int stage = 0; stage <= 3; stage++) {
        struct report r = {.config = place(stage, ZERO_NVME, ZERO_BF16)};
        run_ranks(2, &r, evaluate);
    }
}
END_TEST

/* -------------------------------------------------------------------- plans */

START_TEST(plan_is_what_is_allocated)
{
    struct zero_param params[TOY_TENSORS];
    toy_describe(params);
    for (int stage = 0; stage <= 3; stage++)
        for (int offload = ZERO_DEVICE; offload <= ZERO_NVME; offload++) {
            struct zero_config c = place(stage, (enum zero_place)offload, ZERO_BF16);
            struct zero_plan plan;
            char error[256];
            c.size = sizeof(c);
            ck_assert_int_eq(
                zero_plan_make(params, TOY_TENSORS, &c, 1, 1, &plan, error, sizeof(error)),
                ZERO_OK);
            struct zero *z = alone(c);
            struct zero_stats stats;
            ck_assert_int_eq(zero_stats(z, &stats), ZERO_OK);
            ck_assert(!memcmp(&stats.plan, &plan, sizeof(plan)));
            ck_assert_int_eq(z->arena.bytes, plan.host.total);
            ck_assert_int_eq(z->spill.bytes, plan.nvme.total);
            zero_destroy(z);
        }
}
END_TEST

START_TEST(device_memory_is_capped)
{
    setenv("ZERO_DEVICE_MEMORY", "30000", 1);
    struct zero *z;
    ck_assert_int_eq(create(&z, NULL, place(0, ZERO_DEVICE, ZERO_FP32)), ZERO_ERR_MEMORY);
    ck_assert_ptr_nonnull(strstr(zero_last_error(z), "30000"));
    ck_assert_int_eq(zero_acquire(z, 0), ZERO_ERR_MEMORY); /* and so it stays */
    zero_destroy(z);
    unsetenv("ZERO_DEVICE_MEMORY");
}
END_TEST

/* ---------------------------------------------------------------- wrong use */

/* What is finite as fp32 may be infinite as a parameter: at the first value that
 * is, it is refused, and the sentence names the last that is not. */
START_TEST(too_large_for_dtype)
{
    const struct {
        enum zero_dtype dtype;
        float least;
    } limits[] = {{ZERO_FP32, INFINITY}, {ZERO_BF16, 0x1.ffp127f}, {ZERO_FP16, 65520}};
    float least = limits[_i].least, below = nextafterf(least, 0);
    struct zero_param p = {.name = "p", .ndim = 1, .shape = {3}, .fill = zero_fill_constant};
    struct zero *z;
    p.fill_arg = &least;
    ck_assert_int_eq(zero_init(&z, &p, 1, .dtype = limits[_i].dtype), ZERO_ERR_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(zero_last_error(z), "to element 0"));
    const char *most = strstr(zero_last_error(z), "at most ");
    ck_assert(most && strtof(most + strlen("at most "), NULL) == below);
    zero_destroy(z);
    p.fill_arg = &below;
    ck_assert_int_eq(zero_init(&z, &p, 1, .dtype = limits[_i].dtype), ZERO_OK);
    float values[3] = {0, below, -least}, x[3];
    ck_assert_int_eq(zero_write(z, 0, ZERO_MASTER, 0, 3, values), ZERO_ERR_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(zero_last_error(z), "to element 2"));
    ck_assert_int_eq(zero_read(z, 0, ZERO_MASTER, 0, 3, x), ZERO_OK);
    ck_assert(!memcmp(x, (float[]){below, below, below}, sizeof(x)));
    ck_assert_int_eq(zero_write(z, 0, ZERO_MASTER, 0, 2, values), ZERO_OK);
    zero_destroy(z);
}
END_TEST

START_TEST(slots_run_out)
{
    struct zero_config c = {.stage = 3, .gather_slots = 2, .grad_slots = 2};
    struct zero *z = alone(c);
    ck_assert_int_eq(zero_acquire(z, 0), ZERO_OK);
    ck_assert_int_eq(zero_acquire(z, 0), ZERO_OK); /* nests */
    ck_assert_int_eq(zero_acquire(z, 1), ZERO_OK);
    ck_assert_int_eq(zero_acquire(z, 2), ZERO_ERR_STATE);
    ck_assert_ptr_nonnull(strstr(zero_last_error(z), ".gather_slots"));
    ck_assert_int_eq(zero_release(z, 1), ZERO_OK);
    ck_assert_int_eq(zero_acquire(z, 2), ZERO_OK);
    ck_assert_ptr_nonnull(zero_grad_data(z, 0));
    ck_assert_ptr_nonnull(zero_grad_data(z, 2));
    ck_assert_ptr_null(zero_grad_data(z, 5));
    ck_assert_ptr_nonnull(strstr(zero_last_error(z), ".grad_slots"));
    zero_destroy(z);
}
END_TEST

/* A program that forgets a release, for some twenty minutes. Its acquires are counted. */
START_TEST(acquires_nest_without_end)
{
    struct zero_stats stats;
    struct zero *z = alone((struct zero_config){.stage = _i});
    ck_assert_int_eq(zero_acquire(z, 0), ZERO_OK);
    z->schedule.units[0].acquired = INT_MAX;
    ck_assert_int_eq(zero_acquire(z, 0), ZERO_OK);
    ck_assert_int_eq(zero_stats(z, &stats), ZERO_OK);
    ck_assert_int_eq(stats.acquires, 2);
    ck_assert_int_eq(stats.served, _i ? 1 : 2); /* at stage 0 there is nothing to gather */
    ck_assert_ptr_nonnull(zero_param_data(z, 0));
    ck_assert_int_eq(zero_release(z, 0), ZERO_OK);
    ck_assert_int_eq(z->schedule.units[0].acquired, INT_MAX);
    zero_destroy(z);
}
END_TEST

static bool many_cpus, one_cpu;

/* The kernel's, the first of these alone, or that of one for more CPUs than a set has, three of
 * which are allowed. */
int sched_getaffinity(pid_t id, size_t size, cpu_set_t *set)
{
    memset(set, 0, size);
    if (!many_cpus) {
        int rc = syscall(SYS_sched_getaffinity, id, size, set) < 0 ? -1 : 0;
        for (size_t cpu = 0, seen = 0; one_cpu && cpu < 8 * size; cpu++)
            if (CPU_ISSET_S(cpu, size, set) && seen++)
                CPU_CLR_S(cpu, size, set);
        return rc;
    }
    if (size <= sizeof(*set)) {
        errno = EINVAL;
        return -1;
    }
    for (size_t cpu = 1000; cpu <= 3000; cpu += 1000)
        CPU_SET_S(cpu, size, set);
    return 0;
}

START_TEST(threads_on_many_cpus)
{
    uint64_t group;
    int quota = groups_cpus("", &group);
    struct zero_param param = {.name = "w", .ndim = 1, .shape = {1000}};
    struct zero_config c = {.size = sizeof(c), .log_level = ZERO_LOG_SILENT};
    struct zero_stats stats;
    struct zero *z;
    many_cpus = true;
    ck_assert_int_eq(zero_create(&z, &param, 1, &c), ZERO_OK);
    many_cpus = false;
    ck_assert_int_eq(zero_stats(z, &stats), ZERO_OK);
    ck_assert_int_eq(stats.threads, quota > 0 && quota < 3 ? quota : 3);
    zero_destroy(z);
}
END_TEST

static void count_threads(int rank, struct zero_comm *comm, void *arg)
{
    int *threads = arg;
    struct zero_param param = {.name = "w", .ndim = 1, .shape = {1000}};
    struct zero_stats stats;
    struct zero *z;
    int status = zero_init(&z, &param, 1, .comm = comm, .log_level = ZERO_LOG_SILENT);
    threads[rank] = !status && !zero_stats(z, &stats) ? stats.threads : -1;
    zero_destroy(z);
}

/* Ranks of a node that may use the same CPUs have a part of them each. */
START_TEST(threads_of_several_ranks)
{
    uint64_t group;
    int quota = groups_cpus("", &group);
    if (quota > 0 && quota < 3) {
        printf("skipped: threads of several ranks, with a quota of %d CPUs\n", quota);
        return;
    }
    for (int ranks = 1; ranks <= 3; ranks++) {
        int threads[3] = {0};
        many_cpus = true; /* three */
        ranks_run(ranks, count_threads, threads);
        many_cpus = false;
        for (int r = 0; r < ranks; r++)
            ck_assert_int_eq(threads[r], 3 / ranks);
    }
}
END_TEST

/* As many units as there are slots, acquired from none, fit in any order,
 * whatever the slots held before. */
START_TEST(any_units_fit)
{
    enum { UNITS = 6, SLOTS_MAX = 4, ROUNDS = 3000 };
    const int64_t sizes[UNITS] = {5000, 700, 700, 700, 300, 64};
    const int slots = _i + 1;
    struct zero_param params[UNITS];
    char names[UNITS][16];
    struct zero *z;
    for (int u = 0; u < UNITS; u++) {
        snprintf(names[u], sizeof(names[u]), "%d", u);
        params[u] =
            (struct zero_param){.name = names[u], .unit = u, .ndim = 1, .shape = {sizes[u]}};
    }
    ck_assert_int_eq(zero_init(&z, params, UNITS, .stage = 3, .gather_slots = slots), ZERO_OK);
    uint64_t random = 7;
    for (int round = 0; round < ROUNDS; round++) {
        int units[SLOTS_MAX],
            count = 1 + (int)((random = random_mix(random + 1)) % (unsigned)slots);
        for (int k = 0; k < count; k++) {
            units[k] = (int)((random = random_mix(random + 1)) % UNITS);
            ck_assert_msg(!zero_acquire(z, units[k]), "round %d, acquire %d, of unit %d: %s", round,
                          k + 1, units[k], zero_last_error(z));
        }
        for (int k = 0; k < count; k++)
            ck_assert_int_eq(zero_release(z, units[(k + round) % count]), ZERO_OK);
    }
    zero_destroy(z);
}
END_TEST

/* A group without hyper-parameters is found before anything is updated. */
START_TEST(adam_not_set)
{
    struct zero_param params[TOY_TENSORS];
    struct zero *z;
    double loss = 0;
    toy_describe(params);
    ck_assert_int_eq(zero_init(&z, params, TOY_TENSORS, .threads = 1), ZERO_OK);
    ck_assert_int_eq(zero_set_adam(z, 0, &adam), ZERO_OK);
    ck_assert_int_eq(toy_micro_step(z, 0, false, &loss), ZERO_OK);
    ck_assert_int_eq(zero_step(z, NULL), ZERO_ERR_STATE);
    ck_assert_ptr_nonnull(strstr(zero_last_error(z), "group 1"));
    ck_assert_int_eq(zero_set_adam(z, 0, &adam), ZERO_ERR_STATE);
    ck_assert_int_eq(zero_set_adam(z, 1, &adam), ZERO_OK); /* not too late for this one */
    ck_assert_int_eq(zero_step(z, NULL), ZERO_OK);
    zero_destroy(z);
}
END_TEST

/* ------------------------------------------------------ what a site refuses */

struct log {
    int lines;
    char last[512];
};

static void keep_log(void *arg, enum zero_log_level level, const char *line)
{
    struct log *log = arg;
    log->lines += level == ZERO_LOG_WARNING;
    snprintf(log->last, sizeof(log->last), "%s", line);
}

/* Where OpenMP has bound this thread to one of several CPUs the log says so, unless that is what
 * .threads asks for. */
/* As OpenMP's runtime would be here. */
int omp_get_num_threads(void);
int omp_get_num_threads(void)
{
    return 1;
}

START_TEST(a_bound_thread_is_told)
{
    static const struct {
        const char *bind;
        int threads, lines;
        bool one;
    } rows[] = {{"true", 0, 1, true},  {"close,spread", 0, 1, true},
                {"false", 0, 0, true}, {"FALSE", 0, 0, true},
                {"", 0, 0, true},      {NULL, 0, 0, true},
                {"true", 1, 0, true},  {"true", 0, 0, false}};
    struct zero_param param = {.name = "w", .ndim = 1, .shape = {1000}};
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
        printf("skipped: a bound thread, on one CPU\n");
        return;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct log log = {0};
        struct zero *z;
        one_cpu = rows[i].one;
        many_cpus = !one_cpu;
        unsetenv("OMP_PROC_BIND");
        ck_assert(!rows[i].bind || !setenv("OMP_PROC_BIND", rows[i].bind, 1));
        ck_assert_int_eq(
            zero_init(&z, &param, 1, .threads = rows[i].threads, .log = keep_log, .log_arg = &log),
            ZERO_OK);
        ck_assert_msg(log.lines == rows[i].lines, "%zu: '%s'", i, log.last);
        ck_assert(!log.lines || strstr(log.last, "OMP_PROC_BIND is 'true'") ||
                  strstr(log.last, "OMP_PROC_BIND is 'close,spread'"));
        zero_destroy(z);
    }
    many_cpus = one_cpu = false;
    unsetenv("OMP_PROC_BIND");
}
END_TEST

/* io_uring refused: pread and pwrite, said once and seen in the counters; but
 * an error when io_uring was asked for by name. */
START_TEST(no_io_uring)
{
    struct log log = {0};
    struct zero_stats stats;
    struct zero_config c = place(3, ZERO_NVME, ZERO_BF16);
    double loss = 0;
    if (!deny_call(SYS_io_uring_setup, 0, 0, 0, EPERM)) {
        printf("skipped: no seccomp here\n");
        return;
    }
    c.log = keep_log;
    c.log_arg = &log;
    struct zero *z = alone(c);
    ck_assert_int_eq(zero_stats(z, &stats), ZERO_OK);
    ck_assert_str_eq(stats.ring, "posix");
    ck_assert_int_eq(log.lines, 1);
    ck_assert_ptr_nonnull(strstr(log.last, "pread and pwrite"));
    ck_assert_int_eq(toy_micro_step(z, 0, false, &loss), ZERO_OK);
    ck_assert_int_eq(zero_step(z, NULL), ZERO_OK);
    zero_destroy(z);
    c.ring = ZERO_RING_URING;
    ck_assert_int_eq(create(&z, NULL, c), ZERO_ERR_UNSUPPORTED);
    ck_assert_msg(strstr(zero_last_error(z), "io_uring") != NULL, "%s", zero_last_error(z));
    zero_destroy(z);
}
END_TEST

/* ------------------------------------------------------- ranks that differ */

static int fails_where(void *arg, int64_t first, int64_t count, float *out)
{
    (void)first;
    memset(out, 0, (size_t)count * sizeof(*out));
    return *(const bool *)arg ? -1 : 0;
}

/* Ranks with other models, configurations or fills learn it at creation; a second
 * engine on the same communicator works. */
static void create_twice(int rank, struct zero_comm *comm, void *arg)
{
    struct report *r = arg;
    struct zero_param params[TOY_TENSORS];
    struct zero_config c = r->config;
    struct zero *z;
    double loss = 0;
    bool fails = rank == 1;
    const char *const says[] = {
        "Ranks differ in .chunk: rank ", "params[0] is 'embed (40, 37)", ".stage is 7",
        fails ? "The fill of tensor embed returned -1 " : "Rank 1: The fill of tensor embed "};
    toy_describe(params);
    if (r->how == 3) {
        params[0].fill = fails_where;
        params[0].fill_arg = &fails;
    }
    if (r->how == 0 && rank == 1)
        c.chunk = 64;
    if (r->how == 1 && rank == 1) { /* as many elements in another shape */
        params[0].shape[0] = 40;
        params[0].shape[1] = 37;
    }
    if (r->how == 2 && rank == 1)
        c.stage = 7;
    c.size = sizeof(c);
    c.comm = comm;
    c.threads = 1;
    int status = zero_create(&z, params, TOY_TENSORS, &c);
    EXPECT(status == (r->how >= 2 ? ZERO_ERR_ARGUMENT : ZERO_ERR_MISMATCH));
    EXPECT(strstr(zero_last_error(z), says[r->how]));
    zero_destroy(z);
    EXPECT(!create(&z, comm, r->config));
    EXPECT(!toy_micro_step(z, rank, false, &loss) && !zero_step(z, NULL));
    zero_destroy(z);
}

START_TEST(creation_is_agreed)
{
    struct report r = {.config = place(3, ZERO_NVME, ZERO_BF16), .how = _i};
    run_ranks(3, &r, create_twice);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("engine");
    TCase *c = tcase_create("interface");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, reads_and_writes, 0, 4);
    tcase_add_test(c, reads_in_pieces);
    tcase_add_test(c, sums_have_memory_that_stays);
    tcase_add_test(c, gradients);
    tcase_add_test(c, mean_is_exact);
    tcase_add_test(c, evaluation);
    tcase_add_test(c, plan_is_what_is_allocated);
    tcase_add_test(c, device_memory_is_capped);
    tcase_add_loop_test(c, too_large_for_dtype, 0, 3);
    tcase_add_test(c, slots_run_out);
    tcase_add_loop_test(c, acquires_nest_without_end, 0, 4);
    tcase_add_test(c, threads_on_many_cpus);
    tcase_add_test(c, threads_of_several_ranks);
    tcase_add_test(c, a_bound_thread_is_told);
    tcase_add_test(c, adam_not_set);
    tcase_add_test(c, no_io_uring);
    tcase_add_loop_test(c, creation_is_agreed, 0, 4);
    tcase_add_loop_test(c, any_units_fit, 0, 4);
    suite_add_tcase(s, c);
    return suite_run_all(s);
}
