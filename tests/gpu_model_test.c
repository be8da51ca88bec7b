// SPDX-License-Identifier: Apache-2.0
/*
 * GPT-2 on GPUs, which are fake (tests/support/fake_cuda.h, fake_cublas.h and, for the
 * kernels, fake_gpt_launch.c, or as gpu_model_on_host the kernels themselves): against
 * PyTorch's numbers and double loops as on the CPU; that stages, places and ranks change no
 * bit; what fails and what is said then. The fakes report nothing. gpu_model_on_gpu is the
 * same without them, for a machine with a GPU.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/runtime.h"
#include "src/device/device.h"
#include "tests/support/fake_cublas.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/fake_cuda_parts.h"
#include "tests/support/gpt_session.h"
#include "tests/support/gpus.h"
#include "tests/support/ranks.h"
#include "tests/support/suite.h"

/* Not there beside the real runtime. */
#pragma weak fake_plain_memory
#pragma weak fake_cublas_asked
#pragma weak fake_cublas_refuse

extern const struct gpu_plugin gpt2_gpu_plugin;

static const struct session_gpu gpus = {&gpt2_gpu_plugin, device_cuda_create, device_cuda_link,
                                        device_cuda_gpu};
static struct fault fault; /* none unless a test sets it */

static void start(int count, uint64_t seed)
{
    const struct fake_cuda_options fakes = {
        .gpus = count, .bytes = (int64_t)1 << 28, .seed = seed, .fault = &fault};
    ck_assert_int_eq(gpus_begin(&fakes) > 0, count > 0);
}

static void stop(void)
{
    ck_assert_int_eq(gpus_end(), 0);
}

static struct gpt_config config_of(const struct gpt_shape *shape, enum zero_dtype dtype)
{
    return (struct gpt_config){
        .shape = *shape, .dtype = dtype, .batch = SESSION_BATCH, .threads = 1, .device = ZERO_CUDA};
}

static void open_config(struct session *s, const struct gpt_config *config)
{
    session_open_on(s, config, &(struct zero_config){0}, &gpus, 0);
}

static void open(struct session *s, const struct gpt_shape *shape, enum zero_dtype dtype)
{
    struct gpt_config config = config_of(shape, dtype);
    open_config(s, &config);
}

/* ------------------------------------------------------------- same numbers */

START_TEST(golden_gradients)
{
    const struct session_kind *k = &session_kinds[_i];
    struct session s;
    struct golden g;
    start(1, 1);
    open(&s, &session_tiny, k->dtype);
    golden_read(&s, &g);
    session_expect_near("loss", session_train(&s), g.loss, k->loss);
    session_expect_gradients(&s, g.grads, k->gradient);
    golden_free(&s, &g);
    session_close(&s);
    stop();
}
END_TEST

START_TEST(golden_logits)
{
    struct session s;
    struct golden g;
    float logits[100];
    int T = session_tiny.seq, V = session_tiny.vocab;
    start(1, 0);
    open(&s, &session_tiny, ZERO_FP32);
    golden_read(&s, &g);
    OK(&s, zero_phase(s.z, ZERO_EVAL));
    for (int row = SESSION_BATCH * T - 1; row >= 0; row--) {
        OK(&s, gpt_logits(s.m, s.z, s.tokens + row / T * T, row % T + 1, logits));
        s.tokens[row] = 1 << 30; /* no token: later calls must not read it */
        session_expect_close("logits", V, logits, g.logits + row * V, 1e-5);
    }
    golden_free(&s, &g);
    session_close(&s);
    stop();
}
END_TEST

