// SPDX-License-Identifier: Apache-2.0
/*
 * What the fuzz targets share. An input is taken from its front, and what it lacks is zeros;
 * files are written in memory, where every run finds them under the same names.
 */
#ifndef TESTS_FUZZ_INPUT_H
#define TESTS_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* libFuzzer calls this for each input. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold for every input. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

struct input {
    const uint8_t *at;
    size_t left;
};

/* The next size bytes, or what is left of them. */
static inline struct input take(struct input *from, size_t size)
{
    struct input taken = {from->at, size < from->left ? size : from->left};
    from->at += taken.left;
    from->left -= taken.left;
    return taken;
}

static inline unsigned take_byte(struct input *from)
{
    struct input taken = take(from, 1);
    return taken.left ? taken.at[0] : 0;
}

static inline unsigned take_short(struct input *from)
{
    unsigned low = take_byte(from);
    return low | take_byte(from) << 8;
}

/* What comes before the next byte end, which is passed over, or all. */
static inline struct input take_until(struct input *from, uint8_t end)
{
    const uint8_t *found = from->left ? memchr(from->at, end, from->left) : NULL;
    struct input taken = take(from, found ? (size_t)(found - from->at) : from->left);
    take(from, 1);
    return taken;
}

/* A string of its own, so that reading beyond its end is seen. */
static inline char *text_of(struct input taken)
{
    char *text = malloc(taken.left + 1);
    REQUIRE(text);
    if (taken.left)
        memcpy(text, taken.at, taken.left);
    text[taken.left] = '\0';
    return text;
}

/* A file in memory, empty; its name goes to path. */
static inline int file_make(char *path, size_t size)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    REQUIRE(fd >= 0);
    snprintf(path, size, "/proc/self/fd/%d", fd);
    return fd;
}

static inline void file_put(int fd, struct input content, off_t at)
{
    REQUIRE(pwrite(fd, content.at, content.left, at) == (ssize_t)content.left);
}

/* The file's only content. */
static inline void file_set(int fd, struct input content)
{
    REQUIRE(ftruncate(fd, 0) == 0);
    if (content.left)
        file_put(fd, content, 0);
}

/* The same, with as many zeros behind its first head bytes as a file has that goes on at rest:
 * most bytes of a header are read by nobody, and inputs are short without them. */
static inline void file_set_header(int fd, struct input content, size_t head, off_t rest)
{
    file_set(fd, take(&content, head));
    if (content.left)
        file_put(fd, content, rest);
    else
        REQUIRE(ftruncate(fd, rest) == 0);
}

#endif
