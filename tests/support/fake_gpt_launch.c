// SPDX-License-Identifier: Apache-2.0
/*
 * examples/gpt2/cuda/launch.h on fake GPUs: the CPU's layers, which define the meaning,
 * in the streams' threads. What they compute is nearer to the CPU than the kernels are;
 * what is tested with them is the host's side, its order and its addresses, under
 * ThreadSanitizer too, which does not follow kernels/cuda's stand-in for blocks.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt2/attention.h"
#include "examples/gpt2/cuda/launch.h"
#include "examples/gpt2/layers.h"
#include "examples/gpt2/numeric.h"
#include "examples/gpt2/rows.h"
#include "tests/support/fake_cuda_parts.h"

enum { PLACES = 8 };

/* One launch: sizes, and where its arrays are. */
struct call {
    struct compute c;
    int width, first, count;
    int64_t stride;
    float scale;
    void *at[PLACES];
};

/* The layers' memory for one call, in the stream's thread. */
static struct compute begin(const struct call *call)
{
    struct compute c = call->c;
    char error[128];
    int64_t rows = compute_rows(&c), layers = layers_scratch(c.dtype, c.channels, (int)rows);
    int64_t attention = attention_scratch(c.dtype, c.seq, c.channels / c.heads);
    c.workers =
        workers_create(1, layers > attention ? layers : attention, NULL, error, sizeof(error));
    c.partial = malloc((size_t)(rows / ROWS_PER_TASK + 1) * 4 * (size_t)c.channels * sizeof(float));
    c.chain = malloc((size_t)(c.vocab + rows) * sizeof(*c.chain));
    if (!c.workers || !c.partial || !c.chain)
        abort();
    return c;
}

static void end(const struct compute *c)
{
    workers_destroy(c->workers);
    free(c->partial);
    free(c->chain);
}

static struct fake_op *create(const char *name, cudaStream_t stream, enum zero_dtype dtype,
                              int batch, int seq, int heads, int channels)
{
    struct fake_op *op = fake_op_create(name, stream, sizeof(struct call));
    struct call *call = op->arg;
    call->c = (struct compute){
        .dtype = dtype, .batch = batch, .seq = seq, .heads = heads, .channels = channels};
    if (op->error == cudaSuccess && (batch < 0 || seq < 0 || channels < 0 || dtype > ZERO_FP16))
        op->error = cudaErrorInvalidValue;
    return op;
}

/* Array number i of a call has so many elements. */
static void take(struct fake_op *op, int i, const void *address, int64_t elements, int64_t bytes)
{
    struct call *call = op->arg;
    if (address)
        call->at[i] = fake_reach(op, address, elements * bytes, FAKE_VISIBLE);
}

static void take_operand(struct fake_op *op, int i, const void *address, int64_t elements)
{
    const struct call *call = op->arg;
    take(op, i, address, elements, operand_bytes(call->c.dtype));
}

static void take_floats(struct fake_op *op, int i, const void *address, int64_t elements)
{
    take(op, i, address, elements, sizeof(float));
}

static void take_ints(struct fake_op *op, int i, const void *address, int64_t elements)
{
    take(op, i, address, elements, sizeof(int32_t));
}

/* Room that kernels use and these do not: touched, so that two calls at once show. */
static void take_room(struct fake_op *op, int i, void *address, int64_t bytes)
{
    struct call *call = op->arg;
    take(op, i, address, bytes, 1);
    call->stride = bytes;
}

static void touch(const struct call *call, int i)
{
    fake_fill(call->at[i], 0x5A, (size_t)call->stride);
}

/* -------------------------------------------------------------- embeddings */

static void embed_run(void *arg)
{
    const struct call *a = arg;
    struct compute c = begin(a);
    embed_forward(&c, a->at[0], a->at[1], a->at[2], a->at[3]);
    end(&c);
}

