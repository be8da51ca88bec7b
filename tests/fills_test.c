// SPDX-License-Identifier: Apache-2.0
/*
 * Initial values: the ready-made fills write the same on one thread and on four,
 * and the same as where the program's own functions write them; so is the
 * sentence about the first value that is wrong. A function of the program's own is
 * called by one thread at a time, in order.
 */
#include <check.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "include/zero.h"
#include "tests/support/latch.h"
#include "tests/support/ranks.h"
#include "tests/support/suite.h"

enum {
    TENSORS = 6,
    FIRST = 0,
    ONES = 1,
    ZEROS = 2,
    WIDE = 3,
    LAST = 4,
    SIZE = 150001,
    RANKS_MAX = 3
};

/* A model, and what the program's own functions have seen of their calls. */
struct model {
    struct zero_normal normal[TENSORS];
    float one;
    struct zero_param params[TENSORS];
    char names[TENSORS][2];
    int inside;   /* calls under way: atomic */
    int together; /* calls that found another one under way */
    int unordered;
    int tensor; /* of the last call */
    int64_t next;
    int64_t own; /* elements */
};

/* A tensor's fill, by a function of the program's own. */
struct own {
    struct model *model;
    int tensor;
};

static int fill_own(void *arg, int64_t first, int64_t count, float *out)
{
    struct own *own = arg;
    struct model *m = own->model;
    if (__atomic_fetch_add(&m->inside, 1, __ATOMIC_SEQ_CST) != 0)
        __atomic_fetch_add(&m->together, 1, __ATOMIC_SEQ_CST);
    m->unordered += own->tensor == m->tensor ? first != m->next : first != 0;
    m->unordered += own->tensor < m->tensor;
    m->tensor = own->tensor;
    m->next = first + count;
    m->own += count;
    sched_yield();
    int rc = own->tensor == ONES ? zero_fill_constant(&m->one, first, count, out)
                                 : zero_fill_normal(&m->normal[own->tensor], first, count, out);
    __atomic_fetch_sub(&m->inside, 1, __ATOMIC_SEQ_CST);
    return rc;
}

/* Several tensors to a chunk and several chunks to a tensor. */
static void describe(struct model *m)
{
    *m = (struct model){.one = 1};
    for (int i = 0; i < TENSORS; i++) {
        snprintf(m->names[i], sizeof(m->names[i]), "%c", 'a' + i);
        m->normal[i] = (struct zero_normal){.seed = 1, .stream = (uint64_t)i, .std = 0.02f};
        m->params[i] = (struct zero_param){.name = m->names[i],
                                           .unit = i / 3,
                                           .ndim = 1,
                                           .shape = {SIZE - 21111 * i},
                                           .fill = zero_fill_normal,
                                           .fill_arg = &m->normal[i]};
    }
    m->params[ONES].fill = zero_fill_constant;
    m->params[ONES].fill_arg = &m->one;
    m->params[ZEROS].fill = NULL;
    m->params[WIDE].flags = ZERO_FROZEN;
}

static struct zero *make(const struct model *m, struct zero_config config, int threads)
{
    struct zero *z;
    config.size = sizeof(config);
    config.chunk = 1 << 17;
    config.threads = threads;
    config.log_level = ZERO_LOG_SILENT;
    (void)zero_create(&z, m->params, TENSORS, &config);
    return z;
}

static struct zero_digest digest(const struct model *m, struct zero_config config, int threads)
{
    struct zero_digest d;
    struct zero *z = make(m, config, threads);
    ck_assert_msg(!zero_digest(z, &d), "%s", zero_last_error(z));
    zero_destroy(z);
    return d;
}

/* Every tensor that has a fill gets one of the program's own that writes the same. */
static void make_own(struct model *m, struct own own[TENSORS])
{
    for (int i = 0; i < TENSORS; i++) {
        own[i] = (struct own){m, i};
        if (!m->params[i].fill)
            continue;
        m->params[i].fill = fill_own;
        m->params[i].fill_arg = &own[i];
    }
}

