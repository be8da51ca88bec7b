// SPDX-License-Identifier: Apache-2.0
/*
 * What gpt2 uses of cuBLASLt, and the one home of its header. As with the CUDA
 * runtime (kernels/cuda/runtime.h): where there is no toolkit the same is declared
 * here, so that what multiplies on GPUs compiles, and is tested on the library of
 * tests/support/fake_cublas.h, everywhere; where there is one the compiler holds
 * these declarations to it. Nothing here differs between CUDA 12 and 13.
 */
#ifndef EXAMPLES_GPT2_CUDA_CUBLAS_H
#define EXAMPLES_GPT2_CUDA_CUBLAS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/runtime.h"

#define CUBLAS_STATUSES(X)                                                                         \
    X(CUBLAS_STATUS_SUCCESS, 0)                                                                    \
    X(CUBLAS_STATUS_NOT_INITIALIZED, 1)                                                            \
    X(CUBLAS_STATUS_ALLOC_FAILED, 3)                                                               \
    X(CUBLAS_STATUS_INVALID_VALUE, 7)                                                              \
    X(CUBLAS_STATUS_EXECUTION_FAILED, 13)                                                          \
    X(CUBLAS_STATUS_NOT_SUPPORTED, 15)

#define CUBLAS_TYPES(X)                                                                            \
    X(CUDA_R_32F, 0)                                                                               \
    X(CUDA_R_16F, 2)                                                                               \
    X(CUDA_R_16BF, 14)

#define CUBLAS_COMPUTES(X)                                                                         \
    X(CUBLAS_COMPUTE_32F, 68)                                                                      \
    X(CUBLAS_COMPUTE_32F_FAST_TF32, 77)

#define CUBLAS_DESCRIPTIONS(X)                                                                     \
    X(CUBLASLT_MATMUL_DESC_TRANSA, 3)                                                              \
    X(CUBLASLT_MATMUL_DESC_TRANSB, 4)                                                              \
    X(CUBLASLT_MATMUL_DESC_EPILOGUE, 7)                                                            \
    X(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)

#define CUBLAS_PREFERENCES(X)                                                                      \
    X(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)                                                 \
    X(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)                                               \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)                                               \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)                                               \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)                                               \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)

#define CUBLAS_CONSTANTS(X)                                                                        \
    X(CUBLAS_OP_N, 0)                                                                              \
    X(CUBLAS_OP_T, 1)                                                                              \
    X(CUBLASLT_REDUCTION_SCHEME_NONE, 0)                                                           \
    X(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)                                                   \
    X(CUBLASLT_EPILOGUE_DEFAULT, 1)                                                                \
    X(CUBLASLT_EPILOGUE_BIAS, 4)                                                                   \
    X(CUBLASLT_ALGO_CONFIG_ID, 0)                                                                  \
    X(CUBLASLT_ALGO_CONFIG_TILE_ID, 1)                                                             \
    X(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 2)

#ifdef HAVE_CUBLAS
#include <cublasLt.h>

#define CUBLAS_SAME(name, value) _Static_assert(name == (value), "another value of " #name);
CUBLAS_STATUSES(CUBLAS_SAME)
CUBLAS_TYPES(CUBLAS_SAME)
CUBLAS_COMPUTES(CUBLAS_SAME)
CUBLAS_DESCRIPTIONS(CUBLAS_SAME)
CUBLAS_PREFERENCES(CUBLAS_SAME)
CUBLAS_CONSTANTS(CUBLAS_SAME)
#undef CUBLAS_SAME

#else

#define CUBLAS_NAME(name, value) name = (value),
#ifdef HAVE_CUDA
#include <library_types.h> /* of the runtime */
#else
enum cudaDataType_of { CUBLAS_TYPES(CUBLAS_NAME) };
typedef enum cudaDataType_of cudaDataType;
#endif
enum cublasStatus { CUBLAS_STATUSES(CUBLAS_NAME) };
enum cublasComputeType { CUBLAS_COMPUTES(CUBLAS_NAME) };
enum cublasLtMatmulDescAttributes { CUBLAS_DESCRIPTIONS(CUBLAS_NAME) };
enum cublasLtMatmulPreferenceAttributes { CUBLAS_PREFERENCES(CUBLAS_NAME) };
enum { CUBLAS_CONSTANTS(CUBLAS_NAME) };
#undef CUBLAS_NAME

typedef enum cublasStatus cublasStatus_t;
typedef enum cublasComputeType cublasComputeType_t;
typedef enum cublasLtMatmulDescAttributes cublasLtMatmulDescAttributes_t;
typedef enum cublasLtMatmulPreferenceAttributes cublasLtMatmulPreferenceAttributes_t;
typedef unsigned cublasLtMatmulAlgoConfigAttributes_t;

typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct cublas_layout *cublasLtMatrixLayout_t;
typedef struct cublas_description *cublasLtMatmulDesc_t;
typedef struct cublas_preference *cublasLtMatmulPreference_t;

typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;

typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;
#endif

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle);
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle);
size_t cublasLtGetVersion(void);
const char *cublasLtGetStatusName(cublasStatus_t status);

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld);
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout);

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *description,
                                        cublasComputeType_t compute, cudaDataType scale);
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description);
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes);

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference);
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference);
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes);

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int asked,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *found);
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *value, size_t bytes, size_t *written);

/* Column-major: d = alpha op(a) op(b) + beta c. */
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream);

#endif
