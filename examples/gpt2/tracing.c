// SPDX-License-Identifier: Apache-2.0
/* Clocks of two nodes have nothing in common: each rank counts from its own time
 * at a barrier. The file is written rank after rank, which costs a few messages
 * a rank, and each of them opens it anew, since nodes share no descriptors. It
 * gets its name when it is whole: until then an older run's stays. Meanwhile rank 0 has
 * FILE.part open, which keeps other runs away from it; a run that is killed leaves that,
 * empty where it was not writing yet. */
#include "examples/gpt2/tracing.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/common/clock.h"
#include "examples/common/file.h"
#include "examples/common/refuse.h"

enum { LINKS_MAX = 40 }; /* as in the kernel */

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
    struct zero_span span = {
        .name = name, .unit = unit, .chunk = -1, .step = r->made, .begin = begin, .end = end};
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
                             .step = r->made - 1,
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

/* Puts what a chain of links leads to in place of its first name, be a file there or not. */
static void follow(char name[TRACING_PATH])
{
    char target[TRACING_PATH];
    for (int links = 0; links < LINKS_MAX; links++) {
        ssize_t length = readlink(name, target, sizeof(target) - 1);
        if (length < 0)
            return;
        target[length] = 0;
        char *slash = target[0] == '/' ? NULL : strrchr(name, '/');
        size_t folder = slash ? (size_t)(slash + 1 - name) : 0;
        if (folder + (size_t)length >= TRACING_PATH)
            return;
        memcpy(name + folder, target, (size_t)length + 1);
    }
}

/* The file that --trace means; whether it is made under another name first. */
static bool whole_name(const char *trace, char name[TRACING_PATH])
{
    struct stat st;
    snprintf(name, TRACING_PATH, "%s", trace);
    if (stat(trace, &st) ? errno == ELOOP : !S_ISREG(st.st_mode))
        return false;
    follow(name);
    return true;
}

const char *tracing_part(const char *trace, char name[TRACING_PATH])
{
    if (whole_name(trace, name))
        strncat(name, ".part", TRACING_PATH - 1 - strlen(name));
    return name;
}

/* Whether what is there may be emptied: nothing, or what a killed run has left. */
static bool part_is_ours(const char *part)
{
    struct stat st;
    if (lstat(part, &st))
        return true;
    return S_ISREG(st.st_mode) && (st.st_size == 0 || trace_begins(part));
}

bool tracing_open(struct run *r)
{
    char whole[TRACING_PATH], part[TRACING_PATH];
    const char *trace = r->a->trace, *log = r->a->log;
    if (!r->trace || zero_rank(r->z) != 0)
        return true;
    if (file_same(log, trace) || file_same(log, tracing_part(trace, part))) {
        refuse((struct sink){r->error, sizeof(r->error)},
               "'%s' is the file of --log, '%s', too. Give --trace another one.",
               file_same(log, trace) ? trace : part, log);
        return false;
    }
    bool apart = whole_name(trace, whole);
    if (strlen(trace) >= TRACING_PATH || strlen(whole) > TRACING_PATH - sizeof(".part")) {
        errno = ENAMETOOLONG;
        return fail(r, "cannot be written");
    }
    if (apart && !part_is_ours(tracing_part(trace, part))) {
        refuse((struct sink){r->error, sizeof(r->error)},
               "'%s', where the trace is written first, exists already and is not a trace of gpt2. "
               "Move it away, or give --trace another file.",
               part);
        return false;
    }
    if (!apart || !file_taken(whole))
        r->traced = file_create(tracing_part(trace, part));
    return r->traced || fail(r, "cannot be written");
}

/* A client of NFS that has looked for a file in vain remembers that until it opens the folder. */
static void look_anew(const char *file)
{
    char folder[TRACING_PATH];
    snprintf(folder, sizeof(folder), "%s", file);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0;
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
}

bool tracing_begin(struct run *r)
{
    char whole[TRACING_PATH], part[TRACING_PATH];
    if (r->traced)
        return file_empty(r->traced) == 0 || fail(r, "cannot be written");
    if (!r->trace || !whole_name(r->a->trace, whole))
        return true;
    look_anew(tracing_part(r->a->trace, part));
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
    char whole[TRACING_PATH], part[TRACING_PATH];
    if (zero_rank(r->z) != 0)
        return true;
    if (whole_name(r->a->trace, whole) &&
        (file_taken(whole) || rename(tracing_part(r->a->trace, part), whole)))
        return fail(r, "cannot be given its name");
    fclose(r->traced);
    r->traced = NULL;
    return true;
}

/* What there is of a file that cannot become whole only takes space. It goes while it is
 * ours: closed first, it might be another run's. */
void tracing_close(struct run *r)
{
    char name[TRACING_PATH];
    if (!r->traced)
        return;
    if (whole_name(r->a->trace, name))
        unlink(tracing_part(r->a->trace, name));
    fclose(r->traced);
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
    char name[TRACING_PATH];
    tracing_part(r->a->trace, name);
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
