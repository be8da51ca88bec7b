// SPDX-License-Identifier: Apache-2.0
/*
 * oneDNN's gemm is called as BLAS would be: no primitives, no state. Where it
 * has no bf16 product for this CPU, and for fp16, the operands are widened and
 * multiplied as fp32. The plain loops are for builds without oneDNN and define no speed.
 */
#include "examples/gpt2/matmul.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/clock.h"
#include "examples/gpt2/numeric.h"

#ifdef HAVE_DNNL

#include <dlfcn.h>
#include <malloc.h>
#include <oneapi/dnnl/dnnl.h>
#include <sys/mman.h>

/* Exported by libdnnl 2.x, declared in none of its headers. */
dnnl_status_t dnnl_gemm_bf16bf16f32(char ta, char tb, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k,
                                    float alpha, const uint16_t *a, dnnl_dim_t lda,
                                    const uint16_t *b, dnnl_dim_t ldb, float beta, float *c,
                                    dnnl_dim_t ldc);

/* oneDNN may split the summed dimension among OpenMP threads. The setting is
 * the thread's own. Looked up at run time because the OpenMP that counts is
 * the one oneDNN was linked with, and a program need not link any. */
void matmul_thread_init(void)
{
    void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    void (*set_threads)(int);
    memcpy(&set_threads, &symbol, sizeof(set_threads));
    if (set_threads)
        set_threads(1);
#ifdef __GLIBC__
    /* Each product packs its operands in memory of megabytes. Given back to
     * the kernel every time, a tenth of the step is spent clearing pages. */
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
}

