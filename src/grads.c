// SPDX-License-Identifier: Apache-2.0
/* Gradients: whole in slots of the model's dtype, summed over ranks in rank
 * order, in fp32, into this rank's shard. Decides no order. */
#include "src/engine.h"

#include <assert.h>
#include <string.h>

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

/* One piece from all ranks: struct zero_collective's sum callback. */
static void sum_piece(void *arg, int64_t offset, int64_t bytes, const void *const *parts)
{
    struct operation *o = arg;
    struct zero *z = o->engine;
    kernels_thread_init(); /* a communicator of the program's may have other modes */
    const struct settings *set = &z->plan.set;
    int64_t element = set->local ? 4 : z->plan.element, first = offset / element;
    int ranks = o->added ? 1 : z->size;
    memcpy(z->parts, parts, (size_t)ranks * sizeof(*parts));
    if (o->relay >= 0) /* its own part has not left the device */
        z->parts[z->rank] = o->data + z->rank * o->collective.header.bytes + offset;
    struct device_sum sum = {.count = bytes / element,
                             .ranks = ranks,
                             .parts = z->parts,
                             .scratch =
                                 o->relay < 0 ? NULL : z->device_memory + z->plan.device.scratch,
                             .own = z->rank,
                             .dtype = set->local ? ZERO_FP32 : set->dtype,
                             .sum = o->sum + first * z->plan.grad,
                             .fresh = o->fresh,
                             .last = o->last,
                             .round = set->round_grads,
                             .narrow = z->plan.grad == 2};
    assert(first % KERNELS_BLOCK == 0);
    z->device->ops->sum(z->device, &sum);
}

void grads_accumulate(struct zero *z, const struct command *c)
{
    const void *parts[1] = {grads_slot(z, c->slot)};
    struct device_sum sum = {.count = z->layout.unit[c->unit].part[PART_LIVE].elements,
                             .ranks = 1,
                             .parts = parts,
                             .dtype = z->plan.set.dtype,
                             .sum = sums(z, c->unit, c->slot),
                             .fresh = c->part & 1};
    kernels_thread_init(); /* as in sum_piece: this thread has been in the communicator */
    z->device->ops->sum(z->device, &sum);
}

void grads_reduce(struct zero *z, const struct command *c, struct operation *o)
{
    char *base = sums(z, c->unit, c->slot);
    o->fresh = c->part & 1;
    o->last = c->part & 2;
    o->added = z->plan.set.added && z->size > 1;
    o->sum = base + own(z, c->unit) * z->plan.grad;
    o->collective.data = z->plan.set.local ? base : grads_slot(z, c->slot);
    o->collective.sum = sum_piece;
    o->collective.sum_arg = o;
    o->collective.piece_bytes = z->plan.piece_bytes;
    o->collective.scratch = z->device_memory + z->plan.device.scratch;
}

void grads_gather_sums(struct zero *z, const struct command *c, struct zero_collective *o)
{
    o->data = sums(z, c->unit, c->slot);
}

int grads_copy_sum(struct zero *z, const struct command *c, struct device_copy *copy)
{
    bool in = c->kind == COMMAND_COPY_SUM_IN;
    int64_t offset = c->part ? 0 : own(z, c->unit);
    char *slot = sums(z, c->unit, c->slot) + offset * z->plan.grad;
    char *rest = grads_at_rest(z, c->unit,
                               plan_part_begin(&z->plan, &z->layout, c->unit, PART_LIVE) + offset);
    copy_append(z, in ? DEVICE_TO_DEVICE_MEMORY : DEVICE_TO_HOST_MEMORY, copy, slot, rest,
                c->bytes);
    return 1;
}

int grads_copy_chunk(struct zero *z, const struct command *c, struct device_copy *copies)
{
    const struct plan *p = &z->plan;
    bool device = p->compute == ZERO_DEVICE;
    enum device_stream stream = device ? DEVICE_TO_DEVICE_MEMORY : DEVICE_TO_HOST_MEMORY;
    if (p->set.local) /* a shard is apart from the next unit's; Adam runs on the host */
        return copy_by_unit(z, c, copies, stream, slot_grads(z, c->slot), grads_at_rest, p->grad);
    char *slot = slot_grads(z, c->slot), *rest = base_at_rest(z) + c->chunk * p->chunk * p->grad;
    copy_append(z, stream, copies, device ? slot : rest, device ? rest : slot, c->bytes);
    return 1;
}
