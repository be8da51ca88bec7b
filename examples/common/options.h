// SPDX-License-Identifier: Apache-2.0
/* Command lines from one table: it sets the defaults, parses the arguments and
 * prints --help. It knows single options only: which of them contradict each
 * other is for the program to say. */
#ifndef EXAMPLES_COMMON_OPTIONS_H
#define EXAMPLES_COMMON_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What an option's value is, and the type of the field that takes it. */
enum option_kind {
    OPTION_FLAG,   /* bool: present or not, takes no value */
    OPTION_WHOLE,  /* int */
    OPTION_SIZE,   /* int64_t: a whole number; K, M, G or T behind it: times 1024 to 1024^4 */
    OPTION_REAL,   /* double */
    OPTION_CHOICE, /* int: one of choices */
    OPTION_TEXT,   /* const char *: a pointer into argv */
    OPTION_LIST,   /* struct option_list: everything up to the next option */
};

#define OPTION_LIST_MAX 4096

struct option_list {
    const char *items[OPTION_LIST_MAX]; /* pointers into argv */
    int count;
};

struct option_choice {
    const char *name; /* NULL ends the array */
    int value;
    bool hidden; /* another word for a choice that is shown */
};

struct option {
    const char *name; /* without the dashes */
    enum option_kind kind;
    size_t offset;       /* of the field in the program's structure */
    const char *initial; /* the default, written as on the command line; NULL: none */
    const char *shown;   /* the default in words, where it is not a constant; else NULL */
    double min, max;     /* of numbers, both allowed; of whole ones within 2^53 */
    const char *range;   /* the range of an OPTION_REAL in words */
    const struct option_choice *choices;
    const char *value; /* name of the value in --help; NULL for flags and choices */
    const char *help;  /* NULL: this build cannot do it, and --help does not show it */
};

/* What a table's rows say of kind and field; OPTIONS_OF is the program's structure. */
#define FIELD(field)              .offset = offsetof(OPTIONS_OF, field)
#define FLAG(field)               .kind = OPTION_FLAG, FIELD(field)
#define WHOLE(field, least, most) .kind = OPTION_WHOLE, FIELD(field), .min = least, .max = most
#define SIZE(field, least, most)  .kind = OPTION_SIZE, FIELD(field), .min = least, .max = most
#define REAL(field)               .kind = OPTION_REAL, FIELD(field)
#define CHOICE(field, list)       .kind = OPTION_CHOICE, FIELD(field), .choices = list
#define TEXT(field)               .kind = OPTION_TEXT, FIELD(field)
#define LIST(field)               .kind = OPTION_LIST, FIELD(field)

/* The help of what a build without it refuses. */
#ifdef HAVE_CUDA
#define WITH_CUDA(text) text
#else
#define WITH_CUDA(text) NULL
#endif
#ifdef HAVE_CUBLAS
#define WITH_CUBLAS(text) text
#else
#define WITH_CUBLAS(text) NULL
#endif
#ifdef HAVE_XXHASH
#define WITH_XXHASH(text) text
#else
#define WITH_XXHASH(text) NULL
#endif

/* Writes every default into *into; then the arguments argv[1 .. argc - 1] over
 * them, the last one counting where an option is repeated (lists grow).
 * Accepts --name value and --name=value. given (count elements) says which
 * options appeared. Returns 0, or -1 with one or two sentences in error. */
int options_parse(const struct option *table, int count, int argc, char **argv, void *into,
                  bool *given, char *error, size_t error_size);

/* One entry per option, with its default, at most 100 columns wide. */
void options_help(const struct option *table, int count, FILE *out);

/* A number of bytes above 0, K, M or G behind it, as the library reads its variables. */
bool options_size(const char *text, int64_t *bytes);

/* --help, or -h. */
bool options_is_help(const char *argument);

/* Choices: the one of this name, or NULL; the name of a value that one has; all that are shown,
 * with between between them and last before the last. */
const struct option_choice *options_choice(const struct option_choice *choices, const char *name);
const char *options_choice_name(const struct option_choice *choices, int value);
void options_choices_join(const struct option_choice *choices, const char *between,
                          const char *last, char *out, size_t size);

/* The entry called name; it must exist. */
int options_index(const struct option *table, int count, const char *name);

#endif
