// SPDX-License-Identifier: Apache-2.0
/* Amounts as people read them: short, with a unit. Not for files that programs
 * read. */
#ifndef EXAMPLES_COMMON_FIGURE_H
#define EXAMPLES_COMMON_FIGURE_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct figure {
    char text[24];
};

static inline struct figure in_bytes(int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    struct figure f;
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 5; unit++)
        value /= 1024;
    snprintf(f.text, sizeof(f.text), unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return f;
}

/* To the byte where the other amount differs and would read the same. */
static inline struct figure in_bytes_beside(int64_t bytes, int64_t other)
{
    struct figure f = in_bytes(bytes);
    if (bytes != other && strcmp(f.text, in_bytes(other).text) == 0)
        snprintf(f.text, sizeof(f.text), "%lld B", (long long)bytes);
    return f;
}

static inline struct figure in_seconds(double seconds)
{
    struct figure f;
    snprintf(f.text, sizeof(f.text), seconds < 999.5 ? "%.3g s" : "%.0f s", seconds);
    return f;
}

/* Thousands of what may be few: three digits from one up to 100 thousand. */
static inline struct figure in_thousands(double count)
{
    struct figure f;
    int digits = 1;
    for (double least = 10; count < 1e3 * least && digits < 5; least /= 10)
        digits++;
    snprintf(f.text, sizeof(f.text), "%.*f", digits, count / 1e3);
    return f;
}

/* In thousands, millions and so on; *unit takes the letter. */
static inline double in_letters(double count, char *unit)
{
    int k = 0;
    for (count /= 1e3; count >= 1e3 && k < 3; k++)
        count /= 1e3;
    *unit = "KMGT"[k];
    return count;
}

/* "1 rank", "2 ranks". */
static inline struct figure counted(int64_t count, const char *noun)
{
    struct figure f;
    snprintf(f.text, sizeof(f.text), "%lld %s%s", (long long)count, noun, count == 1 ? "" : "s");
    return f;
}

static inline struct figure in_words(int64_t count)
{
    struct figure f;
    double value = (double)count;
    if (count >= 1000000000)
        snprintf(f.text, sizeof(f.text), "%.2f billion", value / 1e9);
    else if (count >= 1000000)
        snprintf(f.text, sizeof(f.text), "%.1f million", value / 1e6);
    else
        snprintf(f.text, sizeof(f.text), "%.0f", value);
    return f;
}

#endif
