// SPDX-License-Identifier: Apache-2.0
/*
 * Tiles of attention: what a block of threads has of two matrices whose rows are channels
 * of a head, and its two products. One matrix stays (a block's ROWS), the other passes by
 * (COLS rows of it at a time):
 *
 *   scores (ROWS, COLS) = rows cols^T,    sums (ROWS, DEPTH) += weights (ROWS, COLS) cols
 *
 * A thread has the same few rows of both results, and lanes that share a row are GROUP
 * neighbours. TensorTiles is for tensor cores, PlainTiles for fp32, and for shapes that
 * tensor cores do not take. DEPTH is the head's size and zeros.
 */
#ifndef EXAMPLES_GPT2_CUDA_TILES_CUH
#define EXAMPLES_GPT2_CUDA_TILES_CUH

#include "examples/gpt2/cuda/mma.cuh"
#include "examples/gpt2/cuda/operand.cuh"

/* Rows of a tensor, stride elements apart, that begin at a head's first channel. */
template <typename T> struct HeadRows {
    T *first;
    int64_t stride;
    int seq, size; /* what lies beyond is read as 0 and not written */

    __device__ bool has(int row, int channel) const
    {
        return row < seq && channel < size;
    }
    __device__ T *at(int row, int channel) const
    {
        return first + row * stride + channel;
    }
};

/* Four warps, each with 16 * HEIGHT rows. Tiles in shared memory are rows of 16-byte chunks, in
 * which a chunk's place depends on its row: eight rows of a fragment are in eight groups of banks.
 * The layout of what a thread has is that of mma's c, and of a where it is a weight. */
