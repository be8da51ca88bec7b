// SPDX-License-Identifier: Apache-2.0
/*
 * Packed products with AVX2, FMA and F16C, and with AVX-512, whose pieces are three
 * times as wide. Each function is compiled for what it uses, and reached through
 * the tables alone.
 */
#include "examples/gpt2/matmul_packed.h"

#include <stddef.h>

#ifdef __x86_64__

#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "examples/gpt2/numeric.h"

#define AVX2          __attribute__((target("avx2,fma,f16c")))
#define AVX512        __attribute__((target("avx512f")))
#define INLINE        static inline __attribute__((always_inline, target("avx2,fma,f16c")))
#define INLINE_AVX512 static inline __attribute__((always_inline, target("avx512f")))
#define WIDTH         8
#define WIDE          16
#define LINE          16 /* elements: a cache line, or half of one */
#define REACH         8  /* rows at once: all may fall into one set of the first cache */

/* Columns of a piece: with six rows they fill 12 of AVX2's 16 registers, with eight 24 of
 * AVX-512's 32. */
#define COLS        (2 * WIDTH)
#define ACROSS      3
#define COLS_AVX512 (ACROSS * WIDE)
#define ROWS_AVX512 8
#define AHEAD       (16 * COLS_AVX512) /* B is fetched 16 words of k before it is used */

/* -------------------------------------------------------------------- packing */

/* What will be needed next: rows are short, and too many at once for the CPU to foresee. */
INLINE void fetch(enum zero_dtype dtype, const void *from, int64_t at)
{
    _mm_prefetch((const char *)from + at * operand_bytes(dtype), _MM_HINT_T0);
}

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

/* across: registers that are used of a row. */
INLINE_AVX512 void sums_begin(__m512 s[ROWS_AVX512][ACROSS], int across, bool add, const float *c,
                              int ldc)
{
#pragma GCC unroll 8
    for (int i = 0; i < ROWS_AVX512; i++)
#pragma GCC unroll 4
        for (int j = 0; j < across; j++)
            s[i][j] = add ? _mm512_loadu_ps(c + (int64_t)i * ldc + j * WIDE) : _mm512_setzero_ps();
}

INLINE_AVX512 void sums_end(__m512 s[ROWS_AVX512][ACROSS], int across, float *c, int ldc)
{
#pragma GCC unroll 8
    for (int i = 0; i < ROWS_AVX512; i++)
#pragma GCC unroll 4
        for (int j = 0; j < across; j++)
            _mm512_storeu_ps(c + (int64_t)i * ldc + j * WIDE, s[i][j]);
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

const struct pieces *pieces_avx2(void)
{
    static const struct pieces avx2 = {.name = "packed panels, AVX2",
                                       .rows = PIECE_ROWS,
                                       .cols = COLS,
                                       .part = COLS,
                                       .per = 1,
                                       .step = 1,
                                       .pack_a = pack_a,
                                       .pack_b = pack_b,
                                       .multiply = {piece_multiply}};
    bool runs = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return runs ? &avx2 : NULL; /* every CPU with AVX2 has F16C */
}

const struct pieces *pieces_avx512(void)
{
    static const struct pieces avx512 = {
        .name = "packed panels, AVX-512",
        .rows = ROWS_AVX512,
        .cols = COLS_AVX512,
        .part = WIDE,
        .per = 1,
        .step = 1,
        .pack_a = pack_a_avx512,
        .pack_b = pack_b_avx512,
        .multiply = {part_multiply_avx512, two_parts_multiply_avx512, piece_multiply_avx512}};
    return pieces_avx2() && __builtin_cpu_supports("avx512f") ? &avx512 : NULL;
}

/* ---------------------------------------------------------------- pairs of bf16 */

#if defined(__clang__) || __GNUC__ >= 10 /* gcc before that knows no such instruction */
#define TARGET_BF16 "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512bf16"
#define BF16        __attribute__((target(TARGET_BF16)))
#define INLINE_BF16 static inline __attribute__((always_inline, target(TARGET_BF16)))

/* The first count of many lanes. */
static inline uint32_t lanes(int count, int many)
{
    return count < 1 ? 0 : (1u << (count < many ? count : many)) - 1;
}

/* Two stored rows, of which the second need not be there, become a row of pairs. */
BF16 static void row_pair(const uint16_t *first, const uint16_t *second, int count, int width,
                          float *out)
{
    for (int g = 0; g < width; g += WIDE) {
        __mmask16 some = (__mmask16)lanes(count - g, WIDE);
        __m256i high = _mm256_maskz_loadu_epi16(some, first + g);
        __m256i low = second ? _mm256_maskz_loadu_epi16(some, second + g) : _mm256_setzero_si256();
        __m512i pairs = _mm512_or_si512(_mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16),
                                        _mm512_cvtepu16_epi32(low));
        _mm512_mask_storeu_epi32(out + g, (__mmask16)lanes(width - g, WIDE), pairs);
    }
}

