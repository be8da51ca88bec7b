// SPDX-License-Identifier: Apache-2.0
#include "examples/common/choices.h"

#include "include/zero.h"

const struct option_choice device_choices[] = {
    {.name = "cpu", .value = ZERO_CPU}, {.name = "cuda", .value = ZERO_CUDA}, {.name = NULL}};

const struct option_choice place_choices[] = {
    {.name = "none", .value = ZERO_DEVICE},
    {.name = "device", .value = ZERO_DEVICE, .hidden = true},
    {.name = "cpu", .value = ZERO_HOST},
    {.name = "host", .value = ZERO_HOST, .hidden = true},
    {.name = "nvme", .value = ZERO_NVME},
    {.name = NULL},
};

const struct option_choice dtype_choices[] = {{.name = "bf16", .value = ZERO_BF16},
                                              {.name = "fp32", .value = ZERO_FP32},
                                              {.name = "fp16", .value = ZERO_FP16},
                                              {.name = NULL}};

const struct option_choice grad_dtype_choices[] = {
    {.name = "fp32", .value = ZERO_FP32}, {.name = "bf16", .value = ZERO_BF16}, {.name = NULL}};

const struct option_choice state_choices[] = {{.name = "fp32", .value = ZERO_STATE_FP32},
                                              {.name = "split", .value = ZERO_STATE_SPLIT},
                                              {.name = NULL}};

const struct option_choice accumulate_choices[] = {
    {.name = "shard", .value = ZERO_SHARD}, {.name = "local", .value = ZERO_LOCAL}, {.name = NULL}};
