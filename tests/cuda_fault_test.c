// SPDX-License-Identifier: Apache-2.0
/*
 * What goes wrong with GPUs, on fake ones: the n-th call of the runtime fails, memory or
 * registration is refused, a GPU is lost, there is none. The call that meets it, or a
 * later one, has a status and a sentence; the other ranks hear of it; nobody hangs; what
 * can be survived ends in the bits of an undisturbed life.
 *
 * make check takes samples of n; ZERO_TEST_FULL=1 takes them all.
 */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "kernels/cuda/launch.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/life.h"
#include "tests/support/ranks.h"
#include "tests/support/suite.h"
#include "tests/support/toy_cuda.h"

#define GPUS          2
#define WATCH_SECONDS 120

/* ---------------------------------------------------------------- the n-th time */

static const struct scenario scenarios[] = {
    {"device", {.stage = 1, .dtype = ZERO_BF16}, 2, 2, false},
    {"files", {.stage = 3, .offload = ZERO_NVME, .dtype = ZERO_BF16}, 2, 1, false},
    {"sums", {.stage = 3, .offload_grad = ZERO_HOST, .dtype = ZERO_FP16}, 3, 1, false},
    {"alone", {.stage = 0, .grad_dtype = ZERO_BF16}, 1, 1, false},
};
#define SCENARIOS (int)(sizeof(scenarios) / sizeof(*scenarios))

static const struct torture {
    const char *name;
    enum fault_kind kind;
    bool again, survives;
    int samples;
    unsigned statuses; /* of a rank that it strikes, 1 << status each */
} tortures[] = {
#define MEMORY (1u << ZERO_ERR_MEMORY)
#define DEVICE (1u << ZERO_ERR_DEVICE)
#define NONE   (1u << ZERO_ERR_UNSUPPORTED)
#define COMM   (1u << ZERO_ERR_COMM)
    {"no memory once", FAULT_CUDA_MEMORY, false, false, 4, MEMORY},
    {"no memory any more", FAULT_CUDA_MEMORY, true, false, 4, MEMORY},
    {"a registration refused", FAULT_CUDA_REGISTER, false, true, 4, 0},
    {"registrations refused", FAULT_CUDA_REGISTER, true, true, 3, 0},
    {"a call that fails", FAULT_CUDA_CALL, false, false, 24, DEVICE | NONE},
    {"a GPU lost", FAULT_CUDA_LOST, false, false, 8, DEVICE},
    {"a call of NCCL that fails", FAULT_NCCL_CALL, false, false, 12, COMM},
    {"NCCL fails later", FAULT_NCCL_ASYNC, false, false, 8, COMM},
    {"NCCL moves nothing", FAULT_NCCL_LOST, false, false, 6, COMM},
};
#define TORTURES (int)(sizeof(tortures) / sizeof(*tortures))

static char doing[200];

/* A life over fake GPUs, with the fault somewhere in all calls of the process. */
static void play(struct life *run, const struct scenario *s, struct fault *fault)
{
    static struct scenario on_gpus;
    const struct fake_cuda_options options = {.gpus = GPUS, .bytes = 1 << 24, .fault = fault};
    on_gpus = *s;
    on_gpus.config.device = ZERO_CUDA;
    *run = (struct life){.scenario = &on_gpus, .victim = LIFE_EVERYBODY};
    suite_watch(doing, WATCH_SECONDS);
    const struct fake_nccl_options nccl = {.fault = fault};
    fake_cuda_start(&options);
    fake_nccl_start(&nccl);
    toy_cuda_start(GPUS, true);
    life_run(run);
    fake_cuda_stop();
    fake_nccl_stop();
    alarm(0);
}

static bool same_end(const struct life *a, const struct life *b, int ranks)
{
    for (int r = 0; r < ranks; r++)
        if (a->rank[r].values != b->rank[r].values ||
            memcmp(&a->rank[r].digest, &b->rank[r].digest, sizeof(a->rank[r].digest)))
            return false;
    return true;
}

