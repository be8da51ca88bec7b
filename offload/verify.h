// SPDX-License-Identifier: Apache-2.0
/*
 * Checksums of what the files hold, one for each page of the spill's linear
 * space: taken when a write is handed to the ring, compared when a read has
 * ended. All transfers are whole pages, so nothing here knows of chunks,
 * records or segments. A page that was never written has no checksum that fits.
 */
#ifndef OFFLOAD_VERIFY_H
#define OFFLOAD_VERIFY_H

#include <stdint.h>

#include "offload/spill.h"

/* ZERO_ERR_UNSUPPORTED, with the reason: this build has no checksums. */
int verify_supported(struct error *error);

/* Memory for the checksums of a spill of bytes; it begins as zeros. */
static inline int64_t verify_bytes(int64_t bytes)
{
    return bytes / SPILL_ALIGN * (int64_t)sizeof(uint64_t);
}

/* Of memory that goes to, or came from, offset of the linear space; bytes and
 * offset are SPILL_ALIGN aligned. verify_compare returns how many pages are
 * not what was written; *first, where it is negative, takes the offset of the
 * first of them. */
void verify_take(uint64_t *sums, const char *memory, int64_t offset, int64_t bytes);
int64_t verify_compare(const uint64_t *sums, const char *memory, int64_t offset, int64_t bytes,
                       int64_t *first);

#endif
