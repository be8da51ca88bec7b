// SPDX-License-Identifier: Apache-2.0
/*
 * Every field of the public structs at its edges, and the environment: what is
 * refused is refused by zero_plan_make and zero_create alike, with a sentence
 * that names the field and the value; the last good value is taken. Nothing here
 * depends on how much memory the machine has.
 */
#include <fcntl.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/suite.h"
#include "tests/support/toy.h"
#include "tests/support/tree.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof(*(array))))

static char long_path[8000], long_folder[6000];

static void expect_both(const struct zero_param *params, int count, const struct zero_config *c,
                        int status, const char *says)
{
    struct zero_plan plan;
    struct zero *z;
    char text[512] = "";
    int planned = zero_plan_make(params, count, c, 1, 1, &plan, text, sizeof(text));
    ck_assert_msg(planned == status && strstr(text, says), "plan: %s: '%s', not '%s'",
                  zero_status_name(planned), text, says);
    int created = zero_create(&z, params, count, c);
    ck_assert_msg(created == status && strstr(zero_last_error(z), says),
                  "create: %s: '%s', not '%s'", zero_status_name(created), zero_last_error(z),
                  says);
    zero_destroy(z);
}

/* ----------------------------------------------------------------- versions */

/* A program that was built with other structs has to ask for another library. */
#define SIZE(type) #type, sizeof(struct type)
START_TEST(sizes_are_of_this_version)
{
    static const struct {
        const char *name;
        size_t now, then;
    } sizes[] = {
        {SIZE(zero_param), 104},      {SIZE(zero_normal), 24},
        {SIZE(zero_span), 64},        {SIZE(zero_config), 192},
        {SIZE(zero_step_info), 48},   {SIZE(zero_adam), 48},
        {SIZE(zero_progress), 32},    {SIZE(zero_digest), 24},
        {SIZE(zero_bytes), 48},       {SIZE(zero_plan), 256},
        {SIZE(zero_probe), 1048},     {SIZE(zero_gpu), 104},
        {SIZE(zero_io), 32},          {SIZE(zero_lane_stats), 16},
        {SIZE(zero_stats), 656},      {SIZE(zero_collective_header), 56},
        {SIZE(zero_collective), 128}, {SIZE(zero_comm_ops), 56},
        {SIZE(zero_comm), 544},
    };
    ck_assert_msg(strncmp(ZERO_VERSION, "0.1.", 4) == 0,
                  "These are the sizes of 0.1, not of " ZERO_VERSION ": take those over.");
    for (int i = 0; i < COUNT(sizes) && sizeof(long) == 8; i++)
        ck_assert_msg(sizes[i].now == sizes[i].then,
                      "struct %s has %zu bytes, not %zu as in " ZERO_VERSION
                      ": raise the minor of ZERO_VERSION, and take the sizes over.",
                      sizes[i].name, sizes[i].now, sizes[i].then);
}
END_TEST

/* ------------------------------------------------------------ configuration */

