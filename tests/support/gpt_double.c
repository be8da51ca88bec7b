// SPDX-License-Identifier: Apache-2.0
/* Each layer is a pair of functions; activations of all layers are kept. */
#include "tests/support/gpt_double.h"

#include <math.h>
#include <stdlib.h>

/* Tensors of a block, from 2 + 12 * layer on. */
enum { LN1_W, LN1_B, QKV_W, QKV_B, PROJ_W, PROJ_B, LN2_W, LN2_B, FC_W, FC_B, OUT_W, OUT_B,
       TENSORS };

static double *zeros(int64_t n)
{
    double *x = calloc((size_t)n, sizeof(double));
    if (!x)
        abort();
    return x;
}

/* y (rows, out) += x (rows, in) w + b */
static void linear(int rows, int in, int out, const double *x, const double *w, const double *b,
                   double *y)
{
    for (int r = 0; r < rows; r++) {
        for (int o = 0; o < out; o++)
            y[r * out + o] += b[o];
        for (int i = 0; i < in; i++)
            for (int o = 0; o < out; o++)
                y[r * out + o] += x[r * in + i] * w[i * out + o];
    }
}

static void linear_back(int rows, int in, int out, const double *x, const double *w,
                        const double *dy, double *dx, double *dw, double *db)
{
    for (int r = 0; r < rows; r++) {
        for (int o = 0; o < out; o++)
            db[o] += dy[r * out + o];
        for (int i = 0; i < in; i++)
            for (int o = 0; o < out; o++) {
                dx[r * in + i] += dy[r * out + o] * w[i * out + o];
                dw[i * out + o] += dy[r * out + o] * x[r * in + i];
            }
    }
}

static void moments(int n, const double *x, double *mean, double *scale)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    *mean = sum / n;
    for (int i = 0; i < n; i++)
        squares += (x[i] - *mean) * (x[i] - *mean);
    *scale = 1 / sqrt(squares / n + 1e-5);
}

static void norm(int rows, int n, const double *x, const double *w, const double *b, double *y)
{
    for (int r = 0; r < rows; r++, x += n, y += n) {
        double mean, scale;
        moments(n, x, &mean, &scale);
        for (int i = 0; i < n; i++)
            y[i] = (x[i] - mean) * scale * w[i] + b[i];
    }
}

static void norm_back(int rows, int n, const double *x, const double *w, const double *dy,
                      double *dx, double *dw, double *db)
{
    for (int r = 0; r < rows; r++, x += n, dy += n, dx += n) {
        double mean, scale, a = 0, b = 0;
        moments(n, x, &mean, &scale);
        for (int i = 0; i < n; i++) {
            a += dy[i] * w[i] / n;
            b += dy[i] * w[i] * (x[i] - mean) * scale / n;
        }
        for (int i = 0; i < n; i++) {
            double z = (x[i] - mean) * scale;
            dx[i] += scale * (dy[i] * w[i] - a - z * b);
            dw[i] += dy[i] * z;
            db[i] += dy[i];
        }
    }
}

/* p (T) = softmax of the scores of query t of one head, 0 for later keys. */
static void weights(const struct gpt_double *g, const double *qkv, int t, int head, double *p)
{
    int n = g->channels, size = n / g->heads;
    const double *q = qkv + t * 3 * n + head * size;
    double sum = 0;
    for (int s = 0; s < g->seq; s++) {
        const double *k = qkv + s * 3 * n + n + head * size;
        p[s] = 0;
        for (int i = 0; i < size; i++)
            p[s] += q[i] * k[i] / sqrt(size);
        p[s] = s <= t ? exp(p[s]) : 0;
        sum += p[s];
    }
    for (int s = 0; s < g->seq; s++)
        p[s] /= sum;
}

static void attention(const struct gpt_double *g, const double *qkv, double *out)
{
    int n = g->channels, size = n / g->heads, T = g->seq;
    double *p = zeros(T);
    for (int b = 0; b < g->batch; b++, qkv += T * 3 * n, out += T * n)
        for (int head = 0; head < g->heads; head++)
            for (int t = 0; t < T; t++) {
                weights(g, qkv, t, head, p);
                for (int s = 0; s <= t; s++)
                    for (int i = head * size; i < (head + 1) * size; i++)
                        out[t * n + i] += p[s] * qkv[s * 3 * n + 2 * n + i];
            }
    free(p);
}