BF16 static void pairs_copy(const struct panel *s, int width, int deep, float *out)
{
    for (int begin = 0; begin < s->k; begin += REACH)
        for (int first = 0; first < s->count; first += width)
            for (int k = begin; k < s->k && k < begin + REACH; k += 2) {
                const uint16_t *row = (const uint16_t *)s->from + (int64_t)k * s->ld + first;
                fetch(ZERO_BF16, row, (int64_t)REACH * s->ld);
                fetch(ZERO_BF16, row, (int64_t)(REACH + 1) * s->ld);
                row_pair(row, k + 1 < s->k ? row + s->ld : NULL, s->count - first, width,
                         out + (int64_t)first * deep + (int64_t)k / 2 * width);
            }
}

/* WIDTH pairs along each of WIDTH stored rows, of which so many rows and values are there,
 * become WIDTH rows of pairs, cols of them wide. */
BF16 static void block_turn(const uint16_t *from, int ld, int rows, int values, int cols, int width,
                            float *out)
{
    __m256 r[WIDTH];
#pragma GCC unroll 8
    for (int i = 0; i < WIDTH; i++) {
        __mmask16 some = (__mmask16)(i < rows ? lanes(values, 2 * WIDTH) : 0);
        __m256i pairs = _mm256_maskz_loadu_epi16(some, from + (int64_t)i * ld);
        r[i] = _mm256_castsi256_ps(_mm256_rol_epi32(pairs, 16));
    }
    transpose(r);
#pragma GCC unroll 8
    for (int i = 0; i < WIDTH; i++)
        if (2 * i < values)
            _mm256_mask_storeu_ps(out + i * width, (__mmask8)lanes(cols, WIDTH), r[i]);
}

BF16 static void pairs_turn(const struct panel *s, int width, int deep, float *out)
{
    for (int first = 0; first < s->count; first += width)
        for (int k = 0; k < s->k; k += 2 * WIDTH)
            for (int g = 0; g < width; g += WIDTH) {
                const uint16_t *from = (const uint16_t *)s->from + (int64_t)(first + g) * s->ld + k;
                for (int i = 0; k % (2 * LINE) == 0 && i < WIDTH; i++)
                    fetch(ZERO_BF16, from, (int64_t)(width + i) * s->ld);
                block_turn(from, s->ld, s->count - first - g, s->k - k, width - g, width,
                           out + (int64_t)first * deep + (int64_t)k / 2 * width + g);
            }
}

/* In words of k that are a multiple of step. */
BF16 static void pairs_pack(const struct panel *s, int width, int step, float *out)
{
    int pairs = (s->k + 1) / 2, deep = (pairs + step - 1) / step * step;
    if (s->along)
        pairs_turn(s, width, deep, out);
    else
        pairs_copy(s, width, deep, out);
    for (int first = 0; pairs < deep && first < s->count; first += width)
        __builtin_memset(out + (int64_t)first * deep + (int64_t)pairs * width, 0,
                         (size_t)(deep - pairs) * (size_t)width * sizeof(float));
}

BF16 static void pack_a_bf16(const struct panel *panel, float *out)
{
    pairs_pack(panel, ROWS_AVX512, 1, out);
}

BF16 static void pack_b_bf16(const struct panel *panel, float *out)
{
    pairs_pack(panel, COLS_AVX512, 1, out);
}

