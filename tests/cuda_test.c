// SPDX-License-Identifier: Apache-2.0
/*
 * The host's side of GPUs, on fake ones (tests/support/fake_cuda.h): stages, places
 * and ranks over 1 to 4 of them end in the bits of the CPU's simplest run, and the
 * fake reports nothing. Ranks that have a GPU each reach each other by NCCL, which is a
 * fake too (tests/support/fake_nccl.h), others through host memory. Linked with the real
 * runtime and nvcc's kernels it is the test of a machine's GPUs, as many as there are.
 * ZERO_TEST_SHORT=1 takes a few of them.
 */
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "kernels/cuda/runtime.h"
#include "src/comm/comm.h"
#include "src/comm/nccl.h"
#include "tests/support/device_suite.h"
#include "tests/support/equal.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/gpus.h"
#include "tests/support/held.h"
#include "tests/support/suite.h"
#include "tests/support/toy_cuda.h"

/* Not there beside the real NCCL. */
#pragma weak fake_nccl_groups
/* Of a build without it. */
#pragma weak comm_nccl_create
#pragma weak comm_nccl_id

#define BATCH EQUAL_BATCH

static struct toy reference[2]; /* per dtype */
static int by_nccl;             /* runs */

#define BY_NCCL "Units go from GPU to GPU by NCCL "

/* How many ranks' logs say that units go from GPU to GPU, and the last line. */
static atomic_int told;
static char logged[300];

static void listen_to(void *arg, enum zero_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    atomic_fetch_add(&told, strncmp(line, BY_NCCL, strlen(BY_NCCL)) == 0);
}

/* Returns how many GPUs there are, as many as wanted if that can be; seed: of what streams of
 * fakes wait. */
static int begin(int wanted, uint64_t seed)
{
    const struct fake_cuda_options options = {.gpus = wanted, .bytes = 1 << 24, .seed = seed};
    int count = gpus_begin(&options);
    ck_assert_int_gt(count, 0);
    return wanted < count ? wanted : count;
}

static void end(void)
{
    ck_assert_int_eq(gpus_end(), 0);
}

/* A run over GPUs. */
static void expect_equal(struct toy *t, int gpus, uint64_t seed, const struct toy *expected)
{
    gpus = begin(gpus, seed);
    bool direct = t->ranks > 1 && t->ranks <= gpus;
    t->config.device = ZERO_CUDA;
    t->config.log = listen_to;
    t->config.log_level = ZERO_LOG_INFO;
    atomic_store(&told, 0);
    toy_cuda_start(gpus, true);
    equal_expect(t, expected);
    end();
    by_nccl += atomic_load(&told) > 0;
    if (!fake_nccl_groups) /* of a build without NCCL, perhaps */
        return;
    ck_assert_int_eq(fake_nccl_groups() > 0, direct);
    ck_assert_int_eq(atomic_load(&told), direct ? t->ranks : 0);
}

static void make_references(void)
{
    for (int d = 0; d < 2; d++) {
        reference[d] = equal_simplest(d ? ZERO_BF16 : ZERO_FP32, BATCH);
        ck_assert_msg(!toy_run(&reference[d]), "%s", reference[d].error.text);
    }
}

/* -------------------------------------------------------------- equal bits */

static int64_t row, ran;

static void run_place(const struct zero_config *config)
{
    row++;
    for (int ranks = 1; ranks <= 4; ranks++) {
        if ((row + ranks + SANITIZED) % (suite_short() ? 43 : 3)) /* there other ones */
            continue;
        struct toy t = {
            .config = *config, .ranks = ranks, .accumulate = BATCH / ranks, .steps = EQUAL_STEPS};
        int gpus = 1 + (int)(row % 4);
        expect_equal(&t, gpus, row % 2 ? (uint64_t)row : 0, &reference[config->dtype == ZERO_BF16]);
        ran++;
    }
}