cudaError_t gpt_launch_embed(cudaStream_t stream, enum zero_dtype dtype, int rows, int seq,
                             int channels, const int32_t *tokens, const void *wte, const void *wpe,
                             float *x)
{
    struct fake_op *op = create(__func__, stream, dtype, rows / seq, seq, 1, channels);
    take_ints(op, 0, tokens, rows);
    take_operand(op, 1, wte, channels); /* how many there are only the tokens say */
    take_operand(op, 2, wpe, (int64_t)seq * channels);
    take_floats(op, 3, x, (int64_t)rows * channels);
    return fake_op_append(op, embed_run);
}

static void embed_backward_run(void *arg)
{
    const struct call *a = arg;
    struct compute c = begin(a);
    touch(a, 4);
    embed_backward(&c, a->at[0], a->at[1], a->at[2], a->at[3]);
    end(&c);
}

cudaError_t gpt_launch_embed_backward(cudaStream_t stream, enum zero_dtype dtype, int rows, int seq,
                                      int channels, int vocab, const int32_t *tokens,
                                      const float *dx, int32_t *order, void *dwte, void *dwpe)
{
    struct fake_op *op = create(__func__, stream, dtype, rows / seq, seq, 1, channels);
    struct call *call = op->arg;
    call->c.vocab = vocab;
    take_ints(op, 0, tokens, rows);
    take_floats(op, 1, dx, (int64_t)rows * channels);
    take_operand(op, 2, dwte, (int64_t)vocab * channels);
    take_operand(op, 3, dwpe, (int64_t)seq * channels);
    take_room(op, 4, order, gpt_embed_ints(rows) * (int64_t)sizeof(*order));
    return fake_op_append(op, embed_backward_run);
}

/* -------------------------------------------------------------- layer norm */

static void norm_run(void *arg)
{
    const struct call *a = arg;
    struct compute c = begin(a);
    norm_forward(&c, a->at[0], a->at[1], a->at[2], a->at[3], a->at[4]);
    end(&c);
}

cudaError_t gpt_launch_norm(cudaStream_t stream, enum zero_dtype dtype, int rows, int channels,
                            const float *x, const void *weight, const void *bias, float *stats,
                            void *out)
{
    struct fake_op *op = create(__func__, stream, dtype, 1, rows, 1, channels);
    take_floats(op, 0, x, (int64_t)rows * channels);
    take_operand(op, 1, weight, channels);
    take_operand(op, 2, bias, channels);
    take_floats(op, 3, stats, 2 * (int64_t)rows);
    take_operand(op, 4, out, (int64_t)rows * channels);
    return fake_op_append(op, norm_run);
}

static void norm_backward_run(void *arg)
{
    const struct call *a = arg;
    struct compute c = begin(a);
    touch(a, 7);
    norm_backward(&c, a->at[0], a->at[1], a->at[2], a->at[3], a->at[4], a->at[5], a->at[6]);
    end(&c);
}

cudaError_t gpt_launch_norm_backward(cudaStream_t stream, enum zero_dtype dtype, int rows,
                                     int channels, const float *x, const float *stats,
                                     const void *weight, const float *dout, float *dx,
                                     float *partial, void *dweight, void *dbias)
{
    struct fake_op *op = create(__func__, stream, dtype, 1, rows, 1, channels);
    take_floats(op, 0, x, (int64_t)rows * channels);
    take_floats(op, 1, stats, 2 * (int64_t)rows);
    take_operand(op, 2, weight, channels);
    take_floats(op, 3, dout, (int64_t)rows * channels);
    take_floats(op, 4, dx, (int64_t)rows * channels);
    take_operand(op, 5, dweight, channels);
    take_operand(op, 6, dbias, channels);
    take_room(op, 7, partial, gpt_partial_floats(rows, channels) * (int64_t)sizeof(float));
    return fake_op_append(op, norm_backward_run);
}

/* ------------------------------------------------ what surrounds the products */

