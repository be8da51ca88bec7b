// SPDX-License-Identifier: Apache-2.0
#include "tests/support/tcp_ranks.h"

#include <check.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "src/clock.h"
#include "src/comm/bootstrap.h"
#include "src/comm/tcp.h"

void tcp_nap(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds,
                         .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

/* A listener at that port of all addresses; -1: others have it. */
static int listen_at(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (!bind(fd, (struct sockaddr *)&at, sizeof(at)) && !listen(fd, 1))
        return fd;
    close(fd);
    return -1;
}

/* The first of this process's ports, below those of outgoing connections. It listens at the one
 * behind them, so that no other process takes them; where others have some, they are passed by. */
static int first_port;

static void choose_port(void)
{
    enum { JOBS = 4, EACH = JOBS * JOB_PORTS + 1, FIRST = 20000, PLACES = 12000 / EACH };
    for (int turn = 0; turn < PLACES && !first_port; turn++) {
        int port = FIRST + ((int)getpid() + turn) % PLACES * EACH, taken = 0;
        for (int i = 0; i < EACH && taken >= 0; i++) {
            taken = listen_at(port + i);
            if (taken >= 0 && i < EACH - 1)
                close(taken);
        }
        first_port = taken >= 0 ? port : 0;
    }
}

struct job tcp_job(int rank, int size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT; /* ranks are threads */
    pthread_once(&once, choose_port);
    struct job job = {.launcher = JOB_TORCHRUN,
                      .mark = "WORLD_SIZE",
                      .rank = rank,
                      .size = size,
                      .local_rank = rank,
                      .local_size = size,
                      .host = "127.0.0.1",
                      .port = first_port};
    snprintf(job.name, sizeof(job.name), "test %d", (int)getpid());
    return job;
}

static void *rank_main(void *arg)
{
    struct tcp_rank *me = arg;
    tcp_nap(me->late);
    double begin = seconds_now();
    comm_tcp_create(&me->job, me->seconds, &me->comm, &me->error);
    me->took = seconds_now() - begin;
    if (me->comm && me->body)
        me->body(me);
    if (me->comm) {
        memcpy(me->text, me->comm->error, sizeof(me->text));
        me->comm->ops->destroy(me->comm);
    }
    return NULL;
}

void tcp_start(struct tcp_rank *me, int rank, int size)
{
    me->job = me->job.size ? me->job : tcp_job(rank, size);
    me->seconds = me->seconds ? me->seconds : TCP_PATIENCE;
    ck_assert_int_eq(pthread_create(&me->thread, NULL, rank_main, me), 0);
}

void tcp_start_all(struct tcp_rank *ranks, int size)
{
    for (int r = 0; r < size; r++)
        tcp_start(&ranks[r], r, size);
}

void tcp_join(struct tcp_rank *ranks, int size)
{
    for (int r = 0; r < size; r++)
        ck_assert_int_eq(pthread_join(ranks[r].thread, NULL), 0);
}

void tcp_expect_joined(const struct tcp_rank *ranks, int size)
{
    for (int r = 0; r < size; r++) {
        ck_assert_msg(ranks[r].comm && !ranks[r].error.status, "rank %d: %s", r,
                      ranks[r].error.text);
        ck_assert_msg(!ranks[r].text[0], "rank %d: %s", r, ranks[r].text);
    }
}

void tcp_expect_error(const struct tcp_rank *r, int status, const char *sentence)
{
    ck_assert_ptr_null(r->comm);
    ck_assert_msg(r->error.status == status, "rank %d: %s: %s", r->job.rank,
                  zero_status_name(r->error.status), r->error.text);
    ck_assert_msg(strstr(r->error.text, sentence) == r->error.text, "rank %d: '%s', not '%s'",
                  r->job.rank, r->error.text, sentence);
}

/* One collective, to its end; the status. */
int tcp_run(struct zero_comm *comm, int kind, void *data, int64_t bytes, int root)
{
    struct zero_collective c = {
        .header = {.sequence = ++comm->sequence, .kind = kind, .unit = -1, .bytes = bytes},
        .data = data,
        .root = root};
    bool done = false;
    int status = comm->ops->start(comm, &c);
    while (!status && !done) {
        status = comm->ops->test(comm, &c, &done);
        if (!done)
            tcp_nap(20e-6);
    }
    return status;
}

/* A body: some sums. */
void tcp_sums(struct tcp_rank *me)
{
    for (int64_t i = 0; i < 3; i++) {
        int64_t words[2] = {me->job.rank + i, INT64_MAX};
        if (tcp_run(me->comm, ZERO_COLLECTIVE_SUM, words, sizeof(words), 0))
            return;
        int64_t n = me->job.size, wrapped = 0;
        for (int r = 0; r < n; r++)
            wrapped = (int64_t)((uint64_t)wrapped + (uint64_t)INT64_MAX);
        if (words[0] != n * (n - 1) / 2 + n * i || words[1] != wrapped)
            snprintf(me->comm->error, sizeof(me->comm->error), "the sum is %lld, %lld",
                     (long long)words[0], (long long)words[1]);
    }
}

void tcp_expect_text(const struct tcp_rank *r, const char *sentence)
{
    ck_assert_msg(r->comm && !r->error.status, "rank %d: %s", r->job.rank, r->error.text);
    ck_assert_msg(strstr(r->text, sentence) == r->text, "rank %d: '%s', not '%s'", r->job.rank,
                  r->text, sentence);
}