START_TEST(places)
{
    const int64_t chunks[] = {64, 1088, (int64_t)1 << 20};
    make_references();
    row = ran = 0;
    for (int chunk = 0; chunk < 3; chunk++)
        for (int dtype = 0; dtype < 2; dtype++) {
            struct zero_config c = {.stage = _i,
                                    .dtype = dtype ? ZERO_BF16 : ZERO_FP32,
                                    .chunk = chunks[chunk],
                                    .threads = 1};
            equal_each_place(c, run_place);
        }
    printf("stage %d: %lld runs, %d by NCCL, equal bits\n", _i, (long long)ran, by_nccl);
    ck_assert(by_nccl > 0 || !fake_nccl_groups);
    ck_assert_int_ge(ran, row * 4 / (suite_short() ? 50 : 4));
}
END_TEST

#define ROWS 144

/* Everything that is rare, at random: tests/equal_test.c has the whole of it. */
START_TEST(sampled)
{
    uint64_t r = 20250117 + SANITIZED;
    int rows = suite_short() ? ROWS / 12 : ROWS;
    for (int first = 0; first < EQUAL_MEANINGS && first < rows; first++) {
        /* of few rows, too, each number type and each kind of step that is skipped */
        struct equal_meaning m = equal_meaning(first * 7 % EQUAL_MEANINGS);
        struct toy one = equal_meant(&m);
        ck_assert_msg(!toy_run(&one), "%s", one.error.text);
        for (int n = first; n < rows; n += EQUAL_MEANINGS) {
            struct toy t = equal_draw(&r, &m);
            int gpus = 1 + equal_pick(&r, 4);
            expect_equal(&t, gpus, equal_pick(&r, 2) ? r : 0, &one);
        }
    }
    printf("%d sampled runs, %d by NCCL, equal bits\n", rows, by_nccl);
    ck_assert(by_nccl > 0 || !fake_nccl_groups);
}
END_TEST

/* Local accumulation on several ranks, where the law covers it: one micro-step. */
START_TEST(local_sums)
{
    for (int i = 0; i < 12; i++) {
        int ranks = 1 + i % 4;
        struct toy one = equal_simplest((enum zero_dtype)(i % 3), ranks);
        struct toy t = {.config = {.stage = i / 4 % 2,
                                   .dtype = (enum zero_dtype)(i % 3),
                                   .accumulate_in = ZERO_LOCAL,
                                   .offload_optimizer = (enum zero_place)(1 + i / 2 % 3),
                                   .chunk = 256,
                                   .threads = 1},
                        .ranks = ranks,
                        .accumulate = 1,
                        .steps = EQUAL_STEPS};
        one.config.grad_dtype = t.config.grad_dtype = i % 2 ? ZERO_FP32 : ZERO_BF16;
        one.rare = t.rare = i % 2;
        ck_assert_msg(!toy_run(&one), "%s", one.error.text);
        expect_equal(&t, i % 2 ? 4 : 1 + i / 4 % 2, (uint64_t)i, &one);
    }
}
END_TEST

/* Of a program that has let the engine make its stream, and computes in another. */
START_TEST(in_the_default_stream)
{
    make_references();
    for (int i = 0; i < 16; i++) {
        const struct fake_cuda_options options = {
            .gpus = 1 + i / 8, .bytes = 1 << 24, .seed = 1 + (uint64_t)i, .legacy = true};
        struct toy t = {.config = {.device = ZERO_CUDA,
                                   .stage = i % 4,
                                   .dtype = i / 4 % 2 ? ZERO_BF16 : ZERO_FP32,
                                   .chunk = 1088,
                                   .threads = 1},
                        .ranks = 1 + i / 8,
                        .accumulate = BATCH / (1 + i / 8),
                        .steps = EQUAL_STEPS};
        int gpus = gpus_begin(&options);
        ck_assert_int_gt(gpus, 0);
        toy_cuda_start(gpus < t.ranks ? gpus : t.ranks, true);
        toy_cuda_in_default();
        equal_expect(&t, &reference[t.config.dtype == ZERO_BF16]);
        end();
    }
}
END_TEST

