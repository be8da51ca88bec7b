// SPDX-License-Identifier: Apache-2.0
/*
 * GPT-2 on the CPU against two others: PyTorch's numbers of a tiny model
 * (golden/make_golden.py) and plain double loops (support/gpt_double.c), which
 * are themselves held to finite differences. Also that threads change no bit,
 * and that products start none. One rank; the engine keeps the parameters and
 * gives the gradients back.
 */
#include <check.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/workers.h"
#include "examples/gpt2/matmul.h"
#include "examples/gpt2/model.h"
#include "examples/gpt2/numeric.h"
#include "include/zero.h"
#include "tests/support/gpt_session.h"
#include "tests/support/suite.h"

/* ------------------------------------------------------------------ PyTorch */

START_TEST(golden_gradients)
{
    struct session s;
    struct golden g;
    session_open(&s, &session_tiny, session_kinds[_i].dtype, 1);
    golden_read(&s, &g);
    session_expect_near("loss", session_train(&s), g.loss, session_kinds[_i].loss);
    session_expect_gradients(&s, g.grads, session_kinds[_i].gradient);
    golden_free(&s, &g);
    session_close(&s);
}
END_TEST

/* What others may do to the model's memory between two calls: all NaN. */
static void memory_spoil(const struct session *s)
{
    int64_t bytes;
    void *memory = gpt_memory(s->m, &bytes);
    memset(memory, 0xFF, (size_t)bytes);
}

START_TEST(golden_logits)
{
    struct session s;
    struct golden g;
    float logits[100];
    int T = session_tiny.seq, V = session_tiny.vocab;
    session_open(&s, &session_tiny, ZERO_FP32, 2);
    golden_read(&s, &g);
    OK(&s, zero_phase(s.z, ZERO_EVAL));
    for (int row = SESSION_BATCH * T - 1; row >= 0; row--) {
        memory_spoil(&s);
        OK(&s, gpt_logits(s.m, s.z, s.tokens + row / T * T, row % T + 1, logits));
        s.tokens[row] = 1 << 30; /* no token: later calls must not read it */
        session_expect_close("logits", V, logits, g.logits + row * V, 1e-5);
    }
    golden_free(&s, &g);
    session_close(&s);
}
END_TEST

START_TEST(golden_adam)
{
    static const struct zero_adam adam = {1e-2, 0.9, 0.95, 1e-8, 0.1, false};
    struct session s;
    struct golden g;
    session_open(&s, &session_tiny, ZERO_FP32, 1);
    golden_read(&s, &g);
    OK(&s, zero_set_adam(s.z, 0, &adam));
    OK(&s, zero_set_clip(s.z, 1.0));
    for (int step = 0; step < SESSION_STEPS; step++) {
        char what[32];
        snprintf(what, sizeof(what), "loss of step %d", step);
        session_batch(&s, step);
        session_expect_near(what, session_train(&s), g.losses[step], 1e-5);
        OK(&s, zero_step(s.z, NULL));
    }
    golden_free(&s, &g);
    session_close(&s);
}
END_TEST

/* ------------------------------------------------------------- double loops */

/* (loss(values + h d) - loss(values - h d)) / 2h */
static double slope(struct session *s, double *const *d, double h)
{
    struct gpt_double g = session_oracle(s);
    double loss[2];
    g.grads = NULL;
    for (int side = 0; side < 2; side++) {
        double *moved[SESSION_TENSORS];
        for (int i = 0; i < s->count; i++) {
            int64_t n = session_elements(&s->params[i]);
            moved[i] = session_zeros((size_t)n, sizeof(double));
            for (int64_t j = 0; j < n; j++)
                moved[i][j] = s->values[i][j] + (side ? -h : h) * d[i][j];
        }
        g.params = moved;
        loss[side] = gpt_double_loss(&g, s->tokens, s->targets);
        for (int i = 0; i < s->count; i++)
            free(moved[i]);
    }
    return (loss[0] - loss[1]) / (2 * h);
}

/* A direction in tensor only (or in all, only -1): along the gradient, or with
 * random signs. Also gives its products with the double and the fp32 gradient. */