START_TEST(same_values)
{
    const enum zero_dtype dtypes[] = {ZERO_FP32, ZERO_BF16, ZERO_FP16};
    struct zero_config config = {.dtype = dtypes[_i / 3],
                                 .offload = (enum zero_place)(ZERO_DEVICE + _i % 3)};
    struct model m;
    struct own own[TENSORS];
    describe(&m);
    struct zero_digest one = digest(&m, config, 1), four = digest(&m, config, 4);
    make_own(&m, own);
    struct zero_digest by_program = digest(&m, config, 4);
    ck_assert(!memcmp(&one, &four, sizeof(one)));
    ck_assert(!memcmp(&one, &by_program, sizeof(one)));
}
END_TEST

/* With a tensor of the program's own among others, and with nothing else. */
START_TEST(own_functions_in_order)
{
    struct zero_config config = {.offload = (enum zero_place)(ZERO_DEVICE + _i % 3)};
    struct model m;
    struct own own[TENSORS];
    int64_t expected = 0;
    describe(&m);
    m.params[WIDE].flags = 0; /* else its elements stand behind all others' */
    if (_i / 3) {
        make_own(&m, own);
    } else {
        own[LAST] = (struct own){&m, LAST};
        m.params[LAST].fill = fill_own;
        m.params[LAST].fill_arg = &own[LAST];
    }
    zero_destroy(make(&m, config, 4));
    for (int i = 0; i < TENSORS; i++)
        expected += m.params[i].fill == fill_own ? m.params[i].shape[0] : 0;
    ck_assert_int_eq(m.own, expected);
    ck_assert_int_eq(m.together, 0);
    ck_assert_int_eq(m.unordered, 0);
}
END_TEST

/* Elements that a rank's fills were asked for, where nobody else has them. */
struct sharded {
    enum zero_place place;
    int64_t own[RANKS_MAX], whole;
};

static void fill_sharded(int rank, struct zero_comm *comm, void *arg)
{
    struct sharded *all = arg;
    struct model m;
    struct own own[TENSORS];
    describe(&m);
    m.params[WIDE].flags = 0;
    make_own(&m, own);
    zero_destroy(
        make(&m, (struct zero_config){.stage = 3, .offload = all->place, .comm = comm}, 2));
    all->own[rank] = m.own;
    for (int i = 0; i < TENSORS && rank == 0; i++)
        all->whole += m.params[i].fill == fill_own ? m.params[i].shape[0] : 0;
}

/* No rank fills what another one has. */
START_TEST(each_rank_its_own)
{
    for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
        struct sharded all = {.place = (enum zero_place)(ZERO_DEVICE + _i)};
        int64_t sum = 0;
        ranks_run(ranks, fill_sharded, &all);
        for (int r = 0; r < ranks; r++) {
            ck_assert_int_ge(all.own[r], all.whole / ranks / 2);
            sum += all.own[r];
        }
        ck_assert_int_eq(sum, all.whole);
    }
}
END_TEST

/* One rank's fill fails at once, the other's counts. */
struct uneven {
    int64_t filled[2];
    int status[2];
    bool told[2];
};

struct uneven_fill {
    struct uneven *all;
    int rank;
};

static int fill_uneven(void *arg, int64_t first, int64_t count, float *out)
{
    struct uneven_fill *fill = arg;
    (void)first, (void)out;
    fill->all->filled[fill->rank] += count;
    return fill->rank == 0;
}

enum { UNEVEN_CHUNKS = 3 * 2048, UNEVEN_CHUNK = 64 };

static void create_uneven(int rank, struct zero_comm *comm, void *arg)
{
    struct uneven *all = arg;
    struct uneven_fill fill = {all, rank};
    const struct zero_param p = {.name = "a",
                                 .ndim = 1,
                                 .shape = {2 * UNEVEN_CHUNKS * UNEVEN_CHUNK},
                                 .fill = fill_uneven,
                                 .fill_arg = &fill};
    struct zero *z;
    all->status[rank] = zero_init(&z, &p, 1, .stage = 3, .chunk = UNEVEN_CHUNK, .comm = comm);
    all->told[rank] = strstr(zero_last_error(z), "The fill of tensor a returned 1") != NULL;
    zero_destroy(z);
}

