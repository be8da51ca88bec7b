// SPDX-License-Identifier: Apache-2.0
/*
 * What rings share, without system calls: how linear offsets become places in
 * files, and how requests become blocks and made-up results become finished
 * requests. tests/ring_test.c has the rings themselves.
 */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "offload/ring_core.h"
#include "offload/spill.h"
#include "offload/stripes.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

#define MIB ((int64_t)1 << 20)

static uint64_t pick_state;

static int64_t pick(int64_t below)
{
    return (int64_t)(random_bits(7, 7, pick_state++) % (uint64_t)below);
}

/* ------------------------------------------------------------- the stripes */

static const struct {
    int files;
    double weight[STRIPES_FILES];
    int share[STRIPES_FILES];
} deals[] = {
    {1, {0}, {64}},
    {2, {1, 1}, {32, 32}},
    {2, {3.1e9, 0}, {32, 32}}, /* one is not known: equal */
    {2, {3e9, 1e9}, {48, 16}},
    {2, {1e12, 1}, {63, 1}},
    {3, {1, 1, 1}, {22, 21, 21}},
    {3, {5, 1, 2}, {40, 8, 16}},
    {8, {1, 1, 1, 1, 1, 1, 1, 57}, {1, 1, 1, 1, 1, 1, 1, 57}},
};
#define DEALS ((int)(sizeof(deals) / sizeof(deals[0])))

START_TEST(shares_follow_weights)
{
    struct stripes s;
    stripes_deal(&s, deals[_i].files, deals[_i].weight, MIB);
    int count[STRIPES_FILES] = {0};
    for (int k = 0; k < STRIPES_PERIOD; k++) {
        ck_assert_int_lt(s.file[k], s.files);
        ck_assert_int_eq(s.turn[k], count[s.file[k]]++);
    }
    for (int i = 0; i < s.files; i++) {
        ck_assert_int_eq(s.share[i], deals[_i].share[i]);
        ck_assert_int_eq(count[i], s.share[i]);
    }
    /* Evenly: after k stripes no file is a stripe ahead of its share. */
    memset(count, 0, sizeof(count));
    for (int k = 0; k < STRIPES_PERIOD; k++) {
        count[s.file[k]]++;
        for (int i = 0; i < s.files; i++)
            ck_assert_int_lt(STRIPES_PERIOD * count[i], (k + 1) * s.share[i] + STRIPES_PERIOD);
    }
}
END_TEST

/* Linear units of a page and places in files are one to one, for every length:
 * places fill each file from its start to its length. */
START_TEST(places_are_a_bijection)
{
    enum { PAGES = 3 * STRIPES_PERIOD * 3 + 100 };
    const int64_t page = SPILL_ALIGN, stripe = 3 * page;
    static bool taken[STRIPES_FILES][PAGES];
    struct stripes s;
    stripes_deal(&s, deals[_i].files, deals[_i].weight, stripe);
    int64_t pages[STRIPES_FILES] = {0};
    memset(taken, 0, sizeof(taken));
    for (int64_t n = 0; n < PAGES; n++) {
        struct stripes_place place = stripes_find(&s, n * page);
        ck_assert_int_lt(place.file, s.files);
        ck_assert_int_eq(place.offset % page, 0);
        ck_assert_int_lt(place.offset / page, PAGES);
        ck_assert(!taken[place.file][place.offset / page]);
        taken[place.file][place.offset / page] = true;
        pages[place.file]++;
        if (s.files > 1)
            ck_assert_int_eq(place.bytes, stripe - n * page % stripe);
        else
            ck_assert(place.offset == n * page && place.bytes > (int64_t)1 << 60);
        for (int i = 0; i < s.files; i++)
            ck_assert_int_eq(stripes_file_bytes(&s, i, (n + 1) * page), pages[i] * page);
    }
    for (int i = 0; i < s.files; i++)
        for (int64_t p = 0; p < pages[i]; p++)
            ck_assert(taken[i][p]);
    /* A byte within a page lies where its page does. */
    struct stripes_place a = stripes_find(&s, 7 * page), b = stripes_find(&s, 7 * page + 5);
    ck_assert(a.file == b.file && a.offset + 5 == b.offset && a.bytes == b.bytes + 5);
}
END_TEST