/* The instruction is two fused multiply-adds, of the high values first. */
INLINE_BF16 void parts_multiply_bf16(int across, int words, const float *a, const float *b,
                                     bool add, float *c, int ldc)
{
    __m512 s[ROWS_AVX512][ACROSS];
    __m512bh right[ACROSS];
    sums_begin(s, across, add, c, ldc);
#pragma GCC unroll 2
    for (int p = 0; p < words; p++, a += ROWS_AVX512, b += COLS_AVX512) {
#pragma GCC unroll 4
        for (int j = 0; j < across; j++)
            right[j] = (__m512bh)_mm512_loadu_si512(b + j * WIDE);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS_AVX512; i++) {
            __m512bh x = (__m512bh)_mm512_set1_ps(a[i]);
#pragma GCC unroll 4
            for (int j = 0; j < across; j++)
                s[i][j] = _mm512_dpbf16_ps(s[i][j], x, right[j]);
        }
    }
    sums_end(s, across, c, ldc);
}

BF16 static void part_multiply_bf16(int words, const float *a, const float *b, bool add, float *c,
                                    int ldc)
{
    parts_multiply_bf16(1, words, a, b, add, c, ldc);
}

BF16 static void two_parts_multiply_bf16(int words, const float *a, const float *b, bool add,
                                         float *c, int ldc)
{
    parts_multiply_bf16(2, words, a, b, add, c, ldc);
}

BF16 static void piece_multiply_bf16(int words, const float *a, const float *b, bool add, float *c,
                                     int ldc)
{
    parts_multiply_bf16(ACROSS, words, a, b, add, c, ldc);
}

#endif

/* ---------------------------------------------------------------- tiles of bf16 */

#if defined(__linux__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define AMX __attribute__((target(TARGET_BF16 ",amx-tile,amx-bf16")))

/* Eight registers of 16 rows of 64 bytes: four sums, two parts of A with 16 words of k each,
 * two of B with 16 columns. A stripe of A has, for each 16 words of k, those of a row together. */
#define TILE_SIDE 16
#define COLS_AMX  (2 * TILE_SIDE)
#define ROWS_AMX  (2 * TILE_SIDE)

/* Linux gives the registers to a process that asks. */
#define ASK_FOR_STATE 0x1023
#define STATE_TILES   18

AMX static void tiles_begin(void)
{
    static const struct {
        uint8_t palette, start, none[14];
        uint16_t bytes[16]; /* of a row */
        uint8_t rows[16];
    } all = {.palette = 1,
             .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
             .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&all);
}

AMX static void tiles_end(void)
{
    _tile_release();
}

/* Rows stored along k: words of one, the first of a pair high as in B. */
AMX static void words_copy(const struct panel *s, int first, int deep, float *out)
{
    for (int i = 0; i < ROWS_AMX; i++) {
        const uint16_t *row = (const uint16_t *)s->from + (int64_t)(first + i) * s->ld;
        for (int w = 0; w < deep; w += TILE_SIDE) {
            int values = first + i < s->count ? s->k - 2 * w : 0;
            fetch(ZERO_BF16, row, (int64_t)REACH * s->ld + 2 * w);
            __mmask32 some = values >= 32 ? UINT32_MAX : lanes(values, 32);
            __m512i pairs = _mm512_rol_epi32(_mm512_maskz_loadu_epi16(some, row + 2 * w), 16);
            _mm512_storeu_si512(out + (int64_t)w * ROWS_AMX + i * TILE_SIDE, pairs);
        }
    }
}

/* WIDTH pairs of stored rows, of which so many values and columns are there, become WIDTH rows
 * of words. */
AMX static void words_turn(const uint16_t *from, int ld, int values, int cols, float *out)
{
    __m256 r[WIDTH];
    __mmask8 some = (__mmask8)lanes(cols, WIDTH);
#pragma GCC unroll 8
    for (int i = 0; i < WIDTH; i++) {
        const uint16_t *row = from + (int64_t)(2 * i) * ld;
        __m128i high = _mm_maskz_loadu_epi16(2 * i < values ? some : 0, row);
        __m128i low = _mm_maskz_loadu_epi16(2 * i + 1 < values ? some : 0, row + ld);
        r[i] = _mm256_castsi256_ps(_mm256_or_si256(
            _mm256_slli_epi32(_mm256_cvtepu16_epi32(high), 16), _mm256_cvtepu16_epi32(low)));
    }
    transpose(r);
#pragma GCC unroll 8
    for (int i = 0; i < WIDTH; i++)
        _mm256_storeu_ps(out + i * TILE_SIDE, r[i]);
}

