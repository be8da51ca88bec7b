// SPDX-License-Identifier: Apache-2.0
/* Models and configurations, given or drawn. Knows nothing of what is done with
 * them. */
#include "tests/support/dry_model.h"

#include <stdio.h>

void add_tensor(struct model *m, int unit, int64_t elements, bool frozen)
{
    int i = m->tensors++;
    snprintf(m->names[i], sizeof(m->names[i]), "t%d", i);
    m->params[i] = (struct zero_param){.name = m->names[i],
                                       .unit = unit,
                                       .ndim = 1,
                                       .shape = {elements},
                                       .flags = frozen ? ZERO_FROZEN : 0};
    m->units = unit + 1 > m->units ? unit + 1 : m->units;
}

void equal_units(struct model *m, int units, int64_t elements)
{
    *m = (struct model){0};
    for (int u = 0; u < units; u++)
        add_tensor(m, u, elements, false);
}

int below(uint64_t *random, int n)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (int)((*random >> 33) % (uint64_t)n);
}

/* Tensors of one kind; now and then one of them has no elements. Units of a size share
 * their slots. */
static void add_part(struct model *m, int unit, int elements, bool frozen, uint64_t *random)
{
    bool same = m->tensors > 0 && below(random, 3) == 0;
    add_tensor(m, unit, same ? m->params[0].shape[0] : 1 + below(random, elements), frozen);
    if (!same && below(random, 2))
        add_tensor(m, unit, below(random, 6) ? 1 + below(random, 200) : 0, frozen);
}

void random_model(struct model *m, uint64_t *random)
{
    int units = 1 + below(random, UNITS_MAX);
    bool full = below(random, 2);
    *m = (struct model){0};
    for (int u = 0; u < units; u++) {
        int what = full ? 0 : below(random, 8);
        if (what == 7 && m->tensors > 0) {
            add_tensor(m, u, 0, below(random, 2));
            continue;
        }
        if (what < 5)
            add_part(m, u, 2500, false, random);
        if (what > 2)
            add_part(m, u, 1200, true, random);
    }
}

static void random_formats(struct zero_config *c, uint64_t *random)
{
    c->dtype = (enum zero_dtype)below(random, 3);
    if (c->dtype == ZERO_BF16 && below(random, 2))
        c->state = ZERO_STATE_SPLIT;
    if (below(random, 3) == 0)
        c->grad_dtype = ZERO_BF16;
    if (c->stage < 2 && c->offload_grad == ZERO_DEVICE && below(random, 2))
        c->accumulate_in = ZERO_LOCAL;
    c->accumulate = 1 + below(random, 3);
}

struct zero_config random_config(uint64_t *random)
{
    const int64_t chunks[] = {64, 128, 320, 1088, 1 << 20}, shares[] = {0, 4000, 20000, 1 << 30};
    struct zero_config c = {.size = sizeof(c), .stage = below(random, 4), .threads = 1};
    c.device = below(random, 2) ? ZERO_CUDA : ZERO_CPU;
    c.offload_optimizer = (enum zero_place)(ZERO_DEVICE + below(random, 3));
    c.offload_param = (enum zero_place)(ZERO_DEVICE + (c.stage == 3 ? below(random, 3) : 0));
    c.offload_grad = (enum zero_place)(ZERO_DEVICE + below(random, 2));
    random_formats(&c, random);
    c.host_bytes = c.offload_optimizer == ZERO_NVME ? shares[below(random, 4)] : 0;
    c.chunk = chunks[1 + below(random, 4)];
    if (below(random, 8) == 0)
        c.chunk = chunks[0];
    c.chunk_slots = 2 + below(random, 8);
    c.gather_slots = 1 + below(random, 6);
    c.grad_slots = 1 + below(random, 4);
    return c;
}
