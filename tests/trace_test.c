// SPDX-License-Identifier: Apache-2.0
/* The writer of traces on spans made up for it: overlaps, ties, other lanes,
 * several ranks in one file, more spans than there is room for, and threads that
 * add at once. What a run writes is for tests/trace.sh. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt2/trace.h"
#include "tests/support/suite.h"

static void add(struct trace *t, int lane, const char *name, double begin, double end)
{
    struct zero_span span = {
        .name = name, .unit = 2, .chunk = 7, .bytes = 4096, .step = 3, .begin = begin, .end = end};
    trace_add(t, lane, &span);
}

static struct trace *create(int64_t spans)
{
    struct trace *t = trace_create(spans);
    ck_assert_ptr_nonnull(t);
    return t;
}

/* What count ranks write, in a buffer to be freed. */
static char *written(struct trace **ranks, int count, double zero)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(f);
    trace_begin(f);
    for (int rank = 0; rank < count; rank++)
        ck_assert_int_eq(trace_write(ranks[rank], f, rank, zero), 0);
    trace_end(f);
    fclose(f);
    return text;
}

START_TEST(exact)
{
    struct trace *ranks[2] = {create(8), create(8)};
    add(ranks[0], TRACE_STEP, "step", 10.0, 10.5);
    add(ranks[0], ZERO_LANE_STATE_DISK, "b", 10.25, 10.75);
    add(ranks[0], ZERO_LANE_STATE_DISK, "a", 10.0, 10.5);
    char *text = written(ranks, 2, 9.0);
    ck_assert_str_eq(
        text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
              "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"rank 0\"}},\n"
              "{\"name\":\"step\",\"ph\":\"X\",\"ts\":1000000.000,\"dur\":500000.000,\"pid\":0,"
              "\"tid\":2000,\"args\":{\"unit\":2,\"chunk\":7,\"bytes\":4096,\"step\":4}},\n"
              "{\"name\":\"a\",\"ph\":\"X\",\"ts\":1000000.000,\"dur\":500000.000,\"pid\":0,"
              "\"tid\":12000,\"args\":{\"unit\":2,\"chunk\":7,\"bytes\":4096,\"step\":4}},\n"
              "{\"name\":\"b\",\"ph\":\"X\",\"ts\":1250000.000,\"dur\":500000.000,\"pid\":0,"
              "\"tid\":12001,\"args\":{\"unit\":2,\"chunk\":7,\"bytes\":4096,\"step\":4}},\n"
              "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":12000,\"args\":{\"name\":"
              "\"state-disk 1\"}},\n"
              "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":12001,\"args\":{\"name\":"
              "\"state-disk 2\"}},\n"
              "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":2000,\"args\":{\"name\":"
              "\"step 1\"}},\n"
              "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"rank 1\"}}\n"
              "]}\n");
    free(text);
    ck_assert_double_eq(trace_first(ranks[0], 99), 10.0);
    ck_assert_double_eq(trace_first(ranks[1], 99), 99.0);
    trace_destroy(ranks[0]);
    trace_destroy(ranks[1]);
}
END_TEST

/* Spans that only touch share a lane; as many lanes as are open at once, no more. */
START_TEST(lanes)
{
    enum { SPANS = 2000, WIDTH = 37 };
    struct trace *t = create(SPANS);
    double free_at[WIDTH + 1] = {0};
    int used = 0, events = 0;
    for (int i = SPANS - 1; i >= 0; i--) /* span i is from i to i + WIDTH, added backwards */
        add(t, ZERO_LANE_COMM, "gather", 1e-6 * i, 1e-6 * (i + WIDTH));
    char *text = written(&t, 1, 0);
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        char *at = strstr(line, "\"ph\":\"X\"");
        double begin, size;
        int tid;
        if (!at)
            continue;
        ck_assert_int_eq(sscanf(at, "\"ph\":\"X\",\"ts\":%lf,\"dur\":%lf,\"pid\":0,\"tid\":%d",
                                &begin, &size, &tid),
                         3);
        int k = tid % 2000;
        ck_assert_int_lt(k, WIDTH);
        ck_assert_double_ge(begin, free_at[k] - 1e-9);
        free_at[k] = begin + size;
        used = k >= used ? k + 1 : used;
        events++;
    }
    ck_assert_int_eq(events, SPANS);
    ck_assert_int_eq(used, WIDTH);
    free(text);
    trace_destroy(t);
}
END_TEST

