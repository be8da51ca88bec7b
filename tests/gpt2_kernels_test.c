// SPDX-License-Identifier: Apache-2.0
/*
 * The kernels of examples/gpt2/cuda against the CPU's layers: equal bits where both do
 * the same operations, else both within a bound of a sum in double. Linked with nvcc's
 * kernels it is the test of a GPU, with the same kernels compiled for the host it runs
 * everywhere (tests/support/fake_nvcc.h). Sizes are around what threads, warps, blocks
 * and packs do at a time; each launch is made twice, in two orders.
 *
 * Bounds follow from the rounding of each operation (Higham, Accuracy and Stability of
 * Numerical Algorithms, chapter 3): sum_error times the sum of magnitudes for sums, a
 * few roundings for what is done to one element.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt2/attention.h"
#include "examples/gpt2/cuda/launch.h"
#include "examples/gpt2/layers.h"
#include "examples/gpt2/numeric.h"
#include "examples/gpt2/rows.h"
#include "tests/support/gpt2_attention.h"
#include "tests/support/gpt2_kernels.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

static const enum zero_dtype dtypes[] = {ZERO_FP32, ZERO_BF16, ZERO_FP16};
#define DTYPES 3

static cudaStream_t stream;

/* Sizes of a case; what is not used is 0. */
struct sizes {
    int batch, seq, channels, heads, vocab, shift;
};

/* The CPU's layers for a case. */
static struct compute cpu_begin(enum zero_dtype dtype, const struct sizes *s)
{
    int rows = s->batch * s->seq, heads = s->heads ? s->heads : 1;
    int64_t scratch = layers_scratch(dtype, s->channels, rows);
    int64_t more = attention_scratch(dtype, s->seq, s->channels / heads);
    char error[200];
    struct compute c = {
        .dtype = dtype, .batch = s->batch, .seq = s->seq, .channels = s->channels, .heads = heads};
    c.workers = workers_create(2, scratch > more ? scratch : more, NULL, error, sizeof(error));
    ck_assert_msg(c.workers != NULL, "%s", error);
    int64_t lines = (rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
    c.partial = malloc((size_t)(lines * 4 * s->channels) * sizeof(float));
    ck_assert_ptr_nonnull(c.partial);
    twins_shift = s->shift;
    return c;
}

static void cpu_end(struct compute *c)
{
    workers_destroy(c->workers);
    free(c->partial);
    twins_free();
}

static struct twin *partial_of(int rows, int channels)
{
    return twin_unset(ZERO_FP32, gpt_partial_floats(rows, channels));
}

/* -------------------------------------------------------------- embeddings */

static struct twin *tokens_of(int rows, int vocab)
{
    int32_t *tokens = malloc((size_t)rows * sizeof(*tokens));
    ck_assert_ptr_nonnull(tokens);
    for (int r = 0; r < rows; r++) { /* half of them few */
        uint64_t bits = random_bits(2, (uint64_t)vocab, (uint64_t)r);
        tokens[r] = (int32_t)((bits >> 1) % (uint64_t)(bits & 1 && vocab > 5 ? 5 : vocab));
    }
    tokens[0] = vocab - 1;
    struct twin *t = twin_ints(rows, tokens);
    free(tokens);
    return t;
}

static void table_check(const struct twin *table, const struct twin *dx, const int32_t *which,
                        int rows, int channels, const char *what)
{
    struct sum *sums = calloc((size_t)table->n, sizeof(*sums));
    ck_assert_ptr_nonnull(sums);
    for (int64_t i = 0; i < table->n; i++)
        sum_add(&sums[i], twin_before(table, i));
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < channels; i++)
            sum_add(&sums[which[r] * (int64_t)channels + i],
                    twin_before(dx, r * (int64_t)channels + i));
    for (int64_t i = 0; i < table->n; i++) /* the CPU adds the rows of a token one by one */
        twin_check(table, i, sums[i].value, 16 * sum_error(rows) * sums[i].size, true, what);
    free(sums);
}

