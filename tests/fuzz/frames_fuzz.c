// SPDX-License-Identifier: Apache-2.0
/*
 * What one rank of two hears of the other over TCP. An input: a byte whose lowest bit is the rank
 * that hears; then pieces of what it hears, each by its first byte: a frame with the header of
 * the call of its order (bytes: kind, rank, order, two of size), or as many zeros as the next two
 * bytes say, or as many bytes of the input as the next says. Collectives end, fail or wait
 * for a rank that is named.
 */
#include <errno.h>
#include <sys/socket.h>

#include "src/comm/link.h"
#include "src/comm/tcp.h"
#include "tests/fuzz/input.h"

enum { CALLS = 3, BYTES = 40 };

static const int32_t kinds[CALLS] = {ZERO_COLLECTIVE_SUM, ZERO_COLLECTIVE_GATHER,
                                     ZERO_COLLECTIVE_BROADCAST};

static struct zero_collective_header header_of(uint64_t order)
{
    return (struct zero_collective_header){
        .sequence = order, .kind = kinds[(order + CALLS - 1) % CALLS], .unit = -1, .bytes = BYTES};
}

static void put(int fd, const void *bytes, size_t size)
{
    REQUIRE(send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 || errno == EAGAIN ||
            errno == EPIPE);
}

static void say(int fd, struct input *input)
{
    static const char zeros[1 << 16];
    struct frame frame = {0};
    switch (take_byte(input) % 3) {
    case 0:
        frame.kind = take_byte(input);
        frame.rank = (int8_t)take_byte(input);
        frame.order = take_byte(input);
        frame.bytes = (int16_t)take_short(input);
        frame.header = frame.root = header_of(frame.order);
        put(fd, &frame, sizeof(frame));
        break;
    case 1: put(fd, zeros, take_short(input)); break;
    default: {
        struct input taken = take(input, take_byte(input));
        put(fd, taken.at ? taken.at : (const uint8_t *)zeros, taken.left);
    }
    }
}

static void run(struct zero_comm *comm)
{
    struct zero_collective c[CALLS];
    char data[CALLS][2 * BYTES] = {{0}};
    bool done[CALLS] = {false};
    int status = ZERO_OK;
    for (int i = 0; i < CALLS && !status; i++) {
        c[i] = (struct zero_collective){.header = header_of((uint64_t)i + 1), .data = data[i]};
        status = comm->ops->start(comm, &c[i]);
    }
    for (int round = 0; round < 20 && !status; round++)
        for (int i = 0; i < CALLS && !status; i++)
            if (!done[i])
                status = comm->ops->test(comm, &c[i], &done[i]);
    REQUIRE(status == ZERO_OK || comm->error[0]);
    for (int i = 0; i < CALLS && !comm->error[0]; i++)
        REQUIRE(done[i] == (comm->ops->missing(comm, &c[i], 0) == -1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct job job = {.rank = (int)take_byte(&input) % 2, .size = 2, .local_size = 2};
    struct zero_comm *comm;
    struct error error = {0};
    int ends[2], fds[2] = {-1, -1};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    fds[1 - job.rank] = ends[0];
    REQUIRE(comm_tcp_over(&job, fds, &comm, &error) == ZERO_OK);
    while (input.left)
        say(ends[1], &input);
    run(comm);
    close(ends[1]);
    comm->ops->destroy(comm);
    return 0;
}
