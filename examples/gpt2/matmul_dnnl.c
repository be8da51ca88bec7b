// SPDX-License-Identifier: Apache-2.0
/*
 * oneDNN's gemm of bf16, called as BLAS would be: no primitives, no state.
 */
#include "examples/gpt2/matmul_dnnl.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_DNNL

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <dlfcn.h>
#include <malloc.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>

/* Exported by libdnnl 2.x, declared in none of its headers. */
dnnl_status_t dnnl_gemm_bf16bf16f32(char ta, char tb, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k,
                                    float alpha, const uint16_t *a, dnnl_dim_t lda,
                                    const uint16_t *b, dnnl_dim_t ldb, float beta, float *c,
                                    dnnl_dim_t ldc);

/* oneDNN may split the summed dimension among OpenMP threads. The setting is
 * the thread's own. Looked up at run time because the OpenMP that counts is
 * the one oneDNN was linked with, and a program need not link any. */
void dnnl_thread_init(void)
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

static dnnl_status_t gemm_bf16(const struct matmul *p, float beta, float *c, int ldc)
{
    return dnnl_gemm_bf16bf16f32(p->ta ? 'T' : 'N', p->tb ? 'T' : 'N', p->m, p->n, p->k, 1.0f, p->a,
                                 p->lda, p->b, p->ldb, beta, c, ldc);
}

bool dnnl_multiplies(void)
{
    uint16_t one = 0x3F80;
    float c;
    struct matmul p = {ZERO_BF16, false, false, 1, 1, 1, &one, 1, &one, 1};
    return gemm_bf16(&p, 0.0f, &c, 1) == dnnl_success && c == 1.0f;
}

static bool has_amx(void)
{
#ifdef __x86_64__
    unsigned eax, ebx, ecx, edx; /* of leaf 7, bit 22 of edx: AMX-BF16 */
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx >> 22 & 1);
#else
    return false;
#endif
}

static pthread_once_t asked = PTHREAD_ONCE_INIT;
static bool leads;

static void ask(void)
{
    leads = has_amx() && dnnl_multiplies();
}

bool dnnl_leads(enum zero_dtype dtype)
{
    pthread_once(&asked, ask);
    return dtype == ZERO_BF16 && leads;
}

void dnnl_multiply(const struct matmul *p, bool add, float *c, int ldc)
{
    dnnl_status_t status = gemm_bf16(p, add ? 1.0f : 0.0f, c, ldc);
    if (status != dnnl_success) { /* out of memory, the only cause left: no result to go on with */
        fprintf(stderr, "oneDNN failed in a %d x %d x %d product (status %d). Free memory.\n", p->m,
                p->n, p->k, (int)status);
        abort();
    }
}

#else

bool dnnl_multiplies(void)
{
    return false;
}

bool dnnl_leads(enum zero_dtype dtype)
{
    (void)dtype;
    return false;
}

void dnnl_thread_init(void)
{
}

void dnnl_multiply(const struct matmul *p, bool add, float *c, int ldc)
{
    (void)p, (void)add, (void)c, (void)ldc;
}

#endif