START_TEST(golden_adam)
{
    static const struct zero_adam adam = {1e-2, 0.9, 0.95, 1e-8, 0.1, false};
    struct session s;
    struct golden g;
    start(1, 3);
    open(&s, &session_tiny, ZERO_FP32);
    golden_read(&s, &g);
    OK(&s, zero_set_adam(s.z, 0, &adam));
    OK(&s, zero_set_clip(s.z, 1.0));
    int asked = 0;
    for (int step = 0; step < SESSION_STEPS; step++) {
        session_batch(&s, step);
        session_expect_near("loss", session_train(&s), g.losses[step], 1e-5);
        OK(&s, zero_step(s.z, NULL));
        struct gpt_times times = gpt_times_take(s.m);
        ck_assert(times.forward > 0 && times.backward > 0 && times.busy > 0);
        ck_assert(times.busy < times.forward + times.backward);
        ck_assert(gpt_times_take(s.m).backward == 0);
        ck_assert(step == 0 || !fake_cublas_asked || fake_cublas_asked() == asked);
        asked = fake_cublas_asked ? fake_cublas_asked() : 0; /* once per shape */
    }
    golden_free(&s, &g);
    session_close(&s);
    stop();
}
END_TEST

enum { SETTLED_MS = 20 };

/* Marks, behind each of which all is done and then nothing for a while. */
static void pass(struct session *s, const enum gpu_mark *marks, int count)
{
    for (int i = 0; i < count; i++) {
        gpus.plugin->mark(s->gpu, marks[i]);
        ck_assert_int_eq(cudaStreamSynchronize(zero_stream(s->z)), cudaSuccess);
        usleep(1000 * SETTLED_MS);
    }
}

/* What the stream waits for is time of a pass, and no work; nor is what no micro-step does. */
START_TEST(waits_are_no_work)
{
    static const enum gpu_mark marks[] = {GPU_WORKS, GPU_RESTS,    GPU_FORWARD, GPU_WORKS,
                                          GPU_RESTS, GPU_BACKWARD, GPU_WORKS,   GPU_RESTS,
                                          GPU_END,   GPU_WORKS,    GPU_RESTS};
    const double least = 1e-3 * SETTLED_MS;
    struct session s;
    start(1, 0);
    open(&s, &session_tiny, ZERO_FP32);
    for (int round = 0; round < 3; round++) {
        pass(&s, marks, sizeof(marks) / sizeof(*marks));
        struct gpt_times times = gpt_times_take(s.m);
        ck_assert_double_ge(times.forward, 3 * least);
        ck_assert_double_ge(times.backward, 3 * least);
        ck_assert_double_ge(times.busy, 2 * least);
        ck_assert_double_le(times.busy, times.forward + times.backward - 4 * least);
        for (int i = 0; i < 64; i++) /* as evaluations do */
            gpus.plugin->mark(s.gpu, marks[i % 2]);
        ck_assert(gpt_times_take(s.m).busy == 0);
    }
    session_close(&s);
    stop();
}
END_TEST

START_TEST(odd_sizes)
{
    const struct session_kind *k = &session_kinds[_i];
    struct session s;
    start(1, 0);
    open(&s, &session_odd, k->dtype);
    struct gpt_double g = session_oracle(&s);
    double loss = gpt_double_loss(&g, s.tokens, s.targets);
    session_expect_near("loss", session_train(&s), loss, k->loss);
    session_expect_gradients(&s, s.grads, k->gradient);
    session_close(&s);
    stop();
}
END_TEST

/* TF32 keeps 10 bits of 23: other numbers, as near as fp16's. It is allowed, not demanded, so that
 * a real GPU may have another algorithm for products as small as these. */
START_TEST(tf32)
{
    struct session s;
    struct golden g;
    struct gpt_config config = config_of(&session_tiny, ZERO_FP32);
    start(1, 0);
    config.tf32 = true;
    open_config(&s, &config);
    golden_read(&s, &g);
    double loss = session_train(&s);
    session_expect_near("loss", loss, g.loss, 2e-3);
    if (fabs(loss - g.loss) <= 2e-6)
        printf("--tf32 does nothing here: %.9g is %.9g\n", loss, g.loss);
    ck_assert(!gpus_fake() || fabs(loss - g.loss) > 2e-6);
    session_expect_gradients(&s, g.grads, 4e-3);
    golden_free(&s, &g);
    session_close(&s);
    stop();
}
END_TEST

