// SPDX-License-Identifier: Apache-2.0
/* Backends that report an operation done when nobody withholds it. They decide
 * nothing: what is withheld is the test's affair. */
#include "tests/support/latch.h"

#include <assert.h>
#include <stdlib.h>

#include "src/thread.h"
#include "tests/support/random.h"

#define REAP_MAX 64

static int late(struct latch *l)
{
    if (!l->random)
        return 0;
    uint64_t x = random_mix(++l->random);
    return (int)(x >> 32) & 3 ? (int)(x % 6) : (int)(x % 120);
}

static struct latch_op *add(struct latch *l, struct latch_op **list, struct latch_op op)
{
    struct latch_op *new = calloc(1, sizeof(*new));
    if (!new)
        abort();
    *new = op;
    new->late_start = late(l);
    new->late_end = late(l);
    while (*list)
        list = &(*list)->next;
    *list = new;
    if (l->submitted)
        l->submitted(l->arg, new);
    return new;
}

static void drop(struct latch_op **link)
{
    struct latch_op *op = *link;
    *link = op->next;
    free(op);
}

static void complete(struct latch *l, struct latch_op **link)
{
    if (l->completed)
        l->completed(l->arg, *link);
    drop(link);
}

static void drop_all(struct latch_op **list)
{
    while (*list)
        drop(list);
}

/* One refusal less; the engine is to ask again. */
static bool refused(struct latch *l, int *times)
{
    if (*times == 0)
        return false;
    --*times;
    event_write(l->event);
    return true;
}

static bool withheld(struct latch *l, const struct latch_op *op)
{
    return l->withheld && l->withheld(l->arg, op);
}

/* --------------------------------------------------------------- the device */

static void *device_alloc(struct device *device, int64_t bytes, struct error *error)
{
    struct device *inner = ((struct latch_device *)device)->inner;
    return inner->ops->alloc(inner, bytes, error);
}

static void device_pump(struct latch_device *d)
{
    bool blocked[DEVICE_STREAMS] = {false};
    for (struct latch_op *op = d->ops; op; op = op->next) {
        if (op->begun || blocked[op->stream])
            continue;
        if (withheld(d->latch, op) || refused(d->latch, &op->late_start)) {
            blocked[op->stream] = true;
            continue;
        }
        op->begun = true;
        d->inner->ops->copy(d->inner, op->stream, op->copy);
    }
}

static void device_copy(struct device *device, enum device_stream stream, struct device_copy *copy)
{
    struct latch_device *d = (struct latch_device *)device;
    add(d->latch, &d->ops, (struct latch_op){.kind = LATCH_COPY, .stream = stream, .copy = copy});
    device_pump(d);
}

static bool device_copied(struct device *device, const struct device_copy *copy)
{
    struct latch_device *d = (struct latch_device *)device;
    device_pump(d);
    struct latch_op **link = &d->ops;
    while (*link && (*link)->copy != copy)
        link = &(*link)->next;
    struct latch_op *op = *link;
    if (op &&
        (!op->begun || !d->inner->ops->copied(d->inner, copy) || refused(d->latch, &op->late_end)))
        return false;
    if (op)
        complete(d->latch, link);
    return d->inner->ops->copied(d->inner, copy);
}

static int device_pin(struct device *device, void *memory, int64_t bytes, struct error *error)
{
    struct device *inner = ((struct latch_device *)device)->inner;
    return inner->ops->pin(inner, memory, bytes, error);
}

static void device_mark(struct device *device, enum device_stream stream, struct device_copy *mark)
{
    struct device *inner = ((struct latch_device *)device)->inner;
    inner->ops->mark(inner, stream, mark);
}

static int device_status(struct device *device, struct error *error)
{
    struct device *inner = ((struct latch_device *)device)->inner;
    return inner->ops->status(inner, error);
}

static void device_clear(struct device *device, enum device_stream stream, void *memory,
                         int64_t bytes)
{
    struct device *inner = ((struct latch_device *)device)->inner;
    inner->ops->clear(inner, stream, memory, bytes);
}

static void device_sum(struct device *device, const struct device_sum *sum)
{
    struct device *inner = ((struct latch_device *)device)->inner;
    inner->ops->sum(inner, sum);
}

static int device_norm(struct device *device, struct wide *norm, struct error *error)
{
    struct device *inner = ((struct latch_device *)device)->inner;
    return inner->ops->norm(inner, norm, error);
}

static void device_adam(struct device *device, const struct adam_stretch *stretch)
{
    struct device *inner = ((struct latch_device *)device)->inner;
    inner->ops->adam(inner, stretch);
}

static int device_read(struct device *device, void *to, const void *from, int64_t bytes,
                       struct error *error)
{
    struct device *inner = ((struct latch_device *)device)->inner;
    return inner->ops->read(inner, to, from, bytes, error);
}

static void device_destroy(struct device *device)
{
    struct latch_device *d = (struct latch_device *)device;
    d->inner->ops->destroy(d->inner);
    drop_all(&d->ops);
}

static const struct device_ops device_ops = {
    .alloc = device_alloc,
    .copy = device_copy,
    .copied = device_copied,
    .pin = device_pin,
    .mark = device_mark,
    .status = device_status,
    .clear = device_clear,
    .sum = device_sum,
    .norm = device_norm,
    .adam = device_adam,
    .read = device_read,
    .destroy = device_destroy,
};

/* ----------------------------------------------------------------- the ring */

