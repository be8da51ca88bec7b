// SPDX-License-Identifier: Apache-2.0
#include "examples/zero/bench_model.h"

#include <stdio.h>

#include "examples/common/clock.h"
#include "examples/common/ranks.h"
#include "examples/zero/tool.h"

int model_fail(struct model *m)
{
    return tool_fail("%s", m->z ? zero_last_error(m->z) : "Out of memory for an engine.");
}

void model_describe(struct model *m, int units, int64_t elements)
{
    *m = (struct model){.units = units, .unit = (elements + units - 1) / units};
    for (int u = 0; u < units; u++) {
        snprintf(m->names[u], sizeof(m->names[u]), "unit.%d", u);
        m->normal[u] = (struct zero_normal){.seed = 1, .stream = (uint64_t)u, .std = 0.02f};
        m->params[u] = (struct zero_param){.name = m->names[u],
                                           .unit = u,
                                           .ndim = 1,
                                           .shape = {m->unit},
                                           .fill = zero_fill_normal,
                                           .fill_arg = &m->normal[u]};
    }
}

int model_create(struct model *m, const struct zero_config *config)
{
    const struct zero_adam adam = {
        .lr = 1e-3, .beta1 = .9, .beta2 = .95, .eps = 1e-8, .weight_decay = .1};
    if (zero_create(&m->z, m->params, m->units, config) || zero_set_adam(m->z, 0, &adam))
        return model_fail(m);
    return 0;
}

int model_micro_step(struct model *m)
{
    for (int u = 0; u < m->units; u++)
        if (zero_acquire(m->z, u) || zero_release(m->z, u))
            return model_fail(m);
    for (int u = m->units - 1; u >= 0; u--) {
        uint16_t *grad = zero_acquire(m->z, u) ? NULL : zero_grad_data(m->z, u);
        if (!grad)
            return model_fail(m);
        for (int64_t i = 0; i < m->unit; i++)
            grad[i] = (uint16_t)(0x3C00 + (i * 37 + u) % 128);
        if (zero_release(m->z, u) || zero_reduce(m->z, u))
            return model_fail(m);
    }
    return 0;
}

int model_digest(const struct zero_config *config, struct zero_digest *digest)
{
    struct model m;
    model_describe(&m, MODEL_UNITS, MODEL_CHECKED);
    int status = model_create(&m, config);
    for (int step = 0; step < 3 && !status; step++) {
        status = model_micro_step(&m);
        if (!status && zero_step(m.z, NULL))
            status = model_fail(&m);
    }
    if (!status && zero_digest(m.z, digest))
        status = model_fail(&m);
    zero_destroy(m.z);
    return status;
}

int model_sum(struct model *m, double mine, double *all)
{
    return ranks_sum(m->z, mine, all) ? model_fail(m) : 0;
}

int model_any(struct model *m, bool mine, bool *one)
{
    double count;
    int status = model_sum(m, mine, &count);
    *one = count > 0;
    return status;
}

int model_done(struct model *m)
{
    double ranks;
    return zero_wait(m->z) ? model_fail(m) : model_sum(m, 1, &ranks);
}

int model_ready(struct model *m)
{
    return model_micro_step(m) || model_done(m);
}

int model_step(struct model *m, double *seconds)
{
    double start = clock_now();
    if (zero_step(m->z, NULL))
        return model_fail(m);
    if (model_done(m))
        return 1;
    *seconds = clock_now() - start;
    return 0;
}
