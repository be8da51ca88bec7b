// SPDX-License-Identifier: Apache-2.0
/* Memory in huge pages, which much arithmetic passes through. */
#ifndef EXAMPLES_COMMON_HUGE_H
#define EXAMPLES_COMMON_HUGE_H

#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

/* bytes of memory from the start of a huge page; each that they fill is asked for as one. free()
 * takes it back. NULL: out of memory. */
static inline void *huge_alloc(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, HUGE_PAGE, bytes ? bytes : 1))
        return NULL;
    madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* advice: may fail */
    return memory;
}

#endif
