// SPDX-License-Identifier: Apache-2.0
/*
 * Suites are linked so that the library's calls of error_set and error_comm come
 * here (ld --wrap): each sentence that is set is noted, as its format, in the file
 * that ZERO_ERRORS_SEEN names, for tests/check_errors.sh; then they go on. All
 * processes map the file before main: limits, filters and a failing malloc, which
 * tests bring about, do not matter to a mapping.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/error.h"

#define NOTES_BYTES ((size_t)1 << 18)

static struct notes {
    atomic_size_t length; /* of text, in lines; padded with zeros */
    char text[NOTES_BYTES - sizeof(atomic_size_t)];
} * notes;

__attribute__((constructor)) static void notes_open(void)
{
    const char *name = getenv("ZERO_ERRORS_SEEN");
    int file = name && *name ? open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (file < 0)
        return;
    void *mapping = MAP_FAILED;
    if (ftruncate(file, (off_t)NOTES_BYTES) == 0)
        mapping = mmap(NULL, NOTES_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    notes = mapping != MAP_FAILED ? mapping : NULL;
}

/* Two that meet note it twice. */
static void note(int status, const char *format)
{
    char line[1024];
    if (!notes)
        return;
    int length = snprintf(line, sizeof(line), "%s|%s\n", zero_status_name(status), format);
    if (memmem(notes->text, atomic_load(&notes->length), line, (size_t)length))
        return;
    size_t at = atomic_fetch_add(&notes->length, (size_t)length);
    if (length >= (int)sizeof(line) || at + (size_t)length > sizeof(notes->text))
        abort(); /* raise NOTES_BYTES */
    memcpy(notes->text + at, line, (size_t)length);
}

int __wrap_error_set(struct error *error, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int __wrap_error_comm(struct zero_comm *comm, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

int __wrap_error_set(struct error *error, int status, const char *format, ...)
{
    va_list args;
    if (error->status == ZERO_OK)
        note(status, format);
    va_start(args, format);
    error_setv(error, status, format, args);
    va_end(args);
    return error->status;
}

int __wrap_error_comm(struct zero_comm *comm, int status, const char *format, ...)
{
    va_list args;
    note(status, format);
    va_start(args, format);
    vsnprintf(comm->error, sizeof(comm->error), format, args);
    va_end(args);
    return status;
}