/* Petabytes do not overflow. */
START_TEST(places_far_out)
{
    const double weight[] = {1, 2, 4};
    const int64_t far = (int64_t)1 << 52;
    struct stripes s;
    stripes_deal(&s, 3, weight, MIB);
    int64_t sum = 0;
    for (int i = 0; i < 3; i++)
        sum += stripes_file_bytes(&s, i, far + SPILL_ALIGN);
    ck_assert_int_eq(sum, far + SPILL_ALIGN);
    struct stripes_place place = stripes_find(&s, far);
    ck_assert_int_eq(place.offset + SPILL_ALIGN,
                     stripes_file_bytes(&s, place.file, far + SPILL_ALIGN));
}
END_TEST

/* ---------------------------------------------------------------- the core */

static char *const nowhere = (char *)(uintptr_t)SPILL_ALIGN; /* never touched */

static const struct stripes one = {.files = 1, .fd = {-1}};
static const struct ring_options defaults = {.files = &one};

static struct ring_request made_up(int64_t bytes, int64_t offset)
{
    return (struct ring_request){
        .write = true, .buffer = nowhere, .bytes = bytes, .offset = offset};
}

/* Blocks in queue order, RING_DEPTH at once, each byte once. */
START_TEST(core_cuts_in_order)
{
    struct ring_core core;
    ring_core_init(&core, NULL, &defaults);
    struct ring_request a = made_up(5 * MIB + SPILL_ALIGN, 0), b = made_up(9 * MIB, 0);
    ring_core_queue(&core.ring, &a);
    ring_core_queue(&core.ring, &b);
    struct ring_block *out[RING_DEPTH];
    for (int i = 0; i < RING_DEPTH; i++) {
        out[i] = ring_core_next(&core);
        ck_assert_ptr_nonnull(out[i]);
        ck_assert_ptr_eq(out[i]->request, i < 6 ? &a : &b);
        ck_assert_int_eq(out[i]->start, (i < 6 ? i : i - 6) * MIB);
        ck_assert_int_eq(out[i]->bytes, i == 5 ? SPILL_ALIGN : MIB);
    }
    ck_assert_ptr_null(ring_core_next(&core));
    struct ring_request *done;
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(ring_core_take(&core, &done, 1), 0);
        ck_assert(!ring_core_complete(&core, out[i], out[i]->bytes));
    }
    ck_assert_int_eq(ring_core_take(&core, &done, 1), 1);
    ck_assert_ptr_eq(done, &a);
    struct ring_block *next = ring_core_next(&core);
    ck_assert_ptr_eq(next->request, &b);
    ck_assert_int_eq(next->start, 2 * MIB);
}
END_TEST

/* Urgent requests go before others, in their own order, but never into one that has begun. */
START_TEST(core_lets_urgent_pass)
{
    struct ring_core core;
    ring_core_init(&core, NULL, &defaults);
    struct ring_request plain[3], urgent[3],
        *order[6] = {&plain[0], &urgent[0], &urgent[1], &plain[1], &plain[2], &urgent[2]};
    for (int i = 0; i < 3; i++) {
        plain[i] = made_up(2 * MIB, 0);
        urgent[i] = made_up(MIB, 0);
        urgent[i].urgent = true;
        ring_core_queue(&core.ring, &plain[i]);
    }
    struct ring_block *block = ring_core_next(&core); /* half of the first */
    ring_core_queue(&core.ring, &urgent[0]);
    ring_core_queue(&core.ring, &urgent[1]);
    for (int i = 0; i < 5; i++) {
        int halves =
            order[i] == &plain[0] || order[i] == &urgent[0] || order[i] == &urgent[1] ? 1 : 2;
        for (int half = 0; half < halves; half++) {
            ring_core_complete(&core, block, MIB);
            block = ring_core_next(&core);
            ck_assert_ptr_eq(block->request, order[i]);
        }
    }
    ring_core_queue(&core.ring, &urgent[2]); /* into an empty queue */
    ring_core_complete(&core, block, MIB);
    block = ring_core_next(&core);
    ck_assert_ptr_eq(block->request, order[5]);
    ring_core_complete(&core, block, MIB);
    struct ring_request *done[6];
    ck_assert_int_eq(ring_core_take(&core, done, 6), 6);
    ck_assert_ptr_null(ring_core_next(&core));
}
END_TEST

