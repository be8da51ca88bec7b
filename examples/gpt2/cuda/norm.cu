// SPDX-License-Identifier: Apache-2.0
/*
 * Layer norm. Forward: 1, 2, 4 or 8 warps have a row, so many that it stays in their
 * registers (up to 8192 channels) and is read once. Backward: a block has 32 rows and a
 * thread the same columns of all of them, so that sums for weight and bias stay in its
 * registers too (up to 4096 channels); more channels are read twice.
 */
#include "examples/gpt2/cuda/rows.cuh"

#define NORM_EPS     1e-5f
#define NORM_THREADS 256
#define NORM_WARPS   (NORM_THREADS / WARP)
#define NORM_PACKS   8 /* of a row that a thread keeps */

/* The threads that have one row, and what they have of it. */
template <int W> struct Row {
    int warps, lane, lanes, packs; /* packs of the row */
    const float *x;                /* NULL: there is no such row */
    Pack<float, W> kept[NORM_PACKS];

    __device__ Row(int warps_of, int channels, int64_t rows, const float *first)
        : warps(warps_of), lane(threadIdx.x % (warps_of * WARP)), lanes(warps_of * WARP),
          packs(channels / W)
    {
        const int64_t row = index();
        x = row < rows ? first + row * channels : nullptr;
#pragma unroll
        for (int p = 0; p < NORM_PACKS; p++)
            if (x && lane + p * lanes < packs)
                kept[p] = pack_load<W>(x + (lane + p * lanes) * W);
    }

    __device__ int64_t index() const
    {
        return (int64_t)blockIdx.x * (NORM_WARPS / warps) + threadIdx.x / lanes;
    }

    /* Calls use(column, pack) for all packs of the thread. */
    template <typename Use> __device__ void each(const Use &use) const
    {
        if (!x)
            return;
#pragma unroll
        for (int p = 0; p < NORM_PACKS; p++)
            if (lane + p * lanes < packs)
                use((lane + p * lanes) * W, kept[p]);
        for (int i = lane + NORM_PACKS * lanes; i < packs; i += lanes)
            use(i * W, pack_load<W>(x + i * W));
    }

    /* Over the row; all threads of the block call it. */
    __device__ float sum(float own, float (&room)[NORM_WARPS]) const
    {
        own = lanes_sum(own);
        if (warps == 1)
            return own;
        const int warp = threadIdx.x / WARP;
        __syncthreads(); /* room has been read */
        if (threadIdx.x % WARP == 0)
            room[warp] = own;
        __syncthreads();
        float all = 0;
        for (int w = 0; w < warps; w++)
            all += room[warp / warps * warps + w];
        return all;
    }
};

template <typename Operand, int W>
__global__ void __launch_bounds__(NORM_THREADS)
    norm_forward(const int rows, const int channels, const int warps, const float *const x,
                 const typename Operand::type *const weight,
                 const typename Operand::type *const bias, float *const stats,
                 typename Operand::type *const out)
{
    __shared__ float room[NORM_WARPS];
    const Row<W> row(warps, channels, rows, x);
    float sum = 0, squares = 0;
    row.each([&](int, const Pack<float, W> &pack) {
#pragma unroll
        for (int j = 0; j < W; j++)
            sum += pack.at[j];
    });
    const float mean = row.sum(sum, room) / (float)channels;
    row.each([&](int, const Pack<float, W> &pack) {
#pragma unroll
        for (int j = 0; j < W; j++)
            squares = fmaf(pack.at[j] - mean, pack.at[j] - mean, squares);
    });
    const float variance = row.sum(squares, room) / (float)channels;
    const float scale = 1.0f / sqrtf(variance + NORM_EPS);
    row.each([&](int col, const Pack<float, W> &pack) {
        const Floats<W> w = floats_load<Operand, W>(weight + col);
        Floats<W> y = floats_load<Operand, W>(bias + col);
#pragma unroll
        for (int j = 0; j < W; j++)
            y.at[j] = (pack.at[j] - mean) * scale * w.at[j] + y.at[j];
        floats_store<Operand>(out + row.index() * channels + col, y);
    });
    if (row.x && row.lane == 0) {
        stats[2 * row.index()] = mean;
        stats[2 * row.index() + 1] = scale;
    }
}

