// SPDX-License-Identifier: Apache-2.0
/*
 * NCCL as a communicator, on fake GPUs (tests/support/fake_nccl.h): the contract suite with
 * ranks that are threads as control channel, and with TCP between them; what fails in its
 * making, in its work and at its end; ranks that are lost without a word. That engines over
 * it end in the CPU's bits is in tests/cuda_test.c.
 */
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/bf16.h"
#include "kernels/fp16.h"
#include "src/clock.h"
#include "src/comm/nccl.h"
#include "src/comm/nccl_api.h"
#include "src/comm/tcp.h"
#include "tests/support/comm_suite.h"
#include "tests/support/comm_threads.h"
#include "tests/support/fake_cuda_parts.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/suite.h"
#include "tests/support/tcp_ranks.h"

#define RANKS_MAX FAKE_CUDA_GPUS_MAX
#define PATIENCE  40.0 /* seconds until a test is taken to hang */

static void must(cudaError_t rc)
{
    ck_assert_msg(rc == cudaSuccess, "%s", cudaGetErrorName(rc));
}

/* --------------------------------------------------- memory for the suite */

static void *unit_alloc(int64_t bytes)
{
    void *memory = NULL;
    must(cudaMalloc(&memory, (size_t)bytes));
    return memory;
}

static void unit_free(void *memory)
{
    must(cudaFree(memory));
}

struct later {
    void (*body)(void *arg);
    long long arg[]; /* aligned for all */
};

static void later_run(void *arg)
{
    struct later *l = arg;
    l->body(l->arg);
    free(l);
}

static void unit_later(void *stream, void (*body)(void *arg), const void *arg, size_t bytes)
{
    struct later *l = malloc(sizeof(*l) + bytes);
    ck_assert_ptr_nonnull(l);
    l->body = body;
    memcpy(l->arg, arg, bytes);
    must(cudaLaunchHostFunc(stream, later_run, l));
}

static void unit_settle(void *stream)
{
    must(cudaStreamSynchronize(stream));
}

static const struct comm_memory units = {unit_alloc, unit_free, unit_later, unit_settle};

/* -------------------------------------------------------------------- ranks */

struct trial {
    int ranks;
    struct comm_threads *control;
    char id[COMM_NCCL_ID];
    pthread_barrier_t all;
    const struct comm_scenario *scenario;
    void (*body)(struct trial *run, struct zero_comm *comm, void *stream, int rank);
    uint64_t seed;
    int64_t bytes; /* of a communicator's own */
    bool tcp;      /* between them, as control channel */
    bool hear;     /* whether ranks but the first are patient */
    bool idle;     /* whether the last one gives up when all others have */
    struct comm_world world[RANKS_MAX];
    int status[RANKS_MAX], missing[RANKS_MAX];
    bool done[RANKS_MAX];
    char text[RANKS_MAX][496];
};

struct worker {
    pthread_t thread;
    struct trial *run;
    int rank;
};

static void barrier(void *arg)
{
    pthread_barrier_wait(arg);
}

static void *worker_main(void *arg)
{
    const struct worker *w = arg;
    struct trial *run = w->run;
    struct zero_comm *control = comm_threads_rank(run->control, w->rank), *comm;
    const struct job job = tcp_job(w->rank, run->ranks);
    struct error error = {0};
    cudaStream_t stream;
    if (run->tcp)
        ck_assert_msg(!comm_tcp_create(&job, TCP_PATIENCE, &control, &error), "%s", error.text);
    must(cudaSetDevice(w->rank));
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (comm_nccl_create(&comm, control, run->id, &error)) {
        run->status[w->rank] = error.status;
        snprintf(run->text[w->rank], sizeof(run->text[0]), "%s", error.text);
        control->ops->abort(control, 1);
    } else if (run->scenario) {
        struct comm_world *world = &run->world[w->rank];
        *world = (struct comm_world){.comm = comm,
                                     .barrier = barrier,
                                     .barrier_arg = &run->all,
                                     .seed = run->seed,
                                     .operations = 60,
                                     .units = &units,
                                     .stream = stream};
        run->scenario->run(world);
        comm = world->comm;
    } else {
        run->body(run, comm, stream, w->rank);
    }
    if (comm)
        comm->ops->destroy(comm);
    if (run->tcp)
        control->ops->destroy(control);
    must(cudaStreamDestroy(stream));
    return NULL;
}

