// SPDX-License-Identifier: Apache-2.0
/* What makes the plugin over fake GPUs, for tests/plugin_test.c, end them: nobody else
 * in its process knows of them. */
#include "tests/support/fake_cuda.h"

__attribute__((destructor)) static void stop(void)
{
    fake_cuda_stop();
}
