// SPDX-License-Identifier: Apache-2.0
/* Stage, places and sizes become offsets. Allocates nothing. */
#include "src/plan.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "offload/spill.h"

#define PIECE_BYTES_MAX   ((int64_t)1 << 20)
#define SCRATCH_BYTES_MAX ((int64_t)64 << 20)

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t align_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

int64_t plan_chunk_count(const struct plan *p, int64_t c)
{
    assert(c >= 0 && c < p->chunks);
    return min64(p->chunk, p->state - c * p->chunk);
}

bool plan_chunk_slotted(const struct plan *p, int64_t c)
{
    return p->slot_grad || p->slot_param || c >= p->resident;
}

int64_t plan_array_bytes(const struct plan *p, int64_t c)
{
    return align_up(plan_chunk_count(p, c) * 4, SPILL_ALIGN);
}

int64_t plan_record_bytes(const struct plan *p, int64_t c)
{
    return 3 * plan_array_bytes(p, c);
}

int64_t plan_record_offset(const struct plan *p, int64_t c)
{
    assert(c >= p->resident);
    return (c - p->resident) * 3 * align_up(p->chunk * 4, SPILL_ALIGN);
}

int64_t plan_param_offset(const struct plan *p, int64_t c)
{
    return p->file.params + c * align_up(p->chunk * p->element, SPILL_ALIGN);
}

int64_t plan_param_bytes(const struct plan *p, int64_t c)
{
    return align_up(plan_chunk_count(p, c) * p->element, SPILL_ALIGN);
}

int64_t plan_unit_begin(const struct plan *p, const struct layout *l, int u)
{
    return p->whole_state ? l->unit[u].begin : l->unit[u].begin / l->ranks;
}

int64_t plan_unit_count(const struct plan *p, const struct layout *l, int u)
{
    return p->whole_state ? l->unit[u].elements : l->unit[u].shard;
}

int plan_segments(const struct plan *p, const struct layout *l, int u, struct segment *segments)
{
    int64_t begin = plan_unit_begin(p, l, u), end = begin + plan_unit_count(p, l, u);
    int64_t staging = 0;
    int n = 0;
    for (int64_t c = begin / p->chunk; c * p->chunk < end; c++, n++) {
        if (!segments)
            continue;
        int64_t from = begin > c * p->chunk ? begin : c * p->chunk;
        int64_t to = min64(end, c * p->chunk + plan_chunk_count(p, c));
        struct segment *s = &segments[n];
        *s = (struct segment){
            .chunk = c, .begin = from, .count = to - from, .in_ram = p->shared && c < p->resident};
        if (s->in_ram)
            continue;
        int64_t array = p->shared ? plan_record_offset(p, c) : plan_param_offset(p, c);
        int64_t first = (from - c * p->chunk) * p->element;
        int64_t last = (to - c * p->chunk) * p->element;
        int64_t low = first / SPILL_ALIGN * SPILL_ALIGN;
        s->file_offset = array + low;
        s->bytes = align_up(last, SPILL_ALIGN) - low;
        s->skip = first - low;
        s->staging = staging;
        staging += s->bytes;
    }
    return n;
}

int plan_segments_max(const struct plan *p, const struct layout *l)
{
    int most = 0;
    for (int u = 0; u < l->units; u++) {
        int n = plan_segments(p, l, u, NULL);
        most = n > most ? n : most;
    }
    return most;
}

/* Bytes that unit u's parameters take in a staging slot: what is read from the file. */
static int64_t fetch_bytes(const struct plan *p, const struct layout *l, int u,
                           struct segment *segments)
{
    int n = plan_segments(p, l, u, segments);
    int64_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += segments[i].bytes;
    return bytes;
}

