// SPDX-License-Identifier: Apache-2.0
/* The memscale program: bytes of a rank and seconds of a step by stage, place and
 * size of the model. Exit status: 0 all went well (what does not fit is said),
 * 1 the test or a configuration failed, 2 the command line is wrong. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "examples/common/figure.h"
#include "examples/common/file.h"
#include "examples/common/launch.h"
#include "examples/common/refuse.h"
#include "examples/common/terminal.h"
#include "examples/memscale/plot.h"
#include "examples/memscale/scale.h"
#include "examples/memscale/table.h"

#define LEFT_MAX   ((int64_t)16 << 20)  /* MPI and malloc keep some of what they were given, */
#define DRIVER_MAX ((int64_t)256 << 20) /* and a GPU's driver */
#define MEETING    ((int64_t)1 << 20)   /* more than an engine takes for the ranks to meet in */

struct test {
    struct arguments a;
    struct scale scale;
    FILE *csv, *svg; /* rank 0's */
    struct result *results;
    int count;
    bool failed; /* a configuration did */
};

static struct sink sink_of(struct test *t)
{
    return (struct sink){t->scale.error, sizeof(t->scale.error)};
}

/* A line that goes when the next one is printed. */
static void progress(const struct test *t, int stage, enum zero_place offload, const char *size)
{
    const struct arguments *a = &t->a;
    char line[160];
    if (t->scale.rank != 0 || !terminal_watched())
        return;
    snprintf(line, sizeof(line), "%d of %lld: stage %d, %s, %s ...", t->count + 1,
             (long long)a->stage_list.count * a->offload_list.count * a->size_count, stage,
             arguments_offload(offload), size);
    terminal_line(line, false);
}

static bool open_file(struct test *t, const char *name, FILE **file)
{
    if (!name || t->scale.rank != 0)
        return true;
    if (file_same(t->a.csv, name) && name != t->a.csv) {
        refuse(sink_of(t), "'%s' is the file of --csv, '%s', too. Give --svg another one.", name,
               t->a.csv);
        return false;
    }
    *file = file_create(name);
    if (!*file)
        refuse(sink_of(t),
               "'%s' cannot be written: %s. Give --csv and --svg files of their own, in a folder "
               "that you may write to.",
               name, file_reason(errno));
    return *file;
}

/* What was in it goes: a table's once both can be written, a plot's when there is another. */
static bool empty_file(struct test *t, const char *name, FILE *file)
{
    if (!file || file_cut(file, 0) == 0)
        return true;
    refuse(sink_of(t), "'%s' cannot be written: %s. Give another file.", name, file_reason(errno));
    return false;
}

static int close_file(struct test *t, const char *name, FILE **file)
{
    if (!*file)
        return 0;
    bool well = !ferror(*file);
    well = fclose(*file) == 0 && well;
    *file = NULL;
    if (well)
        return 0;
    return refuse(sink_of(t),
                  "'%s' could not be written to its end. Give a file with room to grow (its disk, "
                  "quota, ulimit -f).",
                  name);
}

/* This rank's sentence, if it has one. */
static void explain(struct test *t)
{
    struct scale *s = &t->scale;
    fflush(stdout);
    if (s->error[0])
        fprintf(stderr, "rank %d: %s%s\n", s->rank, s->where, s->error);
    s->error[0] = s->where[0] = 0;
}

/* The plot of what there is so far, in place of the last one. */
static bool draw(struct test *t)
{
    if (!empty_file(t, t->a.svg, t->svg))
        return false;
    plot_write(t->svg, &t->scale, t->results, t->count);
    fflush(t->svg);
    return true;
}

