// SPDX-License-Identifier: Apache-2.0
/*
 * gpt2's command line: one argument a line. It is refused with a sentence, or everything that is
 * made of it before a file is opened can be made: a model's description, a plan. Nothing of it
 * ends the process, and little memory is taken.
 */
#include <math.h>
#include <stdlib.h>

#include "examples/common/figure.h"
#include "examples/gpt2/arguments.h"
#include "examples/gpt2/tensors.h"
#include "tests/fuzz/input.h"

enum { ARGUMENTS_MAX = OPTION_LIST_MAX + 40 };

static void schedule_check(const struct arguments *a)
{
    const int64_t steps[] = {0, 1, a->warmup - 1, a->warmup, a->decay - 1, a->decay, a->steps};
    for (int i = 0; i < 7; i++)
        if (steps[i] >= 0)
            REQUIRE(arguments_lr(a, steps[i]) >= 0);
    struct argument_value values[ARGUMENTS_ALIKE];
    int count = arguments_alike(a, values);
    REQUIRE(count > 0 && count <= ARGUMENTS_ALIKE);
    for (int i = 0; i < count; i++)
        REQUIRE(values[i].option[0] && isfinite(values[i].value));
    REQUIRE(arguments_dtype(a)[0] && arguments_model(a)[0]);
}

/* A model of many layers is a long list, which takes time alone. */
static void plan_check(const struct arguments *a)
{
    struct zero_config config = arguments_config(a);
    struct zero_param *params;
    struct zero_plan plan;
    char error[512] = "";
    int count, status;
    if (a->shape.layers > 4 || !tensors_shape_valid(&a->shape))
        return;
    status = gpt_params(&a->shape, (uint64_t)a->seed, &params, &count);
    REQUIRE(status == 0);
    status = zero_plan_make(params, count, &config, 1 + (int)(a->seed % 5), 1, &plan, error,
                            sizeof(error));
    REQUIRE((status == ZERO_OK) == (error[0] == '\0'));
    if (status == ZERO_OK)
        REQUIRE(plan.params > 0 && plan.device.total >= 0 && in_bytes(plan.device.total).text[0]);
    free(params);
}

static void parse(int count, char **texts)
{
    struct arguments a;
    char error[512] = "";
    if (arguments_parse(&a, count, texts, error, sizeof(error))) {
        REQUIRE(error[0]);
        return;
    }
    if (a.help)
        return;
    REQUIRE(a.data.count >= 1 && a.data.count <= OPTION_LIST_MAX);
    schedule_check(&a);
    struct gpt_config config = arguments_model_config(&a, a.threads ? a.threads : 1);
    REQUIRE(gpt_plan_bytes(&config) >= 0); /* 0: no such model */
    plan_check(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    char *texts[ARGUMENTS_MAX + 1] = {(char[]){"gpt2"}};
    int count = 1;
    while (input.left && count < ARGUMENTS_MAX)
        texts[count++] = text_of(take_until(&input, '\n'));
    parse(count, texts);
    for (int i = 1; i < count; i++)
        free(texts[i]);
    return 0;
}
