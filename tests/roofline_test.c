// SPDX-License-Identifier: Apache-2.0
/*
 * What is made of measured figures: how long an update will take, and what a
 * step waits for. Arithmetic and sentences alone; the figures are made up. And
 * the loops that measure what memory moves: what they do, not how fast.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/predict.h"
#include "examples/common/stream.h"
#include "examples/gpt2/roofline.h"
#include "tests/support/suite.h"

/* ------------------------------------------------------------------- limits */

enum { ELEMENTS = 256, FIRST = 64, COUNT = 128 };

/* Arrays of one value each, but gradients of 0, 1, ... */
static struct stream_arrays arrays_make(char **memory)
{
    size_t bytes = (size_t)stream_bytes(ELEMENTS);
    *memory = aligned_alloc(2 << 20, bytes);
    ck_assert_ptr_nonnull(*memory);
    memset(*memory, 0, bytes);
    struct stream_arrays a = stream_carve(*memory, ELEMENTS);
    for (int i = 0; i < ELEMENTS; i++) {
        a.grad[i] = (float)i;
        a.grad16[i] = (uint16_t)(i < 128 ? 0x3F80 : 0x4000); /* 1 and 2 */
        a.master[i] = 3;
        a.m[i] = 5;
        a.weight[i] = 6;
        a.remainder[i] = 7;
    }
    return a;
}

/* What a loop moves is what it must, and both loops of a form leave the same. */
START_TEST(limits_move_what_an_update_moves)
{
    enum stream_form form = (enum stream_form)_i;
    const struct streams *s = streams_select();
    char *memory, *other;
    struct stream_arrays a = arrays_make(&memory), b = arrays_make(&other);
    s->ordinary[form](&a, FIRST, COUNT);
    for (int i = 0; i < ELEMENTS; i++) {
        bool in = i >= FIRST && i < FIRST + COUNT;
        float grad = !in ? 0 : !form_bf16_grad(form) ? (float)i : i < 128 ? 1 : 2;
        float master = 3 + (form_split(form) ? 0 : grad);
        uint32_t bits;
        memcpy(&bits, &master, sizeof(bits));
        int weight = !in || form == FORM_FP32 ? 6 : form_split(form) ? 7 : (int)(bits >> 16);
        ck_assert(a.m[i] == 5 + grad && a.master[i] == master && (a.v[i] > 0) == in);
        ck_assert_int_eq(a.weight[i], weight);
        ck_assert_int_eq(a.remainder[i], in && form_split(form) ? 6 : 7);
    }
    if (s->non_temporal[form]) {
        s->non_temporal[form](&b, FIRST, COUNT);
        ck_assert(!memcmp(memory, other, (size_t)stream_bytes(ELEMENTS)));
    }
    free(memory);
    free(other);
}
END_TEST

/* ------------------------------------------------------------- predictions */

