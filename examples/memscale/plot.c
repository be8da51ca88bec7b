// SPDX-License-Identifier: Apache-2.0
/* One panel a place, with logarithmic axes that are the same in all. Colours stand for
 * what is offloaded where, marks for stages. */
#include "examples/memscale/plot.h"

#include <math.h>
#include <string.h>

#include "examples/common/figure.h"

enum {
    LEFT = 66,
    WIDTH = 262,
    RIGHT = 104,
    PANEL = LEFT + WIDTH + RIGHT, /* of a panel, pixels */
    TOP = 110,
    HEIGHT = 330,
    BOTTOM = 52,
    STAGES = 4,
    LABEL = 13, /* between two labels */
};

static const char *const colours[PLACES] = {"#1f5fa8", "#2e8540", "#c8382e"};

struct series {
    double bytes;        /* a parameter and rank, in theory */
    int offload, stages; /* index of colours; bits */
};

struct plot {
    FILE *out;
    const struct scale *s;
    const struct result *results;
    int count;
    double x0, x1, y0, y1; /* logarithms */
};

static int offload_index(enum zero_place offload)
{
    return (int)offload - ZERO_DEVICE;
}

static const char *offload_name(int index)
{
    return arguments_offload((enum zero_place)(index + ZERO_DEVICE));
}

/* ------------------------------------------------------------------ the theory */

/* Bytes per parameter and rank in a place, slots and padding apart: parameters are bf16, sums
 * and state as they were asked for; each kind is cut among the ranks from its stage on. */
static double theory(const struct scale *s, int stage, int offload, int place)
{
    const struct arguments *a = s->a;
    bool away = offload > 0;
    const struct {
        double bytes;
        int cut, place;
    } kinds[] = {
        {2, 3, stage == 3 ? offload : 0},
        {a->grad_dtype == ZERO_BF16 ? 2 : 4, 1, away},
        {a->state == ZERO_STATE_SPLIT ? 10 : 12, 1, offload},
    };
    double sum = 0;
    for (int i = 0; i < 3; i++)
        if (kinds[i].place == place)
            sum += kinds[i].bytes / (stage >= kinds[i].cut ? s->ranks : 1);
    return sum;
}

/* Stages of one offload that need the same are one line. Returns how many, largest first. */
static int series_find(const struct plot *p, int place, struct series *found)
{
    int count = 0;
    for (int i = 0; i < p->count; i++) {
        const struct result *r = &p->results[i];
        int offload = offload_index(r->offload), k = 0;
        double bytes = theory(p->s, r->stage, offload, place);
        if (bytes <= 0)
            continue;
        while (k < count && (found[k].offload != offload || found[k].bytes != bytes))
            k++;
        if (k == count)
            found[count++] = (struct series){.bytes = bytes, .offload = offload};
        found[k].stages |= 1 << r->stage;
    }
    for (int i = 0; i < count; i++)
        for (int k = i + 1; k < count; k++)
            if (found[k].bytes > found[i].bytes) {
                struct series t = found[i];
                found[i] = found[k];
                found[k] = t;
            }
    return count;
}

/* -------------------------------------------------------------------- the axes */

static double x_of(const struct plot *p, double params)
{
    return LEFT + WIDTH * (log10(params) - p->x0) / (p->x1 - p->x0);
}

static double y_of(const struct plot *p, double bytes)
{
    return TOP + HEIGHT * (1 - (log2(bytes) - p->y0) / (p->y1 - p->y0));
}

static void widen(double value, double *low, double *high)
{
    *low = value < *low ? value : *low;
    *high = value > *high ? value : *high;
}

static bool shown(const struct result *r, int place)
{
    return r->planned[place] > 0 && !r->failed;
}

static int64_t bytes_shown(const struct result *r, int place)
{
    return r->fits ? r->measured[place] : r->planned[place];
}

static void axes_find(struct plot *p)
{
    p->x0 = p->y0 = INFINITY;
    p->x1 = p->y1 = -INFINITY;
    for (int i = 0; i < p->count; i++) {
        const struct result *r = &p->results[i];
        widen(log10((double)r->params), &p->x0, &p->x1);
        for (int place = 0; place < PLACES; place++) {
            double bytes = theory(p->s, r->stage, offload_index(r->offload), place);
            if (bytes > 0)
                widen(log2(bytes * (double)r->params), &p->y0, &p->y1);
            if (shown(r, place) && bytes_shown(r, place) > 0)
                widen(log2((double)bytes_shown(r, place)), &p->y0, &p->y1);
        }
    }
    for (int place = 0; place < PLACES; place++)
        if (p->s->a->memory[place])
            widen(log2((double)p->s->a->memory[place]), &p->y0, &p->y1);
    double margin = p->x1 - p->x0 < 0.5 ? 0.4 : 0.1 * (p->x1 - p->x0);
    p->x0 -= margin;
    p->x1 += margin;
    p->y0 = floor(p->y0 - 0.3);
    p->y1 = ceil(p->y1 + 0.3);
}

