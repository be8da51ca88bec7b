// SPDX-License-Identifier: Apache-2.0
/*
 * Attention by tiles (FlashAttention-2, arXiv 2307.08691), over either kind of
 * tiles.cuh's arithmetic. Forward: a block has some queries and goes over the keys that they see.
 * Backward is two kernels, one with queries that stay and one with keys that stay: each
 * computes the scores again, so that no two blocks add to one gradient and the order
 * of sums is fixed. Seven products instead of five, and no atomics.
 */
#ifndef EXAMPLES_GPT2_CUDA_ATTENTION_CUH
#define EXAMPLES_GPT2_CUDA_ATTENTION_CUH

#include "examples/gpt2/cuda/tiles.cuh"

/* Tensors as launch.h has them; NULL: not of this kernel. */
template <typename T> struct Attention {
    int batch, seq, heads, size;
    const T *qkv, *dout;
    float *lse;
    const float *delta;
    T *out, *dqkv;
    float scale; /* of scores */
};

/* A head of a sequence, and the first of the block's rows. Blocks of one tile of all heads
 * are neighbours. */
template <typename T> struct Head {
    int64_t row;   /* of the sequence */
    int64_t stats; /* first of lse and delta */
    int channel, first;

    __device__ Head(const Attention<T> &a, int tile, int rows)
    {
        const int index = blockIdx.x % (a.batch * a.heads);
        row = (int64_t)(index / a.heads) * a.seq;
        stats = (int64_t)index * a.seq;
        channel = index % a.heads * a.size;
        first = tile * rows;
    }

    /* Queries, keys, values: 0, 1, 2. */
    template <typename Any>
    __device__ HeadRows<Any> qkv(const Attention<T> &a, Any *x, int which) const
    {
        const int64_t channels = (int64_t)a.heads * a.size;
        return {x + row * 3 * channels + which * channels + channel, 3 * channels, a.seq, a.size};
    }

    template <typename Any> __device__ HeadRows<Any> out(const Attention<T> &a, Any *x) const
    {
        const int64_t channels = (int64_t)a.heads * a.size;
        return {x + row * channels + channel, channels, a.seq, a.size};
    }
};

template <typename T> __device__ inline int tile_of(const Attention<T> &a)
{
    return blockIdx.x / (a.batch * a.heads);
}

/* A stage of what passes by queries: keys and their values. */
template <typename Of> struct KeyStage {
    using Tiles = Of;
    using type = typename Tiles::type;
    static constexpr int BYTES = 2 * Tiles::COLS_BYTES;

    __device__ static char *values(char *stage)
    {
        return stage + Tiles::COLS_BYTES;
    }

    __device__ static void load(const Attention<type> &a, const Head<type> &head, int first,
                                char *stage)
    {
        Tiles::template load<Tiles::COLS>(stage, head.qkv(a, a.qkv, 1), first);
        Tiles::template load<Tiles::COLS>(values(stage), head.qkv(a, a.qkv, 2), first);
    }
};

/* Of what passes by keys: queries, dout, and their lse and delta. */
template <typename Of> struct QueryStage {
    using Tiles = Of;
    using type = typename Tiles::type;
    static constexpr int BYTES = 2 * Tiles::COLS_BYTES + 2 * Tiles::COLS * 4;

    __device__ static char *douts(char *stage)
    {
        return stage + Tiles::COLS_BYTES;
    }
    __device__ static float *lse(char *stage)
    {
        return reinterpret_cast<float *>(stage + 2 * Tiles::COLS_BYTES);
    }
    __device__ static float *delta(char *stage)
    {
        return lse(stage) + Tiles::COLS;
    }

    __device__ static void load(const Attention<type> &a, const Head<type> &head, int first,
                                char *stage)
    {
        Tiles::template load<Tiles::COLS>(stage, head.qkv(a, a.qkv, 0), first);
        Tiles::template load<Tiles::COLS>(douts(stage), head.out(a, a.dout), first);
        const int own = threadIdx.x;
        if (own >= Tiles::COLS)
            return;
        const bool there = first + own < a.seq;
        const int64_t at = there ? head.stats + first + own : 0;
        copy_4(lse(stage) + own, a.lse + at, there);
        copy_4(delta(stage) + own, a.delta + at, there);
    }
};

/* Tiles [first, end) of what passes by: use(position, stage) computes on one while the next is
 * loaded, where there are two stages. */
