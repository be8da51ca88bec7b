// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpt2_attention.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

/* One head of one sequence: where its numbers are. */
struct head {
    const struct attention_case *a;
    int b, h;
};

static int64_t out_at(const struct head *h, int t, int i)
{
    return ((int64_t)h->b * h->a->seq + t) * h->a->heads * h->a->size + h->h * h->a->size + i;
}

static int64_t qkv_at(const struct head *h, int which, int t, int i)
{
    int64_t channels = (int64_t)h->a->heads * h->a->size;
    return ((int64_t)h->b * h->a->seq + t) * 3 * channels + which * channels + h->h * h->a->size +
           i;
}

static int64_t lse_at(const struct head *h, int t)
{
    return ((int64_t)h->b * h->a->heads + h->h) * h->a->seq + t;
}

static double qkv_of(const struct head *h, int which, int t, int i)
{
    return twin_before(h->a->qkv, qkv_at(h, which, t, i));
}

/* A number, and how far fp32 may be from it. */
struct near {
    double value, error;
};

static struct near score_of(const struct head *h, int query, int key)
{
    struct sum sum = {0};
    double scale = 1 / sqrt(h->a->size);
    for (int i = 0; i < h->a->size; i++)
        sum_add(&sum, qkv_of(h, 0, query, i) * qkv_of(h, 1, key, i));
    return (struct near){sum.value * scale, scale * (sum_error(h->a->size) * sum.size +
                                                     8 * ROUNDING * fabs(sum.value))};
}

/* Weights are rounded to the operands' type, and to its smallest step. */
static void query_forward_check(const struct head *h, int t)
{
    const struct attention_case *a = h->a;
    struct near *scores = calloc((size_t)t + 1, sizeof(*scores));
    double sum = 0, error = 0, most = -INFINITY;
    ck_assert_ptr_nonnull(scores);
    for (int s = 0; s <= t; s++) {
        scores[s] = score_of(h, t, s);
        most = fmax(most, scores[s].value);
        error = fmax(error, scores[s].error);
    }
    for (int s = 0; s <= t; s++)
        sum += exp(scores[s].value - most);
    double lse = most + log(sum);
    error += (16 + 2 * fabs(most)) * ROUNDING + sum_error(t);
    twin_check(a->lse, lse_at(h, t), lse, error, true, "lse");
    for (int i = 0; i < a->size; i++) {
        struct sum out = {0};
        double least = 0;
        for (int s = 0; s <= t; s++) {
            double value = qkv_of(h, 2, s, i);
            sum_add(&out, exp(scores[s].value - lse) * value);
            least += least_of(a->dtype) * fabs(value);
        }
        twin_check(a->out, out_at(h, t, i), out.value,
                   (2 * error + rounding_of(a->dtype)) * out.size + least, true, "attention");
    }
    free(scores);
}

/* dqkv of a head, element by element: (3, T, size). */
static void pair_backward(const struct head *h, int t, int s, struct near *to)
{
    const struct attention_case *a = h->a;
    int size = a->size, T = a->seq;
    double scale = 1 / sqrt(size), e = sum_error(T), least = least_of(a->dtype);
    double lse = twin_before(a->lse, lse_at(h, t));
    struct near score = score_of(h, t, s);
    struct sum dp = {0}, delta = {0};
    for (int i = 0; i < size; i++) {
        double dout = twin_before(a->dout, out_at(h, t, i));
        sum_add(&dp, dout * qkv_of(h, 2, s, i));
        sum_add(&delta, dout * twin_before(a->out, out_at(h, t, i)));
    }
    double p = exp(score.value - lse), ds = p * (dp.value - delta.value) * scale;
    double relative = 2 * score.error + (16 + 2 * fabs(lse)) * ROUNDING + rounding_of(a->dtype);
    double ds_error = fabs(ds) * (relative + e) + least +
                      p * scale * sum_error(size) * (dp.size + delta.size) * (1 + relative);
    for (int i = 0; i < size; i++) {
        struct near *dq = &to[(int64_t)t * size + i], *dk = &to[((int64_t)T + s) * size + i];
        struct near *dv = &to[((int64_t)2 * T + s) * size + i];
        double q = qkv_of(h, 0, t, i), k = qkv_of(h, 1, s, i);
        double dout = twin_before(a->dout, out_at(h, t, i));
        dq->value += ds * k;
        dq->error += ds_error * fabs(k);
        dk->value += ds * q;
        dk->error += ds_error * fabs(q);
        dv->value += p * dout;
        dv->error += (p * (relative + e) + least) * fabs(dout);
    }
}

static void head_backward_check(const struct head *h)
{
    static const char *const names[] = {"dquery", "dkey", "dvalue"};
    const struct attention_case *a = h->a;
    struct near *sums = calloc((size_t)(3 * a->seq * a->size), sizeof(*sums));
    ck_assert_ptr_nonnull(sums);
    for (int t = 0; t < a->seq; t++)
        for (int s = 0; s <= t; s++)
            pair_backward(h, t, s, sums);
    for (int which = 0; which < 3; which++)
        for (int t = 0; t < a->seq; t++)
            for (int i = 0; i < a->size; i++) {
                const struct near *sum = &sums[((int64_t)which * a->seq + t) * a->size + i];
                twin_check(a->dqkv, qkv_at(h, which, t, i), sum->value, sum->error, true,
                           names[which]);
            }
    free(sums);
}

void attention_forward_check(const struct attention_case *a)
{
    for (int index = 0; index < a->batch * a->heads; index++)
        for (int t = 0; t < a->seq; t++)
            query_forward_check(&(struct head){a, index / a->heads, index % a->heads}, t);
}

void attention_backward_check(const struct attention_case *a)
{
    for (int index = 0; index < a->batch * a->heads; index++)
        head_backward_check(&(struct head){a, index / a->heads, index % a->heads});
}