START_TEST(update_predicted)
{
    static const struct {
        const char *name;
        int64_t read, written, memory; /* bytes */
        int ranks;
        double probe_read, probe_write, probe_both, stream; /* bytes per second */
        double seconds, disk, used;                         /* expected; used: memory's */
    } rows[] = {
        {"no files", 0, 0, 600, 1, 0, 0, 0, 100, 6, 0, 6},
        {"no files, drives known", 0, 0, 600, 1, 10, 10, 10, 100, 6, 0, 6},
        {"no files, three ranks share memory", 0, 0, 600, 3, 0, 0, 0, 100, 18, 0, 18},
        {"nothing known", 0, 0, 600, 1, 0, 0, 0, 0, 0, 0, 0},
        {"files take longer", 200, 300, 600, 1, 20, 50, 32, 100, 14.5, 14.5, 6},
        {"more read than written", 300, 200, 600, 1, 20, 50, 40, 100, 15, 15, 6},
        {"memory takes longer", 20, 30, 600, 1, 20, 50, 32, 100, 6, 1.45, 6},
        {"two ranks share drives", 200, 300, 600, 2, 20, 50, 32, 100, 29, 29, 12},
        {"only written", 0, 300, 100, 1, 20, 50, 32, 100, 6, 6, 1},
        {"drives not known", 200, 300, 600, 1, 0, 0, 0, 100, 0, 0, 6},
        {"memory not known", 200, 300, 600, 1, 20, 50, 32, 0, 14.5, 14.5, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct zero_plan plan = {.read_bytes = rows[i].read,
                                 .written_bytes = rows[i].written,
                                 .update_bytes = rows[i].memory};
        struct zero_probe probe = {
            .read = rows[i].probe_read, .write = rows[i].probe_write, .both = rows[i].probe_both};
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
    char text[200], other[] = "/b c/gpt2";
    program_invocation_name = program_invocation_short_name;
    ck_assert_str_eq(predict_advice("/a b", text, sizeof(text)),
                     "ZERO_PROBE=1 zero bench step --quick --nvme-path '/a b'");
    ck_assert_str_eq(predict_advice("/a'b`", text, sizeof(text)),
                     "ZERO_PROBE=1 zero bench step --quick --nvme-path '/a'\\''b`'");
    ck_assert_str_eq(predict_advice("/a-b_c.1", text, sizeof(text)),
                     "ZERO_PROBE=1 zero bench step --quick --nvme-path /a-b_c.1");
    ck_assert_str_eq(predict_advice("/a b", text, 55),
                     "ZERO_PROBE=1 zero bench step --quick --nvme-path '/a b");
    ck_assert_str_eq(
        predict_advice("/a:/b", text, sizeof(text)),
        "ZERO_PROBE=1 zero bench step --quick --nvme-path FOLDER, once for each folder,");
    program_invocation_name = other;
    ck_assert_str_eq(predict_advice("/a", text, sizeof(text)),
                     "ZERO_PROBE=1 '/b c/zero' bench step --quick --nvme-path /a");
}
END_TEST

/* ---------------------------------------------------------------- verdicts */

/* A step of seconds, in which the program waited, and its rows' busy seconds. */
START_TEST(step_judged)
{
    static const struct {
        const char *name;
        double step, waited, products, updates, network, disk;
        const char *says;
    } rows[] = {
        {"compute alone", 1, 0, .9, 0, 0, 0, "the step waits for matrix products: 0.9 of its 1 s"},
        {"disk alone", 1.1, .9, .1, .05, 0, .9, "the step waits for the disk: 0.9 of its 1.1 s"},
        {"updates", 1, .8, .1, .7, 0, .3, "the step waits for updates in memory: 0.7 of its 1 s"},
        {"collectives", 1, .8, .1, .2, .75, .3,
         "the step waits for the other ranks and the network: 0.75 of its 1 s"},
        {"a busy disk that nobody waits for", 1, .02, .6, .1, 0, .9,
         "the step waits for matrix products: 0.6 of its 1 s"},
        {"a disk that takes as long as all else", 1, .4, .5, .1, 0, .95,
         "the step waits for the disk: 0.95 of its 1 s"},
        {"collectives under way while others compute", 1, .1, .7, .1, .95, 0,
         "the step waits for matrix products: 0.7 of its 1 s"},
        {"waits of all sorts", 1, .7, .2, .3, .4, .45,
         "none of these alone: of a step's 1 s the program computes 0.3 s and waits 0.7 s; beside "
         "that the disk took 0.45 s"},
        {"other work", 2, .1, .5, .3, .05, .2,
         "none of these alone: of a step's 2 s the program computes 1.9 s and waits 0.1 s; beside "
         "that updates in memory took 0.3 s"},
        {"half of it is enough", 1, .5, .1, 0, 0, .5,
         "the step waits for the disk: 0.5 of its 1 s"},
    };
    char text[320];
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct roofline r = {.step = rows[i].step, .waited = rows[i].waited};
        r.row[ROOFLINE_COMPUTE].seconds = rows[i].products;
        r.row[ROOFLINE_MEMORY].seconds = rows[i].updates;
        r.row[ROOFLINE_NETWORK].seconds = rows[i].network;
        r.row[ROOFLINE_DISK].seconds = rows[i].disk;
        roofline_verdict(&r, text, sizeof(text));
        ck_assert_msg(strcmp(text, rows[i].says) == 0, "%s: %s", rows[i].name, text);
    }
}
END_TEST

/* On GPUs the program appends and waits: its own time is no measure, theirs is. */
START_TEST(gpus_judged)
{
    struct roofline r = {.layers = true, .step = 1};
    char text[320];
    r.row[ROOFLINE_COMPUTE].seconds = .9;
    r.row[ROOFLINE_DISK].seconds = .4;
    roofline_verdict(&r, text, sizeof(text));
    ck_assert_str_eq(text, "the step waits for the GPU: 0.9 of its 1 s");
    r.row[ROOFLINE_DISK].seconds = .8;
    roofline_verdict(&r, text, sizeof(text));
    ck_assert_str_eq(text, "the step waits for the GPU: 0.9 of its 1 s");
    r.row[ROOFLINE_COMPUTE].seconds = .1;
    roofline_verdict(&r, text, sizeof(text));
    ck_assert_str_eq(text, "the step waits for the disk: 0.8 of its 1 s");
    r.row[ROOFLINE_DISK].seconds = r.row[ROOFLINE_COMPUTE].seconds = .3;
    roofline_verdict(&r, text, sizeof(text));
    ck_assert_str_eq(text, "none of these alone: of a step's 1 s the GPU computes 0.3 s and the "
                           "program waits 0 s; beside that the disk took 0.3 s");
}
END_TEST

START_TEST(table_printed)
{
    const struct roofline r = {
        .row = {[ROOFLINE_COMPUTE] = {.done = 60e9, .seconds = .6, .limit = 2e12, .of = "cache"},
                [ROOFLINE_MEMORY] = {.done = 3 << 20, .seconds = .25, .of = "none"},
                [ROOFLINE_NETWORK] = {.limit = 1 << 30, .of = "one rank"},
                [ROOFLINE_DISK] = {.done = 1 << 30, .seconds = .5, .limit = 5LL << 30, .of = "it"}},
        .step = 1};
    static const char *const lines[] = {
        "what bounds the step             achieved          limit  share  busy a step  source of "
        "the limit",
        "  compute: matrix products  100.0 Gflop/s    2.0 Tflop/s    5 %        0.6 s  cache",
        "  memory: updates              12.0 MiB/s              -      -       0.25 s  none",
        "  network: collectives                  -      1.0 GiB/s      -            -  one rank",
        "  disk: files                   2.0 GiB/s      5.0 GiB/s   40 %        0.5 s  it",
        "the step waits for matrix products: 0.6 of its 1 s",
    };
    char line[256];
    FILE *f = tmpfile();
    ck_assert_ptr_nonnull(f);
    roofline_print(&r, f);
    rewind(f);
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
        line[strcspn(line, "\n")] = '\0';
        ck_assert_str_eq(line, lines[i]);
    }
    ck_assert_ptr_null(fgets(line, sizeof(line), f));
    fclose(f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("roofline");
    TCase *tests = tcase_create("figures");
    tcase_add_loop_test(tests, limits_move_what_an_update_moves, 0, FORMS);
    tcase_add_test(tests, update_predicted);
    tcase_add_test(tests, advice_names_folders);
    tcase_add_test(tests, step_judged);
    tcase_add_test(tests, gpus_judged);
    tcase_add_test(tests, table_printed);
    suite_add_tcase(suite, tests);
    return suite_run_all(suite);
}