#define WRONG(says, ...)                                                                           \
    {                                                                                              \
        says,                                                                                      \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define WILD(type, value) ((enum type)(value))
static const struct {
    const char *says;
    struct zero_config config;
} wrong_configs[] = {
    WRONG(".stage is -1.", .stage = -1),
    WRONG(".stage is 4.", .stage = 4),
    WRONG(".stage is 2147483647.", .stage = INT_MAX),
    WRONG(".dtype is -1.", .dtype = WILD(zero_dtype, -1)),
    WRONG(".dtype is 3.", .dtype = WILD(zero_dtype, 3)),
    WRONG(".dtype is 2147483647.", .dtype = WILD(zero_dtype, INT_MAX)),
    WRONG(".device is -1.", .device = WILD(zero_device, -1)),
    WRONG(".device is 2.", .device = WILD(zero_device, 2)),
    WRONG(".stream is set with .device = ZERO_CPU", .stream = long_path),
    WRONG(".offload is -1.", .offload = WILD(zero_place, -1)),
    WRONG(".offload is 4.", .offload = WILD(zero_place, 4)),
    WRONG(".offload_optimizer is 4.", .offload_optimizer = WILD(zero_place, 4)),
    WRONG(".offload_optimizer is -2147483648.", .offload_optimizer = WILD(zero_place, INT_MIN)),
    WRONG(".offload_param is 4.", .stage = 3, .offload_param = WILD(zero_place, 4)),
    WRONG(".offload_param is host at stage 0", .offload_param = ZERO_HOST),
    WRONG(".offload_param is nvme at stage 2", .stage = 2, .offload_param = ZERO_NVME),
    WRONG(".offload_grad is 9.", .offload_grad = WILD(zero_place, 9)),
    WRONG(".offload_grad is ZERO_NVME", .offload_grad = ZERO_NVME),
    WRONG(".state is 2.", .state = WILD(zero_state, 2)),
    WRONG(".state is -1.", .state = WILD(zero_state, -1)),
    WRONG("ZERO_STATE_SPLIT with fp32", .state = ZERO_STATE_SPLIT),
    WRONG("ZERO_STATE_SPLIT with fp16", .state = ZERO_STATE_SPLIT, .dtype = ZERO_FP16),
    WRONG(".grad_dtype is -1.", .grad_dtype = WILD(zero_dtype, -1)),
    WRONG(".grad_dtype is 2.", .grad_dtype = ZERO_FP16),
    WRONG(".accumulate_in is -1.", .accumulate_in = WILD(zero_accumulate, -1)),
    WRONG(".accumulate_in is 2.", .accumulate_in = WILD(zero_accumulate, 2)),
    WRONG("ZERO_LOCAL at stage 2", .accumulate_in = ZERO_LOCAL, .stage = 2),
    WRONG("ZERO_LOCAL at stage 3", .accumulate_in = ZERO_LOCAL, .stage = 3),
    WRONG(".offload_grad is ZERO_HOST", .accumulate_in = ZERO_LOCAL, .offload_grad = ZERO_HOST),
    WRONG(".reduction is -1.", .reduction = WILD(zero_reduction, -1)),
    WRONG(".reduction is 2.", .reduction = WILD(zero_reduction, 2)),
    WRONG(".reduction is ZERO_REDUCE_NCCL with .device = ZERO_CPU", .reduction = ZERO_REDUCE_NCCL),
    WRONG(".accumulate is -1.", .accumulate = -1),
    WRONG(".accumulate is -2147483648.", .accumulate = INT_MIN),
    WRONG(".loss_scale is -1.", .loss_scale = -1),
    WRONG(".loss_scale is nan.", .loss_scale = NAN),
    WRONG(".loss_scale is inf.", .loss_scale = INFINITY),
    WRONG(".loss_scale is -inf.", .loss_scale = -INFINITY),
    WRONG(".loss_scale is 1e+300.", .loss_scale = 1e300),
    WRONG(".loss_scale is 1e-300.", .loss_scale = 1e-300),
    WRONG(".host_bytes is -1.", .offload = ZERO_NVME, .host_bytes = -1),
    WRONG(".host_bytes is -9223372036854775808.", .offload = ZERO_NVME, .host_bytes = INT64_MIN),
    WRONG(".host_bytes is 1, but", .host_bytes = 1),
    WRONG("place is host, not nvme", .offload = ZERO_HOST, .host_bytes = INT64_MAX),
    WRONG(".program_bytes is -1.", .program_bytes = -1),
    WRONG(".program_bytes is 1125899906842625.", .program_bytes = ((int64_t)1 << 50) + 1),
    WRONG(".chunk is -64 elements", .chunk = -64),
    WRONG(".chunk is 1 elements", .chunk = 1),
    WRONG(".chunk is 100 elements", .chunk = 100),
    WRONG(".chunk is 1073741888 elements", .chunk = (1 << 30) + 64),
    WRONG(".chunk is 9223372036854775744 elements", .chunk = INT64_MAX / 64 * 64),
    WRONG(".chunk is -9223372036854775808 elements", .chunk = INT64_MIN),
    WRONG(".chunk_slots is -1.", .chunk_slots = -1),
    WRONG(".chunk_slots is 1.", .chunk_slots = 1),
    WRONG(".chunk_slots is 65.", .chunk_slots = 65),
    WRONG(".chunk_slots is 2147483647.", .chunk_slots = INT_MAX),
    WRONG(".gather_slots is -1.", .gather_slots = -1),
    WRONG(".gather_slots is 65.", .gather_slots = 65),
    WRONG(".grad_slots is -2147483648.", .grad_slots = INT_MIN),
    WRONG(".grad_slots is 65.", .grad_slots = 65),
    WRONG(".ring is -1.", .ring = WILD(zero_ring, -1)),
    WRONG(".ring is 3.", .ring = WILD(zero_ring, 3)),
    WRONG(".threads is -1.", .threads = -1),
    WRONG(".threads is 1025.", .threads = 1025),
    WRONG(".deadline_seconds is -1.", .deadline_seconds = -1),
    WRONG(".deadline_seconds is 2147483647.", .deadline_seconds = INT_MAX),
    WRONG(".log_level is -1.", .log_level = WILD(zero_log_level, -1)),
    WRONG(".log_level is 3.", .log_level = WILD(zero_log_level, 3)),
    WRONG(".nvme_path is longer than 1023 bytes", .offload = ZERO_NVME,
          .nvme_path = long_path + sizeof(long_path) - 1 - 1024),
};

START_TEST(configurations_refused)
{
    struct zero_param params[TOY_TENSORS];
    toy_describe(params);
    memset(long_path, 'p', sizeof(long_path) - 1);
    for (int i = 0; i < COUNT(wrong_configs); i++) {
        struct zero_config c = wrong_configs[i].config;
        c.size = sizeof(c);
        expect_both(params, TOY_TENSORS, &c, ZERO_ERR_ARGUMENT, wrong_configs[i].says);
    }
    const size_t sizes[] = {0, 1, sizeof(struct zero_config) - 1, sizeof(struct zero_config) + 1,
                            SIZE_MAX};
    for (int i = 0; i < COUNT(sizes); i++) {
        struct zero_config c = {.size = sizes[i]};
        expect_both(params, TOY_TENSORS, &c, ZERO_ERR_ARGUMENT, "config.size is ");
    }
    expect_both(params, TOY_TENSORS, NULL, ZERO_ERR_ARGUMENT, "config is NULL");
}
END_TEST

/* Folders: lists are looked at when there is something to put there. */
START_TEST(folders_refused)
{
    struct zero_param params[TOY_TENSORS];
    toy_describe(params);
    memset(long_folder, 'f', 600);
    const struct {
        const char *path, *says;
        int status;
    } wrong[] = {
        {":", "has an empty name", ZERO_ERR_ARGUMENT},
        {"/tmp:", "has an empty name", ZERO_ERR_ARGUMENT},
        {"/tmp::/tmp", "has an empty name", ZERO_ERR_ARGUMENT},
        {long_folder, "at most", ZERO_ERR_ARGUMENT},
        {"/tmp:/tmp:/tmp:/tmp:/tmp:/tmp:/tmp:/tmp:/tmp:/tmp:/tmp:/tmp:/tmp:/tmp:/tmp:/tmp:/tmp",
         "names more than", ZERO_ERR_ARGUMENT},
        {"/nowhere", "Cannot create a file in /nowhere: No such file", ZERO_ERR_IO},
        {"/proc", "Cannot create a file in /proc", ZERO_ERR_IO},
        {"/dev/null", "Cannot create a file in /dev/null: Not a directory", ZERO_ERR_IO},
    };
    for (int i = 0; i < COUNT(wrong); i++) {
        struct zero *z;
        int status =
            zero_init(&z, params, TOY_TENSORS, .offload = ZERO_NVME, .nvme_path = wrong[i].path);
        ck_assert_msg(status == wrong[i].status && strstr(zero_last_error(z), wrong[i].says),
                      "%.40s: %s: %s", wrong[i].path, zero_status_name(status), zero_last_error(z));
        zero_destroy(z);
    }
}
END_TEST

/* The last good values; those that take much are planned alone. */
START_TEST(edges_are_taken)
{
    static const struct zero_config planned[] = {
        {.stage = 3, .offload = ZERO_NVME, .chunk = 1 << 30, .chunk_slots = 64},
        {.stage = 3, .offload = ZERO_NVME, .host_bytes = INT64_MAX},
        {.stage = 3, .gather_slots = 64, .grad_slots = 64},
        {.threads = 1024, .deadline_seconds = 1 << 30, .accumulate = INT_MAX},
        {.program_bytes = (int64_t)1 << 50},
    };
    static const struct zero_config created[] = {
        {.loss_scale = 0x1p64},
        {.loss_scale = 0x1p-64},
        {.deadline_seconds = 1 << 30, .accumulate = INT_MAX},
        {.stage = 3, .offload = ZERO_NVME, .chunk = 64, .chunk_slots = 2, .gather_slots = 1},
        {.stage = 3, .offload = ZERO_NVME, .host_bytes = INT64_MAX, .chunk = 64},
        {.stage = 3, .gather_slots = 64, .grad_slots = 64, .chunk_slots = 64},
    };
    struct zero_param params[TOY_TENSORS];
    struct zero_plan plan;
    char text[512];
    toy_describe(params);
    for (int i = 0; i < COUNT(planned) + COUNT(created); i++) {
        bool create = i >= COUNT(planned);
        struct zero_config c = create ? created[i - COUNT(planned)] : planned[i];
        struct zero *z;
        c.size = sizeof(c);
        int status = zero_plan_make(params, TOY_TENSORS, &c, 1, 1, &plan, text, sizeof(text));
        ck_assert_msg(status == ZERO_OK, "%d: %s", i, text);
        if (!create)
            continue;
        c.threads = 1;
        status = zero_create(&z, params, TOY_TENSORS, &c);
        ck_assert_msg(status == ZERO_OK, "%d: %s", i, zero_last_error(z));
        zero_destroy(z);
    }
}
END_TEST

/* ------------------------------------------------------------------ tensors */

static float bad_value;

static int fill_bad(void *arg, int64_t first, int64_t count, float *out)
{
    (void)arg;
    for (int64_t i = 0; i < count; i++)
        out[i] = first + i == 99 ? bad_value : 1;
    return 0;
}

static int fill_fails(void *arg, int64_t first, int64_t count, float *out)
{
    (void)first, (void)count, (void)out;
    return *(int *)arg;
}

static void expect_tensor(struct zero_param p, const char *says)
{
    struct zero_param params[] = {{.name = "other", .ndim = 1, .shape = {70}}, p};
    struct zero_config c = {.size = sizeof(c), .threads = 1, .stage = 3, .chunk = 64};
    for (int offload = ZERO_DEVICE; offload <= ZERO_NVME; offload++) {
        c.offload = (enum zero_place)offload;
        if (!p.fill) {
            expect_both(params, 2, &c, ZERO_ERR_ARGUMENT, says);
            continue;
        }
        struct zero *z;
        int status = zero_create(&z, params, 2, &c);
        ck_assert_msg(status == ZERO_ERR_ARGUMENT && strstr(zero_last_error(z), says),
                      "%s: '%s', not '%s'", zero_status_name(status), zero_last_error(z), says);
        zero_destroy(z);
    }
}

START_TEST(tensors_refused)
{
    const struct zero_param good = {.name = "x", .ndim = 1, .shape = {100}};
    struct zero_param p;
    char name[400];
    memset(name, 'n', sizeof(name));
    name[201] = 0;
    p = good, p.name = NULL;
    expect_tensor(p, "params[1] has no name");
    p.name = "";
    expect_tensor(p, "params[1] has no name");
    p.name = "a\nb";
    expect_tensor(p, "control character, 0x0a");
    p.name = "a\177";
    expect_tensor(p, "control character, 0x7f");
    p.name = name;
    expect_tensor(p, "has 201 characters. Use 200 at most");
    p.name = "other";
    expect_tensor(p, "Two tensors are named other");
    const int units[] = {-1, 2, INT_MAX, INT_MIN};
    for (int i = 0; i < COUNT(units); i++)
        p = good, p.unit = units[i], expect_tensor(p, "has unit ");
    const int ndims[] = {-1, 9, INT_MAX, INT_MIN};
    for (int i = 0; i < COUNT(ndims); i++)
        p = good, p.ndim = ndims[i], expect_tensor(p, "has ndim ");
    const int64_t shapes[][3] = {{-1, 1, 1},
                                 {INT64_MIN, 1, 1},
                                 {INT64_MAX, 1, 1},
                                 {((int64_t)1 << 48) + 1, 1, 1},
                                 {(int64_t)1 << 32, (int64_t)1 << 32, 1},
                                 {INT64_MAX, 2, INT64_MAX},
                                 {3, (int64_t)1 << 62, 4},
                                 {0, -5, 1}};
    for (int i = 0; i < COUNT(shapes); i++) {
        p = good, p.ndim = 3;
        memcpy(p.shape, shapes[i], sizeof(shapes[i]));
        expect_tensor(p, "has shape[");
    }
    for (int ndim = 0; ndim < ZERO_MAX_DIMS; ndim++)
        for (int d = ndim; d < ZERO_MAX_DIMS; d++) {
            char says[64];
            p = (struct zero_param){.name = "x", .unit = 1, .ndim = ndim, .shape = {1, 1, 1}};
            p.shape[d] = 3072;
            snprintf(says, sizeof(says), "has shape[%d] = 3072, but ndim %d", d, ndim);
            expect_tensor(p, says);
            p.shape[d] = -5;
            snprintf(says, sizeof(says), "has shape[%d] = -5, but ndim %d", d, ndim);
            expect_tensor(p, says);
        }
    p = good, p.shape[0] = (int64_t)1 << 48;
    expect_tensor(p, "The model has more than 2^48 elements");
    p = good, p.flags = 4;
    expect_tensor(p, "has flags 0x4");
    p.flags = UINT32_MAX;
    expect_tensor(p, "has flags 0xffffffff");
}
END_TEST

/* The last good ones; what describes them is the caller's again once there is an engine. */
START_TEST(edges_of_tensors_are_taken)
{
    char name[201], first[201];
    struct zero_param p[] = {
        {.name = name, .ndim = ZERO_MAX_DIMS, .shape = {1, 2, 1, 2, 1, 2, 1, 2}},
        {.name = "scalar", .ndim = 0, .shape = {1, 1, 0, 1}, .group = 255},
        {.name = "empty", .ndim = 1, .shape = {0}},
        {.name = "all flags", .unit = 1, .ndim = 1, .shape = {3}, .flags = 3},
    };
    struct zero_adam adam = {.lr = .01, .beta1 = .9, .beta2 = .95, .eps = 1e-8};
    struct zero *z;
    memset(name, 'n', 200);
    name[200] = '\0';
    memcpy(first, name, sizeof(name));
    int status = zero_init(&z, p, COUNT(p), .threads = 1);
    ck_assert_msg(status == ZERO_OK, "%s", zero_last_error(z));
    memset(name, 'x', 200);
    memset(p, 0xFF, sizeof(p));
    ck_assert_int_eq(zero_set_adam(z, 255, &adam), ZERO_OK);
    ck_assert_int_eq(zero_reduce(z, 1), ZERO_OK);
    ck_assert_int_eq(zero_reduce(z, 0), ZERO_OK);
    ck_assert_int_eq(zero_step(z, NULL), ZERO_ERR_STATE); /* group 0 has none */
    ck_assert_msg(strstr(zero_last_error(z), first), "%s", zero_last_error(z));
    ck_assert_int_eq(zero_discard(z), ZERO_OK);
    ck_assert_int_eq(zero_set_adam(z, 0, &adam), ZERO_OK);
    ck_assert_int_eq(zero_reduce(z, 1), ZERO_OK);
    ck_assert_int_eq(zero_reduce(z, 0), ZERO_OK);
    ck_assert_int_eq(zero_step(z, NULL), ZERO_OK);
    zero_destroy(z);
}
END_TEST

START_TEST(fills_refused)
{
    struct zero_param p = {.name = "x", .ndim = 1, .shape = {100}, .fill = fill_bad};
    const float values[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < COUNT(values); i++) {
        bad_value = values[i];
        expect_tensor(p, "to element 99");
    }
    int results[] = {1, -1, INT_MIN};
    for (int i = 0; i < COUNT(results); i++) {
        p.fill = fill_fails, p.fill_arg = &results[i];
        expect_tensor(p, "The fill of tensor x returned ");
    }
    p.fill_arg = NULL;
    p.fill = zero_fill_normal;
    expect_tensor(p, "ready-made fills need a fill_arg");
    p.fill = zero_fill_constant;
    expect_tensor(p, "ready-made fills need a fill_arg");
    struct zero_normal wild[] = {
        {.std = NAN}, {.mean = INFINITY}, {.std = FLT_MAX, .mean = FLT_MAX}};
    for (int i = 0; i < COUNT(wild); i++) {
        p.fill = zero_fill_normal, p.fill_arg = &wild[i];
        expect_tensor(p, "The fill of tensor x wrote ");
    }
}
END_TEST

/* Whole models, and plans for any number of ranks. */
START_TEST(models_refused)
{
    struct zero_param params[TOY_TENSORS], one = {.name = "x", .ndim = 1, .shape = {100}};
    struct zero_param empty[2] = {{.name = "x", .ndim = 1}, {.name = "y", .ndim = 2, .shape = {5}}};
    struct zero_config c = {.size = sizeof(c)};
    toy_describe(params);
    expect_both(NULL, TOY_TENSORS, &c, ZERO_ERR_ARGUMENT, "params is NULL");
    expect_both(params, 0, &c, ZERO_ERR_ARGUMENT, "A model of 0 tensors");
    expect_both(params, INT_MIN, &c, ZERO_ERR_ARGUMENT, "A model of -2147483648 tensors");
    expect_both(empty, 2, &c, ZERO_ERR_ARGUMENT, "None of the 2 tensors has an element");
    params[5].unit = params[6].unit = 3;
    expect_both(params, TOY_TENSORS, &c, ZERO_ERR_ARGUMENT, "Unit 2 has no tensor");
    struct zero_param vast = {.name = "x", .ndim = 1, .shape = {(int64_t)1 << 48}};
    c.chunk = 64;
    expect_both(&vast, 1, &c, ZERO_ERR_ARGUMENT, "cuts this model into 4398046511104 chunks");
    c.chunk = 0;

    static const int ranks[][2] = {{0, 1}, {1, 0}, {-1, 1}, {2, 3}, {INT_MIN, INT_MIN}, {1, -1}};
    struct zero_plan plan;
    char text[512];
    for (int i = 0; i < COUNT(ranks); i++) {
        ck_assert_int_eq(zero_plan_make(&one, 1, &c, ranks[i][0], ranks[i][1], &plan, text, 512),
                         ZERO_ERR_ARGUMENT);
        ck_assert_msg(strstr(text, "A plan for "), "%s", text);
    }
    ck_assert_int_eq(zero_plan_make(&one, 1, &c, INT_MAX, INT_MAX, &plan, text, 512),
                     ZERO_ERR_ARGUMENT);
    ck_assert_msg(strstr(text, "are more than 2^63 bytes"), "%s", text);
    ck_assert_int_eq(zero_plan_make(&one, 1, &c, INT_MAX, 2, &plan, NULL, 0), ZERO_OK);
    ck_assert(plan.node_device == 2 * plan.device.total && plan.device.total > 0);
    enum { MANY = 4000 };
    static struct zero_param many[MANY];
    static char names[MANY][8];
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof(names[i]), "%d", i);
        many[i] = (struct zero_param){.name = names[i], .unit = i};
    }
    ck_assert_int_eq(zero_plan_make(many, MANY, &c, INT_MAX, 1, &plan, text, 512),
                     ZERO_ERR_ARGUMENT);
    ck_assert_msg(strstr(text, "elements of padding"), "%s", text);
    ck_assert_int_eq(zero_plan_make(&one, 1, &c, 1, 1, NULL, text, 3), ZERO_ERR_ARGUMENT);
    ck_assert_str_eq(text, "ze");
    ck_assert_int_eq(zero_plan_make(&one, 1, &c, 1, 1, NULL, NULL, 0), ZERO_ERR_ARGUMENT);
}
END_TEST

