// SPDX-License-Identifier: Apache-2.0
/*
 * A row-major matrix is the transpose of the column-major one in the same place. So
 * c = op(a) op(b) is asked for as c^T = op(b)^T op(a)^T: b comes first, with n as its
 * rows where it is stored as it is multiplied, and a second. What a matrix's rows are
 * apart is its leading dimension either way, and a bias of c's columns is one of the
 * rows of c^T, as cuBLASLt has it.
 */
#include "examples/gpt2/cuda/matmul.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PLANS_MAX                                                                                  \
    512 /* more shapes, as samples have, are forgotten, those used longest ago first */

/* What an algorithm depends on. */
struct shape {
    enum zero_dtype dtype, type;
    int ta, tb, m, n, k, add;
    int align_a, align_b, align_c, align_bias; /* of a bias; 0: there is none */
    int64_t lda, ldb, ldc;
};

struct plan {
    struct plan *next; /* used before this one */
    struct shape shape;
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    int64_t workspace_bytes, products;
};

struct matmul_plans {
    cublasLtHandle_t handle;
    bool tf32;
    int64_t workspace_bytes;
    struct plan *latest;
    int count;
    double flops;
};

static cudaDataType type_of(enum zero_dtype dtype)
{
    return dtype == ZERO_FP32 ? CUDA_R_32F : dtype == ZERO_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* Not what an address happens to be aligned to, but what it is at least: the same wherever
 * its tensor lies. */
static int alignment(const void *address)
{
    int align = MATMUL_ALIGN;
    while ((uintptr_t)address % (uintptr_t)align)
        align /= 2;
    return align;
}

static struct shape shape_of(const struct product *p)
{
    struct shape s;
    memset(&s, 0, sizeof(s)); /* shapes are compared with their padding */
    s.dtype = p->dtype;
    s.type = p->type;
    s.ta = p->ta;
    s.tb = p->tb;
    s.m = p->m;
    s.n = p->n;
    s.k = p->k;
    s.add = p->add;
    s.align_a = alignment(p->a);
    s.align_b = alignment(p->b);
    s.align_c = alignment(p->c);
    s.align_bias = p->bias ? alignment(p->bias) : 0;
    s.lda = p->lda;
    s.ldb = p->ldb;
    s.ldc = p->ldc;
    return s;
}

/* ------------------------------------------------------------------ one plan */

#define TRY(call)                                                                                  \
    do {                                                                                           \
        cublasStatus_t try_status = (call);                                                        \
        if (try_status != CUBLAS_STATUS_SUCCESS)                                                   \
            return try_status;                                                                     \
    } while (0)

static void plan_destroy(struct plan *plan)
{
    if (plan->description)
        (void)cublasLtMatmulDescDestroy(plan->description);
    if (plan->a)
        (void)cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b)
        (void)cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->c)
        (void)cublasLtMatrixLayoutDestroy(plan->c);
    free(plan);
}

/* A stored matrix: as rows of ld elements here, as columns there. */
static cublasStatus_t layout(cublasLtMatrixLayout_t *to, enum zero_dtype dtype, int rows, int cols,
                             int64_t ld)
{
    return cublasLtMatrixLayoutCreate(to, type_of(dtype), (uint64_t)cols, (uint64_t)rows, ld);
}

static cublasStatus_t bias_set(const struct plan *plan, const void *bias)
{
    return cublasLtMatmulDescSetAttribute(plan->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                          &bias, sizeof(bias));
}

static cublasStatus_t describe(struct plan *plan, bool tf32, const struct product *p)
{
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    int32_t first = p->tb ? CUBLAS_OP_T : CUBLAS_OP_N, second = p->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint32_t epilogue = p->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    if (tf32 && p->dtype == ZERO_FP32)
        compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    TRY(cublasLtMatmulDescCreate(&plan->description, compute, CUDA_R_32F));
    TRY(cublasLtMatmulDescSetAttribute(plan->description, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                       sizeof(first)));
    TRY(cublasLtMatmulDescSetAttribute(plan->description, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                       sizeof(second)));
    TRY(cublasLtMatmulDescSetAttribute(plan->description, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                       sizeof(epilogue)));
    if (p->bias) /* takes part in the choice: an address that is aligned as every one will be */
        TRY(bias_set(plan, (const void *)(uintptr_t)plan->shape.align_bias));
    TRY(layout(&plan->b, p->dtype, p->tb ? p->n : p->k, p->tb ? p->k : p->n, p->ldb));
    TRY(layout(&plan->a, p->dtype, p->ta ? p->k : p->m, p->ta ? p->m : p->k, p->lda));
    return layout(&plan->c, p->type, p->m, p->n, p->ldc);
}

static cublasStatus_t prefer(cublasLtMatmulPreference_t preference, const struct shape *s,
                             int64_t workspace_bytes)
{
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        int align;
    } aligned[] = {
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s->align_b}, /* b comes first */
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s->align_a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s->align_c},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s->align_c},
    };
    uint64_t most = (uint64_t)workspace_bytes;
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    TRY(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &most, sizeof(most)));
    TRY(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                             &scheme, sizeof(scheme)));
    for (size_t i = 0; i < sizeof(aligned) / sizeof(*aligned); i++) {
        uint32_t align = (uint32_t)aligned[i].align;
        TRY(cublasLtMatmulPreferenceSetAttribute(preference, aligned[i].attribute, &align,
                                                 sizeof(align)));
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t choose(struct plan *plan, const struct matmul_plans *plans)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    memset(&result, 0, sizeof(result));
    TRY(cublasLtMatmulPreferenceCreate(&preference));
    cublasStatus_t status = prefer(preference, &plan->shape, plans->workspace_bytes);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoGetHeuristic(plans->handle, plan->description, plan->b, plan->a,
                                                plan->c, plan->c, preference, 1, &result, &found);
    (void)cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (found < 1)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    plan->algo = result.algo;
    plan->workspace_bytes = (int64_t)result.workspaceSize;
    return result.state;
}

