// SPDX-License-Identifier: Apache-2.0
/* Parameters: where they rest and where they are whole, and the transfers
 * between. Decides no order: see src/schedule.c. */
#include "src/engine.h"

#include <assert.h>

static int64_t own_offset(const struct zero *z, int unit)
{
    return z->rank * z->layout.unit[unit].shard * z->plan.element;
}

char *params_at_rest(const struct zero *z, int unit, int64_t position)
{
    const struct plan *p = &z->plan;
    assert(p->set.param != ZERO_NVME);
    if (p->set.param == ZERO_HOST)
        return z->arena.base + p->host.params + position * p->element;
    if (p->whole_params && !p->whole_state) { /* the shard within the whole */
        int64_t inside = position - plan_unit_begin(p, &z->layout, unit);
        return z->device_memory + p->device.params +
               (z->layout.unit[unit].begin + inside) * p->element + own_offset(z, unit);
    }
    return z->device_memory + p->device.params + position * p->element;
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
    int64_t whole = z->layout.unit[c->unit].begin * p->element;
    o->data =
        z->device_memory + (c->slot < 0 ? p->device.params + whole : p->device.gather[c->slot]);
    if (c->slot >= 0 && p->set.param == ZERO_DEVICE)
        o->own = params_at_rest(z, c->unit, plan_unit_begin(p, &z->layout, c->unit));
}

/* The segments of the unit that comes into a gather slot. */
static struct segment *slot_segments(struct zero *z, int slot, int unit, int *n)
{
    struct segment *s = &z->segments[slot * z->segments_max];
    if (z->segments_unit[slot] != unit) {
        z->segments_count[slot] = plan_segments(&z->plan, &z->layout, unit, s);
        z->segments_unit[slot] = unit;
    }
    *n = z->segments_count[slot];
    return s;
}

int params_fetch(struct zero *z, struct command *c, struct error *error)
{
    int n;
    const struct segment *s = slot_segments(z, c->slot, c->unit, &n) + c->part;
    assert(c->part < n && !s->in_ram);
    struct transfer *t = &z->fetches[c->slot * z->segments_max + c->part];
    return pipeline_transfer(&z->pipeline, t, false,
                             z->arena.base + z->plan.host.staging[c->slot] + s->staging, s->bytes,
                             s->file_offset, error);
}

static void copy(struct zero *z, enum device_stream stream, struct device_copy *c, void *to,
                 const void *from, int64_t bytes)
{
    *c = (struct device_copy){.to = to, .from = from, .bytes = bytes};
    count(stream == DEVICE_TO_DEVICE_MEMORY ? &z->to_device_bytes : &z->to_host_bytes, bytes);
    z->device->ops->copy(z->device, stream, c);
}

void params_copy(struct zero *z, const struct command *c)
{
    const struct plan *p = &z->plan;
    struct device_copy *copies = &z->param_copies[c->slot * z->segments_max];
    char *to = z->device_memory + p->device.gather[c->slot] + own_offset(z, c->unit);
    int64_t begin = plan_unit_begin(p, &z->layout, c->unit);
    if (p->set.param == ZERO_HOST) {
        copy(z, DEVICE_TO_DEVICE_MEMORY, copies, to, params_at_rest(z, c->unit, begin), c->bytes);
        return;
    }
    int n;
    const struct segment *s = slot_segments(z, c->slot, c->unit, &n);
    for (int i = 0; i < n; i++) {
        int64_t inside = s[i].begin - s[i].chunk * p->chunk;
        const char *from =
            s[i].in_ram ? update_record(z, s[i].chunk, -1) + inside * p->element
                        : z->arena.base + p->host.staging[c->slot] + s[i].staging + s[i].skip;
        copy(z, DEVICE_TO_DEVICE_MEMORY, &copies[i], to + (s[i].begin - begin) * p->element, from,
             s[i].count * p->element);
    }
}

/* New parameters of a chunk, in its slot in host memory, to the units' own
 * shards on the device. */
static void publish_to_device(struct zero *z, const struct command *c)
{
    const struct plan *p = &z->plan;
    struct device_copy *copies = &z->publish_copies[c->slot * z->layout.units];
    const char *from = slot_params(z, c->slot);
    int64_t begin = c->chunk * p->chunk, end = begin + plan_chunk_count(p, c->chunk);
    for (int u = 0; u < z->layout.units; u++) {
        int64_t a = plan_unit_begin(p, &z->layout, u);
        int64_t b = a + plan_unit_count(p, &z->layout, u);
        a = a > begin ? a : begin;
        b = b < end ? b : end;
        if (a < b)
            copy(z, DEVICE_TO_DEVICE_MEMORY, &copies[u], params_at_rest(z, u, a),
                 from + (a - begin) * p->element, (b - a) * p->element);
        else
            copies[u].done = true;
    }
}

void params_publish(struct zero *z, const struct command *c)
{
    const struct plan *p = &z->plan;
    if (p->compute == ZERO_HOST) {
        publish_to_device(z, c);
        return;
    }
    char *to = p->slot_bounce ? z->arena.base + p->host.chunk_param[c->slot]
                              : params_at_rest(z, 0, c->chunk * p->chunk);
    copy(z, DEVICE_TO_HOST_MEMORY, &z->publish_copies[c->slot * z->layout.units], to,
         slot_params(z, c->slot), c->bytes);
}
