// SPDX-License-Identifier: Apache-2.0
/* `zero info`: what this machine and this build offer. One process per node
 * speaks, and what it says goes out in one piece. */
#include "examples/zero/info.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/launch.h"
#include "examples/zero/disk.h"
#include "examples/zero/launcher.h"
#include "examples/zero/tool.h"

/* ------------------------------------------------------------------ printing */

void info_fact(const char *name, const char *format, ...)
{
    va_list args;
    printf("  %-26s ", name);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

bool info_line(const char *path, char *line, size_t size)
{
    FILE *f = fopen(path, "re");
    bool read = f && fgets(line, (int)size, f);
    if (f)
        fclose(f);
    if (read)
        line[strcspn(line, "\n")] = 0;
    return read;
}

bool info_value(const char *path, const char *key, char *value, size_t size)
{
    FILE *f = fopen(path, "re");
    char line[8192];
    bool found = false;
    while (f && !found && fgets(line, sizeof(line), f)) {
        size_t n = strlen(key);
        if (strncmp(line, key, n) != 0)
            continue;
        const char *text = line + n + strspn(line + n, " \t");
        if (*text++ != ':')
            continue;
        text += strspn(text, " \t");
        snprintf(value, size, "%.*s", (int)strcspn(text, "\n"), text);
        found = true;
    }
    if (f)
        fclose(f);
    return found;
}

/* --------------------------------------------------------------------- disks */

static void disk_print(const char *label, const char *path)
{
    struct disk d;
    disk_look(&d, path);
    if (d.refused) {
        info_fact(label, "%s: %s", path, strerror(d.refused));
        return;
    }
    info_fact(label, "%s: %s on %s, %s free, %s", path, d.type, d.device,
              d.free == INT64_MAX ? "an unknown amount" : in_bytes(d.free).text,
              d.direct ? "O_DIRECT" : "no O_DIRECT (through the page cache)");
    if (d.memory)
        info_fact("", "%s is RAM: what is offloaded to it takes memory", d.type);
}

static void info_disks(void)
{
    const char *variable, *path = disk_default(&variable);
    char label[32];
    puts("disks");
    info_fact("default for nvme", "%s (%s%s)", path, variable ? "$" : "",
              variable ? variable : "neither $SLURM_TMPDIR nor $TMPDIR is set");
    for (int i = 0; i < DISK_VARIABLES; i++) {
        const char *value = getenv(disk_variables[i]);
        snprintf(label, sizeof(label), "$%s", disk_variables[i]);
        if (value && *value)
            disk_print(label, value);
        else
            info_fact(label, "not set");
    }
    disk_print("/var/tmp", "/var/tmp");
}

/* -------------------------------------------------------------------- launch */

static void info_launch(const struct launch *l)
{
    struct launcher launcher = launcher_find();
    puts("launch");
    info_fact("launched under", "%s", launcher.by);
    info_fact("that means", "%s", launcher.meaning);
    info_fact("rank", "%d of %d", l->rank, l->ranks);
    for (const char *const *name = launcher_variables; *name; name++)
        if (getenv(*name))
            info_fact(*name, "%s", getenv(*name));
}

/* ------------------------------------------------------------------- command */

struct info_options {
    bool help;
};

#define OPTIONS_OF struct info_options

static const struct option table[] = {
    {"help", FLAG(help), .help = "print this and end"},
};
static const struct tool_options options = {
    .usage =
        "usage: zero info\n\n"
        "Prints what this build has and what this machine offers, a fact a line. Under mpirun\n"
        "or srun one process of each node speaks.\n",
    .table = table,
    .count = sizeof(table) / sizeof(*table),
};

int info_command(int argc, char **argv)
{
    struct info_options o = {0};
    bool given[sizeof(table) / sizeof(*table)];
    int status = tool_parse(&options, argc, argv, &o, given, &o.help);
    if (status != TOOL_GO_ON)
        return status;
    struct launch l = launch_find();
    if (l.local_rank != 0)
        return 0;
    static char whole[1 << 16];
    setvbuf(stdout, whole, _IOFBF, sizeof(whole));
    info_versions();
    info_cpu();
    info_memory();
    info_disks();
    info_gpu();
    info_launch(&l);
    return 0;
}
