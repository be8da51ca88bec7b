// SPDX-License-Identifier: Apache-2.0
#include "examples/memscale/table.h"

#include "examples/common/figure.h"

static void print_limits(const struct scale *s)
{
    static const char *const names[PLACES] = {"device", "host memory", "files"};
    const char *join = "limits of a rank: ";
    for (int i = 0; i < PLACES; i++) {
        if (s->a->memory[i] == 0)
            continue;
        printf("%s%s %s", join, names[i], in_bytes(s->a->memory[i]).text);
        join = ", ";
    }
    if (*join == ',')
        putchar('\n');
}

void table_header(const struct scale *s)
{
    printf("memscale with libzero %s: %s, %d on this node; bf16 with Adam\n", ZERO_VERSION,
           counted(s->ranks, "rank").text, s->local);
    if (s->gpu.count)
        printf("device: %s, %s of %s free, %s on it\n", s->gpu.name,
               in_bytes(s->gpu.memory_free).text, in_bytes(s->gpu.memory).text,
               counted(s->on_gpu, "rank").text);
    print_limits(s);
    printf("\n%33s  %-21s  %-21s  %-21s  %8s\n", "", "device of a rank", "host memory of a rank",
           "files of a rank", "seconds");
    printf("%5s %-7s %-11s %7s  %10s %10s  %10s %10s  %10s %10s  %8s\n", "stage", "offload",
           "model", "params", "planned", "measured", "planned", "measured", "planned", "measured",
           "a step");
    fflush(stdout);
}

static struct figure in_short(int64_t count)
{
    struct figure f;
    char unit;
    double value = in_letters((double)count, &unit);
    snprintf(f.text, sizeof(f.text), "%.*f%c", count >= 1000000000 ? 2 : 1, value, unit);
    return f;
}

void table_row(const struct result *r)
{
    printf("%5d %-7s %-11s %7s  ", r->stage, arguments_offload(r->offload), r->size.name,
           in_short(r->params).text);
    if (!r->fits) {
        printf("%s: %s\n", r->failed ? "failed" : "does not fit", r->why);
        fflush(stdout);
        return;
    }
    for (int i = 0; i < PLACES; i++)
        printf("%10s %10s  ", r->planned[i] ? in_bytes(r->planned[i]).text : "-",
               r->measured[i] ? in_bytes(r->measured[i]).text : "-");
    printf("%8.3g\n", r->seconds);
    if (r->largest)
        printf("%33s  is the largest; with one layer more: %s\n", "", r->why);
    fflush(stdout);
}

void table_end(const struct scale *s)
{
    if (s->gpu.count)
        printf("\nMeasured on the device: how much less of its memory is free, whoever uses it, "
               "divided by this\ntest's ranks on it.\n");
    printf("\nMeasured: by the kernel. Memory is taken in huge pages of 2 MiB where there are "
           "some; what the host\nhas above its plan is the engine's tables and threads. After a "
           "configuration rank 0 kept at most %s\nmore than it had before the first.\n",
           in_bytes(s->left).text);
}

void table_csv_header(FILE *csv)
{
    if (csv)
        fputs("stage,offload,model,layers,channels,params,ranks,device_planned,device_measured,"
              "host_planned,host_measured,nvme_planned,nvme_measured,step_seconds,fits,largest,"
              "reason\n",
              csv);
}

void table_csv_row(FILE *csv, const struct result *r, int ranks)
{
    if (!csv)
        return;
    fprintf(csv, "%d,%s,%s,%d,%d,%lld,%d", r->stage, arguments_offload(r->offload), r->size.name,
            r->size.shape.layers, r->size.shape.channels, (long long)r->params, ranks);
    for (int i = 0; i < PLACES; i++)
        if (r->fits)
            fprintf(csv, ",%lld,%lld", (long long)r->planned[i], (long long)r->measured[i]);
        else
            fprintf(csv, ",%lld,", (long long)r->planned[i]);
    if (r->fits)
        fprintf(csv, ",%.6g", r->seconds);
    else
        fputs(",", csv);
    fprintf(csv, ",%s,%d,\"", r->failed ? "" : r->fits ? "1" : "0", r->largest);
    for (const char *c = r->why; *c; c++)
        fputc(*c == '"' ? '\'' : *c, csv);
    fputs("\"\n", csv);
    fflush(csv);
}