static void text(const struct plot *p, double x, double y, const char *attributes,
                 const char *words)
{
    fprintf(p->out, "<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, attributes, words);
}

static void x_ticks(const struct plot *p)
{
    static const int steps[] = {1, 2, 5};
    bool dense = p->x1 - p->x0 < 1.7;
    for (int decade = (int)floor(p->x0); decade <= (int)p->x1; decade++)
        for (int i = 0; i < (dense ? 3 : 1); i++) {
            double params = steps[i] * pow(10, decade), x = x_of(p, params);
            char words[32], unit;
            if (log10(params) < p->x0 || log10(params) > p->x1)
                continue;
            fprintf(p->out, "<path class=\"grid\" d=\"M%.1f %dv%d\"/>\n", x, TOP, HEIGHT);
            params = in_letters(params, &unit);
            snprintf(words, sizeof(words), "%.4g%c", params, unit);
            text(p, x, TOP + HEIGHT + 16, "text-anchor=\"middle\"", words);
        }
}

static void y_ticks(const struct plot *p)
{
    int apart = p->y1 - p->y0 > 16 ? 4 : p->y1 - p->y0 > 8 ? 2 : 1;
    for (int power = (int)p->y0; power <= (int)p->y1; power++) {
        if (power % apart)
            continue;
        double y = y_of(p, pow(2, power));
        char words[32];
        fprintf(p->out, "<path class=\"grid\" d=\"M%d %.1fh%d\"/>\n", LEFT, y, WIDTH);
        static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
        snprintf(words, sizeof(words), "%.0f %s", pow(2, power % 10), units[power / 10 % 6]);
        text(p, LEFT - 6, y + 4, "text-anchor=\"end\"", words);
    }
}

/* ------------------------------------------------------------------- the marks */

/* Where two offloads need the same, one mark stands within the other. */
static void mark(const struct plot *p, double x, double y, int stage, int offload)
{
    static const char *const shapes[STAGES] = {
        "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
        "M-4.5 -4.5h9v9h-9z",
        "M0 -6.5l6.5 6.5l-6.5 6.5l-6.5 -6.5z",
        "M0 -6l5.6 9.6h-11.2z",
    };
    fprintf(p->out,
            "<path class=\"mark\" stroke=\"%s\" transform=\"translate(%.1f %.1f) scale(%.1f)\" "
            "d=\"%s\"/>\n",
            offload < 0 ? "#333" : colours[offload], x, y, offload == 2 ? 0.6 : 1.0, shapes[stage]);
}

static void cross(const struct plot *p, double x, double y, const char *colour)
{
    fprintf(p->out,
            "<path stroke=\"%s\" stroke-width=\"1.4\" d=\"M%.1f %.1fm-3.5 -3.5l7 7m0 -7l-7 7\"/>\n",
            colour, x, y);
}

/* Lines that lie on each other show their colours in turn. */
static void lines(const struct plot *p, int place)
{
    struct series found[PLACES * STAGES];
    int count = series_find(p, place, found);
    double below = TOP - LABEL, low = pow(10, p->x0), high = pow(10, p->x1);
    for (int i = 0; i < count; i++) {
        const struct series *s = &found[i];
        char words[64], stages[16] = "";
        double end = y_of(p, s->bytes * high);
        fprintf(p->out,
                "<path class=\"theory\" clip-path=\"url(#frame)\" stroke=\"%s\" "
                "stroke-dashoffset=\"%d\" "
                "d=\"M%d %.1fL%d %.1f\"/>\n",
                colours[s->offload], 4 * s->offload, LEFT, y_of(p, s->bytes * low), LEFT + WIDTH,
                end);
        for (int stage = 0; stage < STAGES; stage++)
            if (s->stages >> stage & 1)
                snprintf(stages + strlen(stages), sizeof(stages) - strlen(stages), "%s%d",
                         *stages ? "," : "", stage);
        snprintf(words, sizeof(words), "%s %s: %.3g B", offload_name(s->offload), stages, s->bytes);
        below = end > below + LABEL ? end : below + LABEL;
        char attributes[48];
        snprintf(attributes, sizeof(attributes), "fill=\"%s\"", colours[s->offload]);
        text(p, LEFT + WIDTH + 5, below + 4, attributes, words);
    }
}

/* The models' names along the axis, where there is room. */
static void names(const struct plot *p)
{
    for (int i = 0; i < p->count; i++) {
        const struct size *size = &p->results[i].size;
        double x = x_of(p, (double)p->results[i].params);
        bool room = true;
        for (int k = 0; k < i; k++)
            room = room && fabs(x_of(p, (double)p->results[k].params) - x) >
                               6.5 * (double)strlen(size->name);
        if (room)
            text(p, x, TOP + HEIGHT - 6, "class=\"name\"", size->name);
    }
}

static void panel(const struct plot *p, int place)
{
    static const char *const titles[PLACES] = {"device", "host memory", "files"};
    fprintf(p->out, "<g transform=\"translate(%d 0)\">\n", place * PANEL);
    text(p, LEFT, TOP - 8, "class=\"title\"", titles[place]);
    x_ticks(p);
    y_ticks(p);
    fprintf(p->out, "<rect class=\"frame\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", LEFT,
            TOP, WIDTH, HEIGHT);
    int64_t limit = p->s->a->memory[place];
    if (limit) {
        double y = y_of(p, (double)limit);
        char words[48];
        fprintf(p->out, "<path class=\"limit\" d=\"M%d %.1fh%d\"/>\n", LEFT, y, WIDTH);
        snprintf(words, sizeof(words), "limit: %s", in_bytes(limit).text);
        text(p, LEFT + 5, y - 4, "", words);
    }
    lines(p, place);
    names(p);
    for (int i = 0; i < p->count; i++) {
        const struct result *r = &p->results[i];
        int offload = offload_index(r->offload);
        if (!shown(r, place) || bytes_shown(r, place) <= 0)
            continue;
        double x = x_of(p, (double)r->params), y = y_of(p, (double)bytes_shown(r, place));
        if (r->fits)
            mark(p, x, y, r->stage, offload);
        else
            cross(p, x, y, colours[offload]);
    }
    text(p, LEFT + WIDTH / 2, TOP + HEIGHT + 36, "text-anchor=\"middle\"", "parameters");
    fputs("</g>\n", p->out);
}

static void legend(const struct plot *p)
{
    char words[160];
    double x = LEFT, y = 46;
    snprintf(words, sizeof(words), "Memory of a rank by the model's size: %s, bf16 with Adam",
             counted(p->s->ranks, "rank").text);
    text(p, LEFT, 24, "class=\"title\"", words);
    for (int i = 0; i < PLACES; i++, x += 118) {
        fprintf(p->out, "<path stroke=\"%s\" stroke-width=\"3\" d=\"M%.0f %.0fh18\"/>\n",
                colours[i], x, y - 4);
        snprintf(words, sizeof(words), "offload %s", offload_name(i));
        text(p, x + 24, y, "", words);
    }
    for (int i = 0; i < STAGES; i++, x += 80) {
        mark(p, x + 8, y - 4, i, -1);
        snprintf(words, sizeof(words), "stage %d", i);
        text(p, x + 20, y, "", words);
    }
    text(p, x, y, "", "(measured)");
    cross(p, x + 94, y - 4, "#333");
    text(p, x + 106, y, "", "does not fit (planned)");
    fprintf(p->out, "<path class=\"theory\" stroke=\"#333\" d=\"M%d %.0fh36\"/>\n", LEFT, y + 16);
    text(
        p, LEFT + 42, y + 20, "",
        "theory: offload, stages, bytes per parameter. Slots come on top, for the units and chunks "
        "under way: they do not grow with the number of layers.");
}

void plot_write(FILE *svg, const struct scale *s, const struct result *results, int count)
{
    struct plot p = {.out = svg, .s = s, .results = results, .count = count};
    int width = PLACES * PANEL, height = TOP + HEIGHT + BOTTOM;
    axes_find(&p);
    fprintf(svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\">\n<style>\n"
            "svg { font: 12px sans-serif; fill: #222; background: #fff }\n"
            ".title { font-weight: bold; font-size: 14px }\n"
            ".grid { stroke: #e2e2e2 }\n"
            ".frame { fill: none; stroke: #555 }\n"
            ".limit { stroke: #777; stroke-width: 1.5 }\n"
            ".theory { fill: none; stroke-width: 1.6; stroke-dasharray: 4 8 }\n"
            ".name { fill: #777; text-anchor: middle }\n"
            ".mark { fill: none; stroke-width: 1.5; vector-effect: non-scaling-stroke }\n"
            "</style>\n<clipPath id=\"frame\"><rect x=\"%d\" y=\"%d\" width=\"%d\" "
            "height=\"%d\"/></clipPath>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
            width, height, width, height, LEFT, TOP, WIDTH, HEIGHT, width, height);
    legend(&p);
    for (int place = 0; place < PLACES; place++)
        panel(&p, place);
    fputs("</svg>\n", svg);
}
