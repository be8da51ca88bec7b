// SPDX-License-Identifier: Apache-2.0
/*
 * The embeddings. Backward sorts the rows by token (one block, a stable radix sort:
 * rows are few beside their channels), so that the rows of a token are a run that is
 * summed in order and added to its gradient once.
 */
#include "examples/gpt2/cuda/rows.cuh"

template <typename Operand> struct Embed {
    const int32_t *tokens;
    const typename Operand::type *wte, *wpe;
    float *x;
    int seq, channels;

    template <int W> struct Values {
        Pack<typename Operand::type, W> token, position;
    };

    template <int W> __device__ Floats<W> column(int) const
    {
        return {};
    }

    template <int W> __device__ void load(int row, int col, Values<W> &x) const
    {
        x.token = pack_load<W>(wte + (int64_t)tokens[row] * channels + col);
        x.position = pack_load<W>(wpe + (int64_t)(row % seq) * channels + col);
    }

    template <int W>
    __device__ void store(int row, int col, const Values<W> &from, const Floats<W> &) const
    {
        Floats<W> sum = floats_of<Operand, W>(from.token);
        floats_add(sum, floats_of<Operand, W>(from.position));
        floats_store<OperandF32>(x + (int64_t)row * channels + col, sum);
    }
};

cudaError_t gpt_launch_embed(cudaStream_t stream, enum zero_dtype dtype, int rows, int seq,
                             int channels, const int32_t *tokens, const void *wte, const void *wpe,
                             float *x)
{
    cudaError_t none;
    if (rows_refused(rows, channels, &none))
        return none;
    if (seq <= 0)
        return cudaErrorInvalidValue;
    return operand_switch(dtype, [&](auto operand) {
        using type = typename decltype(operand)::type;
        const Embed<decltype(operand)> body = {
            tokens,  static_cast<const type *>(wte), static_cast<const type *>(wpe), x, seq,
            channels};
        return rows_fit<4>(channels, body.wte, body.wpe, x)
                   ? rows_each_run<4>(stream, rows, channels, body)
                   : rows_each_run<1>(stream, rows, channels, body);
    });
}

/* -------------------------------------------------------------------- sort */

#define SORT_THREADS 512
#define SORT_AT_ONCE 8 /* loads under way of a thread */
#define DIGIT_BITS   4
#define DIGITS       (1 << DIGIT_BITS)

/* What gpt_embed_ints counts. */
struct Order {
    int32_t *sorted[2]; /* (rows) each: of one pass and of the next */
    int32_t *starts;    /* (runs + 1): where in the sorted rows a token's begin */
    int32_t *runs;
};

static Order order_of(int32_t *order, int rows)
{
    int32_t *const starts = order + 2 * (int64_t)rows;
    return {{order, order + rows}, starts, starts + rows + 1};
}

/* The sum of x over lower threads, and over all. */
__device__ inline int block_scan(int x, int (&room)[SORT_THREADS / WARP], int &total)
{
    const int own = x, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll
    for (int distance = 1; distance < WARP; distance *= 2) {
        const int lower = __shfl_up_sync(0xFFFFFFFFu, x, distance);
        x += lane >= distance ? lower : 0;
    }
    __syncthreads(); /* room has been read */
    if (lane == WARP - 1)
        room[warp] = x;
    __syncthreads();
    int before = 0;
    total = 0;
    for (int w = 0; w < SORT_THREADS / WARP; w++) {
        before += w < warp ? room[w] : 0;
        total += room[w];
    }
    return before + x - own;
}

/* A thread's part of the rows, in an order: use(position, row, token) for each. */
template <typename Use>
__device__ inline void sort_each(int rows, const int32_t *tokens, const int32_t *order,
                                 const Use &use)
{
    const int64_t part = ((int64_t)rows + SORT_THREADS - 1) / SORT_THREADS;
    const int64_t begin = part * threadIdx.x, end = min((int64_t)rows, begin + part);
    for (int64_t i = begin; i < end; i += SORT_AT_ONCE) {
        int32_t row[SORT_AT_ONCE], token[SORT_AT_ONCE];
#pragma unroll
        for (int k = 0; k < SORT_AT_ONCE; k++)
            if (i + k < end)
                row[k] = order ? order[i + k] : (int32_t)(i + k);
#pragma unroll
        for (int k = 0; k < SORT_AT_ONCE; k++)
            if (i + k < end)
                token[k] = tokens[row[k]];
#pragma unroll
        for (int k = 0; k < SORT_AT_ONCE; k++)
            if (i + k < end)
                use(i + k, row[k], token[k]);
    }
}

