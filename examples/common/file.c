// SPDX-License-Identifier: Apache-2.0
#include "examples/common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

void file_hold_standard(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDONLY); /* writing fails, as it does where all is closed */
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
    setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
}

bool file_printed(void)
{
    return fflush(stdout) == 0 && !ferror(stdout);
}

int file_printed_by(int rank)
{
    if (file_printed())
        return 0;
    fprintf(stderr, "rank %d: Standard output could not be written.\n", rank);
    return 1;
}

static bool are_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool is_regular(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

bool file_is_regular(FILE *file)
{
    return is_regular(fileno(file));
}

/* Whether standard output or error goes to the regular file that fd is. */
static bool is_printed_to(int fd)
{
    struct stat file, out, err;
    return fstat(fd, &file) == 0 && ((fstat(STDOUT_FILENO, &out) == 0 && are_same(&file, &out)) ||
                                     (fstat(STDERR_FILENO, &err) == 0 && are_same(&file, &err)));
}

/* A regular file is ours until it is closed: two runs would write over each other's rows, or a
 * run over what it prints. Where the file system has no such locks nobody is kept away. */
static bool take(int fd)
{
    if (!is_regular(fd))
        return true;
    if (is_printed_to(fd)) {
        errno = EBUSY;
        return false;
    }
    return flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

/* What is open, as a stream; what is not wanted is closed. */
static FILE *stream(int fd, bool wanted, const char *mode)
{
    FILE *file = NULL;
    if (fd >= 0 && wanted) {
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
        file = fdopen(fd, mode);
    }
    if (fd >= 0 && !file) {
        int reason = errno;
        close(fd);
        errno = reason;
    }
    return file;
}

FILE *file_create(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666);
    return stream(fd, fd >= 0 && take(fd), "w");
}

int file_cut(FILE *file, long bytes)
{
    if (!file_is_regular(file))
        return 0;
    return fseek(file, bytes, SEEK_SET) == 0 ? ftruncate(fileno(file), bytes) : -1;
}

FILE *file_open(const char *path, int flags)
{
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | flags, 0666);
    return stream(fd, true, flags & O_APPEND ? "a" : "w");
}

FILE *file_to_read(const char *path)
{
    return stream(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), true, "r");
}

bool file_taken(const char *path)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    bool taken = fd >= 0 && !take(fd);
    int reason = errno;
    if (fd >= 0)
        close(fd);
    errno = reason;
    return taken;
}

bool file_same(const char *a, const char *b)
{
    struct stat x, y;
    return a && b && stat(a, &x) == 0 && S_ISREG(x.st_mode) && stat(b, &y) == 0 && are_same(&x, &y);
}

/* Where the file is, or will be; NULL: not known. */
static char *real_path(const char *path)
{
    char *slash, *folder, *real = realpath(path, NULL);
    if (real || errno != ENOENT || !(folder = strdup(path)))
        return real;
    slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0; /* the root keeps its own */
    real = realpath(slash ? folder : ".", NULL);
    free(folder);
    return real;
}

bool file_within(const char *path, const char *folder)
{
    struct stat status;
    if (!path || !folder || (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) ||
        stat(folder, &status) || !S_ISDIR(status.st_mode))
        return false;
    char *file = real_path(path), *root = realpath(folder, NULL);
    size_t length = root ? strlen(root) : 0;
    bool within = file && root && strncmp(file, root, length) == 0 &&
                  (file[length] == '/' || !file[length] || length == 1 /* the root of all */);
    free(file);
    free(root);
    return within;
}

const char *file_reason(int error)
{
    return error == ENXIO         ? "nobody reads this pipe"
           : error == EBUSY       ? "this run's own output is written there"
           : error == EWOULDBLOCK ? "another run is writing to it"
           : error == EMFILE      ? "no more files may be open (ulimit -n)"
           : error == EFBIG       ? "files may be no larger (ulimit -f)"
                                  : strerror(error);
}
