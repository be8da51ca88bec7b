// SPDX-License-Identifier: Apache-2.0
/*
 * Calls that fail. The linker gives the program's own objects, and no library,
 * __wrap_NAME where they call NAME, and this file the real one as __real_NAME.
 * So it works under a sanitizer as well.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "offload/ring_core.h"
#include "tests/support/fault.h"

static _Thread_local struct fault *watched;

void fault_calls(struct fault *fault)
{
    watched = fault;
}

/* Whether a call fails, then with errno. */
static bool fails(enum fault_kind kind, int errnum)
{
    if (!fault_strikes(watched, kind))
        return false;
    errno = errnum;
    return true;
}

/* ------------------------------------------------------------------ memory */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    return fails(FAULT_MEMORY, ENOMEM) ? NULL : __real_malloc(size);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    return fails(FAULT_MEMORY, ENOMEM) ? NULL : __real_calloc(n, size);
}

void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size)
{
    return fails(FAULT_MEMORY, ENOMEM) ? NULL : __real_realloc(p, size);
}

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails(FAULT_MEMORY, ENOMEM) ? NULL : __real_aligned_alloc(alignment, size);
}

int __real_posix_memalign(void **p, size_t alignment, size_t size);
int __wrap_posix_memalign(void **p, size_t alignment, size_t size)
{
    return fails(FAULT_MEMORY, ENOMEM) ? ENOMEM : __real_posix_memalign(p, alignment, size);
}

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text)
{
    return fails(FAULT_MEMORY, ENOMEM) ? NULL : __real_strdup(text);
}

ssize_t __real_getline(char **line, size_t *size, FILE *file);
ssize_t __wrap_getline(char **line, size_t *size, FILE *file)
{
    return fails(FAULT_MEMORY, ENOMEM) ? -1 : __real_getline(line, size, file);
}

void *__real_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    if (fails(FAULT_MEMORY, ENOMEM))
        return MAP_FAILED;
    return __real_mmap(address, length, protection, flags, fd, offset);
}

int __real_mprotect(void *address, size_t length, int protection);
int __wrap_mprotect(void *address, size_t length, int protection)
{
    return fails(FAULT_MEMORY, ENOMEM) ? -1 : __real_mprotect(address, length, protection);
}

int __real_madvise(void *address, size_t length, int advice);
int __wrap_madvise(void *address, size_t length, int advice)
{
    bool refused = fails(FAULT_PAGES, ENOMEM) || fails(FAULT_SIGNAL, EINTR);
    return refused ? -1 : __real_madvise(address, length, advice);
}

/* ----------------------------------------------------------------- threads */

/* What a thread runs, and the fault it takes over. */
struct started {
    void *(*run)(void *arg);
    void *arg;
    struct fault *fault;
};

static void *started_run(void *arg)
{
    struct started s = *(struct started *)arg;
    free(arg);
    watched = s.fault;
    return s.run(s.arg);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *arg), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *arg), void *arg)
{
    if (fault_strikes(watched, FAULT_THREAD))
        return EAGAIN;
    struct started *s = __real_malloc(sizeof(*s));
    if (!s)
        abort();
    *s = (struct started){run, arg, watched};
    int rc = __real_pthread_create(thread, attributes, started_run, s);
    if (rc)
        free(s);
    return rc;
}

/* ------------------------------------------------------- descriptors, files */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    int mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list args;
        va_start(args, flags);
        mode = va_arg(args, int);
        va_end(args);
    }
    return fails(FAULT_DESCRIPTOR, EMFILE) ? -1 : __real_open(path, flags, mode);
}

int __real_mkostemp(char *name, int flags);
int __wrap_mkostemp(char *name, int flags)
{
    return fails(FAULT_DESCRIPTOR, EMFILE) ? -1 : __real_mkostemp(name, flags);
}

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode)
{
    return fails(FAULT_DESCRIPTOR, EMFILE) ? NULL : __real_fopen(path, mode);
}

int __real_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags)
{
    return fails(FAULT_DESCRIPTOR, EMFILE) ? -1 : __real_eventfd(count, flags);
}

#ifdef HAVE_URING
struct io_uring;
int __real_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    bool refused = fault_strikes(watched, FAULT_DESCRIPTOR);
    return refused ? -EMFILE : __real_io_uring_queue_init(entries, ring, flags);
}
#endif

int __real_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    bool refused = fails(FAULT_SPACE, ENOSPC) || fails(FAULT_NO_SPACE_OP, EOPNOTSUPP) ||
                   fails(FAULT_SIGNAL, EINTR);
    return refused ? -1 : __real_fallocate(fd, mode, offset, bytes);
}

int __real_ftruncate(int fd, off_t bytes);
int __wrap_ftruncate(int fd, off_t bytes)
{
    return fails(FAULT_SPACE, ENOSPC) ? -1 : __real_ftruncate(fd, bytes);
}

/* --------------------------------------------------------------- questions */

int __real_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st)
{
    return fails(FAULT_QUESTION, ENOSYS) ? -1 : __real_fstat(fd, st);
}