/* As many lanes as there are numbers for, and no more. */
START_TEST(widest)
{
    struct trace *t = create(2001);
    for (int i = 0; i < 2000; i++)
        add(t, ZERO_LANE_COMM, "gather", 1, 2);
    char *text = written(&t, 1, 0);
    ck_assert_ptr_nonnull(strstr(text, "\"tid\":9999,"));
    free(text);
    add(t, ZERO_LANE_COMM, "gather", 1, 2);
    FILE *f = fopen("/dev/null", "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(trace_write(t, f, 0, 0), -1);
    fclose(f);
    trace_destroy(t);
}
END_TEST

/* The first ones are kept, and the others counted. */
START_TEST(bounded)
{
    struct trace *t = create(3);
    for (int i = 0; i < 10; i++)
        add(t, ZERO_LANE_UPDATE, i < 3 ? "kept" : "dropped", i, i + 1);
    ck_assert_int_eq(trace_dropped(t), 7);
    char *text = written(&t, 1, 0);
    ck_assert_ptr_nonnull(strstr(text, "\"kept\""));
    ck_assert_ptr_null(strstr(text, "\"dropped\""));
    free(text);
    trace_destroy(t);
}
END_TEST

/* Of two that begin together the longer is in the first lane, whichever came first. */
START_TEST(together)
{
    for (int order = 0; order < 2; order++) {
        struct trace *t = create(2);
        add(t, TRACE_COMPUTE, "x", 1, order ? 2 : 3);
        add(t, TRACE_COMPUTE, "x", 1, order ? 3 : 2);
        char *text = written(&t, 1, 0);
        ck_assert_ptr_nonnull(strstr(text, "\"dur\":2000000.000,\"pid\":0,\"tid\":6000,"));
        ck_assert_ptr_nonnull(strstr(text, "\"dur\":1000000.000,\"pid\":0,\"tid\":6001,"));
        free(text);
        trace_destroy(t);
    }
}
END_TEST

START_TEST(created)
{
    struct trace *t = create(2);
    add(t, ZERO_LANE_COMM, "before", 1, 2);
    trace_created(t);
    add(t, ZERO_LANE_COMM, "after", 2, 3);
    char *text = written(&t, 1, 0);
    char *before = strstr(text, "\"before\""), *after = strstr(text, "\"after\"");
    ck_assert(before && after && before < after);
    ck_assert_ptr_nonnull(strstr(after, "\"step\":4}"));
    ck_assert(strstr(before, "\"step\":0}") && strstr(before, "\"step\":0}") < after);
    free(text);
    trace_destroy(t);
}
END_TEST

/* What began before the file's time is cut off there. */
START_TEST(early)
{
    struct trace *t = create(3);
    add(t, TRACE_PASS, "forward", 1, 4);
    char *text = written(&t, 1, 2);
    ck_assert_ptr_nonnull(strstr(text, "\"ts\":0.000,\"dur\":2000000.000,"));
    free(text);
    trace_destroy(t);
}
END_TEST

enum { THREADS = 4, EACH = 5000 };

static void *adder(void *arg)
{
    struct zero_span span = {.lane = ZERO_LANE_COMM, .name = "gather"};
    for (int i = 0; i < EACH; i++) {
        span.begin = i;
        span.end = i + 1;
        trace_engine(arg, &span);
    }
    return NULL;
}

START_TEST(threads)
{
    struct trace *t = create(THREADS * EACH - 100);
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, adder, t), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    ck_assert_int_eq(trace_dropped(t), 100);
    char *text = written(&t, 1, 0);
    int kept = 0;
    for (const char *at = text; (at = strstr(at, "\"ph\":\"X\"")); at++)
        kept++;
    ck_assert_int_eq(kept, THREADS * EACH - 100);
    free(text);
    trace_destroy(t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("trace");
    TCase *t = tcase_create("writer");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, exact);
    tcase_add_test(t, lanes);
    tcase_add_test(t, widest);
    tcase_add_test(t, bounded);
    tcase_add_test(t, together);
    tcase_add_test(t, created);
    tcase_add_test(t, early);
    tcase_add_test(t, threads);
    suite_add_tcase(suite, t);
    return suite_run_all(suite);
}
