// SPDX-License-Identifier: Apache-2.0
/*
 * Adam on a GPU: kernels/adam.h operation by operation. Every one is an intrinsic
 * that rounds to nearest, which no compiler contracts or reorders; division and
 * root are the exact ones. Bound by memory all the same.
 */
#include "kernels/cuda/each.cuh"
#include "kernels/split.h"

__device__ inline void step(const adam &k, bool l2, float grad, float &master, float &m, float &v)
{
    float g = __fmul_rn(grad, k.grad_scale);
    if (l2)
        g = __fadd_rn(g, __fmul_rn(k.l2, master));
    float p = __fmul_rn(master, k.decay);
    m = __fadd_rn(__fmul_rn(k.beta1, m), __fmul_rn(k.one_minus_beta1, g));
    v = __fadd_rn(__fmul_rn(k.beta2, v), __fmul_rn(__fmul_rn(k.one_minus_beta2, g), g));
    float root = __fadd_rn(__fmul_rn(__fsqrt_rn(v), k.root_scale), k.eps);
    master = __fsub_rn(p, __fmul_rn(k.step_size, __fdiv_rn(m, root)));
}

__device__ inline float widen(float grad)
{
    return grad;
}

__device__ inline float widen(uint16_t grad)
{
    return bf16_to_float(grad);
}

/* Grad is float, or uint16_t: bf16. */
template <typename Grad> struct Adam {
    static constexpr int turns = 1;
    adam k;
    bool l2;
    const Grad *grads;
    float *master, *m, *v;
    uint16_t *bf16; /* nullptr: not wanted */

    template <int W> struct Values {
        Pack<Grad, W> grads;
        Pack<float, W> master, m, v;
    };

    template <int W> __device__ void load(int64_t i, Values<W> &x) const
    {
        x.grads = pack_load<W>(grads + i);
        x.master = pack_load<W>(master + i);
        x.m = pack_load<W>(m + i);
        x.v = pack_load<W>(v + i);
    }

    template <int W> __device__ void store(int64_t i, Values<W> &x) const
    {
        Pack<uint16_t, W> rounded;
#pragma unroll
        for (int j = 0; j < W; j++) {
            step(k, l2, widen(x.grads.at[j]), x.master.at[j], x.m.at[j], x.v.at[j]);
            rounded.at[j] = bf16_from_float(x.master.at[j]);
        }
        pack_store(master + i, x.master);
        pack_store(m + i, x.m);
        pack_store(v + i, x.v);
        if (bf16)
            pack_store(bf16 + i, rounded);
    }
};

template <typename Grad>
static cudaError_t adam_run(cudaStream_t stream, int64_t n, const adam *k, const Grad *grads,
                            float *master, float *m, float *v, uint16_t *bf16)
{
    Adam<Grad> body = {*k, k->l2 != 0, grads, master, m, v, bf16};
    return each_run(stream, n, body, grads, master, m, v, bf16);
}

cudaError_t launch_adam(cudaStream_t stream, int64_t n, const adam *k, grads grads, float *master,
                        float *m, float *v, uint16_t *bf16)
{
    return grads.f32 ? adam_run(stream, n, k, grads.f32, master, m, v, bf16)
                     : adam_run(stream, n, k, grads.bf16, master, m, v, bf16);
}

template <typename Grad> struct AdamSplit {
    static constexpr int turns = 1;
    adam k;
    bool l2;
    const Grad *grads;
    uint16_t *weight;
    int16_t *remainder;
    float *m, *v;

    template <int W> struct Values {
        Pack<Grad, W> grads;
        Pack<uint16_t, W> weight;
        Pack<int16_t, W> remainder;
        Pack<float, W> m, v;
    };

    template <int W> __device__ void load(int64_t i, Values<W> &x) const
    {
        x.grads = pack_load<W>(grads + i);
        x.weight = pack_load<W>(weight + i);
        x.remainder = pack_load<W>(remainder + i);
        x.m = pack_load<W>(m + i);
        x.v = pack_load<W>(v + i);
    }

    template <int W> __device__ void store(int64_t i, Values<W> &x) const
    {
#pragma unroll
        for (int j = 0; j < W; j++) {
            float master = join_element(x.weight.at[j], x.remainder.at[j]);
            step(k, l2, widen(x.grads.at[j]), master, x.m.at[j], x.v.at[j]);
            split_element(master, &x.weight.at[j], &x.remainder.at[j]);
        }
        pack_store(weight + i, x.weight);
        pack_store(remainder + i, x.remainder);
        pack_store(m + i, x.m);
        pack_store(v + i, x.v);
    }
};

template <typename Grad>
static cudaError_t adam_split_run(cudaStream_t stream, int64_t n, const adam *k, const Grad *grads,
                                  uint16_t *weight, int16_t *remainder, float *m, float *v)
{
    AdamSplit<Grad> body = {*k, k->l2 != 0, grads, weight, remainder, m, v};
    return each_run(stream, n, body, grads, weight, remainder, m, v);
}

cudaError_t launch_adam_split(cudaStream_t stream, int64_t n, const adam *k, grads grads,
                              uint16_t *weight, int16_t *remainder, float *m, float *v)
{
    return grads.f32 ? adam_split_run(stream, n, k, grads.f32, weight, remainder, m, v)
                     : adam_split_run(stream, n, k, grads.bf16, weight, remainder, m, v);
}

cudaError_t load_adam(void)
{
    return each_load<Adam<float>, Adam<uint16_t>, AdamSplit<float>, AdamSplit<uint16_t>>();
}