static void direction_make(struct session *s, int only, bool random, double **d, double *with64,
                           double *with32)
{
    *with64 = *with32 = 0;
    for (int i = 0; i < s->count; i++) {
        int64_t n = session_elements(&s->params[i]);
        float *grad = session_gradient(s, i);
        d[i] = session_zeros((size_t)n, sizeof(double));
        for (int64_t j = 0; j < n && (only < 0 || only == i); j++) {
            bool minus = session_mix(((uint64_t)i << 40) + (uint64_t)j) & 1;
            d[i][j] = random ? (minus ? -1 : 1) : s->grads[i][j];
            *with64 += d[i][j] * s->grads[i][j];
            *with32 += d[i][j] * (double)grad[j];
        }
        free(grad);
    }
}

static void expect_slope(struct session *s, int only, bool random)
{
    double *d[SESSION_TENSORS], with64, with32, square = 0;
    const char *name = only < 0 ? "all" : s->params[only].name;
    direction_make(s, only, random, d, &with64, &with32);
    for (int i = 0; i < s->count; i++)
        for (int64_t j = 0; j < session_elements(&s->params[i]); j++)
            square += d[i][j] * d[i][j];
    double expected = slope(s, d, 2e-4 / sqrt(square));
    ck_assert_msg(fabs(with64 - expected) <= 1e-6 * fabs(expected),
                  "%s: the double gradient says %.12g, differences %.12g", name, with64, expected);
    ck_assert_msg(fabs(with32 - expected) <= 1e-4 * fabs(expected),
                  "%s: the fp32 gradient says %.12g, differences %.12g", name, with32, expected);
    for (int i = 0; i < s->count; i++)
        free(d[i]);
}

START_TEST(finite_differences)
{
    struct session s;
    session_open(&s, &session_tiny, ZERO_FP32, 1);
    struct gpt_double g = session_oracle(&s);
    session_expect_near("loss", session_train(&s), gpt_double_loss(&g, s.tokens, s.targets), 1e-6);
    expect_slope(&s, -1, false);
    expect_slope(&s, -1, true);
    for (int i = 0; i < s.count; i++)
        expect_slope(&s, i, false);
    session_close(&s);
}
END_TEST

START_TEST(odd_sizes)
{
    struct session s;
    session_open(&s, &session_odd, session_kinds[_i].dtype, 3);
    struct gpt_double g = session_oracle(&s);
    double loss = gpt_double_loss(&g, s.tokens, s.targets);
    session_expect_near("loss", session_train(&s), loss, session_kinds[_i].loss);
    session_expect_gradients(&s, s.grads, session_kinds[_i].gradient);
    session_close(&s);
}
END_TEST

/* Scores and logits whose exp alone would be infinite. */
START_TEST(large_scores)
{
    enum { wte, qkv_weight = 4 };
    struct session s;
    session_open(&s, &session_tiny, ZERO_FP32, 1);
    for (int tensor = wte; tensor <= qkv_weight; tensor += qkv_weight) {
        int64_t n = session_elements(&s.params[tensor]);
        float *value = session_zeros((size_t)n, sizeof(float));
        for (int64_t j = 0; j < n; j++)
            value[j] = (float)(s.values[tensor][j] *= tensor == wte ? 64 : 8);
        OK(&s, zero_write(s.z, tensor, ZERO_MASTER, 0, n, value));
        free(value);
    }
    struct gpt_double g = session_oracle(&s);
    double loss = gpt_double_loss(&g, s.tokens, s.targets);
    session_expect_near("loss", session_train(&s), loss, 1e-4);
    session_expect_gradients(&s, s.grads, 1e-3);
    session_close(&s);
}
END_TEST

/* ------------------------------------------------------------------- threads */

static int process_threads(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/task");
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *e; (e = readdir(dir));)
        count += e->d_name[0] != '.';
    closedir(dir);
    return count;
}