/* A GPU's own test of this would have to capture something. */
START_TEST(beside_a_capture)
{
    make_references();
    for (int i = 0; i < 12 && gpus_fake(); i++) { /* of two ranks, on one GPU and on two */
        const struct fake_cuda_options options = {
            .gpus = 1 + i / 8, .bytes = 1 << 24, .seed = 1 + (uint64_t)i, .captured = true};
        struct toy t = {.config = {.device = ZERO_CUDA,
                                   .stage = i % 4,
                                   .offload = i % 2 ? ZERO_HOST : ZERO_DEVICE,
                                   .chunk = 1088,
                                   .threads = 1},
                        .ranks = i < 4 ? 1 : 2,
                        .accumulate = BATCH / (i < 4 ? 1 : 2),
                        .steps = EQUAL_STEPS};
        toy_cuda_start(gpus_begin(&options), true);
        equal_expect(&t, &reference[0]);
        end();
    }
}
END_TEST

/* ---------------------------------------------------- sums in NCCL's order */

static const double rounded[] = {[ZERO_FP32] = 1e-6, [ZERO_BF16] = 1e-2, [ZERO_FP16] = 1e-3};

static void expect_near(const struct toy *t, const struct toy *expected)
{
    for (int s = 0; s < t->steps; s++)
        ck_assert_msg(fabs(t->norm[s] - expected->norm[s]) <=
                              rounded[t->config.dtype] * expected->norm[s] &&
                          fabs(t->mean[s] - expected->mean[s]) <= 1e-3,
                      "step %d: norm %.9g, mean %.9g, not near %.9g, %.9g", s, t->norm[s],
                      t->mean[s], expected->norm[s], expected->mean[s]);
}

/* Near the ordered sums, and not those; the same ones again. A machine with one GPU adds
 * nothing up. Adam's steps are so short that the next gradients are near too. */
static void expect_added(const struct toy *like, uint64_t seed)
{
    struct toy ordered = equal_simplest(like->config.dtype, BATCH), t = *like, again;
    int gpus = begin(t.ranks, seed);
    t.ranks = t.ranks < gpus ? t.ranks : gpus;
    t.accumulate = BATCH / t.ranks;
    t.config.reduction = ZERO_REDUCE_NCCL;
    ordered.config.loss_scale = t.config.loss_scale;
    ordered.lr = t.lr = 1e-6;
    again = t;
    toy_cuda_start(gpus, true);
    ck_assert_msg(!toy_run(&ordered), "%s", ordered.error.text);
    ck_assert_msg(!toy_run(&t), "%s", t.error.text);
    end();
    expect_near(&t, &ordered);
    begin(t.ranks, seed + 1);
    ck_assert_msg(!toy_run(&again), "%s", again.error.text);
    end();
    bool same = equal_ended(&again, &t, logged, sizeof(logged));
    bool other = memcmp(&t.digest, &ordered.digest, sizeof(t.digest)) != 0;
    if (!fake_nccl_groups) /* a GPU's NCCL may choose another order the next time */
        expect_near(&again, &ordered);
    ck_assert_msg(same || !fake_nccl_groups, "%s", logged);
    /* In fp32 local sums of 16 bits are exact, in any order. */
    bool exact = t.config.accumulate_in == ZERO_LOCAL && t.config.dtype != ZERO_FP32;
    ck_assert_msg(other || exact || !fake_nccl_groups,
                  "the ordered sums: stage %d, dtype %d, %d ranks", t.config.stage,
                  (int)t.config.dtype, t.ranks);
    ck_assert(t.ranks > 1 || (same && !other));
}

