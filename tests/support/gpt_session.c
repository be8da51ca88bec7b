// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpt_session.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/engine.h"

const struct gpt_shape session_tiny = {2, 32, 2, 24, 100};
const struct gpt_shape session_odd = {2, 72, 2, 150, 4200};
const struct session_kind session_kinds[SESSION_KINDS] = {
    {ZERO_FP32, 1e-5, 1e-5}, {ZERO_BF16, 2e-2, 1e-2}, {ZERO_FP16, 4e-3, 2e-3}};

static float value_of(const struct session *s, int tensor, int64_t i)
{
    const char *name = s->params[tensor].name;
    uint64_t hash = session_mix(((uint64_t)tensor << 32) + (uint64_t)i);
    if (strstr(name, "ln_") && strstr(name, "weight"))
        return 1.0f + (float)((int)(hash % 31) - 15) / 128.0f;
    return (float)((int)(hash % 255) - 127) / 512.0f;
}

struct filling {
    const struct session *session;
    int tensor;
};

static int fill(void *arg, int64_t first, int64_t count, float *out)
{
    const struct filling *f = arg;
    for (int64_t i = 0; i < count; i++)
        out[i] = value_of(f->session, f->tensor, first + i);
    return 0;
}

int64_t session_elements(const struct zero_param *p)
{
    int64_t n = 1;
    for (int d = 0; d < p->ndim; d++)
        n *= p->shape[d];
    return n;
}

void session_batch(struct session *s, int step)
{
    int T = s->shape.seq;
    for (int b = 0; b < SESSION_BATCH; b++)
        for (int t = 0; t < T; t++) {
            uint64_t at = ((uint64_t)(1000 + step) << 32) + (uint64_t)(b * (T + 1) + t);
            s->tokens[b * T + t] = (int32_t)(session_mix(at) % (uint64_t)s->shape.vocab);
            s->targets[b * T + t] = (int32_t)(session_mix(at + 1) % (uint64_t)s->shape.vocab);
        }
}

void *session_zeros(size_t count, size_t size)
{
    void *x = calloc(count, size);
    ck_assert_ptr_nonnull(x);
    return x;
}

static void describe(struct session *s, struct filling fillings[SESSION_TENSORS])
{
    ck_assert_int_eq(gpt_params(&s->shape, 1, &s->params, &s->count), ZERO_OK);
    ck_assert_int_le(s->count, SESSION_TENSORS);
    for (int i = 0; i < s->count; i++) {
        int64_t n = session_elements(&s->params[i]);
        fillings[i] = (struct filling){s, i};
        s->params[i].fill = fill;
        s->params[i].fill_arg = &fillings[i];
        s->values[i] = session_zeros((size_t)n, sizeof(double));
        s->grads[i] = session_zeros((size_t)n, sizeof(double));
        for (int64_t j = 0; j < n; j++)
            s->values[i][j] = (double)value_of(s, i, j);
    }
    s->tokens = session_zeros((size_t)(SESSION_BATCH * s->shape.seq), sizeof(int32_t));
    s->targets = session_zeros((size_t)(SESSION_BATCH * s->shape.seq), sizeof(int32_t));
}

void session_open_on(struct session *s, const struct gpt_config *config,
                     const struct zero_config *engine, const struct session_gpu *gpu, int rank)
{
    struct filling fillings[SESSION_TENSORS];
    struct zero_config own = *engine;
    struct gpt_config model = *config;
    char error[512] = "";
    *s = (struct session){.shape = config->shape};
    describe(s, fillings);
    session_batch(s, 0);
    own.size = sizeof(own);
    own.dtype = config->dtype;
    own.device = config->device;
    own.threads = 1;
    if (gpu) {
        s->seams = session_zeros(1, sizeof(*s->seams));
        s->seams->device = gpu->device;
        s->seams->link = gpu->link;
        struct error none = {0};
        struct zero_gpu found;
        ck_assert_msg(!gpu->use(rank, &found, &none), "%s", none.text);
        s->gpu = gpu->plugin->open(&found, error, sizeof(error));
        ck_assert_msg(s->gpu != NULL, "%s", error);
    }
    if (engine_create(&s->z, s->params, s->count, &own, s->seams))
        ck_abort_msg("%s", zero_last_error(s->z));
    model.gpu = s->gpu;
    model.stream = zero_stream(s->z);
    s->m = gpt_create(&model, error, sizeof(error));
    ck_assert_msg(s->m != NULL, "%s", error);
}