/* The loss and all gradients of a micro-step, and of the same evaluated. */
static float *all_bits_of(const struct gpt_config *config, bool spoil, int64_t *count)
{
    struct session s;
    session_open_config(&s, config);
    int64_t total = gpt_param_count(&config->shape), at = 2;
    int before = process_threads();
    float *bits = session_zeros((size_t)total + 4, sizeof(float));
    OK(&s, zero_set_adam(s.z, 0, &(struct zero_adam){0, 0.9, 0.9, 1e-8, 0, false}));
    if (spoil)
        memory_spoil(&s);
    double loss = session_train(&s), again;
    ck_assert_int_eq(process_threads(), before); /* none was started */
    memcpy(bits, &loss, sizeof(loss));
    for (int i = 0; i < s.count; i++) {
        int64_t n = session_elements(&s.params[i]);
        OK(&s, zero_read(s.z, i, ZERO_GRAD, 0, n, bits + at));
        at += n;
    }
    ck_assert_int_eq(at, total + 2);
    OK(&s, zero_step(s.z, NULL)); /* with a rate of 0: nothing changes */
    OK(&s, zero_phase(s.z, ZERO_EVAL));
    if (spoil)
        memory_spoil(&s);
    OK(&s, gpt_eval(s.m, s.z, s.tokens, s.targets, &again));
    ck_assert_msg(memcmp(&loss, &again, sizeof(loss)) == 0, "evaluated %.17g, trained %.17g", again,
                  loss);
    session_close(&s);
    *count = at;
    return bits;
}

static float *all_bits(const struct gpt_config *config, int64_t *count)
{
    return all_bits_of(config, false, count);
}

START_TEST(memory_keeps_nothing)
{
    int64_t count;
    for (int i = 0; i < 2; i++) {
        struct gpt_config config = {.shape = session_odd,
                                    .dtype = session_kinds[_i].dtype,
                                    .batch = SESSION_BATCH,
                                    .threads = 2,
                                    .recompute = i};
        float *before = all_bits(&config, &count);
        float *after = all_bits_of(&config, true, &count);
        ck_assert_msg(memcmp(before, after, (size_t)count * sizeof(float)) == 0,
                      "what lay in its memory gives other bits");
        free(before);
        free(after);
    }
}
END_TEST

START_TEST(threads_change_no_bit)
{
    int64_t count;
    struct gpt_config config = {.shape = session_odd,
                                .dtype = session_kinds[_i].dtype,
                                .batch = SESSION_BATCH,
                                .threads = 1};
    float *one = all_bits(&config, &count);
    for (config.threads = 2; config.threads <= 3; config.threads++) {
        float *more = all_bits(&config, &count);
        ck_assert_msg(memcmp(one, more, (size_t)count * sizeof(float)) == 0,
                      "%d threads give other bits than one", config.threads);
        free(more);
    }
    free(one);
}
END_TEST

/* Of a block that is computed again only its input is kept: 14 operands a
 * channel and row less, and what stands between attention and MLP. */
START_TEST(recompute_changes_no_bit)
{
    static const struct gpt_shape deep = {4, 72, 2, 150, 300};
    int64_t count, rows = SESSION_BATCH * deep.seq;
    struct gpt_config config = {
        .shape = deep, .dtype = session_kinds[_i].dtype, .batch = SESSION_BATCH, .threads = 2};
    float *one = all_bits(&config, &count);
    int64_t kept = gpt_plan_bytes(&config);
    config.recompute = true;
    float *two = all_bits(&config, &count);
    ck_assert_msg(memcmp(one, two, (size_t)count * sizeof(float)) == 0,
                  "computing again gives other bits");
    int64_t block = rows * deep.channels * (14 * operand_bytes(config.dtype) + 4);
    int64_t again = gpt_plan_bytes(&config);
    ck_assert_int_ge(kept - again, 3 * block);
    ck_assert_int_le(kept - again, 3 * (block + rows * 4 * (4 + deep.heads) + 10 * 64));
    free(one);
    free(two);
}
END_TEST

/* The same carving counts and lays out. */
START_TEST(bytes_as_planned)
{
    static const struct gpt_shape *const shapes[] = {&session_tiny, &session_odd};
    for (int i = 0; i < 8; i++) {
        struct gpt_config config = {.shape = *shapes[i & 1],
                                    .dtype = session_kinds[_i].dtype,
                                    .batch = 1 + (i & 2),
                                    .threads = 1 + i % 3,
                                    .recompute = i & 4};
        char error[256] = "";
        struct gpt *m = gpt_create(&config, error, sizeof(error));
        ck_assert_msg(m != NULL, "%s", error);
        int64_t bytes;
        gpt_memory(m, &bytes);
        ck_assert_int_eq(gpt_plan_bytes(&config), bytes + workers_bytes(gpt_workers(m)));
        gpt_destroy(m);
    }
    struct gpt_config none = {.shape = session_tiny, .threads = 1};
    ck_assert_int_eq(gpt_plan_bytes(&none), 0);
}
END_TEST