static void run_ranks(struct trial *run, struct fault *fault)
{
    const struct fake_cuda_options cuda = {.gpus = RANKS_MAX, .seed = run->seed};
    const struct fake_nccl_options nccl = {
        .seed = run->seed, .bytes = run->bytes, .fault = fault, .together = run->idle};
    struct worker workers[RANKS_MAX];
    struct error error = {0};
    fake_plain_memory = true;
    fake_cuda_start(&cuda);
    fake_nccl_start(&nccl);
    run->control = comm_threads_create(run->ranks);
    if (!run->id[0])
        ck_assert_int_eq(comm_nccl_id(run->id, &error), ZERO_OK);
    pthread_barrier_init(&run->all, NULL, (unsigned)run->ranks);
    for (int r = 0; r < run->ranks; r++) {
        workers[r] = (struct worker){.run = run, .rank = r};
        ck_assert_int_eq(pthread_create(&workers[r].thread, NULL, worker_main, &workers[r]), 0);
    }
    for (int r = 0; r < run->ranks; r++)
        pthread_join(workers[r].thread, NULL);
    pthread_barrier_destroy(&run->all);
    comm_threads_destroy(run->control);
    fake_cuda_stop();
    fake_nccl_stop();
    ck_assert_int_eq(fake_cuda_reported(FAKE_CUDA_REPORTS), 0);
    ck_assert_int_eq(fake_nccl_reported(FAKE_NCCL_REPORTS), 0);
}

/* -------------------------------------------------------------- the contract */

static void expect_contract(int i, bool tcp)
{
    struct trial run = {
        .ranks = 1 + i % RANKS_MAX, .scenario = &comm_scenarios[i / RANKS_MAX], .tcp = tcp};
    if (tcp && run.ranks < 2)
        return;
    for (run.seed = suite_short(); run.seed < (suite_short() ? 2 : 3); run.seed++) {
        run.id[0] = '\0';
        run_ranks(&run, NULL);
        for (int r = 0; r < run.ranks; r++)
            ck_assert_msg(!run.world[r].text[0], "%s, rank %d of %d: %s", run.scenario->name, r,
                          run.ranks, run.world[r].text);
    }
}

START_TEST(nccl_keeps_the_contract)
{
    expect_contract(_i, false);
}
END_TEST

START_TEST(nccl_over_tcp_keeps_the_contract)
{
    expect_contract(_i, true);
}
END_TEST

/* ------------------------------------------------------------------ its sums */

#define ADDED 1100 /* elements of a part: pieces, and a last one that is shorter */

/* Rank r's gradients: sums of several are rounded in 16 bits, and in fp32 too. */
static float gradient(int rank, int64_t i)
{
    return (float)(i % 37 - 18) * (1 + 0x1p-7f * (float)rank) + (i % 5 ? 0 : 0x1p-20f);
}

static void fill(void *to, enum zero_dtype dtype, int rank, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float x = gradient(rank, i);
        if (dtype == ZERO_FP32)
            ((float *)to)[i] = x;
        else
            ((uint16_t *)to)[i] = dtype == ZERO_BF16 ? bf16_from_float(x) : fp16_from_float(x);
    }
}

static double value(const void *from, enum zero_dtype dtype, int64_t i)
{
    if (dtype == ZERO_FP32)
        return ((const float *)from)[i];
    uint16_t half = ((const uint16_t *)from)[i];
    return dtype == ZERO_BF16 ? bf16_to_float(half) : fp16_to_float(half);
}

/* Where pieces are offered, in their order. */
struct offered {
    const char *own;
    int64_t bytes;
    bool wrong;
};

static void offer(void *arg, int64_t offset, int64_t bytes, const void *const *parts)
{
    struct offered *o = arg;
    o->wrong |= offset != o->bytes || parts[0] != o->own + offset;
    o->bytes += bytes;
}

