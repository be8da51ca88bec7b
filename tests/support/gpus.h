// SPDX-License-Identifier: Apache-2.0
/*
 * GPUs for suites that are linked in two ways: with the CUDA runtime, NCCL and cuBLAS, for
 * a machine's GPUs, or with those for tests (fake_cuda.h, fake_nccl.h, fake_cublas.h).
 */
#ifndef TESTS_SUPPORT_GPUS_H
#define TESTS_SUPPORT_GPUS_H

#include <stdbool.h>

struct fake_cuda_options;

bool gpus_fake(void);

/* Before the runtime's first call. Fakes start with these options (NULL: the defaults), and
 * NCCL's with the same seed. Returns how many GPUs there are; none: 0, and the reason is
 * printed. */
int gpus_begin(const struct fake_cuda_options *fakes);

/* After its last call in any thread. Returns how often fakes have reported something, leaks
 * among it; a machine's report nothing. */
int gpus_end(void);

#endif
