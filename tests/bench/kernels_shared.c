// SPDX-License-Identifier: Apache-2.0
/* The kernels as a shared object for tests/bench/adam.py, cut into tasks as the
 * engine cuts them. Not the library: it exports what only a comparison needs. */
#include <stddef.h>

#include "examples/common/workers.h"
#include "kernels/kernels.h"

#define TASK   ((int64_t)1 << 17) /* elements, as in the engine */
#define EXPORT __attribute__((visibility("default")))

struct job {
    const struct kernels *kernels;
    int64_t n;
    const struct adam *constants;
    struct grads grads;
    float *master, *m, *v, *sum;
    uint16_t *weight;
    double *squares;
};

static int64_t part(const struct job *j, int64_t first)
{
    return j->n - first < TASK ? j->n - first : TASK;
}

static void adam_task(void *arg, int64_t index, void *scratch)
{
    const struct job *j = arg;
    int64_t at = index * TASK;
    struct grads grads = {.f32 = j->grads.f32 ? j->grads.f32 + at : NULL,
                          .bf16 = j->grads.bf16 ? j->grads.bf16 + at : NULL};
    (void)scratch;
    j->kernels->adam(part(j, at), j->constants, grads, j->master + at, j->m + at, j->v + at,
                     j->weight ? j->weight + at : NULL);
}

static void sum_task(void *arg, int64_t index, void *scratch)
{
    const struct job *j = arg;
    int64_t at = index * TASK;
    const uint16_t *parts = j->grads.bf16 + at;
    (void)scratch;
    j->kernels->sum_bf16(part(j, at), 1, &parts, true, j->sum + at,
                         j->squares + at / KERNELS_BLOCK);
}

static void run(struct workers *w, workers_task_fn *task, struct job *j)
{
    struct error error = {0};
    j->kernels = kernels_select(NULL, &error);
    if (j->kernels)
        workers_run(w, task, j, (j->n + TASK - 1) / TASK);
}

EXPORT struct workers *peers_open(int threads);
EXPORT void peers_adam(struct workers *w, int64_t n, const struct adam *k, const float *grad,
                       const uint16_t *grad16, float *master, float *m, float *v,
                       uint16_t *weight);
EXPORT double peers_sum(struct workers *w, int64_t n, const uint16_t *grad16, float *sum,
                        double *squares);

struct workers *peers_open(int threads)
{
    char error[256];
    kernels_thread_init();
    return workers_create(threads, 0, kernels_thread_init, error, sizeof(error));
}

/* One of grad and grad16 is NULL; weight may be. */
void peers_adam(struct workers *w, int64_t n, const struct adam *k, const float *grad,
                const uint16_t *grad16, float *master, float *m, float *v, uint16_t *weight)
{
    struct job j = {.n = n,
                    .constants = k,
                    .grads = {.f32 = grad, .bf16 = grad16},
                    .master = master,
                    .m = m,
                    .v = v,
                    .weight = weight};
    run(w, adam_task, &j);
}

/* The engine's reduction on one rank: fp32 sums, and the sum of their squares. n is a
 * multiple of 64; squares has room for n / 64. */
double peers_sum(struct workers *w, int64_t n, const uint16_t *grad16, float *sum, double *squares)
{
    struct job j = {.n = n, .grads = {.bf16 = grad16}, .sum = sum, .squares = squares};
    double total = 0;
    run(w, sum_task, &j);
    for (int64_t i = 0; i < n / KERNELS_BLOCK; i++)
        total += squares[i];
    return total;
}