template <typename Stage, typename Use>
__device__ inline void stages_each(const Attention<typename Stage::type> &a,
                                   const Head<typename Stage::type> &head, int first, int end,
                                   char *stages, const Use &use)
{
    using Tiles = typename Stage::Tiles;
    const auto load = [&](int tile, int side) {
        Stage::load(a, head, tile * Tiles::COLS, stages + side * Stage::BYTES);
    };
    if (Tiles::STAGES == 2)
        load(first, 0);
    for (int tile = first; tile < end; tile++) {
        const int side = Tiles::STAGES == 2 ? (tile - first) % 2 : 0;
        copies_wait();
        __syncthreads(); /* the tile is there; the one before has been read */
        if (Tiles::STAGES == 2) {
            if (tile + 1 < end)
                load(tile + 1, 1 - side);
        } else {
            load(tile, 0);
            copies_wait();
            __syncthreads();
        }
        use(tile * Tiles::COLS, stages + side * Stage::BYTES);
    }
}

template <typename Tiles> __device__ inline int tiles_before(int end)
{
    return (end + Tiles::COLS - 1) / Tiles::COLS;
}

template <typename Tiles> __device__ inline float group_max(float x)
{
#pragma unroll
    for (int distance = 1; distance < Tiles::GROUP; distance *= 2)
        x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, distance));
    return x;
}

template <typename Tiles> __device__ inline float group_sum(float x)
{
#pragma unroll
    for (int distance = 1; distance < Tiles::GROUP; distance *= 2)
        x += __shfl_xor_sync(0xFFFFFFFFu, x, distance);
    return x;
}

/* ----------------------------------------------------------------- forward */

/* What a thread knows of its queries: maximum and sum of the weights so far (the sum its own keys'
 * alone), and the values that they have gathered. */
template <typename Tiles> struct Queries {
    float max[Tiles::OWN_ROWS], sum[Tiles::OWN_ROWS], out[Tiles::OWN_ROWS][Tiles::OWN_DEPTH];
};

/* Scores become weights relative to the new maximum, what was gathered follows. NaN is not a
 * maximum but makes the sum one. */
template <typename Tiles>
__device__ inline void weights_of(float (&s)[Tiles::OWN_ROWS][Tiles::OWN_COLS], float scale,
                                  Queries<Tiles> &q)
{
#pragma unroll
    for (int i = 0; i < Tiles::OWN_ROWS; i++) {
        float max = q.max[i], sum = 0;
#pragma unroll
        for (int j = 0; j < Tiles::OWN_COLS; j++)
            max = fmaxf(max, s[i][j]);
        max = group_max<Tiles>(max);
        const float factor = exp2_fast((q.max[i] - max) * scale), shift = max * scale;
#pragma unroll
        for (int j = 0; j < Tiles::OWN_COLS; j++) {
            s[i][j] = exp2_fast(fmaf(s[i][j], scale, -shift));
            sum += s[i][j];
        }
        q.max[i] = max;
        q.sum[i] = fmaf(q.sum[i], factor, sum);
#pragma unroll
        for (int k = 0; k < Tiles::OWN_DEPTH; k++)
            q.out[i][k] *= factor;
    }
}

template <typename Tiles>
__device__ inline void queries_store(const Attention<typename Tiles::type> &a, int index,
                                     char *tile, Queries<Tiles> &q)
{
    const Head<typename Tiles::type> head(a, index, Tiles::ROWS); /* no register kept it so far */
#pragma unroll
    for (int i = 0; i < Tiles::OWN_ROWS; i++) {
        const int query = head.first + Tiles::row(i);
        const float sum = group_sum<Tiles>(q.sum[i]), part = 1.0f / sum;
        if (query < a.seq && threadIdx.x % Tiles::GROUP == 0)
            a.lse[head.stats + query] = fmaf(q.max[i], a.scale, logf(sum));
#pragma unroll
        for (int k = 0; k < Tiles::OWN_DEPTH; k++)
            q.out[i][k] *= part;
    }
    Tiles::store(tile, q.out, head.out(a, a.out), head.first);
}