static void attention_back(const struct gpt_double *g, const double *qkv, const double *dout,
                           double *dqkv)
{
    int n = g->channels, size = n / g->heads, T = g->seq;
    double *p = zeros(T), *dp = zeros(T);
    for (int b = 0; b < g->batch; b++, qkv += T * 3 * n, dqkv += T * 3 * n, dout += T * n)
        for (int head = 0; head < g->heads; head++)
            for (int t = 0; t < T; t++) {
                double mean = 0;
                weights(g, qkv, t, head, p);
                for (int s = 0; s <= t; s++) {
                    dp[s] = 0;
                    for (int i = head * size; i < (head + 1) * size; i++) {
                        dp[s] += dout[t * n + i] * qkv[s * 3 * n + 2 * n + i];
                        dqkv[s * 3 * n + 2 * n + i] += dout[t * n + i] * p[s];
                    }
                    mean += p[s] * dp[s];
                }
                for (int s = 0; s <= t; s++)
                    for (int i = head * size; i < (head + 1) * size; i++) {
                        double score = p[s] * (dp[s] - mean) / sqrt(size);
                        dqkv[t * 3 * n + i] += score * qkv[s * 3 * n + n + i];
                        dqkv[s * 3 * n + n + i] += score * qkv[t * 3 * n + i];
                    }
            }
    free(p);
    free(dp);
}

