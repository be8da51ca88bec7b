// SPDX-License-Identifier: Apache-2.0
#include "src/error.h"

#include <stdarg.h>
#include <stdio.h>

int error_set(struct error *error, int status, const char *format, ...)
{
    if (error->status == ZERO_OK) {
        va_list args;
        va_start(args, format);
        vsnprintf(error->text, sizeof(error->text), format, args);
        va_end(args);
        error->status = status;
    }
    return error->status;
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
    default: return "unknown status";
    }
}