START_TEST(added_up_by_nccl)
{
    for (int i = 0; i < 24; i += suite_short() ? 5 : 1) {
        enum zero_dtype dtype = (enum zero_dtype)(i % 3);
        const struct toy t = {
            .config = {.stage = i / 3 % 4,
                       .dtype = dtype,
                       .device = ZERO_CUDA,
                       .accumulate_in = i / 3 % 4 < 2 && i >= 12 ? ZERO_LOCAL : ZERO_SHARD,
                       .offload_optimizer = (enum zero_place)(1 + i / 2 % 3),
                       .loss_scale = dtype == ZERO_FP16 ? 256 : 1,
                       .chunk = 1088,
                       .threads = 1},
            .ranks = 2 + i % 4 % 3,
            .steps = EQUAL_STEPS};
        expect_added(&t, (uint64_t)i);
    }
}
END_TEST

/* Where NCCL cannot, nothing else does it instead. */
START_TEST(refused_without_nccl)
{
    const char *says[] = {"NCCL cannot add gradients up: ranks 0 and 1 share a GPU. Give each ",
                          "NCCL cannot add gradients up: the CUDA plugin was built without NCCL"};
    if (!fake_nccl_groups) {
        printf("skipped: NCCL that cannot, for which there are fakes\n");
        return;
    }
    for (int without = 0; without < 2; without++) {
        struct toy t = {.config = {.device = ZERO_CUDA, .reduction = ZERO_REDUCE_NCCL},
                        .ranks = 2,
                        .accumulate = 1,
                        .steps = 1};
        toy_cuda_start(begin(1 + without, 0), !without);
        ck_assert_int_eq(toy_run(&t), ZERO_ERR_UNSUPPORTED);
        ck_assert_msg(strstr(t.error.text, says[without]), "%s", t.error.text);
        end();
    }
}
END_TEST

/* ------------------------------------------------------ NCCL, on one GPU
 *
 * Engines use it from two GPUs on. A communicator of one rank makes NCCL's own calls, too,
 * wherever there is a GPU. */

#define ALONE_BYTES ((int64_t)10000)
#define ALONE_PIECE ((int64_t)4096)

struct alone {
    struct zero_comm *control, *comm;
    cudaStream_t stream;
    char *data, *sums; /* device memory */
    char *host;
};

static void expect_success(cudaError_t rc)
{
    ck_assert_msg(rc == cudaSuccess, "%s", cudaGetErrorName(rc));
}

static struct alone alone_begin(void)
{
    struct error error = {0};
    struct alone a = {0};
    char id[COMM_NCCL_ID];
    expect_success(cudaSetDevice(0));
    expect_success(cudaStreamCreateWithFlags(&a.stream, cudaStreamNonBlocking));
    expect_success(cudaMalloc((void **)&a.data, ALONE_BYTES));
    expect_success(cudaMalloc((void **)&a.sums, ALONE_BYTES));
    expect_success(cudaHostAlloc((void **)&a.host, ALONE_BYTES, 0));
    ck_assert_msg(!comm_self_create(&a.control, &error), "%s", error.text);
    ck_assert_msg(!comm_nccl_id(id, &error), "%s", error.text);
    ck_assert_msg(!comm_nccl_create(&a.comm, a.control, id, &error), "%s", error.text);
    return a;
}

static void alone_end(struct alone *a)
{
    a->comm->ops->destroy(a->comm);
    a->control->ops->destroy(a->control);
    expect_success(cudaFree(a->data));
    expect_success(cudaFree(a->sums));
    expect_success(cudaFreeHost(a->host));
    expect_success(cudaStreamDestroy(a->stream));
}

/* A piece of the only part there is, to where the sums are. */
static void take_sum(void *arg, int64_t offset, int64_t bytes, const void *const *parts)
{
    const struct alone *a = arg;
    expect_success(cudaMemcpyAsync(a->sums + offset, parts[0], (size_t)bytes,
                                   cudaMemcpyDeviceToDevice, a->stream));
}

static struct zero_collective alone_unit(struct alone *a, uint64_t sequence)
{
    return (struct zero_collective){
        .header = {.sequence = sequence,
                   .kind = sequence == 1 ? ZERO_COLLECTIVE_GATHER : ZERO_COLLECTIVE_REDUCE,
                   .unit = 1,
                   .bytes = ALONE_BYTES},
        .data = a->data,
        .scratch = a->sums, /* nobody sends anything */
        .sum = take_sum,
        .sum_arg = a,
        .piece_bytes = ALONE_PIECE,
        .stream = a->stream};
}