static const double root = 0.7978845608028653559; /* sqrt(2 / pi) */

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(root * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double t = tanh(root * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
}

/* The activations of a block: y is its output. */
struct block {
    const double *x;
    double *norm1, *qkv, *mixed, *mid, *norm2, *wide, *active, *y;
};

static void block_forward(const struct gpt_double *g, int layer, const double *x, struct block *a)
{
    int n = g->channels, rows = g->batch * g->seq;
    double **p = g->params + 2 + TENSORS * layer;
    *a = (struct block){x, zeros(rows * n), zeros(rows * 3 * n), zeros(rows * n), zeros(rows * n),
                        zeros(rows * n), zeros(rows * 4 * n), zeros(rows * 4 * n),
                        zeros(rows * n)};
    norm(rows, n, x, p[LN1_W], p[LN1_B], a->norm1);
    linear(rows, n, 3 * n, a->norm1, p[QKV_W], p[QKV_B], a->qkv);
    attention(g, a->qkv, a->mixed);
    linear(rows, n, n, a->mixed, p[PROJ_W], p[PROJ_B], a->mid);
    for (int i = 0; i < rows * n; i++)
        a->mid[i] += x[i];
    norm(rows, n, a->mid, p[LN2_W], p[LN2_B], a->norm2);
    linear(rows, n, 4 * n, a->norm2, p[FC_W], p[FC_B], a->wide);
    for (int i = 0; i < rows * 4 * n; i++)
        a->active[i] = gelu(a->wide[i]);
    linear(rows, 4 * n, n, a->active, p[OUT_W], p[OUT_B], a->y);
    for (int i = 0; i < rows * n; i++)
        a->y[i] += a->mid[i];
}

static void block_free(struct block *a)
{
    double *all[] = {a->norm1, a->qkv, a->mixed, a->mid, a->norm2, a->wide, a->active, a->y};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
}

/* dx comes as the gradient of y and leaves as that of x. */
static void block_backward(const struct gpt_double *g, int layer, const struct block *a,
                           double *dx)
{
    int n = g->channels, rows = g->batch * g->seq;
    double **p = g->params + 2 + TENSORS * layer, **d = g->grads + 2 + TENSORS * layer;
    double *wide = zeros(rows * 4 * n), *narrow = zeros(rows * n), *qkv = zeros(rows * 3 * n);
    double *mixed = zeros(rows * n), *norm1 = zeros(rows * n);
    linear_back(rows, 4 * n, n, a->active, p[OUT_W], dx, wide, d[OUT_W], d[OUT_B]);
    for (int i = 0; i < rows * 4 * n; i++)
        wide[i] *= gelu_slope(a->wide[i]);
    linear_back(rows, n, 4 * n, a->norm2, p[FC_W], wide, narrow, d[FC_W], d[FC_B]);
    norm_back(rows, n, a->mid, p[LN2_W], narrow, dx, d[LN2_W], d[LN2_B]);
    linear_back(rows, n, n, a->mixed, p[PROJ_W], dx, mixed, d[PROJ_W], d[PROJ_B]);
    attention_back(g, a->qkv, mixed, qkv);
    linear_back(rows, n, 3 * n, a->norm1, p[QKV_W], qkv, norm1, d[QKV_W], d[QKV_B]);
    norm_back(rows, n, a->x, p[LN1_W], norm1, dx, d[LN1_W], d[LN1_B]);
    free(wide);
    free(narrow);
    free(qkv);
    free(mixed);
    free(norm1);
}

/* The loss of one row; dlogits (V) take its gradient divided by rows. */
static double row_loss(const struct gpt_double *g, const double *final, int target, int rows,
                       double *logits, double *dlogits)
{
    int n = g->channels;
    double sum = 0;
    for (int v = 0; v < g->vocab; v++) {
        logits[v] = 0;
        for (int i = 0; i < n; i++)
            logits[v] += final[i] * g->params[0][v * n + i];
        dlogits[v] = exp(logits[v]);
        sum += dlogits[v];
    }
    for (int v = 0; v < g->vocab; v++)
        dlogits[v] = (dlogits[v] / sum - (v == target)) / rows;
    return log(sum) - logits[target];
}

/* Loss from final (rows, C), and dfinal when gradients are wanted. */
static double head(const struct gpt_double *g, const double *final, const int32_t *targets,
                   double *dfinal)
{
    int n = g->channels, rows = g->batch * g->seq;
    double loss = 0, *dlogits = zeros(g->vocab), *own = zeros(g->vocab);
    for (int r = 0; r < rows; r++) {
        double *logits = g->logits ? g->logits + (int64_t)r * g->vocab : own;
        loss += row_loss(g, final + r * n, targets[r], rows, logits, dlogits) / rows;
        for (int v = 0; g->grads && v < g->vocab; v++)
            for (int i = 0; i < n; i++) {
                dfinal[r * n + i] += dlogits[v] * g->params[0][v * n + i];
                g->grads[0][v * n + i] += dlogits[v] * final[r * n + i];
            }
    }
    free(dlogits);
    free(own);
    return loss;
}

static void embed(const struct gpt_double *g, const int32_t *tokens, double *x)
{
    int n = g->channels;
    for (int r = 0; r < g->batch * g->seq; r++)
        for (int i = 0; i < n; i++)
            x[r * n + i] = g->params[0][tokens[r] * n + i] + g->params[1][r % g->seq * n + i];
}

static void embed_back(const struct gpt_double *g, const int32_t *tokens, const double *dx)
{
    int n = g->channels;
    for (int r = 0; r < g->batch * g->seq; r++)
        for (int i = 0; i < n; i++) {
            g->grads[0][tokens[r] * n + i] += dx[r * n + i];
            g->grads[1][r % g->seq * n + i] += dx[r * n + i];
        }
}

double gpt_double_loss(const struct gpt_double *g, const int32_t *tokens, const int32_t *targets)
{
    int n = g->channels, rows = g->batch * g->seq, last = 2 + TENSORS * g->layers;
    double *x = zeros(rows * n), *final = zeros(rows * n), *dfinal = zeros(rows * n);
    double *dx = zeros(rows * n);
    struct block *blocks = calloc((size_t)g->layers, sizeof(*blocks));
    if (!blocks)
        abort();
    embed(g, tokens, x);
    for (int l = 0; l < g->layers; l++)
        block_forward(g, l, l > 0 ? blocks[l - 1].y : x, &blocks[l]);
    const double *y = blocks[g->layers - 1].y;
    norm(rows, n, y, g->params[last], g->params[last + 1], final);
    double loss = head(g, final, targets, dfinal);
    if (g->grads) {
        norm_back(rows, n, y, g->params[last], dfinal, dx, g->grads[last], g->grads[last + 1]);
        for (int l = g->layers - 1; l >= 0; l--)
            block_backward(g, l, &blocks[l], dx);
        embed_back(g, tokens, dx);
    }
    for (int l = 0; l < g->layers; l++)
        block_free(&blocks[l]);
    free(blocks);
    free(x);
    free(final);
    free(dfinal);
    free(dx);
    return loss;
}
