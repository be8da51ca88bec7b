// SPDX-License-Identifier: Apache-2.0
/* The results as lines for people and rows for programs. Rank 0's. */
#ifndef EXAMPLES_MEMSCALE_TABLE_H
#define EXAMPLES_MEMSCALE_TABLE_H

#include <stdio.h>

#include "examples/memscale/scale.h"

void table_header(const struct scale *s);
void table_row(const struct result *r);
void table_end(const struct scale *s);

/* csv may be NULL. Bytes; what was not measured is empty, and so is fits where it failed. */
void table_csv_header(FILE *csv);
void table_csv_row(FILE *csv, const struct result *r, int ranks);

#endif
