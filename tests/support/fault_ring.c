// SPDX-License-Identifier: Apache-2.0
/* A ring that fails and withholds whole requests of another. */
#include "src/thread.h"
#include "tests/support/fault.h"

#define REAP_MAX 64
#define PATIENCE 100

/* Whether this request goes wrong. */
static bool strikes(struct fault *f)
{
    return fault_strikes(f, FAULT_REQUEST_LATE) || fault_strikes(f, FAULT_REQUEST_REORDER) ||
           fault_strikes(f, FAULT_REQUEST_EIO);
}

static void fault_ring_queue(struct ring *ring, struct ring_request *request)
{
    struct fault_ring *r = (struct fault_ring *)ring;
    struct fault_request *q = r->requests;
    while (q->request)
        q++;
    *q = (struct fault_request){.request = request, .order = ++r->order, .patience = PATIENCE};
    q->struck = strikes(r->fault);
    q->finished = q->struck && r->fault->kind == FAULT_REQUEST_EIO;
    if (!q->finished) {
        r->inner->ops->queue(r->inner, request);
        return;
    }
    request->submitted = request->completed = 0;
    request->error = (struct error){.status = ZERO_OK};
    request->error_file = 0;
    error_set(&request->error, ZERO_ERR_IO,
              "%s of %lld bytes at offset %lld is failed by the test. Look there.",
              request->write ? "write" : "read", (long long)request->bytes,
              (long long)request->offset);
    event_write(r->event);
}

static int fault_ring_submit(struct ring *ring, struct error *error)
{
    struct fault_ring *r = (struct fault_ring *)ring;
    return r->inner->ops->submit(r->inner, error);
}

static void finish(struct fault_ring *r)
{
    struct ring_request *done[REAP_MAX];
    int n = r->inner->ops->reap(r->inner, done, REAP_MAX);
    for (int i = 0; i < n; i++) {
        struct fault_request *q = r->requests;
        while (q->request != done[i])
            q++;
        q->finished = true;
    }
}

/* Whether a request is not handed back yet; the engine asks again. */
static bool held_back(struct fault_ring *r, struct fault_request *q)
{
    bool reorder = r->fault && r->fault->kind == FAULT_REQUEST_REORDER;
    if (!q->struck || (!reorder && r->fault->kind != FAULT_REQUEST_LATE) || q->patience == 0)
        return false;
    if (reorder && r->handed > q->order)
        return false;
    q->patience--;
    event_write(r->event);
    return true;
}

static int fault_ring_reap(struct ring *ring, struct ring_request **done, int max)
{
    struct fault_ring *r = (struct fault_ring *)ring;
    int n = 0;
    finish(r);
    for (int i = 0; i < RING_REQUESTS_MAX && n < max; i++) {
        struct fault_request *q = &r->requests[i];
        if (!q->request || !q->finished || held_back(r, q))
            continue;
        if (q->order > r->handed)
            r->handed = q->order;
        done[n++] = q->request;
        q->request = NULL;
    }
    return n;
}

static void fault_ring_destroy(struct ring *ring)
{
    struct fault_ring *r = (struct fault_ring *)ring;
    r->inner->ops->destroy(r->inner);
}

static const struct ring_ops fault_ring_ops = {
    .name = "fault",
    .queue = fault_ring_queue,
    .submit = fault_ring_submit,
    .reap = fault_ring_reap,
    .destroy = fault_ring_destroy,
};

int fault_ring(void *arg, struct ring **ring, const struct ring_options *options,
               struct error *error)
{
    struct fault_ring *r = arg;
    struct error refused = {0};
    *ring = NULL;
    r->event = options->event_fd;
    r->ring.ops = &fault_ring_ops;
    if ((!r->uring || ring_uring_create(&r->inner, options, &refused)) &&
        ring_posix_create(&r->inner, options, error))
        return error->status;
    r->ring.block = r->inner->block;
    r->ring.depth = r->inner->depth;
    *ring = &r->ring;
    return ZERO_OK;
}