static void embed_case(enum zero_dtype dtype, const struct sizes *s)
{
    struct compute c = cpu_begin(dtype, s);
    int rows = s->batch * s->seq, n = s->channels;
    int64_t elements = (int64_t)rows * n;
    struct twin *tokens = tokens_of(rows, s->vocab);
    struct twin *wte = twin_random(dtype, (int64_t)s->vocab * n, 1, 0);
    struct twin *wpe = twin_random(dtype, (int64_t)s->seq * n, 1, 0);
    struct twin *x = twin_unset(ZERO_FP32, elements);
    LAUNCH_TWICE(
        gpt_launch_embed(stream, dtype, rows, s->seq, n, tokens->gpu, wte->gpu, wpe->gpu, x->gpu));
    embed_forward(&c, tokens->cpu, wte->cpu, wpe->cpu, x->cpu);
    twin_check_equal(x, "embed");

    struct twin *dx = twin_random(ZERO_FP32, elements, 1, 0);
    struct twin *order = twin_bytes(gpt_embed_ints(rows) * (int64_t)sizeof(int32_t));
    LAUNCH_TWICE(gpt_launch_embed_backward(stream, dtype, rows, s->seq, n, s->vocab, tokens->gpu,
                                           dx->gpu, order->gpu, wte->gpu, wpe->gpu));
    int32_t *chain = malloc((size_t)(s->vocab + 2 * rows) * sizeof(*chain));
    ck_assert_ptr_nonnull(chain);
    c.vocab = s->vocab;
    c.chain = chain;
    embed_backward(&c, tokens->cpu, dx->cpu, wte->cpu, wpe->cpu);
    table_check(wte, dx, tokens->before, rows, n, "dwte");
    for (int r = 0; r < rows; r++)
        chain[r] = r % s->seq;
    table_check(wpe, dx, chain, rows, n, "dwpe");
    free(chain);
    cpu_end(&c);
}

START_TEST(embed)
{
    static const struct sizes sizes[] = {
        {.batch = 1, .seq = 1, .channels = 1, .vocab = 1},
        {.batch = 2, .seq = 5, .channels = 3, .vocab = 7},
        {.batch = 3, .seq = 40, .channels = 132, .vocab = 300},
        {.batch = 1, .seq = 700, .channels = 4, .vocab = 2},
        {.batch = 2, .seq = 64, .channels = 8, .vocab = 70000, .shift = 1},
        {.batch = 10, .seq = 500, .channels = 4, .vocab = 50},
        {.batch = 2, .seq = 1000, .channels = 257, .vocab = 1000}, /* more sums than blocks */
    };
    stream = twins_begin();
    if (!stream)
        return;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        embed_case(dtypes[_i], &sizes[i]);
    twins_end();
}
END_TEST

/* -------------------------------------------------------------- layer norm */

/* Rows whose mean is not 0. */
static struct twin *norm_rows(int rows, int n)
{
    return twin_random(ZERO_FP32, (int64_t)rows * n, 1.5, 0.7);
}

struct moments {
    double mean, scale, size; /* size: mean of |x| */
};

static struct moments moments_of(const struct twin *x, int64_t row, int n)
{
    struct sum sum = {0};
    double squares = 0;
    for (int i = 0; i < n; i++)
        sum_add(&sum, twin_before(x, row * n + i));
    for (int i = 0; i < n; i++) {
        double d = twin_before(x, row * n + i) - sum.value / n;
        squares += d * d;
    }
    return (struct moments){sum.value / n, 1 / sqrt(squares / n + 1e-5), sum.size / n};
}

static void norm_check(const struct sizes *s, const struct twin *x, const struct twin *weight,
                       const struct twin *bias, const struct twin *stats, const struct twin *out)
{
    int n = s->channels;
    double e = sum_error(n);
    for (int row = 0; row < s->batch * s->seq; row++) {
        struct moments m = moments_of(x, row, n);
        /* The mean's error moves squares by its own square alone, and by theirs. */
        double mean_error = e * m.size, scale_error = 2 * e + m.scale * mean_error;
        twin_check(stats, 2 * row, m.mean, mean_error, true, "mean");
        twin_check(stats, 2 * row + 1, m.scale, scale_error * m.scale, true, "1 / deviation");
        for (int i = 0; i < n; i++) {
            int64_t at = (int64_t)row * n + i;
            double w = twin_before(weight, i), b = twin_before(bias, i);
            double normal = (twin_before(x, at) - m.mean) * m.scale;
            double error = fabs(normal) * (scale_error + 4 * ROUNDING) + mean_error * m.scale;
            twin_check(out, at, normal * w + b, error * fabs(w) + fabs(b) * ROUNDING, true, "norm");
        }
    }
}

