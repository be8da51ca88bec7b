// SPDX-License-Identifier: Apache-2.0
/*
 * What goes wrong with a real GPU and can be provoked on any: no memory left, a kernel of
 * the program that writes where nothing is, no GPU at all. The call that meets it has a
 * status and a sentence, destroy ends, and nothing stays behind that the next engine would
 * miss. On fake GPUs the same; tests/cuda_fault_test.c has what only fakes can do.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/launch.h"
#include "tests/support/equal.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/gpus.h"
#include "tests/support/suite.h"
#include "tests/support/toy_cuda.h"

#define LEFT ((size_t)64 << 10) /* of a GPU that is full: less than the toy needs */

static struct fault fault = {.kind = FAULT_CUDA_LOST};

static void begin(int fakes)
{
    const struct fake_cuda_options options = {.gpus = fakes, .bytes = 1 << 24, .fault = &fault};
    int count = gpus_begin(&options);
    toy_cuda_start(1, true);
    if (!fakes)
        return;
    ck_assert_int_gt(count, 0);
    ck_assert_int_eq(cudaSetDevice(0), cudaSuccess);
}

/* What a lost GPU takes with it is not looked at. */
static void end(void)
{
    (void)gpus_end();
}

static int create(struct zero **z)
{
    const struct zero_config config = {
        .size = sizeof(config), .device = ZERO_CUDA, .stage = 0, .dtype = ZERO_BF16};
    struct engine_seams seams = {.device = toy_apart->device};
    struct zero_param params[TOY_TENSORS];
    toy_describe(params);
    return engine_create(z, params, TOY_TENSORS, &config, &seams);
}

static void expect_sentence(const struct zero *z, const char *says)
{
    const char *text = zero_last_error(z);
    size_t length = strlen(text);
    printf("%s\n", text);
    ck_assert_msg(strstr(text, says) && length > 20 && text[length - 1] == '.', "'%s', not '%s'",
                  text, says);
}

/* A run on the GPU ends as one on the CPU. */
static void expect_well(void)
{
    struct toy one = equal_simplest(ZERO_BF16, 2), t = one;
    ck_assert_msg(!toy_run(&one), "%s", one.error.text);
    t.config.device = ZERO_CUDA;
    t.config.stage = 3;
    equal_expect(&t, &one);
}

/* Takes what there is, in ever smaller pieces. */
static int fill_up(void *taken[], int most)
{
    size_t available = 0, total = 0, piece;
    int count = 0;
    ck_assert_int_eq(cudaMemGetInfo(&available, &total), cudaSuccess);
    for (piece = available; piece >= LEFT && count < most;)
        if (cudaMalloc(&taken[count], piece) == cudaSuccess)
            count++;
        else
            piece /= 2;
    (void)cudaGetLastError();
    ck_assert_uint_lt(piece, LEFT);
    return count;
}

/* A full GPU's driver may have another code than that memory is short, for what it cannot make:
 * the sentence names it. */
static bool not_made(const struct zero *z)
{
    const char *const making[] = {"make a stream", "make an event", "allocate registered memory",
                                  "run a kernel", "load its kernels"};
    char text[64];
    for (size_t i = 0; i < sizeof(making) / sizeof(*making); i++) {
        snprintf(text, sizeof(text), " failed to %s: ", making[i]);
        if (strstr(zero_last_error(z), text))
            return true;
    }
    return false;
}

START_TEST(no_memory)
{
    void *taken[200];
    struct zero *z;
    begin(1);
    expect_well(); /* the runtime itself has what it needs */
    ck_assert_int_eq(cudaSetDevice(0), cudaSuccess);
    int count = fill_up(taken, 200);
    int status = create(&z);
    /* What rests there, or already a stream, a kernel, or what registered memory takes of it. */
    const char *text = zero_last_error(z);
    bool early = strstr(text, " has too little memory to ") ||
                 strstr(text, " bytes of host memory that the driver registers ") || not_made(z);
    expect_sentence(z, early ? "GPU 0" : " bytes of GPU memory are needed, ");
    ck_assert_int_eq(status, not_made(z) ? ZERO_ERR_DEVICE : ZERO_ERR_MEMORY);
    zero_destroy(z);
    for (int i = 0; i < count; i++)
        ck_assert_int_eq(cudaFree(taken[i]), cudaSuccess);
    expect_well();
    end();
}
END_TEST

/* A kernel that reads and writes where nothing is; a fake loses its GPU. */
static void go_wrong(struct zero *z)
{
    uintptr_t nowhere = (uintptr_t)1 << 44;
    if (gpus_fake())
        fault.nth = atomic_load(&fault.seen) + 1;
    (void)launch_from_bf16(zero_stream(z), 1 << 20, (const uint16_t *)nowhere,
                           (float *)(nowhere << 1));
}

START_TEST(a_kernel_of_the_program)
{
    struct zero *z, *another;
    double loss = 0;
    int status = ZERO_OK;
    begin(1);
    toy_apart->begin(0);
    ck_assert_int_eq(create(&z), ZERO_OK);
    const struct zero_adam adam = {.lr = 1e-3, .beta1 = .9, .beta2 = .9, .eps = 1e-8};
    for (int g = 0; g < 2; g++)
        ck_assert_int_eq(zero_set_adam(z, g, &adam), ZERO_OK);
    go_wrong(z);
    for (int i = 0; i < 3 && !status; i++) {
        status = toy_micro_step(z, i, false, &loss);
        if (!status)
            status = zero_step(z, NULL);
    }
    ck_assert_msg(status == ZERO_ERR_DEVICE, "%s: %s", zero_status_name(status),
                  zero_last_error(z));
    expect_sentence(z, "failed to ");
    ck_assert_int_eq(zero_step(z, NULL), ZERO_ERR_DEVICE);
    zero_destroy(z);
    ck_assert_int_ne(create(&another), ZERO_OK); /* its process has no GPU any more */
    expect_sentence(another, "GPU");
    zero_destroy(another);
    end();
}
END_TEST

START_TEST(no_gpu)
{
    struct zero *z;
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    begin(0);
    ck_assert_int_eq(create(&z), ZERO_ERR_UNSUPPORTED);
    expect_sentence(z, "No GPU can be used: ");
    zero_destroy(z);
    end();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("faults of GPUs");
    TCase *tests = tcase_create("faults");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, no_memory);
    tcase_add_test(tests, a_kernel_of_the_program);
    tcase_add_test(tests, no_gpu);
    suite_add_tcase(suite, tests);
    return suite_run_all(suite);
}
