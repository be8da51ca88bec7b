// SPDX-License-Identifier: Apache-2.0
/*
 * Cross entropy over chunks of the vocabulary. Forward: a block has a row of a chunk and
 * joins its threads' maxima and sums, then the row's, which is kept between chunks with
 * its sum in double. Backward is element by element.
 */
#include "examples/gpt2/cuda/rows.cuh"

#define LOSS_THREADS 256
#define LOSS_WARPS   (LOSS_THREADS / WARP)
#define LOSS_AT_ONCE 16 /* logits of a thread */

/* Of some logits: their maximum, and the sum of exp(logit - max). */
struct Softmax {
    float max, sum;
};

/* Equal maxima are asked for first: -inf less -inf is no number. */
__device__ inline Softmax softmax_join(const Softmax &a, const Softmax &b)
{
    const float max = fmaxf(a.max, b.max);
    const float first = a.max == max ? a.sum : a.sum * exp_fast(a.max - max);
    const float second = b.max == max ? b.sum : b.sum * exp_fast(b.max - max);
    return {max, first + second};
}

/* A thread's share of count logits: a pack of every LOSS_THREADS. */
template <int W> __device__ inline Softmax softmax_of(const float *logits, int count)
{
    constexpr int packs = LOSS_AT_ONCE / W;
    Softmax all = {-INFINITY, 0.0f};
    for (int first = threadIdx.x * W; first < count; first += packs * LOSS_THREADS * W) {
        Pack<float, W> x[packs];
        Softmax some = {-INFINITY, 0.0f};
#pragma unroll
        for (int p = 0; p < packs; p++)
            if (first + p * LOSS_THREADS * W + W <= count)
                x[p] = pack_load<W>(logits + first + p * LOSS_THREADS * W);
            else /* the row ends here, or in this pack */
#pragma unroll
                for (int j = 0; j < W; j++) {
                    const int at = first + p * LOSS_THREADS * W + j;
                    x[p].at[j] = at < count ? logits[at] : -INFINITY;
                }
#pragma unroll
        for (int i = 0; i < LOSS_AT_ONCE; i++)
            some.max = fmaxf(some.max, x[i / W].at[i % W]);
#pragma unroll
        for (int i = 0; i < LOSS_AT_ONCE; i++)
            some.sum += exp_fast(x[i / W].at[i % W] - some.max);
        all = softmax_join(all, some);
    }
    return all;
}

template <int W>
__global__ void __launch_bounds__(LOSS_THREADS)
    softmax(const int first, const int count, const int stride, const float *const logits,
            const int32_t *const targets, gpt_softmax *const rows)
{
    __shared__ Softmax room[LOSS_WARPS];
    const float *const row = logits + (int64_t)blockIdx.x * stride;
    Softmax own = softmax_of<W>(row, count);
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        own = softmax_join(own, {__shfl_xor_sync(0xFFFFFFFFu, own.max, distance),
                                 __shfl_xor_sync(0xFFFFFFFFu, own.sum, distance)});
    if (threadIdx.x % WARP == 0)
        room[threadIdx.x / WARP] = own;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (int w = 1; w < LOSS_WARPS; w++)
        own = softmax_join(own, room[w]);
    gpt_softmax so_far = {0.0, -INFINITY, 0.0f};
    if (first > 0)
        so_far = rows[blockIdx.x];
    const float max = fmaxf(so_far.max, own.max);
    const double before = so_far.max == max ? 1.0 : exp((double)so_far.max - (double)max);
    const double now = own.max == max ? 1.0 : exp((double)own.max - (double)max);
    const int target = targets[blockIdx.x] - first;
    rows[blockIdx.x] = {so_far.sum * before + (double)own.sum * now, max,
                        target >= 0 && target < count ? row[target] : so_far.chosen};
}

