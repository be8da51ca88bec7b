// SPDX-License-Identifier: Apache-2.0
/* As much is read as written at once, at the rate of both; what is left of one is moved alone. */
#include "examples/common/predict.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

double predict_files(double read, double written, const struct zero_probe *probe)
{
    double least = read < written ? read : written;
    if (!(probe->read > 0 && probe->write > 0 && probe->both > 0))
        return 0;
    return 2 * least / probe->both + (read - least) / probe->read +
           (written - least) / probe->write;
}

struct prediction predict_update(const struct zero_plan *plan, int local_ranks,
                                 const struct zero_probe *probe, double stream)
{
    double ranks = local_ranks, read = (double)plan->read_bytes,
           written = (double)plan->written_bytes;
    assert(local_ranks >= 1);
    struct prediction p = {.files = read + written > 0};
    if (p.files)
        p.disk = ranks * predict_files(read, written, probe);
    if (stream > 0)
        p.memory = ranks * (double)plan->update_bytes / stream;
    if (p.files ? p.disk > 0 : stream > 0)
        p.seconds = p.disk > p.memory ? p.disk : p.memory;
    return p;
}

/* A name as one word of a shell; quotes in it stand alone, as '\''. */
static void print_word(FILE *f, const char *name)
{
    bool bare = name[strcspn(name, " \t\n&;()<>|*?[]{}$#!~`\"'\\")] == 0;
    fputs(bare ? "" : "'", f);
    for (; *name; name++)
        fprintf(f, *name == '\'' ? "'\\%c'" : "%c", *name);
    fputs(bare ? "" : "'", f);
}

/* The tool lies beside the program that speaks of it. */
static void print_tool(FILE *f)
{
    const char *program = program_invocation_name, *name = strrchr(program, '/');
    char tool[512];
    snprintf(tool, sizeof(tool), "%.*szero", name ? (int)(name + 1 - program) : 0, program);
    print_word(f, tool);
}

const char *predict_advice(const char *folders, char *text, size_t size)
{
    FILE *f = fmemopen(text, size, "w");
    if (!f)
        return "ZERO_PROBE=1 zero bench step";
    fputs("ZERO_PROBE=1 ", f);
    print_tool(f);
    fputs(" bench step --quick --nvme-path ", f);
    if (strchr(folders, ':'))
        fputs("FOLDER, once for each folder,", f);
    else
        print_word(f, folders);
    fclose(f); /* what it has no room for is cut; a zero ends it */
    text[size - 1] = 0;
    return text;
}

const char *predict_unknown(const char *folders, char *text, size_t size)
{
    const char *asked = getenv("ZERO_PROBE");
    struct stat st;
    if (asked && strcmp(asked, "0") == 0) {
        snprintf(text, size, "ZERO_PROBE is 0, so no probe is used");
        return text;
    }
    if (!strchr(folders, ':') && (stat(folders, &st) || !S_ISDIR(st.st_mode))) {
        snprintf(text, size, "%s is not an existing folder; name another with --nvme-path",
                 folders);
        return text;
    }
    size_t used = (size_t)snprintf(text, size, "no probe of %s is known; ", folders);
    if (used < size)
        predict_advice(folders, text + used, size - used);
    used = strlen(text);
    snprintf(text + used, size - used, " measures it");
    return text;
}
