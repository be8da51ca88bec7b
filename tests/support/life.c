// SPDX-License-Identifier: Apache-2.0
/* The calls of a life. */
#include "tests/support/life.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/random.h"
#include "tests/support/ranks.h"

static void wrong(struct life_rank *r, const char *what, int status)
{
    if (!r->wrong[0])
        snprintf(r->wrong, sizeof(r->wrong), "%s: %s \"%s\"", what, zero_status_name(status),
                 zero_last_error(r->z));
}

static bool leaves(struct life_rank *r)
{
    return fault_strikes(&r->fault, FAULT_LEAVE);
}

static bool made(struct life_rank *r, const char *call, int status)
{
    r->call = call;
    r->status = status;
    if (status)
        snprintf(r->text, sizeof(r->text), "%s", zero_last_error(r->z));
    return status == ZERO_OK;
}
#define DO(call)      (!leaves(r) && made(r, #call, call))
#define NONE(pointer) ((pointer) ? ZERO_OK : r->z->error.status)

static bool read_some(struct life_rank *r, int param, enum zero_what what)
{
    struct zero *z = r->z;
    float values[1000];
    if (!DO(zero_read(z, param, what, 0, 1000, values)))
        return false;
    for (int i = 0; i < 1000; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], 4);
        r->values = random_mix(r->values ^ bits);
    }
    return true;
}

static bool train(struct life_rank *r, int step)
{
    struct zero *z = r->z;
    int accumulate = r->run->scenario->accumulate;
    struct zero_step_info info;
    double loss = 0, mean;
    bool ok = true;
    for (int a = 0; ok && a < accumulate; a++)
        ok = DO(toy_micro_step(z, (step * accumulate + a) * z->size + r->rank, false, &loss));
    toy_wait(z);
    if (!ok)
        return false;
    return DO(zero_mean(z, &loss, 1, &mean)) && read_some(r, 2, ZERO_GRAD) &&
           DO(zero_step(z, &info));
}

/* All that is neither training nor a digest, once. */
static bool look_around(struct life_rank *r)
{
    struct zero *z = r->z;
    float values[1200];
    for (int i = 0; i < 1200; i++)
        values[i] = (float)i / 2048;
    if (!read_some(r, 0, ZERO_MASTER) || !DO(zero_write(z, 0, ZERO_MOMENT2, 100, 1200, values)) ||
        !DO(zero_write(z, 6, ZERO_MASTER, 7, 900, values)) || !DO(zero_acquire(z, 1)))
        return false;
    if (!DO(zero_release(z, 1)) || !DO(zero_phase(z, ZERO_EVAL)))
        return false;
    for (int u = 0; u < TOY_UNITS_ALL; u++)
        if (!DO(zero_acquire(z, u)) || !DO(zero_release(z, u)))
            return false;
    if (!DO(zero_phase(z, ZERO_TRAIN)) || !DO(NONE(zero_grad_data(z, 6))) || !DO(zero_reduce(z, 2)))
        return false;
    return DO(zero_discard(z));
}

static bool live(struct life_rank *r)
{
    const struct zero_adam adam = {.lr = .05, .beta1 = .9, .beta2 = .95, .eps = 1e-8};
    struct zero *z = r->z;
    struct zero_stats stats;
    if (!DO(zero_set_adam(z, 0, &adam)) || !DO(zero_set_adam(z, 1, &adam)) ||
        !DO(zero_set_clip(z, 1)) || !DO(zero_set_accumulate(z, r->run->scenario->accumulate)))
        return false;
    return train(r, 0) && look_around(r) && train(r, 1) && DO(zero_digest(z, &r->digest)) &&
           DO(zero_stats(z, &stats));
}