static float *line_new(int width)
{
    float *line = malloc((size_t)width * sizeof(float));
    if (!line)
        abort();
    return line;
}

static void residual_run(void *arg)
{
    const struct call *a = arg;
    int n = a->width;
    float *spare = line_new(n);
    const float *bias = operand_view(a->c.dtype, a->at[0], 0, n, spare);
    for (int r = 0; r < compute_rows(&a->c); r++) {
        float *line = (float *)a->at[2] + (int64_t)r * n;
        rows_best()->add(n, bias, line);
        rows_best()->add(n, (float *)a->at[1] + (int64_t)r * n, line);
    }
    free(spare);
}

cudaError_t gpt_launch_residual(cudaStream_t stream, enum zero_dtype dtype, int rows, int width,
                                const void *bias, const float *residual, float *y)
{
    struct fake_op *op = create(__func__, stream, dtype, 1, rows, 1, width);
    struct call *call = op->arg;
    call->width = width;
    take_operand(op, 0, bias, width);
    take_floats(op, 1, residual, (int64_t)rows * width);
    take_floats(op, 2, y, (int64_t)rows * width);
    return fake_op_append(op, residual_run);
}

static void gelu_run(void *arg)
{
    const struct call *a = arg;
    int n = a->width;
    float *spare = line_new(n), *none = line_new(n), *again = line_new(n);
    for (int i = 0; i < n; i++)
        none[i] = -0.0f; /* its sum with any number is that */
    const float *wide = operand_view(a->c.dtype, a->at[0], 0, n, spare);
    rows_best()->gelu(a->c.dtype, n, wide, none, again, a->at[1]);
    free(spare);
    free(none);
    free(again);
}

cudaError_t gpt_launch_gelu(cudaStream_t stream, enum zero_dtype dtype, int64_t n, const void *wide,
                            void *active)
{
    struct fake_op *op = create(__func__, stream, dtype, 1, 1, 1, 1);
    struct call *call = op->arg;
    call->width = (int)n;
    take_operand(op, 0, wide, n);
    take_operand(op, 1, active, n);
    return fake_op_append(op, gelu_run);
}

static void gelu_backward_run(void *arg)
{
    const struct call *a = arg;
    int n = a->width;
    float *line = line_new(n), *spare = line_new(n), *sum = line_new(n);
    memset(sum, 0, (size_t)n * sizeof(float));
    touch(a, 3);
    for (int r = 0; r < compute_rows(&a->c); r++) {
        int64_t at = (int64_t)r * n;
        memcpy(line, operand_view(a->c.dtype, a->at[1], at, n, spare), (size_t)n * sizeof(float));
        rows_best()->gelu_backward(a->c.dtype, n, operand_at(a->c.dtype, a->at[0], at), line,
                                   operand_at(a->c.dtype, a->at[1], at), sum);
    }
    operand_add(a->c.dtype, a->at[2], 0, n, sum);
    free(line);
    free(spare);
    free(sum);
}

cudaError_t gpt_launch_gelu_backward(cudaStream_t stream, enum zero_dtype dtype, int rows,
                                     int width, const void *wide, void *dwide, float *partial,
                                     void *dbias)
{
    struct fake_op *op = create(__func__, stream, dtype, 1, rows, 1, width);
    struct call *call = op->arg;
    call->width = width;
    take_operand(op, 0, wide, (int64_t)rows * width);
    take_operand(op, 1, dwide, (int64_t)rows * width);
    take_operand(op, 2, dbias, width);
    take_room(op, 3, partial, gpt_partial_floats(rows, width / 4) * (int64_t)sizeof(float));
    return fake_op_append(op, gelu_backward_run);
}

static void residual_backward_run(void *arg)
{
    const struct call *a = arg;
    struct compute c = begin(a);
    touch(a, 3);
    residual_backward(&c, a->at[0], a->at[1], a->at[2]);
    end(&c);
}

