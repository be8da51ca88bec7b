// SPDX-License-Identifier: Apache-2.0
/*
 * llm.c's tokenizer file. An input: a byte for the size of the vocabulary, one whose lowest bit
 * says that the rest is the file as it is; else 16 bytes of the rest are the header's.
 */
#include <stdbool.h>

#include "examples/common/tokenizer.h"
#include "examples/common/tokens.h"
#include "tests/fuzz/input.h"

static char name[32];

/* All bytes of all tokens are within the file. */
static void words_check(const struct tokenizer *t, int vocab)
{
    int64_t sum = 0;
    REQUIRE(t->vocab == vocab && t->end >= 0 && t->end < vocab);
    for (int i = 0; i < vocab; i++) {
        int length;
        const unsigned char *bytes = tokenizer_bytes(t, i, &length);
        REQUIRE(bytes >= t->file && bytes + length <= t->file + t->bytes);
        for (int b = 0; b < length; b++)
            sum += bytes[b];
    }
    REQUIRE(sum >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd;
    struct input input = {data, size};
    struct tokenizer t;
    char error[512] = "";
    int choice = (int)take_byte(&input), vocab = choice == 255 ? TOKENS_VOCAB : 1 + choice;
    bool plain = take_byte(&input) & 1;
    if (!fd)
        fd = file_make(name, sizeof(name));
    if (plain)
        file_set(fd, input);
    else
        file_set_header(fd, input, 16, 1024);
    /* So many tokens fit into no input: those it lacks have no bytes. */
    if (!plain && choice == 255)
        REQUIRE(ftruncate(fd, 1024 + TOKENS_VOCAB) == 0);
    if (tokenizer_load(&t, name, vocab, error, sizeof(error))) {
        REQUIRE(error[0] && !t.file && !t.at);
        return 0;
    }
    words_check(&t, vocab);
    tokenizer_free(&t);
    return 0;
}
