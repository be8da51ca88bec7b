// SPDX-License-Identifier: Apache-2.0
/*
 * Packed products with AVX2, FMA and F16C, and with AVX-512, whose pieces are three
 * times as wide.
 */
#include "examples/gpt2/matmul_x86.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __x86_64__

#include <cpuid.h>

#define WIDTH 8
#define COLS  (2 * WIDTH)        /* with six rows 12 of AVX2's 16 registers are sums */
#define AHEAD (16 * COLS_AVX512) /* B is fetched 16 words of k before it is used */

/* -------------------------------------------------------------------- packing */

/* WIDTH stored elements from position at on. */
INLINE __m256 load8(enum zero_dtype dtype, const void *from, int64_t at)
{
    if (dtype == ZERO_FP32)
        return _mm256_loadu_ps((const float *)from + at);
    __m128i half = _mm_loadu_si128((const void *)((const uint16_t *)from + at));
    if (dtype == ZERO_FP16)
        return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* The first six of them, and nothing read behind. */
INLINE __m256 load6(enum zero_dtype dtype, const void *from, int64_t at)
{
    if (dtype == ZERO_FP32)
        return _mm256_maskload_ps((const float *)from + at,
                                  _mm256_setr_epi32(-1, -1, -1, -1, -1, -1, 0, 0));
    const uint16_t *half = (const uint16_t *)from + at;
    int32_t last;
    __builtin_memcpy(&last, half + 4, sizeof(last));
    uint16_t all[WIDTH];
    _mm_storeu_si128((void *)all, _mm_insert_epi32(_mm_loadl_epi64((const void *)half), last, 2));
    return load8(dtype, all, 0);
}

/* Fewer than WIDTH of them, or none. */
INLINE __m256 load_some(enum zero_dtype dtype, const void *from, int64_t at, int count)
{
    union {
        float wide[WIDTH];
        uint16_t half[WIDTH];
    } all = {{0}};
    if (count >= 1 && count <= WIDTH)
        __builtin_memcpy(&all, operand_at(dtype, from, at),
                         (size_t)count * (size_t)operand_bytes(dtype));
    return load8(dtype, &all, 0);
}

INLINE void transpose(__m256 r[WIDTH])
{
    __m256 t[WIDTH], u[WIDTH];
#pragma GCC unroll 4
    for (int i = 0; i < WIDTH; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < WIDTH; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

/* One stripe of width from count <= width stored rows. Rows of the stripe are stored whole
 * registers, of which the next row overwrites what is not its own. */
INLINE void stripe_turn(enum zero_dtype dtype, const struct panel *s, int64_t at, int count,
                        int width, float *out)
{
    __m256 r[WIDTH];
    for (int k = 0; k < s->k; k += WIDTH) {
        int some = s->k - k < WIDTH ? s->k - k : WIDTH;
        for (int g = 0; g < width; g += WIDTH) {
            float *to = out + (int64_t)k * width + g;
#pragma GCC unroll 8
            for (int i = 0; i < WIDTH; i++) {
                int64_t row = at + (int64_t)(g + i) * s->ld + k;
                if (k % LINE == 0)
                    fetch(dtype, s->from, row + (int64_t)width * s->ld);
                if (g + i >= count)
                    r[i] = _mm256_setzero_ps();
                else
                    r[i] = some == WIDTH ? load8(dtype, s->from, row)
                                         : load_some(dtype, s->from, row, some);
            }
            transpose(r);
#pragma GCC unroll 8
            for (int i = 0; i < WIDTH; i++)
                if (i < some)
                    _mm256_storeu_ps(to + i * width, r[i]);
        }
    }
}

INLINE void panel_turn(enum zero_dtype dtype, const struct panel *s, int width, float *out)
{
    int first = 0;
    for (; first + width <= s->count; first += width, out += (int64_t)s->k * width)
        stripe_turn(dtype, s, (int64_t)first * s->ld, width, width, out);
    if (first < s->count)
        stripe_turn(dtype, s, (int64_t)first * s->ld, s->count - first, width, out);
}

/* Rows [k, end) of one stripe. */
INLINE void stripe_copy(enum zero_dtype dtype, const struct panel *s, int first, int width, int k,
                        int end, float *out)
{
    int count = s->count - first;
    for (int i = k; i < end; i++)
        fetch(dtype, s->from, (int64_t)(i + REACH) * s->ld + first);
    for (; k < end; k++) {
        int64_t at = (int64_t)k * s->ld + first;
        float *to = out + (int64_t)k * width;
        if (count < width) {
            float row[COLS_AVX512];
            for (int g = 0; g < width; g += WIDTH)
                _mm256_storeu_ps(row + g, load_some(dtype, s->from, at + g,
                                                    count - g < WIDTH ? count - g : WIDTH));
            __builtin_memcpy(to, row, (size_t)width * sizeof(float));
        } else if (width % WIDTH == 0) {
#pragma GCC unroll 8
            for (int g = 0; g < width; g += WIDTH)
                _mm256_storeu_ps(to + g, load8(dtype, s->from, at + g));
        } else if (k + 1 < s->k) {
            _mm256_storeu_ps(to, load6(dtype, s->from, at));
        } else { /* behind it is the next stripe, written before */
            __m256 row = load6(dtype, s->from, at);
            __builtin_memcpy(to, &row, PIECE_ROWS * sizeof(float));
        }
    }
}

INLINE void panel_copy(enum zero_dtype dtype, const struct panel *s, int width, float *out)
{
    for (int k = 0; k < s->k; k += REACH) {
        int end = s->k - k < REACH ? s->k : k + REACH;
        for (int first = 0; first < s->count; first += width)
            stripe_copy(dtype, s, first, width, k, end, out + (int64_t)first * s->k);
    }
}

INLINE void panel_pack(const struct panel *s, int width, float *out)
{
    switch (s->dtype) {
    case ZERO_FP32:
        s->along ? panel_turn(ZERO_FP32, s, width, out) : panel_copy(ZERO_FP32, s, width, out);
        break;
    case ZERO_BF16:
        s->along ? panel_turn(ZERO_BF16, s, width, out) : panel_copy(ZERO_BF16, s, width, out);
        break;
    case ZERO_FP16:
        s->along ? panel_turn(ZERO_FP16, s, width, out) : panel_copy(ZERO_FP16, s, width, out);
        break;
    }
}

AVX2 static void pack_a(const struct panel *panel, float *out)
{
    panel_pack(panel, PIECE_ROWS, out);
}

AVX2 static void pack_b(const struct panel *panel, float *out)
{
    panel_pack(panel, COLS, out);
}

AVX2 static void pack_a_avx512(const struct panel *panel, float *out)
{
    panel_pack(panel, ROWS_AVX512, out);
}

AVX2 static void pack_b_avx512(const struct panel *panel, float *out)
{
    panel_pack(panel, COLS_AVX512, out);
}

/* ------------------------------------------------------------------- products */

AVX2 static void piece_multiply(int k, const float *a, const float *b, bool add, float *c, int ldc)
{
    __m256 s[PIECE_ROWS][2];
#pragma GCC unroll 6
    for (int i = 0; i < PIECE_ROWS; i++) {
        s[i][0] = add ? _mm256_loadu_ps(c + (int64_t)i * ldc) : _mm256_setzero_ps();
        s[i][1] = add ? _mm256_loadu_ps(c + (int64_t)i * ldc + WIDTH) : _mm256_setzero_ps();
    }
#pragma GCC unroll 4
    for (int p = 0; p < k; p++, a += PIECE_ROWS, b += COLS) {
        __m256 left = _mm256_loadu_ps(b), right = _mm256_loadu_ps(b + WIDTH);
#pragma GCC unroll 6
        for (int i = 0; i < PIECE_ROWS; i++) {
            __m256 x = _mm256_broadcast_ss(a + i);
            s[i][0] = _mm256_fmadd_ps(x, left, s[i][0]);
            s[i][1] = _mm256_fmadd_ps(x, right, s[i][1]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < PIECE_ROWS; i++) {
        _mm256_storeu_ps(c + (int64_t)i * ldc, s[i][0]);
        _mm256_storeu_ps(c + (int64_t)i * ldc + WIDTH, s[i][1]);
    }
}

INLINE_AVX512 void parts_multiply(int across, int k, const float *a, const float *b, bool add,
                                  float *c, int ldc)
{
    __m512 s[ROWS_AVX512][ACROSS], right[ACROSS];
    sums_begin(s, across, add, c, ldc);
#pragma GCC unroll 2
    for (int p = 0; p < k; p++, a += ROWS_AVX512, b += COLS_AVX512) {
#pragma GCC unroll 4
        for (int j = 0; j < across; j++) {
            right[j] = _mm512_loadu_ps(b + j * WIDE);
            _mm_prefetch((const char *)(b + AHEAD + j * WIDE), _MM_HINT_T0);
        }
#pragma GCC unroll 8
        for (int i = 0; i < ROWS_AVX512; i++) {
            __m512 x = _mm512_set1_ps(a[i]);
#pragma GCC unroll 4
            for (int j = 0; j < across; j++)
                s[i][j] = _mm512_fmadd_ps(x, right[j], s[i][j]);
        }
    }
    sums_end(s, across, c, ldc);
}

AVX512 static void part_multiply_avx512(int k, const float *a, const float *b, bool add, float *c,
                                        int ldc)
{
    parts_multiply(1, k, a, b, add, c, ldc);
}

AVX512 static void two_parts_multiply_avx512(int k, const float *a, const float *b, bool add,
                                             float *c, int ldc)
{
    parts_multiply(2, k, a, b, add, c, ldc);
}

AVX512 static void piece_multiply_avx512(int k, const float *a, const float *b, bool add, float *c,
                                         int ldc)
{
    parts_multiply(ACROSS, k, a, b, add, c, ldc);
}

#endif

#ifdef __x86_64__
static pthread_once_t f16c_asked = PTHREAD_ONCE_INIT;
static bool f16c_given;

/* A virtual machine may hide it, and takes long to answer. */
static void f16c_ask(void)
{
    unsigned a, b, c, d;
    f16c_given = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

const struct pieces *pieces_avx2(void)
{
#ifdef AVX2
    static const struct pieces avx2 = {.name = "packed panels, AVX2",
                                       .rows = PIECE_ROWS,
                                       .cols = COLS,
                                       .part = COLS,
                                       .values = 1,
                                       .words = 1,
                                       .pack_a = pack_a,
                                       .pack_b = pack_b,
                                       .multiply = {piece_multiply}};
    pthread_once(&f16c_asked, f16c_ask);
    if (f16c_given && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &avx2;
#endif
    return NULL;
}

const struct pieces *pieces_avx512(void)
{
#ifdef AVX512
    static const struct pieces avx512 = {
        .name = "packed panels, AVX-512",
        .rows = ROWS_AVX512,
        .cols = COLS_AVX512,
        .part = WIDE,
        .values = 1,
        .words = 1,
        .pack_a = pack_a_avx512,
        .pack_b = pack_b_avx512,
        .multiply = {part_multiply_avx512, two_parts_multiply_avx512, piece_multiply_avx512}};
    if (pieces_avx2() && __builtin_cpu_supports("avx512f"))
        return &avx512;
#endif
    return NULL;
}