/* Element by element near the sum of all; what other ranks were sent stays. */
static void added(struct trial *run, struct zero_comm *comm, void *stream, int rank)
{
    static const double near[] = {[ZERO_FP32] = 1e-6, [ZERO_BF16] = 0x1p-7, [ZERO_FP16] = 0x1p-10};
    const enum zero_dtype dtype = (enum zero_dtype)(run->seed % 3);
    const int64_t bytes = ADDED * (dtype == ZERO_FP32 ? 4 : 2);
    char *data = unit_alloc(comm->size * bytes);
    struct offered o = {.own = data + rank * bytes};
    struct zero_collective c = {
        .header = {.sequence = 1, .kind = ZERO_COLLECTIVE_REDUCE, .unit = 1, .bytes = bytes},
        .data = data,
        .sum = offer,
        .sum_arg = &o,
        .piece_bytes = 512,
        .stream = stream};
    bool done = false;
    double until = seconds_now() + PATIENCE;
    fill(data, dtype, rank, comm->size * ADDED);
    int status = comm->ops->reduce(comm, &c, dtype);
    while (!status && !done && seconds_now() < until)
        status = comm->ops->test(comm, &c, &done);
    unit_settle(stream);
    bool good = !status && done && !o.wrong && o.bytes == bytes;
    for (int64_t i = 0; i < comm->size * ADDED && good; i++) {
        double sum = 0, most = 0;
        bool own = i / ADDED == rank;
        for (int r = 0; r < comm->size; r++) {
            sum += own || r == rank ? gradient(r, i) : 0;
            most += fabs(own || r == rank ? gradient(r, i) : 0);
        }
        good = fabs(value(data, dtype, i) - sum) <= near[dtype] * most;
    }
    run->status[rank] = good ? ZERO_OK : ZERO_ERR_COMM;
    unit_free(data);
}

START_TEST(nccl_adds_up)
{
    for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
        struct trial run = {.ranks = ranks, .body = added, .seed = (uint64_t)_i};
        run_ranks(&run, NULL);
        for (int r = 0; r < ranks; r++)
            ck_assert_msg(!run.status[r], "dtype %d, rank %d of %d", _i % 3, r, ranks);
    }
}
END_TEST

/* ------------------------------------------------------------ what goes wrong */

#define BYTES ((int64_t)4096)
#define PIECE ((int64_t)512)

static void no_sum(void *arg, int64_t offset, int64_t bytes, const void *const *parts)
{
    (void)arg;
    (void)offset;
    (void)bytes;
    (void)parts;
}