bool matmul_has_room(int threads, int64_t *bytes)
{
    /* For each thread code, packed operands, and what malloc sets aside for it; another
     * thread may take its part at any time, and oneDNN crashes where it finds none. */
    *bytes = (int64_t)(1 + threads) * (72 << 20);
    void *room = mmap(NULL, (size_t)*bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return room != MAP_FAILED && munmap(room, (size_t)*bytes) == 0;
}

static dnnl_status_t gemm_f32(const struct matmul *p, float beta, float *c, int ldc)
{
    return dnnl_sgemm(p->ta ? 'T' : 'N', p->tb ? 'T' : 'N', p->m, p->n, p->k, 1.0f, p->a, p->lda,
                      p->b, p->ldb, beta, c, ldc);
}

static dnnl_status_t gemm_bf16(const struct matmul *p, float beta, float *c, int ldc)
{
    return dnnl_gemm_bf16bf16f32(p->ta ? 'T' : 'N', p->tb ? 'T' : 'N', p->m, p->n, p->k, 1.0f, p->a,
                                 p->lda, p->b, p->ldb, beta, c, ldc);
}

static bool has_bf16(void)
{
    uint16_t one = 0x3F80;
    float c;
    struct matmul p = {ZERO_BF16, false, false, 1, 1, 1, &one, 1, &one, 1};
    return gemm_bf16(&p, 0.0f, &c, 1) == dnnl_success && c == 1.0f;
}

const char *matmul_backend(void)
{
    return has_bf16() ? "oneDNN" : "oneDNN, bf16 widened to fp32";
}

int64_t matmul_scratch(enum zero_dtype dtype, int m, int n, int k)
{
    bool widen = dtype == ZERO_FP16 || (dtype == ZERO_BF16 && !has_bf16());
    return widen ? ((int64_t)m * k + (int64_t)k * n) * (int64_t)sizeof(float) : 0;
}

/* A stored matrix made fp32, without gaps between rows. */
static void widen(enum zero_dtype dtype, const void *in, int rows, int cols, int ld, float *out)
{
    for (int r = 0; r < rows; r++)
        operand_view(dtype, in, (int64_t)r * ld, cols, out + (int64_t)r * cols);
}

static dnnl_status_t gemm_widened(const struct matmul *p, float beta, float *c, int ldc,
                                  float *scratch)
{
    struct matmul w = *p;
    float *a = scratch, *b = scratch + (int64_t)p->m * p->k;
    w.dtype = ZERO_FP32;
    w.a = a;
    w.b = b;
    w.lda = p->ta ? p->m : p->k;
    w.ldb = p->tb ? p->k : p->n;
    widen(p->dtype, p->a, p->ta ? p->k : p->m, w.lda, p->lda, a);
    widen(p->dtype, p->b, p->tb ? p->n : p->k, w.ldb, p->ldb, b);
    return gemm_f32(&w, beta, c, ldc);
}

static void multiply(const struct matmul *p, bool add, float *c, int ldc, void *scratch)
{
    float beta = add ? 1.0f : 0.0f;
    dnnl_status_t status = dnnl_unimplemented;
    if (p->dtype == ZERO_FP32)
        status = gemm_f32(p, beta, c, ldc);
    else if (p->dtype == ZERO_BF16)
        status = gemm_bf16(p, beta, c, ldc);
    if (status == dnnl_unimplemented && p->dtype != ZERO_FP32)
        status = gemm_widened(p, beta, c, ldc, scratch);
    if (status != dnnl_success) { /* out of memory, the only cause left: no result to go on with */
        fprintf(stderr, "oneDNN failed in a %d x %d x %d product (status %d). Free memory.\n", p->m,
                p->n, p->k, (int)status);
        abort();
    }
}

#else /* plain loops */

/* One piece of the result at a time: its sums fit the registers of AVX2. */
#define PLAIN_ROWS 6
#define PLAIN_COLS 16

union columns {
    float value[PLAIN_COLS];
    float v __attribute__((vector_size(4 * PLAIN_COLS)));
};

void matmul_thread_init(void)
{
}

bool matmul_has_room(int threads, int64_t *bytes)
{
    (void)threads;
    *bytes = 0;
    return true;
}

const char *matmul_backend(void)
{
    return "plain loops";
}

static int stripes(int n, int width)
{
    return (n + width - 1) / width;
}

/* All of A and one stripe of B, packed, and a row on its way there. */
int64_t matmul_scratch(enum zero_dtype dtype, int m, int n, int k)
{
    (void)dtype, (void)n;
    int widest = stripes(m, PLAIN_ROWS) * PLAIN_ROWS;
    return ((int64_t)k * (widest + PLAIN_COLS + 1) + PLAIN_COLS) * (int64_t)sizeof(float);
}

/* Rows [first, first + count) of op(A), or columns of op(B): k outermost, width
 * wide, padded with zeros. stored_k: the matrix is stored with k as its rows. */
static void stripe_pack(enum zero_dtype dtype, const void *from, int ld, bool stored_k, int first,
                        int count, int width, int k, float *out, float *spare)
{
    if (count < width)
        memset(out, 0, (size_t)k * (size_t)width * sizeof(float));
    for (int p = 0; stored_k && p < k; p++) {
        const float *row = operand_view(dtype, from, (int64_t)p * ld + first, count, spare);
        memcpy(out + (int64_t)p * width, row, (size_t)count * sizeof(float));
    }
    for (int i = 0; !stored_k && i < count; i++) {
        const float *row = operand_view(dtype, from, (int64_t)(first + i) * ld, k, spare);
        for (int p = 0; p < k; p++)
            out[(int64_t)p * width + i] = row[p];
    }
}

/* One PLAIN_ROWS x PLAIN_COLS piece, each element summed in order of k. */
VECTORISED static void piece_multiply(int k, const float *a, const float *b, float *c)
{
    union columns s0 = {{0}}, s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, x;
    for (int p = 0; p < k; p++, a += PLAIN_ROWS, b += PLAIN_COLS) {
        memcpy(&x, b, sizeof(x));
        s0.v += a[0] * x.v;
        s1.v += a[1] * x.v;
        s2.v += a[2] * x.v;
        s3.v += a[3] * x.v;
        s4.v += a[4] * x.v;
        s5.v += a[5] * x.v;
    }
    const union columns *const sums[PLAIN_ROWS] = {&s0, &s1, &s2, &s3, &s4, &s5};
    for (int i = 0; i < PLAIN_ROWS; i++)
        memcpy(c + i * PLAIN_COLS, sums[i], sizeof(*sums[i]));
}

static void piece_store(const float *piece, int rows, int cols, bool add, float *c, int ldc)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            float value = piece[i * PLAIN_COLS + j];
            float *to = c + (int64_t)i * ldc + j;
            *to = add ? *to + value : value;
        }
}

static int stripe_count(int n, int first, int width)
{
    return n - first < width ? n - first : width;
}

static void multiply(const struct matmul *p, bool add, float *c, int ldc, void *scratch)
{
    float *spare = scratch, *b = spare + p->k + PLAIN_COLS, *a = b + (int64_t)p->k * PLAIN_COLS;
    float piece[PLAIN_ROWS * PLAIN_COLS];
    for (int i = 0; i < p->m; i += PLAIN_ROWS)
        stripe_pack(p->dtype, p->a, p->lda, p->ta, i, stripe_count(p->m, i, PLAIN_ROWS), PLAIN_ROWS,
                    p->k, a + (int64_t)i * p->k, spare);
    for (int j = 0; j < p->n; j += PLAIN_COLS) {
        int cols = stripe_count(p->n, j, PLAIN_COLS);
        stripe_pack(p->dtype, p->b, p->ldb, !p->tb, j, cols, PLAIN_COLS, p->k, b, spare);
        for (int i = 0; i < p->m; i += PLAIN_ROWS) {
            piece_multiply(p->k, a + (int64_t)i * p->k, b, piece);
            piece_store(piece, stripe_count(p->m, i, PLAIN_ROWS), cols, add,
                        c + (int64_t)i * ldc + j, ldc);
        }
    }
}