/* One to its end, of bytes that are all alike: 1 a gather, 2 a reduction in order, 3 one that
 * NCCL adds up. */
static void alone_move(struct alone *a, int nth)
{
    struct zero_collective c = alone_unit(a, (uint64_t)nth);
    bool done = false;
    expect_success(cudaMemsetAsync(a->data, nth, ALONE_BYTES, a->stream));
    expect_success(cudaMemsetAsync(a->sums, 0, ALONE_BYTES, a->stream));
    int status =
        nth == 3 ? a->comm->ops->reduce(a->comm, &c, ZERO_BF16) : a->comm->ops->start(a->comm, &c);
    for (time_t until = time(NULL) + 50; !status && !done && time(NULL) < until; usleep(100))
        status = a->comm->ops->test(a->comm, &c, &done);
    ck_assert_msg(!status && done, "collective %d: %s", nth, a->comm->error);
    a->comm->sequence = (uint64_t)nth;
    const char *from = nth == 1 ? a->data : a->sums;
    expect_success(cudaMemcpyAsync(a->host, from, ALONE_BYTES, cudaMemcpyDeviceToHost, a->stream));
    expect_success(cudaStreamSynchronize(a->stream));
    for (int64_t i = 0; i < ALONE_BYTES; i++)
        ck_assert_int_eq(a->host[i], nth);
}

/* A life, one that gives up with a gather under way, and one more, as if nothing had been. */
START_TEST(nccl_of_one_rank)
{
    const int most = gpus_fake() ? 2 : 3; /* for one rank the library never asks for the third */
    if (!comm_nccl_create) {
        printf("skipped: a build without NCCL\n");
        return;
    }
    begin(1, (uint64_t)_i);
    for (int life = 0; life < 3; life++) {
        struct alone a = alone_begin();
        struct zero_collective c = alone_unit(&a, 1);
        bool done = false;
        for (int n = 1; n <= most && life != 1; n++)
            alone_move(&a, n);
        if (life == 1) {
            ck_assert_int_eq(a.comm->ops->start(a.comm, &c), ZERO_OK);
            for (int looks = 0; looks < 20 * _i; looks++)
                (void)a.comm->ops->test(a.comm, &c, &done);
            a.comm->ops->abort(a.comm, 2);
            ck_assert(done || a.comm->ops->test(a.comm, &c, &done) == ZERO_ERR_COMM);
        }
        alone_end(&a);
    }
    end();
}
END_TEST

/* ------------------------------------------------- how ranks reach each other */

static void keep(void *arg, enum zero_log_level level, const char *line)
{
    (void)arg;
    snprintf(logged, sizeof(logged), "%d %s", (int)level, line);
}

