// SPDX-License-Identifier: Apache-2.0
/* How long an update takes by itself, before there is one: its files' bytes at what
 * the drives were found to do, its memory's bytes at what the memory does, and the
 * larger of both, since one goes on beside the other. */
#ifndef EXAMPLES_COMMON_PREDICT_H
#define EXAMPLES_COMMON_PREDICT_H

#include <stdbool.h>

#include "include/zero.h"

struct prediction {
    double seconds; /* from zero_step to the last write, with nothing beside it; 0: not known */
    double disk;    /* of it: files; 0: none are used, or their drives are not known */
    double memory;  /* 0: not known */
    bool files;     /* some are used */
};

/* Whether an update is a GPU's own, whose seconds are not known without it. */
static inline bool predict_is_gpus(enum zero_device device, const struct zero_plan *plan)
{
    return device == ZERO_CUDA && plan->device.state > 0;
}

/* Seconds that files take to read and write so many bytes; 0: their drives are not known. */
double predict_files(double read, double written, const struct zero_probe *probe);

/* local_ranks of one node update at once, on one set of drives and one memory.
 * stream: bytes per second of the node's memory; 0: not known. */
struct prediction predict_update(const struct zero_plan *plan, int local_ranks,
                                 const struct zero_probe *probe, double stream);

/* The command that makes drives known, for folders as in --nvme-path. */
const char *predict_advice(const char *folders, char *text, size_t size);

/* Why they are not known, and what to do: "no probe of ... is known; ... measures it". Where
 * ZERO_PROBE is 0 that is why. */
const char *predict_unknown(const char *folders, char *text, size_t size);

#endif