/* A failed rank's sentence: its own, or what it heard of another. */
static void judge_failed(const struct torture *t, const struct life_rank *r)
{
    const unsigned heard = t->statuses | 1u << ZERO_ERR_COMM | 1u << ZERO_ERR_DEADLINE;
    bool own = strstr(r->text, "GPU") && t->statuses >> r->status & 1;
    bool others = strcasestr(r->text, "rank ") && heard >> r->status & 1;
    size_t length = strlen(r->text);
    if (t->kind == FAULT_NCCL_LOST && r->status == ZERO_ERR_DEADLINE)
        ck_assert_msg(strstr(r->text, "NCCL or a rank did not end the ") == r->text, "%s: \"%s\"",
                      doing, r->text);
    ck_assert_msg(own || others, "%s: rank %d: %s: %s \"%s\"", doing, r->rank, r->call,
                  zero_status_name(r->status), r->text);
    ck_assert_msg(length > 20 && r->text[length - 1] == '.', "%s: \"%s\"", doing, r->text);
}

/* How many ranks have failed. */
static int judge(const struct torture *t, const struct life *run, const struct life *calm)
{
    int failed = 0, ranks = run->scenario->ranks;
    for (int r = 0; r < ranks; r++) {
        ck_assert_msg(!run->rank[r].wrong[0], "%s: rank %d: %s", doing, r, run->rank[r].wrong);
        failed += run->rank[r].status != ZERO_OK;
        if (run->rank[r].status)
            judge_failed(t, &run->rank[r]);
    }
    ck_assert_msg(failed || toy_cuda_failed() || same_end(run, calm, ranks), "%s: other bits",
                  doing);
    for (int kind = 0; kind < FAKE_CUDA_REPORTS; kind++) {
        /* What cannot be given back; a thread that could not choose its GPU; operations that
         * will never run, for which nobody can wait. */
        if (kind == FAKE_CUDA_LEAK || (kind == FAKE_CUDA_NO_DEVICE && toy_cuda_failed()) ||
            (kind == FAKE_CUDA_FREED && t->kind == FAULT_CUDA_LOST))
            continue;
        ck_assert_msg(!fake_cuda_reported((enum fake_cuda_report)kind), "%s: %s", doing,
                      fake_cuda_report((enum fake_cuda_report)kind));
    }
    ck_assert_msg(!fake_nccl_reported(FAKE_NCCL_REPORTS), "%s: NCCL has reported something", doing);
    return failed;
}

START_TEST(faults_are_told_or_survived)
{
    static struct life calm, run;
    const struct scenario *s = &scenarios[_i / TORTURES];
    const struct torture *t = &tortures[_i % TORTURES];
    struct fault fault = {.kind = t->kind};
    snprintf(doing, sizeof(doing), "%s, calm", s->name);
    play(&calm, s, &fault);
    ck_assert_int_eq(judge(t, &calm, &calm), 0);
    ck_assert_int_eq(fake_cuda_reported(FAKE_CUDA_REPORTS), 0);
    int64_t places = atomic_load(&fault.seen);
    bool nccl = t->kind >= FAULT_NCCL_CALL && t->kind <= FAULT_NCCL_LOST;
    ck_assert_int_eq(fake_nccl_groups() > 0, s->ranks > 1 && s->ranks <= GPUS);
    if (nccl && fake_nccl_groups() == 0)
        return; /* through host memory */
    int64_t step = suite_full() ? 1 : 1 + places / t->samples;
    int struck = 0, failed = 0;
    for (int64_t n = 1; n <= places; n += step) {
        fault = (struct fault){.kind = t->kind, .nth = n, .again = t->again};
        snprintf(doing, sizeof(doing), "%s, %s, place %lld", s->name, t->name, (long long)n);
        play(&run, s, &fault);
        struck += atomic_load(&fault.struck) > 0;
        failed += judge(t, &run, &calm) > 0;
    }
    printf("%s, %s: %lld places, %d struck, %d failed\n", s->name, t->name, (long long)places,
           struck, failed);
    ck_assert_msg(struck > 0, "%s: never struck", t->name);
    ck_assert_msg(t->survives ? failed == 0 : failed > 0, "%s, %s: %d of %d failed", s->name,
                  t->name, failed, struck);
}
END_TEST

/* A program that waits in CUDA for what NCCL does is not in a call of the library: what NCCL does
 * ends all the same. */
