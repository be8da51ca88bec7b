// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cublas.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt2/cuda/cublas.h"
#include "examples/gpt2/numeric.h"
#include "examples/gpt2/rows.h"
#include "tests/support/fake_cuda_parts.h"

#define WORKSPACE ((uint64_t)1 << 16) /* of every algorithm, where so much is allowed */

/* What stands behind the library's opaque types. */
struct matrix_layout {
    cudaDataType type;
    int64_t rows, cols, ld;
};

struct description {
    cublasComputeType_t compute;
    cudaDataType scale;
    int32_t operation[2]; /* of a, b */
    uint32_t epilogue;
    const void *bias;
};

struct preference {
    uint64_t workspace;
    uint32_t schemes, align[4];
};

/* What an algorithm was chosen for: its 64 bytes. */
struct chosen {
    uint64_t made_for; /* a hash */
    uint64_t workspace;
    uint8_t align[5]; /* of a, b, c, d, and the bias */
};
_Static_assert(sizeof(struct chosen) <= sizeof(cublasLtMatmulAlgo_t), "fits");

static atomic_int alive, asked;
static atomic_int refuses; /* with this status; 0: nothing */

int fake_cublas_alive(void)
{
    return atomic_load(&alive);
}

int fake_cublas_asked(void)
{
    return atomic_load(&asked);
}

void fake_cublas_refuse(int status)
{
    atomic_store(&refuses, status);
}

/* ------------------------------------------------------------------- objects */

