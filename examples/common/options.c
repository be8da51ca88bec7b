// SPDX-License-Identifier: Apache-2.0
/* The parser behind options.h. Defaults go through the same code as arguments,
 * so what --help prints is what a run gets. */
#include "examples/common/options.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/refuse.h"

bool options_is_help(const char *argument)
{
    return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

static bool is_option(const char *argument)
{
    return options_is_help(argument) || (strncmp(argument, "--", 2) == 0 && argument[2]);
}

static int find(const struct option *table, int count, const char *name, size_t length)
{
    for (int i = 0; i < count; i++)
        if (strlen(table[i].name) == length && memcmp(table[i].name, name, length) == 0)
            return i;
    return -1;
}

int options_index(const struct option *table, int count, const char *name)
{
    int i = find(table, count, name, strlen(name));
    assert(i >= 0);
    return i;
}

/* ------------------------------------------------------------------- choices */

const struct option_choice *options_choice(const struct option_choice *choices, const char *name)
{
    for (const struct option_choice *c = choices; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

const char *options_choice_name(const struct option_choice *choices, int value)
{
    while (choices->value != value)
        choices++;
    return choices->name;
}

void options_choices_join(const struct option_choice *choices, const char *between,
                          const char *last, char *out, size_t size)
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; choices[i].name; i++) {
        if (choices[i].hidden)
            continue;
        bool more = false; /* whether another shown one follows */
        for (int j = i + 1; choices[j].name; j++)
            more = more || !choices[j].hidden;
        const char *join = used == 0 ? "" : more ? between : last;
        used += (size_t)snprintf(out + used, size - used, "%s%s", join, choices[i].name);
        assert(used < size);
    }
}

/* ---------------------------------------------------------------- sentences */

/* What a value must be, in words. */
static void expected(const struct option *o, char *out, size_t size)
{
    if (o->kind == OPTION_WHOLE)
        snprintf(out, size, "a whole number from %.0f to %.0f", o->min, o->max);
    else if (o->kind == OPTION_SIZE)
        snprintf(out, size, "a whole number from %.0f to %.0f, such as 4096, 64K%s", o->min, o->max,
                 o->max < 0x1p32 ? " or 1M" : ", 512M or 4G");
    else if (o->kind == OPTION_REAL)
        snprintf(out, size, "%s", o->range);
    else if (o->kind == OPTION_CHOICE)
        options_choices_join(o->choices, ", ", " or ", out, size);
    else
        snprintf(out, size, "a value that is not empty");
}

static int refuse_value(const struct option *o, const char *value, struct sink sink)
{
    char words[256];
    expected(o, words, sizeof(words));
    return refuse(sink, "--%s cannot be '%s'. Give %s.", o->name, value, words);
}

/* Edits (insert, drop, replace one letter) that turn a into b. */
static int distance(const char *a, size_t a_length, const char *b)
{
    int row[64];
    size_t b_length = strlen(b);
    assert(b_length < 64);
    for (size_t j = 0; j <= b_length; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= a_length; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_length; j++) {
            int replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            int other = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = replaced < other ? replaced : other;
        }
    }
    return row[b_length];
}

static int refuse_name(const struct option *table, int count, const char *argument, size_t length,
                       struct sink sink)
{
    int best = -1, best_distance = length < 6 ? (int)length / 2 + 1 : 4; /* further: no hint */
    for (int i = 0; i < count; i++) {
        int d = distance(argument + 2, length, table[i].name);
        if (d < best_distance && table[i].help) {
            best = i;
            best_distance = d;
        }
    }
    if (best < 0)
        return refuse(sink, "There is no option --%.*s. See --help for those there are.",
                      (int)length, argument + 2);
    return refuse(sink, "There is no option --%.*s. Did you mean --%s? See --help for all.",
                  (int)length, argument + 2, table[best].name);
}

/* ------------------------------------------------------------------- values */

static int64_t factor(char suffix)
{
    switch (suffix) {
    case 'K': return (int64_t)1 << 10;
    case 'M': return (int64_t)1 << 20;
    case 'G': return (int64_t)1 << 30;
    case 'T': return (int64_t)1 << 40;
    default: return 0;
    }
}

bool options_size(const char *text, int64_t *bytes)
{
    static const char suffixes[] = "kmgKMG";
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || value <= 0)
        return false;
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    int shift = suffix ? 10 * (1 + (int)(suffix - suffixes) % 3) : 0;
    end += suffix != NULL;
    return *end == 0 && !__builtin_mul_overflow((int64_t)value, (int64_t)1 << shift, bytes);
}

/* A whole number within the option's bounds, with or without a suffix. */
static bool take_whole(const struct option *o, const char *value, int64_t *out)
{
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (errno || end == value || (value[0] != '-' && (value[0] < '0' || value[0] > '9')))
        return false;
    int64_t result = number;
    if (o->kind == OPTION_SIZE && *end) {
        int64_t by = factor(*end++);
        if (by == 0 || __builtin_mul_overflow(result, by, &result))
            return false;
    }
    *out = result;
    return *end == 0 && result >= (int64_t)o->min && result <= (int64_t)o->max;
}

static bool take_real(const struct option *o, const char *value, double *out)
{
    char *end;
    errno = 0;
    *out = strtod(value, &end);
    bool small = errno == ERANGE && fabs(*out) < 1; /* 0 would be another number */
    return end != value && *end == 0 && !small && *out >= o->min && *out <= o->max; /* NaN is not */
}