/* Reads and writes that wait together share the depth, whoever came first; what is urgent goes
 * before the other kind too; alone either has all of it. */
START_TEST(core_shares_reads_and_writes)
{
    struct ring_core core;
    ring_core_init(&core, NULL, &defaults);
    struct ring_request writes[2], reads[2], urgent = made_up(2 * MIB, 0);
    for (int i = 0; i < 2; i++) {
        writes[i] = reads[i] = made_up(16 * MIB, 0);
        reads[i].write = false;
        ring_core_queue(&core.ring, &writes[i]);
    }
    struct ring_block *out[RING_DEPTH];
    for (int i = 0; i < RING_DEPTH; i++) {
        out[i] = ring_core_next(&core);
        ck_assert_ptr_eq(out[i]->request, &writes[0]);
    }
    ring_core_queue(&core.ring, &reads[0]);
    ring_core_queue(&core.ring, &reads[1]);
    for (int i = 0; i < 20; i++) { /* half of the depth is given up, then each has its own */
        struct ring_request *next = i < RING_DEPTH / 2 ? &reads[0] : out[i % RING_DEPTH]->request;
        ck_assert(!ring_core_complete(&core, out[i % RING_DEPTH], MIB));
        out[i % RING_DEPTH] = ring_core_next(&core);
        ck_assert_ptr_eq(out[i % RING_DEPTH]->request, next);
    }
    urgent.urgent = true;
    ring_core_queue(&core.ring, &urgent);
    for (int i = 0; i < 2; i++) {
        ck_assert(!ring_core_complete(&core, out[i], MIB));
        out[i] = ring_core_next(&core);
        ck_assert_ptr_eq(out[i]->request, &urgent);
    }
}
END_TEST

/* Short transfers of any length go on from an aligned place until all is moved. */
START_TEST(core_continues_short)
{
    for (int round = 0; round < 200; round++) {
        struct ring_core core;
        ring_core_init(&core, NULL, &defaults);
        struct ring_request r = made_up(3 * MIB, 0);
        ring_core_queue(&core.ring, &r);
        struct ring_block *block;
        while ((block = ring_core_next(&core)) != NULL) {
            int64_t at = block->start, end = block->start + block->bytes;
            bool again;
            do {
                ck_assert_int_eq(block->start, at);
                ck_assert_int_eq(block->start + block->bytes, end);
                int64_t result = 1 + pick(block->bytes);
                switch (pick(8)) {
                case 0: result = -EINTR; break;
                case 1: result = -EAGAIN; break;
                case 2: result = block->bytes; break;
                default: break;
                }
                if (result > 0)
                    at += result == block->bytes ? result : result / SPILL_ALIGN * SPILL_ALIGN;
                again = ring_core_complete(&core, block, result);
            } while (again);
            ck_assert_int_eq(at, end);
        }
        struct ring_request *done;
        ck_assert_int_eq(ring_core_take(&core, &done, 1), 1);
        ck_assert_int_eq(r.error.status, ZERO_OK);
        ck_assert_int_eq(r.completed, r.bytes);
    }
}
END_TEST