static void ring_pump(struct latch_ring *r)
{
    for (struct latch_op *op = r->ops; op; op = op->next)
        if (!op->begun && !refused(r->latch, &op->late_start)) {
            op->begun = true;
            r->inner->ops->queue(r->inner, op->request);
        }
}

static void ring_queue(struct ring *ring, struct ring_request *request)
{
    struct latch_ring *r = (struct latch_ring *)ring;
    add(r->latch, &r->ops, (struct latch_op){.kind = LATCH_RING, .request = request});
}

static int ring_submit(struct ring *ring, struct error *error)
{
    struct latch_ring *r = (struct latch_ring *)ring;
    ring_pump(r);
    return r->inner->ops->submit(r->inner, error);
}

static void ring_finish(struct latch_ring *r)
{
    struct ring_request *done[REAP_MAX];
    int n = r->inner->ops->reap(r->inner, done, REAP_MAX);
    for (int i = 0; i < n; i++)
        for (struct latch_op *op = r->ops; op; op = op->next)
            if (op->request == done[i]) /* a request has one operation at a time */
                op->finished = true;
}

static int ring_reap(struct ring *ring, struct ring_request **done, int max)
{
    struct latch_ring *r = (struct latch_ring *)ring;
    struct error error = {0};
    int n = 0, status = ring_submit(ring, &error);
    assert(!status);
    (void)status;
    ring_finish(r);
    for (struct latch_op **link = &r->ops; *link && n < max;) {
        struct latch_op *op = *link;
        if (!op->finished || withheld(r->latch, op) || refused(r->latch, &op->late_end)) {
            link = &op->next;
            continue;
        }
        done[n++] = op->request;
        complete(r->latch, link);
    }
    return n;
}

static void ring_destroy(struct ring *ring)
{
    struct latch_ring *r = (struct latch_ring *)ring;
    r->inner->ops->destroy(r->inner);
    drop_all(&r->ops);
}

static const struct ring_ops ring_ops = {
    .name = "latch",
    .queue = ring_queue,
    .submit = ring_submit,
    .reap = ring_reap,
    .destroy = ring_destroy,
};

/* --------------------------------------------------------- the communicator */

static int comm_answer(struct latch_comm *c, int status)
{
    for (size_t i = 0; status && i < sizeof(c->comm.error); i++)
        c->comm.error[i] = c->inner->error[i];
    return status;
}

static int comm_start(struct zero_comm *comm, struct zero_collective *collective)
{
    struct latch_comm *c = (struct latch_comm *)comm;
    add(c->latch, &c->ops, (struct latch_op){.kind = LATCH_COMM, .collective = collective});
    return comm_answer(c, c->inner->ops->start(c->inner, collective));
}

static int comm_test(struct zero_comm *comm, struct zero_collective *collective, bool *done)
{
    struct latch_comm *c = (struct latch_comm *)comm;
    struct latch_op **link = &c->ops;
    while ((*link)->collective != collective)
        link = &(*link)->next;
    struct latch_op *op = *link;
    *done = false;
    /* A backend reports a collective done once; it also works for the others. */
    int status = op->finished ? ZERO_OK : c->inner->ops->test(c->inner, collective, &op->finished);
    if (status || !op->finished || withheld(c->latch, op) || refused(c->latch, &op->late_end))
        return comm_answer(c, status);
    *done = true;
    complete(c->latch, link);
    return ZERO_OK;
}

static int comm_missing(struct zero_comm *comm, const struct zero_collective *collective, int from)
{
    struct latch_comm *c = (struct latch_comm *)comm;
    return c->inner->ops->missing(c->inner, collective, from);
}

static void comm_abort(struct zero_comm *comm, uint64_t sequence)
{
    struct latch_comm *c = (struct latch_comm *)comm;
    c->inner->ops->abort(c->inner, sequence);
}

static void comm_destroy(struct zero_comm *comm)
{
    drop_all(&((struct latch_comm *)comm)->ops);
}

static const struct zero_comm_ops comm_ops = {
    .start = comm_start,
    .test = comm_test,
    .missing = comm_missing,
    .abort = comm_abort,
    .destroy = comm_destroy,
};

/* ---------------------------------------------------------------- the seams */

/* The device's seam has no argument of its own, and is called by the thread that creates the
 * engine. */
static _Thread_local struct latch *creating;

static int make_device(struct device **device, const struct device_options *options,
                       struct error *error)
{
    struct latch *l = creating;
    l->event = options->event_fd;
    l->device.device.ops = &device_ops;
    l->device.device.name = "latch";
    l->device.latch = l;
    *device = NULL;
    if (!device_cpu_create(&l->device.inner, options, error))
        *device = &l->device.device;
    return error->status;
}

static int make_ring(void *arg, struct ring **ring, const struct ring_options *options,
                     struct error *error)
{
    struct latch *l = arg;
    l->base = options->base;
    l->ring.ring.ops = &ring_ops;
    l->ring.latch = l;
    *ring = NULL;
    if (!ring_posix_create(&l->ring.inner, options, error))
        *ring = &l->ring.ring;
    return error->status;
}

const struct engine_seams *latch_seams(struct latch *l)
{
    creating = l;
    l->seams.device = make_device;
    l->seams.ring = make_ring;
    l->seams.ring_arg = l;
    return &l->seams;
}

struct zero_comm *latch_comm(struct latch *l, struct zero_comm *inner)
{
    l->comm.comm = *inner;
    l->comm.comm.ops = &comm_ops;
    l->comm.inner = inner;
    l->comm.latch = l;
    return &l->comm.comm;
}

void latch_wake(struct latch *l)
{
    event_write(l->event);
}
