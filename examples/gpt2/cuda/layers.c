// SPDX-License-Identifier: Apache-2.0
/*
 * The layers on a GPU: products by cuBLASLt, the rest by our kernels, all appended to
 * one stream. After a failure nothing more is asked for.
 */
#include <math.h>
#include <string.h>

#include "examples/gpt2/cuda/gpu.h"
#include "examples/gpt2/cuda/launch.h"
#include "examples/gpt2/cuda/room.h"

static struct gpu_cuda *gpu_of(const struct compute *c)
{
    return (struct gpu_cuda *)c->gpu;
}

static cudaStream_t stream_of(const struct compute *c)
{
    return gpu_of(c)->stream;
}

/* Runs a launch unless something has failed. */
#define LAUNCH(c, what, call) ((void)(!*gpu_of(c)->failure && gpu_good(gpu_of(c), (call), what)))

static void multiply(const struct compute *c, const struct product *p)
{
    struct gpu_cuda *g = gpu_of(c);
    if (*g->failure)
        return;
    cublasStatus_t status = cuda_matmul(g->plans, g->stream, c->room->workspace, p);
    if (status != CUBLAS_STATUS_SUCCESS)
        gpu_product_failed(g, p, status);
}

/* ---------------------------------------------------------- memory, embeddings */

static const int32_t *tokens_copy(const struct compute *c, const int32_t *tokens, int count,
                                  bool targets)
{
    const struct cuda_room *r = c->room;
    size_t bytes = (size_t)count * sizeof(*tokens);
    memcpy(r->tokens_from[targets], tokens, bytes);
    LAUNCH(c, "copy tokens",
           cudaMemcpyAsync(r->tokens[targets], r->tokens_from[targets], bytes,
                           cudaMemcpyHostToDevice, stream_of(c)));
    return r->tokens[targets];
}

static void clear(const struct compute *c, void *memory, int64_t bytes)
{
    LAUNCH(c, "clear memory", cudaMemsetAsync(memory, 0, (size_t)bytes, stream_of(c)));
}

static void embed_forward(const struct compute *c, const int32_t *tokens, const void *wte,
                          const void *wpe, float *x)
{
    LAUNCH(c, "embed tokens",
           gpt_launch_embed(stream_of(c), c->dtype, compute_rows(c), c->seq, c->channels, tokens,
                            wte, wpe, x));
}

static void embed_backward(const struct compute *c, const int32_t *tokens, const float *dx,
                           void *dwte, void *dwpe)
{
    LAUNCH(c, "sum gradients of embeddings",
           gpt_launch_embed_backward(stream_of(c), c->dtype, compute_rows(c), c->seq, c->channels,
                                     c->vocab, tokens, dx, c->room->order, dwte, dwpe));
}

/* -------------------------------------------------------------- layer norm */

static void norm_forward(const struct compute *c, const float *x, const void *weight,
                         const void *bias, float *stats, void *out)
{
    LAUNCH(c, "normalise",
           gpt_launch_norm(stream_of(c), c->dtype, compute_rows(c), c->channels, x, weight, bias,
                           stats, out));
}

static void norm_backward(const struct compute *c, const float *x, const float *stats,
                          const void *weight, const float *dout, float *dx, void *dweight,
                          void *dbias)
{
    LAUNCH(c, "differentiate a norm",
           gpt_launch_norm_backward(stream_of(c), c->dtype, compute_rows(c), c->channels, x, stats,
                                    weight, dout, dx, c->room->partial, dweight, dbias));
}

/* ----------------------------------------------------------- linear layers */

/* y (rows, out) = x (rows, in) weight + bias */
static void forward(const struct compute *c, const void *x, const void *weight, const void *bias,
                    int in, int out, enum zero_dtype type, void *y)
{
    multiply(c, &(struct product){.dtype = c->dtype,
                                  .m = compute_rows(c),
                                  .n = out,
                                  .k = in,
                                  .a = x,
                                  .lda = in,
                                  .b = weight,
                                  .ldb = out,
                                  .type = type,
                                  .bias = bias,
                                  .c = y,
                                  .ldc = out});
}

/* dx (rows, in) = dout (rows, out) weight^T */
static void backward(const struct compute *c, const void *dout, const void *weight, int in, int out,
                     enum zero_dtype type, void *dx)
{
    multiply(c, &(struct product){.dtype = c->dtype,
                                  .tb = true,
                                  .m = compute_rows(c),
                                  .n = in,
                                  .k = out,
                                  .a = dout,
                                  .lda = out,
                                  .b = weight,
                                  .ldb = out,
                                  .type = type,
                                  .c = dx,
                                  .ldc = in});
}

static void linear(const struct compute *c, const void *x, const void *weight, const void *bias,
                   int in, int out, void *y)
{
    forward(c, x, weight, bias, in, out, c->dtype, y);
}

