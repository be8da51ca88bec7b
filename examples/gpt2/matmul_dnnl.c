// SPDX-License-Identifier: Apache-2.0
/*
 * oneDNN's gemm, called as BLAS would be: no primitives, no state. Where it
 * has no bf16 product for this CPU, and for fp16, the operands are widened and
 * multiplied as fp32.
 */
#include "examples/gpt2/matmul_kind.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt2/numeric.h"

#ifdef HAVE_DNNL

#include <dlfcn.h>
#include <malloc.h>
#include <oneapi/dnnl/dnnl.h>

/* Exported by libdnnl 2.x, declared in none of its headers. */
dnnl_status_t dnnl_gemm_bf16bf16f32(char ta, char tb, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k,
                                    float alpha, const uint16_t *a, dnnl_dim_t lda,
                                    const uint16_t *b, dnnl_dim_t ldb, float beta, float *c,
                                    dnnl_dim_t ldc);

/* oneDNN may split the summed dimension among OpenMP threads. The setting is
 * the thread's own. Looked up at run time because the OpenMP that counts is
 * the one oneDNN was linked with, and a program need not link any. */
static void dnnl_thread_init(void)
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

static const char *dnnl_name(void)
{
    return has_bf16() ? "oneDNN" : "oneDNN, bf16 widened to fp32";
}

static int64_t dnnl_scratch(enum zero_dtype dtype, int m, int n, int k)
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

static void dnnl_multiply(const struct matmul *p, bool add, float *c, int ldc, void *scratch)
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

/* For each thread code, packed operands, and what malloc sets aside for it; another thread
 * may take its part at any time, and oneDNN crashes where it finds none. */
#define THREAD_BYTES (72 << 20)

const struct matmul_kind *matmul_dnnl(void)
{
    static const struct matmul_kind kind = {dnnl_name, dnnl_thread_init, THREAD_BYTES, 1,
                                            1,         dnnl_scratch,     dnnl_multiply};
    return &kind;
}

#else

const struct matmul_kind *matmul_dnnl(void)
{
    return NULL;
}

#endif

bool matmul_dnnl_leads(void)
{
#ifdef __x86_64__
    return matmul_dnnl() && __builtin_cpu_supports("avx512bw");
#else
    return false;
#endif
}
