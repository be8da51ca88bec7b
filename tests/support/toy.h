// SPDX-License-Identifier: Apache-2.0
/*
 * A model of three units whose gradients depend on the gathered parameters and
 * on the micro-batch, trained by ranks that are threads of this process. Any
 * two runs of equal seed and global batch must end in equal bits.
 */
#ifndef TESTS_SUPPORT_TOY_H
#define TESTS_SUPPORT_TOY_H

#include "include/zero.h"
#include "src/engine.h"
#include "src/error.h"

#define TOY_TENSORS     8
#define TOY_UNITS       3
#define TOY_TENSORS_ALL 12 /* of the model with everything that is rare */
#define TOY_UNITS_ALL   4
#define TOY_STEPS_MAX   8

/* The model's tensors with their fills. */
void toy_describe(struct zero_param params[TOY_TENSORS]);

/* The same and four more: frozen tensors beside trainable ones and in a unit of
 * their own, and one without elements. The loss depends on the frozen ones. Some
 * micro-batches touch only some tensors or units. */
void toy_describe_all(struct zero_param params[TOY_TENSORS_ALL]);

/* An engine of either, of one thread, whose groups have adam. The status. */
int toy_create(struct zero **z, struct zero_comm *comm, struct zero_config config, bool rare,
               const struct zero_adam *adam);

/* Only what fails speaks: ranks are threads. */
#define TOY_EXPECT(z, condition)                                                                   \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ck_abort_msg("rank %d: %s: %s", zero_rank(z), #condition, zero_last_error(z));         \
    } while (0)

/* In which order units are reduced: what a program's backward pass, or its hooks, make of it. */
enum toy_order { TOY_LAST_TO_FIRST, TOY_FIRST_TO_LAST, TOY_IN_TURN, TOY_ORDERS };

struct toy {
    struct zero_config config; /* .comm and .accumulate are set by toy_run */
    bool rare;                 /* all tensors */
    bool l2;
    enum toy_order order;
    double lr; /* 0: the usual */
    int ranks, accumulate, steps;
    const struct engine_seams *(*seams)(void *arg, int rank); /* may be NULL */
    void *seams_arg;
    int poison_step; /* in this step (from 1) a gradient is infinite; 0: never */
    int discard;     /* before this step (from 1) a micro-step is made and discarded; 0: never */

    /* what came out, equal on all ranks */
    struct zero_digest digest;
    double norm[TOY_STEPS_MAX], mean[TOY_STEPS_MAX];
    double scale; /* of the loss, at the end */
    int clipped, skipped;
    struct zero_stats stats; /* rank 0's */
    struct error error;      /* of the first rank that failed, or of ranks that differ */
};

/* What a micro-batch does with one tensor. */
struct toy_task {
    int tensor;
    int64_t batch, elements;
    enum zero_dtype dtype;
    float scale;
    bool poison;
    const void *w;
    void *g;      /* adds its gradient; NULL: forward */
    double *loss; /* adds its part of the loss; NULL: backward */
};

void toy_compute(const struct toy_task *task);

/* How a rank computes where the host cannot read the device's memory: tasks are done
 * in their order, at the latest when wait returns. */
struct toy_apart {
    int (*device)(struct device **device, const struct device_options *options,
                  struct error *error);                         /* for struct engine_seams, */
    int (*link)(struct device_link *link, struct error *error); /* likewise */
    void (*begin)(int rank);
    void (*compute)(struct zero *z, const struct toy_task *task);
    void (*wait)(struct zero *z);
    void (*end)(void);
};
extern const struct toy_apart *toy_apart; /* for .device other than ZERO_CPU */

/* Trains; the outcome's status. */
int toy_run(struct toy *toy);

/* One rank of as many that comm has: the others are other processes. What came out is this
 * rank's. */
int toy_run_rank(struct toy *toy, struct zero_comm *comm);

/* One micro-step on an engine: forward and backward of global micro-batch
 * number 'batch'. Adds to *loss, at the latest when toy_wait returns. */
int toy_micro_step(struct zero *z, int64_t batch, bool poison, double *loss);
void toy_wait(struct zero *z);

/* The engine's own allocations and what it was asked for: the plan's bytes. NULL,
 * or a sentence. */
const char *toy_check_memory(const struct zero *z);

#endif
