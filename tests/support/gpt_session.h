// SPDX-License-Identifier: Apache-2.0
/*
 * A GPT of made-up parameters and its engine, for suites of the model on the CPU and on
 * (fake) GPUs; and what two others say of it: PyTorch (golden/make_golden.py) and plain
 * double loops (gpt_double.h).
 */
#ifndef TESTS_SUPPORT_GPT_SESSION_H
#define TESTS_SUPPORT_GPT_SESSION_H

#include <math.h>
#include <stdint.h>

#include "examples/gpt2/device.h"
#include "examples/gpt2/model.h"
#include "include/zero.h"
#include "kernels/random.h"
#include "tests/support/gpt_double.h"

#define SESSION_TENSORS 64 /* at most */
#define SESSION_BATCH   2

/* The tiny model of make_golden.py; and one whose sizes fit no tile, with more
 * rows than a tile, more positions than a block of queries, and a vocabulary
 * of two groups. */
extern const struct gpt_shape session_tiny, session_odd;

/* dtype, and how far from double gradients and losses may be */
enum { SESSION_KINDS = 3 };
struct session_kind {
    enum zero_dtype dtype;
    double gradient, loss;
};
extern const struct session_kind session_kinds[SESSION_KINDS];

struct session {
    struct gpt_shape shape;
    struct zero_param *params;
    int count;
    struct zero *z;
    struct engine_seams *seams; /* as long as z */
    struct gpu *gpu;
    struct gpt *m;
    int32_t *tokens, *targets;       /* (SESSION_BATCH, T) */
    double *values[SESSION_TENSORS]; /* the parameters, as filled */
    double *grads[SESSION_TENSORS];  /* of gpt_double */
};

/* The model's GPUs and the engine's, for suites that are linked with both. */
struct device;
struct device_options;
struct device_link;
struct error;
struct session_gpu {
    const struct gpu_plugin *plugin;
    int (*device)(struct device **device, const struct device_options *options,
                  struct error *error);
    int (*link)(struct device_link *, struct error *);
    int (*use)(int index, struct zero_gpu *gpu, struct error *error);
};

void session_open(struct session *s, const struct gpt_shape *shape, enum zero_dtype dtype,
                  int threads);
void session_open_config(struct session *s, const struct gpt_config *config);
/* With an engine of this configuration, whose dtype, device and threads are the model's; on
 * the GPU of this rank of the node, or with gpu NULL on the CPU. */
void session_open_on(struct session *s, const struct gpt_config *config,
                     const struct zero_config *engine, const struct session_gpu *gpu, int rank);
void session_close(struct session *s);

#define OK(s, call)                                                                                \
    do {                                                                                           \
        int ok_status = (call);                                                                    \
        ck_assert_msg(ok_status == ZERO_OK, "%s: %s%s", zero_status_name(ok_status),               \
                      zero_last_error((s)->z), gpt_last_error((s)->m));                            \
    } while (0)

void session_batch(struct session *s, int step); /* tokens and targets of a step */
double session_train(struct session *s);         /* a micro-step; its loss */
/* Of a micro-step; the caller frees it. */
float *session_gradient(struct session *s, int tensor);
struct gpt_double session_oracle(struct session *s);

/* Made-up bits, also for suites that have no session: splitmix64. */
static inline uint64_t session_mix(uint64_t index)
{
    return random_mix((index + 1) * 0x9E3779B97F4A7C15u);
}

int64_t session_elements(const struct zero_param *p);
void *session_zeros(size_t count, size_t size);

/* got is as close to expected as share of the largest magnitude expected. */
void session_expect_close(const char *what, int64_t n, const float *got, const double *expected,
                          double share);
void session_expect_gradients(struct session *s, double *const *expected, double share);
void session_expect_near(const char *what, double got, double expected, double tolerance);

#define SESSION_GOLDEN "tests/golden/gpt2_tiny.bin"
#define SESSION_STEPS  10

struct golden {
    double loss;
    double *logits;                 /* (SESSION_BATCH, T, V) */
    double *grads[SESSION_TENSORS]; /* wte with its padding, which is 0 */
    double losses[SESSION_STEPS];
};

void golden_read(struct session *s, struct golden *g);
void golden_free(struct session *s, struct golden *g);

#endif
