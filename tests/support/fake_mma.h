// SPDX-License-Identifier: Apache-2.0
/*
 * In place of the instructions of examples/gpt2/cuda/mma.cuh: the same fragments, lane
 * by lane, products exact and added in double. Where kernels may see a difference in
 * time, fake_nvcc_order shows it: a copy happens when it is asked for, or not before
 * it is waited for. Included by fake_nvcc.h.
 */
#ifndef TESTS_SUPPORT_FAKE_MMA_H
#define TESTS_SUPPORT_FAKE_MMA_H

#define EXAMPLES_GPT2_CUDA_MMA_CUH

inline char *shared_memory()
{
    return fake_block_now->shared;
}

inline void fake_copy_do(const fake_async &copy)
{
    if (copy.from)
        memcpy(copy.to, copy.from, copy.bytes);
    else
        memset(copy.to, 0, copy.bytes);
}

inline void fake_copy_begin(void *to, const void *from, size_t bytes, bool wanted)
{
    fake_block_run *b = fake_block_now;
    unsigned t = threadIdx.x;
    fake_async copy = {static_cast<char *>(to), wanted ? from : nullptr, bytes};
    if ((uintptr_t)to % bytes != 0 || (wanted && (uintptr_t)from % bytes != 0))
        fake_misuse("an asynchronous copy is not aligned");
    if (!b->descending)
        fake_copy_do(copy);
    else if (b->copies[t] == FAKE_COPIES_MAX)
        fake_misuse("more asynchronous copies than the fake has room for");
    else
        b->copy[t][b->copies[t]++] = copy;
}

inline void copy_16(void *to, const void *from, bool wanted)
{
    fake_copy_begin(to, from, 16, wanted);
}

inline void copy_4(void *to, const void *from, bool wanted)
{
    fake_copy_begin(to, from, 4, wanted);
}

inline void copies_wait()
{
    fake_block_run *b = fake_block_now;
    unsigned t = threadIdx.x;
    for (unsigned i = 0; i < b->copies[t]; i++)
        fake_copy_do(b->copy[t][i]);
    b->copies[t] = 0;
}

/* Matrix i's element (row, column), from the warp's pointers. */
inline uint16_t fake_element(const fake_handed<const void *> *rows, int i, int row, int column)
{
    uint16_t x;
    memcpy(&x, static_cast<const uint16_t *>(rows[8 * i + row].value) + column, sizeof(x));
    return x;
}

inline void fragments_load(uint32_t (&to)[4], const void *row)
{
    const auto *rows = fake_exchange(row);
    int lane = (int)(threadIdx.x % FAKE_WARP), column = lane % 4 * 2;
    if ((uintptr_t)row % 16 != 0)
        fake_misuse("a row of a fragment is not aligned");
    for (int i = 0; i < 4; i++)
        to[i] = fake_element(rows, i, lane / 4, column) |
                (uint32_t)fake_element(rows, i, lane / 4, column + 1) << 16;
}

inline void fragments_load_transposed(uint32_t (&to)[4], const void *row)
{
    const auto *rows = fake_exchange(row);
    int lane = (int)(threadIdx.x % FAKE_WARP), column = lane % 4 * 2;
    if ((uintptr_t)row % 16 != 0)
        fake_misuse("a row of a fragment is not aligned");
    for (int i = 0; i < 4; i++)
        to[i] = fake_element(rows, i, column, lane / 4) |
                (uint32_t)fake_element(rows, i, column + 1, lane / 4) << 16;
}

template <typename Operand> inline uint32_t fragment_of(float low, float high)
{
    return Operand::round(low) | (uint32_t)Operand::round(high) << 16;
}

/* What a lane has of a and b. */
struct fake_operands {
    float a[4][2], b[2][2];
};

template <typename Operand>
inline void mma(float &c00, float &c01, float &c10, float &c11, const uint32_t (&a)[4], uint32_t b0,
                uint32_t b1)
{
    fake_operands own;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++)
            own.a[i][j] = Operand::widen((uint16_t)(a[i] >> 16 * j));
    for (int j = 0; j < 2; j++) {
        own.b[0][j] = Operand::widen((uint16_t)(b0 >> 16 * j));
        own.b[1][j] = Operand::widen((uint16_t)(b1 >> 16 * j));
    }
    const auto *of = fake_exchange(own);
    int lane = (int)(threadIdx.x % FAKE_WARP);
    float *c[2][2] = {{&c00, &c01}, {&c10, &c11}};
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            double sum = (double)*c[i][j];
            for (int k = 0; k < 16; k++) {
                const fake_operands &left = of[lane / 4 * 4 + k % 8 / 2].value;
                const fake_operands &right = of[(lane % 4 * 2 + j) * 4 + k % 8 / 2].value;
                sum += (double)left.a[i + k / 8 * 2][k % 2] * (double)right.b[k / 8][k % 2];
            }
            *c[i][j] = (float)sum;
        }
}

#endif