struct SortRoom {
    int counts[DIGITS * SORT_THREADS]; /* digit by digit; then places */
    int scan[SORT_THREADS / WARP];
};

/* Sorts by one digit of the token; what is equal keeps its order. */
__device__ inline void sort_pass(int rows, int shift, const int32_t *tokens, const int32_t *from,
                                 int32_t *to, SortRoom &room)
{
    int *const own = room.counts + threadIdx.x, *const part = room.counts + threadIdx.x * DIGITS;
    int sum = 0, total;
    for (int d = 0; d < DIGITS; d++)
        own[d * SORT_THREADS] = 0;
    sort_each(rows, tokens, from, [&](int64_t, int32_t, int32_t token) {
        own[(token >> shift) % DIGITS * SORT_THREADS]++;
    });
    __syncthreads();
    for (int d = 0; d < DIGITS; d++)
        sum += part[d];
    int place = block_scan(sum, room.scan, total);
    for (int d = 0; d < DIGITS; d++) {
        const int count = part[d];
        part[d] = place;
        place += count;
    }
    __syncthreads();
    sort_each(rows, tokens, from, [&](int64_t, int32_t row, int32_t token) {
        to[own[(token >> shift) % DIGITS * SORT_THREADS]++] = row;
    });
    __syncthreads();
}

__global__ void __launch_bounds__(SORT_THREADS)
    sort(const int rows, const int passes, const int32_t *const tokens,
         const __grid_constant__ Order order)
{
    __shared__ SortRoom room;
    for (int pass = 0; pass < passes; pass++)
        sort_pass(rows, pass * DIGIT_BITS, tokens,
                  pass > 0 ? order.sorted[(pass - 1) % 2] : nullptr, order.sorted[pass % 2], room);
    const int32_t *const sorted = order.sorted[(passes - 1) % 2];
    const auto begins = [&](int64_t i, int32_t token) {
        return i == 0 || tokens[sorted[i - 1]] != token;
    };
    int count = 0, total;
    sort_each(rows, tokens, sorted,
              [&](int64_t i, int32_t, int32_t token) { count += begins(i, token); });
    int run = block_scan(count, room.scan, total);
    sort_each(rows, tokens, sorted, [&](int64_t i, int32_t, int32_t token) {
        if (begins(i, token))
            order.starts[run++] = (int32_t)i;
    });
    if (threadIdx.x == 0) {
        order.starts[total] = rows;
        *order.runs = total;
    }
}

/* -------------------------------------------------------------------- sums */

#define RUN_THREADS 128
#define RUN_WARPS   (RUN_THREADS / WARP)
#define RUN_AT_ONCE 4    /* rows of a warp */
#define RUN_BLOCKS  4096 /* at most; each takes every so many-th strip of a run */

/* The warps of a block have every fourth row of a run. */
template <typename Operand, int W>
__global__ void __launch_bounds__(RUN_THREADS)
    runs_sum(const int channels, const int32_t *const tokens, const int32_t *const sorted,
             const int32_t *const starts, const int32_t *const runs, const float *const dx,
             typename Operand::type *const dwte)
{
    alignas(16) __shared__ Floats<W> sums[RUN_WARPS][WARP];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int strips = (channels + WARP * W - 1) / (WARP * W);
    const int64_t items = (int64_t)*runs * strips;
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const int col = ((int)(item % strips) * WARP + lane) * W;
        const int begin = starts[item / strips], end = starts[item / strips + 1];
        Floats<W> sum = {};
        for (int i = begin + warp; i < end && col < channels; i += RUN_WARPS * RUN_AT_ONCE) {
            Pack<float, W> x[RUN_AT_ONCE];
#pragma unroll
            for (int k = 0; k < RUN_AT_ONCE; k++)
                if (i + k * RUN_WARPS < end)
                    x[k] = pack_load<W>(dx + (int64_t)sorted[i + k * RUN_WARPS] * channels + col);
#pragma unroll
            for (int k = 0; k < RUN_AT_ONCE; k++)
                if (i + k * RUN_WARPS < end)
                    floats_add(sum, floats_of<OperandF32, W>(x[k]));
        }
        if (end - begin > 1) {
            __syncthreads(); /* sums have been read */
            sums[warp][lane] = sum;
            __syncthreads();
        }
        if (warp != 0 || col >= channels)
            continue;
        for (int w = 1; w < RUN_WARPS && end - begin > 1; w++)
            floats_add(sum, sums[w][lane]);
        typename Operand::type *const to = dwte + (int64_t)tokens[sorted[begin]] * channels + col;
        floats_add(sum, floats_load<Operand, W>(to));
        floats_store<Operand>(to, sum);
    }
}