static void decide(struct plan *p, const struct layout *l)
{
    const struct settings *s = &p->set;
    p->ranks = l->ranks;
    p->element = dtype_bytes(s->dtype);
    p->compute = s->state == ZERO_DEVICE ? ZERO_DEVICE : ZERO_HOST;
    p->whole_params = s->stage < 3;
    p->whole_state = s->stage == 0;
    p->gathers = s->stage > 0;
    p->shared = s->dtype == ZERO_FP32 && s->param == s->state;
    p->arrays = p->shared && s->param != ZERO_NVME ? 2 : 3;
    p->state = p->whole_state ? l->whole : l->whole / l->ranks;
    p->chunk = min64(s->chunk, p->state);
    p->chunks = (p->state + p->chunk - 1) / p->chunk;
    p->resident = p->chunks;
    if (s->state == ZERO_NVME) {
        int64_t whole = s->host_bytes / (12 * p->chunk);
        p->resident = s->host_bytes >= 12 * p->state ? p->chunks : min64(whole, p->chunks);
    }
    p->slot_grad = s->grad != p->compute;
    p->slot_param = !p->shared && s->param != p->compute;
    p->slot_bounce = p->compute == ZERO_DEVICE && s->param == ZERO_NVME;
    p->chunk_slots = (int)min64(s->chunk_slots, p->chunks);
    if (!plan_chunk_slotted(p, p->chunks - 1))
        p->chunk_slots = 0;
    p->gather_slots = p->whole_params ? 0 : (int)min64(s->gather_slots, l->units);
    p->grad_slots = (int)min64(s->grad_slots, l->units);
}

/* The k largest units' elements, descending: slot i takes any unit but the i larger ones. */
static void size_slots(const struct layout *l, int k, int64_t *elements)
{
    for (int i = 0; i < k; i++)
        elements[i] = 0;
    for (int u = 0; u < l->units; u++) {
        int64_t n = l->unit[u].elements;
        for (int i = 0; i < k; i++)
            if (n > elements[i]) {
                int64_t smaller = elements[i];
                elements[i] = n;
                n = smaller;
            }
    }
}

static int64_t take(int64_t *total, int64_t bytes)
{
    int64_t offset = *total;
    *total += align_up(bytes, SPILL_ALIGN);
    return offset;
}

static void place_device(struct plan *p, const struct layout *l)
{
    const struct settings *s = &p->set;
    int64_t *total = &p->device.total, mark;
    struct zero_bytes *r = &p->report.device;
    if (s->param == ZERO_DEVICE)
        p->device.params = take(total, (p->whole_params ? l->whole : p->state) * p->element);
    r->params = *total, mark = *total;
    if (s->grad == ZERO_DEVICE)
        p->device.grads = take(total, p->state * 4);
    r->grads = *total - mark, mark = *total;
    if (s->state == ZERO_DEVICE)
        p->device.state = take(total, p->state * 4 * p->arrays);
    r->state = *total - mark, mark = *total;

    size_slots(l, p->gather_slots, p->gather_elements);
    size_slots(l, p->grad_slots, p->grad_elements);
    for (int i = 0; i < p->gather_slots; i++)
        p->device.gather[i] = take(total, p->gather_elements[i] * p->element);
    for (int i = 0; i < p->grad_slots; i++) {
        p->device.grad[i] = take(total, p->grad_elements[i] * p->element);
        if (s->grad == ZERO_HOST)
            p->device.sum[i] =
                take(total, p->grad_elements[i] * 4 / (p->whole_state ? 1 : l->ranks));
    }
    for (int i = 0; p->compute == ZERO_DEVICE && i < p->chunk_slots; i++) {
        if (p->slot_grad)
            p->device.chunk_grad[i] = take(total, p->chunk * 4);
        if (p->slot_param)
            p->device.chunk_param[i] = take(total, p->chunk * p->element);
    }
    int64_t others = l->ranks - 1, shard = p->grad_elements[0] * p->element / l->ranks;
    int64_t room = others ? SCRATCH_BYTES_MAX / (2 * others) / 256 * 256 : PIECE_BYTES_MAX;
    p->piece_bytes = min64(min64(PIECE_BYTES_MAX, room > 256 ? room : 256), align_up(shard, 256));
    p->device.scratch = take(total, 2 * others * p->piece_bytes);
    r->slots = *total - mark;
    r->total = *total;
}

