// SPDX-License-Identifier: Apache-2.0
/*
 * Products on GPUs (examples/gpt2/cuda/matmul.c) over the fake cuBLASLt, against double
 * loops: every way matrices can be stored, types, biases and sums; that bits do not depend
 * on where matrices lie; and that the fake reports each misuse that it says it does.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt2/cuda/matmul.h"
#include "examples/gpt2/numeric.h"
#include "tests/support/fake_cublas.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/suite.h"

#define WORKSPACE ((int64_t)1 << 20)
#define ROOM      (1 << 16) /* elements of each matrix */

enum { A, B, C, BIAS, MATRICES };

/* Matrices on a GPU and here, with registered memory between. */
static struct {
    cudaStream_t stream;
    struct matmul_plans *plans;
    void *workspace, *landing;
    char *gpu[MATRICES];
    float *here[MATRICES];
} on;

static void begin(bool tf32)
{
    cublasStatus_t status;
    fake_cuda_start(&(struct fake_cuda_options){.gpus = 1, .bytes = 1 << 24, .seed = 1});
    ck_assert_int_eq(cudaSetDevice(0), cudaSuccess);
    ck_assert_int_eq(cudaStreamCreateWithFlags(&on.stream, cudaStreamNonBlocking), cudaSuccess);
    ck_assert_int_eq(cudaMalloc(&on.workspace, (size_t)WORKSPACE), cudaSuccess);
    ck_assert_int_eq(cudaHostAlloc(&on.landing, 4 * ROOM, cudaHostAllocDefault), cudaSuccess);
    for (int i = 0; i < MATRICES; i++) {
        ck_assert_int_eq(cudaMalloc((void **)&on.gpu[i], 4 * ROOM), cudaSuccess);
        on.here[i] = malloc(4 * ROOM);
        ck_assert_ptr_nonnull(on.here[i]);
    }
    on.plans = matmul_plans_create(tf32, WORKSPACE, &status);
    ck_assert_ptr_nonnull(on.plans);
}

static int end(void)
{
    ck_assert_int_eq(cudaStreamSynchronize(on.stream), cudaSuccess);
    matmul_plans_destroy(on.plans);
    for (int i = 0; i < MATRICES; i++) {
        ck_assert_int_eq(cudaFree(on.gpu[i]), cudaSuccess);
        free(on.here[i]);
    }
    ck_assert_int_eq(cudaFree(on.workspace), cudaSuccess);
    ck_assert_int_eq(cudaFreeHost(on.landing), cudaSuccess);
    ck_assert_int_eq(cudaStreamDestroy(on.stream), cudaSuccess);
    fake_cuda_stop();
    ck_assert_int_eq(fake_cublas_alive(), 0);
    return fake_cuda_reported(FAKE_CUDA_REPORTS);
}

static void upload(enum zero_dtype dtype, int i, int64_t n, int64_t shift)
{
    size_t bytes = (size_t)(n * operand_bytes(dtype));
    operand_store(dtype, on.landing, 0, n, on.here[i]);
    ck_assert_int_eq(
        cudaMemcpyAsync(on.gpu[i] + shift, on.landing, bytes, cudaMemcpyHostToDevice, on.stream),
        cudaSuccess);
    ck_assert_int_eq(cudaStreamSynchronize(on.stream), cudaSuccess);
    const float *back = operand_view(dtype, on.landing, 0, n, on.here[i]); /* as rounded */
    memmove(on.here[i], back, (size_t)n * sizeof(float));
}

static void fill(enum zero_dtype dtype, int i, int64_t n, int64_t shift)
{
    for (int64_t j = 0; j < n; j++)
        on.here[i][j] =
            (float)((int)((j * 2654435761u + (unsigned)i * 40503u) % 255) - 127) / 64.0f;
    upload(dtype, i, n, shift);
}

/* Rows and stored length of a matrix that is (rows, cols) when it is multiplied. */
static int64_t stored(bool turned, int rows, int cols, int64_t ld)
{
    return (turned ? cols : rows) * ld;
}

static double at(int i, bool turned, int64_t ld, int row, int col)
{
    return (double)on.here[i][turned ? col * ld + row : row * ld + col];
}