static void norm_backward_check(const struct sizes *s, const struct twin *x,
                                const struct twin *stats, const struct twin *weight,
                                const struct twin *dout, const struct twin *dx,
                                const struct twin *dweight, const struct twin *dbias)
{
    int n = s->channels, rows = s->batch * s->seq;
    double e = sum_error(n);
    struct sum *dw = calloc((size_t)n, sizeof(*dw)), *db = calloc((size_t)n, sizeof(*db));
    ck_assert(dw && db);
    for (int row = 0; row < rows; row++) {
        struct sum shift = {0}, slope = {0};
        double mean = twin_before(stats, 2 * row), scale = twin_before(stats, 2 * row + 1);
        for (int i = 0; i < n; i++) {
            int64_t at = (int64_t)row * n + i;
            double grad = twin_before(dout, at), normal = (twin_before(x, at) - mean) * scale;
            sum_add(&shift, grad * twin_before(weight, i) / n);
            sum_add(&slope, grad * twin_before(weight, i) * normal / n);
            sum_add(&dw[i], grad * normal);
            sum_add(&db[i], grad);
        }
        for (int i = 0; i < n; i++) {
            int64_t at = (int64_t)row * n + i;
            double normal = (twin_before(x, at) - mean) * scale;
            double dnormal = twin_before(dout, at) * twin_before(weight, i);
            double old = twin_before(dx, at);
            double size = fabs(dnormal) + shift.size + fabs(normal) * slope.size;
            twin_check(dx, at, old + scale * (dnormal - shift.value - normal * slope.value),
                       (e + 8 * ROUNDING) * scale * size + fabs(old) * ROUNDING, true, "dx");
        }
    }
    for (int i = 0; i < n; i++) {
        twin_check(dweight, i, twin_before(dweight, i) + dw[i].value,
                   (sum_error(rows) + 64 * ROUNDING) * dw[i].size, true, "dweight");
        twin_check(dbias, i, twin_before(dbias, i) + db[i].value,
                   (sum_error(rows) + 64 * ROUNDING) * db[i].size, true, "dbias");
    }
    free(dw);
    free(db);
}

static void norm_case(enum zero_dtype dtype, const struct sizes *s)
{
    struct compute c = cpu_begin(dtype, s);
    int rows = s->batch * s->seq, n = s->channels;
    struct twin *x = norm_rows(rows, n);
    struct twin *weight = twin_random(dtype, n, 0.3, 1), *bias = twin_random(dtype, n, 1, 0);
    struct twin *stats = twin_unset(ZERO_FP32, 2 * (int64_t)rows);
    struct twin *out = twin_unset(dtype, (int64_t)rows * n);
    LAUNCH_TWICE(gpt_launch_norm(stream, dtype, rows, n, x->gpu, weight->gpu, bias->gpu, stats->gpu,
                                 out->gpu));
    norm_forward(&c, x->cpu, weight->cpu, bias->cpu, stats->cpu, out->cpu);
    norm_check(s, x, weight, bias, stats, out);

    for (int64_t i = 0; i < stats->n; i++)
        twin_set(stats, i, twin_after(stats, i));
    struct twin *dout = twin_random(ZERO_FP32, (int64_t)rows * n, 0.1, 0.02);
    struct twin *dx = twin_random(ZERO_FP32, (int64_t)rows * n, 0.1, 0);
    struct twin *dweight = twin_random(dtype, n, 1, 0), *dbias = twin_random(dtype, n, 1, 0);
    struct twin *partial = partial_of(rows, n);
    LAUNCH_TWICE(gpt_launch_norm_backward(stream, dtype, rows, n, x->gpu, stats->gpu, weight->gpu,
                                          dout->gpu, dx->gpu, partial->gpu, dweight->gpu,
                                          dbias->gpu));
    norm_backward(&c, x->cpu, stats->cpu, weight->cpu, dout->cpu, dx->cpu, dweight->cpu,
                  dbias->cpu);
    norm_backward_check(s, x, stats, weight, dout, dx, dweight, dbias);
    cpu_end(&c);
}