int __real_statx(int folder, const char *path, int flags, unsigned mask, struct statx *st);
int __wrap_statx(int folder, const char *path, int flags, unsigned mask, struct statx *st)
{
    assert(flags & AT_STATX_DONT_SYNC); /* nobody waits for a server */
    return fails(FAULT_QUESTION, ENOSYS) ? -1 : __real_statx(folder, path, flags, mask, st);
}

int __real_fstatfs(int fd, struct statfs *fs);
int __wrap_fstatfs(int fd, struct statfs *fs)
{
    return fails(FAULT_QUESTION, ENOSYS) ? -1 : __real_fstatfs(fd, fs);
}

int __real_fstatvfs(int fd, struct statvfs *fs);
int __wrap_fstatvfs(int fd, struct statvfs *fs)
{
    return fails(FAULT_QUESTION, ENOSYS) ? -1 : __real_fstatvfs(fd, fs);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
    int flags = 0;
    if (command == F_SETFL) {
        va_list args;
        va_start(args, command);
        flags = va_arg(args, int);
        va_end(args);
    }
    return fails(FAULT_QUESTION, ENOSYS) ? -1 : __real_fcntl(fd, command, flags);
}

int __real_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    return fails(FAULT_QUESTION, ENOSYS) ? -1 : __real_sched_getaffinity(pid, size, set);
}

int __real_getrlimit(int resource, struct rlimit *limit);
int __wrap_getrlimit(int resource, struct rlimit *limit)
{
    return fails(FAULT_QUESTION, ENOSYS) ? -1 : __real_getrlimit(resource, limit);
}

/* ---------------------------------------------------------------- io_uring */

#ifdef HAVE_URING

int __real_io_uring_register_eventfd(struct io_uring *ring, int fd);
int __wrap_io_uring_register_eventfd(struct io_uring *ring, int fd)
{
    bool refused = fault_strikes(watched, FAULT_REGISTER);
    return refused ? -ENOMEM : __real_io_uring_register_eventfd(ring, fd);
}

int __real_io_uring_register_files(struct io_uring *ring, const int *fds, unsigned n);
int __wrap_io_uring_register_files(struct io_uring *ring, const int *fds, unsigned n)
{
    bool refused = fault_strikes(watched, FAULT_REGISTER);
    return refused ? -ENOMEM : __real_io_uring_register_files(ring, fds, n);
}

struct iovec;
int __real_io_uring_register_buffers(struct io_uring *ring, const struct iovec *pieces, unsigned n);
int __wrap_io_uring_register_buffers(struct io_uring *ring, const struct iovec *pieces, unsigned n)
{
    bool refused = fault_strikes(watched, FAULT_REGISTER);
    return refused ? -ENOMEM : __real_io_uring_register_buffers(ring, pieces, n);
}

int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring)
{
    if (fault_strikes(watched, FAULT_SIGNAL))
        return -EINTR;
    if (fault_strikes(watched, FAULT_SUBMIT_BUSY))
        return -EBUSY;
    return fault_strikes(watched, FAULT_SUBMIT) ? -EBADF : __real_io_uring_submit(ring);
}

#endif

/* ------------------------------------------------------- a ring's operations */

/* Undoes what was moved of a block, from an offset within it: what a transfer did
 * not move is not what was asked for. */
static void unmove(const struct ring_block *block, int64_t from)
{
    static _Alignas(SPILL_ALIGN) const char garbage[SPILL_ALIGN] = {0x5A, 0x5A, 0x5A, 0x5A};
    const struct ring_request *r = block->request;
    char *buffer = r->buffer + block->start;
    if (!r->write) {
        memset(buffer + from, 0x5A, (size_t)(block->bytes - from));
        return;
    }
    for (int64_t at = from - from % SPILL_ALIGN; at < block->bytes; at += SPILL_ALIGN) {
        ssize_t n = pwrite(block->fd, garbage, SPILL_ALIGN, block->offset + at);
        assert(n == SPILL_ALIGN);
        (void)n;
    }
}

/* What is reported instead of a result. */
static int64_t changed(const struct ring_block *block, int64_t result)
{
    struct fault *f = watched;
    bool write = block->request->write;
    if (result <= 0 || !f)
        return result;
    if (block->bytes > SPILL_ALIGN && fault_strikes(f, FAULT_OP_SHORT))
        return block->bytes / 2 + 100;
    if (fault_strikes(f, FAULT_OP_SIGNAL))
        return -EINTR;
    if (fault_strikes(f, FAULT_OP_BUSY))
        return -EAGAIN;
    if (fault_strikes(f, FAULT_OP_EIO))
        return -EIO;
    if (write && fault_strikes(f, FAULT_OP_ENOSPC))
        return -ENOSPC;
    if (write && fault_strikes(f, FAULT_OP_EFBIG))
        return -EFBIG;
    return fault_strikes(f, FAULT_OP_END) ? 0 : result;
}

bool __real_ring_core_complete(struct ring_core *core, struct ring_block *block, int64_t result);
bool __wrap_ring_core_complete(struct ring_core *core, struct ring_block *block, int64_t result)
{
    int64_t told = changed(block, result);
    if (told != result && block->tries == 0) /* else it is undone already */
        unmove(block, told > 0 ? told : 0);
    return __real_ring_core_complete(core, block, told);
}