/* What no machine has is refused, not tried. */
START_TEST(vast_models_are_refused)
{
    struct zero_param p = {.name = "x", .ndim = 2, .shape = {(int64_t)1 << 24, (int64_t)1 << 22}};
    for (int stage = 0; stage <= 3; stage += 3)
        for (int offload = ZERO_DEVICE; offload <= ZERO_HOST; offload++) {
            struct zero_config c = {.size = sizeof(c),
                                    .stage = stage,
                                    .chunk = 1 << 30,
                                    .chunk_slots = 64,
                                    .offload = (enum zero_place)offload};
            struct zero *z;
            ck_assert_int_eq(zero_create(&z, &p, 1, &c), ZERO_ERR_MEMORY);
            ck_assert_msg(strstr(zero_last_error(z), "available"), "%s", zero_last_error(z));
            zero_destroy(z);
        }
}
END_TEST

START_TEST(vast_programs_are_refused)
{
    struct zero_param p = {.name = "x", .ndim = 1, .shape = {100}};
    struct zero *z;
    ck_assert_int_eq(zero_init(&z, &p, 1, .program_bytes = (int64_t)1 << 50), ZERO_ERR_MEMORY);
    ck_assert_msg(strstr(zero_last_error(z), ", program 1125899.907 GB), "), "%s",
                  zero_last_error(z));
    zero_destroy(z);
}
END_TEST

