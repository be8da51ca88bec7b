// SPDX-License-Identifier: Apache-2.0
/* The command line of `zero bench`, medians, and the lines that are printed. */
#include "examples/zero/bench.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/choices.h"
#include "examples/common/launch.h"
#include "examples/zero/disk.h"
#include "examples/zero/tool.h"
#include "include/zero.h"

enum { SECONDS = 30 }; /* after this no further round begins, so that 45 s suffice */

/* ------------------------------------------------------------------- samples */

void samples_add(struct samples *s, double value)
{
    assert(s->count < BENCH_SAMPLES);
    s->value[s->count++] = value;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Puts them in order; their median. */
static double samples_sort(const struct samples *s, double sorted[BENCH_SAMPLES])
{
    assert(s->count > 0);
    memcpy(sorted, s->value, (size_t)s->count * sizeof(*sorted));
    qsort(sorted, (size_t)s->count, sizeof(*sorted), ascending);
    return (sorted[(s->count - 1) / 2] + sorted[s->count / 2]) / 2;
}

double samples_median(const struct samples *s)
{
    double sorted[BENCH_SAMPLES];
    return samples_sort(s, sorted);
}

bool bench_over(const struct bench *b)
{
    return !b->full && clock_now() - b->started > SECONDS;
}

/* -------------------------------------------------------------------- output */

/* What was held against an aim; the lines of those that miss it. */
static struct {
    int held, missed;
    char line[BENCH_SAMPLES][120];
} aims;

void bench_value(const char *name, const struct samples *s, const char *unit)
{
    double sorted[BENCH_SAMPLES], median = samples_sort(s, sorted);
    printf("%s %.4g %s", name, median, unit);
    if (s->count > 1)
        printf(" (%.4g-%.4g, %d rounds)", sorted[0], sorted[s->count - 1], s->count);
    putchar('\n');
    fflush(stdout);
}

struct bench_size bench_size(int64_t elements)
{
    struct bench_size size;
    bool millions = elements >= 1 << 20;
    snprintf(size.text, sizeof(size.text), "%lld%c", (long long)(elements >> (millions ? 20 : 10)),
             millions ? 'M' : 'K');
    return size;
}

void bench_ratio(const char *name, double value, struct aim aim)
{
    char number[32], text[48] = "", line[sizeof(aims.line[0])];
    snprintf(number, sizeof(number), "%.*f", value < 0.1 ? 5 : 3, value);
    if (aim.least > 0 && aim.most > 0)
        snprintf(text, sizeof(text), " (aim %.3g to %.3g)", aim.least, aim.most);
    else if (aim.least > 0)
        snprintf(text, sizeof(text), " (aim %.3g)", aim.least);
    else if (aim.most > 0)
        snprintf(text, sizeof(text), " (aim %.3g at most)", aim.most);
    snprintf(line, sizeof(line), "%s %s%s", name, number, text);
    puts(line);
    fflush(stdout);
    double shown = strtod(number, NULL);
    aims.held += text[0] != 0;
    if ((shown < aim.least || (aim.most > 0 && shown > aim.most)) && aims.missed < BENCH_SAMPLES)
        memcpy(aims.line[aims.missed++], line, sizeof(line));
}

static void three_lines(const char *name, const struct samples *limit, const struct samples *ours,
                        const char *unit, double share, double aim)
{
    char line[80];
    snprintf(line, sizeof(line), "%s_limit", name);
    bench_value(line, limit, unit);
    snprintf(line, sizeof(line), "%s_ours", name);
    bench_value(line, ours, unit);
    snprintf(line, sizeof(line), "%s_share", name);
    bench_ratio(line, share, (struct aim){.least = aim});
}

void bench_rate(const char *name, const struct samples *limit, const struct samples *ours,
                const char *unit, double aim)
{
    three_lines(name, limit, ours, unit, samples_median(ours) / samples_median(limit), aim);
}

void bench_seconds(const char *name, const struct samples *limit, const struct samples *ours,
                   double aim)
{
    three_lines(name, limit, ours, "s", samples_median(limit) / samples_median(ours), aim);
}

static void print_aims(void)
{
    if (aims.held > 0)
        bench_note("%d of %d reach their aims%s", aims.held - aims.missed, aims.held,
                   aims.missed ? "; the others:" : "");
    for (int i = 0; i < aims.missed; i++)
        bench_note("  %s", aims.line[i]);
}

void bench_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("# ", stdout);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
    fflush(stdout);
}