START_TEST(norm)
{
    static const struct sizes sizes[] = {
        {.batch = 1, .seq = 1, .channels = 1},
        {.batch = 1, .seq = 3, .channels = 5},
        {.batch = 2, .seq = 35, .channels = 64},
        {.batch = 1, .seq = 33, .channels = 132},
        {.batch = 1, .seq = 9, .channels = 1600},
        {.batch = 1, .seq = 17, .channels = 1100},
        {.batch = 1, .seq = 5, .channels = 4100},
        {.batch = 1, .seq = 3, .channels = 8200},
        {.batch = 1, .seq = 3, .channels = 2050},
        {.batch = 5, .seq = 64, .channels = 12},
        {.batch = 1, .seq = 40, .channels = 96, .shift = 1},
    };
    stream = twins_begin();
    if (!stream)
        return;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        norm_case(dtypes[_i], &sizes[i]);
    twins_end();
}
END_TEST

/* --------------------------------------------------- what surrounds products */

static void residual_case(enum zero_dtype dtype, int rows, int width)
{
    int64_t n = (int64_t)rows * width;
    struct twin *y = twin_random(ZERO_FP32, n, 2, 0), *bias = twin_random(dtype, width, 1, 0);
    struct twin *residual = twin_random(ZERO_FP32, n, 2, 0);
    LAUNCH_TWICE(gpt_launch_residual(stream, dtype, rows, width, bias->gpu, residual->gpu, y->gpu));
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < width; i++) {
            float spare[1], *to = (float *)y->cpu + (int64_t)row * width + i;
            rows_best()->add(1, operand_view(dtype, bias->cpu, i, 1, spare), to);
            rows_best()->add(1, (float *)residual->cpu + (int64_t)row * width + i, to);
        }
    twin_check_equal(y, "residual");
}

/* Numbers of which some are where exponentials end. */
static struct twin *wide_of(enum zero_dtype dtype, int64_t n)
{
    struct twin *wide = twin_random(dtype, n, 2, 0);
    for (int64_t i = 0; i < n; i += 13)
        twin_set(wide, i, (i & 1 ? 40 : -1) * fabs(twin_before(wide, i)) * 4);
    return wide;
}

/* Cubic, exponential, sum, quotient: relative errors of the argument count |u| times. */
static double sigmoid_error(double u, double sigmoid)
{
    return ROUNDING * sigmoid * (16 + 8 * fabs(u) * (1 - sigmoid));
}

static const double linear = 1.5957691216057308, cubic = 0.07135481282652453;

static void gelu_case(enum zero_dtype dtype, int64_t n)
{
    struct twin *wide = wide_of(dtype, n), *active = twin_unset(dtype, n);
    LAUNCH_TWICE(gpt_launch_gelu(stream, dtype, n, wide->gpu, active->gpu));
    for (int64_t i = 0; i < n; i++) {
        double x = twin_before(wide, i), u = x * (linear + cubic * x * x);
        double sigmoid = 1 / (1 + exp(-u));
        float at = (float)x, none = -0.0f;
        rows_best()->gelu(dtype, 1, &at, &none, operand_at(dtype, wide->cpu, i),
                          operand_at(dtype, active->cpu, i));
        twin_check(active, i, x * sigmoid, fabs(x) * (sigmoid_error(u, sigmoid) + 1e-37), true,
                   "gelu");
    }
}

static void gelu_backward_case(enum zero_dtype dtype, int rows, int width)
{
    struct twin *wide = wide_of(dtype, (int64_t)rows * width);
    struct twin *dwide = twin_random(dtype, wide->n, 2, 0);
    struct twin *dbias = twin_random(dtype, width, 1, 0);
    struct twin *partial = partial_of(rows, (width + 3) / 4);
    struct sum *sums = calloc((size_t)width, sizeof(*sums));
    ck_assert_ptr_nonnull(sums);
    LAUNCH_TWICE(gpt_launch_gelu_backward(stream, dtype, rows, width, wide->gpu, dwide->gpu,
                                          partial->gpu, dbias->gpu));
    for (int64_t i = 0; i < wide->n; i++) {
        double x = twin_before(wide, i), grad = twin_before(dwide, i);
        double u = x * (linear + cubic * x * x), slope = linear + 3 * cubic * x * x;
        double s = 1 / (1 + exp(-u)), d = s + x * s * (1 - s) * slope;
        double error = (sigmoid_error(u, s) + 1e-37) * (1 + fabs(x) * slope) +
                       8 * ROUNDING * fabs(x) * slope * s;
        float dactive = (float)grad, sum = 0;
        rows_best()->gelu_backward(dtype, 1, operand_at(dtype, wide->cpu, i), &dactive,
                                   operand_at(dtype, dwide->cpu, i), &sum);
        twin_check(dwide, i, grad * d, fabs(grad) * error, true, "gelu_backward");
        sum_add(&sums[i % width], grad * d);
        sums[i % width].size += fabs(grad) * error / ROUNDING / 32;
    }
    for (int i = 0; i < width; i++)
        twin_check(dbias, i, twin_before(dbias, i) + sums[i].value, sum_error(rows) * sums[i].size,
                   false, "gelu_backward's bias");
    free(sums);
}

