// SPDX-License-Identifier: Apache-2.0
/*
 * Packed products by the instructions for pairs of bf16, of AVX-512 and of AMX. Of fp32 AMX
 * multiplies three terms of bf16, whose sum a value is.
 */
#include "examples/gpt2/matmul_x86.h"

#include <stddef.h>

#ifdef __x86_64__

#include <cpuid.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---------------------------------------------------------------- pairs of bf16 */

#if defined(__clang__) || __GNUC__ >= 10 /* gcc before that knows no such instruction */
#define TARGET_BF16 "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512bf16"
#define BF16        __attribute__((target(TARGET_BF16)))
#define INLINE_BF16 BF16 static inline __attribute__((always_inline))

#define TERMS     3
#define TILE_SIDE 16 /* words of k in a tile; terms lie apart by so many */
#define UPPER     ((int)0xFFFF0000)

/* The first count of many lanes. */
static inline uint32_t lanes(int count, int many)
{
    return count < 1 ? 0 : (uint32_t)((1ull << (count < many ? count : many)) - 1);
}

/* As fetch, 32 elements: a cache line of bf16, or two of fp32. */
INLINE_BF16 void fetch_words(enum zero_dtype dtype, const void *from, int64_t at)
{
    fetch(dtype, from, at);
    if (dtype == ZERO_FP32)
        fetch(dtype, from, at + LINE);
}

/* How many terms a value is the sum of: itself, or of fp32 three of bf16, each what those before
 * leave, rounded to nearest. */
INLINE_BF16 int terms_count(enum zero_dtype dtype)
{
    return dtype == ZERO_FP32 ? TERMS : 1;
}

/* The terms of 16 stored elements from position at on, zeros for lanes that are not wanted; each
 * in the upper half of its word. Of fp32 they have 8 bits each, of 24: what is left last is one.
 * Its ties are rounded away from zero. */
INLINE_BF16 void terms_load(enum zero_dtype dtype, const void *from, int64_t at, __mmask16 some,
                            __m512i t[TERMS])
{
    if (dtype == ZERO_BF16) {
        __m256i half = _mm256_maskz_loadu_epi16(some, (const uint16_t *)from + at);
        t[0] = _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
        return;
    }
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32(UPPER);
    __m512 rest = _mm512_maskz_loadu_ps(some, (const float *)from + at);
#pragma GCC unroll 3
    for (int i = 0; i < TERMS - 1; i++) {
        t[i] = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(rest), half), upper);
        rest = _mm512_sub_ps(rest, _mm512_castsi512_ps(t[i]));
    }
    t[TERMS - 1] = _mm512_castps_si512(rest);
}

/* The upper halves of 32 words. */
INLINE_BF16 __m512i uppers_of(__m512i low, __m512i high)
{
    const __m512i odd =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(low, odd, high);
}

/* As terms_load, of 32 elements, in as many halves of words. */
INLINE_BF16 void wide_terms_load(enum zero_dtype dtype, const void *from, int64_t at,
                                 __mmask32 some, __m512i t[TERMS])
{
    __m512i low[TERMS], high[TERMS];
    if (dtype == ZERO_BF16) {
        t[0] = _mm512_maskz_loadu_epi16(some, (const uint16_t *)from + at);
        return;
    }
    terms_load(dtype, from, at, (__mmask16)some, low);
    terms_load(dtype, from, at + WIDE, (__mmask16)(some >> WIDE), high);
#pragma GCC unroll 3
    for (int j = 0; j < TERMS; j++)
        t[j] = uppers_of(low[j], high[j]);
}

/* Two rows become one of pairs. */
INLINE_BF16 __m512i pairs_of(__m512i high, __m512i low)
{
    enum { MASKED_OR = 0xEA }; /* a & b | c */
    return _mm512_ternarylogic_epi32(high, _mm512_set1_epi32(UPPER), _mm512_srli_epi32(low, 16),
                                     MASKED_OR);
}

/* Where the first term of word w of k is in a stripe. */
INLINE_BF16 int64_t word_at(enum zero_dtype dtype, int w, int width)
{
    return (int64_t)(w + w / TILE_SIDE * TILE_SIDE * (terms_count(dtype) - 1)) * width;
}

/* Stored rows k and k + 1, of which the second need not be there, become a row of pairs:
 * first_high as AVX-512's instruction wants it, low as rows are stored, which AMX takes too. */
