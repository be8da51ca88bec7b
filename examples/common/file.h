// SPDX-License-Identifier: Apache-2.0
/* Files that a program writes or reads where its user said: never one that it waits for, nor one
 * that was not meant. */
#ifndef EXAMPLES_COMMON_FILE_H
#define EXAMPLES_COMMON_FILE_H

#include <stdbool.h>
#include <stdio.h>

/* Before anything is opened: where standard input, output or error is closed, no file that is
 * opened later takes its place, and what is printed there is not written into that file. A line
 * of standard error is written whole: glibc since 2.37 would write 128 bytes at a time, between
 * which other ranks' come. */
void file_hold_standard(void);

/* Whether standard output took all that was printed. */
bool file_printed(void);

/* The exit status of a rank that has only printed; 1 with a sentence where it could not. */
int file_printed_by(int rank);

/* A file to be written from its beginning, made where there is none; what is in it stays until
 * file_cut. NULL with errno where it cannot be opened: a pipe that nobody reads is not waited
 * for, and a file that another process has from here, or that standard output or error goes to,
 * is not shared. */
FILE *file_create(const char *path);

/* Likewise, with flags of open in place of those that make or empty a file, and beside whoever
 * has it from here: for a file that ranks write in turn. */
FILE *file_open(const char *path, int flags);

/* A file to be read; a pipe that nobody writes to ends at once. NULL with errno. */
FILE *file_to_read(const char *path);

/* Keeps so many first bytes of what file_create has opened, once nothing else can be refused, or to
 * write it anew, and goes on behind them: a device or a pipe is as it is. Returns 0, or -1 with
 * errno. */
int file_cut(FILE *file, long bytes);

/* Whether it can be emptied: a device or a pipe cannot. */
bool file_is_regular(FILE *file);

/* Whether file_create would not share the file; errno is then what file_reason takes. */
bool file_taken(const char *path);

/* Whether both name one regular file that is there; NULL names none. */
bool file_same(const char *a, const char *b);

/* Whether path names a regular file, there or still to be made, that lies in folder or in one of
 * its folders. */
bool file_within(const char *path, const char *folder);

/* An errno as a clause, for a sentence about a file that could not be opened, read or written. */
const char *file_reason(int error);

#endif
