// SPDX-License-Identifier: Apache-2.0
/* The trainer's command line: one table of options, and what the options mean
 * together. */
#ifndef EXAMPLES_GPT2_ARGUMENTS_H
#define EXAMPLES_GPT2_ARGUMENTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "examples/common/options.h"
#include "examples/gpt2/model.h"
#include "include/zero.h"

struct arguments {
    int stage, dtype, offload, offload_optimizer, offload_param, offload_grad, ring; /* enums */
    int state, grad_dtype, accumulate_in, reduction;                                 /* enums */
    struct option_list data, eval_data;
    int model, layers, channels, heads, seq;
    struct gpt_shape shape; /* what the line above amounts to */
    int batch;              /* sequences of one rank's micro-step */
    int accumulate, steps, warmup, decay;
    double lr, final_lr, clip, weight_decay, beta1, beta2, eps, temperature, loss_scale;
    int64_t seed, host_bytes, chunk;
    int device; /* enum */
    int threads, slots, deadline, eval_every, sample;
    int checkpoint_every;
    const char *nvme_path, *log, *trace, *tokenizer, *checkpoint;
    bool tf32, bf16x3, verify_spill, l2, recompute, plan, quiet, help;
};

/* Returns 0, or -1 with a sentence in error. With --help nothing else is
 * looked at. The strings are argv's. */
int arguments_parse(struct arguments *a, int argc, char **argv, char *error, size_t error_size);
void arguments_help(FILE *out);

/* The name --model has for this shape, or "own". */
const char *arguments_model(const struct arguments *a);

const char *arguments_dtype(const struct arguments *a); /* "bf16", ... */

/* Where optimizer state is to rest: an enum zero_place. */
int arguments_state_place(const struct arguments *a);

/* Optimizer state or parameters are to rest on nvme, but for --host-bytes. */
bool arguments_ask_for_files(const struct arguments *a);

/* The engine adapts the loss scale. */
bool arguments_scale_adapts(const struct arguments *a);

/* The model's configuration, for threads workers. */
struct gpt_config arguments_model_config(const struct arguments *a, int threads);

/* The engine's configuration. */
struct zero_config arguments_config(const struct arguments *a);

/* Learning rate of step 0, 1, ...: a linear rise over warmup steps, then half
 * a cosine down to final_lr times lr at step decay, then level. */
double arguments_lr(const struct arguments *a, int64_t step);

/* Everything that all ranks must give alike for one run: an option and what it is worth, 1
 * for one that is given where its text may differ. Use: another value makes another model, other
 * steps (but for --accumulate, which counts times the ranks) or neither. Returns how many. */
#define ARGUMENTS_ALIKE 37
struct argument_value {
    const char *option;
    double value;
    bool number; /* else a word or a flag */
    enum argument_use { ARGUMENT_OF_MODEL, ARGUMENT_OF_STEPS, ARGUMENT_OF_RUN } use;
};
int arguments_alike(const struct arguments *a, struct argument_value out[ARGUMENTS_ALIKE]);

#endif
