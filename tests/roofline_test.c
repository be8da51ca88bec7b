// SPDX-License-Identifier: Apache-2.0
/*
 * What is made of measured figures: how long an update will take, and what a
 * step waits for. Arithmetic and sentences alone; the figures are made up.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/predict.h"
#include "tests/support/suite.h"

/* ------------------------------------------------------------- predictions */

START_TEST(update_predicted)
{
    static const struct {
        const char *name;
        int64_t read, written, memory; /* bytes */
        int ranks;
        double probe_read, probe_write, stream; /* bytes per second */
        double seconds, disk, used;             /* expected; used: memory's */
    } rows[] = {
        {"no files", 0, 0, 600, 1, 0, 0, 100, 6, 0, 6},
        {"no files, drives known", 0, 0, 600, 1, 10, 10, 100, 6, 0, 6},
        {"no files, three ranks share memory", 0, 0, 600, 3, 0, 0, 100, 18, 0, 18},
        {"nothing known", 0, 0, 600, 1, 0, 0, 0, 0, 0, 0},
        {"files take longer", 200, 300, 600, 1, 20, 50, 100, 16, 16, 6},
        {"memory takes longer", 20, 30, 600, 1, 20, 50, 100, 6, 1.6, 6},
        {"two ranks share drives", 200, 300, 600, 2, 20, 50, 100, 32, 32, 12},
        {"only written", 0, 300, 100, 1, 20, 50, 100, 6, 6, 1},
        {"drives not known", 200, 300, 600, 1, 0, 0, 100, 0, 0, 6},
        {"memory not known", 200, 300, 600, 1, 20, 50, 0, 16, 16, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct zero_plan plan = {.read_bytes = rows[i].read,
                                 .written_bytes = rows[i].written,
                                 .update_bytes = rows[i].memory};
        struct zero_probe probe = {.read = rows[i].probe_read, .write = rows[i].probe_write};
        struct prediction p = predict_update(&plan, rows[i].ranks, &probe, rows[i].stream);
        ck_assert_msg(p.files == (rows[i].read + rows[i].written > 0), "%s", rows[i].name);
        const double got[] = {p.seconds, p.disk, p.memory},
                     want[] = {rows[i].seconds, rows[i].disk, rows[i].used};
        for (int k = 0; k < 3; k++)
            ck_assert_msg(got[k] > want[k] - 1e-9 && got[k] < want[k] + 1e-9,
                          "%s: figure %d is %g, not %g", rows[i].name, k, got[k], want[k]);
    }
}
END_TEST

START_TEST(advice_names_folders)
{
    char text[200];
    ck_assert_str_eq(predict_advice("/a b", text, sizeof(text)),
                     "ZERO_PROBE=1 zero bench step --quick --nvme-path /a b");
    ck_assert_str_eq(predict_advice("/a:/b", text, sizeof(text)),
                     "ZERO_PROBE=1 zero bench step --quick --nvme-path FOLDER, once for each,");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("roofline");
    TCase *tests = tcase_create("figures");
    tcase_add_test(tests, update_predicted);
    tcase_add_test(tests, advice_names_folders);
    suite_add_tcase(suite, tests);
    return suite_run_all(suite);
}