cudaError_t gpt_launch_residual_backward(cudaStream_t stream, enum zero_dtype dtype, int rows,
                                         int width, const float *dx, void *out, float *partial,
                                         void *dbias)
{
    struct fake_op *op = create(__func__, stream, dtype, 1, rows, 1, width);
    take_floats(op, 0, dx, (int64_t)rows * width);
    take_operand(op, 1, out, (int64_t)rows * width);
    take_operand(op, 2, dbias, width);
    take_room(op, 3, partial, gpt_partial_floats(rows, width) * (int64_t)sizeof(float));
    return fake_op_append(op, residual_backward_run);
}

static void bias_backward_run(void *arg)
{
    const struct call *a = arg;
    struct compute c = begin(a);
    touch(a, 2);
    bias_backward(&c, a->at[0], a->width, a->at[1]);
    end(&c);
}

cudaError_t gpt_launch_bias_backward(cudaStream_t stream, enum zero_dtype dtype, int rows,
                                     int width, const void *dout, float *partial, void *dbias)
{
    struct fake_op *op = create(__func__, stream, dtype, 1, rows, 1, width);
    struct call *call = op->arg;
    call->width = width;
    take_operand(op, 0, dout, (int64_t)rows * width);
    take_operand(op, 1, dbias, width);
    take_room(op, 2, partial, gpt_partial_floats(rows, width / 4) * (int64_t)sizeof(float));
    return fake_op_append(op, bias_backward_run);
}

/* --------------------------------------------------------------- attention */

static void attention_run(void *arg)
{
    const struct call *a = arg;
    struct compute c = begin(a);
    attention_forward(&c, a->at[0], a->at[1], a->at[2]);
    end(&c);
}

cudaError_t gpt_launch_attention(cudaStream_t stream, enum zero_dtype dtype, int batch, int seq,
                                 int heads, int size, const void *qkv, float *lse, void *out)
{
    int64_t rows = (int64_t)batch * seq;
    struct fake_op *op = create(__func__, stream, dtype, batch, seq, heads, heads * size);
    take_operand(op, 0, qkv, rows * 3 * heads * size);
    take_floats(op, 1, lse, rows * heads);
    take_operand(op, 2, out, rows * heads * size);
    return fake_op_append(op, attention_run);
}

static void attention_backward_run(void *arg)
{
    const struct call *a = arg;
    struct compute c = begin(a);
    touch(a, 5);
    attention_backward(&c, a->at[0], a->at[1], a->at[2], a->at[3], a->at[4]);
    end(&c);
}

cudaError_t gpt_launch_attention_backward(cudaStream_t stream, enum zero_dtype dtype, int batch,
                                          int seq, int heads, int size, const void *qkv,
                                          const float *lse, const void *out, const void *dout,
                                          float *delta, void *dqkv)
{
    int64_t rows = (int64_t)batch * seq;
    struct fake_op *op = create(__func__, stream, dtype, batch, seq, heads, heads * size);
    take_operand(op, 0, qkv, rows * 3 * heads * size);
    take_floats(op, 1, lse, rows * heads);
    take_operand(op, 2, out, rows * heads * size);
    take_operand(op, 3, dout, rows * heads * size);
    take_operand(op, 4, dqkv, rows * 3 * heads * size);
    take_room(op, 5, delta, rows * heads * (int64_t)sizeof(float));
    return fake_op_append(op, attention_backward_run);
}

/* -------------------------------------------------------------------- loss */

static struct fake_op *logits_call(const char *name, cudaStream_t stream, enum zero_dtype dtype,
                                   int rows, int first, int count, int64_t stride,
                                   const float *logits, const int32_t *targets)
{
    struct fake_op *op = create(name, stream, dtype, 1, rows, 1, 1);
    struct call *call = op->arg;
    call->first = first;
    call->count = count;
    take_floats(op, 0, logits, rows * stride);
    take_ints(op, 1, targets, rows);
    call->stride = stride;
    if (op->error == cudaSuccess && (count < 1 || stride < count))
        op->error = cudaErrorInvalidValue;
    return op;
}

