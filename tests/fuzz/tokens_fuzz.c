// SPDX-License-Identifier: Apache-2.0
/*
 * Token files of llm.c: whatever is in them is refused with a sentence, or read. An input: a byte
 * for the number of files, one for the length of a sequence; then for each file two bytes of size
 * and its bytes, twelve of them a header's (the highest bit: a file as it is). Where the input
 * ends, the last file is there again.
 */
#include "examples/common/text.h"
#include "examples/common/tokens.h"
#include "tests/fuzz/input.h"

enum { FILES_MAX = 2 * TOKENS_HOLD, LENGTH_MAX = 64, BATCH = 2 };

static char names[FILES_MAX][32];
static int fds[FILES_MAX];

static void file_fill(int fd, struct input *input)
{
    unsigned size = take_short(input);
    struct input content = take(input, size & 0x7fff);
    if (size & 0x8000)
        file_set(fd, content);
    else
        file_set_header(fd, content, 12, TOKENS_HEADER);
}

static void row_check(const struct token_row *row, int length)
{
    int32_t tokens[BATCH * LENGTH_MAX], targets[BATCH * LENGTH_MAX], one;
    char error[512];
    for (int64_t i = 0; i < row->tokens; i++) {
        REQUIRE(!tokens_copy(row, i, 1, &one, error, sizeof(error)));
        REQUIRE(one >= 0 && one < TOKENS_VOCAB);
    }
    if (row->tokens < text_needs(length))
        return;
    for (int number = 0; number < 3; number++)
        REQUIRE(
            !tokens_batch(row, 5, number, BATCH, length, tokens, targets, error, sizeof(error)));
    for (int i = 0; i + 1 < length; i++)
        REQUIRE(tokens[i + 1] == targets[i]);
}

static void load(const struct paths *files, int length)
{
    struct tokens t;
    char error[512] = "";
    int64_t tokens = 0;
    for (int i = 0; i < files->count; i++)
        tokens_kind(files->items[i]);
    if (tokens_find(&t, files, length, error, sizeof(error))) {
        REQUIRE(error[0] && !t.list);
        return;
    }
    int unknown = 0;
    for (int i = 0; i < 3; i++)
        unknown |= tokens_check(&t, i, 3, error, sizeof(error));
    if (unknown) {
        REQUIRE(error[0]);
        tokens_free(&t);
        return;
    }
    for (int i = 0; i < t.files; i++) {
        REQUIRE((int64_t)t.list[i].is.st_size == TOKENS_HEADER + 2 * t.list[i].tokens);
        tokens += t.list[i].tokens;
    }
    REQUIRE(t.files == files->count && t.train.tokens >= text_needs(length));
    REQUIRE(t.train.tokens + t.held.tokens == tokens);
    row_check(&t.train, length);
    row_check(&t.held, length);
    tokens_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    char *items[FILES_MAX];
    int count = 1 + (int)take_byte(&input) % FILES_MAX;
    int length = 1 + (int)take_byte(&input) % LENGTH_MAX;
    for (int i = 0, last = 0; i < count; i++) {
        if (!fds[i])
            fds[i] = file_make(names[i], sizeof(names[i]));
        if (i == 0 || input.left) {
            file_fill(fds[i], &input);
            last = i;
        }
        items[i] = names[last];
    }
    load(&(struct paths){.items = items, .count = count}, length);
    return 0;
}
