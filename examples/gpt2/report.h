// SPDX-License-Identifier: Apache-2.0
/* What the gpt2 program prints about a run: on what it runs and the plan, a
 * line per step, a row per step in the log, memory and traffic at the end. */
#ifndef EXAMPLES_GPT2_REPORT_H
#define EXAMPLES_GPT2_REPORT_H

#include "examples/gpt2/train.h"

/* Local; only rank 0 prints, and nothing with --quiet. */
void report_reading(struct run *r, int part, int parts); /* so much of the data is checked */
void report_start(struct run *r);
void report_step(struct run *r, const struct step_record *s); /* may set r->unheard */
void report_row(struct run *r, const struct step_record *s);  /* into the log, if any */
int report_log_header(FILE *log); /* -1 with errno: it could not be written */

/* COLLECTIVE. 0, or -1 with r->error set. */
int report_end(struct run *r);

#endif