/* ------------------------------------------------------------------- command */

#define OPTIONS_OF struct bench

static const struct option table[] = {
    {"full", FLAG(full), .help = "larger sizes and more rounds: minutes"},
    {"quick", FLAG(quick),
     .help = "tiny sizes: shows that it runs, measures nothing worth keeping"},
    {"threads", WHOLE(threads, 1, 64), .value = "K",
     .shown = "1, then all this process may use, up to 64",
     .help = "adam: with so many threads alone"},
    {"fio", FLAG(fio), .help = "io: also fio's fastest way, on the same file and in turn: minutes"},
    {"params", SIZE(params, 1 << 16, 0x1p40), .value = "COUNT", .initial = "64M",
     .help = "memory and step: elements of the model"},
    {"verify-spill", FLAG(verify_spill),
     .help = WITH_XXHASH("step: also with every page that is read checked, in turn with steps that "
                         "do not")},
    {"state", CHOICE(state, state_choices), .initial = "fp32",
     .help = "step: also with split masters, in turn with steps that keep them whole"},
    {"host-share", WHOLE(host_share, 0, 100), .initial = "0", .value = "PERCENT",
     .help = "step: also with so much of the state kept in memory, in turn with steps that keep "
             "none"},
    {"alone", FLAG(alone),
     .help = "step: with what --state, --host-share and --verify-spill ask for and no steps "
             "without in turn: two models of that size may not fit"},
    {"nvme-path", TEXT(nvme_path), .value = NVME_PATH_VALUE, .shown = NVME_PATH_SHOWN,
     .help = "io and step: folder for the files; step: or several"},
    {"help", FLAG(help), .help = "print this and end"},
};
enum { OPTIONS = sizeof(table) / sizeof(*table) };

static const struct tool_options options = {
    .usage =
        "usage: zero bench adam|memory|io|comm|step|fixed [options]\n\n"
        "  adam   the update kernels (bf16 or fp32 gradients, bf16 or fp32 model, split masters)\n"
        "         against loops with the same reads and writes and no arithmetic to speak of;\n"
        "         1M elements, which fit in a cache, against the slower of such a loop and the\n"
        "         square roots and divisions alone; there a pass of several threads contains\n"
        "         their wake-ups, of limit and ours alike. Where AVX-512 is used, AVX2's kernels\n"
        "         beside them: adam_avx2_16M_1t and so on\n"
        "  memory zero_step to its end, all state in memory, against a loop with the same reads\n"
        "         and writes by as many threads (also mpirun -n N zero bench memory)\n"
        "  io     the rings against plain threads with pread and pwrite, and bare io_uring, at\n"
        "         several sizes of block and depths, the best of them; the rings move blocks of\n"
        "         1 MiB, 8 at once, as in training where the drive was never probed\n"
        "  comm   all-gather and ordered reduce between ranks (mpirun -n N zero bench comm)\n"
        "         against their memory traffic, streamed by all ranks at once\n"
        "  step   zero_step to its last write, optimizer state in files, against its bytes at the\n"
        "         bandwidth of reads and writes together; and what zero plan predicts for it "
        "(also\n"
        "         mpirun -n N zero bench step). More than 64M parameters take longer than 45 s:\n"
        "         a file as large as their state is written beside it\n"
        "  fixed  a step of a tiny model, which computes nothing, per step and per unit (also\n"
        "         mpirun -n N zero bench fixed), against 200 us and 20 us a unit, with several\n"
        "         ranks against six wake-ups of a thread and back a unit; a share above 1 is\n"
        "         faster than that\n\n"
        "Prints NAME_limit and NAME_ours, medians with their ranges, and NAME_share with what it\n"
        "aims at, and last what misses its aim; limit and ours are measured in turn, in one\n"
        "run, on the same memory. Results are checked first. Each ends within 45 s on a drive\n"
        "of 150 MB/s or more.\n",
    .table = table,
    .count = OPTIONS,
};

