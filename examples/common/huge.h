// SPDX-License-Identifier: Apache-2.0
/* Memory in huge pages, which much arithmetic passes through. */
#ifndef EXAMPLES_COMMON_HUGE_H
#define EXAMPLES_COMMON_HUGE_H

#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

/* bytes of memory from a huge page's start on, in huge pages as far as they fill some; free()
 * takes it back. NULL: out of memory. */
static inline void *huge_alloc(size_t bytes)
{
    void *memory = aligned_alloc(HUGE_PAGE, (bytes / HUGE_PAGE + 1) * HUGE_PAGE);
    if (memory)
        madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* advice: may fail */
    return memory;
}

#endif