static int place_host(struct plan *p, const struct layout *l, struct error *error)
{
    const struct settings *s = &p->set;
    int64_t *total = &p->host.total, mark;
    struct zero_bytes *r = &p->report.host;
    if (s->param == ZERO_HOST)
        p->host.params = take(total, p->state * p->element);
    r->params = *total, mark = *total;
    if (s->grad == ZERO_HOST)
        p->host.grads = take(total, p->state * 4);
    r->grads = *total - mark, mark = *total;
    if (s->state != ZERO_DEVICE)
        p->host.state = take(total, min64(p->resident * p->chunk, p->state) * 4 * p->arrays);
    r->state = *total - mark, mark = *total;

    bool host = p->compute == ZERO_HOST;
    for (int i = 0; i < p->chunk_slots; i++) {
        if (p->resident < p->chunks)
            p->host.record[i] = take(total, 3 * align_up(p->chunk * 4, SPILL_ALIGN));
        if (host && p->slot_grad)
            p->host.chunk_grad[i] = take(total, p->chunk * 4);
        if ((host && p->slot_param) || p->slot_bounce)
            p->host.chunk_param[i] = take(total, p->chunk * p->element);
    }
    struct segment *segments = NULL;
    if (s->param == ZERO_NVME && p->gather_slots) {
        segments = malloc((size_t)plan_segments_max(p, l) * sizeof(*segments));
        if (!segments)
            return error_set(error, ZERO_ERR_MEMORY, "No memory to plan %lld chunks.",
                             (long long)p->chunks);
    }
    for (int i = 0; segments && i < p->gather_slots; i++) {
        int64_t bytes = 0;
        for (int u = 0; u < l->units; u++) {
            int64_t n = fetch_bytes(p, l, u, segments);
            if (l->unit[u].elements <= p->gather_elements[i] && n > bytes)
                bytes = n;
            if (i == 0)
                p->report.param_read_bytes += n;
        }
        p->host.staging[i] = take(total, bytes);
    }
    free(segments);
    r->slots = *total - mark;
    r->total = *total;
    return ZERO_OK;
}

static void place_file(struct plan *p)
{
    const struct settings *s = &p->set;
    struct zero_plan *r = &p->report;
    for (int64_t c = p->resident; c < p->chunks; c++)
        r->nvme.state += plan_record_bytes(p, c);
    p->file.params = r->nvme.state;
    if (s->param == ZERO_NVME && !p->shared)
        for (int64_t c = 0; c < p->chunks; c++)
            r->nvme.params += plan_param_bytes(p, c);
    r->nvme.total = p->file.total = r->nvme.state + r->nvme.params;
    r->read_bytes = r->nvme.state;
    r->written_bytes = r->nvme.state + r->nvme.params;
}

int plan_make(struct plan *p, const struct layout *l, const struct settings *set,
              struct error *error)
{
    *p = (struct plan){.set = *set};
    decide(p, l);
    p->report = (struct zero_plan){.params = l->params,
                                   .elements = l->whole,
                                   .units = l->units,
                                   .chunks = (int)p->chunks,
                                   .chunks_in_ram = (int)p->resident};
    if (p->chunks > 1 << 30)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         ".chunk is %lld elements, which cuts this model into %lld chunks. Use a "
                         "larger .chunk.",
                         (long long)p->chunk, (long long)p->chunks);
    place_file(p);
    place_device(p, l);
    if (place_host(p, l, error))
        return error->status;
    int64_t others = l->whole / l->ranks * (l->ranks - 1);
    p->report.gather_bytes = p->gathers ? others * p->element : 0;
    p->report.reduce_bytes = others * (p->element + (p->whole_state ? 4 : 0));
    return ZERO_OK;
}

int zero_plan_make(const struct zero_param *params, int count, const struct zero_config *config,
                   int ranks, int local_ranks, struct zero_plan *plan, char *text, size_t text_size)
{
    struct error error = {0};
    struct settings set;
    struct layout layout = {0};
    struct plan p;
    if (!plan)
        error_set(&error, ZERO_ERR_ARGUMENT, "zero_plan_make has no struct zero_plan to fill.");
    if (ranks < 1 || local_ranks < 1 || local_ranks > ranks)
        error_set(&error, ZERO_ERR_ARGUMENT,
                  "A plan for %d ranks, %d of them on this node, was asked for. Use at least one "
                  "rank, and at most all of them on one node.",
                  ranks, local_ranks);
    if (!error.status && !settings_resolve(&set, config, &error) &&
        !layout_create(&layout, params, count, ranks, &error) &&
        !plan_make(&p, &layout, &set, &error)) {
        *plan = p.report;
        plan->node_device = plan->device.total * local_ranks;
        plan->node_host = plan->host.total * local_ranks;
        plan->node_nvme = plan->nvme.total * local_ranks;
    }
    layout_destroy(&layout);
    if (text && text_size)
        snprintf(text, text_size, "%s", error.text);
    return error.status;
}