/* A bias of 16 bits is none that cuBLASLt adds to fp32 results. */
static void linear_residual(const struct compute *c, const void *x, const void *weight,
                            const void *bias, int in, int out, const float *residual, float *y)
{
    forward(c, x, weight, NULL, in, out, ZERO_FP32, y);
    LAUNCH(c, "add a residual",
           gpt_launch_residual(stream_of(c), c->dtype, compute_rows(c), out, bias, residual, y));
}

static void linear_gelu(const struct compute *c, const void *x, const void *weight,
                        const void *bias, int in, int out, void *wide, void *active)
{
    forward(c, x, weight, bias, in, out, c->dtype, wide);
    LAUNCH(c, "activate",
           gpt_launch_gelu(stream_of(c), c->dtype, (int64_t)compute_rows(c) * out, wide, active));
}

static void linear_backward_weight(const struct compute *c, const void *x, const void *dout, int in,
                                   int out, void *dweight)
{
    multiply(c, &(struct product){.dtype = c->dtype,
                                  .ta = true,
                                  .m = in,
                                  .n = out,
                                  .k = compute_rows(c),
                                  .a = x,
                                  .lda = in,
                                  .b = dout,
                                  .ldb = out,
                                  .type = c->dtype,
                                  .add = true,
                                  .c = dweight,
                                  .ldc = out});
}

static void linear_backward(const struct compute *c, const void *dout, const void *weight, int in,
                            int out, void *dx)
{
    backward(c, dout, weight, in, out, c->dtype, dx);
}

static void linear_backward_float(const struct compute *c, const void *dout, const void *weight,
                                  int in, int out, float *dx)
{
    backward(c, dout, weight, in, out, ZERO_FP32, dx);
}

static void linear_backward_gelu(const struct compute *c, const void *dout, const void *weight,
                                 int in, int out, const void *wide, void *dwide, void *dbias)
{
    backward(c, dout, weight, in, out, c->dtype, dwide);
    LAUNCH(c, "differentiate an activation",
           gpt_launch_gelu_backward(stream_of(c), c->dtype, compute_rows(c), in, wide, dwide,
                                    c->room->partial, dbias));
}

static void residual_backward(const struct compute *c, const float *dx, void *out, void *dbias)
{
    LAUNCH(c, "sum the gradient of a bias",
           gpt_launch_residual_backward(stream_of(c), c->dtype, compute_rows(c), c->channels, dx,
                                        out, c->room->partial, dbias));
}

static void bias_backward(const struct compute *c, const void *dout, int width, void *dbias)
{
    LAUNCH(c, "sum the gradient of a bias",
           gpt_launch_bias_backward(stream_of(c), c->dtype, compute_rows(c), width, dout,
                                    c->room->partial, dbias));
}

/* --------------------------------------------------------------- attention */

/* What attention has to multiply, by the formula: of each product the pairs of a query and a key
 * that it sees. What our kernels make beyond that, halves of tiles on the diagonal and two of seven
 * products of backward (attention.cuh), is their own way, and not counted; the CPU's products are
 * counted as they are made, whole spans (attention.c). A forward pass that recompute asks for again
 * counts again. */
#define FORWARD_PRODUCTS  2 /* scores; weights by values */
#define BACKWARD_PRODUCTS 5 /* scores again; gradients of weights, queries, keys and values */

static void attention_count(const struct compute *c, int products)
{
    double pairs = 0.5 * c->seq * (c->seq + 1.0);
    gpu_of(c)->attention_flops += products * 2.0 * pairs * c->batch * c->channels;
}

static void attention_forward(const struct compute *c, const void *qkv, float *lse, void *out)
{
    LAUNCH(c, "attend",
           gpt_launch_attention(stream_of(c), c->dtype, c->batch, c->seq, c->heads,
                                c->channels / c->heads, qkv, lse, out));
    attention_count(c, FORWARD_PRODUCTS);
}

static void attention_backward(const struct compute *c, const void *qkv, const float *lse,
                               const void *out, const void *dout, void *dqkv)
{
    LAUNCH(c, "differentiate attention",
           gpt_launch_attention_backward(stream_of(c), c->dtype, c->batch, c->seq, c->heads,
                                         c->channels / c->heads, qkv, lse, out, dout,
                                         c->room->delta, dqkv));
    attention_count(c, BACKWARD_PRODUCTS);
}

/* ---------------------------------------------------------------- the head */

/* A part of the vocabulary: count tokens from first on, in stride columns of which those
 * behind count belong to no token. */
struct part {
    int first, count, stride;
};

static struct part part_at(const struct compute *c, int first)
{
    int stride = room_stride(c->vocab, first), left = c->vocab - first;
    return (struct part){first, left < stride ? left : stride, stride};
}

static float *logits_of(const struct compute *c, struct part part)
{
    const struct cuda_room *r = c->room;
    return r->logits + (r->keeps_logits ? (int64_t)compute_rows(c) * part.first : 0);
}