INLINE_BF16 void row_pair(enum zero_dtype dtype, bool first_high, const struct panel *s, int k,
                          int first, int width, float *out)
{
    for (int g = 0; g < width; g += WIDE) {
        __mmask16 some = (__mmask16)lanes(s->count - first - g, WIDE);
        __m512i one[TERMS], two[TERMS];
        int64_t at = (int64_t)k * s->ld + first + g;
        terms_load(dtype, s->from, at, some, one);
        terms_load(dtype, s->from, at + s->ld, k + 1 < s->k ? some : 0, two);
#pragma GCC unroll 3
        for (int i = 0; i < terms_count(dtype); i++)
            _mm512_mask_storeu_epi32(
                out + (int64_t)i * TILE_SIDE * width + g, (__mmask16)lanes(width - g, WIDE),
                first_high ? pairs_of(one[i], two[i]) : pairs_of(two[i], one[i]));
    }
}

INLINE_BF16 void pairs_copy(enum zero_dtype dtype, bool first_high, const struct panel *s,
                            int width, int deep, float *out)
{
    for (int begin = 0; begin < s->k; begin += REACH)
        for (int first = 0; first < s->count; first += width)
            for (int k = begin; k < s->k && k < begin + REACH; k += 2) {
                int64_t ahead = (int64_t)(k + REACH) * s->ld + first;
                fetch_words(dtype, s->from, ahead);
                fetch_words(dtype, s->from, ahead + s->ld);
                row_pair(dtype, first_high, s, k, first, width,
                         out + (int64_t)first * deep + word_at(dtype, k / 2, width));
            }
}

/* What shuffle_i32x4 takes of either operand's four lanes of four words: two. */
enum { EVEN = 0x88, ODD = 0xDD };