START_TEST(around_products)
{
    static const int sizes[][3] = {{1, 1, 0},    {3, 5, 0},   {7, 257, 0}, {129, 132, 0},
                                   {33, 520, 0}, {11, 64, 1}, {300, 12, 0}};
    enum zero_dtype dtype = dtypes[_i];
    stream = twins_begin();
    if (!stream)
        return;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        int rows = sizes[i][0], width = sizes[i][1];
        twins_shift = sizes[i][2];
        residual_case(dtype, rows, width);
        gelu_case(dtype, (int64_t)rows * width);
        gelu_backward_case(dtype, rows, width);
        twins_free();
    }
    twins_end();
}
END_TEST

/* Column sums: bias_backward of operands, residual_backward of fp32. */
static void sums_case(enum zero_dtype dtype, const struct sizes *s)
{
    struct compute c = cpu_begin(dtype, s);
    int rows = s->batch * s->seq, n = s->channels;
    struct twin *dout = twin_random(dtype, (int64_t)rows * n, 1, 0.1);
    struct twin *dx = twin_random(ZERO_FP32, dout->n, 1, 0.1), *out = twin_unset(dtype, dout->n);
    struct twin *first = twin_random(dtype, n, 1, 0), *second = twin_random(dtype, n, 1, 0);
    struct twin *partial = partial_of(rows, (n + 3) / 4);
    LAUNCH_TWICE(
        gpt_launch_bias_backward(stream, dtype, rows, n, dout->gpu, partial->gpu, first->gpu));
    bias_backward(&c, dout->cpu, n, first->cpu);
    for (int i = 0; i < n; i++) {
        struct sum sum = {0};
        for (int row = 0; row < rows; row++)
            sum_add(&sum, twin_before(dout, (int64_t)row * n + i));
        twin_check(first, i, twin_before(first, i) + sum.value,
                   (sum_error(rows) + 64 * ROUNDING) * sum.size, true, "bias_backward");
    }
    LAUNCH_TWICE(gpt_launch_residual_backward(stream, dtype, rows, n, dx->gpu, out->gpu,
                                              partial->gpu, second->gpu));
    residual_backward(&c, dx->cpu, out->cpu, second->cpu);
    twin_check_equal(out, "residual_backward");
    for (int i = 0; i < n; i++) {
        struct sum sum = {0};
        for (int row = 0; row < rows; row++)
            sum_add(&sum, twin_before(dx, (int64_t)row * n + i));
        twin_check(second, i, twin_before(second, i) + sum.value,
                   (sum_error(rows) + 64 * ROUNDING) * sum.size, true, "residual_backward's bias");
    }
    cpu_end(&c);
}

START_TEST(sums)
{
    static const struct sizes sizes[] = {
        {.batch = 1, .seq = 1, .channels = 1},
        {.batch = 1, .seq = 31, .channels = 7},
        {.batch = 1, .seq = 127, .channels = 64},
        {.batch = 1, .seq = 129, .channels = 132},
        {.batch = 9, .seq = 128, .channels = 40},
        {.batch = 1, .seq = 33, .channels = 520},
        {.batch = 2, .seq = 31, .channels = 257},
        {.batch = 1, .seq = 200, .channels = 16, .shift = 1},
    };
    stream = twins_begin();
    if (!stream)
        return;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        sums_case(dtypes[_i], &sizes[i]);
    twins_end();
}
END_TEST

/* --------------------------------------------------------------- attention */