/* ------------------------------------------------------------ a communicator */

START_TEST(communicators_refused)
{
    static const struct zero_comm_ops none = {0};
    const struct zero_comm wrong[] = {
        {.size = 1, .local_size = 1},
        {.ops = &none, .size = 1, .local_size = 1},
    };
    struct zero_param params[TOY_TENSORS];
    struct zero *z;
    toy_describe(params);
    for (int i = 0; i < COUNT(wrong); i++) {
        struct zero_comm comm = wrong[i];
        ck_assert_int_eq(zero_init(&z, params, TOY_TENSORS, .comm = &comm), ZERO_ERR_ARGUMENT);
        ck_assert_msg(strstr(zero_last_error(z), "without all calls"), "%s", zero_last_error(z));
        zero_destroy(z);
    }
    /* A good one's calls, with numbers that are none. */
    ck_assert_int_eq(zero_init(&z, params, TOY_TENSORS, .threads = 1), ZERO_OK);
    const int numbers[][4] = {{0, 0, 0, 1},  {-1, 1, 0, 1}, {1, 1, 0, 1}, {0, 1, 0, 0},
                              {0, 1, -1, 1}, {0, 1, 1, 1},  {0, 1, 0, 2}, {0, INT_MIN, 0, 1}};
    for (int i = 0; i < COUNT(numbers); i++) {
        struct zero_comm comm = {.ops = z->comm->ops,
                                 .rank = numbers[i][0],
                                 .size = numbers[i][1],
                                 .local_rank = numbers[i][2],
                                 .local_size = numbers[i][3]};
        struct zero *other;
        ck_assert_int_eq(zero_init(&other, params, TOY_TENSORS, .comm = &comm), ZERO_ERR_ARGUMENT);
        ck_assert_msg(strstr(zero_last_error(other), ".comm is rank "), "%d: %s", i,
                      zero_last_error(other));
        zero_destroy(other);
    }
    zero_destroy(z);
}
END_TEST

