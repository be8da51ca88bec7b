// SPDX-License-Identifier: Apache-2.0
/*
 * One pass over a file, by the library's rings or by what they are measured
 * against. The file is wholly written before anything is measured: a read of
 * what was never written is no read.
 */
#ifndef EXAMPLES_ZERO_BENCH_IO_H
#define EXAMPLES_ZERO_BENCH_IO_H

#include <stdbool.h>
#include <stdint.h>

enum io_mode { IO_READ, IO_WRITE, IO_MIXED, IO_MODES };

struct arena;

/* The file and the memory that all of them use. */
struct io_file {
    int fd;
    int64_t bytes; /* a multiple of twice the largest block */
    char *memory;  /* 2 MiB aligned, in huge pages where the kernel gives them */
    int64_t memory_bytes;
    bool direct, uring;  /* what works on it; why not uring error says when it was opened */
    struct arena *arena; /* that holds memory */
    char error[512];     /* of the last call that failed */
};

/* IO_MIXED: even operations read the first half, odd ones write the second. */
struct io_operation {
    int64_t offset, bytes;
    bool write;
};

static inline struct io_operation io_operation(enum io_mode mode, int64_t file_bytes, int64_t block,
                                               int64_t i)
{
    int64_t at = mode == IO_MIXED ? i / 2 * block + i % 2 * (file_bytes / 2) : i * block;
    return (struct io_operation){at, block, mode == IO_WRITE || (mode == IO_MIXED && i % 2)};
}

/* Who moves the blocks, how large they are and how many are under way. */
struct io_engine {
    const char *name; /* "pread and pwrite", "io_uring", "uring", "posix" */
    /* Moves the whole file once. 0, or -1 with file->error. */
    int (*pass)(struct io_file *file, enum io_mode mode, int64_t block, int depth);
    int64_t block;
    int depth;
};

int io_threads_pass(struct io_file *file, enum io_mode mode, int64_t block, int depth);
int io_uring_pass(struct io_file *file, enum io_mode mode, int64_t block, int depth);
/* Whether the library's ring would move this file by io_uring; false with file->error. */
bool io_uring_there(struct io_file *file);

/* The library's: block is a request, which the ring cuts as it does in training. */
int io_ring_uring_pass(struct io_file *file, enum io_mode mode, int64_t block, int depth);
int io_ring_posix_pass(struct io_file *file, enum io_mode mode, int64_t block, int depth);

/* Makes the file (it has no name) and its memory, and writes it: bytes, a
 * multiple of 48 MiB, or less on a slow disk where hurry is set. 0, or -1 with
 * file->error. Close takes what is half made. */
int io_file_open(struct io_file *file, const char *folder, int64_t bytes, bool hurry);
void io_file_close(struct io_file *file);

/* What the file holds at offset after it was opened: into memory, and whether
 * memory holds it. */
void io_content_fill(char *memory, int64_t offset, int64_t bytes);
bool io_content_is(const char *memory, int64_t offset, int64_t bytes);

/* Bytes per second of one pass, and processor seconds per byte; < 0: failed. */
struct io_speed {
    double bytes_per_second, cpu_per_byte;
};
int io_measure(struct io_file *file, const struct io_engine *engine, enum io_mode mode,
               struct io_speed *speed);

/* fio's speed on the whole file, and its fastest way: of libaio and io_uring, 1, 2 and
 * 4 MiB, 4 to 32 at once. quick tries one alone. 0, or -1 with file->error. Its memory is in
 * huge pages where enough are set aside. */
bool fio_there(void);
bool io_fio_huge(void);
int io_fio(struct io_file *file, enum io_mode mode, const struct io_engine *way,
           struct io_speed *speed);
int io_fio_find(struct io_file *file, enum io_mode mode, bool quick, struct io_engine *best);

/* The engines of the limit; count takes how many there are. */
const struct io_engine *io_limits(const struct io_file *file, int *count);

/* The fastest of them, after so many rounds of all in turn; the file and the disk are warm
 * then. Which it was says nothing of the rounds that follow, so luck does not make a limit.
 * 0, or -1 with file->error. */
int io_limit_find(struct io_file *file, enum io_mode mode, int rounds,
                  const struct io_engine **best);

#endif