template <typename Operand, int W>
static cudaError_t norm_run(cudaStream_t stream, int rows, int channels, const float *x,
                            const typename Operand::type *weight,
                            const typename Operand::type *bias, float *stats,
                            typename Operand::type *out)
{
    int warps = 1;
    while (warps < NORM_WARPS && channels / W > warps * WARP * NORM_PACKS)
        warps *= 2;
    return launch(stream, ceil_div(rows, NORM_WARPS / warps), NORM_THREADS,
                  norm_forward<Operand, W>, rows, channels, warps, x, weight, bias, stats, out);
}

cudaError_t gpt_launch_norm(cudaStream_t stream, enum zero_dtype dtype, int rows, int channels,
                            const float *x, const void *weight, const void *bias, float *stats,
                            void *out)
{
    cudaError_t none;
    if (rows_refused(rows, channels, &none))
        return none;
    return operand_switch(dtype, [&](auto operand) {
        using Operand = decltype(operand);
        using type = typename Operand::type;
        const type *const w = static_cast<const type *>(weight);
        const type *const b = static_cast<const type *>(bias);
        type *const to = static_cast<type *>(out);
        return rows_fit<4>(channels, x, w, b, to)
                   ? norm_run<Operand, 4>(stream, rows, channels, x, w, b, stats, to)
                   : norm_run<Operand, 1>(stream, rows, channels, x, w, b, stats, to);
    });
}

/* ---------------------------------------------------------------- backward */

#define BACK_THREADS 1024
#define BACK_ROWS    2 /* at once */

struct RowStats {
    float mean, scale;
};

/* Of one row: the sums of dnormal and of dnormal * normal over its channels. */
struct RowSums {
    float shift, slope;
};

struct BlockSums {
    RowSums row[BACK_ROWS];
};

/* Over the block; its warps have a place each in room. */
__device__ inline BlockSums block_sums(const BlockSums &own, BlockSums (&room)[BACK_THREADS / WARP])
{
    BlockSums sum = {};
#pragma unroll
    for (int r = 0; r < BACK_ROWS; r++)
        sum.row[r] = {lanes_sum(own.row[r].shift), lanes_sum(own.row[r].slope)};
    if (threadIdx.x % WARP == 0)
        room[threadIdx.x / WARP] = sum;
    __syncthreads();
    sum = room[0];
    for (int w = 1; w < (int)blockDim.x / WARP; w++)
#pragma unroll
        for (int r = 0; r < BACK_ROWS; r++) {
            sum.row[r].shift += room[w].row[r].shift;
            sum.row[r].slope += room[w].row[r].slope;
        }
    return sum;
}

template <typename Operand, int W> struct NormBackward {
    int rows, channels;
    const float *x, *stats;
    const typename Operand::type *weight;
    const float *dout;
    float *dx;
    float *partial; /* (blocks, 2, C): sums for dweight and dbias */

    /* One pack of columns of the rows that are at work. */
    struct Columns {
        Floats<W> weight;
        Pack<float, W> x[BACK_ROWS], dout[BACK_ROWS], dx[BACK_ROWS];
    };
    struct Sums {
        Floats<W> weight, bias;
    };

    __device__ void load(int row, int count, int col, Columns &c) const
    {
        c.weight = floats_load<Operand, W>(weight + col);
#pragma unroll
        for (int r = 0; r < BACK_ROWS; r++)
            if (r < count) {
                const int64_t at = (int64_t)(row + r) * channels + col;
                c.x[r] = pack_load<W>(x + at);
                c.dout[r] = pack_load<W>(dout + at);
                c.dx[r] = pack_load<W>(dx + at);
            }
    }

    __device__ void add(int r, const Columns &c, const RowStats &stat, RowSums &sums) const
    {
#pragma unroll
        for (int j = 0; j < W; j++) {
            const float dnormal = c.dout[r].at[j] * c.weight.at[j];
            const float normal = (c.x[r].at[j] - stat.mean) * stat.scale;
            sums.shift += dnormal;
            sums.slope = fmaf(dnormal, normal, sums.slope);
        }
    }

    __device__ void finish(int r, Columns &c, const RowStats &stat, const RowSums &means,
                           Sums &sums) const
    {
#pragma unroll
        for (int j = 0; j < W; j++) {
            const float grad = c.dout[r].at[j];
            const float normal = (c.x[r].at[j] - stat.mean) * stat.scale;
            const float dnormal = fmaf(grad, c.weight.at[j], -means.shift);
            c.dx[r].at[j] = fmaf(stat.scale, fmaf(-normal, means.slope, dnormal), c.dx[r].at[j]);
            sums.weight.at[j] = fmaf(grad, normal, sums.weight.at[j]);
            sums.bias.at[j] += grad;
        }
    }
};

