// SPDX-License-Identifier: Apache-2.0
#include "tests/support/equal.h"

#include <assert.h>
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/random.h"
#include "tests/support/suite.h"

struct toy equal_simplest(enum zero_dtype dtype, int batch)
{
    return (struct toy){.config = {.dtype = dtype, .threads = 1},
                        .ranks = 1,
                        .accumulate = batch,
                        .steps = EQUAL_STEPS};
}

static void describe(char *text, size_t size, const struct toy *t)
{
    const struct zero_config *c = &t->config;
    snprintf(text, size,
             "stage %d, state %d%s, params %d, grads %d%s%s, ranks %d x %d, chunk %lld, host "
             "bytes %lld, dtype %d, threads %d, ring %d, rare %d, l2 %d, poison %d, discard %d, "
             "slots %d %d %d, verify %d, order %d, isa %s",
             c->stage, c->offload_optimizer, c->state ? " split" : "", c->offload_param,
             c->offload_grad, c->grad_dtype ? " bf16" : "", c->accumulate_in ? " local" : "",
             t->ranks, t->accumulate, (long long)c->chunk, (long long)c->host_bytes, (int)c->dtype,
             c->threads, (int)c->ring, t->rare, t->l2, t->poison_step, t->discard, c->gather_slots,
             c->grad_slots, c->chunk_slots, c->verify_spill, t->order, t->stats.isa);
}

bool equal_ended(const struct toy *t, const struct toy *expected, char *text, size_t size)
{
    const struct zero_digest *a = &t->digest, *b = &expected->digest;
    char run[400];
    describe(run, sizeof(run), t);
    if (t->error.status)
        snprintf(text, size, "%s: %s", run, t->error.text);
    else if (memcmp(a, b, sizeof(*a)))
        snprintf(text, size,
                 "%s: master %016llx m %016llx v %016llx, expected %016llx %016llx %016llx", run,
                 (unsigned long long)a->master, (unsigned long long)a->moment1,
                 (unsigned long long)a->moment2, (unsigned long long)b->master,
                 (unsigned long long)b->moment1, (unsigned long long)b->moment2);
    else if (memcmp(t->norm, expected->norm, sizeof(t->norm)) ||
             memcmp(t->mean, expected->mean, sizeof(t->mean)))
        snprintf(text, size, "%s: norms or means differ", run);
    else if (t->scale != expected->scale || t->skipped != expected->skipped)
        snprintf(text, size, "%s: loss scale %g, %d steps skipped; expected %g, %d", run, t->scale,
                 t->skipped, expected->scale, expected->skipped);
    else
        return true;
    return false;
}

void equal_expect(struct toy *t, const struct toy *expected)
{
    char text[1000];
    toy_run(t);
    if (!equal_ended(t, expected, text, sizeof(text)))
        ck_abort_msg("%s", text);
}

int64_t equal_each_place(struct zero_config c, void (*visit)(const struct zero_config *))
{
    /* A third of the toy's padded state, one rank: some chunks rest in memory,
     * some do not, whatever the chunk size. */
    const int64_t shares[] = {0, 25000, (int64_t)1 << 40};
    int64_t n = 0;
    for (int state = ZERO_DEVICE; state <= ZERO_NVME; state++)
        for (int param = ZERO_DEVICE; param <= (c.stage == 3 ? ZERO_NVME : ZERO_DEVICE); param++)
            for (int grad = ZERO_DEVICE; grad <= ZERO_HOST; grad++)
                for (int share = 0; share < (state == ZERO_NVME ? 3 : 1); share++, n++) {
                    c.offload_optimizer = (enum zero_place)state;
                    c.offload_param = (enum zero_place)param;
                    c.offload_grad = (enum zero_place)grad;
                    c.host_bytes = shares[share];
                    visit(&c);
                }
    return n;
}

enum { DTYPES = 3, GRADS = 2, DECAYS = 2, POISONS = 3 };
static_assert(DTYPES * GRADS * DECAYS * POISONS == EQUAL_MEANINGS, "all of them");

struct equal_meaning equal_meaning(int kind)
{
    return (struct equal_meaning){kind % DTYPES, kind / DTYPES % GRADS,
                                  kind / DTYPES / GRADS % DECAYS, kind / DTYPES / GRADS / DECAYS};
}

struct toy equal_meant(const struct equal_meaning *m)
{
    struct toy t = equal_simplest((enum zero_dtype)m->dtype, EQUAL_BATCH);
    t.config.grad_dtype = m->grad ? ZERO_BF16 : ZERO_FP32;
    t.rare = true;
    t.l2 = m->l2;
    t.poison_step = m->poison; /* fp16: the first overflow is forgiven, */
    t.steps = EQUAL_STEPS + 1;
    return t;
}

int equal_pick(uint64_t *random, int n)
{
    *random = random_mix(*random + 1);
    return (int)(*random % (uint64_t)n);
}

struct toy equal_draw(uint64_t *r, const struct equal_meaning *m)
{
    const int counts[] = {1, 2, 3, 4, 1, 2, 3, 4, 6, 12};
    const int64_t chunks[] = {64, 256, 1088, (int64_t)1 << 20}, shares[] = {0, 15000, 1 << 30};
    struct toy t = equal_meant(m);
    struct zero_config *c = &t.config;
    t.ranks = counts[equal_pick(r, 10)];
    t.accumulate = EQUAL_BATCH / t.ranks;
    c->stage = equal_pick(r, 4);
    c->offload_optimizer = (enum zero_place)(ZERO_DEVICE + equal_pick(r, 3));
    c->offload_param = (enum zero_place)(ZERO_DEVICE + (c->stage == 3 ? equal_pick(r, 3) : 0));
    c->offload_grad = (enum zero_place)(ZERO_DEVICE + equal_pick(r, 2));
    c->accumulate_in = t.ranks == 1 && c->stage < 2 && equal_pick(r, 2) ? ZERO_LOCAL : ZERO_SHARD;
    if (c->accumulate_in == ZERO_LOCAL)
        c->offload_grad = ZERO_DEVICE;
    c->state = m->dtype == ZERO_BF16 && equal_pick(r, 2) ? ZERO_STATE_SPLIT : ZERO_STATE_FP32;
    c->chunk = chunks[equal_pick(r, 4)];
    int share = equal_pick(r, 3);
    c->host_bytes = c->offload_optimizer == ZERO_NVME ? shares[share] : 0;
    c->threads = 1 + equal_pick(r, 2);
    c->ring = equal_pick(r, 2) ? ZERO_RING_AUTO : ZERO_RING_POSIX;
    c->chunk_slots = 2 + equal_pick(r, 6);
    c->gather_slots = 2 + equal_pick(r, 3);
    c->grad_slots = 2 + equal_pick(r, 2);
    t.discard = equal_pick(r, 2) ? 1 + equal_pick(r, 3) : 0;
    c->verify_spill = equal_pick(r, 2) && suite_checksums();
    t.order = (enum toy_order)equal_pick(r, TOY_ORDERS);
    return t;
}
