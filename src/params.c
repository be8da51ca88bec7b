// SPDX-License-Identifier: Apache-2.0
/* Parameters: where they rest and where they are whole, and the transfers
 * between. Decides no order: see src/schedule.c. */
#include "src/engine.h"

#include <assert.h>

/* Element of a unit where this rank's shard of a part begins; at stage 0, the part. */
static int64_t own(const struct zero *z, int unit, enum part_kind kind)
{
    const struct part *part = &z->layout.unit[unit].part[kind];
    return part->offset + (z->plan.whole_state ? 0 : z->rank * part->shard);
}

char *params_at_rest(const struct zero *z, int unit, int64_t position)
{
    const struct plan *p = &z->plan;
    enum part_kind kind = position < p->frozen_begin ? PART_LIVE : PART_FROZEN;
    assert(p->set.param != ZERO_NVME);
    if (p->set.param == ZERO_HOST)
        return z->arena.base + p->host.params + plan_param_index(p, position) * p->element;
    int64_t index = plan_param_index(p, position);
    if (p->whole_params) /* within the whole unit */
        index = z->layout.unit[unit].begin + own(z, unit, kind) + position -
                plan_part_begin(p, &z->layout, unit, kind);
    return z->device_memory + p->device.params + index * p->element;
}

char *params_usable(const struct zero *z, int unit)
{
    const struct plan *p = &z->plan;
    if (p->whole_params)
        return z->device_memory + p->device.params + z->layout.unit[unit].begin * p->element;
    int slot = z->schedule.units[unit].slot;
    return slot < 0 ? NULL : z->device_memory + p->device.gather[slot];
}

void params_gather(struct zero *z, const struct command *c, struct zero_collective *o)
{
    const struct plan *p = &z->plan;
    enum part_kind kind = (enum part_kind)c->part;
    int64_t whole = p->device.params + z->layout.unit[c->unit].begin * p->element;
    o->data = z->device_memory + (c->slot < 0 ? whole : p->device.gather[c->slot]) +
              z->layout.unit[c->unit].part[kind].offset * p->element;
    if (c->slot >= 0 && p->set.param == ZERO_DEVICE)
        o->own = params_at_rest(z, c->unit, plan_part_begin(p, &z->layout, c->unit, kind));
}

int params_read(struct zero *z, const struct command *c, struct transfer *t, struct error *error)
{
    int n;
    const struct segment *s = schedule_segments(&z->schedule, c->unit, &n) + c->part;
    assert(c->part < n && !s->in_ram);
    char *to = z->arena.base + z->plan.host.staging[c->slot] + s->staging;
    struct ring_request read = {
        .urgent = true, .buffer = to, .bytes = s->bytes, .offset = s->file_offset};
    return pipeline_transfer(&z->pipeline, t, &read, error);
}

/* From where parameters rest in host memory: a copy a part. */
static int copy_parts(struct zero *z, int unit, struct device_copy *copies, char *slot)
{
    const struct plan *p = &z->plan;
    for (enum part_kind kind = PART_LIVE; kind < PARTS; kind++) {
        int64_t begin = plan_part_begin(p, &z->layout, unit, kind);
        copy_append(z, DEVICE_TO_DEVICE_MEMORY, &copies[kind],
                    slot + own(z, unit, kind) * p->element, params_at_rest(z, unit, begin),
                    plan_part_count(p, &z->layout, unit, kind) * p->element);
    }
    return PARTS;
}

int params_copy(struct zero *z, const struct command *c, struct device_copy *copies)
{
    const struct plan *p = &z->plan;
    char *slot = z->device_memory + p->device.gather[c->slot];
    if (p->set.param == ZERO_HOST)
        return copy_parts(z, c->unit, copies, slot);
    int n;
    const struct segment *s = schedule_segments(&z->schedule, c->unit, &n);
    for (int i = 0; i < n; i++) {
        enum part_kind kind = plan_chunk_frozen(p, s[i].chunk) ? PART_FROZEN : PART_LIVE;
        int64_t shard = z->layout.unit[c->unit].part[kind].shard;
        int64_t inside = s[i].begin - s[i].chunk * p->chunk;
        char *from = s[i].in_ram
                         ? update_record(z, s[i].chunk, -1) + inside * p->element
                         : z->arena.base + p->host.staging[c->slot] + s[i].staging + s[i].skip;
        copy_append(z, DEVICE_TO_DEVICE_MEMORY, &copies[i],
                    slot + (s[i].to + z->rank * shard) * p->element, from, s[i].count * p->element);
    }
    return n;
}

int params_copy_chunk(struct zero *z, const struct command *c, struct device_copy *copies)
{
    const struct plan *p = &z->plan;
    char *slot = slot_params(z, c->slot);
    bool fetch = c->kind == COMMAND_COPY_FETCH;
    if (p->compute == ZERO_HOST)
        return copy_by_unit(z, c, copies, fetch ? DEVICE_TO_HOST_MEMORY : DEVICE_TO_DEVICE_MEMORY,
                            slot, params_at_rest, p->element);
    char *host = p->slot_via_host ? z->arena.base + p->host.chunk_param[c->slot]
                                  : z->arena.base + p->host.params +
                                        plan_param_index(p, c->chunk * p->chunk) * p->element;
    copy_append(z, fetch ? DEVICE_TO_DEVICE_MEMORY : DEVICE_TO_HOST_MEMORY, copies, slot, host,
                c->bytes);
    return 1;
}