/* WIDE rows of as many words become its columns. */
INLINE_BF16 void words_transpose(__m512i r[WIDE])
{
    __m512i t[WIDE], u[WIDE];
#pragma GCC unroll 8
    for (int i = 0; i < WIDE; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < WIDE; i += 4) {
        u[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        u[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        u[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        u[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512i even[2], odd[2];
        for (int j = 0; j < 2; j++) {
            even[j] = _mm512_shuffle_i32x4(u[8 * j + i], u[8 * j + 4 + i], EVEN);
            odd[j] = _mm512_shuffle_i32x4(u[8 * j + i], u[8 * j + 4 + i], ODD);
        }
        r[i] = _mm512_shuffle_i32x4(even[0], even[1], EVEN);
        r[i + 4] = _mm512_shuffle_i32x4(odd[0], odd[1], EVEN);
        r[i + 8] = _mm512_shuffle_i32x4(even[0], even[1], ODD);
        r[i + 12] = _mm512_shuffle_i32x4(odd[0], odd[1], ODD);
    }
}

/* WIDE pairs along each of WIDE stored rows, of which so many rows and values are there,
 * become WIDE rows of pairs. */
INLINE_BF16 void block_turn(enum zero_dtype dtype, bool first_high, const struct panel *s, int row,
                            int k, int width, float *out)
{
    __m512i pairs[TERMS][WIDE];
    int values = s->k - k;
#pragma GCC unroll 16
    for (int i = 0; i < WIDE; i++) {
        __m512i t[TERMS] = {{0}};
        if (row + i < s->count)
            wide_terms_load(dtype, s->from, (int64_t)(row + i) * s->ld + k, lanes(values, 2 * WIDE),
                            t);
#pragma GCC unroll 3
        for (int j = 0; j < terms_count(dtype); j++)
            pairs[j][i] = first_high ? _mm512_rol_epi32(t[j], 16) : t[j];
    }
#pragma GCC unroll 3
    for (int j = 0; j < terms_count(dtype); j++) {
        words_transpose(pairs[j]);
#pragma GCC unroll 16
        for (int i = 0; i < WIDE; i++)
            if (2 * i < values)
                _mm512_storeu_si512(out + (int64_t)(j * TILE_SIDE + i) * width, pairs[j][i]);
    }
}

INLINE_BF16 void pairs_turn(enum zero_dtype dtype, bool first_high, const struct panel *s,
                            int width, int deep, float *out)
{
    for (int first = 0; first < s->count; first += width)
        for (int k = 0; k < s->k; k += 2 * WIDE)
            for (int g = 0; g < width; g += WIDE) {
                for (int i = 0; i < WIDE; i++)
                    fetch_words(dtype, s->from, (int64_t)(first + g + width + i) * s->ld + k);
                block_turn(dtype, first_high, s, first + g, k, width,
                           out + (int64_t)first * deep + word_at(dtype, k / 2, width) + g);
            }
}

/* In words of k that are a multiple of step, of each term. */
INLINE_BF16 void pairs_pack(enum zero_dtype dtype, bool first_high, const struct panel *s,
                            int width, int step, float *out)
{
    int pairs = (s->k + 1) / 2, padded = (pairs + step - 1) / step * step;
    int deep = padded * terms_count(dtype);
    if (s->along)
        pairs_turn(dtype, first_high, s, width, deep, out);
    else
        pairs_copy(dtype, first_high, s, width, deep, out);
    for (int first = 0; pairs < padded && first < s->count; first += width)
        for (int i = 0; i < terms_count(dtype); i++)
            __builtin_memset(out + (int64_t)first * deep + word_at(dtype, pairs, width) +
                                 (int64_t)i * TILE_SIDE * width,
                             0, (size_t)(padded - pairs) * (size_t)width * sizeof(float));
}

BF16 static void pack_a_bf16(const struct panel *panel, float *out)
{
    pairs_pack(ZERO_BF16, true, panel, ROWS_AVX512, 1, out);
}

BF16 static void pack_b_bf16(const struct panel *panel, float *out)
{
    pairs_pack(ZERO_BF16, true, panel, COLS_AVX512, 1, out);
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

/* ------------------------------------------------------------------ AMX's tiles */

#if defined(__linux__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define TARGET_AMX TARGET_BF16 ",amx-tile,amx-bf16"
#define AMX        __attribute__((target(TARGET_AMX)))
#define INLINE_AMX AMX static inline __attribute__((always_inline))

/* Eight registers of 16 rows of 64 bytes: four sums, two parts of A with 16 words of k each,
 * two of B with 16 columns. A stripe of A has, for each 16 words of k, those of a row together,
 * as a row with k along it is stored: aligned, it need not be packed. */
#define COLS_AMX       (2 * TILE_SIDE)
#define ROWS_AMX       (2 * TILE_SIDE)
#define TILE_WORDS     (TILE_SIDE * TILE_SIDE)
#define TILE_ROW_BYTES 64

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

INLINE_AMX void words_copy(enum zero_dtype dtype, const struct panel *s, int first, int deep,
                           float *out)
{
    for (int i = 0; i < ROWS_AMX; i++)
        for (int w = 0; w < deep; w += TILE_SIDE) {
            int64_t at = (int64_t)(first + i) * s->ld + 2 * w;
            float *to = out + word_at(dtype, w, ROWS_AMX) + i * TILE_SIDE;
            int values = first + i < s->count ? s->k - 2 * w : 0;
            __m512i t[TERMS];
            fetch_words(dtype, s->from, at + (int64_t)REACH * s->ld);
            wide_terms_load(dtype, s->from, at, lanes(values, 2 * TILE_SIDE), t);
#pragma GCC unroll 3
            for (int j = 0; j < terms_count(dtype); j++)
                _mm512_storeu_si512(to + j * TILE_SIDE * ROWS_AMX, t[j]);
        }
}

/* Pairs of rows k and k + 1 of ROWS_AMX stored columns, in two registers: of bf16 one has every
 * other four columns. */
INLINE_AMX void pairs_load(enum zero_dtype dtype, const struct panel *s, int k, int first,
                           __m512i pairs[TERMS][2])
{
    __m512i one[TERMS], two[TERMS];
    const int64_t at = (int64_t)k * s->ld + first;
    __mmask32 some = k < s->k ? lanes(s->count - first, ROWS_AMX) : 0;
    __mmask32 more = k + 1 < s->k ? some : 0;
    if (dtype == ZERO_BF16) {
        wide_terms_load(dtype, s->from, at, some, one);
        wide_terms_load(dtype, s->from, at + s->ld, more, two);
        pairs[0][0] = _mm512_unpacklo_epi16(one[0], two[0]);
        pairs[0][1] = _mm512_unpackhi_epi16(one[0], two[0]);
        return;
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        terms_load(dtype, s->from, at + h * WIDE, (__mmask16)(some >> h * WIDE), one);
        terms_load(dtype, s->from, at + s->ld + h * WIDE, (__mmask16)(more >> h * WIDE), two);
#pragma GCC unroll 3
        for (int j = 0; j < TERMS; j++)
            pairs[j][h] = pairs_of(two[j], one[j]);
    }
}

/* The column that is word i of half h of them. */
INLINE_AMX int column_of(enum zero_dtype dtype, int h, int i)
{
    enum { FOUR = 4 };
    return dtype == ZERO_FP32 ? h * WIDE + i : i / FOUR * 2 * FOUR + h * FOUR + i % FOUR;
}

/* Two tiles' words of k of ROWS_AMX stored columns from first on. */
INLINE_AMX void words_turn(enum zero_dtype dtype, const struct panel *s, int k, int first,
                           float *out)
{
    __m512i pairs[TILE_SIDE][TERMS][2], r[TILE_SIDE];
#pragma GCC unroll 16
    for (int i = 0; i < TILE_SIDE; i++)
        pairs_load(dtype, s, k + 2 * i, first, pairs[i]);
#pragma GCC unroll 3
    for (int j = 0; j < terms_count(dtype); j++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
#pragma GCC unroll 16
            for (int i = 0; i < TILE_SIDE; i++)
                r[i] = pairs[i][j][h];
            words_transpose(r);
#pragma GCC unroll 16
            for (int i = 0; i < TILE_SIDE; i++)
                _mm512_storeu_si512(out + (j * ROWS_AMX + column_of(dtype, h, i)) * TILE_SIDE,
                                    r[i]);
        }
}

INLINE_AMX void words_pack(enum zero_dtype dtype, const struct panel *s, float *out)
{
    int deep = (s->k + 2 * TILE_SIDE - 1) / (2 * TILE_SIDE) * TILE_SIDE;
    for (int first = 0; first < s->count;
         first += ROWS_AMX, out += (int64_t)deep * terms_count(dtype) * ROWS_AMX) {
        if (s->along)
            words_copy(dtype, s, first, deep, out);
        for (int w = 0; !s->along && w < deep; w += TILE_SIDE) {
            for (int i = 0; i < 2 * TILE_SIDE; i++)
                fetch_words(dtype, s->from, (int64_t)(2 * (w + TILE_SIDE) + i) * s->ld + first);
            words_turn(dtype, s, 2 * w, first, out + word_at(dtype, w, ROWS_AMX));
        }
    }
}

AMX static void pack_a_amx(const struct panel *panel, float *out)
{
    words_pack(ZERO_BF16, panel, out);
}

AMX static void pack_b_amx(const struct panel *panel, float *out)
{
    pairs_pack(ZERO_BF16, false, panel, COLS_AMX, TILE_SIDE, out);
}

/* AMX takes what is below 2^-126 for zero. Where it is zero as soon as it is left, no such
 * remainder costs a hundred cycles. */
#define FLUSH (_MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON)

AMX static void pack_a_terms(const struct panel *panel, float *out)
{
    unsigned modes = _mm_getcsr();
    _mm_setcsr(modes | FLUSH);
    words_pack(ZERO_FP32, panel, out);
    _mm_setcsr(modes);
}

AMX static void pack_b_terms(const struct panel *panel, float *out)
{
    unsigned modes = _mm_getcsr();
    _mm_setcsr(modes | FLUSH);
    pairs_pack(ZERO_FP32, false, panel, COLS_AMX, TILE_SIDE, out);
    _mm_setcsr(modes);
}

INLINE_AMX void tiles_load(bool add, const float *c, int ldc)
{
    int64_t down = ldc * (int64_t)sizeof(float);
    const float *below = c + (int64_t)TILE_SIDE * ldc;
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
}

INLINE_AMX void tiles_store(float *c, int ldc)
{
    int64_t down = ldc * (int64_t)sizeof(float);
    float *below = c + (int64_t)TILE_SIDE * ldc;
    _tile_stored(0, c, down);
    _tile_stored(1, c + TILE_SIDE, down);
    _tile_stored(2, below, down);
    _tile_stored(3, below + TILE_SIDE, down);
}

/* What streams, the stripes of A, leaves the first cache to the stripe of B. */
INLINE_AMX void tiles_of_a(const float *a)
{
    _tile_stream_loadd(4, a, TILE_ROW_BYTES);
    _tile_stream_loadd(5, a + TILE_WORDS, TILE_ROW_BYTES);
}

INLINE_AMX void tiles_of_b(const float *b)
{
    int64_t across = COLS_AMX * sizeof(float);
    _tile_loadd(6, b, across);
    _tile_loadd(7, b + TILE_SIDE, across);
}

INLINE_AMX void tiles_multiply(void)
{
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

/* Rows of A so many bytes apart, and so many to the tile below and to the next words of k. */
INLINE_AMX void piece_sum(int words, const char *a, int64_t row, int64_t below, int64_t next,
                          const float *b, bool add, float *c, int ldc)
{
    tiles_load(add, c, ldc);
    for (int w = 0; w < words; w += TILE_SIDE) {
        _tile_stream_loadd(4, a, row);
        tiles_of_b(b);
        _tile_stream_loadd(5, a + below, row);
        tiles_multiply();
        a += next;
        b += 2 * TILE_WORDS;
    }
    tiles_store(c, ldc);
}

AMX static void piece_multiply_amx(int words, const float *a, const float *b, bool add, float *c,
                                   int ldc)
{
    int64_t tile = TILE_WORDS * sizeof(float);
    piece_sum(words, (const char *)a, TILE_ROW_BYTES, tile, 2 * tile, b, add, c, ldc);
}

AMX static void stored_multiply_amx(int words, const void *a, int lda, const float *b, bool add,
                                    float *c, int ldc)
{
    int64_t row = lda * operand_bytes(ZERO_BF16);
    piece_sum(words, a, row, TILE_SIDE * row, TILE_ROW_BYTES, b, add, c, ldc);
}

/* Of the nine products of terms the six that can exceed 2^-24 of the first, in an order in
 * which they load least. */
AMX static void piece_multiply_terms(int words, const float *a, const float *b, bool add, float *c,
                                     int ldc)
{
    enum { TERM = 2 * TILE_WORDS }; /* words of a term, of two tiles */
    tiles_load(add, c, ldc);
    for (int w = 0; w < words; w += TERMS * TILE_SIDE) {
        tiles_of_a(a + 2 * TERM);
        tiles_of_b(b);
        tiles_multiply();
        tiles_of_a(a + TERM);
        tiles_multiply();
        tiles_of_b(b + TERM);
        tiles_multiply();
        tiles_of_a(a);
        tiles_multiply();
        tiles_of_b(b);
        tiles_multiply();
        tiles_of_b(b + 2 * TERM);
        tiles_multiply();
        a += TERMS * TERM;
        b += TERMS * TERM;
    }
    tiles_store(c, ldc);
}

static pthread_once_t tiles_asked = PTHREAD_ONCE_INIT;
static bool tiles_given;

/* Asked of the CPU itself: __builtin_cpu_supports knows no AMX in clang before 18. */
static void tiles_ask(void)
{
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    unsigned a, b, c, d = 0;
    bool has = __get_cpuid_count(7, 0, &a, &b, &c, &d) && d & AMX_BF16 && d & AMX_TILE;
    tiles_given = has && pieces_bf16() && syscall(SYS_arch_prctl, ASK_FOR_STATE, STATE_TILES) == 0;
}

static bool tiles_run(void)
{
    pthread_once(&tiles_asked, tiles_ask);
    return tiles_given;
}
#endif

#endif

const struct pieces *pieces_amx(void)
{
#ifdef AMX
    static const struct pieces amx = {.name = "packed panels, AMX",
                                      .rows = ROWS_AMX,
                                      .cols = COLS_AMX,
                                      .part = COLS_AMX,
                                      .values = 2 * TILE_SIDE,
                                      .words = TILE_SIDE,
                                      .uncut = 384,
                                      .pack_a = pack_a_amx,
                                      .pack_b = pack_b_amx,
                                      .multiply = {piece_multiply_amx},
                                      .multiply_stored = stored_multiply_amx,
                                      .begin = tiles_begin,
                                      .end = tiles_end};
    if (tiles_run())
        return &amx;
#endif
    return NULL;
}

const struct pieces *pieces_terms(void)
{
#ifdef AMX
    static const struct pieces terms = {.name = "packed panels, AMX, of three terms of bf16",
                                        .rows = ROWS_AMX,
                                        .cols = COLS_AMX,
                                        .part = COLS_AMX,
                                        .values = 2 * TILE_SIDE,
                                        .words = TERMS * TILE_SIDE,
                                        .pack_a = pack_a_terms,
                                        .pack_b = pack_b_terms,
                                        .multiply = {piece_multiply_terms},
                                        .begin = tiles_begin,
                                        .end = tiles_end};
    if (tiles_run())
        return &terms;
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
        .values = 2,
        .words = 1,
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

/* Intel's cores that have AMX, which some virtual machines hide, begin one such instruction every
 * other cycle, and two multiply-adds of fp32 in each. Cooper Lake, before them, knows no VBMI. */
bool pairs_are_slow(void)
{
#ifdef BF16
    return __builtin_cpu_is("intel") && __builtin_cpu_supports("avx512vbmi");
#else
    return false;
#endif
}