static void attention_run_case(enum zero_dtype dtype, const struct sizes *s)
{
    struct compute c = cpu_begin(dtype, s);
    struct attention_case a = {dtype, s->batch, s->seq, s->heads, s->channels / s->heads,
                               NULL,  NULL,     NULL,   NULL,     NULL,
                               NULL};
    int64_t elements = (int64_t)s->batch * s->seq * s->channels;
    int64_t queries = (int64_t)s->batch * s->heads * s->seq;
    a.qkv = twin_random(dtype, 3 * elements, 1.2, 0.1);
    a.lse = twin_unset(ZERO_FP32, queries);
    a.out = twin_unset(dtype, elements);
    LAUNCH_TWICE(gpt_launch_attention(stream, dtype, a.batch, a.seq, a.heads, a.size, a.qkv->gpu,
                                      a.lse->gpu, a.out->gpu));
    attention_forward(&c, a.qkv->cpu, a.lse->cpu, a.out->cpu);
    attention_forward_check(&a);

    for (int64_t i = 0; i < queries; i++)
        twin_set(a.lse, i, twin_after(a.lse, i));
    for (int64_t i = 0; i < elements; i++)
        twin_set(a.out, i, twin_after(a.out, i));
    a.dout = twin_random(dtype, elements, 0.5, 0);
    a.delta = twin_unset(ZERO_FP32, queries);
    a.dqkv = twin_unset(dtype, 3 * elements);
    LAUNCH_TWICE(gpt_launch_attention_backward(stream, dtype, a.batch, a.seq, a.heads, a.size,
                                               a.qkv->gpu, a.lse->gpu, a.out->gpu, a.dout->gpu,
                                               a.delta->gpu, a.dqkv->gpu));
    attention_backward(&c, a.qkv->cpu, a.lse->cpu, a.out->cpu, a.dout->cpu, a.dqkv->cpu);
    attention_backward_check(&a);
    cpu_end(&c);
}

START_TEST(attention)
{
    static const struct sizes sizes[] = {
        {.batch = 1, .seq = 1, .heads = 1, .channels = 8},
        {.batch = 2, .seq = 5, .heads = 3, .channels = 192},
        {.batch = 1, .seq = 147, .heads = 2, .channels = 128},
        {.batch = 1, .seq = 64, .heads = 1, .channels = 24},
        {.batch = 1, .seq = 131, .heads = 1, .channels = 128},
        {.batch = 1, .seq = 33, .heads = 2, .channels = 160},
        {.batch = 2, .seq = 19, .heads = 2, .channels = 20},
        {.batch = 1, .seq = 37, .heads = 1, .channels = 200},
        {.batch = 1, .seq = 35, .heads = 1, .channels = 64, .shift = 1},
    };
    stream = twins_begin();
    if (!stream)
        return;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        attention_run_case(dtypes[_i], &sizes[i]);
    twins_end();
}
END_TEST

/* -------------------------------------------------------------------- loss */

#define CHUNKS_MAX 4

/* Logits in chunks of the vocabulary, with columns that mean nothing behind each. */
struct loss_case {
    enum zero_dtype dtype;
    int rows, vocab, width, stride, chunks;
    float scale;
    struct twin *logits[CHUNKS_MAX], *dlogits[CHUNKS_MAX];
    struct twin *targets, *softmax, *lse, *losses, *loss;
};

static int count_of(const struct loss_case *l, int chunk)
{
    int left = l->vocab - chunk * l->width;
    return left < l->width ? left : l->width;
}

static cudaError_t loss_launch(const struct loss_case *l)
{
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < l->chunks && error == cudaSuccess; i++)
        error = gpt_launch_softmax(stream, l->rows, i * l->width, count_of(l, i), l->stride,
                                   l->logits[i]->gpu, l->targets->gpu, l->softmax->gpu);
    return error == cudaSuccess ? gpt_launch_loss(stream, l->rows, l->softmax->gpu, l->lse->gpu,
                                                  l->losses->gpu, l->loss->gpu)
                                : error;
}

static cudaError_t dlogits_launch(const struct loss_case *l)
{
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < l->chunks && error == cudaSuccess; i++)
        error = gpt_launch_dlogits(stream, l->dtype, l->rows, i * l->width, count_of(l, i),
                                   l->stride, l->logits[i]->gpu, l->lse->gpu, l->targets->gpu,
                                   l->scale, l->dlogits[i]->gpu);
    return error;
}

static double logit_of(const struct loss_case *l, int row, int token)
{
    return twin_before(l->logits[token / l->width], (int64_t)row * l->stride + token % l->width);
}

