// SPDX-License-Identifier: Apache-2.0
/*
 * Sees every allocation of the program: malloc and its kin, and mmap, are
 * replaced by functions that count and then do the same, or refuse. A header, because an
 * archive's member that defines malloc would come into every suite. One file of
 * a program includes it; a build for a sanitizer or valgrind, which replace them,
 * sees nothing (ALLOCATIONS_SEEN is 0). glibc alone.
 */
#ifndef TESTS_SUPPORT_ALLOCATIONS_H
#define TESTS_SUPPORT_ALLOCATIONS_H

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/held.h"

#if defined(__GLIBC__) && !SANITIZED
#define ALLOCATIONS_SEEN 1
#else
#define ALLOCATIONS_SEEN 0
#endif

struct allocations allocations;

/* This thread's allocation (not by mmap) that finds no memory, 1 being the next; 0: none. */
static _Thread_local int64_t allocation_refused __attribute__((unused));

#if ALLOCATIONS_SEEN

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *p);
extern size_t malloc_usable_size(void *p);
extern const char __executable_start[], etext[];

/* The C library's own calls come here too, of strdup say: what the program frees, it counts. */
#pragma GCC visibility push(default)

static void allocations_call(void *caller)
{
    if (!atomic_load_explicit(&allocations.counting, memory_order_relaxed))
        return;
    const char *c = caller;
    if (allocations.own_code_only && (c < __executable_start || c >= etext))
        return;
    void *none = NULL;
    atomic_compare_exchange_strong(&allocations.first, &none, caller);
    atomic_fetch_add(&allocations.calls, 1);
}

static bool allocations_refuse(void)
{
    if (allocation_refused <= 0 || --allocation_refused > 0)
        return false;
    errno = ENOMEM;
    return true;
}

static void *allocations_add(void *p)
{
    if (p) {
        atomic_fetch_add(&allocations.blocks, 1);
        atomic_fetch_add(&allocations.bytes, (int64_t)malloc_usable_size(p));
    }
    return p;
}

static void allocations_remove(void *p)
{
    if (p) {
        atomic_fetch_sub(&allocations.blocks, 1);
        atomic_fetch_sub(&allocations.bytes, (int64_t)malloc_usable_size(p));
    }
}

void *malloc(size_t size)
{
    allocations_call(__builtin_return_address(0));
    return allocations_refuse() ? NULL : allocations_add(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    allocations_call(__builtin_return_address(0));
    return allocations_refuse() ? NULL : allocations_add(__libc_calloc(n, size));
}

void *realloc(void *p, size_t size)
{
    allocations_call(__builtin_return_address(0));
    if (allocations_refuse())
        return NULL;
    size_t before = p ? malloc_usable_size(p) : 0;
    void *q = __libc_realloc(p, size);
    if (p && (q || size == 0)) {
        atomic_fetch_sub(&allocations.blocks, 1);
        atomic_fetch_sub(&allocations.bytes, (int64_t)before);
    }
    return allocations_add(q);
}

void *memalign(size_t alignment, size_t size);
void *memalign(size_t alignment, size_t size)
{
    allocations_call(__builtin_return_address(0));
    return allocations_refuse() ? NULL : allocations_add(__libc_memalign(alignment, size));
}

void *aligned_alloc(size_t alignment, size_t size)
{
    allocations_call(__builtin_return_address(0));
    return allocations_refuse() ? NULL : allocations_add(__libc_memalign(alignment, size));
}

int posix_memalign(void **p, size_t alignment, size_t size)
{
    allocations_call(__builtin_return_address(0));
    *p = allocations_refuse() ? NULL : allocations_add(__libc_memalign(alignment, size));
    return *p ? 0 : ENOMEM;
}

void free(void *p)
{
    allocations_remove(p);
    __libc_free(p);
}

/* The C library's own mappings do not come by here. */
void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    allocations_call(__builtin_return_address(0));
    return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}

#pragma GCC visibility pop
#endif
#endif