static const struct kind {
    const char *name;
    int (*run)(const struct bench *b);
    bool ranks; /* for several of them */
    bool files;
} kinds[] = {
    {"adam", bench_adam, .ranks = false, .files = false},
    {"memory", bench_memory, .ranks = true, .files = false},
    {"io", bench_io, .ranks = false, .files = true},
    {"comm", bench_comm, .ranks = true, .files = false},
    {"step", bench_step, .ranks = true, .files = true},
    {"fixed", bench_fixed, .ranks = true, .files = false},
};
enum { KINDS = sizeof(kinds) / sizeof(*kinds) };

static bool was_given(const bool *given, const char *name)
{
    return given[options_index(table, OPTIONS, name)];
}

static int contradictions(const struct kind *kind, const struct bench *b, const bool *given)
{
    struct launch l = launch_find();
    if (b->full && b->quick)
        return tool_refuse("--full and --quick contradict each other. Give one of them.");
    static const char *const of_step[] = {"verify-spill", "state", "host-share", "alone"};
    for (int i = 0; i < (int)(sizeof(of_step) / sizeof(*of_step)); i++)
        if (was_given(given, of_step[i]) && strcmp(kind->name, "step") != 0)
            return tool_refuse("--%s is for zero bench step, not for %s. Leave it out.", of_step[i],
                               kind->name);
    if (was_given(given, "params") && strcmp(kind->name, "step") && strcmp(kind->name, "memory"))
        return tool_refuse("--params is for zero bench memory and step, not for %s. Leave it out.",
                           kind->name);
    if (b->alone && !b->verify_spill && b->state == ZERO_STATE_FP32 && b->host_share == 0)
        return tool_refuse("--alone is for --state split, --host-share or --verify-spill, and none "
                           "is given. Give one, or leave it out.");
    if (b->alone && b->host_share == 100)
        return tool_refuse("--alone and --host-share 100 leave nothing in files that could be "
                           "measured. Give a smaller --host-share, or leave --alone out.");
    if (was_given(given, "threads") && strcmp(kind->name, "adam") != 0)
        return tool_refuse("--threads is for zero bench adam, not for %s. Leave it out.",
                           kind->name);
    if (b->fio && strcmp(kind->name, "io") != 0)
        return tool_refuse("--fio is for zero bench io, not for %s. Leave it out.", kind->name);
    if (b->nvme_path && !kind->files)
        return tool_refuse("--nvme-path is for zero bench io and step, %s uses no files. Leave it "
                           "out.",
                           kind->name);
    if (!kind->ranks && l.ranks > 1)
        return tool_refuse("zero bench %s measures one process, and %d were launched. Start it "
                           "without mpirun or srun -n.",
                           kind->name, l.ranks);
    return 0;
}

/* kind NULL: none is named, and --help needs none. */
static int kind_run(const struct kind *kind, int argc, char **argv)
{
    struct bench b = {0};
    bool given[OPTIONS];
    int status = tool_parse(&options, argc, argv, &b, given, &b.help);
    if (status != TOOL_GO_ON)
        return status;
    if (!kind)
        return tool_refuse("zero bench needs a name. Give adam, memory, io, comm, step or fixed.");
    status = contradictions(kind, &b, given);
    if (status)
        return status;
    if (kind->files && !(b.nvme_path = disk_folders(b.nvme_path)))
        return 2;
    if (b.quick && !was_given(given, "params"))
        b.params = 1 << 20;
    b.started = clock_now();
    status = kind->run(&b);
    if (status == 0)
        print_aims();
    return status;
}

int bench_command(int argc, char **argv)
{
    if (argc < 2 || options_is_help(argv[1]) || strncmp(argv[1], "--", 2) == 0)
        return kind_run(NULL, argc, argv);
    for (int i = 0; i < KINDS; i++)
        if (strcmp(argv[1], kinds[i].name) == 0)
            return kind_run(&kinds[i], argc - 1, argv + 1);
    return tool_refuse("There is no bench '%s'. Give adam, memory, io, comm, step or fixed.",
                       argv[1]);
}
