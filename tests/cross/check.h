// SPDX-License-Identifier: Apache-2.0
/*
 * As much of Check as the suites of the kernels use, for machines that it is not
 * packaged for: tests/cross.sh puts this folder before the system's. All tests
 * run in one process, and the first failure ends it. Not for other suites.
 */
#ifndef TESTS_CROSS_CHECK_H
#define TESTS_CROSS_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_MOST 64 /* tests of a case, cases of a suite */

#define Suite   struct check_suite
#define SRunner struct check_suite
#define TCase   struct check_case

struct check_test {
    const char *name;
    void (*run)(int _i);
    int begin, end;
};

struct check_case {
    int count;
    struct check_test tests[CHECK_MOST];
};

struct check_suite {
    const char *name;
    int count, ran;
    TCase *cases[CHECK_MOST];
};

enum { CK_FORK, CK_NOFORK, CK_ENV };

#define START_TEST(name) static void name(int _i __attribute__((unused)))
#define END_TEST

#define ck_abort_msg(...)                                                                          \
    do {                                                                                           \
        printf("%s:%d: %s: ", __FILE__, __LINE__, __func__);                                       \
        printf(__VA_ARGS__);                                                                       \
        printf("\n0%%: Checks: 1, Failures: 1, Errors: 0\n");                                      \
        exit(1);                                                                                   \
    } while (0)
#define ck_assert_msg(what, ...)                                                                   \
    do {                                                                                           \
        if (!(what))                                                                               \
            ck_abort_msg(__VA_ARGS__);                                                             \
    } while (0)
#define ck_assert(what)               ck_assert_msg(what, "not so: %s", #what)
#define ck_assert_int_eq(a, b)        ck_assert((a) == (b))
#define ck_assert_uint_eq(a, b)       ck_assert((a) == (b))
#define ck_assert_int_lt(a, b)        ck_assert((a) < (b))
#define ck_assert_ptr_eq(a, b)        ck_assert((a) == (b))
#define ck_assert_ptr_null(a)         ck_assert((a) == NULL)
#define ck_assert_ptr_nonnull(a)      ck_assert((a) != NULL)
#define ck_assert_str_eq(a, b)        ck_assert(strcmp(a, b) == 0)
#define ck_assert_mem_eq(a, b, bytes) ck_assert(memcmp(a, b, bytes) == 0)
#define ck_assert_double_eq_tol(a, b, most)                                                        \
    ck_assert((a) - (b) < (most) && (b) - (a) < (most)) /* Check's, which has it finite too */

static inline void *check_new(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory)
        exit(1);
    return memory;
}

static inline Suite *suite_create(const char *name)
{
    Suite *suite = check_new(sizeof(*suite));
    suite->name = name;
    return suite;
}

static inline TCase *tcase_create(const char *name)
{
    (void)name;
    return check_new(sizeof(TCase));
}

static inline void tcase_set_timeout(TCase *tcase, double seconds)
{
    (void)tcase;
    (void)seconds;
}

static inline void check_add(TCase *tcase, const char *name, void (*run)(int _i), int begin,
                             int end)
{
    ck_assert_msg(tcase->count < CHECK_MOST, "more than %d tests", CHECK_MOST);
    tcase->tests[tcase->count++] = (struct check_test){name, run, begin, end};
}

#define tcase_add_test(tcase, test)                  check_add(tcase, #test, test, 0, 1)
#define tcase_add_loop_test(tcase, test, begin, end) check_add(tcase, #test, test, begin, end)

static inline void suite_add_tcase(Suite *suite, TCase *tcase)
{
    ck_assert_msg(suite->count < CHECK_MOST, "more than %d cases", CHECK_MOST);
    suite->cases[suite->count++] = tcase;
}

static inline SRunner *srunner_create(Suite *suite)
{
    return suite;
}

static inline void srunner_set_fork_status(SRunner *runner, int status)
{
    (void)runner;
    (void)status;
}

static inline void srunner_run_all(SRunner *suite, int mode)
{
    (void)mode;
    printf("Running suite(s): %s\n", suite->name);
    for (int c = 0; c < suite->count; c++) {
        for (int t = 0; t < suite->cases[c]->count; t++) {
            const struct check_test *test = &suite->cases[c]->tests[t];
            for (int i = test->begin; i < test->end; i++, suite->ran++)
                test->run(i);
        }
    }
    printf("100%%: Checks: %d, Failures: 0, Errors: 0\n", suite->ran);
}

static inline int srunner_ntests_failed(const SRunner *suite)
{
    (void)suite;
    return 0;
}

static inline int srunner_ntests_run(const SRunner *suite)
{
    return suite->ran;
}

static inline void srunner_free(SRunner *suite)
{
    for (int c = 0; c < suite->count; c++)
        free(suite->cases[c]);
    free(suite);
}

#endif