static void waits_in_cuda(int rank, struct zero_comm *comm, void *arg)
{
    const struct zero_param p = {.name = "a", .ndim = 1, .shape = {1 << 12}};
    const struct zero_config config = {.size = sizeof(config),
                                       .stage = 1,
                                       .dtype = ZERO_BF16,
                                       .device = ZERO_CUDA,
                                       .deadline_seconds = 1,
                                       .comm = comm,
                                       .log_level = ZERO_LOG_SILENT};
    const struct engine_seams seams = {.device = toy_apart->device, .link = toy_apart->link};
    struct error error = {0};
    struct zero *z;
    toy_apart->begin(rank);
    ck_assert_msg(!engine_create(&z, &p, 1, &config, &seams), "%s", zero_last_error(z));
    ck_assert_msg(!zero_reduce(z, 0), "%s", zero_last_error(z));
    for (double until = seconds_now() + 30; !queues_status(z->queues, &error);) {
        ck_assert_msg(seconds_now() < until, "rank %d waits", rank);
        usleep(10000);
    }
    if (strstr(error.text, "NCCL or a rank did not end the reduce of unit 0 within 1 s ("))
        atomic_fetch_add((atomic_int *)arg, 1);
    else
        ck_assert_msg(strstr(error.text, " gave up before message "), "%s", error.text);
    zero_destroy(z);
    toy_apart->end();
}

START_TEST(what_nccl_does_is_not_waited_for_in_cuda)
{
    struct fault fault = {.kind = FAULT_NCCL_LOST, .nth = 1, .again = true};
    const struct fake_cuda_options gpus = {.gpus = GPUS};
    const struct fake_nccl_options nccl = {.fault = &fault};
    fake_cuda_start(&gpus);
    fake_nccl_start(&nccl);
    toy_cuda_start(GPUS, true);
    atomic_int told = 0;
    ranks_run(GPUS, waits_in_cuda, &told);
    ck_assert_int_gt(atomic_load(&told), 0);
    ck_assert_int_gt(atomic_load(&fault.struck), 0);
    fake_cuda_stop();
    fake_nccl_stop();
}
END_TEST

/* The GPU is lost in a copy to the host; its function of the host is called in some rounds. */
START_TEST(a_lost_gpu_copies_nothing)
{
    enum { BYTES = 4096, ROUNDS = 16 };
    for (int round = 0; round < ROUNDS; round++) {
        struct fault fault = {.kind = FAULT_CUDA_LOST};
        const struct fake_cuda_options options = {.gpus = 1, .fault = &fault};
        const struct device_options mine = {.event_fd = eventfd(0, EFD_NONBLOCK)};
        struct device *device;
        struct error error = {0};
        char *host = malloc(BYTES);
        fake_cuda_start(&options);
        ck_assert_int_eq(cudaSetDevice(0), cudaSuccess);
        ck_assert_int_eq(device_cuda_create(&device, &mine, &error), ZERO_OK);
        void *there = device->ops->alloc(device, BYTES, &error);
        ck_assert(there && !device->ops->pin(device, host, BYTES, &error));
        struct device_copy copy = {.to = host, .from = there, .bytes = BYTES};
        fault.nth = atomic_load(&fault.seen) + 1;
        device->ops->copy(device, DEVICE_TO_HOST_MEMORY, &copy);
        bool copied = false;
        for (int i = 0; i < 1000 && !copied && !error.status; i++) {
            copied = device->ops->copied(device, &copy);
            device->ops->status(device, &error);
            usleep(100);
        }
        ck_assert_msg(!copied && error.status == ZERO_ERR_DEVICE, "round %d: %s '%s'", round,
                      copied ? "copied" : "not copied", error.text);
        device->ops->destroy(device);
        fake_cuda_stop();
        close(mine.event_fd);
        free(host);
    }
}
END_TEST

/* A wait fails at once, where the test says so, as that for a lost GPU may; the fake's own has
 * waited all the same. */
static bool gives_up;

cudaError_t __real_cudaStreamSynchronize(cudaStream_t stream);
cudaError_t __real_cudaDeviceSynchronize(void);
cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t stream);
cudaError_t __wrap_cudaDeviceSynchronize(void);

cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t stream)
{
    return gives_up ? cudaErrorLaunchFailure : __real_cudaStreamSynchronize(stream);
}

cudaError_t __wrap_cudaDeviceSynchronize(void)
{
    return gives_up ? cudaErrorLaunchFailure : __real_cudaDeviceSynchronize();
}

static void nap(void *arg)
{
    (void)arg;
    usleep(20000);
}

