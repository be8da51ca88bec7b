// SPDX-License-Identifier: Apache-2.0
/* What memory moves: loops with the Adam kernel's reads and writes and next to no
 * arithmetic, its slow arithmetic with few reads and writes, and plain copies.
 * What a kernel or a whole update is measured against, or predicted with. */
#ifndef EXAMPLES_COMMON_STREAM_H
#define EXAMPLES_COMMON_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "examples/common/workers.h"

/* The forms of one update that the engine uses. */
enum stream_form {
    FORM_BF16_GRAD, /* a bf16 model whose gradient sums rest in bf16 */
    FORM_BF16,      /* whose sums rest in fp32 */
    FORM_FP32,      /* an fp32 model */
    FORM_SPLIT_BF16_GRAD,
    FORM_SPLIT, /* the master is the weight and a remainder */
    FORMS,
};

struct stream_arrays {
    float *grad, *master, *m, *v;
    uint16_t *grad16, *weight;
    int16_t *remainder;
};

#define STREAM_MOVED 30 /* bytes per element in FORM_BF16: 16 read, 14 written */

/* Cuts memory of stream_bytes into arrays that lie well to each other. */
struct stream_arrays stream_carve(void *memory, int64_t elements);
int64_t stream_bytes(int64_t elements);

/* Elements [first, first + count); both are multiples of 64. */
typedef void stream_fn(const struct stream_arrays *a, int64_t first, int64_t count);

/* For the widest registers of this CPU. */
struct streams {
    stream_fn *ordinary[FORMS];
    stream_fn *non_temporal[FORMS]; /* stores that pass the caches by; NULL: not on this CPU */
    stream_fn *root;                /* master = m / (sqrt(v) + eps): one root and one division */
    /* to = a + b, or with b NULL to += a; none overlaps another. */
    void (*sum)(float *to, const float *a, const float *b, int64_t count);
};

const struct streams *streams_select(void);

/* A thread's part of elements, a multiple of 64: one each, as threads side by side would read
 * ahead into what the other one writes. */
int64_t stream_part(int64_t elements, int threads);

/* A pass over elements, a multiple of 64, by all threads, each its part. */
void stream_run(struct workers *w, const struct stream_arrays *a, stream_fn *pass,
                int64_t elements);

static inline bool form_bf16_grad(enum stream_form f)
{
    return f == FORM_BF16_GRAD || f == FORM_SPLIT_BF16_GRAD;
}

static inline bool form_split(enum stream_form f)
{
    return f == FORM_SPLIT || f == FORM_SPLIT_BF16_GRAD;
}

/* Bytes per second that the workers move together with the better of the first two
 * loops in FORM_BF16, in the best of the passes that begin within so many seconds. Overwrites
 * memory, at a page's boundary, as far as it uses it. 0: it is too little to measure in. What a
 * third cache holds all of it gives that one's rate. */
double stream_rate(struct workers *w, void *memory, int64_t bytes, double seconds);

/* The same for memcpy by the calling thread alone; a byte counts once. */
double stream_copy_rate(void *memory, int64_t bytes, double seconds);

/* stream_rate of so many threads beyond the caches, in memory of its own, for about 0.1 s; bound:
 * this rank is bound to some CPUs (launch_bound), and all but the calling thread go beyond these.
 * 0: too little is free, of which it takes a quarter at most. */
double stream_rate_apart(int threads, bool bound);

#endif
