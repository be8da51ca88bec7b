// SPDX-License-Identifier: Apache-2.0
/*
 * One linear space of bytes over several files: it is cut into stripes, and
 * each period of STRIPES_PERIOD stripes is dealt to the files in proportion to
 * their shares, as evenly as whole stripes allow. Arithmetic only: files are
 * numbers here, and descriptors are carried for whoever moves the bytes.
 *
 * With one file the linear space is the file, and nothing is cut.
 */
#ifndef OFFLOAD_STRIPES_H
#define OFFLOAD_STRIPES_H

#include <stdint.h>

#define STRIPES_FILES  8
#define STRIPES_PERIOD 64

struct stripes {
    int files;
    int64_t stripe; /* bytes */
    int fd[STRIPES_FILES];
    int share[STRIPES_FILES];     /* stripes of a period, at least 1 each */
    uint8_t file[STRIPES_PERIOD]; /* that has each stripe of a period */
    uint8_t turn[STRIPES_PERIOD]; /* its stripes that come before in the period */
};

struct stripes_place {
    int file;
    int64_t offset; /* in the file */
    int64_t bytes;  /* that lie there in one piece */
};

/* Shares are in proportion to weight[files]; where any is not above 0, equal. */
void stripes_deal(struct stripes *s, int files, const double *weight, int64_t stripe);

/* Where the byte at a linear offset lies. */
struct stripes_place stripes_find(const struct stripes *s, int64_t offset);

/* The length of one file when the linear space has bytes. */
int64_t stripes_file_bytes(const struct stripes *s, int file, int64_t bytes);

#endif