/* What a function of the host writes is the caller's again when destroy returns. */
START_TEST(a_lost_gpu_writes_nothing_later)
{
    const struct fake_cuda_options options = {.gpus = 1};
    const struct device_options mine = {.event_fd = eventfd(0, EFD_NONBLOCK)};
    struct device_copy mark = {0};
    struct device *device;
    struct error error = {0};
    fake_cuda_start(&options);
    ck_assert_int_eq(cudaSetDevice(0), cudaSuccess);
    ck_assert_int_eq(device_cuda_create(&device, &mine, &error), ZERO_OK);
    ck_assert_int_eq(cudaLaunchHostFunc(device->stream, nap, NULL), cudaSuccess);
    device->ops->mark(device, DEVICE_COMPUTE, &mark);
    gives_up = true;
    device->ops->destroy(device);
    gives_up = false;
    ck_assert(__atomic_load_n(&mark.done, __ATOMIC_ACQUIRE));
    fake_cuda_stop();
    close(mine.event_fd);
}
END_TEST

/* ------------------------------------------------------------- what there is not */

/* Kernels of this build, where the test says so. */
static cudaError_t kernels = cudaSuccess;

cudaError_t __real_launch_from_bf16(cudaStream_t stream, int64_t n, const uint16_t *in, float *out);
cudaError_t __wrap_launch_from_bf16(cudaStream_t stream, int64_t n, const uint16_t *in, float *out);

cudaError_t __wrap_launch_from_bf16(cudaStream_t stream, int64_t n, const uint16_t *in, float *out)
{
    return kernels == cudaSuccess ? __real_launch_from_bf16(stream, n, in, out) : kernels;
}

static char logged[SUITE_LOG];

static enum zero_place place = ZERO_DEVICE; /* of gradients and state, likewise */

enum pinned { PINNED_NONE, PINNED_SLOTS, PINNED_ALL };

/* Creation of an engine alone over such GPUs; pinned: what of its host memory is registered. */
static void expect_creation(const struct fake_cuda_options *options, int status, const char *says,
                            enum pinned pinned)
{
    struct engine_seams seams = {0};
    struct zero_param params[TOY_TENSORS];
    const struct zero_config config = {.size = sizeof(config),
                                       .device = ZERO_CUDA,
                                       .log = suite_log,
                                       .log_arg = logged,
                                       .stage = 3,
                                       .offload = place};
    struct zero *z;
    toy_describe(params);
    fake_cuda_start(options);
    toy_cuda_start(1, true);
    toy_apart->begin(0);
    seams.device = toy_apart->device;
    logged[0] = '\0';
    ck_assert_int_eq(engine_create(&z, params, TOY_TENSORS, &config, &seams), status);
    const char *text = status ? zero_last_error(z) : logged;
    ck_assert_msg(strstr(text, says) != NULL, "'%s', not '%s'", text, says);
    struct zero_stats stats;
    if (!status) {
        ck_assert_int_eq(zero_stats(z, &stats), ZERO_OK);
        ck_assert_str_eq(stats.device, "fake GPU 0");
        const int64_t bytes[] = {0, stats.plan.host.slots, stats.plan.host.total};
        ck_assert_int_eq(stats.pinned_bytes, bytes[pinned]);
    }
    zero_destroy(z);
    toy_apart->end();
    fake_cuda_stop();
    ck_assert_int_eq(fake_cuda_reported(FAKE_CUDA_REPORTS), 0);
}

START_TEST(no_gpu)
{
    const struct fake_cuda_options none = {.gpus = 0};
    expect_creation(&none, ZERO_ERR_UNSUPPORTED,
                    "No GPU can be used: an error of the fake CUDA runtime "
                    "(cudaErrorInsufficientDriver, 35). There is no driver, this build is for CUDA "
                    "13.0. Install an NVIDIA driver",
                    PINNED_NONE);
}
END_TEST

START_TEST(no_gpu_to_tell_of)
{
    const struct fake_cuda_options none = {.gpus = 0};
    struct device_link link;
    struct error error = {0};
    fake_cuda_start(&none);
    ck_assert_int_eq(device_cuda_link(&link, &error), ZERO_ERR_UNSUPPORTED);
    ck_assert_str_eq(error.text,
                     "GPU 0 does not say which it is: an error of the fake CUDA runtime "
                     "(cudaErrorInsufficientDriver, 35). Look whether nvidia-smi lists it.");
    fake_cuda_stop();
}
END_TEST