/* ---------------------------------------------------------------- same bits */

/* The loss and all gradients of a micro-step, and of the same evaluated. */
static float *all_bits(const struct gpt_config *config, uint64_t seed, int64_t *count)
{
    struct session s;
    size_t available, total, before, first;
    start(1, seed);
    ck_assert_int_eq(cudaSetDevice(0), cudaSuccess);
    open_config(&s, config);
    int64_t all = gpt_param_count(&config->shape), at = 2;
    float *bits = session_zeros((size_t)all + 2, sizeof(float));
    OK(&s, zero_set_adam(s.z, 0, &(struct zero_adam){0, 0.9, 0.9, 1e-8, 0, false}));
    double loss = session_train(&s), again;
    memcpy(bits, &loss, sizeof(loss));
    for (int i = 0; i < s.count; i++) {
        int64_t n = session_elements(&s.params[i]);
        OK(&s, zero_read(s.z, i, ZERO_GRAD, 0, n, bits + at));
        at += n;
    }
    OK(&s, zero_step(s.z, NULL));
    OK(&s, zero_phase(s.z, ZERO_EVAL));
    session_batch(&s, 1);
    OK(&s, gpt_eval(s.m, s.z, s.tokens, s.targets, &again));
    ck_assert(again != loss);
    session_batch(&s, 0);
    OK(&s, gpt_eval(s.m, s.z, s.tokens, s.targets, &again));
    ck_assert_msg(memcmp(&loss, &again, sizeof(loss)) == 0, "evaluated %.17g, trained %.17g", again,
                  loss);
    /* All of its memory was planned; a machine's GPU gives more at once, and not to us alone. */
    ck_assert_int_eq(cudaMemGetInfo(&before, &total), cudaSuccess);
    gpt_destroy(s.m);
    s.m = NULL;
    ck_assert_int_eq(cudaMemGetInfo(&available, &first), cudaSuccess);
    if (gpus_fake())
        ck_assert_int_eq((int64_t)(available - before), gpt_plan_bytes(config));
    session_close(&s);
    stop();
    *count = at;
    return bits;
}

START_TEST(recompute_changes_no_bit)
{
    static const struct gpt_shape deep = {3, 72, 2, 70, 4500}; /* logits in two parts */
    int64_t count;
    struct gpt_config config = config_of(&deep, session_kinds[_i].dtype);
    float *one = all_bits(&config, 0, &count);
    config.recompute = true;
    float *two = all_bits(&config, 5, &count);
    ck_assert_msg(memcmp(one, two, (size_t)count * sizeof(float)) == 0,
                  "computing again gives other bits");
    free(one);
    free(two);
}
END_TEST

enum { STEPS = 3, MICRO_BATCHES = 2 };

/* A run of STEPS steps; what all ranks end with. */
struct job {
    struct zero_config engine;
    struct gpt_config model;
    int ranks;
    struct zero_digest digest[2];
    double loss[2]; /* of the last step: the job's mean */
};

static void rank_run(int rank, struct zero_comm *comm, void *arg)
{
    struct job *j = arg;
    struct zero_config engine = j->engine;
    struct session s;
    double losses[MICRO_BATCHES];
    engine.comm = comm;
    engine.accumulate = MICRO_BATCHES / j->ranks;
    session_open_on(&s, &j->model, &engine, &gpus, rank);
    OK(&s, zero_set_adam(s.z, 0, &(struct zero_adam){1e-2, 0.9, 0.95, 1e-8, 0.1, false}));
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < engine.accumulate; i++) {
            session_batch(&s, step * MICRO_BATCHES + i * j->ranks + rank);
            losses[i] = session_train(&s);
        }
        OK(&s, zero_mean(s.z, losses, engine.accumulate, &j->loss[rank]));
        OK(&s, zero_step(s.z, NULL));
    }
    OK(&s, zero_digest(s.z, &j->digest[rank]));
    session_close(&s);
}