static void softmax_run(void *arg)
{
    const struct call *a = arg;
    const int32_t *targets = a->at[1];
    struct gpt_softmax *softmax = a->at[2];
    for (int r = 0; r < compute_rows(&a->c); r++) {
        const float *logits = (float *)a->at[0] + r * a->stride;
        struct gpt_softmax *s = &softmax[r];
        float max = rows_best()->max(a->count, logits);
        if (a->first == 0)
            *s = (struct gpt_softmax){.max = max};
        float most = max > s->max ? max : s->max;
        double sum = s->sum * exp((double)s->max - (double)most);
        for (int i = 0; i < a->count; i++)
            sum += exp((double)logits[i] - (double)most);
        s->sum = sum;
        s->max = most;
        if (targets[r] >= a->first && targets[r] < a->first + a->count)
            s->chosen = logits[targets[r] - a->first];
    }
}

cudaError_t gpt_launch_softmax(cudaStream_t stream, int rows, int first, int count, int stride,
                               const float *logits, const int32_t *targets,
                               struct gpt_softmax *softmax)
{
    struct fake_op *op =
        logits_call(__func__, stream, ZERO_FP32, rows, first, count, stride, logits, targets);
    take(op, 2, softmax, rows, sizeof(*softmax));
    return fake_op_append(op, softmax_run);
}

static void loss_run(void *arg)
{
    const struct call *a = arg;
    const struct gpt_softmax *softmax = a->at[0];
    float *lse = a->at[1];
    double *losses = a->at[2], sum = 0;
    int rows = compute_rows(&a->c);
    for (int r = 0; r < rows; r++) {
        double value = (double)softmax[r].max + log(softmax[r].sum);
        lse[r] = (float)value;
        losses[r] = value - (double)softmax[r].chosen;
        sum += losses[r];
    }
    *(double *)a->at[3] = sum / rows;
}

cudaError_t gpt_launch_loss(cudaStream_t stream, int rows, const struct gpt_softmax *softmax,
                            float *lse, double *losses, double *loss)
{
    struct fake_op *op = create(__func__, stream, ZERO_FP32, 1, rows, 1, 1);
    take(op, 0, softmax, rows, sizeof(*softmax));
    take_floats(op, 1, lse, rows);
    take(op, 2, losses, rows, sizeof(*losses));
    take(op, 3, loss, 1, sizeof(*loss));
    return fake_op_append(op, loss_run);
}

static void dlogits_run(void *arg)
{
    const struct call *a = arg;
    const int32_t *targets = a->at[1];
    const float *lse = a->at[2];
    float *line = line_new((int)a->stride);
    for (int r = 0; r < compute_rows(&a->c); r++) {
        int target = targets[r] - a->first;
        memset(line, 0, (size_t)a->stride * sizeof(float));
        memcpy(line, (float *)a->at[0] + r * a->stride, (size_t)a->count * sizeof(float));
        rows_best()->exp(a->count, 1.0f, lse[r], line);
        if (target >= 0 && target < a->count)
            line[target] -= 1.0f;
        rows_best()->store_scaled(a->c.dtype, a->stride, line, a->scale,
                                  operand_at(a->c.dtype, a->at[3], r * a->stride));
    }
    free(line);
}

cudaError_t gpt_launch_dlogits(cudaStream_t stream, enum zero_dtype dtype, int rows, int first,
                               int count, int stride, const float *logits, const float *lse,
                               const int32_t *targets, float scale, void *dlogits)
{
    struct fake_op *op =
        logits_call(__func__, stream, dtype, rows, first, count, stride, logits, targets);
    struct call *call = op->arg;
    call->scale = scale;
    take_floats(op, 2, lse, rows);
    take_operand(op, 3, dlogits, (int64_t)rows * stride);
    return fake_op_append(op, dlogits_run);
}