static int one(struct test *t, int stage, enum zero_place offload, const struct size *size)
{
    struct result *results = realloc(t->results, (size_t)(t->count + 1) * sizeof(*results));
    if (!results)
        return refuse(sink_of(t), "No memory for %d results.", t->count + 1);
    t->results = results;
    struct result *r = &results[t->count];
    progress(t, stage, offload, size->name);
    if (t->a.find_largest ? scale_largest(&t->scale, stage, offload, size, r)
                          : scale_try(&t->scale, stage, offload, size, size->shape.layers, r))
        return -1;
    t->count++;
    t->failed |= r->failed;
    if (t->scale.rank == 0 && terminal_watched())
        terminal_line("", false);
    explain(t);
    if (t->scale.rank != 0)
        return 0;
    table_row(r);
    table_csv_row(t->csv, r, t->scale.ranks);
    if (t->svg && file_is_regular(t->svg)) /* should the test be ended: a pipe has it once */
        (void)draw(t);
    return 0;
}

static int all(struct test *t)
{
    const struct arguments *a = &t->a;
    if (t->scale.rank == 0) {
        table_header(&t->scale);
        table_csv_header(t->csv);
    }
    for (int i = 0; i < a->size_count; i++)
        for (int k = 0; k < a->stage_list.count; k++)
            for (int p = 0; p < a->offload_list.count; p++)
                if (one(t, a->stages[k], a->offloads[p], &a->sizes[i]))
                    return -1;
    return 0;
}

static int finish(struct test *t)
{
    const struct scale *s = &t->scale;
    int64_t left = s->left - (s->gpu.count ? DRIVER_MAX : 0);
    left = left > s->left_on_gpu ? left : s->left_on_gpu;
    if (s->rank == 0) {
        table_end(s);
        if (t->svg && !draw(t))
            return -1;
        if (close_file(t, t->a.csv, &t->csv) || close_file(t, t->a.svg, &t->svg))
            return -1;
        if (!file_printed())
            return refuse(sink_of(t), "Standard output could not be written.");
    }
    if (left > LEFT_MAX)
        return refuse(sink_of(t),
                      "%s of memory were not given back between configurations. This is a fault of "
                      "the library: tell its makers.",
                      in_bytes(left).text);
    return t->failed ? -1 : 0;
}

static int run(struct test *t, int argc, char **argv)
{
    struct scale *s = &t->scale;
    if (scale_begin(s, &t->a, argc, argv))
        return -1;
    bool well = open_file(t, t->a.csv, &t->csv) && open_file(t, t->a.svg, &t->svg) &&
                empty_file(t, t->a.csv, t->csv);
    if (scale_start(s, well) || all(t))
        return -1;
    return finish(t);
}

/* A GPU gets queues for an engine's streams. The CPU device's limit is the library's variable,
 * whichever of the two was given. Where it is next to nothing the ranks still have room to meet:
 * the plans are held to it. */
static void resolve_device(struct arguments *a)
{
    const char *variable = getenv("ZERO_DEVICE_MEMORY");
    char text[32];
    if (a->device != ZERO_CPU) {
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
        return;
    }
    if (a->memory[0] == 0 && (!variable || !options_size(variable, &a->memory[0])))
        return; /* where it is none, the library says so */
    snprintf(text, sizeof(text), "%lld",
             (long long)(a->memory[0] > MEETING ? a->memory[0] : MEETING));
    setenv("ZERO_DEVICE_MEMORY", text, 1);
}

static int help(int rank)
{
    if (rank == 0)
        arguments_help(stdout);
    return file_printed_by(rank);
}

int main(int argc, char **argv)
{
    static struct test t;
    char error[512] = "";
    int rank = launch_find().rank;
    file_hold_standard();
    signal(SIGXFSZ, SIG_IGN); /* a write beyond ulimit -f fails, and is told */
    if (arguments_parse(&t.a, argc, argv, error, sizeof(error))) {
        fprintf(stderr, "rank %d: %s\n", rank, error);
        return launch_end(2);
    }
    if (t.a.help)
        return help(rank);
    resolve_device(&t.a);
    int status = run(&t, argc, argv);
    if (t.scale.error[0] && terminal_watched() && t.scale.rank == 0)
        putchar('\n');
    if (status)
        explain(&t);
    scale_end(&t.scale);
    if (t.csv)
        fclose(t.csv);
    if (t.svg)
        fclose(t.svg);
    free(t.results);
    return launch_end(status ? 1 : 0);
}