/* A warp has a strip of a position. */
template <typename Operand, int W>
__global__ void __launch_bounds__(ROWS_THREADS)
    positions_sum(const int batch, const int seq, const int channels, const float *const dx,
                  typename Operand::type *const dwpe)
{
    const int strips = (channels + WARP * W - 1) / (WARP * W);
    const int64_t unit = (int64_t)blockIdx.x * ROWS_WARPS + threadIdx.x / WARP;
    const int col = ((int)(unit % strips) * WARP + (int)threadIdx.x % WARP) * W;
    const int64_t at = unit / strips * channels + col;
    if (unit / strips >= seq || col >= channels)
        return;
    Floats<W> sum = {};
#pragma unroll 4
    for (int b = 0; b < batch; b++)
        floats_add(sum, floats_load<OperandF32, W>(dx + (int64_t)b * seq * channels + at));
    floats_add(sum, floats_load<Operand, W>(dwpe + at));
    floats_store<Operand>(dwpe + at, sum);
}

template <typename Operand, int W>
static cudaError_t sums_run(cudaStream_t stream, int rows, int seq, int channels,
                            const int32_t *tokens, const int32_t *sorted, const Order &order,
                            const float *dx, void *dwte, void *dwpe)
{
    using type = typename Operand::type;
    const int64_t strips = ceil_div(channels, WARP * W), items = rows * strips;
    const cudaError_t error =
        launch(stream, items < RUN_BLOCKS ? items : RUN_BLOCKS, RUN_THREADS, runs_sum<Operand, W>,
               channels, tokens, sorted, order.starts, order.runs, dx, static_cast<type *>(dwte));
    return error == cudaSuccess ? launch(stream, ceil_div(seq * strips, ROWS_WARPS), ROWS_THREADS,
                                         positions_sum<Operand, W>, rows / seq, seq, channels, dx,
                                         static_cast<type *>(dwpe))
                                : error;
}

cudaError_t gpt_launch_embed_backward(cudaStream_t stream, enum zero_dtype dtype, int rows, int seq,
                                      int channels, int vocab, const int32_t *tokens,
                                      const float *dx, int32_t *order, void *dwte, void *dwpe)
{
    cudaError_t error;
    if (rows_refused(rows, channels, &error))
        return error;
    if (seq <= 0 || rows % seq != 0 || vocab <= 0)
        return cudaErrorInvalidValue;
    int passes = 1;
    while ((int64_t)1 << (passes * DIGIT_BITS) < vocab)
        passes++;
    const Order parts = order_of(order, rows);
    const int32_t *const sorted = parts.sorted[(passes - 1) % 2];
    error = launch(stream, 1, SORT_THREADS, sort, rows, passes, tokens, parts);
    if (error != cudaSuccess)
        return error;
    return operand_switch(dtype, [&](auto operand) {
        using Operand = decltype(operand);
        using type = typename Operand::type;
        return rows_fit<4>(channels, dx, static_cast<type *>(dwte), static_cast<type *>(dwpe))
                   ? sums_run<Operand, 4>(stream, rows, seq, channels, tokens, sorted, parts, dx,
                                          dwte, dwpe)
                   : sums_run<Operand, 1>(stream, rows, seq, channels, tokens, sorted, parts, dx,
                                          dwte, dwpe);
    });
}
