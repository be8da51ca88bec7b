// SPDX-License-Identifier: Apache-2.0
/*
 * A step is no shorter than any one of these: the program's own work, which is what
 * it does not wait, an update, the transfers of files. Where the longest of them is
 * half of the step at least, the step waits for it. A collective is under way while
 * a rank waits for another, so it counts only as far as the program waited.
 */
#include "examples/gpt2/roofline.h"

#include "examples/common/figure.h"

static const struct {
    const char *name, *waits, *unit;
} kinds[ROOFLINE_ROWS] = {
    {"compute: matrix products", "matrix products", "flop"},
    {"memory: updates", "updates in memory", "byte"},
    {"network: collectives", "the other ranks and the network", "byte"},
    {"disk: files", "the disk", "byte"},
};

/* A GPU's clock is read around each unit's kernels: it counts what is between products too. The
 * program's own is no measure there: it appends, and waits for what it has appended. */
static const char *const layers_name = "compute: the GPU";
static const char *const layers_waits = "the GPU";

/* How short the step could be at best if all else took no time. */
static double bound(const struct roofline *r, int kind)
{
    double seconds = r->row[kind].seconds;
    return kind == ROOFLINE_NETWORK && seconds > r->waited ? r->waited : seconds;
}

void roofline_verdict(const struct roofline *r, char *text, size_t size)
{
    double program = r->step > r->waited ? r->step - r->waited : 0;
    double products = r->row[ROOFLINE_COMPUTE].seconds;
    int most = ROOFLINE_MEMORY;
    for (int k = ROOFLINE_MEMORY; k < ROOFLINE_ROWS; k++)
        if (bound(r, k) > bound(r, most))
            most = k;
    double engine = bound(r, most);
    if (engine >= r->step / 2 && engine >= (r->layers ? products : program))
        snprintf(text, size, "the step waits for %s: %.3g of its %.3g s", kinds[most].waits, engine,
                 r->step);
    else if (products >= r->step / 2)
        snprintf(text, size, "the step waits for %s: %.3g of its %.3g s",
                 r->layers ? layers_waits : kinds[ROOFLINE_COMPUTE].waits, products, r->step);
    else
        snprintf(text, size,
                 "none of these alone: of a step's %.3g s %s %.3g s and %swaits %.3g s; beside "
                 "that %s took %.3g s",
                 r->step, r->layers ? "the GPU computes" : "the program computes",
                 r->layers ? products : program, r->layers ? "the program " : "", r->waited,
                 kinds[most].waits, engine);
}

/* Flops in decimal units, bytes as everywhere. */
static struct figure in_rate(double rate, int kind)
{
    struct figure f, bytes = in_bytes((int64_t)rate);
    if (kind != ROOFLINE_COMPUTE)
        snprintf(f.text, sizeof(f.text), "%.14s/s", bytes.text);
    else if (rate < 1e12)
        snprintf(f.text, sizeof(f.text), "%.1f Gflop/s", 1e-9 * rate);
    else
        snprintf(f.text, sizeof(f.text), "%.1f Tflop/s", 1e-12 * rate);
    return f;
}

void roofline_print(const struct roofline *r, FILE *out)
{
    char text[320];
    fprintf(out, "%-26s %14s %14s %6s %12s  %s\n", "what bounds the step", "achieved", "limit",
            "share", "busy a step", "source of the limit");
    for (int k = 0; k < ROOFLINE_ROWS; k++) {
        const struct roofline_row *row = &r->row[k];
        struct figure achieved = {"-"}, limit = {"-"}, share = {"-"}, busy = {"-"};
        double rate = row->seconds > 0 ? row->done / row->seconds : 0;
        if (row->seconds > 0) {
            achieved = in_rate(rate, k);
            busy = in_seconds(row->seconds);
        }
        if (row->limit > 0)
            limit = in_rate(row->limit, k);
        if (rate > 0 && row->limit > 0)
            snprintf(share.text, sizeof(share.text), "%.0f %%", 100 * rate / row->limit);
        fprintf(out, "  %-24s %14s %14s %6s %12s  %s\n",
                r->layers && k == ROOFLINE_COMPUTE ? layers_name : kinds[k].name, achieved.text,
                limit.text, share.text, busy.text, row->of);
    }
    roofline_verdict(r, text, sizeof(text));
    fprintf(out, "%s\n", text);
}