AMX static void pack_a_amx(const struct panel *s, float *out)
{
    int deep = (s->k + 2 * TILE_SIDE - 1) / (2 * TILE_SIDE) * TILE_SIDE;
    for (int first = 0; first < s->count; first += ROWS_AMX, out += (int64_t)deep * ROWS_AMX) {
        if (s->along)
            words_copy(s, first, deep, out);
        for (int w = 0; !s->along && w < deep; w += WIDTH) {
            const uint16_t *from = (const uint16_t *)s->from + (int64_t)(2 * w) * s->ld + first;
            for (int i = 0; i < 2 * WIDTH; i++)
                fetch(ZERO_BF16, from, (int64_t)(2 * WIDTH + i) * s->ld);
            for (int i = 0; i < ROWS_AMX; i += WIDTH)
                words_turn(from + i, s->ld, s->k - 2 * w, s->count - first - i,
                           out + (int64_t)(w / TILE_SIDE) * ROWS_AMX * TILE_SIDE + i * TILE_SIDE +
                               w % TILE_SIDE);
        }
    }
}

AMX static void pack_b_amx(const struct panel *panel, float *out)
{
    pairs_pack(panel, COLS_AMX, TILE_SIDE, out);
}

/* What streams, the stripes of A, leaves the first cache to the stripe of B. */
AMX static void piece_multiply_amx(int words, const float *a, const float *b, bool add, float *c,
                                   int ldc)
{
    int64_t down = ldc * (int64_t)sizeof(float), across = COLS_AMX * sizeof(float);
    float *below = c + (int64_t)TILE_SIDE * ldc;
    if (add) {
        _tile_loadd(0, c, down);
        _tile_loadd(1, c + TILE_SIDE, down);
        _tile_loadd(2, below, down);
        _tile_loadd(3, below + TILE_SIDE, down);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int w = 0; w < words; w += TILE_SIDE) {
        _tile_stream_loadd(4, a, 64);
        _tile_loadd(6, b, across);
        _tile_loadd(7, b + TILE_SIDE, across);
        _tile_stream_loadd(5, a + TILE_SIDE * TILE_SIDE, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        a += ROWS_AMX * TILE_SIDE;
        b += COLS_AMX * TILE_SIDE;
    }
    _tile_stored(0, c, down);
    _tile_stored(1, c + TILE_SIDE, down);
    _tile_stored(2, below, down);
    _tile_stored(3, below + TILE_SIDE, down);
}

static pthread_once_t tiles_asked = PTHREAD_ONCE_INIT;
static bool tiles_given;

/* Asked of the CPU itself: __builtin_cpu_supports knows no AMX in clang before 18. */
static void tiles_ask(void)
{
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    unsigned a, b, c, d = 0;
    bool has = __get_cpuid_count(7, 0, &a, &b, &c, &d) && d & AMX_BF16 && d & AMX_TILE;
    tiles_given = has && syscall(SYS_arch_prctl, ASK_FOR_STATE, STATE_TILES) == 0;
}
#endif

const struct pieces *pieces_amx(void)
{
#ifdef AMX
    static const struct pieces amx = {.name = "packed panels, AMX",
                                      .rows = ROWS_AMX,
                                      .cols = COLS_AMX,
                                      .part = COLS_AMX,
                                      .per = 2,
                                      .step = TILE_SIDE,
                                      .pack_a = pack_a_amx,
                                      .pack_b = pack_b_amx,
                                      .multiply = {piece_multiply_amx},
                                      .begin = tiles_begin,
                                      .end = tiles_end};
    if (!pieces_bf16())
        return NULL;
    pthread_once(&tiles_asked, tiles_ask);
    if (tiles_given)
        return &amx;
#endif
    return NULL;
}

const struct pieces *pieces_bf16(void)
{
#ifdef BF16
    static const struct pieces bf16 = {
        .name = "packed panels, AVX-512 BF16",
        .rows = ROWS_AVX512,
        .cols = COLS_AVX512,
        .part = WIDE,
        .per = 2,
        .step = 1,
        .pack_a = pack_a_bf16,
        .pack_b = pack_b_bf16,
        .multiply = {part_multiply_bf16, two_parts_multiply_bf16, piece_multiply_bf16}};
    bool runs = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vl");
    if (pieces_avx512() && runs)
        return &bf16;
#endif
    return NULL;
}

#else

const struct pieces *pieces_avx2(void)
{
    return NULL;
}

const struct pieces *pieces_avx512(void)
{
    return NULL;
}

const struct pieces *pieces_bf16(void)
{
    return NULL;
}

const struct pieces *pieces_amx(void)
{
    return NULL;
}

#endif