template <typename Tiles>
__global__ void __launch_bounds__(Tiles::THREADS)
    attention_forward(const __grid_constant__ Attention<typename Tiles::type> a)
{
    using Stage = KeyStage<Tiles>;
    /* Most keys first: the last blocks to start are short. */
    const int index = (a.seq + Tiles::ROWS - 1) / Tiles::ROWS - 1 - tile_of(a);
    const Head<typename Tiles::type> head(a, index, Tiles::ROWS);
    char *const rows = shared_memory(), *const stages = rows + Tiles::ROWS_BYTES;
    char *const room = stages + Tiles::STAGES * Stage::BYTES;
    const float scale = a.scale * LOG2_E;
    Queries<Tiles> q;
#pragma unroll
    for (int i = 0; i < Tiles::OWN_ROWS; i++) {
        q.max[i] = -INFINITY;
        q.sum[i] = 0;
#pragma unroll
        for (int k = 0; k < Tiles::OWN_DEPTH; k++)
            q.out[i][k] = 0;
    }
    const auto use = [&](int key, char *keys) {
        float s[Tiles::OWN_ROWS][Tiles::OWN_COLS];
        if (key > head.first + Tiles::last_row())
            return;
        Tiles::scores(rows, keys, s);
        if (key + Tiles::COLS - 1 > head.first + Tiles::warp_row())
#pragma unroll
            for (int i = 0; i < Tiles::OWN_ROWS; i++)
#pragma unroll
                for (int j = 0; j < Tiles::OWN_COLS; j++)
                    if (key + Tiles::col(j) > head.first + Tiles::row(i))
                        s[i][j] = -INFINITY;
        weights_of<Tiles>(s, scale, q);
        Tiles::gather(room, s, Stage::values(keys), q.out);
    };
    Tiles::template load<Tiles::ROWS>(rows, head.qkv(a, a.qkv, 0), head.first);
    const int end = min(head.first + Tiles::ROWS, a.seq);
    stages_each<Stage>(a, head, 0, tiles_before<Tiles>(end), stages, use);
    queries_store<Tiles>(a, index, rows, q);
}

/* ---------------------------------------------------------------- backward */

/* Queries stay: dqueries. */
template <typename Tiles>
__global__ void __launch_bounds__(Tiles::THREADS)
    attention_dqueries(const __grid_constant__ Attention<typename Tiles::type> a)
{
    using Stage = KeyStage<Tiles>;
    const int index = (a.seq + Tiles::ROWS - 1) / Tiles::ROWS - 1 - tile_of(a);
    const Head<typename Tiles::type> head(a, index, Tiles::ROWS);
    char *const rows = shared_memory(), *const drows = rows + Tiles::ROWS_BYTES;
    char *const stages = drows + Tiles::ROWS_BYTES;
    char *const room = stages + Tiles::STAGES * Stage::BYTES;
    const float scale = a.scale;
    float lse[Tiles::OWN_ROWS], delta[Tiles::OWN_ROWS];
    float sums[Tiles::OWN_ROWS][Tiles::OWN_DEPTH] = {};
#pragma unroll
    for (int i = 0; i < Tiles::OWN_ROWS; i++) {
        const int query = head.first + Tiles::row(i);
        lse[i] = query < a.seq ? a.lse[head.stats + query] * LOG2_E : 0.0f;
        delta[i] = query < a.seq ? a.delta[head.stats + query] : 0.0f;
    }
    const auto use = [&](int key, char *keys) {
        float s[Tiles::OWN_ROWS][Tiles::OWN_COLS], dp[Tiles::OWN_ROWS][Tiles::OWN_COLS];
        if (key > head.first + Tiles::last_row())
            return;
        Tiles::scores(rows, keys, s);
        Tiles::scores(drows, Stage::values(keys), dp);
#pragma unroll
        for (int i = 0; i < Tiles::OWN_ROWS; i++)
#pragma unroll
            for (int j = 0; j < Tiles::OWN_COLS; j++) {
                const float p = exp2_fast(fmaf(s[i][j], scale * LOG2_E, -lse[i]));
                const bool seen = key + Tiles::col(j) <= head.first + Tiles::row(i);
                s[i][j] = seen ? p * (dp[i][j] - delta[i]) * scale : 0.0f;
            }
        Tiles::gather(room, s, keys, sums);
    };
    Tiles::template load<Tiles::ROWS>(rows, head.qkv(a, a.qkv, 0), head.first);
    Tiles::template load<Tiles::ROWS>(drows, head.out(a, a.dout), head.first);
    const int end = min(head.first + Tiles::ROWS, a.seq);
    stages_each<Stage>(a, head, 0, tiles_before<Tiles>(end), stages, use);
    Tiles::store(rows, sums, head.qkv(a, a.dqkv, 0), head.first);
}