template <typename Type, int CHANNELS, int HEIGHT, int WIDTH> struct TensorTiles {
    using Operand = Type;
    using type = uint16_t;
    static constexpr int THREADS = 128, GROUP = 4, STAGES = 2;
    static constexpr int ROWS = 4 * 16 * HEIGHT, COLS = WIDTH, DEPTH = CHANNELS;
    static constexpr int OWN_ROWS = 2 * HEIGHT, OWN_COLS = COLS / 4, OWN_DEPTH = DEPTH / 4;
    static constexpr int CHUNKS = DEPTH / 8;
    static constexpr int ROWS_BYTES = ROWS * DEPTH * 2, COLS_BYTES = COLS * DEPTH * 2;
    static constexpr int WEIGHTS_BYTES = 0;
    static_assert(DEPTH % 64 == 0 && COLS % 16 == 0, "whole fragments");

    __device__ static int lane()
    {
        return threadIdx.x % WARP;
    }
    __device__ static int warp_row() /* the warp's first */
    {
        return threadIdx.x / WARP * 16 * HEIGHT;
    }
    __device__ static int row(int i)
    {
        return warp_row() + i / 2 * 16 + i % 2 * 8 + lane() / 4;
    }
    __device__ static int last_row() /* of the warp */
    {
        return warp_row() + 16 * HEIGHT - 1;
    }
    __device__ static int col(int j)
    {
        return j / 2 * 8 + lane() % 4 * 2 + j % 2;
    }
    __device__ static char *place(char *tile, int row, int chunk)
    {
        return tile + (row * CHUNKS + (chunk ^ row % 8)) * 16;
    }

    template <int COUNT>
    __device__ static void load(char *tile, const HeadRows<const type> &from, int first)
    {
#pragma unroll
        for (int i = 0; i < COUNT * CHUNKS / THREADS; i++) {
            const int row = (i * THREADS + threadIdx.x) / CHUNKS;
            const int chunk = threadIdx.x % CHUNKS;
            const bool wanted = from.has(first + row, chunk * 8);
            copy_16(place(tile, row, chunk), wanted ? from.at(first + row, chunk * 8) : from.first,
                    wanted);
        }
    }

    __device__ static void scores(char *rows, char *cols, float (&to)[OWN_ROWS][OWN_COLS])
    {
        const int low = lane() % 16, high = lane() / 16;
#pragma unroll
        for (int i = 0; i < OWN_ROWS; i++)
#pragma unroll
            for (int j = 0; j < OWN_COLS; j++)
                to[i][j] = 0;
#pragma unroll 2 /* of eight: all at once want more registers than there are */
        for (int k = 0; k < CHUNKS; k += 2) {
            uint32_t a[HEIGHT][4];
#pragma unroll
            for (int m = 0; m < HEIGHT; m++)
                fragments_load(a[m], place(rows, warp_row() + m * 16 + low, k + high));
#pragma unroll
            for (int n = 0; n < COLS / 16; n++) {
                uint32_t b[4];
                fragments_load(b, place(cols, n * 16 + high * 8 + low % 8, k + low / 8));
#pragma unroll
                for (int m = 0; m < HEIGHT; m++) {
                    float *upper = to[2 * m] + 4 * n, *lower = to[2 * m + 1] + 4 * n;
                    mma<Operand>(upper[0], upper[1], lower[0], lower[1], a[m], b[0], b[1]);
                    mma<Operand>(upper[2], upper[3], lower[2], lower[3], a[m], b[2], b[3]);
                }
            }
        }
    }

    __device__ static void gather(char *, const float (&weights)[OWN_ROWS][OWN_COLS], char *cols,
                                  float (&to)[OWN_ROWS][OWN_DEPTH])
    {
        const int low = lane() % 16, high = lane() / 16;
#pragma unroll
        for (int k = 0; k < COLS / 16; k++) {
            uint32_t a[HEIGHT][4];
#pragma unroll
            for (int m = 0; m < HEIGHT; m++)
#pragma unroll
                for (int f = 0; f < 4; f++) {
                    const float *two = weights[2 * m + f % 2] + 4 * k + f / 2 * 2;
                    a[m][f] = fragment_of<Operand>(two[0], two[1]);
                }
#pragma unroll
            for (int n = 0; n < CHUNKS; n += 2) {
                uint32_t b[4];
                fragments_load_transposed(b, place(cols, k * 16 + low, n + high));
#pragma unroll
                for (int m = 0; m < HEIGHT; m++) {
                    float *upper = to[2 * m] + 2 * n, *lower = to[2 * m + 1] + 2 * n;
                    mma<Operand>(upper[0], upper[1], lower[0], lower[1], a[m], b[0], b[1]);
                    mma<Operand>(upper[2], upper[3], lower[2], lower[3], a[m], b[2], b[3]);
                }
            }
        }
    }

    /* By way of a tile whose rows no other warp reads, so that 16 bytes are written at once. */
    __device__ static void store(char *tile, const float (&from)[OWN_ROWS][OWN_DEPTH],
                                 const HeadRows<type> &to, int first)
    {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < OWN_ROWS; i++)
#pragma unroll
            for (int k = 0; k < OWN_DEPTH; k += 2) {
                Pack<type, 2> two = {{Operand::round(from[i][k]), Operand::round(from[i][k + 1])}};
                pack_store(reinterpret_cast<type *>(place(tile, row(i), k / 2)) + lane() % 4 * 2,
                           two);
            }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 16 * HEIGHT * CHUNKS / WARP; i++) {
            const int row = warp_row() + (i * WARP + lane()) / CHUNKS, chunk = lane() % CHUNKS;
            if (to.has(first + row, chunk * 8))
                pack_store(to.at(first + row, chunk * 8),
                           pack_load<8>(reinterpret_cast<type *>(place(tile, row, chunk))));
        }
    }
};

/* 16 x 16 threads; tiles have 4096 elements whatever the head's size, and rows 4 floats apart, so
 * that eight neighbours in a column are in different banks. */