static struct job run_job(const struct zero_config *engine, enum zero_dtype dtype, int ranks,
                          int count, uint64_t seed)
{
    struct job j = {.engine = *engine, .model = config_of(&session_tiny, dtype), .ranks = ranks};
    j.engine.chunk = 4096;
    j.engine.nvme_path = "/var/tmp";
    start(count, seed);
    ranks_run(ranks, rank_run, &j);
    stop();
    return j;
}

START_TEST(stages_change_no_bit)
{
    static const struct {
        int ranks, gpus;
        struct zero_config engine;
    } runs[] = {
        {2, 2, {.stage = 3}},
        {1, 1, {.stage = 3, .offload = ZERO_HOST}},
        {2, 1, {.stage = 3, .offload = ZERO_NVME}},
        {2, 2, {.stage = 1, .offload_optimizer = ZERO_HOST}},
    };
    enum zero_dtype dtype = session_kinds[_i].dtype;
    struct job one = run_job(&(struct zero_config){0}, dtype, 1, 1, 0);
    for (size_t i = 0; i < sizeof(runs) / sizeof(*runs); i++) {
        struct job j = run_job(&runs[i].engine, dtype, runs[i].ranks, runs[i].gpus, 7 + i);
        for (int rank = 0; rank < runs[i].ranks; rank++)
            ck_assert_msg(!memcmp(&j.digest[rank], &one.digest[0], sizeof(one.digest[0])) &&
                              !memcmp(&j.loss[rank], &one.loss[0], sizeof(one.loss[0])),
                          "run %zu has other bits than stage 0 on one rank", i);
    }
}
END_TEST

/* ------------------------------------------------------------- what it says */

/* 6 flop per weight and row; per pair of a query and a key that it sees, and channel, 4 forward and
 * 10 backward. Computed again are logits, and all blocks but the last, up to their last product. */
START_TEST(counts_what_it_multiplies)
{
    struct session s;
    struct gpt_config config = config_of(&session_tiny, session_kinds[_i % SESSION_KINDS].dtype);
    config.recompute = _i >= SESSION_KINDS;
    start(1, 0);
    open_config(&s, &config);
    ck_assert(s.gpu->plugin->flops(s.gpu) == 0);
    session_train(&s);
    double blocks = session_tiny.layers, again = config.recompute ? blocks - 1 : 0;
    double T = session_tiny.seq, n = session_tiny.channels, rows = SESSION_BATCH * T;
    double weights = rows * n * n * (6 * 12 * blocks + 2 * 8 * again) +
                     rows * 128 * n * (config.recompute ? 8 : 6);
    double pairs = SESSION_BATCH * T * (T + 1) / 2 * n * (14 * blocks + 4 * again);
    double flops = s.gpu->plugin->flops(s.gpu);
    ck_assert_msg(flops == weights + pairs, "%.17g flop, not %.17g", flops, weights + pairs);
    session_close(&s);
    stop();
}
END_TEST

START_TEST(describes_itself)
{
    struct session s;
    char *text = NULL;
    size_t size = 0;
    start(1, 0);
    struct gpt_config config = config_of(&session_tiny, ZERO_BF16);
    open_config(&s, &config);
    session_train(&s);
    const struct gpu_plugin *on = s.gpu->plugin;
    ck_assert_str_eq(s.gpu->name, "GPU 0 of 1, fake GPU 0");
    ck_assert_str_eq(s.gpu->products, "cuBLASLt 13.0.0");
    ck_assert(s.gpu->is.index == 0 && s.gpu->is.count == 1);
    ck_assert(on->product_rate(s.gpu, ZERO_BF16) > 1e6);
    ck_assert(on->copy_rate(s.gpu) == 0); /* too little memory for the clock */
    FILE *out = open_memstream(&text, &size);
    on->algorithms(s.gpu, out);
    fclose(out);
    ck_assert_msg(strstr(text, "(48, 32) x (32, 96), bf16 to bf16 with bias: 2 times by algorithm"),
                  "%s", text);
    free(text);
    if (fake_cublas_refuse) { /* what cannot be measured ends nothing */
        fake_cublas_refuse(3); /* CUBLAS_STATUS_ALLOC_FAILED */
        ck_assert(on->product_rate(s.gpu, ZERO_FP16) == 0);
        fake_cublas_refuse(0);
        ck_assert(on->product_rate(s.gpu, ZERO_BF16) > 1e6);
    }
    session_close(&s);
    stop();
}
END_TEST

