// SPDX-License-Identifier: Apache-2.0
/*
 * Four fp32 lanes, on 64-bit ARM, where every CPU has them. Conversions to fp16
 * are the CPU's, whose modes kernels_thread_init sets.
 */
#include <arm_neon.h>
#include <stdint.h>

#include "kernels/bf16.h"
#include "kernels/fp16.h"
#include "kernels/kernels.h"

#define VECTOR        float32x4_t
#define LANES         4
#define LATER         3
#define MOMENTS_AHEAD 96
#define REST_AHEAD    0
#define FAR_CPUS      0

static inline VECTOR vector_load(const float *in)
{
    return vld1q_f32(in);
}

static inline void vector_store(float *out, VECTOR x)
{
    vst1q_f32(out, x);
}

static inline VECTOR vector_set(float x)
{
    return vdupq_n_f32(x);
}

static inline VECTOR vector_sqrt(VECTOR x)
{
    return vsqrtq_f32(x);
}

/* All ones where x is a number. */
static inline uint32x4_t vector_numbers(VECTOR x)
{
    return vceqq_f32(x, x);
}

static inline void bf16_store(uint16_t *out, VECTOR x)
{
    uint32x4_t bits = vaddq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(0x8000));
    uint16x4_t numbers = vmovn_u32(vector_numbers(x));
    vst1_u16(out, vbsl_u16(numbers, vshrn_n_u32(bits, 16), vdup_n_u16(BF16_NAN)));
}

static inline VECTOR bf16_widen(const uint16_t *in)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(in), 16));
}

static inline void split_store(uint16_t *weight, int16_t *remainder, VECTOR x)
{
    uint32x4_t bits = vandq_u32(vreinterpretq_u32_f32(x), vector_numbers(x));
    bf16_store(weight, x);
    vst1_s16(remainder, vreinterpret_s16_u16(vmovn_u32(bits)));
}

static inline VECTOR split_load(const uint16_t *weight, const int16_t *remainder)
{
    int32x4_t upper = vreinterpretq_s32_f32(bf16_widen(weight));
    return vreinterpretq_f32_s32(vaddw_s16(upper, vld1_s16(remainder)));
}

static inline void fp16_store(uint16_t *out, VECTOR x)
{
    uint16x4_t rounded = vreinterpret_u16_f16(vcvt_f16_f32(x));
    vst1_u16(out, vbsl_u16(vmovn_u32(vector_numbers(x)), rounded, vdup_n_u16(FP16_NAN)));
}

static inline VECTOR fp16_widen(const uint16_t *in)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(in)));
}

static inline double block_square(const VECTOR *sum)
{
    float64x2_t lane[4]; /* 0 and 1, 2 and 3, 4 and 5, 6 and 7 */
    for (int j = 0; j < 4; j++)
        lane[j] = vdupq_n_f64(0);
    for (int q = 0; q < KERNELS_BLOCK / LANES; q++) {
        float64x2_t a = vcvt_f64_f32(vget_low_f32(sum[q])), b = vcvt_high_f64_f32(sum[q]);
        int j = q % 2 * 2;
        lane[j] = vaddq_f64(lane[j], vmulq_f64(a, a));
        lane[j + 1] = vaddq_f64(lane[j + 1], vmulq_f64(b, b));
    }
    float64x2_t two = vaddq_f64(vaddq_f64(lane[0], lane[2]), vaddq_f64(lane[1], lane[3]));
    return vgetq_lane_f64(two, 0) + vgetq_lane_f64(two, 1);
}

#include "kernels/cpu/vector.h"

const struct kernels kernels_neon = VECTOR_KERNELS("neon");
