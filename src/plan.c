// SPDX-License-Identifier: Apache-2.0
/* Stage, places and sizes become offsets. Allocates nothing. */
#include "src/plan.h"

#include <assert.h>
#include <stdlib.h>

#include "offload/verify.h"
#include "src/device/device.h"

/* Of an ordered reduction: on the host a piece stays in a cache, on a GPU it takes longer than its
 * launches do, and than its copy from the host. */
#define PIECE_BYTES_MAX   ((int64_t)256 << 10)
#define PIECE_BYTES_COPY  ((int64_t)1 << 20)
#define PIECE_BYTES_GPU   ((int64_t)32 << 20)
#define SCRATCH_BYTES_MAX ((int64_t)64 << 20)
#define WINDOW            4 /* one chunk is read, one updated, one written, and one changes hands */

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t plan_chunk_count(const struct plan *p, int64_t c)
{
    assert(c >= 0 && c < p->chunks);
    int64_t end = plan_chunk_frozen(p, c) ? p->frozen_begin + p->frozen : p->state;
    return min64(p->chunk, end - c * p->chunk);
}

bool plan_chunk_frozen(const struct plan *p, int64_t c)
{
    return c >= p->live;
}

int64_t plan_chunks_near(const struct plan *p, int64_t c)
{
    assert(c >= 0 && c <= p->chunks);
    return c < p->live ? (c * p->resident + p->live - 1) / p->live : p->resident;
}

bool plan_chunk_near(const struct plan *p, int64_t c)
{
    return plan_chunks_near(p, c + 1) > plan_chunks_near(p, c);
}

bool plan_chunk_in_file(const struct plan *p, int64_t c)
{
    return c < p->live && !plan_chunk_near(p, c);
}

bool plan_chunk_apart(const struct plan *p, int64_t c)
{
    return plan_chunk_frozen(p, c) || !p->shared;
}

static bool param_slotted(const struct plan *p, int64_t c)
{
    return p->slot_param && plan_chunk_apart(p, c);
}

bool plan_chunk_slotted(const struct plan *p, int64_t c)
{
    bool grad = p->slot_grad && !plan_chunk_frozen(p, c);
    return grad || param_slotted(p, c) || plan_chunk_in_file(p, c);
}

bool plan_chunk_fetched(const struct plan *p, int64_t c)
{
    return param_slotted(p, c) && (p->set.split || plan_chunk_frozen(p, c));
}

/* Of n elements, with arrays padded to a multiple of to. */
static struct record record_of(const struct plan *p, int64_t n, int64_t to)
{
    int64_t m = align_up(n * p->master, to), v = m + align_up(n * 4, to);
    return (struct record){.m = m, .v = v, .bytes = v + align_up(n * 4, to)};
}

static int64_t record_bytes_max(const struct plan *p)
{
    return record_of(p, p->chunk, SPILL_ALIGN).bytes;
}

struct record plan_record(const struct plan *p, int64_t c)
{
    return record_of(p, plan_chunk_count(p, c), plan_chunk_in_file(p, c) ? SPILL_ALIGN : 1);
}

int64_t plan_record_offset(const struct plan *p, int64_t c)
{
    assert(!plan_chunk_frozen(p, c));
    int64_t before = plan_chunks_near(p, c); /* only the last chunk may be shorter */
    return plan_chunk_near(p, c) ? before * p->chunk * (p->master + 8)
                                 : (c - before) * record_bytes_max(p);
}

int64_t plan_param_offset(const struct plan *p, int64_t c)
{
    assert(plan_chunk_apart(p, c));
    int64_t stride = align_up(p->chunk * p->element, SPILL_ALIGN);
    if (!plan_chunk_frozen(p, c))
        return p->file.params + c * stride;
    bool before = !p->shared && p->live > 0; /* the last live chunk may be shorter */
    int64_t live = before ? (p->live - 1) * stride + plan_param_bytes(p, p->live - 1) : 0;
    return p->file.params + live + (c - p->live) * stride;
}

int64_t plan_param_bytes(const struct plan *p, int64_t c)
{
    return align_up(plan_chunk_count(p, c) * p->element, SPILL_ALIGN);
}

int64_t plan_part_begin(const struct plan *p, const struct layout *l, int u, enum part_kind kind)
{
    int64_t begin = l->unit[u].part[kind].begin;
    return (kind == PART_FROZEN ? p->frozen_begin : 0) +
           (p->whole_state ? begin : begin / l->ranks);
}