/* Returns the row's loss. */
static double row_loss_check(const struct loss_case *l, int row)
{
    int target = ((int32_t *)l->targets->before)[row];
    struct gpt_softmax is = ((struct gpt_softmax *)l->softmax->after)[row];
    double sum = 0, most = -INFINITY, e = 2 * sum_error(l->vocab);
    for (int v = 0; v < l->vocab; v++)
        most = fmax(most, logit_of(l, row, v));
    for (int v = 0; v < l->vocab; v++)
        sum += exp(logit_of(l, row, v) - most);
    ck_assert_double_eq((double)is.max, most);
    ck_assert_double_eq((double)is.chosen, logit_of(l, row, target));
    ck_assert_msg(fabs(is.sum - sum) <= e * sum, "sum of row %d: %.9g, not %.9g", row, is.sum, sum);
    twin_check(l->lse, row, most + log(sum), e, false, "lse");
    return most + log(sum) - logit_of(l, row, target);
}

static void row_dlogits_check(const struct loss_case *l, int row)
{
    int target = ((int32_t *)l->targets->before)[row];
    double lse = twin_before(l->lse, row), scale = (double)l->scale;
    for (int v = 0; v < l->vocab; v++) {
        double logit = logit_of(l, row, v), p = exp(logit - lse);
        double error = p * ROUNDING * (8 + 2 * fabs(logit - lse)) + (v == target ? ROUNDING : 0);
        twin_check(l->dlogits[v / l->width], (int64_t)row * l->stride + v % l->width,
                   (p - (v == target)) * scale, error * scale + 1e-37, false, "dlogits");
    }
    for (int i = 0; i < l->chunks; i++)
        for (int col = count_of(l, i); col < l->stride; col++)
            if (twin_after(l->dlogits[i], (int64_t)row * l->stride + col) != 0)
                ck_abort_msg("dlogits: row %d, column %d is not 0", row, col);
}

static void loss_run_case(struct loss_case *l, int shift)
{
    double loss, mean = 0, e = 2 * sum_error(l->vocab);
    int32_t *targets = malloc((size_t)l->rows * sizeof(*targets));
    ck_assert_ptr_nonnull(targets);
    for (int r = 0; r < l->rows; r++)
        targets[r] = (int32_t)(random_bits(3, 0, (uint64_t)r) % (uint64_t)l->vocab);
    targets[0] = l->vocab - 1;
    twins_shift = shift;
    l->chunks = (l->vocab + l->width - 1) / l->width;
    for (int i = 0; i < l->chunks; i++) {
        l->logits[i] = twin_random(ZERO_FP32, (int64_t)l->rows * l->stride, 8, i % 2 ? 20 : -20);
        l->dlogits[i] = twin_unset(l->dtype, (int64_t)l->rows * l->stride);
    }
    l->targets = twin_ints(l->rows, targets);
    l->softmax = twin_bytes((int64_t)sizeof(struct gpt_softmax) * l->rows);
    l->lse = twin_unset(ZERO_FP32, l->rows);
    l->losses = twin_bytes((int64_t)sizeof(double) * l->rows);
    l->loss = twin_bytes(sizeof(double));
    LAUNCH_TWICE(loss_launch(l));
    for (int r = 0; r < l->rows; r++)
        mean += row_loss_check(l, r) / l->rows;
    memcpy(&loss, l->loss->after, sizeof(loss));
    ck_assert_msg(fabs(loss - mean) <= e, "loss %.9g, not %.9g", loss, mean);
    for (int r = 0; r < l->rows; r++)
        twin_set(l->lse, r, twin_after(l->lse, r));
    LAUNCH_TWICE(dlogits_launch(l));
    for (int r = 0; r < l->rows; r++)
        row_dlogits_check(l, r);

    /* A logit that is no number makes the loss none. */
    twin_set(l->logits[0], 0, NAN);
    LAUNCH_TWICE(loss_launch(l));
    memcpy(&loss, l->loss->after, sizeof(loss));
    ck_assert(isnan(loss));
    free(targets);
    twins_free();
}