/* One collective to its end, or to the time; the status. */
static int finish(struct zero_comm *comm, struct zero_collective *c, double until, bool *done)
{
    bool adds = c->header.kind == ZERO_COLLECTIVE_REDUCE && !c->scratch;
    int status = adds ? comm->ops->reduce(comm, c, ZERO_BF16) : comm->ops->start(comm, c);
    for (*done = false; !*done && !status && seconds_now() < until;) {
        status = comm->ops->test(comm, c, done);
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    return status;
}

/* A unit gathered and reduced in both ways, a few times; who fails gives up. */
static void work(struct trial *run, struct zero_comm *comm, void *stream, int rank)
{
    char *data = unit_alloc(RANKS_MAX * BYTES), *scratch = unit_alloc(2 * RANKS_MAX * PIECE);
    double until = seconds_now() + PATIENCE;
    int status = ZERO_OK;
    bool done = true;
    for (uint64_t n = 1; n <= 6 && !status && done; n++) {
        struct zero_collective c = {
            .header = {.sequence = n,
                       .kind = n % 2 ? ZERO_COLLECTIVE_GATHER : ZERO_COLLECTIVE_REDUCE,
                       .unit = 1,
                       .bytes = BYTES},
            .data = data,
            .sum = no_sum,
            .piece_bytes = PIECE,
            .scratch = n == 4 ? NULL : scratch,
            .stream = stream};
        status = finish(comm, &c, until, &done);
        comm->sequence = n;
    }
    run->status[rank] = done || status ? status : ZERO_ERR_DEADLINE;
    snprintf(run->text[rank], sizeof(run->text[0]), "%s", status ? comm->error : "");
    if (run->status[rank])
        comm->ops->abort(comm, 7);
    unit_settle(stream);
    unit_free(data);
    unit_free(scratch);
}

/* Each has a status and a sentence of its own, or of what it heard. */
static int expect_told(const struct trial *run, const char *what, int64_t nth)
{
    int failed = 0;
    for (int r = 0; r < run->ranks; r++) {
        const char *text = run->text[r];
        failed += run->status[r] != ZERO_OK;
        if (!run->status[r])
            continue;
        ck_assert_msg(run->status[r] == ZERO_ERR_COMM, "%s %lld: rank %d: %s \"%s\"", what,
                      (long long)nth, r, zero_status_name(run->status[r]), text);
        ck_assert_msg(strstr(text, "NCCL failed to ") || strstr(text, " gave up before message "),
                      "%s %lld: rank %d: \"%s\"", what, (long long)nth, r, text);
        ck_assert_msg(text[strlen(text) - 1] == '.', "\"%s\"", text);
    }
    return failed;
}

/* Every call of NCCL fails once, and every look finds once that it has failed. */
START_TEST(every_call_fails)
{
    const char *what = _i ? "look" : "call";
    struct fault fault = {.kind = _i ? FAULT_NCCL_ASYNC : FAULT_NCCL_CALL};
    struct trial run = {.ranks = 3, .body = work};
    int failed = 0, replays = 0;
    run_ranks(&run, &fault);
    ck_assert_int_eq(expect_told(&run, what, 0), 0);
    int64_t places = atomic_load(&fault.seen);
    for (int64_t n = 2; n <= places; n += suite_short() ? 1 + places / 12 : 1 + places / 60) {
        fault = (struct fault){.kind = fault.kind, .nth = n};
        run = (struct trial){.ranks = 3, .body = work};
        run_ranks(&run, &fault);
        failed += expect_told(&run, what, n) > 0;  /* a rank may have come to its end before */
        replays += atomic_load(&fault.struck) > 0; /* how often a rank looks is the machine's */
    }
    printf("a %s that fails: %lld places, %d replays, %d failed\n", what, (long long)places,
           replays, failed);
    ck_assert_int_gt(replays, 0);
    ck_assert_int_gt(failed, replays / 2); /* the others struck at the end */
}
END_TEST

static struct fault at_end;
static int calls_before;

/* A rank alone gathers; then a call fails, so many calls later. */
static void gather_to_the_end(struct trial *run, struct zero_comm *comm, void *stream, int rank)
{
    char *data = unit_alloc(BYTES);
    struct zero_collective c = {
        .header = {.sequence = 1, .kind = ZERO_COLLECTIVE_GATHER, .unit = 1, .bytes = BYTES},
        .data = data,
        .stream = stream};
    bool done = false;
    int status = finish(comm, &c, seconds_now() + PATIENCE, &done);
    comm->sequence = 1;
    run->status[rank] = done || status ? status : ZERO_ERR_DEADLINE;
    unit_settle(stream);
    unit_free(data);
    at_end.nth = atomic_load(&at_end.seen) + calls_before + 1;
}

/* Every call of destroy fails once; what has failed to end NCCL's communicator has ended it. */
START_TEST(every_call_of_the_end_fails)
{
    int struck = 1;
    for (calls_before = 0; struck > 0; calls_before++) {
        struct trial run = {.ranks = 1, .body = gather_to_the_end};
        at_end = (struct fault){.kind = FAULT_NCCL_CALL};
        run_ranks(&run, &at_end);
        ck_assert_msg(!run.status[0], "%s", run.text[0]);
        struck = (int)atomic_load(&at_end.struck);
    }
    ck_assert_int_gt(calls_before, 3); /* finalize, a look, destroy; and one that none reaches */
}
END_TEST

/* A gather that never ends: all ranks lose patience; or the first does, and the others hear
 * of it although only NCCL works for them. */
static void wait_in_vain(struct trial *run, struct zero_comm *comm, void *stream, int rank)
{
    char *data = unit_alloc(RANKS_MAX * BYTES);
    struct zero_collective c = {
        .header = {.sequence = 1, .kind = ZERO_COLLECTIVE_GATHER, .unit = 1, .bytes = BYTES},
        .data = data,
        .stream = stream};
    bool hears = run->hear && rank > 0;
    run->status[rank] =
        finish(comm, &c, seconds_now() + (hears ? PATIENCE : 0.3), &run->done[rank]);
    snprintf(run->text[rank], sizeof(run->text[0]), "%s", comm->error);
    run->missing[rank] = comm->ops->missing(comm, &c, 0);
    if (!run->hear)
        pthread_barrier_wait(&run->all);
    if (run->idle && rank == run->ranks - 1)
        pthread_barrier_wait(&run->all);
    comm->ops->abort(comm, 2);
    if (run->idle && rank < run->ranks - 1)
        pthread_barrier_wait(&run->all);
    unit_settle(stream);
    unit_free(data);
}

START_TEST(peers_do_not_move)
{
    struct fault fault = {.kind = FAULT_NCCL_LOST, .nth = 1, .again = true};
    struct trial run = {.ranks = 2 + _i, .body = wait_in_vain};
    run_ranks(&run, &fault);
    for (int r = 0; r < run.ranks; r++) {
        ck_assert(run.status[r] == ZERO_OK && !run.done[r]);
        ck_assert_int_eq(run.missing[r], -1); /* they have come */
    }
}
END_TEST

/* NCCL's own end waits for a rank that does not come to it: not so ours. */
START_TEST(who_gives_up_alone_comes_to_an_end)
{
    struct fault fault = {.kind = FAULT_NCCL_LOST, .nth = 1, .again = true};
    struct trial run = {.ranks = 2, .body = wait_in_vain, .idle = true};
    run_ranks(&run, &fault);
    ck_assert(atomic_load(&fault.struck) > 0 && !run.done[0] && !run.done[1]);
}
END_TEST

START_TEST(who_gives_up_is_heard)
{
    struct fault fault = {.kind = FAULT_NCCL_LOST, .nth = 1, .again = true};
    struct trial run = {.ranks = 3, .body = wait_in_vain, .hear = true};
    run_ranks(&run, &fault);
    ck_assert_int_eq(run.status[0], ZERO_OK);
    for (int r = 1; r < run.ranks; r++) {
        ck_assert_int_eq(run.status[r], ZERO_ERR_COMM);
        ck_assert_msg(strstr(run.text[r], " gave up before message 1. Look for its own error"),
                      "%s", run.text[r]);
    }
}
END_TEST

/* A rank that cannot make its communicator: the others wait for it in theirs. */
START_TEST(making_fails)
{
    struct fault fault = {.kind = FAULT_NCCL_CALL, .nth = 2}; /* behind the id's making */
    struct trial run = {.ranks = 3, .body = work};
    run_ranks(&run, &fault);
    int own = 0;
    ck_assert_int_eq(expect_told(&run, "making", 2), 3);
    for (int r = 0; r < run.ranks; r++)
        own += strstr(run.text[r], "NCCL failed to begin on rank ") != NULL;
    ck_assert_int_eq(own, 1);
}
END_TEST

START_TEST(its_buffers_do_not_fit)
{
    struct trial run = {.ranks = 2, .body = work, .bytes = _i ? -1 : (int64_t)2 << 30};
    run_ranks(&run, NULL);
    int own = 0;
    for (int r = 0; r < run.ranks; r++) {
        const char *text = run.text[r];
        bool full = strstr(text, _i ? "does not suffice: 'Failed to CUDA host alloc the fake's "
                                      "bytes'. Leave more of it free, or raise the limit"
                                    : ", whose memory does not suffice: 'Failed to CUDA calloc ");
        ck_assert_msg(run.status[r] == (full ? ZERO_ERR_MEMORY : ZERO_ERR_COMM), "%s", text);
        own += full;
    }
    ck_assert_int_ge(own, 1);
}
END_TEST

/* The making of one communicator alone, where its n-th call of a kind is refused; 0: none. */
static void expect_refused(struct fake_nccl_options nccl, enum fault_kind kind, int64_t n,
                           int status, const char *says)
{
    struct fault fault = {.kind = kind};
    const struct fake_cuda_options options = {.gpus = 1, .fault = &fault};
    struct comm_threads *control = comm_threads_create(1);
    struct zero_comm *comm;
    struct error error = {0};
    char id[COMM_NCCL_ID];
    fake_cuda_start(&options);
    fake_nccl_start(&nccl);
    must(cudaSetDevice(0));
    ck_assert_int_eq(comm_nccl_id(id, &error), ZERO_OK);
    fault.nth = n ? atomic_load(&fault.seen) + n : 0;
    fault_calls(&fault);
    int rc = comm_nccl_create(&comm, comm_threads_rank(control, 0), id, &error);
    fault_calls(NULL);
    ck_assert_int_eq(rc, status);
    ck_assert_ptr_null(comm);
    ck_assert_msg(strstr(error.text, says), "%s", error.text);
    fake_cuda_stop();
    fake_nccl_stop();
    comm_threads_destroy(control);
    ck_assert_int_eq(fake_nccl_reported(FAKE_NCCL_REPORTS), 0);
}

START_TEST(a_gpu_fails)
{
    for (int64_t n = 1; n <= 13; n++)
        expect_refused((struct fake_nccl_options){0}, FAULT_CUDA_CALL, n, ZERO_ERR_DEVICE,
                       " for messages between ranks: ");
    for (int64_t n = 1; n <= 10; n++)
        expect_refused((struct fake_nccl_options){0}, FAULT_CUDA_MAKE, n, ZERO_ERR_MEMORY,
                       " for messages between ranks (cudaErrorMemoryAllocation, 2). Use a higher ");
}
END_TEST

START_TEST(no_memory)
{
    for (int64_t n = 1; n <= 2 + ZERO_COLLECTIVES; n++)
        expect_refused((struct fake_nccl_options){0}, FAULT_MEMORY, n, ZERO_ERR_MEMORY,
                       "No memory for a communicator of 1 ranks.");
}
END_TEST

/* Making the id is what tells NCCL, and so us, of it where a file of settings has it: a rank
 * that was given the id would wait in NCCL for one that refuses. */
static const char *const blocks[] = {"1", "0x1", " 01", "+1 is yes"};
START_TEST(may_not_block)
{
    const struct fake_nccl_options nccl = {0};
    struct zero_comm control = {.size = 1}, *comm;
    struct error error = {0}, made = {0};
    char id[COMM_NCCL_ID];
    setenv("NCCL_COMM_BLOCKING", blocks[_i], 1);
    fake_nccl_start(&nccl);
    ck_assert_int_eq(comm_nccl_id(id, &error), ZERO_ERR_ARGUMENT);
    ck_assert_int_eq(comm_nccl_create(&comm, &control, id, &made), ZERO_ERR_ARGUMENT);
    fake_nccl_stop();
    unsetenv("NCCL_COMM_BLOCKING");
    ck_assert_ptr_null(comm);
    ck_assert_str_eq(error.text, made.text);
    ck_assert_ptr_nonnull(strstr(error.text, "NCCL_COMM_BLOCKING is '"));
}
END_TEST

/* Another node than that of the id may have the file. */
START_TEST(may_not_block_elsewhere)
{
    expect_refused((struct fake_nccl_options){.settings = true}, FAULT_NCCL_CALL, 0,
                   ZERO_ERR_ARGUMENT, "NCCL_COMM_BLOCKING is '1'");
    unsetenv("NCCL_COMM_BLOCKING");
}
END_TEST

/* What NCCL itself passes over. */
static const char *const does_not[] = {"0", "", "2", "-1", "0x10", "yes"};
START_TEST(does_not_block)
{
    const struct fake_nccl_options nccl = {0};
    struct error error = {0};
    char id[COMM_NCCL_ID];
    setenv("NCCL_COMM_BLOCKING", does_not[_i], 1);
    fake_nccl_start(&nccl);
    ck_assert_int_eq(comm_nccl_id(id, &error), ZERO_OK);
    fake_nccl_stop();
    unsetenv("NCCL_COMM_BLOCKING");
}
END_TEST

START_TEST(an_id_fails)
{
    struct fault fault = {.kind = FAULT_NCCL_CALL, .nth = 1};
    const struct fake_nccl_options options = {.fault = &fault};
    struct error error = {0};
    char id[COMM_NCCL_ID];
    fake_nccl_start(&options);
    ck_assert_int_eq(comm_nccl_id(id, &error), ZERO_ERR_COMM);
    ck_assert_msg(strstr(error.text, "NCCL failed to make an id for the job: "), "%s", error.text);
    ck_assert_int_gt(comm_nccl_version(), 21400);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nccl");
    TCase *tests = tcase_create("contract");
    tcase_set_timeout(tests, 120);
    for (int i = 0; i < comm_scenario_count; i++) {
        int first = i * RANKS_MAX + comm_scenarios[i].ranks_min - 1, end = (i + 1) * RANKS_MAX;
        tcase_add_loop_test(tests, nccl_keeps_the_contract, first, end);
        tcase_add_loop_test(tests, nccl_over_tcp_keeps_the_contract, first, end);
    }
    suite_add_tcase(suite, tests);
    tests = tcase_create("sums");
    tcase_add_loop_test(tests, nccl_adds_up, 0, 3);
    suite_add_tcase(suite, tests);
    tests = tcase_create("faults");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, every_call_fails, 0, 2);
    tcase_add_test(tests, every_call_of_the_end_fails);
    tcase_add_loop_test(tests, peers_do_not_move, 0, 2);
    tcase_add_test(tests, who_gives_up_alone_comes_to_an_end);
    tcase_add_test(tests, who_gives_up_is_heard);
    tcase_add_test(tests, making_fails);
    tcase_add_loop_test(tests, its_buffers_do_not_fit, 0, 2);
    tcase_add_test(tests, a_gpu_fails);
    tcase_add_test(tests, no_memory);
    tcase_add_loop_test(tests, may_not_block, 0, 4);
    tcase_add_test(tests, may_not_block_elsewhere);
    tcase_add_loop_test(tests, does_not_block, 0, 6);
    tcase_add_test(tests, an_id_fails);
    suite_add_tcase(suite, tests);
    return suite_run_all(suite);
}
