// SPDX-License-Identifier: Apache-2.0
/* The list of folders that .nvme_path is: taken apart and put together it is the same. */
#include "offload/spill.h"
#include "tests/fuzz/input.h"

static void joined_check(const struct spill_paths *paths, const char *list)
{
    const char *at = list;
    REQUIRE(paths->count >= 1 && paths->count <= STRIPES_FILES);
    for (int i = 0; i < paths->count; i++) {
        size_t length = strnlen(paths->path[i], SPILL_PATH);
        REQUIRE(length > 0 && length < SPILL_PATH);
        REQUIRE(strncmp(at, paths->path[i], length) == 0);
        at += length;
        REQUIRE(*at == (i + 1 < paths->count ? ':' : '\0'));
        at++;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct spill_paths *paths = malloc(sizeof(*paths));
    struct error error = {0};
    char *list = text_of((struct input){data, size});
    REQUIRE(paths);
    if (spill_paths_split(paths, list, &error) == ZERO_OK)
        joined_check(paths, list);
    else
        REQUIRE(error.status == ZERO_ERR_ARGUMENT && error.text[0]);
    free(list);
    free(paths);
    return 0;
}