struct tally {
    int runs[1000];
    int64_t scratch;
};

static void tally_task(void *arg, int64_t index, void *scratch)
{
    struct tally *t = arg;
    memset(scratch, (int)index, (size_t)t->scratch);
    t->runs[index]++;
    for (int64_t i = 0; i < t->scratch; i++) /* nobody else writes here */
        if (((unsigned char *)scratch)[i] != (unsigned char)index)
            t->runs[index] = -1000;
}

START_TEST(workers_run_each_task_once)
{
    struct tally t = {.scratch = 100};
    char error[256] = "";
    struct workers *w = workers_create(_i, t.scratch, NULL, error, sizeof(error));
    ck_assert_msg(w != NULL, "%s", error);
    ck_assert_int_ge(workers_bytes(w), _i * t.scratch);
    for (int job = 0; job < 200; job++)
        workers_run(w, tally_task, &t, job % 2 ? 1000 : job % 7);
    for (int i = 0; i < 1000; i++) {
        int expected = 100;
        for (int job = 0; job < 200; job += 2)
            expected += i < job % 7;
        ck_assert_int_eq(t.runs[i], expected);
    }
    workers_destroy(w);
}
END_TEST

static void tiny_task(void *arg, int64_t index, void *scratch)
{
    volatile float tiny = 1e-38f;
    (void)scratch;
    ((int *)arg)[index] = tiny * 0.5f > 0;
}

/* Whichever thread takes a task, denormals are numbers in it, and the caller's modes its own. */
START_TEST(workers_keep_denormals)
{
    char error[256] = "";
    struct workers *w = workers_create(_i, 100, NULL, error, sizeof(error));
    int kept[100] = {0}, outside;
    ck_assert_msg(w != NULL, "%s", error);
    suite_flush_denormals();
    workers_run(w, tiny_task, kept, 100);
    tiny_task(&outside, 0, NULL);
    workers_destroy(w);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(kept[i], 1);
    ck_assert_int_eq(outside, 0);
}
END_TEST

/* ------------------------------------------------------ parameters and bounds */

/* Norms begin with weights of 1, and every bias with 0. */
static void check_vector(const struct zero_param *p)
{
    float x[2] = {0}, begin = strstr(p->name, "ln_") && strstr(p->name, ".weight") ? 1 : 0;
    if (p->fill)
        ck_assert_int_eq(p->fill(p->fill_arg, session_elements(p) - 2, 2, x), 0);
    ck_assert_msg(x[0] == begin && x[1] == begin, "%s begins with %g", p->name, (double)x[0]);
}