static float *download(enum zero_dtype dtype, int64_t n, int64_t shift)
{
    static float spare[ROOM];
    size_t bytes = (size_t)(n * operand_bytes(dtype));
    ck_assert_int_eq(
        cudaMemcpyAsync(on.landing, on.gpu[C] + shift, bytes, cudaMemcpyDeviceToHost, on.stream),
        cudaSuccess);
    ck_assert_int_eq(cudaStreamSynchronize(on.stream), cudaSuccess);
    const float *values = operand_view(dtype, on.landing, 0, n, spare);
    memmove(spare, values, (size_t)n * sizeof(float));
    return spare;
}

/* Multiplies and compares; what lies between c's rows stays. */
static void expect_product(struct product p, int64_t shift, double share)
{
    int64_t a = stored(p.ta, p.m, p.k, p.lda), b = stored(p.tb, p.k, p.n, p.ldb), c = p.m * p.ldc;
    ck_assert_int_le(a, ROOM / 2);
    ck_assert_int_le(b, ROOM / 2);
    ck_assert_int_le(c, ROOM / 2);
    fill(p.dtype, A, a, shift);
    fill(p.dtype, B, b, shift);
    fill(p.type, C, c, shift);
    fill(p.dtype, BIAS, p.n, shift);
    p.a = on.gpu[A] + shift;
    p.b = on.gpu[B] + shift;
    p.c = on.gpu[C] + shift;
    p.bias = p.bias ? on.gpu[BIAS] + shift : NULL;
    ck_assert_int_eq(cuda_matmul(on.plans, on.stream, on.workspace, &p), CUBLAS_STATUS_SUCCESS);
    const float *got = download(p.type, c, shift);
    for (int row = 0; row < p.m; row++)
        for (int64_t col = 0; col < p.ldc; col++) {
            double expected = (double)on.here[C][row * p.ldc + col], size = 1;
            if (col < p.n) {
                expected = p.add ? expected : 0;
                expected += p.bias ? (double)on.here[BIAS][col] : 0;
                for (int k = 0; k < p.k; k++) {
                    double term = at(A, p.ta, p.lda, row, k) * at(B, p.tb, p.ldb, k, (int)col);
                    expected += term;
                    size += fabs(term);
                }
            }
            double value = (double)got[row * p.ldc + col];
            ck_assert_msg(fabs(value - expected) <= (col < p.n ? share : 0) * size,
                          "(%d, %lld) is %.9g, not %.9g", row, (long long)col, value, expected);
        }
}

static const enum zero_dtype dtypes[] = {ZERO_FP32, ZERO_BF16, ZERO_FP16};
static const double shares[] = {1e-6, 4e-3, 5e-4};

START_TEST(products)
{
    enum zero_dtype dtype = dtypes[_i];
    begin(false);
    for (int how = 0; how < 64; how++) {
        struct product p = {.dtype = dtype,
                            .ta = how & 1,
                            .tb = how & 2,
                            .m = 5,
                            .n = 7,
                            .k = 11,
                            .type = how & 4 ? ZERO_FP32 : dtype,
                            .add = how & 8,
                            .bias = how & 16 && !(how & 4) ? &on : NULL};
        int gap = how & 32 ? 3 : 0; /* between rows */
        p.lda = (p.ta ? p.m : p.k) + gap;
        p.ldb = (p.tb ? p.k : p.n) + gap;
        p.ldc = p.n + gap;
        expect_product(p, how % 3 * 4, p.type == ZERO_FP32 ? 1e-6 : shares[_i]);
    }
    struct product large = {
        .dtype = dtype, .m = 64, .n = 96, .k = 80, .lda = 80, .ldb = 96, .type = dtype, .ldc = 96};
    expect_product(large, 0, shares[_i]);
    ck_assert_int_eq(end(), 0);
}
END_TEST

/* The same question is asked of cuBLASLt wherever the matrices lie, as long as they are aligned
 * to 64 bytes; and once. */
START_TEST(asked_once)
{
    struct product p = {.dtype = ZERO_BF16,
                        .m = 8,
                        .n = 8,
                        .k = 8,
                        .lda = 8,
                        .ldb = 8,
                        .type = ZERO_BF16,
                        .bias = &on,
                        .ldc = 8};
    begin(false);
    expect_product(p, 0, 4e-3);
    int before = fake_cublas_asked();
    expect_product(p, 64, 4e-3);
    expect_product(p, 1024, 4e-3);
    ck_assert_int_eq(fake_cublas_asked(), before);
    expect_product(p, 32, 4e-3);
    ck_assert_int_eq(fake_cublas_asked(), before + 1);
    ck_assert_double_eq(matmul_plans_flops(on.plans), 4 * 2.0 * 8 * 8 * 8);
    ck_assert_int_eq(end(), 0);
}
END_TEST

