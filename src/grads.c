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

float *grads_at_rest(const struct zero *z, int64_t position)
{
    const struct plan *p = &z->plan;
    char *base = p->set.grad == ZERO_DEVICE ? z->device_memory + p->device.grads
                                            : z->arena.base + p->host.grads;
    return (float *)base + position;
}

/* Where a unit's sums are while they grow: at rest on the device, or in a slot. */
static float *sums(const struct zero *z, const struct command *c)
{
    if (z->plan.set.grad == ZERO_DEVICE)
        return grads_at_rest(z, plan_unit_begin(&z->plan, &z->layout, c->unit));
    return (float *)(z->device_memory + z->plan.device.sum[c->slot]);
}

/* This rank's part of them. */
static int64_t own(const struct zero *z, int unit)
{
    return z->plan.whole_state ? z->rank * z->layout.unit[unit].shard : 0;
}

/* One piece from all ranks: struct zero_collective's sum callback. */
static void sum_piece(void *arg, int64_t offset, int64_t bytes, const void *const *parts)
{
    struct operation *o = arg;
    struct zero *z = o->engine;
    int64_t element = z->plan.element, first = offset / element, n = bytes / element;
    double squares[SUM_BLOCK / KERNELS_BLOCK];
    assert(first % KERNELS_BLOCK == 0 && n % KERNELS_BLOCK == 0);
    for (int64_t i = 0; i < n; i += SUM_BLOCK) {
        int64_t count = n - i < SUM_BLOCK ? n - i : SUM_BLOCK;
        for (int r = 0; r < z->size; r++)
            z->parts[r] = (const char *)parts[r] + i * element;
        float *sum = o->sum + first + i;
        if (z->plan.set.dtype == ZERO_BF16)
            z->kernels->sum_bf16(count, z->size, (const uint16_t *const *)z->parts, o->fresh, sum,
                                 o->last ? squares : NULL);
        else
            z->kernels->sum_f32(count, z->size, (const float *const *)z->parts, o->fresh, sum,
                                o->last ? squares : NULL);
        for (int64_t b = 0; o->last && b < count / KERNELS_BLOCK; b++)
            wide_add(&z->norm, squares[b]);
    }
}

void grads_reduce(struct zero *z, const struct command *c, struct operation *o)
{
    o->fresh = c->part & 1;
    o->last = c->part & 2;
    o->sum = sums(z, c) + own(z, c->unit);
    o->collective.data = grads_slot(z, c->slot);
    o->collective.sum = sum_piece;
    o->collective.sum_arg = o;
    o->collective.piece_bytes = z->plan.piece_bytes;
    o->collective.scratch = z->device_memory + z->plan.device.scratch;
}

void grads_gather_sums(struct zero *z, const struct command *c, struct zero_collective *o)
{
    o->data = sums(z, c);
}

void grads_copy_sum(struct zero *z, const struct command *c)
{
    bool in = c->kind == COMMAND_COPY_SUM_IN;
    struct device_copy *copy = &z->sum_copies[2 * c->slot + !in];
    int64_t offset = c->part ? 0 : own(z, c->unit);
    float *slot = sums(z, c) + offset;
    float *rest = grads_at_rest(z, plan_unit_begin(&z->plan, &z->layout, c->unit) + offset);
    *copy =
        (struct device_copy){.to = in ? slot : rest, .from = in ? rest : slot, .bytes = c->bytes};
    count(in ? &z->to_device_bytes : &z->to_host_bytes, c->bytes);
    z->device->ops->copy(z->device, in ? DEVICE_TO_DEVICE_MEMORY : DEVICE_TO_HOST_MEMORY, copy);
}

void grads_copy_chunk(struct zero *z, const struct command *c)
{
    const struct plan *p = &z->plan;
    bool device = p->compute == ZERO_DEVICE;
    struct device_copy *copy = &z->grad_copies[c->slot];
    *copy = (struct device_copy){
        .to = slot_grads(z, c->slot),
        .from = grads_at_rest(z, c->chunk * p->chunk),
        .bytes = c->bytes,
    };
    count(device ? &z->to_device_bytes : &z->to_host_bytes, c->bytes);
    z->device->ops->copy(z->device, device ? DEVICE_TO_DEVICE_MEMORY : DEVICE_TO_HOST_MEMORY, copy);
}