int64_t plan_part_count(const struct plan *p, const struct layout *l, int u, enum part_kind kind)
{
    const struct part *part = &l->unit[u].part[kind];
    return p->whole_state ? part->elements : part->shard;
}

int64_t plan_param_index(const struct plan *p, int64_t position)
{
    return position < p->frozen_begin ? position : position - p->frozen_begin + p->state;
}

/* Segment n of those of a unit: the part's elements from 'from' on that lie in its chunk. */
static struct segment segment_at(const struct plan *p, int64_t from, int64_t end)
{
    int64_t c = from / p->chunk;
    int64_t to = min64(end, c * p->chunk + plan_chunk_count(p, c));
    bool apart = plan_chunk_apart(p, c);
    struct segment s = {
        .chunk = c, .begin = from, .count = to - from, .in_ram = !apart && plan_chunk_near(p, c)};
    if (s.in_ram)
        return s;
    int64_t array = apart ? plan_param_offset(p, c) : plan_record_offset(p, c);
    int64_t first = (from - c * p->chunk) * p->element;
    int64_t last = (to - c * p->chunk) * p->element;
    int64_t low = first / SPILL_ALIGN * SPILL_ALIGN;
    s.file_offset = array + low;
    s.bytes = align_up(last, SPILL_ALIGN) - low;
    s.skip = first - low;
    return s;
}

int plan_segments(const struct plan *p, const struct layout *l, int u, struct segment *segments,
                  int64_t *staging)
{
    int64_t bytes = 0;
    int n = 0;
    for (enum part_kind kind = PART_LIVE; kind < PARTS; kind++) {
        int64_t begin = plan_part_begin(p, l, u, kind);
        int64_t end = begin + plan_part_count(p, l, u, kind);
        for (int64_t from = begin; from < end; n++) {
            struct segment s = segment_at(p, from, end);
            s.to = l->unit[u].part[kind].offset + from - begin;
            s.staging = bytes;
            bytes += s.bytes;
            from += s.count;
            if (segments)
                segments[n] = s;
        }
    }
    if (staging)
        *staging = bytes;
    return n;
}

int plan_segments_max(const struct plan *p, const struct layout *l)
{
    int most = 0;
    for (int u = 0; u < l->units; u++) {
        int n = plan_segments(p, l, u, NULL, NULL);
        most = n > most ? n : most;
    }
    return most;
}

bool plan_run_of(const struct plan *p, const struct layout *l, int tensor, int rank,
                 struct run *run)
{
    const struct tensor *t = &l->tensors[tensor];
    enum part_kind kind = t->frozen ? PART_FROZEN : PART_LIVE;
    const struct part *part = &l->unit[t->unit].part[kind];
    int64_t from = part->offset + (p->whole_state ? 0 : rank * part->shard);
    int64_t to = from + plan_part_count(p, l, t->unit, kind);
    int64_t a = max64(t->offset, from), b = min64(t->offset + t->elements, to);
    *run = (struct run){.begin = plan_part_begin(p, l, t->unit, kind) + a - from,
                        .count = b - a,
                        .first = a - t->offset,
                        .tensor = tensor};
    return a < b;
}

static int compare_runs(const void *a, const void *b)
{
    int64_t x = ((const struct run *)a)->begin, y = ((const struct run *)b)->begin;
    return (x > y) - (x < y);
}

int plan_runs(const struct plan *p, const struct layout *l, int rank, struct run *runs)
{
    int n = 0;
    for (int i = 0; i < l->count; i++)
        n += plan_run_of(p, l, i, rank, &runs[n]);
    qsort(runs, (size_t)n, sizeof(*runs), compare_runs);
    return n;
}