template <typename Operand, int W>
__global__ void __launch_bounds__(BACK_THREADS)
    norm_backward(const __grid_constant__ NormBackward<Operand, W> body)
{
    using Body = NormBackward<Operand, W>;
    __shared__ BlockSums room[2][BACK_THREADS / WARP];
    const int span = blockDim.x * W, first = threadIdx.x * W;
    const bool once = body.channels <= span; /* else sums are in partial meanwhile */
    const int begin = blockIdx.x * GPT_PARTIAL_ROWS;
    const int end = min(body.rows, begin + GPT_PARTIAL_ROWS);
    float *const dweight = body.partial + (int64_t)blockIdx.x * 2 * body.channels;
    float *const dbias = dweight + body.channels;
    typename Body::Sums sums = {};
    for (int row = begin; row < end; row += BACK_ROWS) {
        const int count = min(BACK_ROWS, end - row);
        typename Body::Columns c;
        RowStats stat[BACK_ROWS];
        BlockSums means = {};
#pragma unroll
        for (int r = 0; r < BACK_ROWS; r++) {
            const float *const from = body.stats + 2 * (int64_t)(row + min(r, count - 1));
            stat[r] = {from[0], from[1]};
        }
        for (int col = first; col < body.channels; col += span) {
            body.load(row, count, col, c);
#pragma unroll
            for (int r = 0; r < BACK_ROWS; r++)
                if (r < count)
                    body.add(r, c, stat[r], means.row[r]);
        }
        means = block_sums(means, room[row / BACK_ROWS % 2]);
#pragma unroll
        for (int r = 0; r < BACK_ROWS; r++) {
            means.row[r].shift /= (float)body.channels;
            means.row[r].slope /= (float)body.channels;
        }
        for (int col = first; col < body.channels; col += span) {
            if (!once) {
                body.load(row, count, col, c);
                sums = {};
                if (row > begin)
                    sums = {floats_load<OperandF32, W>(dweight + col),
                            floats_load<OperandF32, W>(dbias + col)};
            }
#pragma unroll
            for (int r = 0; r < BACK_ROWS; r++)
                if (r < count) {
                    body.finish(r, c, stat[r], means.row[r], sums);
                    pack_store(body.dx + (int64_t)(row + r) * body.channels + col, c.dx[r]);
                }
            if (!once || row + BACK_ROWS >= end) {
                floats_store<OperandF32>(dweight + col, sums.weight);
                floats_store<OperandF32>(dbias + col, sums.bias);
            }
        }
    }
}

template <typename Operand, int W>
static cudaError_t norm_backward_run(cudaStream_t stream, int blocks,
                                     const NormBackward<Operand, W> &body)
{
    int threads = (int)ceil_div(body.channels / W, WARP) * WARP;
    threads = threads < BACK_THREADS ? threads : BACK_THREADS;
    return launch(stream, blocks, threads, norm_backward<Operand, W>, body);
}

cudaError_t gpt_launch_norm_backward(cudaStream_t stream, enum zero_dtype dtype, int rows,
                                     int channels, const float *x, const float *stats,
                                     const void *weight, const float *dout, float *dx,
                                     float *partial, void *dweight, void *dbias)
{
    cudaError_t error;
    if (rows_refused(rows, channels, &error))
        return error;
    const int blocks = (int)ceil_div(rows, GPT_PARTIAL_ROWS);
    error = operand_switch(dtype, [&](auto operand) {
        using Operand = decltype(operand);
        const auto *w = static_cast<const typename Operand::type *>(weight);
        return rows_fit<4>(channels, x, w, dout, dx, partial)
                   ? norm_backward_run<Operand, 4>(stream, blocks,
                                                   {rows, channels, x, stats, w, dout, dx, partial})
                   : norm_backward_run<Operand, 1>(
                         stream, blocks, {rows, channels, x, stats, w, dout, dx, partial});
    });
    return error == cudaSuccess
               ? partial_join(stream, dtype, blocks, 2 * channels, partial, dweight, dbias)
               : error;
}
