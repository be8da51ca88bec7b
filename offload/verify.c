// SPDX-License-Identifier: Apache-2.0
/* XXH3 of each page, compiled in from xxHash's header: one page is too short for
 * a call into a library to be worth its code for other instruction sets, and
 * memory, not arithmetic, is the limit. */
#include "offload/verify.h"

#include <assert.h>

#ifdef HAVE_XXHASH
#define XXH_INLINE_ALL
#include <xxhash.h>

static uint64_t page_sum(const char *page)
{
    return XXH3_64bits(page, SPILL_ALIGN);
}

int verify_supported(struct error *error)
{
    (void)error;
    return ZERO_OK;
}
#else
static uint64_t page_sum(const char *page)
{
    (void)page;
    return 0;
}

int verify_supported(struct error *error)
{
    return error_set(error, ZERO_ERR_UNSUPPORTED,
                     "This build has no checksums for .verify_spill. Install libxxhash-dev and "
                     "build again, or leave it out.");
}
#endif

void verify_take(uint64_t *sums, const char *memory, int64_t offset, int64_t bytes)
{
    assert(offset % SPILL_ALIGN == 0 && bytes % SPILL_ALIGN == 0);
    for (int64_t i = 0; i < bytes / SPILL_ALIGN; i++)
        sums[offset / SPILL_ALIGN + i] = page_sum(memory + i * SPILL_ALIGN);
}

int64_t verify_compare(const uint64_t *sums, const char *memory, int64_t offset, int64_t bytes,
                       int64_t *first)
{
    int64_t wrong = 0;
    assert(offset % SPILL_ALIGN == 0 && bytes % SPILL_ALIGN == 0);
    for (int64_t i = 0; i < bytes / SPILL_ALIGN; i++) {
        if (sums[offset / SPILL_ALIGN + i] == page_sum(memory + i * SPILL_ALIGN))
            continue;
        if (wrong++ == 0 && *first < 0)
            *first = offset + i * SPILL_ALIGN;
    }
    return wrong;
}