/* ------------------------------------------------------------- environment */

static int create_with(const char *variable, const char *value, char text[512])
{
    struct zero_param params[TOY_TENSORS];
    struct zero *z;
    toy_describe(params);
    setenv(variable, value, 1);
    int status = zero_init(&z, params, TOY_TENSORS, .stage = 3, .offload = ZERO_NVME, .threads = 1);
    snprintf(text, 512, "%s", zero_last_error(z));
    zero_destroy(z);
    unsetenv(variable);
    return status;
}

START_TEST(environment_refused)
{
    static const struct {
        const char *variable, *value, *says;
        int status;
    } wrong[] = {
        {"ZERO_ISA", "sse", "There is no instruction set \"sse\"", ZERO_ERR_ARGUMENT},
        {"ZERO_ISA", "AVX2", "There is no instruction set \"AVX2\"", ZERO_ERR_ARGUMENT},
        {"ZERO_ISA", long_path, "or unset it", ZERO_ERR_ARGUMENT},
        {"ZERO_PROBE", "2", "ZERO_PROBE is '2'", ZERO_ERR_ARGUMENT},
        {"ZERO_PROBE", "yes", "ZERO_PROBE is 'yes'", ZERO_ERR_ARGUMENT},
        {"ZERO_PROBE", long_path, "ZERO_PROBE is 'pppp", ZERO_ERR_ARGUMENT},
        {"ZERO_DEVICE_MEMORY", "", "ZERO_DEVICE_MEMORY= is not", ZERO_ERR_ARGUMENT},
        {"ZERO_DEVICE_MEMORY", "-1", "=-1 is not", ZERO_ERR_ARGUMENT},
        {"ZERO_DEVICE_MEMORY", "0", "=0 is not", ZERO_ERR_ARGUMENT},
        {"ZERO_DEVICE_MEMORY", "1T", "=1T is not", ZERO_ERR_ARGUMENT},
        {"ZERO_DEVICE_MEMORY", "99999999999G", "is not a number of bytes", ZERO_ERR_ARGUMENT},
        {"ZERO_DEVICE_MEMORY", long_path, "is not a number of bytes", ZERO_ERR_ARGUMENT},
        {"ZERO_DEVICE_MEMORY", "1000", "1000 of 1000 are free", ZERO_ERR_MEMORY},
        {"SLURM_TMPDIR", "/nowhere", "Cannot create a file in /nowhere", ZERO_ERR_IO},
        {"SLURM_TMPDIR", long_path, "SLURM_TMPDIR is longer than", ZERO_ERR_ARGUMENT},
        {"TMPDIR", "/dev/null", "Cannot create a file in /dev/null", ZERO_ERR_IO},
        {"SLURM_TMPDIR", "/run:7",
         "SLURM_TMPDIR is '/run:7', of which the ':' would make two "
         "folders.",
         ZERO_ERR_ARGUMENT},
    };
    char text[512];
    memset(long_path, 'p', sizeof(long_path) - 1);
    unsetenv("SLURM_TMPDIR");
    for (int i = 0; i < COUNT(wrong); i++) {
        int status = create_with(wrong[i].variable, wrong[i].value, text);
        ck_assert_msg(status == wrong[i].status && strstr(text, wrong[i].says),
                      "%s=%.20s: %s: '%s', not '%s'", wrong[i].variable, wrong[i].value,
                      zero_status_name(status), text, wrong[i].says);
    }
    setenv("TMPDIR", "/tmp", 1); /* a job's own folder goes before it */
    ck_assert_int_eq(create_with("SLURM_TMPDIR", "/nowhere", text), ZERO_ERR_IO);
    ck_assert_ptr_nonnull(strstr(text, "Cannot create a file in /nowhere"));
    unsetenv("TMPDIR");
}
END_TEST