/* More shapes than are kept: the table does not grow, and forgotten ones come back. */
START_TEST(many_shapes)
{
    struct product p = {
        .dtype = ZERO_FP32, .n = 2, .k = 2, .lda = 2, .ldb = 2, .type = ZERO_FP32, .ldc = 2};
    begin(false);
    fill(ZERO_FP32, A, 4096, 0);
    fill(ZERO_FP32, B, 4, 0);
    p.a = on.gpu[A];
    p.b = on.gpu[B];
    p.c = on.gpu[C];
    for (p.m = 1; p.m <= 600; p.m++)
        ck_assert_int_eq(cuda_matmul(on.plans, on.stream, on.workspace, &p), CUBLAS_STATUS_SUCCESS);
    int before = fake_cublas_asked();
    ck_assert_int_le(fake_cublas_alive(), 1 + 4 * 512);
    p.m = 600;
    expect_product(p, 0, 1e-6);
    ck_assert_int_eq(fake_cublas_asked(), before);
    p.m = 1;
    expect_product(p, 0, 1e-6);
    ck_assert_int_eq(fake_cublas_asked(), before + 1);
    ck_assert_int_eq(end(), 0);
}
END_TEST

/* ------------------------------------------------------------------- misuse */

enum misuse {
    NOTHING,
    SHORT_ROWS,   /* lda below the columns */
    OUTSIDE,      /* a matrix beyond its allocation */
    BEYOND_BIAS,  /* a bias that ends early */
    SMALL_ROOM,   /* a workspace outside of its allocation */
    CROOKED_ROOM, /* one that is not aligned */
    OVERLAP,      /* c is b */
    FREED,        /* a was given back */
    MISUSES,
};

START_TEST(misuse_is_reported)
{
    struct product p = {.dtype = ZERO_FP32,
                        .m = 8,
                        .n = 8,
                        .k = 8,
                        .lda = 8,
                        .ldb = 8,
                        .type = ZERO_FP32,
                        .ldc = 8};
    static const enum fake_cuda_report reports[MISUSES] = {
        [SHORT_ROWS] = FAKE_CUDA_PRODUCT,   [OUTSIDE] = FAKE_CUDA_OUTSIDE,
        [BEYOND_BIAS] = FAKE_CUDA_OUTSIDE,  [SMALL_ROOM] = FAKE_CUDA_OUTSIDE,
        [CROOKED_ROOM] = FAKE_CUDA_PRODUCT, [OVERLAP] = FAKE_CUDA_PRODUCT,
        [FREED] = FAKE_CUDA_FREED,
    };
    begin(false);
    char *room = on.workspace;
    p.a = on.gpu[A];
    p.b = on.gpu[B];
    p.c = on.gpu[C];
    p.lda = _i == SHORT_ROWS ? 7 : 8;
    p.a = on.gpu[A] + (_i == OUTSIDE ? 4 * ROOM - 252 : 0);
    p.bias = _i == BEYOND_BIAS ? on.gpu[BIAS] + 4 * ROOM - 16 : NULL;
    p.c = _i == OVERLAP ? on.gpu[B] : on.gpu[C];
    room += _i == SMALL_ROOM ? WORKSPACE / 2 : _i == CROOKED_ROOM ? 64 : 0;
    if (_i == FREED) {
        void *spare;
        ck_assert_int_eq(cudaMalloc(&spare, 4096), cudaSuccess);
        ck_assert_int_eq(cudaFree(spare), cudaSuccess);
        p.a = spare;
    }
    cublasStatus_t status = cuda_matmul(on.plans, on.stream, room, &p);
    ck_assert_int_eq(status == CUBLAS_STATUS_SUCCESS, _i == NOTHING);
    int reported = _i == NOTHING ? 0 : fake_cuda_reported(reports[_i]);
    ck_assert_int_eq(reported, _i != NOTHING);
    ck_assert_int_eq(end(), reported);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_matmul");
    TCase *t = tcase_create("products");
    tcase_add_loop_test(t, products, 0, 3);
    tcase_add_test(t, asked_once);
    tcase_add_test(t, many_shapes);
    tcase_add_loop_test(t, misuse_is_reported, 0, MISUSES);
    suite_add_tcase(suite, t);
    return suite_run_all(suite);
}
