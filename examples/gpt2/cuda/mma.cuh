// SPDX-License-Identifier: Apache-2.0
/*
 * What a warp does in one instruction on GPUs from compute capability 8.0 on: products
 * of 16 x 16 by 16 x 8 in tensor cores, the loads that bring operands into the layout
 * that they want, and copies to shared memory that run beside computing. Names of
 * layouts are those of the PTX manual, "Matrix fragments for mma.m16n8k16".
 * tests/support/fake_mma.h has the same for a host.
 */
#ifndef EXAMPLES_GPT2_CUDA_MMA_CUH
#define EXAMPLES_GPT2_CUDA_MMA_CUH

#include "examples/gpt2/cuda/operand.cuh"

/* The block's shared memory that its launch gave a size. */
__device__ inline char *shared_memory()
{
    extern __shared__ int4 shared[];
    return reinterpret_cast<char *>(shared);
}

__device__ inline uint32_t shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

/* ------------------------------------------------------- asynchronous copies
 * Of bytes, 16-byte aligned, or 4; not wanted: zeros. They are there when a wait for
 * the group that they were committed in has returned, in the thread that waits. */

__device__ inline void copy_16(void *to, const void *from, bool wanted)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(wanted ? 16 : 0)
                 : "memory");
}

__device__ inline void copy_4(void *to, const void *from, bool wanted)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(wanted ? 4 : 0)
                 : "memory");
}

__device__ inline void copies_wait()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* ---------------------------------------------------------------- fragments */

/* Four 8 x 8 matrices of 16-bit elements; lanes 8i .. 8i + 7 point to the rows of matrix i. */
__device__ inline void fragments_load(uint32_t (&to)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* Likewise, each transposed. */
__device__ inline void fragments_load_transposed(uint32_t (&to)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* Two neighbours of a fragment, to nearest, ties to even: a weight on its way into a product is
 * no number that anything else decides on. */
template <typename Operand> __device__ inline uint32_t fragment_of(float low, float high);

template <> __device__ inline uint32_t fragment_of<OperandBf16>(float low, float high)
{
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

template <> __device__ inline uint32_t fragment_of<OperandF16>(float low, float high)
{
    uint32_t both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

/* c (16, 8) += a (16, 16) b (16, 8): c00 and c01 in row lane / 4, c10 and c11 eight below. */
#define MMA(type)                                                                                  \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                    \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                 \
                 : "+f"(c00), "+f"(c01), "+f"(c10), "+f"(c11)                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

template <typename Operand>
__device__ inline void mma(float &c00, float &c01, float &c10, float &c11, const uint32_t (&a)[4],
                           uint32_t b0, uint32_t b1);

template <>
__device__ inline void mma<OperandBf16>(float &c00, float &c01, float &c10, float &c11,
                                        const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    MMA("bf16");
}

template <>
__device__ inline void mma<OperandF16>(float &c00, float &c01, float &c10, float &c11,
                                       const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    MMA("f16");
}

#undef MMA

#endif
