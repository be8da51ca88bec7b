// SPDX-License-Identifier: Apache-2.0
#include "src/error.h"

#include <stdio.h>

int error_setv(struct error *error, int status, const char *format, va_list args)
{
    if (error->status == ZERO_OK) {
        vsnprintf(error->text, sizeof(error->text), format, args);
        error->status = status;
    }
    return error->status;
}

int error_set(struct error *error, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_setv(error, status, format, args);
    va_end(args);
    return error->status;
}

int error_comm(struct zero_comm *comm, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(comm->error, sizeof(comm->error), format, args);
    va_end(args);
    return status;
}

void error_ranks(char *out, size_t size, const int *ranks, int count)
{
    int named = count > ERROR_RANKS ? ERROR_RANKS : count;
    size_t length = 0;
    out[0] = '\0';
    for (int i = 0; i < named && length < size; i++) {
        const char *mark = i == 0 ? "" : i == count - 1 ? " and " : ", ";
        length += (size_t)snprintf(out + length, size - length, "%s%d", mark, ranks[i]);
    }
    if (count > named && length < size)
        snprintf(out + length, size - length, " and %d more", count - named);
}

const char *zero_status_name(int status)
{
    switch (status) {
    case ZERO_OK: return "ZERO_OK";
    case ZERO_ERR_ARGUMENT: return "ZERO_ERR_ARGUMENT";
    case ZERO_ERR_STATE: return "ZERO_ERR_STATE";
    case ZERO_ERR_UNSUPPORTED: return "ZERO_ERR_UNSUPPORTED";
    case ZERO_ERR_MEMORY: return "ZERO_ERR_MEMORY";
    case ZERO_ERR_IO: return "ZERO_ERR_IO";
    case ZERO_ERR_COMM: return "ZERO_ERR_COMM";
    case ZERO_ERR_MISMATCH: return "ZERO_ERR_MISMATCH";
    case ZERO_ERR_DEADLINE: return "ZERO_ERR_DEADLINE";
    case ZERO_ERR_OVERFLOW: return "ZERO_ERR_OVERFLOW";
    case ZERO_ERR_DEVICE: return "ZERO_ERR_DEVICE";
    default: return "unknown status";
    }
}