START_TEST(no_gpu)
{
    const struct zero_gpu found = {.count = 1, .name = "a GPU"};
    char error[512] = "";
    start(0, 0);
    ck_assert_ptr_null(gpt2_gpu_plugin.open(&found, error, sizeof(error)));
    ck_assert_msg(strstr(error, "The model's GPU (GPU 0 of 1, a GPU) failed to be chosen: ") &&
                      strstr(error, "cudaErrorInsufficientDriver, 35). Look for the driver's "),
                  "%s", error);
    stop();
}
END_TEST

/* Ranks take GPUs in turn. */
START_TEST(gpus_in_turn)
{
    char error[512] = "";
    struct error none = {0};
    struct zero_gpu found;
    start(2, 0);
    for (int rank = 0; rank < 4; rank++) {
        int gpu = -1;
        ck_assert_int_eq(device_cuda_gpu(rank, &found, &none), ZERO_OK);
        struct gpu *g = gpt2_gpu_plugin.open(&found, error, sizeof(error));
        ck_assert_msg(g != NULL, "%s", error);
        ck_assert_int_eq(cudaGetDevice(&gpu), cudaSuccess);
        ck_assert_int_eq(gpu, rank % 2);
        g->plugin->close(g);
    }
    stop();
}
END_TEST

/* A model that opens on its own, without an engine; its sentence. */
static void refuse(struct gpt_config *config, const char *says)
{
    char error[512] = "";
    struct error none = {0};
    struct zero_gpu found;
    cudaStream_t stream;
    ck_assert_int_eq(device_cuda_gpu(0, &found, &none), ZERO_OK);
    config->gpu = gpt2_gpu_plugin.open(&found, error, sizeof(error));
    ck_assert_ptr_nonnull(config->gpu);
    ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    config->stream = stream;
    ck_assert_ptr_null(gpt_create(config, error, sizeof(error)));
    ck_assert_msg(strstr(error, says) != NULL, "'%s', not '%s'", error, says);
    config->gpu->plugin->close(config->gpu);
    ck_assert_int_eq(cudaStreamDestroy(stream), cudaSuccess);
}

START_TEST(refused)
{
    static const struct gpt_shape wide = {1, 514, 2, 8, 100}, large = {1, 64, 1, 1 << 15, 4096};
    struct gpt_config config = config_of(&wide, ZERO_FP32);
    start(1, 0);
    refuse(&config, "at most 256 for each head on a GPU");
    config = config_of(&large, ZERO_FP32);
    refuse(&config, "bytes of GPU memory, and 268435456 of 268435456 are free on GPU 0 of 1, fake "
                    "GPU 0. Give a smaller --batch");
    config = config_of(&session_tiny, ZERO_FP32);
    fault = (struct fault){.kind = FAULT_CUDA_MEMORY, .nth = 2};
    refuse(&config, "failed to allocate registered memory: an error of the fake CUDA runtime "
                    "(cudaErrorMemoryAllocation, 2). Free memory of the host, or raise the limit "
                    "on locked memory (ulimit -l).");
    fault = (struct fault){0};
    stop();
}
END_TEST

