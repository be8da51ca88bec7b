// SPDX-License-Identifier: Apache-2.0
/* Clocks of two nodes have nothing in common: each rank counts from its own time
 * at a barrier. The file is written rank after rank, which costs a few messages
 * a rank, and each of them opens it anew, since nodes share no descriptors. */
#include "examples/gpt2/tracing.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "examples/common/clock.h"
#include "examples/common/file.h"
#include "examples/common/part.h"
#include "examples/common/refuse.h"

int tracing_create(struct run *r, struct zero_config *config)
{
    if (!r->a->trace)
        return 0;
    r->trace = trace_create(TRACE_SPANS);
    if (!r->trace) {
        snprintf(r->error, sizeof(r->error),
                 "No memory is left for a trace of %lld bytes. Leave "
                 "--trace out.",
                 (long long)trace_plan_bytes(TRACE_SPANS));
        return -1;
    }
    config->trace = trace_engine;
    config->trace_arg = r->trace;
    return 0;
}

static void model_span(void *arg, const char *name, int unit, double begin, double end)
{
    struct run *r = arg;
    struct zero_span span = {.name = name,
                             .unit = unit,
                             .chunk = -1,
                             .step = r->before + r->made,
                             .begin = begin,
                             .end = end};
    trace_add(r->trace, unit < 0 ? TRACE_PASS : TRACE_COMPUTE, &span);
}

void tracing_hook_model(struct run *r, struct gpt_config *config)
{
    if (!r->trace)
        return;
    config->span = model_span;
    config->span_arg = r;
}

void tracing_step(struct run *r, double begun)
{
    if (!r->trace)
        return;
    struct zero_span span = {.name = "step",
                             .unit = -1,
                             .chunk = -1,
                             .step = r->before + r->made - 1,
                             .begin = begun,
                             .end = clock_now()};
    trace_add(r->trace, TRACE_STEP, &span);
}

static bool fail(struct run *r, const char *what)
{
    if (r->error[0]) /* the log's failure came first */
        return false;
    refuse((struct sink){r->error, sizeof(r->error)},
           "'%s' %s: %s. Give --trace a file of its own, in a folder with free space that every "
           "rank may write to.",
           r->a->trace, what, errno ? file_reason(errno) : "no memory");
    return false;
}

bool tracing_open(struct run *r)
{
    char part[PART_PATH];
    const char *trace = r->a->trace, *log = r->a->log;
    if (!r->trace || zero_rank(r->z) != 0)
        return true;
    if (file_same(log, trace) || file_same(log, part_name(trace, part))) {
        refuse((struct sink){r->error, sizeof(r->error)},
               "'%s' is the file of --log, '%s', too. Give --trace another one.",
               file_same(log, trace) ? trace : part, log);
        return false;
    }
    r->traced = part_create(trace, trace_beginning, 0);
    if (!r->traced && errno == EEXIST) {
        refuse((struct sink){r->error, sizeof(r->error)},
               "'%s', where the trace is written first, exists already and is not a trace of gpt2. "
               "Move it away, or give --trace another file.",
               part_name(trace, part));
        return false;
    }
    return r->traced || fail(r, "cannot be written");
}

bool tracing_begin(struct run *r)
{
    char whole[PART_PATH], part[PART_PATH];
    if (r->traced)
        return file_cut(r->traced, 0) == 0 || fail(r, "cannot be written");
    if (!r->trace || !part_whole(r->a->trace, whole))
        return true;
    part_folder(part_name(r->a->trace, part));
    errno = 0;
    FILE *f = file_open(part, O_APPEND);
    if (!f)
        return fail(r, "cannot be opened for writing after rank 0 created it");
    fclose(f);
    return true;
}

/* Whether the file is there, whole, under its own name. */
static bool publish(struct run *r)
{
    if (zero_rank(r->z) != 0)
        return true;
    if (part_publish(r->a->trace))
        return fail(r, "cannot be given its name");
    fclose(r->traced);
    r->traced = NULL;
    return true;
}

void tracing_close(struct run *r)
{
    part_abandon(r->a->trace, r->traced);
    r->traced = NULL;
}

int tracing_start(struct run *r)
{
    int64_t none;
    if (!r->trace)
        return 0;
    if (run_sum(r, 0, &none))
        return -1;
    r->trace_zero = clock_now();
    trace_created(r->trace);
    return 0;
}

/* This rank's turn. zero: its clock where the file's time begins. */
static bool write_part(struct run *r, double zero)
{
    int rank = zero_rank(r->z);
    errno = 0;
    char name[PART_PATH];
    part_name(r->a->trace, name);
    FILE *f = file_open(name, rank ? O_APPEND : O_CREAT | O_TRUNC);
    if (!f)
        return fail(r, "cannot be written");
    if (rank == 0)
        trace_begin(f);
    int status = trace_write(r->trace, f, rank, zero);
    if (rank == zero_size(r->z) - 1)
        trace_end(f);
    bool well = !ferror(f);
    well = fclose(f) == 0 && well && status == 0;
    return well || fail(r, "could not be written to its end");
}

/* The longest time, over the ranks, from a rank's first span to the barrier. */
static int lead_agree(struct run *r, double *lead)
{
    int64_t longest;
    double mine = r->trace_zero - trace_first(r->trace, r->trace_zero);
    if (run_most(r, llround(1e6 * mine), &longest))
        return -1;
    *lead = 1e-6 * (double)(longest + 1);
    return 0;
}

int tracing_write(struct run *r)
{
    double lead = 0;
    int64_t dropped = 0;
    if (!r->trace)
        return 0;
    if (lead_agree(r, &lead))
        return -1;
    for (int i = 0; i < zero_size(r->z); i++) {
        bool well = i != zero_rank(r->z) || write_part(r, r->trace_zero - lead);
        if (run_agree(r, well))
            return -1;
    }
    if (run_agree(r, publish(r)))
        return -1;
    if (run_sum(r, trace_dropped(r->trace), &dropped))
        return -1;
    if (dropped > 0 && zero_rank(r->z) == 0)
        fprintf(stderr,
                "rank 0: --trace keeps %lld spans a rank, and %lld more were dropped. Trace "
                "fewer steps to have all.\n",
                (long long)TRACE_SPANS, (long long)dropped);
    return 0;
}