void session_open_config(struct session *s, const struct gpt_config *config)
{
    session_open_on(s, config, &(struct zero_config){0}, NULL, 0);
}

void session_open(struct session *s, const struct gpt_shape *shape, enum zero_dtype dtype,
                  int threads)
{
    session_open_config(
        s, &(struct gpt_config){
               .shape = *shape, .dtype = dtype, .batch = SESSION_BATCH, .threads = threads});
}

void session_close(struct session *s)
{
    for (int i = 0; i < s->count; i++) {
        free(s->values[i]);
        free(s->grads[i]);
    }
    gpt_destroy(s->m);
    zero_destroy(s->z);
    if (s->gpu)
        s->gpu->plugin->close(s->gpu);
    free(s->seams);
    free(s->params);
    free(s->tokens);
    free(s->targets);
}

double session_train(struct session *s)
{
    double loss = NAN;
    OK(s, gpt_train(s->m, s->z, s->tokens, s->targets, &loss));
    return loss;
}

float *session_gradient(struct session *s, int tensor)
{
    int64_t n = session_elements(&s->params[tensor]);
    float *grad = session_zeros((size_t)n, sizeof(float));
    OK(s, zero_read(s->z, tensor, ZERO_GRAD, 0, n, grad));
    return grad;
}

struct gpt_double session_oracle(struct session *s)
{
    const struct gpt_shape *p = &s->shape;
    return (struct gpt_double){p->layers,     p->channels, p->heads, p->seq, p->vocab,
                               SESSION_BATCH, s->values,   s->grads, NULL};
}

/* got is as close to expected as share of the largest magnitude expected. */
void session_expect_close(const char *what, int64_t n, const float *got, const double *expected,
                          double share)
{
    double largest = 0, worst = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        double error = fabs((double)got[i] - expected[i]);
        largest = fmax(largest, fabs(expected[i]));
        if (!(error <= worst) && !isnan(worst)) {
            worst = error;
            at = i;
        }
    }
    ck_assert_msg(worst <= share * largest, "%s[%lld] is %.9g, expected %.9g: off by %.3g of %.3g",
                  what, (long long)at, (double)got[at], expected[at], worst, largest);
}

void session_expect_gradients(struct session *s, double *const *expected, double share)
{
    for (int i = 0; i < s->count; i++) {
        float *grad = session_gradient(s, i);
        session_expect_close(s->params[i].name, session_elements(&s->params[i]), grad, expected[i],
                             share);
        free(grad);
    }
}

void session_expect_near(const char *what, double got, double expected, double tolerance)
{
    ck_assert_msg(fabs(got - expected) <= tolerance * fmax(1, fabs(expected)),
                  "%s is %.9g, expected %.9g", what, got, expected);
}

static void golden_part(FILE *file, int64_t n, double *out)
{
    float *part = session_zeros((size_t)n, sizeof(float));
    ck_assert_msg(fread(part, sizeof(float), (size_t)n, file) == (size_t)n,
                  SESSION_GOLDEN " is too short: run golden/make_golden.py");
    for (int64_t i = 0; i < n; i++)
        out[i] = (double)part[i];
    free(part);
}

void golden_read(struct session *s, struct golden *g)
{
    int rows = SESSION_BATCH * session_tiny.seq;
    FILE *file = fopen(SESSION_GOLDEN, "rb");
    ck_assert_msg(file != NULL, "No " SESSION_GOLDEN ": run the tests from the repository's root.");
    ck_assert_int_eq(fseek(file, 256, SEEK_SET), 0);
    golden_part(file, 1, &g->loss);
    g->logits = session_zeros((size_t)(rows * session_tiny.vocab), sizeof(double));
    golden_part(file, rows * session_tiny.vocab, g->logits);
    for (int i = 0; i < s->count; i++) {
        int64_t n = session_elements(&s->params[i]);
        g->grads[i] = session_zeros((size_t)n, sizeof(double));
        golden_part(file, i == 0 ? (int64_t)session_tiny.vocab * session_tiny.channels : n,
                    g->grads[i]);
    }
    golden_part(file, SESSION_STEPS, g->losses);
    ck_assert_int_eq(fgetc(file), EOF);
    fclose(file);
}

void golden_free(struct session *s, struct golden *g)
{
    for (int i = 0; i < s->count; i++)
        free(g->grads[i]);
    free(g->logits);
}
