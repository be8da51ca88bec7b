// SPDX-License-Identifier: Apache-2.0
/*
 * zero_step with all state in memory, from the call until nothing is under way. Its limit is a
 * loop with the same reads and writes, by as many threads of all ranks at once.
 */
#include <string.h>

#include "examples/common/stream.h"
#include "examples/zero/bench.h"
#include "examples/zero/bench_model.h"
#include "examples/zero/tool.h"
#include "kernels/kernels.h"
#include "offload/arena.h"

#define AIM 0.9

/* What the loop goes over: as much as a rank's state. */
struct limit {
    struct workers *workers;
    struct arena arena;
    struct stream_arrays arrays;
    int64_t elements;
};

/* Masters, moments and sums as one stage keeps them: bf16 models, fp32 sums. */
static struct zero_config config_of(int stage, int64_t chunk)
{
    return (struct zero_config){
        .size = sizeof(struct zero_config), .stage = stage, .dtype = ZERO_BF16, .chunk = chunk};
}

/* The same bits at stage 0 and 1, and in chunks that are one task each. */
static int check(void)
{
    struct zero_digest first, other;
    const struct zero_config configs[] = {config_of(1, 0), config_of(0, 0), config_of(1, 1 << 12)};
    int status = model_digest(&configs[0], &first);
    for (int i = 1; i < 3 && !status; i++) {
        status = model_digest(&configs[i], &other);
        if (!status && memcmp(&first, &other, sizeof(first)) != 0)
            status = tool_fail("Three steps give other bits by other stages or chunks. This is a "
                               "fault of the library or of the machine: do not train with it.");
    }
    return status;
}

static int limit_open(struct limit *l, const struct bench *b, struct model *m)
{
    char text[256];
    struct error error = {0};
    struct zero_stats stats;
    if (zero_stats(m->z, &stats))
        return model_fail(m);
    l->elements = b->params / zero_size(m->z) / 64 * 64;
    l->workers = workers_create(stats.threads, 0, kernels_thread_init, text, sizeof(text));
    if (!l->workers)
        return tool_fail("%s", text);
    if (arena_create(&l->arena, stream_bytes(l->elements), 1, &error))
        return tool_fail("%s", error.text);
    l->arrays = stream_carve(l->arena.base, l->elements);
    return 0;
}

static void limit_close(struct limit *l)
{
    if (l->workers)
        workers_destroy(l->workers);
    arena_destroy(&l->arena);
}

/* Seconds of one pass of all ranks, until the last has ended. */
static int limit_once(struct limit *l, struct model *m, stream_fn *pass, double *seconds)
{
    if (model_done(m))
        return 1;
    double start = clock_now();
    stream_run(l->workers, &l->arrays, pass, l->elements);
    if (model_done(m))
        return 1;
    *seconds = clock_now() - start;
    return 0;
}

static int measure(const struct bench *b, struct model *m, struct limit *l, struct samples s[2])
{
    const struct streams *streams = streams_select();
    stream_fn *pass[] = {streams->ordinary[FORM_BF16], streams->non_temporal[FORM_BF16]};
    int rounds = b->quick ? 1 : b->full ? 31 : 9;
    bool over = false;
    for (int r = 0; r <= rounds && !over; r++) { /* round 0 warms up */
        double least = 0, seconds = 0;
        for (int i = 0; i < 2 && pass[i]; i++) {
            if (limit_once(l, m, pass[i], &seconds))
                return 1;
            least = i == 0 || seconds < least ? seconds : least;
        }
        if (model_ready(m) || model_step(m, &seconds) ||
            model_any(m, r > 0 && bench_over(b), &over))
            return 1;
        if (r > 0) {
            samples_add(&s[0], least);
            samples_add(&s[1], seconds);
        }
    }
    return 0;
}

int bench_memory(const struct bench *b)
{
    struct model m = {0};
    struct limit limit = {0};
    struct samples s[2] = {0};
    struct zero_stats stats;
    struct zero_config config = config_of(1, 0);
    char name[64];
    int status = check();
    if (status)
        return status;
    model_describe(&m, MODEL_UNITS, b->params);
    status = model_create(&m, &config);
    if (!status)
        status = limit_open(&limit, b, &m);
    if (!status)
        status = measure(b, &m, &limit, s);
    if (!status && zero_rank(m.z) == 0 && !zero_stats(m.z, &stats)) {
        bench_note("%s, %s each, a bf16 model with its state in memory: %d bytes pass a parameter",
                   counted(zero_size(m.z), "rank").text, counted(stats.threads, "thread").text,
                   STREAM_MOVED);
        snprintf(name, sizeof(name), "memory_%s", bench_size(b->params).text);
        bench_seconds(name, &s[0], &s[1], AIM);
    }
    zero_destroy(m.z);
    limit_close(&limit);
    return status;
}
