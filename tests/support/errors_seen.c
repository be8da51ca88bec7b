// SPDX-License-Identifier: Apache-2.0
/*
 * Suites are linked so that the library's calls of error_set and error_comm come
 * here (ld --wrap): each sentence that is set is appended, as its format, to the
 * file that ZERO_ERRORS_SEEN names, for tests/check_errors.sh; then they go on.
 * The file is opened before main, because limits and filters of tests come later.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/error.h"

static int file = -1;

__attribute__((constructor)) static void open_file(void)
{
    const char *name = getenv("ZERO_ERRORS_SEEN");
    if (name && *name)
        file = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
}

static void record(int status, const char *format)
{
    char line[1024];
    int saved = errno;
    if (file < 0)
        return;
    int length = snprintf(line, sizeof(line), "%s|%s\n", zero_status_name(status), format);
    if (length >= (int)sizeof(line) || write(file, line, (size_t)length) != length)
        abort();
    errno = saved;
}

int __wrap_error_set(struct error *error, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int __wrap_error_comm(struct zero_comm *comm, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

int __wrap_error_set(struct error *error, int status, const char *format, ...)
{
    va_list args;
    if (error->status == ZERO_OK)
        record(status, format);
    va_start(args, format);
    error_setv(error, status, format, args);
    va_end(args);
    return error->status;
}

int __wrap_error_comm(struct zero_comm *comm, int status, const char *format, ...)
{
    va_list args;
    record(status, format);
    va_start(args, format);
    vsnprintf(comm->error, sizeof(comm->error), format, args);
    va_end(args);
    return status;
}