START_TEST(ways)
{
    const struct zero_comm_ops none = {0};
    struct zero_comm comm = {.ops = &none};
    struct zero z = {.size = 3, .comm = &comm, .log = keep, .log_level = ZERO_LOG_INFO};
    static struct introduction all[3];
    const char *says[] = {"1 Units go from GPU to GPU by NCCL 2.28.9.",
                          "0 Units go from rank to rank through host memory: rank 1's GPU has not "
                          "answered.",
                          "1 Units go from rank to rank through host memory: ranks 0 and 2 share a "
                          "GPU.",
                          "1 Units go from rank to rank through host memory: ranks 1 and 2 share a "
                          "GPU.",
                          "1 Units go from GPU to GPU by NCCL 2.28.9.",
                          "0 Units go from rank to rank through host memory: ranks 0 and 2 have "
                          "different versions of NCCL, or one has none.",
                          "0 Units go from rank to rank through host memory: the CUDA plugin was "
                          "built without NCCL (libnccl-dev brings it).",
                          "1 Units go from rank to rank through host memory: ranks 0 and 2 share a "
                          "GPU.",
                          "0 Units go from rank to rank through host memory: ranks 0 and 2 share a "
                          "GPU, and of those that they see 2 have no rank (zero_gpu_use chooses "
                          "one)."};
    for (int way = 0; way < 9; way++) {
        for (int r = 0; r < 3; r++)
            all[r].reach = (struct reach){.answers = 1,
                                          .version = way == 6 ? 0 : 22809,
                                          .gpu = {'a', (char)r},
                                          .place = (uint64_t)r};
        all[1].reach.answers = way != 1;
        all[2].reach.gpu[1] = way == 2 || way >= 7 ? 0 : 2;
        all[2].reach.gpus = way < 7 ? 0 : way == 7 ? 2 : 4;
        all[2].reach.place = way == 3 || way == 4 ? 1 : 2;
        all[2].facts.node = way == 4; /* in its place there is another GPU */
        all[2].reach.version = way == 5 ? 22708 : all[2].reach.version;
        ck_assert_int_eq(reach_choose(&z, all), way == 0 || way == 4);
        ck_assert_str_eq(logged, says[way]);
    }
}
END_TEST

static int no_plugin(struct device_link *link, struct error *error)
{
    (void)link;
    return error_set(error, ZERO_ERR_UNSUPPORTED, "There is no plugin.");
}

/* A rank without a plugin says so itself; a communicator of the program's cannot do it. */
START_TEST(ways_of_nccl_sums)
{
    const struct zero_comm_ops none = {0};
    const struct engine_seams seams = {.link = no_plugin};
    struct zero_comm comm = {.ops = &none};
    struct zero z = {.size = 2, .comm = &comm, .seams = &seams, .log = keep};
    struct reach me = {0};
    z.plan.set.device = ZERO_CUDA;
    reach_introduce(&z, &me);
    ck_assert(me.asked && !me.answers && !z.error.status);
    z.plan.set.added = true;
    reach_introduce(&z, &me);
    ck_assert_str_eq(z.error.text, "There is no plugin.");
    z.error = (struct error){0};
    ck_assert_int_eq(reach_connect(&z), ZERO_ERR_UNSUPPORTED);
    ck_assert_msg(strstr(z.error.text, ".comm takes GPU memory but adds nothing up"), "%s",
                  z.error.text);
    z.log_level = ZERO_LOG_INFO;
    static const struct introduction all[2] = {
        {.reach = {.answers = 1, .version = 22809, .gpu = "a", .place = 1}},
        {.reach = {.answers = 1, .version = 22809, .gpu = "b", .place = 2}}};
    z.error = (struct error){0};
    ck_assert(reach_choose(&z, all));
    ck_assert_str_eq(logged, "1 Units go from GPU to GPU by NCCL 2.28.9, which adds gradients up "
                             "outside the law of equal bits.");
}
END_TEST

/* ------------------------------------------------------------ the contract */

static void expect_gpu(int expected)
{
    int gpu = -1;
    ck_assert_int_eq(cudaGetDevice(&gpu), cudaSuccess);
    ck_assert_int_eq(gpu, expected);
}

/* The calls that a program's thread makes leave it its GPU. */
static void expect_gpu_kept(struct device *device, char *host)
{
    const struct device_ops *ops = device->ops;
    struct error error = {0};
    struct device_copy mark;
    ck_assert_int_eq(cudaSetDevice(0), cudaSuccess);
    char *memory = ops->alloc(device, 4096, &error);
    ck_assert_ptr_nonnull(memory);
    ops->clear(device, DEVICE_COMPUTE, memory, 4096);
    ops->mark(device, DEVICE_COMPUTE, &mark);
    expect_gpu(0);
    while (!ops->copied(device, &mark)) /* the engine thread's call */
        ;
    ck_assert_int_eq(cudaSetDevice(0), cudaSuccess);
    ck_assert_int_eq(ops->read(device, host, memory, 4096, &error), ZERO_OK);
    expect_gpu(0);
}