/* All ranks hear of a fill that has failed before a model that is large is filled. */
START_TEST(ranks_meet_while_they_fill)
{
    struct uneven all = {0};
    ranks_run(2, create_uneven, &all);
    for (int r = 0; r < 2; r++)
        ck_assert(all.status[r] == ZERO_ERR_ARGUMENT && all.told[r]);
    ck_assert_int_eq(all.filled[1], UNEVEN_CHUNKS * UNEVEN_CHUNK / 3);
}
END_TEST

/* The first element of a tensor that a dtype cannot hold. */
static int64_t first_wrong(struct model *m, int tensor, float limit)
{
    for (int64_t i = 0; i < m->params[tensor].shape[0]; i++) {
        float x;
        ck_assert(!zero_fill_normal(&m->normal[tensor], i, 1, &x));
        if (!(fabsf(x) < limit))
            return i;
    }
    return -1;
}

/* Where several tasks come to wrong values (with 15000 at elements 64684 and 95794), the first
 * is named, on any number of threads. */
START_TEST(first_error)
{
    const float stds[] = {INFINITY, 15000};
    struct zero_config config = {.dtype = ZERO_FP16,
                                 .offload = (enum zero_place)(ZERO_DEVICE + _i % 3)};
    struct model m;
    char text[128];
    describe(&m);
    m.normal[FIRST].std = m.normal[LAST].std = stds[_i / 3];
    int64_t at = first_wrong(&m, FIRST, 65520);
    ck_assert(_i / 3 ? at > 0 : at == 0);
    snprintf(text, sizeof(text), "to element %lld. ", (long long)at);
    for (int round = 0; round < 8; round++) {
        struct zero *z = make(&m, config, round % 4 + 1);
        ck_assert_int_eq(zero_step(z, NULL), ZERO_ERR_ARGUMENT);
        ck_assert_msg(strstr(zero_last_error(z), "tensor a wrote") &&
                          strstr(zero_last_error(z), text),
                      "'%s' does not say '%s'", zero_last_error(z), text);
        zero_destroy(z);
    }
}
END_TEST

/* A fill that is not called with what it needs, which is seen before any value. */
START_TEST(without_argument)
{
    struct model m;
    char first[512];
    describe(&m);
    m.params[LAST].fill_arg = NULL;
    for (int threads = 1; threads <= 4; threads += 3) {
        struct zero *z =
            make(&m, (struct zero_config){.offload = (enum zero_place)(ZERO_DEVICE + _i)}, threads);
        ck_assert_ptr_nonnull(strstr(zero_last_error(z), "The fill of tensor e returned"));
        if (threads == 1)
            snprintf(first, sizeof(first), "%s", zero_last_error(z));
        ck_assert_str_eq(zero_last_error(z), first);
        zero_destroy(z);
    }
}
END_TEST

static bool counts_writes(void *arg, const struct latch_op *op)
{
    if (op->kind == LATCH_RING && op->request->write)
        atomic_fetch_add((atomic_int *)arg, 1);
    return false;
}

/* However large the model is: it is refused without its files being written. */
START_TEST(nothing_is_written_behind_an_error)
{
    const struct zero_param p = {
        .name = "a", .ndim = 1, .shape = {1 << 14}, .fill = zero_fill_normal};
    const struct zero_config config = {
        .size = sizeof(config), .offload = ZERO_NVME, .chunk = 1 << 10, .threads = 1 + _i};
    atomic_int writes = 0;
    struct latch latch = {.withheld = counts_writes, .arg = &writes};
    struct zero *z;
    ck_assert_int_eq(engine_create(&z, &p, 1, &config, latch_seams(&latch)), ZERO_ERR_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(zero_last_error(z), "The fill of tensor a returned"));
    ck_assert_int_eq(atomic_load(&writes), 0);
    zero_destroy(z);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fills");
    TCase *c = tcase_create("fills");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, same_values, 0, 9);
    tcase_add_loop_test(c, own_functions_in_order, 0, 6);
    tcase_add_loop_test(c, each_rank_its_own, 0, 3);
    tcase_add_test(c, ranks_meet_while_they_fill);
    tcase_add_loop_test(c, first_error, 0, 6);
    tcase_add_loop_test(c, without_argument, 0, 3);
    tcase_add_loop_test(c, nothing_is_written_behind_an_error, 0, 2);
    suite_add_tcase(s, c);
    return suite_run_all(s);
}