#endif

/* ----------------------------------------------------------------- counting */

static atomic_int_fast64_t done_flops, done_ns; /* of the process, as oneDNN's state is */

void matmul(const struct matmul *p, bool add, float *c, int ldc, void *scratch)
{
    double begin = clock_now();
    multiply(p, add, c, ldc, scratch);
    int64_t ns = (int64_t)(1e9 * (clock_now() - begin));
    atomic_fetch_add_explicit(&done_flops, 2 * (int64_t)p->m * p->n * p->k, memory_order_relaxed);
    atomic_fetch_add_explicit(&done_ns, ns, memory_order_relaxed);
}

struct matmul_done matmul_flops_done(void)
{
    return (struct matmul_done){
        (double)atomic_load_explicit(&done_flops, memory_order_relaxed),
        1e-9 * (double)atomic_load_explicit(&done_ns, memory_order_relaxed),
    };
}

#define PEAK_SUM     384 /* k: both operands of a tile in fp32 are 768 KiB */
#define PEAK_SECONDS 0.1

double matmul_peak(enum zero_dtype dtype)
{
    int64_t operand = (int64_t)TILE * PEAK_SUM * operand_bytes(dtype);
    struct carve carve = {NULL, 0};
    carve_take(&carve, 2 * operand + TILE * TILE * (int64_t)sizeof(float));
    int64_t scratch = carve.used;
    carve_take(&carve, matmul_scratch(dtype, TILE, TILE, PEAK_SUM));
    char *memory = aligned_alloc(64, (size_t)carve.used);
    if (!memory)
        return 0;
    memset(memory, 0, (size_t)carve.used);
    struct matmul p = {
        dtype, false, false, TILE, TILE, PEAK_SUM, memory, PEAK_SUM, memory + operand, TILE};
    double least = PEAK_SECONDS, start = clock_now();
    for (double now = start; now - start < PEAK_SECONDS;) {
        double begin = now;
        multiply(&p, false, (float *)(memory + 2 * operand), TILE, memory + scratch);
        now = clock_now();
        least = now - begin < least ? now - begin : least;
    }
    free(memory);
    return 2.0 * TILE * TILE * PEAK_SUM / least;
}

/* ------------------------------------------------------- a product in tiles */

struct tiles {
    const struct matmul *product;
    int across; /* tiles in a row of tiles */
    tile_finish_fn *finish;
    void *arg;
};

static void tile_task(void *arg, int64_t index, void *scratch)
{
    const struct tiles *t = arg;
    struct matmul p = *t->product;
    struct tile tile = {.row = (int)(index / t->across) * TILE,
                        .col = (int)(index % t->across) * TILE};
    struct carve carve = {scratch, 0};

    tile.rows = p.m - tile.row < TILE ? p.m - tile.row : TILE;
    tile.cols = p.n - tile.col < TILE ? p.n - tile.col : TILE;
    tile.values = carve_take(&carve, TILE * TILE * sizeof(float));
    tile.spare = carve_take(&carve, 2 * TILE * sizeof(float));
    p.a = operand_at(p.dtype, p.a, p.ta ? tile.row : (int64_t)tile.row * p.lda);
    p.b = operand_at(p.dtype, p.b, p.tb ? (int64_t)tile.col * p.ldb : tile.col);
    p.m = tile.rows;
    p.n = tile.cols;
    matmul(&p, false, tile.values, tile.cols, (char *)scratch + carve.used);
    t->finish(t->arg, &tile);
}

void matmul_tiles(struct workers *workers, const struct matmul *p, tile_finish_fn *finish,
                  void *arg)
{
    int down = (p->m + TILE - 1) / TILE, across = (p->n + TILE - 1) / TILE;
    struct tiles t = {p, across, finish, arg};
    assert(p->m >= 1 && p->n >= 1 && p->k >= 1);
    workers_run(workers, tile_task, &t, (int64_t)down * across);
}

int64_t matmul_tiles_scratch(enum zero_dtype dtype, int k)
{
    return (int64_t)(TILE * TILE + 2 * TILE) * (int64_t)sizeof(float) +
           matmul_scratch(dtype, TILE, TILE, k);
}
