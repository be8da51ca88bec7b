// SPDX-License-Identifier: Apache-2.0
/*
 * What a machine refuses while an engine is made: every allocation in turn, every
 * descriptor in turn, threads. Each is an error with its sentence on every rank,
 * or costs nothing but speed; the engine that failed can be destroyed, and with
 * what was refused the next one works.
 */
#include "tests/support/allocations.h"

#include <linux/sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "src/engine.h"
#include "tests/support/deny.h"
#include "tests/support/drive.h"
#include "tests/support/random.h"
#include "tests/support/ranks.h"
#include "tests/support/suite.h"
#include "tests/support/toy.h"

#define REFUSALS_MAX 1000

static const struct zero_config configs[] = {
    {.stage = 3, .offload = ZERO_NVME, .dtype = ZERO_BF16, .chunk = 256},
    {.stage = 3, .offload = ZERO_NVME, .ring = ZERO_RING_POSIX, .chunk = 64},
    {.stage = 1, .offload = ZERO_HOST, .chunk = 256},
    {.stage = 0, .accumulate_in = ZERO_LOCAL},
};
#define CONFIGS ((int)(sizeof(configs) / sizeof(*configs)))

static int create(struct zero **z, struct zero_config c, struct zero_comm *comm)
{
    struct zero_param params[TOY_TENSORS];
    toy_describe(params);
    c.size = sizeof(c);
    c.threads = 1;
    c.comm = comm;
    c.log_level = ZERO_LOG_SILENT;
    return zero_create(z, params, TOY_TENSORS, &c);
}

/* ------------------------------------------------------------------ memory */

/* An engine is made, or there is a sentence; never both, never neither. */
static void expect_said(int status, const struct zero *z, int64_t n)
{
    const char *text = zero_last_error(z);
    if (status == ZERO_OK) {
        ck_assert_str_eq(text, "");
        return;
    }
    ck_assert_msg(status == ZERO_ERR_MEMORY || status == ZERO_ERR_IO, "refusal %lld: %s: %s",
                  (long long)n, zero_status_name(status), text);
    ck_assert_msg(strlen(text) > 20 && text[strlen(text) - 1] == '.', "refusal %lld: '%s'",
                  (long long)n, text);
}

START_TEST(each_allocation_fails)
{
    int64_t n = 1;
    for (bool refused = true; refused; n++) {
        struct zero *z = NULL;
        allocation_refused = n;
        int status = create(&z, configs[_i], NULL);
        refused = allocation_refused == 0;
        allocation_refused = 0;
        expect_said(status, z, n);
        ck_assert(refused || status == ZERO_OK);
        zero_destroy(z);
        ck_assert_int_lt(n, REFUSALS_MAX);
    }
    ck_assert_int_gt(n, 30);
}
END_TEST

/* Of one rank; the other learns of it. */
struct pair {
    struct zero_config config;
    int64_t n;
    bool refused;
    int status[2];
    char text[2][512];
};

static void create_one_poor(int rank, struct zero_comm *comm, void *arg)
{
    struct pair *p = arg;
    struct zero *z = NULL;
    allocation_refused = rank == 1 ? p->n : 0;
    p->status[rank] = create(&z, p->config, comm);
    if (rank == 1)
        p->refused = allocation_refused == 0;
    allocation_refused = 0;
    snprintf(p->text[rank], sizeof(p->text[rank]), "%s", zero_last_error(z));
    zero_destroy(z);
}

START_TEST(each_allocation_fails_on_one_rank)
{
    struct pair p = {.config = configs[_i], .n = 2, .refused = true}; /* 1: *z itself */
    p.config.deadline_seconds = 30;
    for (; p.refused; p.n++) {
        ranks_run(2, create_one_poor, &p);
        ck_assert_msg((p.status[0] == ZERO_OK) == (p.status[1] == ZERO_OK),
                      "refusal %lld: '%s' and '%s'", (long long)p.n, p.text[0], p.text[1]);
        ck_assert_msg(p.status[0] == p.status[1] || p.status[0] == ZERO_ERR_COMM,
                      "refusal %lld: '%s' and '%s'", (long long)p.n, p.text[0], p.text[1]);
        ck_assert_int_lt(p.n, REFUSALS_MAX);
    }
    ck_assert_int_eq(p.status[0], ZERO_OK);
    ck_assert_int_gt(p.n, 30);
}
END_TEST

/* A second engine is asked for over a communicator that one has, and there is no memory
 * for it: the first goes on. */
static void create_another(int rank, struct zero_comm *comm, void *arg)
{
    struct pair *p = arg;
    struct zero *z = NULL, *other = NULL;
    struct zero_digest digest;
    p->status[rank] = create(&z, p->config, comm);
    if (rank == 1) {
        allocation_refused = 1;
        p->refused = create(&other, p->config, comm) == ZERO_ERR_MEMORY && !other;
        allocation_refused = 0;
    }
    if (!p->status[rank])
        p->status[rank] = zero_digest(z, &digest);
    snprintf(p->text[rank], sizeof(p->text[rank]), "%s", zero_last_error(z));
    zero_destroy(z);
}

