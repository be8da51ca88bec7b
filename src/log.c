// SPDX-License-Identifier: Apache-2.0
/*
 * What an engine tells its program's log, or standard error: who of several ranks says it. The log
 * is called in the caller's thread alone; what the engine thread has to say waits for that.
 */
#include <stdarg.h>
#include <stdio.h>

#include "src/engine.h"

/* Written whole: glibc since 2.37 prints to standard error by 128 bytes, and other ranks'
 * lines come between those. */
void engine_log_to_stderr(void *arg, enum zero_log_level level, const char *line)
{
    char text[600];
    (void)arg;
    snprintf(text, sizeof(text), "libzero: %s%s\n", level == ZERO_LOG_WARNING ? "warning: " : "",
             line);
    fputs(text, stderr);
}

/* A line; behind this rank's number where it is named. */
__attribute__((format(printf, 4, 0))) static void
tell(const struct zero *z, enum zero_log_level level, bool named, const char *format, va_list args)
{
    char line[512];
    int used = named ? snprintf(line, sizeof(line), "rank %d: ", z->rank) : 0;
    vsnprintf(line + used, sizeof(line) - (size_t)used, format, args);
    if (z->log_level != ZERO_LOG_SILENT && level <= z->log_level)
        z->log(z->log_arg, level, line);
}

void engine_log(const struct zero *z, enum zero_log_level level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!z->muted)
        tell(z, level, false, format, args);
    va_end(args);
}

void engine_warn(const struct zero *z, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tell(z, ZERO_LOG_WARNING, true, format, args);
    va_end(args);
}

void engine_warn_of_machine(const struct zero *z, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!z->echoes)
        tell(z, ZERO_LOG_WARNING, z->rank != 0, format, args);
    va_end(args);
}

void engine_note_retry(void *arg, const char *sentence)
{
    struct zero *z = arg;
    struct retries *r = &z->retries;
    if (r->noted - __atomic_load_n(&r->told, __ATOMIC_ACQUIRE) < RETRIES_NOTED) {
        snprintf(r->text[r->noted % RETRIES_NOTED], sizeof(*r->text), "%s", sentence);
        __atomic_store_n(&r->noted, r->noted + 1, __ATOMIC_RELEASE);
    } else {
        count(&r->lost, 1);
    }
}

void engine_tell_retries(struct zero *z)
{
    struct retries *r = &z->retries;
    int64_t noted = __atomic_load_n(&r->noted, __ATOMIC_ACQUIRE), lost = counted(&r->lost);
    for (; r->told < noted; __atomic_store_n(&r->told, r->told + 1, __ATOMIC_RELEASE))
        engine_warn(z, "%s", r->text[r->told % RETRIES_NOTED]);
    if (lost == r->lost_told)
        return;
    engine_warn(z, "%lld more transfers failed and were tried again.",
                (long long)(lost - r->lost_told));
    r->lost_told = lost;
}

void engine_tell_order(struct zero *z)
{
    if (z->plan.set.local && z->size > 1 && z->schedule.accumulate > 1)
        engine_log(z, ZERO_LOG_INFO,
                   "Each rank adds up the gradients of its %d micro-steps before ranks add theirs "
                   "(ZERO_LOCAL): outside the law of equal bits.",
                   z->schedule.accumulate);
}