int plan_run_at(const struct run *runs, int n, int64_t position)
{
    int low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (runs[middle].begin + runs[middle].count <= position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Chunks: their size, how many, and which of them rest in memory. */
static void cut(struct plan *p, const struct layout *l)
{
    const struct settings *s = &p->set;
    int64_t ranks = p->whole_state ? 1 : l->ranks;
    p->state = l->whole[PART_LIVE] / ranks;
    p->frozen = l->whole[PART_FROZEN] / ranks;
    int64_t state = max64(p->state, p->frozen);
    if (s->chunk_grows) /* so that an update is asked for at once, and goes on beside forward */
        p->set.chunk =
            min64(max64(s->chunk, align_up(state / PLAN_CHUNKS_AT_ONCE + 1, 64)), CHUNK_MAX);
    p->chunk = min64(s->chunk, state);
    p->live = (p->state + p->chunk - 1) / p->chunk;
    p->frozen_begin = p->live * p->chunk;
    p->chunks = p->live + (p->frozen + p->chunk - 1) / p->chunk;
    p->resident = p->live;
    if (s->state == ZERO_NVME && s->host_bytes < (p->master + 8) * p->state)
        p->resident = min64(s->host_bytes / ((p->master + 8) * p->chunk), p->live);
}

/* How many chunks pass through slots: those in memory, of which the first chunk is one if any is,
 * or the others, which take the same slots. */
static int64_t chunks_slotted(const struct plan *p)
{
    int64_t far = p->live - p->resident;
    if (p->chunks > p->live && plan_chunk_slotted(p, p->live))
        far += p->chunks - p->live;
    return max64(p->resident > 0 && plan_chunk_slotted(p, 0) ? p->resident : 0, far);
}

/* Of slots for files those that are used over and over: some for each folder, or an eighth. */
static int window(const struct settings *s, int slots)
{
    int most = WINDOW;
    for (const char *c = s->nvme_path; *c; c++)
        most += *c == ':' ? WINDOW : 0;
    most = most < slots / 8 ? slots / 8 : most;
    return most < slots ? most : slots;
}

static void decide(struct plan *p, const struct layout *l)
{
    const struct settings *s = &p->set;
    p->ranks = l->ranks;
    p->element = dtype_bytes(s->dtype);
    p->device_apart = s->device != ZERO_CPU;
    p->via_host = s->via_host && l->ranks > 1;
    p->compute = s->state == ZERO_DEVICE ? ZERO_DEVICE : ZERO_HOST;
    p->whole_params = s->stage < 3;
    p->whole_state = s->stage == 0;
    p->whole_grads = p->whole_state || s->local;
    p->shared = s->dtype == ZERO_FP32 && s->param == s->state;
    p->master = s->split ? 2 : p->shared && s->param != ZERO_NVME ? 0 : 4;
    p->grad = s->round_grads && s->accumulate == 1 && !s->local ? 2 : 4;
    cut(p, l);
    p->slot_grad = s->grad != p->compute;
    p->slot_param = s->param != p->compute && (!p->shared || p->frozen > 0);
    p->slot_via_host = p->compute == ZERO_DEVICE && s->param == ZERO_NVME;
    p->chunk_slots = (int)min64(s->chunk_slots, chunks_slotted(p));
    p->chunk_window = s->state == ZERO_NVME ? window(s, p->chunk_slots) : p->chunk_slots;
    p->gather_slots = p->whole_params ? 0 : (int)min64(s->gather_slots, l->units);
    p->grad_slots = (int)min64(s->grad_slots, l->units);
}

/* The k largest units' elements (live: trainable ones), descending: slot i takes any unit but
 * the i larger ones. */
static void size_slots(const struct layout *l, int k, bool live, int64_t *elements)
{
    for (int i = 0; i < k; i++)
        elements[i] = 0;
    for (int u = 0; u < l->units; u++) {
        int64_t n = live ? l->unit[u].part[PART_LIVE].elements : l->unit[u].elements;
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

/* What is received of a reduction under way. */
static void place_scratch(struct plan *p)
{
    int64_t others = p->set.added ? 0 : p->ranks - 1; /* whose parts come here */
    int64_t element = p->set.local ? 4 : p->element;
    int64_t shard = p->grad_elements[0] * element / p->ranks;
    int64_t most = p->via_host       ? PIECE_BYTES_COPY
                   : p->device_apart ? PIECE_BYTES_GPU
                                     : PIECE_BYTES_MAX;
    int64_t room = others ? SCRATCH_BYTES_MAX / (2 * others) / 256 * 256 : most;
    p->piece_bytes = min64(min64(most, room > 256 ? room : 256), align_up(shard, 256));
    p->device.scratch = take(&p->device.total, (p->via_host ? 1 : 2) * others * p->piece_bytes);
    if (p->device_apart)
        p->device.room =
            take(&p->device.total, device_sum_room(p->piece_bytes / element, p->set.round_grads,
                                                   p->set.local ? p->ranks : 0));
}

static void place_device(struct plan *p, const struct layout *l)
{
    const struct settings *s = &p->set;
    int64_t *total = &p->device.total, mark;
    struct zero_bytes *r = &p->report.device;
    int64_t whole = l->whole[PART_LIVE] + l->whole[PART_FROZEN];
    if (s->param == ZERO_DEVICE)
        p->device.params =
            take(total, (p->whole_params ? whole : p->state + p->frozen) * p->element);
    r->params = *total, mark = *total;
    if (s->grad == ZERO_DEVICE)
        p->device.grads = take(total, (p->whole_grads ? l->whole[PART_LIVE] : p->state) * p->grad);
    r->grads = *total - mark, mark = *total;
    if (s->state == ZERO_DEVICE)
        p->device.state = take(total, p->state * (p->master + 8));
    r->state = *total - mark, mark = *total;

    size_slots(l, p->gather_slots, false, p->gather_elements);
    size_slots(l, p->grad_slots, true, p->grad_elements);
    for (int i = 0; i < p->gather_slots; i++)
        p->device.gather[i] = take(total, p->gather_elements[i] * p->element);
    for (int i = 0; i < p->grad_slots; i++) {
        p->device.grad[i] = take(total, p->grad_elements[i] * p->element);
        if (s->grad == ZERO_HOST)
            p->device.sum[i] =
                take(total, p->grad_elements[i] * p->grad / (p->whole_state ? 1 : l->ranks));
    }
    for (int i = 0; p->compute == ZERO_DEVICE && i < p->chunk_slots; i++) {
        if (p->slot_grad)
            p->device.chunk_grad[i] = take(total, p->chunk * p->grad);
        if (p->slot_param)
            p->device.chunk_param[i] = take(total, p->chunk * p->element);
    }
    place_scratch(p);
    r->slots = *total - mark;
    r->total = *total;
}

/* The most bytes that a collective of a unit has in its data. */
static int64_t collective_bytes(const struct plan *p, const struct layout *l)
{
    int64_t most = 0;
    for (int u = 0; u < l->units; u++) {
        int64_t live = l->unit[u].part[PART_LIVE].elements;
        int64_t frozen = l->unit[u].part[PART_FROZEN].elements;
        most = max64(most, p->whole_state ? 0 : max64(live, frozen) * p->element);
        most = max64(most, live * (p->set.local ? 4 : p->element));
        most = max64(most, p->whole_state ? live * p->grad : 0);
    }
    return most;
}

/* What only passes through host memory because the host cannot read the device's. */
static void place_apart(struct plan *p, const struct layout *l)
{
    int64_t *total = &p->host.total;
    for (int i = 0; p->via_host && i < PLAN_RELAYS; i++)
        p->host.relay[i] = take(total, collective_bytes(p, l));
    if (p->via_host)
        p->host.scratch = take(total, 2 * p->piece_bytes * (p->ranks - 1));
    if (!p->device_apart || p->compute == ZERO_HOST)
        return;
    p->host.bounce_record = take(total, p->chunk * (p->master + 8));
    p->host.bounce_param = take(total, p->chunk * p->element);
}

/* What is read of a unit before it goes to its gather slot. */
static void place_staging(struct plan *p, const struct layout *l)
{
    int64_t most[PLAN_SLOTS_MAX] = {0}, bytes;
    for (int u = 0; p->set.param == ZERO_NVME && u < l->units; u++) {
        plan_segments(p, l, u, NULL, &bytes);
        p->report.param_read_bytes += bytes;
        for (int i = 0; i < p->gather_slots; i++)
            if (l->unit[u].elements <= p->gather_elements[i])
                most[i] = max64(most[i], bytes);
    }
    for (int i = 0; p->set.param == ZERO_NVME && i < p->gather_slots; i++)
        p->host.staging[i] = take(&p->host.total, most[i]);
}

static void place_host(struct plan *p, const struct layout *l)
{
    const struct settings *s = &p->set;
    int64_t *total = &p->host.total, mark;
    struct zero_bytes *r = &p->report.host;
    if (s->param == ZERO_HOST)
        p->host.params = take(total, (p->state + p->frozen) * p->element);
    r->params = *total, mark = *total;
    if (s->grad == ZERO_HOST)
        p->host.grads = take(total, p->state * p->grad);
    r->grads = *total - mark, mark = *total;
    if (s->state != ZERO_DEVICE)
        p->host.state = take(total, min64(p->resident * p->chunk, p->state) * (p->master + 8));
    r->state = *total - mark, mark = *total;
    if (s->verify)
        p->host.checks = take(total, verify_bytes(p->file.total));
    r->checks = *total - mark, mark = *total;

    bool host = p->compute == ZERO_HOST;
    for (int i = 0; i < p->chunk_slots; i++) {
        if (p->resident < p->live)
            p->host.record[i] = take(total, record_bytes_max(p));
        if (host && p->slot_grad)
            p->host.chunk_grad[i] = take(total, p->chunk * p->grad);
        if ((host && p->slot_param) || p->slot_via_host)
            p->host.chunk_param[i] = take(total, p->chunk * p->element);
    }
    place_staging(p, l);
    place_apart(p, l);
    r->slots = *total - mark;
    r->total = *total;
}

static void place_file(struct plan *p)
{
    struct zero_plan *r = &p->report;
    for (int64_t c = 0; c < p->live; c++)
        r->nvme.state += plan_chunk_in_file(p, c) ? plan_record(p, c).bytes : 0;
    p->file.params = r->read_bytes = r->written_bytes = r->nvme.state;
    for (int64_t c = 0; p->set.param == ZERO_NVME && c < p->chunks; c++) {
        int64_t bytes = plan_chunk_apart(p, c) ? plan_param_bytes(p, c) : 0;
        r->nvme.params += bytes;
        if (plan_chunk_frozen(p, c))
            continue;
        r->written_bytes += bytes;
        r->read_bytes += plan_chunk_fetched(p, c) ? bytes : 0;
    }
    r->nvme.total = p->file.total = r->nvme.state + r->nvme.params;
}

int plan_make(struct plan *p, const struct layout *l, const struct settings *set,
              struct error *error)
{
    const struct settings given = *set;
    *p = (struct plan){.set = given};
    decide(p, l);
    p->report = (struct zero_plan){.params = l->params,
                                   .frozen = l->frozen,
                                   .elements = l->whole[PART_LIVE] + l->whole[PART_FROZEN],
                                   .units = l->units,
                                   .chunks = (int)p->live,
                                   .chunks_in_ram = (int)p->resident};
    if (p->chunks > PLAN_CHUNKS_MAX)
        return error_set(
            error, ZERO_ERR_ARGUMENT,
            ".chunk is %lld elements, which cuts this model into %lld chunks, and %d are "
            "the most. Use %lld or more (--chunk, .chunk).",
            (long long)p->chunk, (long long)p->chunks, PLAN_CHUNKS_MAX,
            (long long)(p->chunk * ((p->chunks - 1) / (PLAN_CHUNKS_MAX - 1) + 1)));
    place_file(p);
    place_device(p, l);
    place_host(p, l);
    int64_t live = l->whole[PART_LIVE] / l->ranks * (l->ranks - 1);
    int64_t frozen = p->whole_params ? 0 : l->whole[PART_FROZEN] / l->ranks * (l->ranks - 1);
    p->report.gather_bytes = p->whole_state ? 0 : (live + frozen) * p->element;
    p->report.reduce_bytes =
        live * ((p->set.local ? 4 : p->element) + (p->whole_state ? p->grad : 0));
    bool apart = !p->shared && !p->set.split; /* the parameter is no part of the master */
    p->report.update_bytes = p->state * (p->grad + 2 * (4 + 8) + (apart ? p->element : 0));
    return ZERO_OK;
}

int plan_node(struct zero_plan *report, int local_ranks, struct error *error)
{
    int64_t rank = report->device.total + report->host.total + report->nvme.total;
    if (rank > INT64_MAX / local_ranks)
        return error_set(
            error, ZERO_ERR_ARGUMENT,
            "%d ranks of %lld bytes each on a node are more than 2^63 bytes. Use fewer "
            "ranks, or a smaller model.",
            local_ranks, (long long)rank);
    report->node_device = report->device.total * local_ranks;
    report->node_host = report->host.total * local_ranks;
    report->node_nvme = report->nvme.total * local_ranks;
    return ZERO_OK;
}
