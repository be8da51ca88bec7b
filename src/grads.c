// SPDX-License-Identifier: Apache-2.0
/* Gradients: whole in slots of the model's dtype, summed over ranks in rank
 * order, in fp32, into this rank's shard. Decides no order. */
#include "src/engine.h"

#include <assert.h>

#define SUM_BLOCK 4096 /* elements summed before their squares enter the norm */

char *grads_slot(const struct zero *z, int slot)
{
    return z->device_memory + z->plan.device.grad[slot];
}

/* Where this rank's shard begins in a unit's sums, and in their whole order. */
static int64_t own(const struct zero *z, int unit)
{
    return z->plan.whole_grads ? z->rank * z->layout.unit[unit].part[PART_LIVE].shard : 0;
}

static char *base_at_rest(const struct zero *z)
{
    const struct plan *p = &z->plan;
    return p->set.grad == ZERO_DEVICE ? z->device_memory + p->device.grads
                                      : z->arena.base + p->host.grads;
}

char *grads_at_rest(const struct zero *z, int unit, int64_t position)
{
    const struct plan *p = &z->plan;
    if (p->set.local && !p->whole_state) /* the shard within the whole */
        position += z->layout.unit[unit].part[PART_LIVE].begin + own(z, unit) -
                    plan_part_begin(p, &z->layout, unit, PART_LIVE);
    return base_at_rest(z) + position * p->grad;
}

/* Where a unit's sums are while they grow: at rest on the device, or in a slot. */
static char *sums(const struct zero *z, int unit, int slot)
{
    const struct plan *p = &z->plan;
    if (p->set.grad == ZERO_HOST)
        return z->device_memory + p->device.sum[slot];
    const struct part *live = &z->layout.unit[unit].part[PART_LIVE];
    return base_at_rest(z) + (p->whole_grads ? live->begin : live->begin / p->ranks) * p->grad;
}

static void sum_block(const struct zero *z, bool wide, int64_t n, int ranks, const void **parts,
                      bool fresh, float *sum, double *squares)
{
    const struct kernels *k = z->kernels;
    if (wide || z->plan.set.dtype == ZERO_FP32)
        k->sum_f32(n, ranks, (const float *const *)parts, fresh, sum, squares);
    else
        (z->plan.set.dtype == ZERO_BF16 ? k->sum_bf16 : k->sum_fp16)(
            n, ranks, (const uint16_t *const *)parts, fresh, sum, squares);
}

/* The last micro-step's sums of a block, to where they rest. */
static void round_block(const struct zero *z, int64_t n, float *sum, char *rest)
{
    uint16_t rounded[SUM_BLOCK];
    uint16_t *to = z->plan.grad == 2 ? (uint16_t *)(void *)rest : rounded;
    z->kernels->to_bf16(n, sum, to);
    if (z->plan.grad == 4)
        z->kernels->from_bf16(n, rounded, sum);
}

/* One piece from all ranks: struct zero_collective's sum callback. The norm is
 * taken before sums are rounded. */
static void sum_piece(void *arg, int64_t offset, int64_t bytes, const void *const *parts)
{
    struct operation *o = arg;
    struct zero *z = o->engine;
    bool wide = z->plan.set.local;
    int64_t element = wide ? 4 : z->plan.element, first = offset / element, n = bytes / element;
    double squares[SUM_BLOCK / KERNELS_BLOCK];
    float block[SUM_BLOCK];
    assert(first % KERNELS_BLOCK == 0 && n % KERNELS_BLOCK == 0);
    for (int64_t i = 0; i < n; i += SUM_BLOCK) {
        int64_t count = n - i < SUM_BLOCK ? n - i : SUM_BLOCK;
        for (int r = 0; r < z->size; r++)
            z->parts[r] = (const char *)parts[r] + i * element;
        char *rest = o->sum + (first + i) * z->plan.grad;
        float *sum = z->plan.grad == 4 ? (float *)(void *)rest : block;
        sum_block(z, wide, count, z->size, z->parts, o->fresh, sum, o->last ? squares : NULL);
        if (o->last && z->plan.set.round_grads)
            round_block(z, count, sum, rest);
        for (int64_t b = 0; o->last && b < count / KERNELS_BLOCK; b++)
            wide_add(&z->norm, squares[b]);
    }
}

void grads_accumulate(struct zero *z, const struct command *c)
{
    const void *parts[1] = {grads_slot(z, c->slot)};
    sum_block(z, false, z->layout.unit[c->unit].part[PART_LIVE].elements, 1, parts, c->part & 1,
              (float *)(void *)sums(z, c->unit, c->slot), NULL);
}

void grads_reduce(struct zero *z, const struct command *c, struct operation *o)
{
    char *unit = sums(z, c->unit, c->slot);
    o->fresh = c->part & 1;
    o->last = c->part & 2;
    o->sum = unit + own(z, c->unit) * z->plan.grad;
    o->collective.data = z->plan.set.local ? unit : grads_slot(z, c->slot);
    o->collective.sum = sum_piece;
    o->collective.sum_arg = o;
    o->collective.piece_bytes = z->plan.piece_bytes;
    o->collective.scratch = z->device_memory + z->plan.device.scratch;
}

void grads_gather_sums(struct zero *z, const struct command *c, struct zero_collective *o)
{
    o->data = sums(z, c->unit, c->slot);
}

void grads_copy_sum(struct zero *z, const struct command *c)
{
    bool in = c->kind == COMMAND_COPY_SUM_IN;
    struct device_copy *copy = &z->sum_copies[2 * c->slot + !in];
    int64_t offset = c->part ? 0 : own(z, c->unit);
    char *slot = sums(z, c->unit, c->slot) + offset * z->plan.grad;
    char *rest = grads_at_rest(z, c->unit,
                               plan_part_begin(&z->plan, &z->layout, c->unit, PART_LIVE) + offset);
    *copy =
        (struct device_copy){.to = in ? slot : rest, .from = in ? rest : slot, .bytes = c->bytes};
    count(in ? &z->to_device_bytes : &z->to_host_bytes, c->bytes);
    z->device->ops->copy(z->device, in ? DEVICE_TO_DEVICE_MEMORY : DEVICE_TO_HOST_MEMORY, copy);
}

static char *live_at_rest(const struct zero *z, int unit, enum part_kind kind, int64_t position)
{
    assert(kind == PART_LIVE);
    return grads_at_rest(z, unit, position);
}

void grads_copy_chunk(struct zero *z, const struct command *c)
{
    const struct plan *p = &z->plan;
    bool device = p->compute == ZERO_DEVICE;
    struct device_copy *copies = &z->chunk_grad_copies[c->slot * z->layout.units];
    enum device_stream stream = device ? DEVICE_TO_DEVICE_MEMORY : DEVICE_TO_HOST_MEMORY;
    if (p->set.local) { /* a shard is apart from the next unit's; Adam runs on the host */
        copy_by_unit(z, c, copies, stream, slot_grads(z, c->slot), live_at_rest, p->grad);
        return;
    }
    *copies = (struct device_copy){
        .to = slot_grads(z, c->slot),
        .from = base_at_rest(z) + c->chunk * p->chunk * p->grad,
        .bytes = c->bytes,
    };
    count(device ? &z->to_device_bytes : &z->to_host_bytes, c->bytes);
    z->device->ops->copy(z->device, stream, copies);
}