static void run_contract(int i, bool pinned, bool own_stream)
{
    struct error error = {0};
    struct device *device;
    cudaStream_t stream = NULL;
    char *host;
    int event_fd = eventfd(0, EFD_NONBLOCK);
    int gpu = begin(2, (uint64_t)i) - 1;
    ck_assert_int_eq(cudaSetDevice(gpu), cudaSuccess);
    if (!own_stream)
        ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ck_assert_int_eq(posix_memalign((void **)&host, 4096, (size_t)DEVICE_SUITE_HOST), 0);
    const struct device_options options = {
        .event_fd = event_fd, .stream = stream, .pin_bytes = 1 << 16};
    ck_assert_msg(!device_cuda_create(&device, &options, &error), "%s", error.text);
    ck_assert(own_stream ? device->stream != NULL : device->stream == stream);
    if (pinned)
        ck_assert_int_eq(device->ops->pin(device, host, DEVICE_SUITE_HOST, &error), ZERO_OK);
    ck_assert_int_eq(device->pinned_bytes, pinned ? DEVICE_SUITE_HOST : 0);
    expect_gpu_kept(device, host);
    device_suite_run(i, device, host);
    device->ops->destroy(device);
    if (stream && cudaSetDevice(gpu) == cudaSuccess)
        ck_assert_int_eq(cudaStreamDestroy(stream), cudaSuccess);
    end();
    close(event_fd);
    free(host);
}

START_TEST(contract)
{
    for (int how = 0; how < 4; how++)
        run_contract(_i, how & 1, how & 2);
}
END_TEST

/* What an engine thread may ask for first, which has chosen no GPU yet. */
struct first_look {
    struct device *device;
    const struct device_copy *mark; /* NULL: the status */
    bool well;
    int gpu;
};

static void *first_look(void *arg)
{
    struct first_look *l = arg;
    const struct device_ops *ops = l->device->ops;
    struct error error = {0};
    while (l->mark && !ops->copied(l->device, l->mark))
        usleep(100);
    l->well = (l->mark || !ops->status(l->device, &error)) && !cudaGetDevice(&l->gpu);
    return NULL;
}

/* It does so on the device's GPU, and opens no other. */
START_TEST(first_looks)
{
    struct error error = {0};
    struct device_copy mark;
    struct device *device;
    pthread_t thread;
    const struct device_options options = {.event_fd = eventfd(0, EFD_NONBLOCK)};
    int gpu = begin(2, 0) - 1;
    ck_assert_int_eq(cudaSetDevice(gpu), cudaSuccess);
    ck_assert_msg(!device_cuda_create(&device, &options, &error), "%s", error.text);
    device->ops->mark(device, DEVICE_COMPUTE, &mark);
    struct first_look look = {.device = device, .mark = _i ? &mark : NULL, .gpu = -1};
    ck_assert_int_eq(pthread_create(&thread, NULL, first_look, &look), 0);
    pthread_join(thread, NULL);
    ck_assert(look.well);
    ck_assert_int_eq(look.gpu, gpu);
    device->ops->destroy(device);
    end();
    close(options.event_fd);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cuda");
    TCase *c = tcase_create("law");
    tcase_set_timeout(c, 600);
    tcase_add_loop_test(c, places, 0, 4);
    tcase_add_test(c, sampled);
    tcase_add_test(c, local_sums);
    tcase_add_test(c, in_the_default_stream);
    tcase_add_test(c, beside_a_capture);
    tcase_add_test(c, added_up_by_nccl);
    tcase_add_test(c, refused_without_nccl);
    tcase_add_test(c, ways);
    tcase_add_test(c, ways_of_nccl_sums);
    suite_add_tcase(s, c);
    c = tcase_create("device");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, contract, 0, DEVICE_SUITE_CASES);
    tcase_add_loop_test(c, first_looks, 0, 2);
    tcase_add_loop_test(c, nccl_of_one_rank, 0, 3);
    suite_add_tcase(s, c);
    return suite_run_all(s);
}
