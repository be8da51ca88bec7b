// SPDX-License-Identifier: Apache-2.0
/*
 * One rank's backends, held up: a ring around the posix ring, a device around
 * the CPU's, a communicator around another. Each operation is shown when the
 * engine submits it, and is reported done only when nobody withholds it any
 * more; a withheld copy is not even begun, and no copy behind it in its stream.
 * With random, operations also begin and end late, as a matter of how often the
 * engine asks, never of time.
 *
 * Hooks run in the engine's thread (the caller's, before there is one). Who
 * changes what a withheld hook answers calls latch_wake: the engine sleeps.
 */
#ifndef TESTS_SUPPORT_LATCH_H
#define TESTS_SUPPORT_LATCH_H

#include "include/zero.h"
#include "src/engine.h"

enum latch_kind { LATCH_RING, LATCH_COPY, LATCH_COMM };

/* An operation between its submission and the report that it is done. */
struct latch_op {
    enum latch_kind kind;
    struct ring_request *request;       /* RING */
    enum device_stream stream;          /* COPY */
    struct device_copy *copy;           /* COPY */
    struct zero_collective *collective; /* COMM */
    int64_t tag;                        /* the test's own */
    /* the latch's own */
    int late_start, late_end; /* how often it is still refused */
    bool begun, finished;
    struct latch_op *next;
};

struct latch {
    void (*submitted)(void *arg, struct latch_op *op); /* these three may be NULL */
    bool (*withheld)(void *arg, const struct latch_op *op);
    void (*completed)(void *arg, const struct latch_op *op); /* the engine learns of it next */
    void *arg;
    uint64_t random; /* state of the generator; 0: nothing is late */

    /* The latch's own. */
    struct engine_seams seams;
    int event;
    void *base; /* of the host arena, where requests' buffers lie */
    struct latch_device {
        struct device device;
        struct device *inner;
        struct latch *latch;
        struct latch_op *ops;
    } device;
    struct latch_ring {
        struct ring ring;
        struct ring *inner;
        struct latch *latch;
        struct latch_op *ops;
    } ring;
    struct latch_comm {
        struct zero_comm comm;
        struct zero_comm *inner;
        struct latch *latch;
        struct latch_op *ops;
    } comm;
};

/* For engine_create, which is called next in this thread. */
const struct engine_seams *latch_seams(struct latch *l);

/* For zero_config.comm; inner stays the caller's. */
struct zero_comm *latch_comm(struct latch *l, struct zero_comm *inner);

/* The engine asks again. Any thread, while the engine lives. */
void latch_wake(struct latch *l);

#endif
