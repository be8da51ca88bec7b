// SPDX-License-Identifier: Apache-2.0
/*
 * The whole of libzero in one small program: a network of four layers learns
 * t[j] = sin(x[j] + x[j + 1]), with its state sharded over the ranks.
 *
 *   build/quickstart                  one rank
 *   mpirun -n 2 build/quickstart 3    two ranks, stage 3: the same last line
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/zero.h"

enum { LAYERS = 4, WIDTH = 32, ROWS = 16, MICRO_BATCHES = 4, STEPS = 300 };

/* One unit per layer, with two tensors. */
static int weight_of(int layer) { return 2 * layer; }
static int bias_of(int layer) { return 2 * layer + 1; }

static void fail(struct zero *z, const char *what)
{
    fprintf(stderr, "%s: %s\n", what, z ? zero_last_error(z) : "no memory");
    exit(1);
}

static void check(struct zero *z, int status)
{
    if (status != ZERO_OK)
        fail(z, zero_status_name(status));
}

/* There are none after a failure, of this rank or of another. */
static const float *param(struct zero *z, int tensor)
{
    const float *data = zero_param_data(z, tensor);
    if (!data)
        fail(z, "no parameters");
    return data;
}

static float *gradient(struct zero *z, int tensor)
{
    float *data = zero_grad_data(z, tensor);
    if (!data)
        fail(z, "no gradients");
    return data;
}

/* out (ROWS, WIDTH) = tanh(in · w + b); the last layer is left linear. */
static void forward(int layer, const float *w, const float *b, const float *in, float *out)
{
    for (int r = 0; r < ROWS; r++, in += WIDTH, out += WIDTH)
        for (int j = 0; j < WIDTH; j++) {
            float sum = b[j];
            for (int i = 0; i < WIDTH; i++)
                sum += in[i] * w[i * WIDTH + j];
            out[j] = layer < LAYERS - 1 ? tanhf(sum) : sum;
        }
}

/* grad (ROWS, WIDTH) is d loss / d out, and becomes d loss / d in. */
static void backward(int layer, const float *w, const float *in, const float *out, float *grad,
                     float *dw, float *db)
{
    for (int r = 0; r < ROWS; r++, in += WIDTH, out += WIDTH, grad += WIDTH) {
        float below[WIDTH] = {0};
        for (int j = 0; j < WIDTH; j++) {
            if (layer < LAYERS - 1)
                grad[j] *= 1 - out[j] * out[j];
            db[j] += grad[j];
        }
        for (int i = 0; i < WIDTH; i++)
            for (int j = 0; j < WIDTH; j++) {
                dw[i * WIDTH + j] += in[i] * grad[j];
                below[i] += grad[j] * w[i * WIDTH + j];
            }
        memcpy(grad, below, sizeof(below));
    }
}

/* The mean squared error of a micro-batch, and its gradient in grad. */
static double compare(const float *x, const float *out, float *grad)
{
    double loss = 0;
    for (int r = 0; r < ROWS; r++, x += WIDTH, out += WIDTH, grad += WIDTH)
        for (int j = 0; j < WIDTH; j++) {
            float error = out[j] - sinf(x[j] + x[(j + 1) % WIDTH]);
            loss += (double)(error * error) / (ROWS * WIDTH);
            grad[j] = 2 * error / (ROWS * WIDTH);
        }
    return loss;
}

/* Forward and backward of one micro-batch. Returns its loss. */
static double micro_step(struct zero *z, int number)
{
    float x[LAYERS + 1][ROWS * WIDTH], grad[ROWS * WIDTH];
    struct zero_normal inputs = {.seed = 2, .stream = (uint64_t)number, .std = 1};
    zero_fill_normal(&inputs, 0, ROWS * WIDTH, x[0]);
    for (int u = 0; u < LAYERS; u++) {
        check(z, zero_acquire(z, u));
        forward(u, param(z, weight_of(u)), param(z, bias_of(u)), x[u], x[u + 1]);
        check(z, zero_release(z, u));
    }
    double loss = compare(x[0], x[LAYERS], grad);
    for (int u = LAYERS - 1; u >= 0; u--) {
        check(z, zero_acquire(z, u));
        backward(u, param(z, weight_of(u)), x[u], x[u + 1], grad, gradient(z, weight_of(u)),
                 gradient(z, bias_of(u)));
        check(z, zero_release(z, u));
        check(z, zero_reduce(z, u));
    }
    return loss;
}

/* Describes the model and makes the engine. */
static struct zero *create(int stage)
{
    struct zero_param params[2 * LAYERS];
    struct zero_normal normal[LAYERS];
    char names[2 * LAYERS][16];
    for (int u = 0; u < LAYERS; u++) {
        int w = weight_of(u), b = bias_of(u);
        snprintf(names[w], sizeof(names[w]), "%d.weight", u);
        snprintf(names[b], sizeof(names[b]), "%d.bias", u);
        normal[u] = (struct zero_normal){.seed = 1, .stream = (uint64_t)u, .std = 0.18f};
        params[w] = (struct zero_param){.name = names[w], .unit = u, .ndim = 2,
                                        .shape = {WIDTH, WIDTH}, .fill = zero_fill_normal,
                                        .fill_arg = &normal[u]};
        params[b] = (struct zero_param){.name = names[b], .unit = u, .ndim = 1, .shape = {WIDTH},
                                        .flags = ZERO_NO_DECAY};
    }
    struct zero *z = NULL;
    int status = zero_init(&z, params, 2 * LAYERS, .stage = stage);
    check(z, status);
    return z;
}

int main(int argc, char **argv)
{
    int stage = 0;
    char more;
    setvbuf(stderr, NULL, _IOLBF, BUFSIZ); /* whole lines, beside other ranks' */
    if (argc > 2 || (argc == 2 && sscanf(argv[1], "%d%c", &stage, &more) != 1)) {
        fprintf(stderr, "usage: %s [STAGE], 0 to 3\n", argv[0]);
        return 2;
    }
    struct zero *z = create(stage);
    int rank = zero_rank(z), ranks = zero_size(z);
    int micro_steps = ranks < MICRO_BATCHES ? MICRO_BATCHES / ranks : 1;
    check(z, zero_set_accumulate(z, micro_steps));
    check(z, zero_set_adam(z, 0, &(struct zero_adam){.lr = 3e-3, .beta1 = .9, .beta2 = .95,
                                                     .eps = 1e-8, .weight_decay = .01}));
    for (int step = 1; step <= STEPS; step++) {
        double losses[MICRO_BATCHES], mean;
        for (int a = 0; a < micro_steps; a++) /* dealt round-robin: 1, 2 and 4 ranks agree */
            losses[a] = micro_step(z, (step * micro_steps + a) * ranks + rank);
        check(z, zero_mean(z, losses, micro_steps, &mean));
        check(z, zero_step(z, NULL));
        if (rank == 0 && (step == 1 || step % 50 == 0))
            printf("step %3d | loss %.4f\n", step, mean);
    }
    struct zero_digest d;
    check(z, zero_digest(z, &d));
    if (rank == 0)
        printf("digest master=%016" PRIx64 " m=%016" PRIx64 " v=%016" PRIx64 "\n", d.master,
               d.moment1, d.moment2);
    zero_destroy(z);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fprintf(stderr, "Standard output could not be written.\n");
    return 1;
}
