// SPDX-License-Identifier: Apache-2.0
/*
 * The plan against figures that were worked out by hand: tests/plan.txt says how
 * each of them comes about. Every figure of struct zero_plan is compared; one
 * that the file does not name must be 0. Allocates nothing, as the plan does.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/zero.h"
#include "src/plan.h"
#include "tests/support/suite.h"

#define FILE_NAME "tests/plan.txt"
#define TENSORS   16
#define FIGURE(f)                                                                                  \
    {                                                                                              \
#f, offsetof(struct zero_plan, f), sizeof(((struct zero_plan *)0)->f)                      \
    }
#define PLACE(p)                                                                                   \
    FIGURE(p.params), FIGURE(p.grads), FIGURE(p.state), FIGURE(p.checks), FIGURE(p.slots),         \
        FIGURE(p.total)

static const struct figure {
    const char *name;
    size_t offset, size;
} figures[] = {
    FIGURE(params),       FIGURE(frozen),        FIGURE(elements),      FIGURE(units),
    FIGURE(chunks),       FIGURE(chunks_in_ram), PLACE(device),         PLACE(host),
    PLACE(nvme),          FIGURE(read_bytes),    FIGURE(written_bytes), FIGURE(param_read_bytes),
    FIGURE(gather_bytes), FIGURE(reduce_bytes),  FIGURE(update_bytes),
};
#define FIGURES (sizeof(figures) / sizeof(*figures))

struct hand {
    char name[128];
    int line, ranks, count, units;
    struct zero_param params[TENSORS];
    char names[TENSORS][16];
    struct zero_config config;
    int64_t expected[FIGURES];
};

static int64_t figure_value(const struct zero_plan *plan, const struct figure *f)
{
    const char *at = (const char *)plan + f->offset;
    int64_t wide;
    int narrow;
    if (f->size == sizeof(narrow)) {
        memcpy(&narrow, at, sizeof(narrow));
        return narrow;
    }
    memcpy(&wide, at, sizeof(wide));
    return wide;
}

/* ------------------------------------------------------------ reading a case */

