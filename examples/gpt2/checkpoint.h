// SPDX-License-Identifier: Apache-2.0
/* What --checkpoint keeps: masters and both moments of all tensors in fp32, and how far the run
 * has come, in one file, which is read as safetensors (tensors have Hugging Face's names, moments
 * exp_avg. and exp_avg_sq. before them). Ranks, stage, places, state format and dtype may be others
 * when the run goes on. Without --checkpoint all of this does nothing. */
#ifndef EXAMPLES_GPT2_CHECKPOINT_H
#define EXAMPLES_GPT2_CHECKPOINT_H

#include "examples/gpt2/train.h"

/* Local. Rank 0 makes FILE.part, so that what cannot be written is refused before the first step;
 * false with r->error set. */
bool checkpoint_open(struct run *r);
void checkpoint_close(struct run *r);

/* Bytes of memory on each rank, and of the file. */
int64_t checkpoint_room(const struct arguments *a);
int64_t checkpoint_bytes(const struct gpt_shape *shape);

/* COLLECTIVE, before the first step. Where FILE is, the run goes on from it: r->before is then how
 * many steps it had made. 0, or -1 with r->error set where it failed. */
int checkpoint_load(struct run *r);

/* COLLECTIVE, between steps. Puts the run, with its digest, in FILE's place. Not being able to
 * write is no failure here: *well is then false on all ranks, r->error says why on rank 0, and FILE
 * is as it was. 0, or -1: the engine failed. */
int checkpoint_save(struct run *r, int64_t step, const struct zero_digest *digest, bool *well);

#endif