/* However often a transfer is short, it goes on while it moves something. */
START_TEST(core_goes_on)
{
    struct ring_core core;
    ring_core_init(&core, NULL, &defaults);
    struct ring_request r = made_up(MIB, 0), *done;
    ring_core_queue(&core.ring, &r);
    struct ring_block *block = ring_core_next(&core);
    int tries = 1;
    while (ring_core_complete(&core, block, tries % 2 ? SPILL_ALIGN : -EAGAIN))
        tries++;
    ck_assert_int_gt(tries, 2 * RING_TRIES);
    ck_assert_int_eq(ring_core_take(&core, &done, 1), 1);
    ck_assert_int_eq(r.error.status, ZERO_OK);
    ck_assert_int_eq(r.completed, MIB);
}
END_TEST

/* Results that move nothing for ever end in an error. */
START_TEST(core_gives_up)
{
    static const int64_t results[] = {-EAGAIN, -EINTR, 100, 0};
    static const int tries[] = {RING_TRIES, RING_TRIES, RING_TRIES, 1};
    for (int i = 0; i < 4; i++) {
        struct ring_core core;
        ring_core_init(&core, NULL, &defaults);
        struct ring_request r = made_up(MIB, 2 * MIB), *done;
        ring_core_queue(&core.ring, &r);
        struct ring_block *block = ring_core_next(&core);
        int count = 1;
        while (ring_core_complete(&core, block, results[i]))
            count++;
        ck_assert_int_eq(count, tries[i]);
        ck_assert_int_eq(ring_core_take(&core, &done, 1), 1);
        ck_assert_int_eq(r.error.status, ZERO_ERR_IO);
        ck_assert_ptr_nonnull(strstr(r.error.text, i == 2 ? "stopped at offset 2097252"
                                                          : "stopped at offset 2097152"));
    }
}
END_TEST

/* Only a read that moves no whole page, and has no error, has met its file's end. */
START_TEST(core_meets_the_end)
{
    static const int64_t results[] = {0, -EIO, 100};
    for (int i = 0; i < 6; i++) {
        struct ring_core core;
        ring_core_init(&core, NULL, &defaults);
        struct ring_request r = made_up(MIB, 2 * MIB), *done;
        r.write = i & 1;
        ring_core_queue(&core.ring, &r);
        struct ring_block *block = ring_core_next(&core);
        while (ring_core_complete(&core, block, results[i / 2]))
            ;
        ck_assert_int_eq(ring_core_take(&core, &done, 1), 1);
        ck_assert(done == &r && r.error.status == ZERO_ERR_IO);
        ck_assert_int_eq(r.error_end, i == 0 || i == 4);
    }
}
END_TEST

/* After an error: nothing more is cut or continued, the request comes back with
 * its last block, the first error stays, the next request runs. */
START_TEST(core_fails_once)
{
    struct ring_core core;
    ring_core_init(&core, NULL, &defaults);
    struct ring_request a = made_up(20 * MIB, 0), b = made_up(MIB, 0), *done;
    ring_core_queue(&core.ring, &a);
    ring_core_queue(&core.ring, &b);
    struct ring_block *out[RING_DEPTH];
    for (int i = 0; i < RING_DEPTH; i++)
        out[i] = ring_core_next(&core);
    ck_assert(!ring_core_complete(&core, out[3], -ENOSPC));
    ck_assert(!ring_core_complete(&core, out[0], SPILL_ALIGN));
    ck_assert(!ring_core_complete(&core, out[1], -EIO));
    struct ring_block *next = ring_core_next(&core);
    ck_assert_ptr_eq(next->request, &b);
    ck_assert_ptr_null(ring_core_next(&core));
    ck_assert(!ring_core_complete(&core, next, MIB));
    static const int rest[] = {2, 4, 5, 6, 7};
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(ring_core_take(&core, &done, 1), i == 0);
        ck_assert(!ring_core_complete(&core, out[rest[i]], MIB));
    }
    ck_assert_int_eq(ring_core_take(&core, &done, 1), 1);
    ck_assert_ptr_eq(done, &a);
    ck_assert_ptr_nonnull(strstr(a.error.text, "stopped at offset 3145728"));
    ck_assert_ptr_nonnull(strstr(a.error.text, strerror(ENOSPC)));
    ck_assert_int_eq(a.completed, 5 * MIB + SPILL_ALIGN);
    ck_assert_int_eq(b.error.status, ZERO_OK);
}
END_TEST

