// SPDX-License-Identifier: Apache-2.0
/* The caller's configuration with every default filled in and every
 * contradiction refused. Nothing after this asks whether a field is 0, but of
 * loss_scale and threads. */
#ifndef SRC_CONFIG_H
#define SRC_CONFIG_H

#include "include/zero.h"
#include "src/error.h"

#define DEADLINE_SECONDS     300 /* unless the configuration says otherwise */
#define DEADLINE_SECONDS_MAX (1 << 30)

struct settings {
    int stage;
    enum zero_dtype dtype;
    enum zero_device device;
    void *stream;                       /* the program's own, or NULL */
    bool comm_on_device;                /* the program's communicator takes device memory */
    bool via_host;                      /* collectives take none */
    enum zero_place state, param, grad; /* never ZERO_AUTO */
    bool split;                         /* the master is the bf16 weight and a remainder */
    bool local;                         /* gradients accumulate on each rank */
    bool added;                         /* over ranks by the communicator, in its own order */
    bool round_grads;                   /* gradient sums are rounded to bf16 */
    int accumulate;                     /* micro-steps a step, to begin with */
    double loss_scale;                  /* 0: dynamic */
    char nvme_path[1024];               /* folders with ':' between them */
    int64_t host_bytes, program_bytes;
    int64_t chunk;
    bool chunk_grows; /* with the state of a rank, as it was left to the library */
    int chunk_slots, gather_slots, grad_slots;
    enum zero_ring ring;
    bool verify; /* pages of files have checksums */
    int threads; /* 0: to be chosen from the affinity masks of the node's ranks */
    int deadline_seconds;
};

#define CHUNK_MAX ((int64_t)1 << 30)

int settings_resolve(struct settings *s, const struct zero_config *config, struct error *error);

/* What the ranks must agree on, as numbers; and ZERO_OK, or the first in which two of them
 * differ. */
#define SETTINGS_SHARED 19
void settings_share(const struct settings *s, int64_t values[SETTINGS_SHARED]);
int settings_compare(const int64_t *mine, int me, const int64_t *theirs, int other,
                     struct error *error);

static inline int64_t dtype_bytes(enum zero_dtype dtype)
{
    return dtype == ZERO_FP32 ? 4 : 2;
}

const char *place_name(enum zero_place place); /* not ZERO_AUTO's */
const char *dtype_name(enum zero_dtype dtype);

/* The largest magnitude that is finite when rounded to dtype. */
float dtype_limit(enum zero_dtype dtype);

#endif