START_TEST(no_memory)
{
    const struct fake_cuda_options small = {.gpus = 1, .bytes = 100000};
    expect_creation(&small, ZERO_ERR_MEMORY,
                    " bytes of GPU memory are needed, 100000 of 100000 are free on GPU 0 (fake GPU "
                    "0). Use a higher stage",
                    PINNED_NONE);
    struct fault fault = {.kind = FAULT_CUDA_MAKE, .nth = 2};
    const struct fake_cuda_options full = {.gpus = 1, .fault = &fault};
    expect_creation(&full, ZERO_ERR_MEMORY,
                    "GPU 0 (fake GPU 0) has too little memory to make a stream "
                    "(cudaErrorMemoryAllocation, 2). Use a higher stage, more ranks, or offload "
                    "more.",
                    PINNED_NONE);
}
END_TEST

/* Of the host: the first is what the toy computes in, then come the device's own two. */
START_TEST(no_host_memory)
{
    for (int n = 2; n <= 3; n++) {
        struct fault fault = {.kind = FAULT_CUDA_MEMORY, .nth = n};
        const struct fake_cuda_options one = {.gpus = 1, .fault = &fault};
        expect_creation(&one, ZERO_ERR_MEMORY,
                        "1048576 bytes of host memory that the driver registers with GPU 0 (fake "
                        "GPU 0) were refused (cudaErrorMemoryAllocation, 2). Leave more of it "
                        "free, or raise the limit (ulimit -l).",
                        PINNED_NONE);
    }
}
END_TEST

START_TEST(no_kernels)
{
    const struct fake_cuda_options one = {.gpus = 1};
    const cudaError_t none[] = {cudaErrorNoKernelImageForDevice, cudaErrorUnsupportedPtxVersion,
                                cudaErrorInvalidPtx, cudaErrorJitCompilerNotFound};
    for (int i = 0; i < 4; i++) {
        kernels = none[i];
        expect_creation(&one, ZERO_ERR_UNSUPPORTED,
                        "This build has no kernels for GPU 0 (fake GPU 0), whose compute "
                        "capability is 9.0. Build it with make CUDA_ARCH=90.",
                        PINNED_NONE);
    }
    kernels = cudaErrorLaunchFailure;
    expect_creation(&one, ZERO_ERR_DEVICE,
                    "failed to run a kernel: an error of the fake CUDA runtime "
                    "(cudaErrorLaunchFailure, 719). Run the program under compute-sanitizer",
                    PINNED_NONE);
}
END_TEST

START_TEST(no_registration)
{
    struct fault fault = {.kind = FAULT_CUDA_REGISTER, .nth = 1};
    const struct fake_cuda_options one = {.gpus = 1, .fault = &fault};
    expect_creation(&one, ZERO_OK,
                    " bytes of host memory could not be registered with GPU 0: an error of the "
                    "fake CUDA runtime (cudaErrorNotSupported, 801). Copies wait for each other",
                    PINNED_NONE);
    fault.nth = 0;
    expect_creation(&one, ZERO_OK, "", PINNED_ALL);
    /* Of two parts the first. */
    place = ZERO_NVME;
    fault = (struct fault){.kind = FAULT_CUDA_REGISTER, .nth = 1};
    expect_creation(&one, ZERO_OK, " bytes of host memory could not be registered", PINNED_SLOTS);
    place = ZERO_DEVICE;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda faults");
    TCase *tests = tcase_create("faults");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, faults_are_told_or_survived, 0, SCENARIOS * TORTURES);
    tcase_add_test(tests, what_nccl_does_is_not_waited_for_in_cuda);
    tcase_add_test(tests, a_lost_gpu_copies_nothing);
    tcase_add_test(tests, a_lost_gpu_writes_nothing_later);
    tcase_add_test(tests, no_gpu);
    tcase_add_test(tests, no_gpu_to_tell_of);
    tcase_add_test(tests, no_memory);
    tcase_add_test(tests, no_host_memory);
    tcase_add_test(tests, no_kernels);
    tcase_add_test(tests, no_registration);
    suite_add_tcase(suite, tests);
    return suite_run_all(suite);
}
