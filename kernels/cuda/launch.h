// SPDX-License-Identifier: Apache-2.0
/*
 * The kernels of kernels.h on a GPU, bit for bit: each call appends one to a
 * stream and returns at once. Arrays are in memory of the stream's device, or
 * registered memory of the host; the device is the calling thread's current one.
 * Constants and lists of pointers are read before the call returns. Lengths,
 * overlaps and results are those of kernels.h, and so are alignments: 16 bytes
 * (8 for 16-bit arrays beside fp32 ones) are fast, an element's own work.
 *
 * The result is the launch's: what goes wrong later the stream says. n = 0
 * launches nothing.
 */
#ifndef KERNELS_CUDA_LAUNCH_H
#define KERNELS_CUDA_LAUNCH_H

#include "kernels/cuda/runtime.h"
#include "kernels/kernels.h"

struct wide; /* src/norm.h */

#ifdef __cplusplus
extern "C" {
#endif

/* Loads all of them for the current device. CUDA loads a kernel when it is launched first, and
 * may wait with that until the device is idle: where one of NCCL's works, for another rank. */
cudaError_t launch_load(void);

cudaError_t launch_adam(cudaStream_t stream, int64_t n, const struct adam *k, struct grads grads,
                        float *master, float *m, float *v, uint16_t *bf16);
cudaError_t launch_adam_split(cudaStream_t stream, int64_t n, const struct adam *k,
                              struct grads grads, uint16_t *weight, int16_t *remainder, float *m,
                              float *v);

cudaError_t launch_to_bf16(cudaStream_t stream, int64_t n, const float *in, uint16_t *out);
cudaError_t launch_from_bf16(cudaStream_t stream, int64_t n, const uint16_t *in, float *out);
cudaError_t launch_to_fp16(cudaStream_t stream, int64_t n, const float *in, uint16_t *out);

/* More parts than this are cudaErrorInvalidValue: add the others with a second
 * call that is not fresh, and ask that one for the squares. */
#define LAUNCH_PARTS_MAX 256

cudaError_t launch_sum_f32(cudaStream_t stream, int64_t n, int ranks, const float *const *parts,
                           bool fresh, float *acc, double *squares);
cudaError_t launch_sum_bf16(cudaStream_t stream, int64_t n, int ranks, const uint16_t *const *parts,
                            bool fresh, float *acc, double *squares);
cudaError_t launch_sum_fp16(cudaStream_t stream, int64_t n, int ranks, const uint16_t *const *parts,
                            bool fresh, float *acc, double *squares);

/* Adds n values exactly, as wide_add does, to a sum in device memory (8-byte
 * aligned), which is zero bits at first. What is read back is carried (wide_carry)
 * before it is compared or added to others. */
cudaError_t launch_wide_add(cudaStream_t stream, int64_t n, const double *values, struct wide *sum);

#ifdef __cplusplus
}
#endif

#endif