/* What is empty counts as unset, and where a probe cannot be kept it is made all
 * the same. */
START_TEST(environment_taken)
{
    char folder[] = "/tmp/zero-wrong-XXXXXX", file[64], closed[64], text[512];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(file, sizeof(file), "%s/file", folder);
    snprintf(closed, sizeof(closed), "%s/closed", folder);
    ck_assert_int_eq(close(open(file, O_CREAT | O_WRONLY, 0600)), 0);
    ck_assert_int_eq(mkdir(closed, 0500), 0);
    const char *const taken[][2] = {
        {"ZERO_ISA", ""},    {"ZERO_ISA", "scalar"},       {"ZERO_PROBE", ""},
        {"ZERO_PROBE", "0"}, {"ZERO_DEVICE_MEMORY", "1G"}, {"SLURM_TMPDIR", ""},
        {"TMPDIR", folder},
    };
    unsetenv("SLURM_TMPDIR");
    for (int i = 0; i < COUNT(taken); i++) {
        int status = create_with(taken[i][0], taken[i][1], text);
        ck_assert_msg(status == ZERO_OK, "%s=%s: %s", taken[i][0], taken[i][1], text);
    }
    const char *const caches[] = {file, closed, "/nowhere/at/all", "/proc", long_path, ""};
    memset(long_path, 'p', sizeof(long_path) - 1);
    setenv("TMPDIR", folder, 1);
    setenv("HOME", "/dev/null", 1);
    for (int i = 0; i < COUNT(caches); i++) {
        if (i == 0) /* one probe is enough: two seconds each */
            setenv("ZERO_PROBE", "1", 1);
        int status = create_with("XDG_CACHE_HOME", caches[i], text);
        ck_assert_msg(status == ZERO_OK, "XDG_CACHE_HOME=%.20s: %s", caches[i], text);
        unsetenv("ZERO_PROBE");
    }
    tree_remove(folder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wrong fields");
    TCase *tests = tcase_create("fields");
    tcase_add_test(tests, sizes_are_of_this_version);
    tcase_add_test(tests, configurations_refused);
    tcase_add_test(tests, folders_refused);
    tcase_add_test(tests, edges_are_taken);
    tcase_add_test(tests, tensors_refused);
    tcase_add_test(tests, edges_of_tensors_are_taken);
    tcase_add_test(tests, fills_refused);
    tcase_add_test(tests, models_refused);
    tcase_add_test(tests, vast_models_are_refused);
    tcase_add_test(tests, vast_programs_are_refused);
    tcase_add_test(tests, communicators_refused);
    tcase_add_test(tests, environment_refused);
    tcase_add_test(tests, environment_taken);
    suite_add_tcase(suite, tests);
    return suite_run_all(suite);
}