template <typename Type, int CHANNELS> struct PlainTiles {
    using Operand = Type;
    using type = typename Type::type;
    static constexpr int SIDE = 16, THREADS = SIDE * SIDE, GROUP = SIDE, STAGES = 1;
    static constexpr int ROWS = 4096 / CHANNELS, COLS = ROWS, DEPTH = CHANNELS;
    static constexpr int OWN_ROWS = ROWS / SIDE, OWN_COLS = COLS / SIDE, OWN_DEPTH = DEPTH / SIDE;
    static constexpr int STRIDE = DEPTH + 4, WEIGHTS_STRIDE = COLS + SIDE;
    static constexpr int ROWS_BYTES = ROWS * STRIDE * 4, COLS_BYTES = ROWS_BYTES;
    static constexpr int WEIGHTS_BYTES = ROWS * WEIGHTS_STRIDE * 4;
    static_assert(OWN_ROWS >= 1 && OWN_DEPTH % 4 == 0, "whole packs");

    __device__ static int row(int i)
    {
        return threadIdx.x / SIDE + i * SIDE;
    }
    __device__ static int warp_row() /* the warp's first; its others are strewn */
    {
        return threadIdx.x / WARP * (WARP / SIDE);
    }
    __device__ static int last_row()
    {
        return warp_row() + WARP / SIDE - 1 + (OWN_ROWS - 1) * SIDE;
    }
    __device__ static int col(int j)
    {
        return threadIdx.x % SIDE + j * SIDE;
    }
    __device__ static int channel(int k)
    {
        return k / 4 * 4 * SIDE + threadIdx.x % SIDE * 4 + k % 4;
    }
    __device__ static float *place(char *tile, int row, int channel)
    {
        return reinterpret_cast<float *>(tile) + row * STRIDE + channel;
    }

    template <int COUNT>
    __device__ static void load(char *tile, const HeadRows<const type> &from, int first)
    {
        for (int i = threadIdx.x; i < COUNT * DEPTH; i += THREADS) {
            const int row = i / DEPTH, channel = i % DEPTH;
            const bool wanted = from.has(first + row, channel);
            *place(tile, row, channel) =
                wanted ? Operand::widen(*from.at(first + row, channel)) : 0.0f;
        }
    }

    __device__ static void scores(char *rows, char *cols, float (&to)[OWN_ROWS][OWN_COLS])
    {
#pragma unroll
        for (int i = 0; i < OWN_ROWS; i++)
#pragma unroll
            for (int j = 0; j < OWN_COLS; j++)
                to[i][j] = 0;
#pragma unroll 2
        for (int c = 0; c < DEPTH; c += 4) {
            Pack<float, 4> a[OWN_ROWS], b[OWN_COLS];
#pragma unroll
            for (int i = 0; i < OWN_ROWS; i++)
                a[i] = pack_load<4>(place(rows, row(i), c));
#pragma unroll
            for (int j = 0; j < OWN_COLS; j++)
                b[j] = pack_load<4>(place(cols, col(j), c));
#pragma unroll
            for (int i = 0; i < OWN_ROWS; i++)
#pragma unroll
                for (int j = 0; j < OWN_COLS; j++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        to[i][j] = fmaf(a[i].at[e], b[j].at[e], to[i][j]);
        }
    }

    /* Weights go through shared memory, within a warp: all of a row's are its lanes'. */
    __device__ static void gather(char *room, const float (&weights)[OWN_ROWS][OWN_COLS],
                                  char *cols, float (&to)[OWN_ROWS][OWN_DEPTH])
    {
        float *const shared = reinterpret_cast<float *>(room);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < OWN_ROWS; i++)
#pragma unroll
            for (int j = 0; j < OWN_COLS; j++)
                shared[row(i) * WEIGHTS_STRIDE + col(j)] = weights[i][j];
        __syncwarp();
#pragma unroll 4
        for (int c = 0; c < COLS; c++) {
            float a[OWN_ROWS];
#pragma unroll
            for (int i = 0; i < OWN_ROWS; i++)
                a[i] = shared[row(i) * WEIGHTS_STRIDE + c];
#pragma unroll
            for (int k = 0; k < OWN_DEPTH; k += 4) {
                const Pack<float, 4> b = pack_load<4>(place(cols, c, channel(k)));
#pragma unroll
                for (int i = 0; i < OWN_ROWS; i++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        to[i][k + e] = fmaf(a[i], b.at[e], to[i][k + e]);
            }
        }
    }

    __device__ static void store(char *, const float (&from)[OWN_ROWS][OWN_DEPTH],
                                 const HeadRows<type> &to, int first)
    {
#pragma unroll
        for (int i = 0; i < OWN_ROWS; i++)
#pragma unroll
            for (int k = 0; k < OWN_DEPTH; k++)
                if (to.has(first + row(i), channel(k)))
                    *to.at(first + row(i), channel(k)) = Operand::round(from[i][k]);
    }
};

#endif
