// SPDX-License-Identifier: Apache-2.0
/* A file that is made as FILE.part and gets its name when it is whole: until then an older one
 * stays. Whoever makes it has FILE.part open from the start, which keeps other runs away from both;
 * a run that is killed leaves that, empty where it was not writing yet. */
#ifndef EXAMPLES_COMMON_PART_H
#define EXAMPLES_COMMON_PART_H

#include <stdbool.h>
#include <stdio.h>

#define PART_PATH 4096

/* The file that path means, behind links; whether it is made under another name first: a device
 * or a pipe is not. */
bool part_whole(const char *path, char name[PART_PATH]);

/* FILE.part, or path itself where that is not made under another name. */
const char *part_name(const char *path, char name[PART_PATH]);

/* What part_name says, to be written from its beginning (file_create). NULL with errno; EEXIST:
 * another file has that name, one that is not empty and has not this text at byte at. */
FILE *part_create(const char *path, const char *text, long at);

/* Gives what is whole its name. 0, or -1 with errno. */
int part_publish(const char *path);

/* Puts the names in a file's folder on the disk. A client of NFS, which has looked for a file in
 * vain, looks anew then. */
void part_folder(const char *file);

/* Closes what part_create has opened. What there is of a file that cannot become whole only takes
 * space: it goes. NULL is fine. */
void part_abandon(const char *path, FILE *part);

#endif
