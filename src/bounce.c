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

void bounce_start(struct zero *z, const struct command *c, bool out)
{
    const struct plan *p = &z->plan;
    struct device_copy *copies = z->bounce_copies;
    int *n = &z->update.bounces;
    enum device_stream stream = out ? DEVICE_TO_DEVICE_MEMORY : DEVICE_TO_HOST_MEMORY;
    assert(p->compute == ZERO_DEVICE);
    *n = 0;
    if (!out && c->part == WALK_FILL) {
        memset(bounce_record(z), 0, (size_t)(p->chunk * (p->master + 8)));
        memset(bounce_params(z), 0, (size_t)(p->chunk * p->element));
        return;
    }
    if (!plan_chunk_frozen(p, c->chunk))
        copy_append(z, stream, &copies[(*n)++], update_record(z, c->chunk, c->slot),
                    bounce_record(z), plan_record(p, c->chunk).bytes);
    if (p->slot_param && plan_chunk_apart(p, c->chunk))
        copy_append(z, stream, &copies[(*n)++], slot_params(z, c->slot), bounce_params(z),
                    plan_chunk_count(p, c->chunk) * p->element);
    else
        *n += copy_by_unit(z, c, copies + *n, stream, bounce_params(z), params_at_rest, p->element);
}

bool bounce_copied(const struct zero *z)
{
    return copies_done(z, z->bounce_copies, z->update.bounces);
}