static bool take_choice(const struct option *o, const char *value, int *out)
{
    const struct option_choice *c = options_choice(o->choices, value);
    if (c)
        *out = c->value;
    return c;
}

/* Writes one value into its field. */
static int take(const struct option *o, const char *value, void *into, struct sink sink)
{
    char *field = (char *)into + o->offset;
    int64_t whole = 0;
    double real = 0;
    int choice = 0;
    bool good = true;
    switch (o->kind) {
    case OPTION_FLAG: *(bool *)field = true; break;
    case OPTION_WHOLE:
        if ((good = take_whole(o, value, &whole)))
            *(int *)field = (int)whole;
        break;
    case OPTION_SIZE:
        if ((good = take_whole(o, value, &whole)))
            *(int64_t *)field = whole;
        break;
    case OPTION_REAL:
        if ((good = take_real(o, value, &real)))
            *(double *)field = real;
        break;
    case OPTION_CHOICE:
        if ((good = take_choice(o, value, &choice)))
            *(int *)field = choice;
        break;
    case OPTION_TEXT:
        if ((good = value[0] != 0))
            *(const char **)field = value;
        break;
    case OPTION_LIST: {
        struct option_list *list = (struct option_list *)field;
        if (list->count == OPTION_LIST_MAX)
            return refuse(sink, "--%s has more than %d values. Give fewer; a folder counts as one.",
                          o->name, OPTION_LIST_MAX);
        if ((good = value[0] != 0))
            list->items[list->count++] = value;
        break;
    }
    }
    return good ? 0 : refuse_value(o, value, sink);
}

/* ------------------------------------------------------------------ parsing */

/* The first value of a list takes the place of what is in it. */
static void list_begin(const struct option *o, bool first, void *into)
{
    if (o->kind == OPTION_LIST && first)
        ((struct option_list *)(void *)((char *)into + o->offset))->count = 0;
}

static void set_defaults(const struct option *table, int count, void *into)
{
    for (int i = 0; i < count; i++) {
        if (!table[i].initial)
            continue;
        char words[512] = "";
        list_begin(&table[i], true, into);
        int status = take(&table[i], table[i].initial, into, (struct sink){words, sizeof(words)});
        assert(status == 0);
        (void)status;
    }
}

int options_parse(const struct option *table, int count, int argc, char **argv, void *into,
                  bool *given, char *error, size_t error_size)
{
    struct sink sink = {error, error_size};
    memset(given, 0, (size_t)count * sizeof(*given));
    set_defaults(table, count, into);
    for (int at = 1; at < argc;) {
        const char *argument = options_is_help(argv[at]) ? "--help" : argv[at];
        at++;
        if (!is_option(argument))
            return refuse(sink, "'%s' is no option. Options begin with --; see --help.", argument);
        const char *equals = strchr(argument, '=');
        size_t length = equals ? (size_t)(equals - argument) - 2 : strlen(argument) - 2;
        int index = find(table, count, argument + 2, length);
        if (index < 0)
            return refuse_name(table, count, argument, length, sink);
        const struct option *o = &table[index];
        if (o->kind == OPTION_FLAG && equals)
            return refuse(sink, "--%s takes no value, but '%s' gives one. Leave it out.", o->name,
                          argument);
        bool needs = o->kind != OPTION_FLAG && !equals;
        if (needs && (at == argc || is_option(argv[at])))
            return refuse(sink, "--%s needs a value (--%s %s).", o->name, o->name,
                          o->value ? o->value : o->choices[0].name);
        list_begin(o, !given[index], into);
        given[index] = true;
        if (take(o, needs ? argv[at++] : equals ? equals + 1 : "", into, sink))
            return -1;
        for (; o->kind == OPTION_LIST && at < argc && !is_option(argv[at]); at++)
            if (take(o, argv[at], into, sink))
                return -1;
    }
    return 0;
}

/* --------------------------------------------------------------------- help */

enum { HELP_INDENT = 32, HELP_WIDTH = 100 };

/* Prints text in the right-hand column, broken between words. */
static void print_wrapped(const char *text, int column, FILE *out)
{
    while (*text) {
        size_t word = strcspn(text, " ");
        if (column + (int)word + 1 > HELP_WIDTH) {
            fprintf(out, "\n%*s", HELP_INDENT - 1, "");
            column = HELP_INDENT - 1;
        }
        fprintf(out, " %.*s", (int)word, text);
        column += (int)word + 1;
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

void options_help(const struct option *table, int count, FILE *out)
{
    for (int i = 0; i < count; i++) {
        const struct option *o = &table[i];
        char value[160] = "", line[1024];
        if (!o->help)
            continue;
        if (o->kind == OPTION_CHOICE)
            options_choices_join(o->choices, "|", "|", value, sizeof(value));
        else if (o->value)
            snprintf(value, sizeof(value), "%s", o->value);
        int column = fprintf(out, "  --%s%s%s", o->name, *value ? " " : "", value);
        if (column >= HELP_INDENT) {
            fputc('\n', out);
            column = 0;
        }
        fprintf(out, "%*s", HELP_INDENT - 1 - column, "");
        const char *initial = o->shown ? o->shown : o->initial;
        snprintf(line, sizeof(line), initial ? "%s (default: %s)" : "%s", o->help,
                 initial ? initial : "");
        print_wrapped(line, HELP_INDENT - 1, out);
    }
}