START_TEST(parameters_are_gpt2s)
{
    static const struct gpt_shape small = {12, 768, 12, 1024, 50257};
    struct zero_param *params;
    int count;
    int64_t total = 0;
    float sample[4096], begins[148] = {0};
    ck_assert_int_eq(gpt_params(&small, 7, &params, &count), ZERO_OK);
    ck_assert_int_eq(count, 148);
    for (int i = 0; i < count; i++) {
        const struct zero_param *p = &params[i];
        total += session_elements(p);
        ck_assert_int_eq(p->flags, p->ndim == 1 ? ZERO_NO_DECAY : 0);
        if (p->ndim == 1) {
            check_vector(p);
            continue;
        }
        double sum = 0, squares = 0;
        double std = strstr(p->name, "c_proj") ? 0.02 / sqrt(24) : 0.02;
        ck_assert_int_eq(p->fill(p->fill_arg, 0, 4096, sample), 0);
        for (int j = 0; j < 4096; j++) {
            sum += (double)sample[j];
            squares += (double)sample[j] * (double)sample[j];
        }
        ck_assert(fabs(sum / 4096) < 0.1 * std);
        ck_assert(fabs(sqrt(squares / 4096) / std - 1) < 0.05);
        begins[i] = sample[0];
        for (int j = 0; j < i; j++) /* each has numbers of its own */
            ck_assert_msg(begins[j] != begins[i], "%s begins as %s", p->name, params[j].name);
    }
    /* GPT-2's 124 439 808 and the padding of wte */
    ck_assert_int_eq(total, 124439808 + (50304 - 50257) * 768);
    ck_assert_int_eq(total, gpt_param_count(&small));
    ck_assert_str_eq(params[2 + 12 * 11 + 10].name, "h.11.mlp.c_proj.weight");
    ck_assert_int_eq(params[2 + 12 * 11 + 10].unit, 12);
    ck_assert_int_eq(params[2 + 12 * 11 + 10].shape[0], 3072);
    ck_assert_str_eq(params[147].name, "ln_f.bias");
    ck_assert_int_eq(params[147].unit, 13);
    free(params);
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
    static const struct gpt_shape uneven = {2, 33, 2, 24, 100};
    struct session s;
    struct zero_param *params;
    int count;
    double loss;
    float logits[100];
    char error[256] = "";
    ck_assert_int_eq(gpt_params(&uneven, 1, &params, &count), ZERO_ERR_ARGUMENT);
    struct gpt_config config = {.shape = uneven, .batch = 1, .threads = 1};
    ck_assert_ptr_null(gpt_create(&config, error, sizeof(error)));
    ck_assert_ptr_nonnull(strstr(error, "33 channels"));
    session_open(&s, &session_tiny, ZERO_FP32, 1);
    s.tokens[5] = 100;
    ck_assert_int_eq(gpt_train(s.m, s.z, s.tokens, s.targets, &loss), ZERO_ERR_ARGUMENT);
    s.tokens[5] = 99;
    s.targets[7] = -1;
    ck_assert_int_eq(gpt_eval(s.m, s.z, s.tokens, s.targets, &loss), ZERO_ERR_ARGUMENT);
    ck_assert_int_eq(gpt_logits(s.m, s.z, s.tokens, 25, logits), ZERO_ERR_ARGUMENT);
    ck_assert_int_eq(gpt_logits(s.m, s.z, s.tokens, 0, logits), ZERO_ERR_ARGUMENT);
    s.targets[7] = 0;
    ck_assert(session_train(&s) > 0); /* nothing had been done */
    session_close(&s);
}
END_TEST

START_TEST(not_a_number_shows)
{
    struct session s;
    struct zero_step_info info;
    float large[64]; /* what is multiplied by them is infinite, and differences of that are not */
    for (int i = 0; i < session_tiny.channels; i++)
        large[i] = session_kinds[_i].dtype == ZERO_FP16 ? 6e4f : 3e38f;
    session_open(&s, &session_tiny, session_kinds[_i].dtype, 2);
    OK(&s, zero_write(s.z, 2, ZERO_MASTER, 0, session_tiny.channels, large));
    OK(&s, zero_set_adam(s.z, 0, &(struct zero_adam){1e-3, 0.9, 0.9, 1e-8, 0, false}));
    ck_assert(isnan(session_train(&s)));
    OK(&s, zero_step(s.z, &info));
    ck_assert(info.skipped);
    session_close(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model");
    TCase *t = tcase_create("gpt2");
    printf("products by %s, of bf16 by %s\n", matmul_backend(ZERO_FP32), matmul_backend(ZERO_BF16));
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, golden_gradients, 0, SESSION_KINDS);
    tcase_add_test(t, golden_logits);
    tcase_add_test(t, golden_adam);
    tcase_add_test(t, finite_differences);
    tcase_add_loop_test(t, odd_sizes, 0, SESSION_KINDS);
    tcase_add_test(t, large_scores);
    tcase_add_loop_test(t, memory_keeps_nothing, 0, SESSION_KINDS);
    tcase_add_loop_test(t, threads_change_no_bit, 0, SESSION_KINDS);
    tcase_add_loop_test(t, recompute_changes_no_bit, 0, SESSION_KINDS);
    tcase_add_loop_test(t, bytes_as_planned, 0, SESSION_KINDS);
    tcase_add_loop_test(t, workers_run_each_task_once, 1, 5);
    tcase_add_loop_test(t, workers_keep_denormals, 1, 4);
    tcase_add_test(t, parameters_are_gpt2s);
    tcase_add_test(t, bad_arguments_are_refused);
    tcase_add_loop_test(t, not_a_number_shows, 0, SESSION_KINDS);
    suite_add_tcase(suite, t);
    return suite_run_all(suite);
}
