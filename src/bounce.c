// SPDX-License-Identifier: Apache-2.0
/*
 * Walks of the host over state that rests in memory it cannot read: a chunk's
 * record and parameters come to host memory, and go back when they have changed.
 * Adam is not one of them: the device makes its own steps.
 */
#include "src/engine.h"

#include <assert.h>
#include <string.h>

char *bounce_record(const struct zero *z)
{
    return z->arena.base + z->plan.host.bounce_record;
}

char *bounce_params(const struct zero *z)
{
    return z->arena.base + z->plan.host.bounce_param;
}

static void copy(struct zero *z, bool out, struct device_copy *copy, char *device, char *host,
                 int64_t bytes)
{
    *copy = (struct device_copy){
        .to = out ? device : host, .from = out ? host : device, .bytes = bytes};
    count(out ? &z->to_device_bytes : &z->to_host_bytes, bytes);
    z->device->ops->copy(z->device, out ? DEVICE_TO_DEVICE_MEMORY : DEVICE_TO_HOST_MEMORY, copy);
}

static void copy_chunk(struct zero *z, const struct command *c, bool out)
{
    const struct plan *p = &z->plan;
    struct device_copy *units = z->bounce_copies, *record = &units[z->layout.units];
    record->done = true;
    if (!plan_chunk_frozen(p, c->chunk))
        copy(z, out, record, update_record(z, c->chunk, c->slot), bounce_record(z),
             plan_record(p, c->chunk).bytes);
    if (!p->slot_param || !plan_chunk_apart(p, c->chunk)) {
        copy_by_unit(z, c, units, out ? DEVICE_TO_DEVICE_MEMORY : DEVICE_TO_HOST_MEMORY,
                     bounce_params(z), params_at_rest, p->element);
        return;
    }
    for (int u = 1; u < z->layout.units; u++)
        units[u].done = true;
    copy(z, out, units, slot_params(z, c->slot), bounce_params(z),
         plan_chunk_count(p, c->chunk) * p->element);
}

void bounce_in(struct zero *z, const struct command *c)
{
    const struct plan *p = &z->plan;
    assert(p->compute == ZERO_DEVICE);
    if (c->part != WALK_FILL) {
        copy_chunk(z, c, false);
        return;
    }
    for (int u = 0; u <= z->layout.units; u++)
        z->bounce_copies[u].done = true;
    memset(bounce_record(z), 0, (size_t)(p->chunk * (p->master + 8)));
    memset(bounce_params(z), 0, (size_t)(p->chunk * p->element));
}

void bounce_out(struct zero *z, const struct command *c)
{
    copy_chunk(z, c, true);
}

bool bounce_copied(struct zero *z)
{
    for (int u = 0; u <= z->layout.units; u++)
        if (!z->device->ops->copied(z->device, &z->bounce_copies[u]))
            return false;
    return true;
}
