// SPDX-License-Identifier: Apache-2.0
/* The toy model on (fake) GPUs: rank r uses GPU r modulo gpus; what it computes are
 * operations of the engine's stream, asynchronous like a real program's. */
#ifndef TESTS_SUPPORT_TOY_CUDA_H
#define TESTS_SUPPORT_TOY_CUDA_H

#include "tests/support/toy.h"

/* From here on, with the device of src/device/cuda.c, which registers host memory in
 * pieces of 64 KiB, and with or without NCCL (tests/support/fake_nccl.h). */
void toy_cuda_start(int gpus, bool nccl);

/* Until the next start the program computes in CUDA's default stream. */
void toy_cuda_in_default(void);

/* Whether a call of the runtime that was the program's own has failed since. */
bool toy_cuda_failed(void);

#endif