/* Keys stay: dkeys, dvalues. Scores are transposed: a row is a key's. */
template <typename Tiles>
__global__ void __launch_bounds__(Tiles::THREADS)
    attention_dkeys(const __grid_constant__ Attention<typename Tiles::type> a)
{
    using Stage = QueryStage<Tiles>;
    const Head<typename Tiles::type> head(a, tile_of(a), Tiles::ROWS);
    char *const keys = shared_memory(), *const values = keys + Tiles::ROWS_BYTES;
    char *const stages = values + Tiles::ROWS_BYTES;
    char *const room = stages + Tiles::STAGES * Stage::BYTES;
    const float scale = a.scale;
    float dkeys[Tiles::OWN_ROWS][Tiles::OWN_DEPTH] = {};
    float dvalues[Tiles::OWN_ROWS][Tiles::OWN_DEPTH] = {};
    const auto use = [&](int query, char *queries) {
        float s[Tiles::OWN_ROWS][Tiles::OWN_COLS], dp[Tiles::OWN_ROWS][Tiles::OWN_COLS];
        if (query + Tiles::COLS - 1 < head.first + Tiles::warp_row())
            return;
        Tiles::scores(keys, queries, s);
        Tiles::scores(values, Stage::douts(queries), dp);
#pragma unroll
        for (int j = 0; j < Tiles::OWN_COLS; j++) {
            const float lse = Stage::lse(queries)[Tiles::col(j)] * LOG2_E;
            const float delta = Stage::delta(queries)[Tiles::col(j)];
#pragma unroll
            for (int i = 0; i < Tiles::OWN_ROWS; i++) {
                const bool seen = head.first + Tiles::row(i) <= query + Tiles::col(j);
                const float p = exp2_fast(fmaf(s[i][j], scale * LOG2_E, -lse));
                s[i][j] = seen ? p : 0.0f;
                dp[i][j] = seen ? p * (dp[i][j] - delta) * scale : 0.0f;
            }
        }
        Tiles::gather(room, s, Stage::douts(queries), dvalues);
        Tiles::gather(room, dp, queries, dkeys);
    };
    Tiles::template load<Tiles::ROWS>(keys, head.qkv(a, a.qkv, 1), head.first);
    Tiles::template load<Tiles::ROWS>(values, head.qkv(a, a.qkv, 2), head.first);
    stages_each<Stage>(a, head, head.first / Tiles::COLS, tiles_before<Tiles>(a.seq), stages, use);
    Tiles::store(keys, dkeys, head.qkv(a, a.dqkv, 1), head.first);
    Tiles::store(values, dvalues, head.qkv(a, a.dqkv, 2), head.first);
}

/* ------------------------------------------------------------------ launches */

#define SHARED_PLAIN (48 << 10) /* bytes that a kernel need not ask for */

/* With tiles that stay, and stages of what passes by. */
template <typename Stage>
inline cudaError_t attention_launch(cudaStream_t stream,
                                    void (*kernel)(Attention<typename Stage::type>), int staying,
                                    const Attention<typename Stage::type> &a)
{
    using Tiles = typename Stage::Tiles;
    const int64_t blocks = ceil_div(a.seq, Tiles::ROWS) * a.batch * a.heads;
    const int bytes =
        staying * Tiles::ROWS_BYTES + Tiles::STAGES * Stage::BYTES + Tiles::WEIGHTS_BYTES;
    cudaLaunchConfig_t config = {};
    if (blocks > INT32_MAX)
        return cudaErrorInvalidValue;
    if (bytes > SHARED_PLAIN) {
        const cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        if (error != cudaSuccess)
            return error;
    }
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(Tiles::THREADS);
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, a);
}

template <typename Tiles>
inline cudaError_t forward_launch(cudaStream_t stream, const Attention<typename Tiles::type> &a)
{
    return attention_launch<KeyStage<Tiles>>(stream, attention_forward<Tiles>, 1, a);
}

template <typename Tiles>
inline cudaError_t backward_launch(cudaStream_t stream, const Attention<typename Tiles::type> &a)
{
    const cudaError_t error =
        attention_launch<KeyStage<Tiles>>(stream, attention_dqueries<Tiles>, 2, a);
    return error == cudaSuccess
               ? attention_launch<QueryStage<Tiles>>(stream, attention_dkeys<Tiles>, 2, a)
               : error;
}

/* By PlainTiles, any size up to 256: attention_plain.cu. */
cudaError_t plain_forward(cudaStream_t stream, OperandF32, const Attention<float> &a);
cudaError_t plain_forward(cudaStream_t stream, OperandBf16, const Attention<uint16_t> &a);
cudaError_t plain_forward(cudaStream_t stream, OperandF16, const Attention<uint16_t> &a);
cudaError_t plain_backward(cudaStream_t stream, OperandF32, const Attention<float> &a);
cudaError_t plain_backward(cudaStream_t stream, OperandBf16, const Attention<uint16_t> &a);
cudaError_t plain_backward(cudaStream_t stream, OperandF16, const Attention<uint16_t> &a);

#endif