START_TEST(loss)
{
    static const int sizes[][5] = {/* rows, vocabulary, width, stride, shift */
                                   {1, 1, 1, 1, 0},        {3, 7, 3, 4, 0},
                                   {5, 1023, 512, 520, 0}, {2, 9001, 9001, 9004, 0},
                                   {1030, 2, 2, 2, 0},     {4, 300, 100, 101, 1}};
    stream = twins_begin();
    if (!stream)
        return;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        if (_i > 0 && sizes[i][0] > 1000)
            continue; /* many rows are the business of kernels that know no type */
        struct loss_case l = {.dtype = dtypes[_i],
                              .rows = sizes[i][0],
                              .vocab = sizes[i][1],
                              .width = sizes[i][2],
                              .stride = sizes[i][3],
                              .scale = 0.37f};
        loss_run_case(&l, sizes[i][4]);
    }
    twins_end();
}
END_TEST

/* ---------------------------------------------------------------- refusals */

START_TEST(refusals)
{
    static const enum zero_dtype bf16 = ZERO_BF16, none = (enum zero_dtype)9;
    const cudaError_t wrong = cudaErrorInvalidValue;
    const float *in = NULL;
    float *f = NULL;
    int32_t *o = NULL;
    stream = twins_begin();
    if (!stream)
        return;
    ck_assert_int_eq(gpt_launch_embed(stream, bf16, -1, 1, 8, o, f, f, f), wrong);
    ck_assert_int_eq(gpt_launch_embed(stream, bf16, 1, 0, 8, o, f, f, f), wrong);
    ck_assert_int_eq(gpt_launch_embed_backward(stream, bf16, 3, 2, 8, 9, o, in, o, f, f), wrong);
    ck_assert_int_eq(gpt_launch_norm(stream, none, 1, 8, in, f, f, f, f), wrong);
    ck_assert_int_eq(gpt_launch_norm(stream, bf16, 1, -8, in, f, f, f, f), wrong);
    ck_assert_int_eq(gpt_launch_residual(stream, bf16, 1, -8, f, f, f), wrong);
    ck_assert_int_eq(gpt_launch_gelu(stream, bf16, -1, f, f), wrong);
    ck_assert_int_eq(gpt_launch_attention(stream, bf16, 1, 1, 1, 264, f, f, f), wrong);
    ck_assert_int_eq(gpt_launch_attention(stream, bf16, 1, -1, 1, 64, f, f, f), wrong);
    ck_assert_int_eq(gpt_launch_attention(stream, ZERO_FP32, 1 << 12, 1, 1 << 20, 8, f, f, f),
                     wrong); /* more blocks than there are */
    ck_assert_int_eq(gpt_launch_softmax(stream, 1, 0, 8, 7, in, o, NULL), wrong);
    ck_assert_int_eq(gpt_launch_softmax(stream, 1, 0, 0, 7, in, o, NULL), wrong);
    ck_assert_int_eq(gpt_launch_loss(stream, 0, NULL, f, NULL, NULL), wrong);
    ck_assert_int_eq(gpt_launch_dlogits(stream, bf16, 1, -1, 8, 8, in, in, o, 1, f), wrong);

    ck_assert_int_eq(gpt_launch_embed(stream, bf16, 0, 1, 8, o, f, f, f), cudaSuccess);
    ck_assert_int_eq(gpt_launch_norm_backward(stream, bf16, 0, 8, in, in, f, in, f, f, f, f),
                     cudaSuccess);
    ck_assert_int_eq(gpt_launch_bias_backward(stream, bf16, 0, 8, f, f, f), cudaSuccess);
    ck_assert_int_eq(gpt_launch_gelu(stream, bf16, 0, f, f), cudaSuccess);
    ck_assert_int_eq(gpt_launch_attention(stream, bf16, 1, 0, 1, 64, f, f, f), cudaSuccess);
    ck_assert_int_eq(gpt_launch_softmax(stream, 0, 0, 8, 8, in, o, NULL), cudaSuccess);
    twins_end();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpt2_kernels");
    TCase *tcase = tcase_create("bounds");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, embed, 0, DTYPES);
    tcase_add_loop_test(tcase, norm, 0, DTYPES);
    tcase_add_loop_test(tcase, around_products, 0, DTYPES);
    tcase_add_loop_test(tcase, sums, 0, DTYPES);
    tcase_add_loop_test(tcase, attention, 0, DTYPES);
    tcase_add_loop_test(tcase, loss, 0, DTYPES);
    tcase_add_test(tcase, refusals);
    suite_add_tcase(suite, tcase);
    return suite_run_all(suite);
}