cudaError_t gpt_launch_softmax(cudaStream_t stream, int rows, int first, int count, int stride,
                               const float *logits, const int32_t *targets,
                               gpt_softmax *softmax_rows)
{
    if (rows < 0 || first < 0 || count < 1 || stride < count)
        return cudaErrorInvalidValue;
    if (rows == 0)
        return cudaSuccess;
    auto kernel = rows_fit<4>(stride, logits) ? softmax<4> : softmax<1>;
    return launch(stream, rows, LOSS_THREADS, kernel, first, count, stride, logits, targets,
                  softmax_rows);
}

__global__ void __launch_bounds__(LOSS_THREADS)
    row_losses(const int rows, const gpt_softmax *const softmax, float *const lse,
               double *const losses)
{
    const int64_t row = (int64_t)blockIdx.x * LOSS_THREADS + threadIdx.x;
    if (row >= rows)
        return;
    const double value = (double)softmax[row].max + log(softmax[row].sum);
    lse[row] = (float)value;
    losses[row] = value - (double)softmax[row].chosen;
}

#define MEAN_THREADS 1024

__global__ void __launch_bounds__(MEAN_THREADS)
    losses_mean(const int rows, const double *const losses, double *const loss)
{
    __shared__ double room[MEAN_THREADS / WARP];
    double sum = 0;
    for (int64_t row = threadIdx.x; row < rows; row += MEAN_THREADS)
        sum += losses[row];
    sum = lanes_sum(sum);
    if (threadIdx.x % WARP == 0)
        room[threadIdx.x / WARP] = sum;
    __syncthreads();
    if (threadIdx.x >= WARP)
        return;
    sum = lanes_sum(room[threadIdx.x]);
    if (threadIdx.x == 0)
        *loss = sum / rows;
}

cudaError_t gpt_launch_loss(cudaStream_t stream, int rows, const gpt_softmax *softmax_rows,
                            float *lse, double *losses, double *loss)
{
    if (rows < 1)
        return cudaErrorInvalidValue;
    const cudaError_t error = launch(stream, ceil_div(rows, LOSS_THREADS), LOSS_THREADS, row_losses,
                                     rows, softmax_rows, lse, losses);
    return error == cudaSuccess ? launch(stream, 1, MEAN_THREADS, losses_mean, rows, losses, loss)
                                : error;
}

template <typename Operand> struct Dlogits {
    int first, count, stride;
    const float *logits, *lse;
    const int32_t *targets;
    float scale;
    typename Operand::type *dlogits;

    template <int W> struct Values {
        Pack<float, W> logits;
        float lse;
        int target;
    };

    template <int W> __device__ Floats<W> column(int) const
    {
        return {};
    }

    template <int W> __device__ void load(int row, int col, Values<W> &x) const
    {
        x.logits = pack_load<W>(logits + (int64_t)row * stride + col);
        x.lse = lse[row];
        x.target = targets[row] - first;
    }

    template <int W>
    __device__ void store(int row, int col, const Values<W> &x, const Floats<W> &) const
    {
        Floats<W> y;
#pragma unroll
        for (int j = 0; j < W; j++) {
            const float p = exp_fast(x.logits.at[j] - x.lse);
            const float grad = (col + j == x.target ? p - 1.0f : p) * scale;
            y.at[j] = col + j < count ? grad : 0.0f;
        }
        floats_store<Operand>(dlogits + (int64_t)row * stride + col, y);
    }
};

cudaError_t gpt_launch_dlogits(cudaStream_t stream, enum zero_dtype dtype, int rows, int first,
                               int count, int stride, const float *logits, const float *lse,
                               const int32_t *targets, float scale, void *dlogits)
{
    if (rows < 0 || first < 0 || count < 1 || stride < count)
        return cudaErrorInvalidValue;
    if (rows == 0)
        return cudaSuccess;
    return operand_switch(dtype, [&](auto operand) {
        using type = typename decltype(operand)::type;
        const Dlogits<decltype(operand)> body = {
            first, count, stride, logits, lse, targets, scale, static_cast<type *>(dlogits)};
        return rows_fit<4>(stride, logits, body.dlogits)
                   ? rows_each_run<4>(stream, rows, stride, body)
                   : rows_each_run<1>(stream, rows, stride, body);
    });
}
