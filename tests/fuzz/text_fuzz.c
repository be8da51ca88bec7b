// SPDX-License-Identifier: Apache-2.0
/*
 * What --data names, of whichever kind: the kinds are told apart, text is read and cut. An input:
 * a byte for the number of files and for how many of them --eval-data names, one for the length of
 * a sequence; then for each file two bytes of size and its bytes.
 */
#include "examples/common/data.h"
#include "tests/fuzz/input.h"

enum { FILES_MAX = 2 * TEXT_HOLD, LENGTH_MAX = 64, BATCH = 2 };

static char names[FILES_MAX][32];
static int fds[FILES_MAX];

static void batches_check(const struct data *d, bool held, int length)
{
    int32_t tokens[BATCH * LENGTH_MAX], targets[BATCH * LENGTH_MAX];
    char error[512];
    if ((held ? d->held : d->train) < text_needs(length))
        return;
    for (int number = 0; number < 3; number++) {
        REQUIRE(data_batch(d, held, 3, number, BATCH, length, tokens, targets, error,
                           sizeof(error)) == 0);
        for (int i = 0; i < BATCH * length; i++)
            REQUIRE(tokens[i] >= 0 && tokens[i] < d->vocab && targets[i] < d->vocab);
        for (int i = 0; i + 1 < length; i++)
            REQUIRE(tokens[i + 1] == targets[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct data d;
    char error[512] = "";
    const char *paths[FILES_MAX];
    int counts = (int)take_byte(&input), count = counts % (FILES_MAX + 1);
    int held = counts / (FILES_MAX + 1) < count ? counts / (FILES_MAX + 1) : count;
    int length = 1 + (int)take_byte(&input) % LENGTH_MAX;
    for (int i = 0; i < count; i++) {
        if (!fds[i])
            fds[i] = file_make(names[i], sizeof(names[i]));
        unsigned bytes = take_short(&input);
        file_set(fds[i], take(&input, bytes));
        paths[i] = names[i];
    }
    const struct data_names named = {
        .paths = paths, .count = count - held, .held = paths + count - held, .held_count = held};
    if (data_find(&d, &named, length, error, sizeof(error)) ||
        data_read(&d, 0, 1, error, sizeof(error))) {
        REQUIRE(error[0]);
    } else {
        REQUIRE(d.train >= text_needs(length) && d.held >= 0);
        REQUIRE(data_hash(&d) == data_hash(&d));
        batches_check(&d, false, length);
        batches_check(&d, true, length);
    }
    data_free(&d);
    return 0;
}