/* A failed engine returns its first error, whatever it is asked. */
static void expect_failed(struct life_rank *r)
{
    struct zero *z = r->z;
    struct zero_digest digest;
    struct zero_stats stats;
    if (!z)
        return;
    bool refusal = r->status == ZERO_ERR_ARGUMENT || r->status == ZERO_ERR_STATE ||
                   r->status == ZERO_ERR_UNSUPPORTED;
    const int again[] = {zero_digest(z, &digest), zero_acquire(z, 0),    zero_reduce(z, 99),
                         zero_step(z, NULL),      zero_set_clip(z, 0.5), zero_discard(z)};
    for (size_t i = 0; i < sizeof(again) / sizeof(*again); i++)
        if (again[i] != r->status || strcmp(zero_last_error(z), r->text))
            wrong(r, "a failed engine says something else", again[i]);
    if (!z->created && zero_stats(z, &stats) != r->status)
        wrong(r, "an engine that was not created has counters", zero_stats(z, &stats));
    if (z->created && refusal)
        wrong(r, "a call that was right is refused", r->status);
}

static int fill(void *arg, int64_t first, int64_t count, float *out)
{
    struct fill *f = arg;
    int rc = zero_fill_normal(f->arg, first, count, out);
    if (fault_strikes(&f->rank->fault, FAULT_NAN))
        out[count - 1] = NAN;
    return fault_strikes(&f->rank->fault, FAULT_FILL) ? -1 : rc;
}

static void describe(struct life_rank *r, struct zero_param *params)
{
    toy_describe_all(params);
    for (int i = 0; i < TOY_TENSORS_ALL; i++) {
        r->fills[i] = (struct fill){.rank = r, .arg = params[i].fill_arg};
        params[i].fill = fill;
        params[i].fill_arg = &r->fills[i];
    }
}

/* The others, who wait for a rank that has gone, lose patience. */
static void leave(struct life_rank *r)
{
    struct life *run = r->run;
    bool gone = r->fault.kind == FAULT_LEAVE && r->fault.struck;
    int others = run->scenario->ranks - 1;
    while (gone && run->victim != LIFE_EVERYBODY && atomic_load(&run->ranks.gone) < others) {
        fault_tick();
        usleep(1000);
    }
    if (!r->comm.stopped)
        atomic_fetch_add(&run->ranks.gone, 1);
}

static void rank_main(int rank, struct zero_comm *inner, void *arg)
{
    struct life *run = arg;
    struct life_rank *r = &run->rank[rank];
    struct zero_param params[TOY_TENSORS_ALL];
    struct zero_config config = run->scenario->config;
    r->run = run;
    r->rank = rank;
    r->fault = (struct fault){.kind = run->fault.kind};
    if (rank == run->victim || run->victim == LIFE_EVERYBODY)
        r->fault = run->fault;
    describe(r, params);
    r->ring.fault = &r->fault;
    r->ring.uring = config.ring != ZERO_RING_POSIX;
    config.size = sizeof(config);
    config.chunk = 512;
    config.threads = 2;
    config.deadline_seconds = 2;
    config.accumulate = run->scenario->accumulate;
    config.log_level = ZERO_LOG_SILENT;
    config.comm = fault_comm(&r->comm, inner, &r->fault, &run->ranks);
    r->seams.seconds = fault_seconds;
    r->seams.hasty = true;
    if (run->fault.kind >= FAULT_REQUEST_LATE && run->fault.kind <= FAULT_REQUEST_EIO)
        r->seams.ring = fault_ring;
    r->seams.ring_arg = &r->ring;
    fault_calls(&r->fault);
    if (config.device != ZERO_CPU) {
        r->seams.device = toy_apart->device;
        r->seams.link = toy_apart->link;
        toy_apart->begin(rank);
    }
    if (DO(engine_create(&r->z, params, TOY_TENSORS_ALL, &config, &r->seams)) &&
        !run->scenario->creation)
        live(r);
    if (r->status)
        expect_failed(r);
    zero_destroy(r->z);
    if (config.device != ZERO_CPU)
        toy_apart->end();
    fault_calls(NULL);
    leave(r);
}

void life_run(struct life *life)
{
    ranks_run(life->scenario->ranks, rank_main, life);
}