/* A product that cuBLASLt does not make. */
static const struct {
    int status;
    const char *says;
} products[] = {
    {15, "CUBLAS_STATUS_NOT_SUPPORTED (15). Give another --dtype, or use another version than "
         "cuBLASLt 13.0.0."},
    {3, "CUBLAS_STATUS_ALLOC_FAILED (3). Give a smaller --batch, --recompute, a higher --stage, "
        "or offload more."},
};

START_TEST(product_refused)
{
    struct session s;
    char says[320];
    double loss;
    start(1, 0);
    open(&s, &session_tiny, ZERO_BF16);
    fake_cublas_refuse(products[_i].status);
    ck_assert_int_eq(gpt_train(s.m, s.z, s.tokens, s.targets, &loss), ZERO_ERR_DEVICE);
    fake_cublas_refuse(0);
    snprintf(says, sizeof(says),
             "cuBLASLt on GPU 0 of 1, fake GPU 0 did not multiply (48, 32) by (32, 96), bf16 to "
             "bf16: %s",
             products[_i].says);
    ck_assert_str_eq(gpt_last_error(s.m), says);
    session_close(&s);
    stop();
}
END_TEST

#ifndef __SANITIZE_THREAD__
/* The GPU is lost in the n-th operation from here: an error, never a hang. */
START_TEST(gpu_lost)
{
    struct session s;
    double loss;
    start(1, 0);
    open(&s, &session_tiny, ZERO_FP32);
    OK(&s, zero_set_adam(s.z, 0, &(struct zero_adam){1e-3, 0.9, 0.9, 1e-8, 0, false}));
    fault = (struct fault){.kind = FAULT_CUDA_LOST, .nth = 1 + 9 * _i};
    int status = gpt_train(s.m, s.z, s.tokens, s.targets, &loss);
    if (status == ZERO_OK) /* lost in backward, for which nobody has waited */
        status = zero_step(s.z, NULL);
    const char *says = *gpt_last_error(s.m) ? gpt_last_error(s.m) : zero_last_error(s.z);
    ck_assert_msg(status != ZERO_OK && strstr(says, "cudaErrorLaunchFailure, 719"), "%s: '%s'",
                  zero_status_name(status), says);
    session_close(&s);
    (void)gpus_end(); /* what a lost GPU takes with it is not looked at */
    fault = (struct fault){0};
}
END_TEST
#endif

static void add_host_side(TCase *t)
{
    tcase_add_loop_test(t, counts_what_it_multiplies, 0, 2 * SESSION_KINDS);
    tcase_add_test(t, describes_itself);
    tcase_add_test(t, no_gpu);
    tcase_add_test(t, gpus_in_turn);
    tcase_add_test(t, refused);
    tcase_add_loop_test(t, product_refused, 0, 2);
#ifndef __SANITIZE_THREAD__ /* a GPU that fails orders nothing any more */
    tcase_add_loop_test(t, gpu_lost, 0, 8);
#endif
}

int main(void)
{
    Suite *suite = suite_create("gpu_model");
    TCase *t = tcase_create("gpt2");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, golden_gradients, 0, SESSION_KINDS);
    tcase_add_test(t, golden_adam);
    tcase_add_test(t, waits_are_no_work);
    tcase_add_loop_test(t, recompute_changes_no_bit, suite_short() ? 1 : 0,
                        suite_short() ? 2 : SESSION_KINDS);
    tcase_add_loop_test(t, stages_change_no_bit, suite_short() ? 1 : 0,
                        suite_short() ? 2 : SESSION_KINDS);
    tcase_add_test(t, tf32);
    if (!suite_short()) {
        tcase_add_test(t, golden_logits);
        tcase_add_loop_test(t, odd_sizes, 0, SESSION_KINDS);
    }
    /* The kernels are others then, and the host's side is the same. */
    if (gpus_fake() && !fake_plain_memory)
        add_host_side(t);
    suite_add_tcase(suite, t);
    return suite_run_all(suite);
}