/* ----------------------------------------------------------------- the plans */

struct matmul_plans *matmul_plans_create(bool tf32, int64_t workspace_bytes, cublasStatus_t *status)
{
    struct matmul_plans *plans = calloc(1, sizeof(*plans));
    *status = CUBLAS_STATUS_ALLOC_FAILED;
    if (!plans)
        return NULL;
    plans->tf32 = tf32;
    plans->workspace_bytes = workspace_bytes;
    *status = cublasLtCreate(&plans->handle);
    if (*status == CUBLAS_STATUS_SUCCESS)
        return plans;
    free(plans);
    return NULL;
}

void matmul_plans_destroy(struct matmul_plans *plans)
{
    if (!plans)
        return;
    for (struct plan *plan; (plan = plans->latest) != NULL;) {
        plans->latest = plan->next;
        plan_destroy(plan);
    }
    (void)cublasLtDestroy(plans->handle);
    free(plans);
}

static void forget_last(struct matmul_plans *plans)
{
    struct plan **link = &plans->latest;
    while ((*link)->next)
        link = &(*link)->next;
    plan_destroy(*link);
    *link = NULL;
    plans->count--;
}

/* The plan for a product, now the latest. A model has few shapes, and walks them in turn: the
 * search is short. */
static cublasStatus_t find(struct matmul_plans *plans, const struct product *p)
{
    struct shape shape = shape_of(p);
    struct plan **link = &plans->latest, *plan;
    while (*link && memcmp(&(*link)->shape, &shape, sizeof(shape)) != 0)
        link = &(*link)->next;
    plan = *link;
    if (plan) {
        *link = plan->next;
    } else {
        plan = calloc(1, sizeof(*plan));
        if (!plan)
            return CUBLAS_STATUS_ALLOC_FAILED;
        plan->shape = shape;
        cublasStatus_t status = describe(plan, plans->tf32, p);
        if (status == CUBLAS_STATUS_SUCCESS)
            status = choose(plan, plans);
        if (status != CUBLAS_STATUS_SUCCESS) {
            plan_destroy(plan);
            return status;
        }
        if (plans->count == PLANS_MAX)
            forget_last(plans);
        plans->count++;
    }
    plan->next = plans->latest;
    plans->latest = plan;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cuda_matmul(struct matmul_plans *plans, cudaStream_t stream, void *workspace,
                           const struct product *p)
{
    const float one = 1, beta = p->add ? 1 : 0;
    assert(p->m >= 1 && p->n >= 1 && p->k >= 1 && (p->type == p->dtype || p->type == ZERO_FP32));
    assert(!p->bias || p->type == p->dtype);
    TRY(find(plans, p));
    struct plan *plan = plans->latest;
    if (p->bias)
        TRY(bias_set(plan, p->bias));
    plan->products++;
    plans->flops += 2.0 * p->m * p->n * p->k;
    return cublasLtMatmul(plans->handle, plan->description, &one, p->b, plan->b, p->a, plan->a,
                          &beta, p->c, plan->c, p->c, plan->c, &plan->algo, workspace,
                          (size_t)plans->workspace_bytes, stream);
}

double matmul_plans_flops(const struct matmul_plans *plans)
{
    return plans->flops;
}

/* One of an algorithm's numbers; -1: it has none. */
static int number(const struct plan *plan, cublasLtMatmulAlgoConfigAttributes_t which)
{
    int32_t value = -1;
    size_t written = 0;
    cublasStatus_t status =
        cublasLtMatmulAlgoConfigGetAttribute(&plan->algo, which, &value, sizeof(value), &written);
    return status == CUBLAS_STATUS_SUCCESS ? value : -1;
}

void matmul_plans_print(const struct matmul_plans *plans, FILE *out)
{
    static const char *const names[] = {"fp32", "bf16", "fp16"};
    for (const struct plan *p = plans->latest; p; p = p->next)
        fprintf(out,
                "  (%d, %d)%s x (%d, %d)%s, %s %s %s%s: %lld times by algorithm %d, tile %d, %d "
                "parts of the sum, %lld bytes of workspace\n",
                p->shape.ta ? p->shape.k : p->shape.m, p->shape.ta ? p->shape.m : p->shape.k,
                p->shape.ta ? "^T" : "", p->shape.tb ? p->shape.n : p->shape.k,
                p->shape.tb ? p->shape.k : p->shape.n, p->shape.tb ? "^T" : "",
                names[p->shape.dtype], p->shape.add ? "added to" : "to", names[p->shape.type],
                p->shape.align_bias ? " with bias" : "", (long long)p->products,
                number(p, CUBLASLT_ALGO_CONFIG_ID), number(p, CUBLASLT_ALGO_CONFIG_TILE_ID),
                number(p, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), (long long)p->workspace_bytes);
}
