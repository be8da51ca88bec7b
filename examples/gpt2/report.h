// SPDX-License-Identifier: Apache-2.0
/* What the gpt2 program prints about a run: on what it runs and the plan, a
 * line per step, a row per step in the log, memory and traffic at the end. */
#ifndef EXAMPLES_GPT2_REPORT_H
#define EXAMPLES_GPT2_REPORT_H

#include "examples/gpt2/train.h"

/* Local; only rank 0 prints, and nothing with --quiet. */
void report_part(struct run *r, const char *what, const char *done, int64_t bytes, int64_t all);
void report_kept(struct run *r, const char *done, int64_t step); /* a checkpoint was */
void report_aside(struct run *r, const char *then); /* r->error on standard error, and training */
void report_start(struct run *r);
void report_step(struct run *r, const struct step_record *s); /* may set r->unheard */
void report_row(struct run *r, const struct step_record *s);  /* into the log, if any */
int report_log_header(FILE *log);                      /* -1 with errno: it could not be written */
long report_log_rows(const char *path, int64_t steps); /* bytes of a log up to that step's row */

/* COLLECTIVE. 0, or -1 with r->error set. */
int report_end(struct run *r);

#endif