static cublasStatus_t create(void **object, const void *value, size_t bytes)
{
    *object = malloc(bytes);
    if (!*object)
        abort();
    memcpy(*object, value, bytes);
    atomic_fetch_add(&alive, 1);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t destroy(void *object)
{
    if (!object)
        return CUBLAS_STATUS_INVALID_VALUE;
    atomic_fetch_sub(&alive, 1);
    free(object);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    void *object;
    int gpu = 0;
    if (fake_enter() != cudaSuccess)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    gpu = fake_gpu(__func__);
    create(&object, &gpu, sizeof(gpu));
    *handle = object;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    return destroy(handle);
}

size_t cublasLtGetVersion(void)
{
    return 130000;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
#define NAME(name, value)                                                                          \
    case name: return #name;
    switch ((int)status) {
        CUBLAS_STATUSES(NAME)
    default: return "unknown status";
    }
#undef NAME
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    struct matrix_layout l = {type, (int64_t)rows, (int64_t)cols, ld};
    void *object;
    create(&object, &l, sizeof(l));
    *layout = object;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return destroy(layout);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *description,
                                        cublasComputeType_t compute, cudaDataType scale)
{
    struct description d = {
        .compute = compute, .scale = scale, .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    void *object;
    create(&object, &d, sizeof(d));
    *description = object;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description)
{
    return destroy(description);
}

static cublasStatus_t set(void *to, size_t size, const void *value, size_t bytes)
{
    if (!to || bytes != size) {
        fake_report(FAKE_CUDA_PRODUCT, "an attribute that does not have %zu bytes", bytes);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    struct description *d = (void *)description;
    switch ((int)attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&d->operation[0], sizeof(d->operation[0]), value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&d->operation[1], sizeof(d->operation[1]), value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(&d->epilogue, sizeof(d->epilogue), value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(&d->bias, sizeof(d->bias), value, bytes);
    default: return set(NULL, 0, value, bytes);
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    struct preference p = {.schemes = 7, .align = {256, 256, 256, 256}};
    void *object;
    create(&object, &p, sizeof(p));
    *preference = object;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    return destroy(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    struct preference *p = (void *)preference;
    int which = (int)attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    switch ((int)attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&p->workspace, sizeof(p->workspace), value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(&p->schemes, sizeof(p->schemes), value, bytes);
    default:
        return which >= 0 && which < 4 ? set(&p->align[which], sizeof(p->align[0]), value, bytes)
                                       : set(NULL, 0, value, bytes);
    }
}

/* -------------------------------------------------------------------- checks */

/* One product as it was asked for. */
struct question {
    const struct description *description;
    const struct matrix_layout *layout[4]; /* a, b, c, d */
};

static struct question question(cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                                cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                cublasLtMatrixLayout_t d)
{
    return (struct question){(const void *)description,
                             {(const void *)a, (const void *)b, (const void *)c, (const void *)d}};
}

__attribute__((format(printf, 1, 2))) static bool wrong(const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fake_report(FAKE_CUDA_PRODUCT, "a product: %s", text);
    return true;
}

static int64_t op_rows(const struct question *q, int which)
{
    const struct matrix_layout *l = q->layout[which];
    return q->description->operation[which] == CUBLAS_OP_T ? l->cols : l->rows;
}

static int64_t op_cols(const struct question *q, int which)
{
    const struct matrix_layout *l = q->layout[which];
    return q->description->operation[which] == CUBLAS_OP_T ? l->rows : l->cols;
}

static bool types_wrong(const struct question *q)
{
    cudaDataType a = q->layout[0]->type, b = q->layout[1]->type;
    cudaDataType c = q->layout[2]->type, d = q->layout[3]->type;
    cublasComputeType_t compute = q->description->compute;
    if (q->description->scale != CUDA_R_32F)
        return wrong("scaled in type %d", (int)q->description->scale);
    if (a != b || c != d || (c != a && c != CUDA_R_32F))
        return wrong("types %d x %d + %d = %d are not combined", (int)a, (int)b, (int)c, (int)d);
    if (compute != CUBLAS_COMPUTE_32F &&
        !(compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a == CUDA_R_32F))
        return wrong("operands of type %d are not computed as %d", (int)a, (int)compute);
    return false;
}

static bool sizes_wrong(const struct question *q)
{
    for (int i = 0; i < 4; i++) {
        const struct matrix_layout *l = q->layout[i];
        if (l->rows < 1 || l->cols < 1 || l->ld < l->rows)
            return wrong("matrix %d has %lld rows, %lld columns, leading dimension %lld", i,
                         (long long)l->rows, (long long)l->cols, (long long)l->ld);
    }
    if (op_cols(q, 0) != op_rows(q, 1) || op_rows(q, 0) != q->layout[3]->rows ||
        op_cols(q, 1) != q->layout[3]->cols || q->layout[2]->rows != q->layout[3]->rows ||
        q->layout[2]->cols != q->layout[3]->cols)
        return wrong("(%lld, %lld) x (%lld, %lld) is not (%lld, %lld)", (long long)op_rows(q, 0),
                     (long long)op_cols(q, 0), (long long)op_rows(q, 1), (long long)op_cols(q, 1),
                     (long long)q->layout[3]->rows, (long long)q->layout[3]->cols);
    return q->description->epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
           q->description->epilogue != CUBLASLT_EPILOGUE_BIAS &&
           wrong("an epilogue %u that the fake has not", q->description->epilogue);
}

static void hash_add(uint64_t *hash, int64_t value)
{
    *hash = (*hash ^ (uint64_t)value) * 0x9E3779B97F4A7C15u;
    *hash ^= *hash >> 29;
}

/* Of all that an algorithm is chosen by, but alignments. */
static uint64_t question_hash(const struct question *q)
{
    uint64_t hash = 1;
    for (int i = 0; i < 4; i++) {
        hash_add(&hash, q->layout[i]->type);
        hash_add(&hash, q->layout[i]->rows);
        hash_add(&hash, q->layout[i]->cols);
        hash_add(&hash, q->layout[i]->ld);
    }
    hash_add(&hash, q->description->compute);
    hash_add(&hash, q->description->operation[0] * 2 + q->description->operation[1]);
    hash_add(&hash, q->description->epilogue);
    return hash;
}

/* What an address has, as far as a byte tells. */
static uint8_t alignment(const void *address)
{
    uint8_t align = 128;
    while ((uintptr_t)address % align)
        align /= 2;
    return align;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int count,
                                              cublasLtMatmulHeuristicResult_t results[], int *found)
{
    const struct preference *p = (const void *)preference;
    struct question q = question(description, a, b, c, d);
    *found = 0;
    atomic_fetch_add(&asked, 1);
    if (!handle || count < 1 || sizes_wrong(&q))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (atomic_load(&refuses))
        return (cublasStatus_t)atomic_load(&refuses);
    if (types_wrong(&q))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p->schemes & 5)
        wrong("partial sums may be rounded to the result's type, or added in place");
    if (q.description->epilogue == CUBLASLT_EPILOGUE_BIAS && !q.description->bias)
        wrong("an algorithm is asked for before the bias has an address");
    struct chosen chosen = {.made_for = question_hash(&q),
                            .workspace = p->workspace < WORKSPACE ? p->workspace : WORKSPACE};
    for (int i = 0; i < 4; i++)
        chosen.align[i] = (uint8_t)(p->align[i] > 128 ? 255 : p->align[i]);
    chosen.align[4] = alignment(q.description->bias);
    memset(&results[0], 0, sizeof(results[0]));
    memcpy(&results[0].algo, &chosen, sizeof(chosen));
    results[0].workspaceSize = chosen.workspace;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *value, size_t bytes, size_t *written)
{
    int32_t number = attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? 1 : 7;
    (void)algo;
    if (bytes != sizeof(number))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &number, sizeof(number));
    *written = sizeof(number);
    return CUBLAS_STATUS_SUCCESS;
}

/* ------------------------------------------------------------------- product */

struct multiplication {
    struct description description;
    struct matrix_layout layout[4];
    const void *matrix[3]; /* a, b, c */
    void *result, *workspace;
    const void *bias;
    size_t workspace_bytes;
    float alpha, beta;
};

static enum zero_dtype dtype_of(cudaDataType type)
{
    return type == CUDA_R_32F ? ZERO_FP32 : type == CUDA_R_16BF ? ZERO_BF16 : ZERO_FP16;
}

static float *floats(int64_t count)
{
    float *room = malloc((size_t)(count > 0 ? count : 1) * sizeof(float));
    if (!room)
        abort();
    return room;
}

/* op(matrix) as fp32, (outer, summed): rows of a, columns of b. TF32 cuts 13 bits. */
static float *operand(const struct multiplication *m, int which, int64_t outer, int64_t summed)
{
    const struct matrix_layout *l = &m->layout[which];
    enum zero_dtype dtype = dtype_of(l->type);
    bool summed_in_column = (m->description.operation[which] == CUBLAS_OP_T) == (which == 0);
    float *to = floats(outer * summed), *column = floats(l->rows);
    for (int64_t c = 0; c < l->cols; c++) {
        const float *from = operand_view(dtype, m->matrix[which], c * l->ld, l->rows, column);
        for (int64_t r = 0; r < l->rows; r++)
            to[summed_in_column ? c * summed + r : r * summed + c] = from[r];
    }
    free(column);
    for (int64_t i = 0;
         m->description.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && i < outer * summed; i++) {
        uint32_t bits;
        memcpy(&bits, &to[i], sizeof(bits));
        bits &= 0xFFFFE000u;
        memcpy(&to[i], &bits, sizeof(bits));
    }
    return to;
}

/* A column of the result: alpha times sums, and what is added before it is rounded. */
static void column_finish(const struct multiplication *m, int64_t column, float *sums)
{
    const struct matrix_layout *l = &m->layout[3];
    enum zero_dtype dtype = dtype_of(l->type);
    float *spare = floats(l->rows);
    for (int64_t r = 0; r < l->rows; r++)
        sums[r] *= m->alpha;
    if (m->beta != 0) {
        const float *c =
            operand_view(dtype, m->matrix[2], column * m->layout[2].ld, l->rows, spare);
        for (int64_t r = 0; r < l->rows; r++)
            sums[r] += m->beta * c[r];
    }
    if (m->bias)
        rows_best()->add(l->rows, operand_view(dtype, m->bias, 0, l->rows, spare), sums);
    operand_store(dtype, m->result, column * l->ld, l->rows, sums);
    free(spare);
}

static void multiply_run(void *arg)
{
    const struct multiplication *m = arg;
    int64_t rows = m->layout[3].rows, cols = m->layout[3].cols;
    int64_t summed =
        m->description.operation[0] == CUBLAS_OP_T ? m->layout[0].rows : m->layout[0].cols;
    float *a = operand(m, 0, rows, summed), *b = operand(m, 1, cols, summed);
    float *turned = floats(rows * summed), *sums = floats(rows);
    fake_fill(m->workspace, 0x5A, m->workspace_bytes);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < summed; k++)
            turned[k * rows + r] = a[r * summed + k];
    for (int64_t c = 0; c < cols; c++) {
        memset(sums, 0, (size_t)rows * sizeof(float));
        for (int64_t k = 0; k < summed; k++) {
            float factor = b[c * summed + k];
            const float *line = turned + k * rows;
            for (int64_t r = 0; r < rows; r++)
                sums[r] += line[r] * factor;
        }
        column_finish(m, c, sums);
    }
    free(a);
    free(b);
    free(turned);
    free(sums);
}

static int64_t layout_bytes(const struct matrix_layout *l)
{
    return ((l->cols - 1) * l->ld + l->rows) * operand_bytes(dtype_of(l->type));
}

static bool overlap(const void *x, int64_t x_bytes, const void *y, int64_t y_bytes)
{
    return (const char *)x < (const char *)y + y_bytes &&
           (const char *)y < (const char *)x + x_bytes;
}

static bool call_wrong(const struct question *q, const struct chosen *chosen,
                       const void *const matrix[4], const void *workspace, size_t workspace_bytes)
{
    if (sizes_wrong(q) || types_wrong(q))
        return true;
    if (chosen->made_for != question_hash(q))
        return wrong("its algorithm was chosen for another one");
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)matrix[i] % (chosen->align[i] == 255 ? 256u : chosen->align[i]))
            return wrong("matrix %d is not aligned to the %d bytes that were promised", i,
                         (int)chosen->align[i]);
    if (workspace_bytes < chosen->workspace)
        return wrong("%zu bytes of workspace, and its algorithm needs %llu", workspace_bytes,
                     (unsigned long long)chosen->workspace);
    if ((uintptr_t)workspace % 256)
        return wrong("a workspace that is not aligned to 256 bytes");
    for (int i = 0; i < 2; i++)
        if (overlap(matrix[3], layout_bytes(q->layout[3]), matrix[i], layout_bytes(q->layout[i])))
            return wrong("its result overlaps matrix %d", i);
    if (q->description->epilogue == CUBLASLT_EPILOGUE_BIAS &&
        (!q->description->bias || (uintptr_t)q->description->bias % chosen->align[4]))
        return wrong("a bias at %p, and its algorithm was chosen for one aligned to %d bytes",
                     q->description->bias, (int)chosen->align[4]);
    return matrix[2] != matrix[3] && wrong("c is not d: nobody asks for that");
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    struct question q = question(description, a_layout, b_layout, c_layout, d_layout);
    const void *const matrix[4] = {a, b, c, d};
    struct chosen chosen;
    memcpy(&chosen, algo, sizeof(chosen));
    if (!handle || call_wrong(&q, &chosen, matrix, workspace, workspace_bytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    struct fake_op *op = fake_op_create(__func__, stream, sizeof(struct multiplication));
    struct multiplication *m = op->arg;
    m->description = *q.description;
    memcpy(&m->alpha, alpha, sizeof(m->alpha));
    memcpy(&m->beta, beta, sizeof(m->beta));
    for (int i = 0; i < 4; i++)
        m->layout[i] = *q.layout[i];
    for (int i = 0; i < 3; i++)
        m->matrix[i] = fake_reach(op, matrix[i], layout_bytes(q.layout[i]), FAKE_VISIBLE);
    m->result = fake_reach(op, d, layout_bytes(q.layout[3]), FAKE_VISIBLE);
    m->workspace_bytes = chosen.workspace;
    m->workspace = fake_reach(op, workspace, (int64_t)workspace_bytes, FAKE_VISIBLE);
    if (q.description->epilogue == CUBLASLT_EPILOGUE_BIAS) {
        int64_t bytes = q.layout[3]->rows * operand_bytes(dtype_of(q.layout[3]->type));
        m->bias = fake_reach(op, q.description->bias, bytes, FAKE_VISIBLE);
    }
    return fake_op_append(op, multiply_run) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                           : CUBLAS_STATUS_EXECUTION_FAILED;
}
