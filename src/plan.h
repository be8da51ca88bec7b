// SPDX-License-Identifier: Apache-2.0
/*
 * What is allocated where: stage, places and sizes become offsets in three
 * spaces (device memory, the host arena, the spill file). Arithmetic only; the
 * engine allocates exactly these totals, and its code asks the plan, never the
 * stage.
 *
 * State order is what a rank holds: its trainable parts one after the other
 * (src/layout.h), then, from the next chunk's beginning on, its frozen ones. A
 * frozen chunk passes through the same walk as any other, but it has parameters
 * alone: no record, no gradients, no place in an optimizer step.
 */
#ifndef SRC_PLAN_H
#define SRC_PLAN_H

#include "src/config.h"
#include "src/layout.h"

#define PLAN_SLOTS_MAX      64
#define PLAN_RELAYS         2 /* collectives whose parts pass through host memory at once */
#define PLAN_CHUNKS_MAX     (1 << 24)
#define PLAN_CHUNKS_AT_ONCE 80000 /* have room in the queues, 2 KB each with their tables */

/* A stretch of a part's shard that lies in one chunk: how parameters on NVMe
 * are fetched. */
struct segment {
    int64_t chunk;
    int64_t begin, count; /* elements in state order */
    int64_t to;           /* element of the unit where it goes */
    bool in_ram;          /* the chunk's master is in host memory and is the parameter */
    int64_t file_offset;  /* aligned envelope in the file, */
    int64_t bytes;        /* its length, */
    int64_t skip;         /* the first element's byte in it, */
    int64_t staging;      /* and where it goes in the staging slot */
};

/* A stretch of one tensor that is contiguous in state order. */
struct run {
    int64_t begin; /* in state order */
    int64_t count;
    int64_t first; /* element of the tensor */
    int tensor;
};

struct plan {
    struct settings set;
    int ranks;
    int64_t element;              /* bytes of a parameter */
    enum zero_place compute;      /* where Adam runs: ZERO_DEVICE or ZERO_HOST */
    bool whole_params;            /* stages 0-2 */
    bool whole_state;             /* stage 0: state order is whole order, parameters
                                   need no gather */
    bool device_apart;            /* the host cannot read device memory */
    bool via_host;                /* units' parts cross the host on their way to other ranks */
    bool shared;                  /* fp32: the master is the parameter, in one place */
    bool whole_grads;             /* stage 0, or accumulated locally: sums of whole units */
    int64_t master;               /* bytes an element of the master in a state record: 4, 2 (split),
                                0 where it rests with the parameters in memory */
    int64_t grad;                 /* bytes of a gradient sum at rest */
    int64_t state;                /* trainable elements in state order */
    int64_t frozen, frozen_begin; /* frozen ones, and where they start */
    int64_t chunk, chunks;
    int64_t live;     /* chunks [0, live) are trainable */
    int64_t resident; /* so many of them rest in memory, spread evenly, the others in the file */

    /* What passes through a chunk slot beside the state record. */
    bool slot_grad;     /* gradients rest elsewhere than Adam runs */
    bool slot_param;    /* so do parameters that are not the master */
    bool slot_via_host; /* new parameters cross the host on their way from device to file */

    int gather_slots, grad_slots, chunk_slots;
    int chunk_window; /* the chunk slots that are used over and over, once each has been used */
    int64_t gather_elements[PLAN_SLOTS_MAX], grad_elements[PLAN_SLOTS_MAX]; /* descending */
    int64_t piece_bytes; /* of the ordered reduction */

    struct {
        int64_t params, grads, state, scratch, room, total;
        int64_t gather[PLAN_SLOTS_MAX], grad[PLAN_SLOTS_MAX], sum[PLAN_SLOTS_MAX];
        int64_t chunk_grad[PLAN_SLOTS_MAX], chunk_param[PLAN_SLOTS_MAX];
    } device; /* byte offsets */
    struct {
        int64_t params, grads, state, checks, total;
        int64_t staging[PLAN_SLOTS_MAX];
        int64_t relay[PLAN_RELAYS], scratch; /* via_host: parts, what is received of sums */
        int64_t bounce_record, bounce_param; /* device_apart: a chunk that the host walks over */
        int64_t record[PLAN_SLOTS_MAX], chunk_grad[PLAN_SLOTS_MAX], chunk_param[PLAN_SLOTS_MAX];
    } host;
    struct {
        int64_t params, total; /* records come first */
    } file;

    struct zero_plan report;
};

/* set may be p's own. */
int plan_make(struct plan *p, const struct layout *l, const struct settings *set,
              struct error *error);

/* Adds the totals of a node; refuses what cannot be counted. */
int plan_node(struct zero_plan *report, int local_ranks, struct error *error);

/* Elements of chunk c. */
int64_t plan_chunk_count(const struct plan *p, int64_t c);

/* How many chunks before c, 0 <= c <= chunks, have their record in memory: the files are moved
 * while those are updated. */
int64_t plan_chunks_near(const struct plan *p, int64_t c);

/* Of chunk c: is it frozen; does its record rest in memory, or in the file; are its
 * parameters apart from its master; does it pass through a chunk slot; and does
 * a walk need its parameters (they are half of the master, or all there is)
 * brought there. */
bool plan_chunk_frozen(const struct plan *p, int64_t c);
bool plan_chunk_near(const struct plan *p, int64_t c);
bool plan_chunk_in_file(const struct plan *p, int64_t c);
bool plan_chunk_apart(const struct plan *p, int64_t c);
bool plan_chunk_slotted(const struct plan *p, int64_t c);
bool plan_chunk_fetched(const struct plan *p, int64_t c);

/* Chunk c's record: byte offsets of the moments (the master comes first) and
 * of its end. Arrays in the file are padded to SPILL_ALIGN. */
struct record {
    int64_t m, v, bytes;
};
struct record plan_record(const struct plan *p, int64_t c);

/* Where chunk c's record and its 16-bit (or fp32) parameters lie: the record in
 * the file, or in the memory of resident state; parameters in the file. */
int64_t plan_record_offset(const struct plan *p, int64_t c);
int64_t plan_param_offset(const struct plan *p, int64_t c);
int64_t plan_param_bytes(const struct plan *p, int64_t c);

/* Where a part of unit u starts in state order, and how much of it a rank holds
 * there. */
int64_t plan_part_begin(const struct plan *p, const struct layout *l, int u, enum part_kind kind);
int64_t plan_part_count(const struct plan *p, const struct layout *l, int u, enum part_kind kind);

/* The index of a position of state order among a rank's parameters, which have
 * no gap before the frozen ones. */
int64_t plan_param_index(const struct plan *p, int64_t position);

/* How many segments unit u's shards have (parameters on NVMe), at most plan_segments_max.
 * segments and staging, the bytes that they take of a staging slot, may be NULL. */
int plan_segments(const struct plan *p, const struct layout *l, int u, struct segment *segments,
                  int64_t *staging);
int plan_segments_max(const struct plan *p, const struct layout *l);

/* What rank holds of a tensor. False: nothing. */
bool plan_run_of(const struct plan *p, const struct layout *l, int tensor, int rank,
                 struct run *run);
/* Of all tensors, sorted. At most l->count runs; returns how many. */
int plan_runs(const struct plan *p, const struct layout *l, int rank, struct run *runs);

/* The first run that ends behind position, or n. */
int plan_run_at(const struct run *runs, int n, int64_t position);

#endif