static int word_value(const char *word)
{
    static const struct {
        const char *word;
        int value;
    } words[] = {
        {"fp32", ZERO_FP32},     {"bf16", ZERO_BF16},         {"fp16", ZERO_FP16},
        {"device", ZERO_DEVICE}, {"host", ZERO_HOST},         {"nvme", ZERO_NVME},
        {"local", ZERO_LOCAL},   {"split", ZERO_STATE_SPLIT},
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (!strcmp(word, words[i].word))
            return words[i].value;
    char *end;
    long value = strtol(word, &end, 10);
    ck_assert_msg(*end == '\0' && end != word, "%s: what is '%s'?", FILE_NAME, word);
    return (int)value;
}

static void set(struct hand *h, const char *key, const char *word)
{
    struct zero_config *c = &h->config;
    int value = word_value(word);
    if (!strcmp(key, "ranks"))
        h->ranks = value;
    else if (!strcmp(key, "stage"))
        c->stage = value;
    else if (!strcmp(key, "dtype"))
        c->dtype = (enum zero_dtype)value;
    else if (!strcmp(key, "grad"))
        c->grad_dtype = (enum zero_dtype)value;
    else if (!strcmp(key, "state"))
        c->state = (enum zero_state)value;
    else if (!strcmp(key, "offload"))
        c->offload = (enum zero_place)value;
    else if (!strcmp(key, "offload_optimizer"))
        c->offload_optimizer = (enum zero_place)value;
    else if (!strcmp(key, "offload_param"))
        c->offload_param = (enum zero_place)value;
    else if (!strcmp(key, "offload_grad"))
        c->offload_grad = (enum zero_place)value;
    else if (!strcmp(key, "accumulate_in"))
        c->accumulate_in = (enum zero_accumulate)value;
    else if (!strcmp(key, "accumulate"))
        c->accumulate = value;
    else if (!strcmp(key, "host_bytes"))
        c->host_bytes = value;
    else if (!strcmp(key, "verify_spill"))
        c->verify_spill = value;
    else if (!strcmp(key, "chunk"))
        c->chunk = value;
    else if (!strcmp(key, "chunk_slots"))
        c->chunk_slots = value;
    else if (!strcmp(key, "gather_slots"))
        c->gather_slots = value;
    else if (!strcmp(key, "grad_slots"))
        c->grad_slots = value;
    else
        ck_abort_msg("%s:%d: no key '%s'", FILE_NAME, h->line, key);
}

static void add_tensor(struct hand *h, const char *word)
{
    ck_assert_int_lt(h->count, TENSORS);
    struct zero_param *p = &h->params[h->count];
    snprintf(h->names[h->count], sizeof(h->names[0]), "tensor%d", h->count);
    *p = (struct zero_param){.name = h->names[h->count],
                             .unit = h->units,
                             .ndim = 1,
                             .shape = {atoll(word)},
                             .flags = strchr(word, 'f') ? ZERO_FROZEN : 0};
    h->count++;
}

static void take_figure(struct hand *h, const char *name, const char *word)
{
    for (size_t i = 0; i < FIGURES; i++)
        if (!strcmp(name, figures[i].name) && word) {
            h->expected[i] = atoll(word);
            return;
        }
    ck_abort_msg("%s:%d: no figure '%s'", FILE_NAME, h->line, name);
}

/* One line of a case. */
static void take_line(struct hand *h, char *line)
{
    char *save, *first = strtok_r(line, " \n", &save), *word;
    if (!strcmp(first, "set")) {
        while ((word = strtok_r(NULL, " \n", &save)))
            set(h, word, strtok_r(NULL, " \n", &save));
    } else if (!strcmp(first, "unit")) {
        while ((word = strtok_r(NULL, " \n", &save)))
            add_tensor(h, word);
        h->units++;
    } else {
        take_figure(h, first, strtok_r(NULL, " \n", &save));
    }
}

/* The case after the line where h ended; false: there is none. */
static bool read_case(FILE *f, struct hand *h)
{
    char line[256];
    int number = h->line;
    long back = ftell(f);
    *h = (struct hand){.line = number};
    h->config.size = sizeof(h->config);
    for (; fgets(line, sizeof(line), f); back = ftell(f)) {
        bool begins = !strncmp(line, "case ", 5);
        if (begins && h->name[0]) {
            fseek(f, back, SEEK_SET);
            return true;
        }
        h->line++;
        if (begins)
            snprintf(h->name, sizeof(h->name), "%.*s", (int)strcspn(line + 5, "\n"), line + 5);
        line[strcspn(line, "#")] = '\0';
        if (!begins && line[strspn(line, " \n")])
            take_line(h, line);
    }
    return h->name[0] != '\0';
}

static FILE *open_file(void)
{
    FILE *f = fopen(FILE_NAME, "r");
    ck_assert_msg(f != NULL, "%s: run from the repository's root", FILE_NAME);
    return f;
}

/* ------------------------------------------------------------------ the tests */

static bool compare(const struct hand *h)
{
    struct zero_plan plan;
    char error[512];
    int status = zero_plan_make(h->params, h->count, &h->config, h->ranks, h->ranks, &plan, error,
                                sizeof(error));
    if (h->config.verify_spill && !suite_checksums())
        return status == ZERO_ERR_UNSUPPORTED;
    ck_assert_msg(status == ZERO_OK, "%s: %s", h->name, error);
    bool good = true;
    for (size_t i = 0; i < FIGURES; i++) {
        long long planned = figure_value(&plan, &figures[i]), hand = h->expected[i];
        if (planned == hand)
            continue;
        fprintf(stderr, "%s: %s is %lld by hand, %lld by the plan\n", h->name, figures[i].name,
                hand, planned);
        good = false;
    }
    ck_assert_int_eq(plan.node_device, plan.device.total * h->ranks);
    ck_assert_int_eq(plan.node_host, plan.host.total * h->ranks);
    ck_assert_int_eq(plan.node_nvme, plan.nvme.total * h->ranks);
    return good;
}

START_TEST(plans_are_what_the_hand_says)
{
    FILE *f = open_file();
    struct hand h = {0};
    int cases = 0, wrong = 0;
    while (read_case(f, &h)) {
        wrong += !compare(&h);
        cases++;
    }
    fclose(f);
    ck_assert_int_ge(cases, 20);
    ck_assert_msg(wrong == 0, "%d of %d cases differ", wrong, cases);
}
END_TEST

/* What the file's cases have been through: both values of every switch. */
START_TEST(cases_cover_every_switch)
{
    FILE *f = open_file();
    struct hand h = {0};
    uint32_t stages = 0, dtypes = 0, places = 0, ranks = 0;
    bool split = false, rounded = false, local = false, partly = false, frozen = false,
         several = false, checks = false;
    while (read_case(f, &h)) {
        const struct zero_config *c = &h.config;
        stages |= 1u << c->stage;
        dtypes |= 1u << c->dtype;
        places |= 1u << c->offload;
        ranks |= h.ranks < 32 ? 1u << h.ranks : 0;
        split |= c->state == ZERO_STATE_SPLIT;
        rounded |= c->grad_dtype == ZERO_BF16 && c->accumulate < 2;
        several |= c->grad_dtype == ZERO_BF16 && c->accumulate > 1;
        local |= c->accumulate_in == ZERO_LOCAL;
        partly |= c->host_bytes > 0;
        checks |= c->verify_spill;
        for (int i = 0; i < h.count; i++)
            frozen |= h.params[i].flags & ZERO_FROZEN;
    }
    fclose(f);
    ck_assert_uint_eq(stages, 15);
    ck_assert_uint_eq(dtypes, 7);
    ck_assert_uint_eq(places, 1u << ZERO_AUTO | 1u << ZERO_HOST | 1u << ZERO_NVME);
    ck_assert_uint_eq(ranks & 0x10E, 0x10E); /* 1, 2, 3, 8 */
    ck_assert(split && rounded && several && local && partly && frozen && checks);
}
END_TEST

/* More chunks than an engine has tables for, and the most: neither takes long to say. */
START_TEST(chunks_have_a_bound)
{
    struct zero_param param = {.name = "x", .ndim = 1, .shape = {(int64_t)64 << 24}};
    struct zero_config config = {
        .size = sizeof(config), .stage = 3, .offload = ZERO_NVME, .chunk = 64};
    struct zero_plan plan;
    char error[512];
    ck_assert_int_eq(zero_plan_make(&param, 1, &config, 1, 1, &plan, error, sizeof(error)),
                     ZERO_OK);
    ck_assert_int_eq(plan.chunks, 1 << 24);
    param.shape[0]++;
    ck_assert_int_eq(zero_plan_make(&param, 1, &config, 1, 1, &plan, error, sizeof(error)),
                     ZERO_ERR_ARGUMENT);
    ck_assert_msg(
        strstr(error, "into 16777217 chunks, and 16777216 are the most. Use 128 or more "), "%s",
        error);
    config.chunk = 128;
    ck_assert_int_eq(zero_plan_make(&param, 1, &config, 1, 1, &plan, error, sizeof(error)),
                     ZERO_OK);
}
END_TEST

/* An update of all that a rank has is asked for at once, whatever it has. */
START_TEST(chunks_grow_with_the_state)
{
    struct zero_param param = {.name = "x", .ndim = 1};
    struct zero_config config = {
        .size = sizeof(config), .stage = 3, .dtype = ZERO_BF16, .offload = ZERO_NVME};
    const int64_t most = 80000 * ZERO_CHUNK_NVME;
    struct zero_plan plan;
    char error[512];
    for (int64_t billion = 1; billion <= 100000; billion *= 10) {
        param.shape[0] = billion * 1000000000;
        ck_assert_msg(!zero_plan_make(&param, 1, &config, 2, 1, &plan, error, sizeof(error)), "%s",
                      error);
        int64_t usual = (param.shape[0] / 2 + ZERO_CHUNK_NVME - 1) / ZERO_CHUNK_NVME;
        if (param.shape[0] / 2 < most)
            ck_assert_int_eq(plan.chunks, usual);
        else
            ck_assert_msg(plan.chunks > 79000 && plan.chunks <= 80000, "%d chunks", plan.chunks);
    }
    config.chunk = 1 << 22; /* what is given is kept */
    ck_assert_int_eq(zero_plan_make(&param, 1, &config, 2, 1, &plan, NULL, 0), ZERO_OK);
    ck_assert_int_gt(plan.chunks, 80000);
}
END_TEST

/* As many bytes in files' slots as in others, in smaller chunks. */
START_TEST(chunks_have_a_size)
{
    const struct zero_param param = {.name = "x", .ndim = 1, .shape = {1 << 24}};
    struct zero_config config = {.size = sizeof(config),
                                 .dtype = ZERO_BF16,
                                 .offload = ZERO_NVME,
                                 .offload_optimizer = _i ? ZERO_NVME : ZERO_HOST};
    struct zero_plan usual, given;
    ck_assert_int_eq(zero_plan_make(&param, 1, &config, 1, 1, &usual, NULL, 0), ZERO_OK);
    config.chunk = _i ? 1 << 17 : 1 << 20;
    config.chunk_slots = _i ? 32 : 4;
    ck_assert_int_eq(zero_plan_make(&param, 1, &config, 1, 1, &given, NULL, 0), ZERO_OK);
    ck_assert(memcmp(&usual, &given, sizeof(usual)) == 0);
    config.chunk_slots--;
    ck_assert_int_eq(zero_plan_make(&param, 1, &config, 1, 1, &given, NULL, 0), ZERO_OK);
    ck_assert_int_lt(given.host.slots, usual.host.slots);
}
END_TEST

/* Of the first c of live chunks as large a share as of all, but for one; records lie one behind
 * the other, in memory as in the file. */
START_TEST(chunks_in_memory_are_spread)
{
    for (int64_t live = 1; live <= 24; live++)
        for (int64_t resident = 0; resident <= live; resident++) {
            struct plan p = {.chunk = 1024,
                             .chunks = live,
                             .live = live,
                             .resident = resident,
                             .state = 1024 * live - 100,
                             .master = 2};
            int64_t count[2] = {0}, end[2] = {0};
            for (int64_t c = 0; c < live; c++) {
                bool file = plan_chunk_in_file(&p, c);
                ck_assert_int_eq(plan_record_offset(&p, c), end[file]);
                ck_assert_int_eq(plan_chunks_near(&p, c), count[false]);
                ck_assert_int_lt(llabs(count[false] * live - c * resident), live);
                end[file] += plan_record(&p, c).bytes;
                count[file]++;
            }
            ck_assert_int_eq(count[false], resident);
        }
}
END_TEST

/* Twice the ranks take twice the host memory to reach each other, of however many. */
START_TEST(ranks_have_no_bound_of_their_own)
{
    struct zero_param param = {.name = "x", .ndim = 1, .shape = {1}};
    const struct zero_config config = {.size = sizeof(config), .stage = 3, .device = ZERO_CUDA};
    const int half = 1 << 30;
    struct zero_plan few, many;
    ck_assert_int_eq(zero_plan_make(&param, 1, &config, half, 1, &few, NULL, 0), ZERO_OK);
    ck_assert_int_eq(zero_plan_make(&param, 1, &config, INT_MAX, 1, &many, NULL, 0), ZERO_OK);
    ck_assert_int_gt(many.host.slots, 2 * few.host.slots - (1 << 20));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan");
    TCase *tests = tcase_create("by hand");
    tcase_add_test(tests, plans_are_what_the_hand_says);
    tcase_add_test(tests, cases_cover_every_switch);
    tcase_add_test(tests, chunks_have_a_bound);
    tcase_add_test(tests, chunks_grow_with_the_state);
    tcase_add_loop_test(tests, chunks_have_a_size, 0, 2);
    tcase_add_test(tests, chunks_in_memory_are_spread);
    tcase_add_test(tests, ranks_have_no_bound_of_their_own);
    suite_add_tcase(suite, tests);
    return suite_run_all(suite);
}
