// SPDX-License-Identifier: Apache-2.0
/* One training run of the gpt2 program on this rank: what it holds, and the
 * loop. What is printed about it is report.h's. */
#ifndef EXAMPLES_GPT2_TRAIN_H
#define EXAMPLES_GPT2_TRAIN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "examples/common/data.h"
#include "examples/common/tokenizer.h"
#include "examples/common/usage.h"
#include "examples/gpt2/arguments.h"
#include "examples/gpt2/matmul.h"
#include "examples/gpt2/model.h"
#include "examples/gpt2/plan.h"
#include "include/zero.h"

enum { RECENT = 20 }; /* losses in the mean that is printed at the end */

/* One step as reported: losses and norm are the whole job's, times this rank's. */
struct step_record {
    int64_t step; /* 1, 2, ... */
    double loss, norm, lr;
    bool evaluated;
    double eval_loss; /* where evaluated; NAN: not finite */
    double loss_scale;
    bool skipped;
    double seconds, wait, update;
    struct gpt_times times;
    int64_t read_bytes, written_bytes; /* of files: this rank's, in a finished row all ranks' */
};

/* What was done up to a moment: limits.h. */
struct run_mark {
    double when; /* clock_now */
    struct zero_stats stats;
    struct matmul_done products;
    struct usage_cpu program, library;
};

struct run {
    const struct arguments *a;
    struct data data;
    struct tokenizer tokenizer; /* with --tokenizer */
    struct zero_param *params;
    int count;
    struct zero *z;
    struct gpu *gpu; /* with --device cuda */
    struct gpt *model;
    struct own_bytes own;         /* planned */
    int32_t *tokens, *targets;    /* (batch, seq) */
    double *losses;               /* (accumulate) */
    struct trace *trace;          /* with --trace */
    FILE *traced;                 /* rank 0's, with --trace: open, so that no other run writes it
                                     and a pipe's reader sees no end before all ranks wrote */
    double trace_zero;            /* when all ranks had been created, on this rank's clock */
    FILE *saving;                 /* rank 0's, with --checkpoint: FILE.part, between saves, too */
    float *piece;                 /* with --checkpoint: what passes through memory at once */
    int64_t before;               /* steps of the runs that --checkpoint goes on from */
    int64_t made;                 /* zero_step calls so far, without those */
    FILE *log;                    /* rank 0's, with --log */
    struct step_record pending;   /* the log's next row, if there is one; step 0: none */
    double recent[RECENT];        /* of its step s from 0 on at s % RECENT */
    int64_t held_step;            /* behind which held_loss was measured last; 0: never */
    double held_loss;
    double seconds, waited;       /* in steps and the last wait, evaluation apart; for the engine */
    double longest;               /* seconds of the longest step so far */
    double computed;              /* seconds of forward and backward in them, on GPUs busy ones */
    double multiplied;            /* flops of products in them, on GPUs */
    struct run_mark begun, ended; /* before the first step, moved on by evaluations; after
                                     the last one's last write */
    double updated_apart;         /* seconds of updates behind evaluations, between the two */
    double printed;               /* clock_now of the last progress line */
    int stopped;                  /* the signal that ended all ranks after the last step; 0: none */
    bool kept;                    /* the last checkpoint that was due is written */
    bool live;                    /* a progress line stands on the terminal without its end */
    bool unheard;                 /* nothing would be left of this run: error says why */
    char error[640];              /* "" when this rank is well and only another one failed */
};

/* Local: finds what --data names; a->shape gets GPT-2's vocabulary where that is
 * tokens. 0, or -1 with a sentence in error. */
int run_find(struct arguments *a, struct data *data, char *error, size_t error_size);

/* COLLECTIVE, all of them; 0, or -1 with error set. After a failure only
 * run_destroy is left. */
int run_create(struct run *r, struct arguments *a);
int run_train(struct run *r);
int run_finish(struct run *r); /* reports, sample, digest */
void run_destroy(struct run *r);

/* COLLECTIVE: 0 when every rank passes true. Ranks that fail keep their error. */
int run_agree(struct run *r, bool well);

/* COLLECTIVE: the sum of every rank's value. */
int run_sum(struct run *r, int64_t value, int64_t *sum);

/* COLLECTIVE: the most that a rank has, of values of 0 or more. */
int run_most(struct run *r, int64_t value, int64_t *most);

/* Takes the engine's sentence when status is not ZERO_OK. 0 or -1. */
int run_check(struct run *r, int status);

#endif
