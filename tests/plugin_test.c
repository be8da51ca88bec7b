// SPDX-License-Identifier: Apache-2.0
/* Devices that are not in the library itself: what is said where there is none. */
#include <check.h>
#include <string.h>

#include "tests/support/suite.h"
#include "tests/support/toy.h"

START_TEST(refused_without)
{
    struct zero_param params[TOY_TENSORS];
    struct zero *z;
    toy_describe(params);
    ck_assert_int_eq(zero_init(&z, params, TOY_TENSORS, .device = ZERO_CUDA), ZERO_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(zero_last_error(z), "has no CUDA device"));
    ck_assert_ptr_null(zero_stream(z));
    zero_destroy(z);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plugin");
    TCase *tests = tcase_create("plugin");
    tcase_add_test(tests, refused_without);
    suite_add_tcase(suite, tests);
    return suite_run_all(suite);
}
