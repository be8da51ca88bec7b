// SPDX-License-Identifier: Apache-2.0
/*
 * What is allocated where: stage, places and sizes become offsets in three
 * spaces (device memory, the host arena, the spill file). Arithmetic only; the
 * engine allocates exactly these totals, and its code asks the plan, never the
 * stage.
 */
#ifndef SRC_PLAN_H
#define SRC_PLAN_H

#include "src/config.h"
#include "src/layout.h"

#define PLAN_SLOTS_MAX 64

/* A stretch of a unit's shard that lies in one chunk: how parameters on NVMe
 * are fetched. */
struct segment {
    int64_t chunk;
    int64_t begin, count; /* elements in state order */
    bool in_ram;          /* the chunk's master is in host memory and is the parameter */
    int64_t file_offset;  /* aligned envelope in the file, */
    int64_t bytes;        /* its length, */
    int64_t skip;         /* the first element's byte in it, */
    int64_t staging;      /* and where it goes in the staging slot */
};

struct plan {
    struct settings set;
    int ranks;
    int64_t element;         /* bytes of a parameter */
    enum zero_place compute; /* where Adam runs: ZERO_DEVICE or ZERO_HOST */
    bool whole_params;       /* stages 0-2 */
    bool whole_state;        /* stage 0: state order is whole order */
    bool gathers;            /* stages 1-3: a unit's parameters come from all ranks */
    bool shared;             /* fp32: the master is the parameter, in one place */
    int arrays;              /* fp32 arrays of a state record: 2 when the master rests with
                                the parameters in memory, else 3 */
    int64_t state;           /* elements in state order */
    int64_t chunk, chunks;
    int64_t resident; /* chunks [0, resident) rest in memory, the others in the file */

    /* What passes through a chunk slot beside the state record. */
    bool slot_grad;   /* gradients rest elsewhere than Adam runs */
    bool slot_param;  /* so do parameters */
    bool slot_bounce; /* new parameters cross the host on their way from device to file */

    int gather_slots, grad_slots, chunk_slots;
    int64_t gather_elements[PLAN_SLOTS_MAX], grad_elements[PLAN_SLOTS_MAX]; /* descending */
    int64_t piece_bytes; /* of the ordered reduction */

    struct {
        int64_t params, grads, state, scratch, total;
        int64_t gather[PLAN_SLOTS_MAX], grad[PLAN_SLOTS_MAX], sum[PLAN_SLOTS_MAX];
        int64_t chunk_grad[PLAN_SLOTS_MAX], chunk_param[PLAN_SLOTS_MAX];
    } device; /* byte offsets */
    struct {
        int64_t params, grads, state, total;
        int64_t staging[PLAN_SLOTS_MAX];
        int64_t record[PLAN_SLOTS_MAX], chunk_grad[PLAN_SLOTS_MAX], chunk_param[PLAN_SLOTS_MAX];
    } host;
    struct {
        int64_t params, total; /* records come first */
    } file;

    struct zero_plan report;
};

int plan_make(struct plan *p, const struct layout *l, const struct settings *set,
              struct error *error);

/* Elements of chunk c. */
int64_t plan_chunk_count(const struct plan *p, int64_t c);

/* Whether chunk c passes through a chunk slot in an update. */
bool plan_chunk_slotted(const struct plan *p, int64_t c);

/* Bytes of one array of chunk c in a record, and of the record itself. */
int64_t plan_array_bytes(const struct plan *p, int64_t c);
int64_t plan_record_bytes(const struct plan *p, int64_t c);

/* Where chunk c's record and its 16-bit (or fp32) parameters lie in the file. */
int64_t plan_record_offset(const struct plan *p, int64_t c);
int64_t plan_param_offset(const struct plan *p, int64_t c);
int64_t plan_param_bytes(const struct plan *p, int64_t c);

/* Where unit u starts in state order, and how much of it a rank holds there. */
int64_t plan_unit_begin(const struct plan *p, const struct layout *l, int u);
int64_t plan_unit_count(const struct plan *p, const struct layout *l, int u);

/* The segments of unit u's shard (parameters on NVMe), at most
 * plan_segments_max of them. segments may be NULL: only count. */
int plan_segments(const struct plan *p, const struct layout *l, int u, struct segment *segments);
int plan_segments_max(const struct plan *p, const struct layout *l);

#endif
