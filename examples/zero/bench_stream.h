// SPDX-License-Identifier: Apache-2.0
/* The loops that the Adam kernel is measured against: its reads and writes with
 * next to no arithmetic, and its slow arithmetic with few reads and writes. */
#ifndef EXAMPLES_ZERO_BENCH_STREAM_H
#define EXAMPLES_ZERO_BENCH_STREAM_H

#include <stdint.h>

/* What one update touches: 16 bytes read and 14 written per element. */
struct stream_arrays {
    float *grad, *master, *m, *v;
    uint16_t *bf16;
};

/* Elements [first, first + count); both are multiples of 64. */
typedef void stream_fn(const struct stream_arrays *a, int64_t first, int64_t count);

/* For the widest registers of this CPU. */
struct streams {
    stream_fn *ordinary;
    stream_fn *non_temporal; /* stores that pass the caches by; NULL: not on this CPU */
    stream_fn *root;         /* master = m / (sqrt(v) + eps): one root and one division */
};

struct streams streams_select(void);

#endif