START_TEST(no_engine_leaves_another_alone)
{
    struct pair p = {.config = configs[0]};
    ranks_run(2, create_another, &p);
    ck_assert(p.refused);
    for (int r = 0; r < 2; r++)
        ck_assert_msg(p.status[r] == ZERO_OK, "rank %d: %s", r, p.text[r]);
}
END_TEST

START_TEST(a_plan_needs_memory)
{
    struct zero_param params[TOY_TENSORS];
    struct zero_config c = {.size = sizeof(c), .stage = 3, .offload = ZERO_NVME};
    struct zero_plan plan;
    char text[512];
    int status = ZERO_ERR_MEMORY;
    toy_describe(params);
    for (int64_t n = 1; status; n++) {
        allocation_refused = n;
        status = zero_plan_make(params, TOY_TENSORS, &c, 2, 2, &plan, text, sizeof(text));
        bool refused = allocation_refused == 0;
        allocation_refused = 0;
        ck_assert(status == ZERO_OK || status == ZERO_ERR_MEMORY);
        ck_assert_msg(refused == (status != ZERO_OK) && refused == !!strstr(text, "No memory"),
                      "refusal %lld: '%s'", (long long)n, text);
    }
}
END_TEST

/* ------------------------------------------------------ descriptors, threads */

static void descriptors_limit(rlim_t n)
{
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = n;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* The first limit at which this process may open one more. */
static rlim_t descriptors_used(void)
{
    int fd = dup(0);
    ck_assert_int_ge(fd, 0);
    close(fd);
    return (rlim_t)fd;
}

START_TEST(each_descriptor_fails)
{
    rlim_t used = descriptors_used();
    int status = ZERO_ERR_IO, failures = 0;
    for (rlim_t more = 0; status; more++, failures++) {
        struct zero *z;
        descriptors_limit(used + more);
        status = create(&z, configs[_i], NULL);
        descriptors_limit(used + 100);
        ck_assert_msg(!status || strstr(zero_last_error(z), "ulimit -n") ||
                          strstr(zero_last_error(z), "Too many open files"),
                      "%d more: %s", (int)more, zero_last_error(z));
        zero_destroy(z);
        ck_assert_int_lt(failures, 50);
    }
    ck_assert_int_ge(failures, 2); /* the last one did not fail */
}
END_TEST

START_TEST(a_probe_needs_descriptors)
{
    if (!drive_under("/var/tmp"))
        return;
    rlim_t used = descriptors_used();
    char said[2][512] = {"", ""};
    for (rlim_t more = 0; more < 2; more++) {
        struct probe probe = {0};
        struct error error = {0};
        descriptors_limit(used + more);
        ck_assert_int_eq(probe_run(&probe, "/var/tmp", 0.1, &error), ZERO_ERR_IO);
        descriptors_limit(used + 100);
        snprintf(said[more], sizeof(said[more]), "%s", error.text);
    }
    ck_assert_msg(strstr(said[0], "Cannot create a file"), "%s", said[0]);
    ck_assert_msg(strstr(said[1], "eventfd"), "%s", said[1]);
}
END_TEST

START_TEST(no_thread)
{
    struct zero *z;
    if (!deny_call(SYS_clone3, 0, 0, 0, EAGAIN) ||
        !deny_call(SYS_clone, 0, CLONE_THREAD, CLONE_THREAD, EAGAIN)) {
        printf("skipped: no seccomp here\n");
        return;
    }
    ck_assert_int_eq(create(&z, configs[_i], NULL), ZERO_ERR_MEMORY);
    ck_assert_msg(strstr(zero_last_error(z), "could not be started") &&
                      strstr(zero_last_error(z), "ulimit -u"),
                  "%s", zero_last_error(z));
    zero_destroy(z);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("refused");
    TCase *memory = tcase_create("memory"), *site = tcase_create("site");
    if (ALLOCATIONS_SEEN) {
        tcase_add_loop_test(memory, each_allocation_fails, 0, CONFIGS);
        tcase_add_loop_test(memory, each_allocation_fails_on_one_rank, 0, 3);
        tcase_add_test(memory, no_engine_leaves_another_alone);
        tcase_add_test(memory, a_plan_needs_memory);
    } else {
        puts("skipped: allocations that fail: a sanitizer replaces malloc itself");
    }
    tcase_add_loop_test(site, each_descriptor_fails, 0, CONFIGS);
    tcase_add_test(site, a_probe_needs_descriptors);
    tcase_add_loop_test(site, no_thread, 0, CONFIGS);
    suite_add_tcase(suite, memory);
    suite_add_tcase(suite, site);
    return suite_run_all(suite);
}
