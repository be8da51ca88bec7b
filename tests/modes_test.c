// SPDX-License-Identifier: Apache-2.0
/* The floating-point modes of the program: neither those of its own threads nor those that its
 * functions leave behind in the engine's change a bit. */
#include <check.h>
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "include/zero.h"
#include "src/comm/comm.h"
#include "tests/support/suite.h"

static const struct zero_adam adam = {.lr = 0.05, .beta1 = .9, .beta2 = .95, .eps = 1e-8};

static int flushing_fill(void *normal, int64_t first, int64_t count, float *out)
{
    int rc = zero_fill_normal(normal, first, count, out);
    suite_flush_denormals();
    return rc;
}

static void flushing_trace(void *arg, const struct zero_span *span)
{
    (void)arg;
    (void)span;
    suite_flush_denormals();
}

static const struct zero_comm_ops *own_ops;

static int flushing_start(struct zero_comm *comm, struct zero_collective *c)
{
    suite_flush_denormals();
    return own_ops->start(comm, c);
}

/* Over this rank alone, by a communicator like a program's. */
static struct zero_comm *flushing_comm(void)
{
    static struct zero_comm_ops ops;
    struct zero_comm *comm = NULL;
    struct error error = {0};
    ck_assert_int_eq(comm_self_create(&comm, &error), ZERO_OK);
    own_ops = comm->ops;
    ops = *own_ops;
    ops.start = flushing_start;
    comm->ops = &ops;
    return comm;
}

/* What is refused, or small, is so in any modes. */
static void adam_in_any_modes(struct zero *z)
{
    static const double wild[] = {NAN, INFINITY, 1e300};
    for (int i = 0; i < 6; i++) {
        struct zero_adam a = adam;
        *(i % 2 ? &a.beta1 : &a.lr) = wild[i / 2];
        ck_assert_int_eq(zero_set_adam(z, 0, &a), ZERO_ERR_ARGUMENT);
    }
    struct zero_adam small = adam;
    small.eps = 1e-40;
    ck_assert_int_eq(zero_set_adam(z, 0, &small), ZERO_OK);
}

/* Two micro-steps of gradients that are denormal, or whose squares are; then of infinite ones,
 * whose sum is no number. */
static struct zero_digest tiny_steps(zero_fill_fn *fill, zero_trace_fn *trace,
                                     enum zero_accumulate in, struct zero_comm *comm)
{
    enum { ELEMENTS = 3000 };
    struct zero_normal normal = {.std = 1};
    struct zero_param param = {
        .name = "w", .ndim = 1, .shape = {ELEMENTS}, .fill = fill, .fill_arg = &normal};
    struct zero_step_info info;
    struct zero_digest digest;
    struct zero *z;
    ck_assert_int_eq(zero_init(&z, &param, 1, .threads = 1, .accumulate = 2, .trace = trace,
                               .accumulate_in = in, .comm = comm),
                     0);
    adam_in_any_modes(z);
    for (int micro = 0; micro < 4; micro++) {
        float *g = zero_grad_data(z, 0);
        for (int i = 0; i < ELEMENTS; i++)
            g[i] = micro > 1 ? (micro > 2 ? -INFINITY : INFINITY) : i % 2 ? 1e-20f : 1e-40f;
        ck_assert_int_eq(zero_reduce(z, 0), 0);
        if (micro % 2) {
            ck_assert_int_eq(zero_step(z, &info), 0);
            ck_assert_int_eq(info.skipped, micro > 1);
        }
    }
    ck_assert_int_eq(zero_digest(z, &digest), 0);
    zero_destroy(z);
    return digest;
}

/* Bits of a gradient that is read, and is denormal. */
static uint32_t tiny_gradient(void)
{
    struct zero_param param = {.name = "w", .ndim = 1, .shape = {64}};
    uint32_t bits[64];
    struct zero *z;
    ck_assert_int_eq(zero_init(&z, &param, 1, .threads = 1), 0);
    adam_in_any_modes(z);
    uint32_t *g = zero_grad_data(z, 0);
    g[3] = 77;
    ck_assert_int_eq(zero_reduce(z, 0), 0);
    ck_assert_int_eq(zero_step(z, NULL), 0);
    ck_assert_int_eq(zero_read(z, 0, ZERO_GRAD, 0, 64, (float *)(void *)bits), 0);
    zero_destroy(z);
    return bits[3];
}

#define TRAPS (FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW)

/* What is no number is refused; comparing it would raise a trap. */
static void refuse_nan(void)
{
    struct zero_param param = {.name = "w", .ndim = 1, .shape = {64}};
    struct zero_progress progress;
    struct zero *z;
    const uint32_t signals = 0x7FA00000;
    float nan[2] = {NAN};
    memcpy(&nan[1], &signals, sizeof(signals));
    ck_assert_int_eq(zero_init(&z, &param, 1, .loss_scale = NAN), ZERO_ERR_ARGUMENT);
    zero_destroy(z);
    ck_assert_int_eq(zero_init(&z, &param, 1, .threads = 1, .dtype = ZERO_FP16), 0);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(zero_write(z, 0, ZERO_MASTER, 3, 1, nan + i), ZERO_ERR_ARGUMENT);
    ck_assert_int_eq(zero_progress(z, &progress), 0);
    progress.loss_scale = NAN;
    ck_assert_int_eq(zero_set_progress(z, &progress), ZERO_ERR_ARGUMENT);
    zero_destroy(z);
}

/* What functions of the program leave behind in the engine's threads changes no bit, and traps
 * that it has set for its own threads do not end it in ours. */
START_TEST(modes_of_the_program)
{
    for (enum zero_accumulate in = ZERO_SHARD; in <= ZERO_LOCAL; in++) {
        struct zero_digest plain = tiny_steps(zero_fill_normal, NULL, in, NULL);
        struct zero_digest filled = tiny_steps(flushing_fill, NULL, in, NULL);
        struct zero_digest traced = tiny_steps(zero_fill_normal, flushing_trace, in, NULL);
        struct zero_comm *comm = flushing_comm();
        struct zero_digest told = tiny_steps(zero_fill_normal, NULL, in, comm);
        comm->ops->destroy(comm);
        ck_assert_mem_eq(&filled, &plain, sizeof(plain));
        ck_assert_mem_eq(&traced, &plain, sizeof(plain));
        ck_assert_mem_eq(&told, &plain, sizeof(plain));
#ifdef __GLIBC__
        feenableexcept(TRAPS);
        struct zero_digest trapped = tiny_steps(zero_fill_normal, NULL, in, NULL);
        refuse_nan();
        ck_assert_int_eq(fegetexcept(), TRAPS);
        fedisableexcept(FE_ALL_EXCEPT);
        ck_assert_mem_eq(&trapped, &plain, sizeof(plain));
#endif
        fenv_t modes;
        fegetenv(&modes);
        suite_flush_denormals();
        struct zero_digest flushed = tiny_steps(zero_fill_normal, NULL, in, NULL);
        ck_assert_uint_eq(tiny_gradient(), 77);
        fesetenv(&modes);
        ck_assert_mem_eq(&flushed, &plain, sizeof(plain));
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("modes");
    TCase *c = tcase_create("of the program");
    tcase_add_test(c, modes_of_the_program);
    suite_add_tcase(s, c);
    return suite_run_all(s);
}