/* logits (rows, stride) = x (rows, C) wte^T of a part */
static void logits_compute(const struct compute *c, int rows, const void *x, const void *wte,
                           struct part part)
{
    multiply(c, &(struct product){.dtype = c->dtype,
                                  .tb = true,
                                  .m = rows,
                                  .n = part.stride,
                                  .k = c->channels,
                                  .a = x,
                                  .lda = c->channels,
                                  .b = operand_at(c->dtype, wte, (int64_t)part.first * c->channels),
                                  .ldb = c->channels,
                                  .type = ZERO_FP32,
                                  .c = logits_of(c, part),
                                  .ldc = part.stride});
}

static void head_loss(const struct compute *c, const void *x, const void *wte,
                      const int32_t *targets)
{
    const struct cuda_room *r = c->room;
    int rows = compute_rows(c);
    for (int first = 0; first < c->vocab; first += ROOM_COLUMNS) {
        struct part part = part_at(c, first);
        logits_compute(c, rows, x, wte, part);
        LAUNCH(c, "sum a softmax",
               gpt_launch_softmax(stream_of(c), rows, first, part.count, part.stride,
                                  logits_of(c, part), targets, r->softmax));
    }
    LAUNCH(c, "sum losses",
           gpt_launch_loss(stream_of(c), rows, r->softmax, r->lse, r->losses, r->loss));
    LAUNCH(c, "copy a loss",
           cudaMemcpyAsync(r->loss_to, r->loss, sizeof(*r->loss), cudaMemcpyDeviceToHost,
                           stream_of(c)));
    LAUNCH(c, "record an event", cudaEventRecord(gpu_of(c)->loss, stream_of(c)));
}

static double loss_wait(const struct compute *c)
{
    LAUNCH(c, "wait for a loss", cudaEventSynchronize(gpu_of(c)->loss));
    return *gpu_of(c)->failure ? (double)NAN : *c->room->loss_to;
}

static void part_backward(const struct compute *c, struct part part, float scale, const void *x,
                          const void *wte, const int32_t *targets, float *dx, void *dwte)
{
    const struct cuda_room *r = c->room;
    int n = c->channels, rows = compute_rows(c);
    int64_t at = (int64_t)part.first * n;
    if (!r->keeps_logits)
        logits_compute(c, rows, x, wte, part);
    LAUNCH(c, "differentiate a softmax",
           gpt_launch_dlogits(stream_of(c), c->dtype, rows, part.first, part.count, part.stride,
                              logits_of(c, part), r->lse, targets, scale, r->dlogits));
    struct product p = {.dtype = c->dtype,
                        .m = rows,
                        .n = n,
                        .k = part.stride,
                        .a = r->dlogits,
                        .lda = part.stride,
                        .b = operand_at(c->dtype, wte, at),
                        .ldb = n,
                        .type = ZERO_FP32,
                        .add = part.first > 0,
                        .c = dx,
                        .ldc = n};
    multiply(c, &p);
    linear_backward_weight(c, r->dlogits, x, part.stride, n, operand_at(c->dtype, dwte, at));
}

static void head_backward(const struct compute *c, double loss_scale, const void *x,
                          const void *wte, const int32_t *targets, float *dx, void *dwte)
{
    float scale = (float)(loss_scale / compute_rows(c));
    for (int first = 0; first < c->vocab; first += ROOM_COLUMNS)
        part_backward(c, part_at(c, first), scale, x, wte, targets, dx, dwte);
}

static void head_logits(const struct compute *c, const void *x, int64_t row, const void *wte,
                        float *logits)
{
    const struct cuda_room *r = c->room;
    for (int first = 0; first < c->vocab; first += ROOM_COLUMNS) {
        struct part part = part_at(c, first);
        logits_compute(c, 1, operand_at(c->dtype, x, row * c->channels), wte, part);
        LAUNCH(c, "copy logits",
               cudaMemcpyAsync(r->logits_to + first, logits_of(c, part),
                               (size_t)part.count * sizeof(*r->logits), cudaMemcpyDeviceToHost,
                               stream_of(c)));
    }
    LAUNCH(c, "wait for logits", cudaStreamSynchronize(stream_of(c)));
    if (!*gpu_of(c)->failure)
        memcpy(logits, r->logits_to, (size_t)c->vocab * sizeof(*logits));
}

static const char *failure(const struct compute *c)
{
    const char *text = gpu_of(c)->failure;
    return *text ? text : NULL;
}

const struct layers layers_cuda = {
    .tokens = tokens_copy,
    .clear = clear,
    .embed_forward = embed_forward,
    .embed_backward = embed_backward,
    .norm_forward = norm_forward,
    .norm_backward = norm_backward,
    .linear = linear,
    .linear_residual = linear_residual,
    .linear_gelu = linear_gelu,
    .linear_backward_weight = linear_backward_weight,
    .linear_backward = linear_backward,
    .linear_backward_float = linear_backward_float,
    .linear_backward_gelu = linear_backward_gelu,
    .residual_backward = residual_backward,
    .bias_backward = bias_backward,
    .attention_forward = attention_forward,
    .attention_backward = attention_backward,
    .head_loss = head_loss,
    .head_backward = head_backward,
    .head_logits = head_logits,
    .loss = loss_wait,
    .failure = failure,
};