/* Blocks end where stripes do, and each goes to the file that has it; what a
 * short transfer left goes on in the same file. */
START_TEST(core_cuts_at_stripes)
{
    const double weight[] = {1, 1};
    const int64_t stripe = 96 << 10;
    struct stripes two;
    stripes_deal(&two, 2, weight, stripe);
    two.fd[0] = 100;
    two.fd[1] = 200;
    struct ring_core core;
    ring_core_init(&core, NULL,
                   &(struct ring_options){.files = &two, .block = 64 << 10, .depth = 5});
    struct ring_request r = made_up(10 * stripe, 40 << 10), *done;
    ring_core_queue(&core.ring, &r);
    int64_t at = 0;
    for (struct ring_block *block; (block = ring_core_next(&core)) != NULL;) {
        struct stripes_place place = stripes_find(&two, r.offset + at);
        ck_assert_int_eq(block->start, at);
        ck_assert_int_eq(block->file, place.file);
        ck_assert_int_eq(block->fd, two.fd[place.file]);
        ck_assert_int_eq(block->offset, place.offset);
        ck_assert_int_eq(block->bytes, place.bytes < 64 << 10    ? place.bytes
                                       : r.bytes - at < 64 << 10 ? r.bytes - at
                                                                 : 64 << 10);
        at += block->bytes;
        ck_assert(ring_core_complete(&core, block, SPILL_ALIGN + 1));
        ck_assert_int_eq(block->fd, two.fd[place.file]);
        ck_assert_int_eq(block->offset, place.offset + SPILL_ALIGN);
        ck_assert(!ring_core_complete(&core, block, block->bytes));
    }
    ck_assert_int_eq(at, r.bytes);
    ck_assert_int_eq(ring_core_take(&core, &done, 1), 1);
    ck_assert_int_eq(r.completed, r.bytes);
}
END_TEST

/* No more than depth are out. */
START_TEST(core_keeps_depth)
{
    static const int depths[] = {1, 3, RING_DEPTH_MAX};
    for (int i = 0; i < 3; i++) {
        struct ring_core core;
        ring_core_init(&core, NULL,
                       &(struct ring_options){.files = &one, .block = 8192, .depth = depths[i]});
        struct ring_request r = made_up(MIB, 0);
        ring_core_queue(&core.ring, &r);
        int out = 0;
        for (struct ring_block *block; (block = ring_core_next(&core)) != NULL; out++)
            ck_assert_int_eq(block->bytes, 8192);
        ck_assert_int_eq(out, depths[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ring_core");
    TCase *stripes = tcase_create("stripes");
    tcase_add_loop_test(stripes, shares_follow_weights, 0, DEALS);
    tcase_add_loop_test(stripes, places_are_a_bijection, 0, DEALS);
    tcase_add_test(stripes, places_far_out);
    suite_add_tcase(suite, stripes);

    TCase *core = tcase_create("core");
    tcase_add_test(core, core_cuts_in_order);
    tcase_add_test(core, core_cuts_at_stripes);
    tcase_add_test(core, core_keeps_depth);
    tcase_add_test(core, core_lets_urgent_pass);
    tcase_add_test(core, core_shares_reads_and_writes);
    tcase_add_test(core, core_continues_short);
    tcase_add_test(core, core_gives_up);
    tcase_add_test(core, core_goes_on);
    tcase_add_test(core, core_meets_the_end);
    tcase_add_test(core, core_fails_once);
    suite_add_tcase(suite, core);
    return suite_run_all(suite);
}
