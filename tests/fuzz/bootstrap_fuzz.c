// SPDX-License-Identifier: Apache-2.0
/*
 * What a rank reads before it knows who has written it: Slurm's list of hosts and its counts of
 * tasks, up to a newline each; then a hello, whose user is given from this process's on; then an
 * answer. Lists are refused or give a name that is one; of a hello only one that fits a rank of
 * the job passes.
 */
#include "src/comm/bootstrap.h"
#include "tests/fuzz/input.h"

static void lists_check(struct input *input)
{
    char *list = text_of(take_until(input, '\n')), *tasks = text_of(take_until(input, '\n'));
    char host[32];
    if (job_first_host(list, host, sizeof(host))) {
        size_t length = strlen(host);
        REQUIRE(length > 0 && length < sizeof(host) && !strpbrk(host, ",[] \n"));
        REQUIRE(strchr(list, '[') || !strncmp(list, host, length));
    }
    for (int node = 0; node < 5; node++)
        REQUIRE(job_tasks(tasks, node) >= 0);
    free(list);
    free(tasks);
}

static void hello_check(struct input *input)
{
    struct job job = {.size = 4, .name = "slurm 7.0."};
    struct hello hello = {0};
    struct error error = {0};
    struct input taken = take(input, sizeof(hello));
    if (taken.left)
        memcpy(&hello, taken.at, taken.left);
    hello.user += geteuid();
    enum guest_kind kind = hello_judge(&hello, &job, &error);
    REQUIRE((kind == GUEST_WRONG) == (error.status != ZERO_OK));
    REQUIRE((error.status != ZERO_OK) == (error.text[0] != '\0'));
    if (kind == GUEST_RANK)
        REQUIRE(hello.rank > 0 && hello.rank < job.size && !strncmp(hello.job, job.name, 96));
}

static void answer_read(struct input *input)
{
    struct answer answer = {0};
    struct input taken = take(input, sizeof(answer));
    if (taken.left)
        memcpy(&answer, taken.at, taken.left);
    if (!answer_check(&answer))
        return;
    REQUIRE(answer.kind >= ANSWER_WAIT && answer.kind <= ANSWER_FAILED);
    REQUIRE(strnlen(answer.text, sizeof(answer.text)) < sizeof(answer.text));
    REQUIRE(answer.kind != ANSWER_FAILED || (answer.text[0] && answer.status > ZERO_OK));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    lists_check(&input);
    hello_check(&input);
    answer_read(&input);
    return 0;
}
