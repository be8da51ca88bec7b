// SPDX-License-Identifier: Apache-2.0
/*
 * The order in which an update's chunks are read and written: that slots are used as they can
 * be, and that nobody waits for what could have come later. Dry: no data, no threads.
 */
#include <check.h>

#include "tests/support/dry.h"
#include "tests/support/dry_model.h"
#include "tests/support/suite.h"

/* As many transfers are under way as there are slots, wherever the records rest: in backward
 * reads into all of them, then at least through a window of four for each folder, or an eighth. */
START_TEST(all_slots_are_used)
{
    const int slots[] = {4, 4, 3, 12, 40, 12}, window[] = {4, 4, 3, 4, 5, 8};
    struct model m;
    struct dry d;
    struct zero_config c = {.size = sizeof(c),
                            .stage = 3,
                            .dtype = ZERO_BF16,
                            .state = ZERO_STATE_SPLIT,
                            .offload = ZERO_NVME,
                            .offload_optimizer = _i ? ZERO_NVME : ZERO_HOST,
                            .nvme_path = _i == 5 ? "/a:/b" : NULL,
                            .chunk = 64,
                            .chunk_slots = slots[_i]};
    equal_units(&m, 3, 1280);
    ck_assert(!dry_create(&d, m.params, m.tensors, &c, 1, 0, 1));
    d.eager = 100;
    d.limit = 100;
    d.drift = 0;
    for (int u = 0; u < 3; u++)
        ck_assert(dry_reduce(&d, u));
    dry_step(&d, false);
    dry_finish(&d);
    ck_assert_msg(!d.fault[0], "%s", d.fault);
    ck_assert_int_eq(d.most[COMMAND_PARAM_FETCH], window[_i]);
    ck_assert_int_eq(d.most[COMMAND_STATE_READ], _i ? slots[_i] : 0);
    ck_assert_int_ge(d.most[COMMAND_STATE_WRITE], _i ? window[_i] : 0);
    dry_destroy(&d);
}
END_TEST

struct order {
    const struct plan *plan;
    int64_t read; /* the last chunk */
    int written;  /* parameters of chunks in memory, */
    int early;    /* ahead of the record of the next chunk in the file */
};

static void note_order(void *arg, const struct command *c)
{
    struct order *order = arg;
    const struct plan *p = order->plan;
    if (c->kind == COMMAND_STATE_READ)
        order->read = c->chunk;
    if (c->kind != COMMAND_PARAM_WRITE || !plan_chunk_near(p, c->chunk))
        return;
    order->written++;
    for (int64_t next = c->chunk; next < p->live; next++)
        if (!plan_chunk_near(p, next)) {
            order->early += order->read < next;
            break;
        }
}

/* Records are on their way while what is in memory is updated, also where its parameters are
 * written behind them: a queue starts in order. */
START_TEST(reads_are_not_behind_updates_in_memory)
{
    struct model m;
    struct dry d;
    struct zero_config c = {.size = sizeof(c),
                            .stage = 3,
                            .dtype = ZERO_BF16,
                            .state = _i ? ZERO_STATE_SPLIT : ZERO_STATE_FP32,
                            .offload = ZERO_NVME,
                            .host_bytes = 1280 * 12,
                            .chunk = 64,
                            .chunk_slots = 6};
    equal_units(&m, 3, 1280);
    ck_assert(!dry_create(&d, m.params, m.tensors, &c, 1, 0, 1));
    struct order order = {.plan = &d.plan};
    queues_observe(d.queues, note_order, &order);
    schedule_walk(&d.schedule, WALK_ADAM, 0, d.plan.live);
    ck_assert_int_ge(order.written, 20);
    ck_assert_int_lt(order.written, d.plan.live - 20);
    ck_assert_int_eq(order.early, 0);
    dry_destroy(&d);
}
END_TEST

struct late {
    int64_t reads, writes; /* of records so far */
    int64_t behind;        /* writes when the last read was asked for */
};

static void note_late(void *arg, const struct command *c)
{
    struct late *late = arg;
    late->writes += c->kind == COMMAND_STATE_WRITE;
    if (c->kind != COMMAND_STATE_READ)
        return;
    late->reads++;
    late->behind = late->writes;
}

/* A slot that nobody waits for is written behind all reads of the update, which the next forward
 * waits for: behind that forward, until the next backward reads. Where others
 * wait for parameters that are in the record it is not. */
START_TEST(what_can_wait_is_written_last)
{
    struct model m;
    struct dry d;
    struct zero_config c = {.size = sizeof(c),
                            .stage = 3,
                            .dtype = _i ? ZERO_FP32 : ZERO_BF16,
                            .offload = ZERO_NVME,
                            .chunk = 64,
                            .chunk_slots = 12};
    equal_units(&m, 3, 1280);
    ck_assert(!dry_create(&d, m.params, m.tensors, &c, 1, 0, 1));
    struct late late = {0};
    queues_observe(d.queues, note_late, &late);
    schedule_walk(&d.schedule, WALK_ADAM, 0, d.plan.live);
    ck_assert_int_eq(d.plan.chunk_window, 4);
    ck_assert_int_eq(late.reads, d.plan.live);
    ck_assert_int_eq(late.writes, d.plan.live);
    /* Before the last batch of four is read, all but the eight slots that can wait and the
     * batch itself. */
    ck_assert_int_eq(late.behind, d.plan.live - 4 - (_i ? 0 : 8));
    dry_destroy(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("walk");
    TCase *c = tcase_create("order");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, all_slots_are_used, 0, 6);
    tcase_add_loop_test(c, reads_are_not_behind_updates_in_memory, 0, 2);
    tcase_add_loop_test(c, what_can_wait_is_written_last, 0, 2);
    suite_add_tcase(s, c);
    return suite_run_all(s);
}
