// SPDX-License-Identifier: Apache-2.0
/*
 * The contract suite over TCP, with ranks that are threads; peers that die, send
 * nonsense, or take nothing.
 */
#include "src/comm/tcp.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/clock.h"
#include "src/comm/bootstrap.h"
#include "src/comm/link.h"
#include "tests/support/allocations.h"
#include "tests/support/comm_suite.h"
#include "tests/support/suite.h"
#include "tests/support/tcp_ranks.h"

#define RANKS_MAX 16

/* ------------------------------------------------------------- the contract */

static const int rank_counts[] = {2, 3, 4, RANKS_MAX};
#define RANK_COUNTS ((int)(sizeof(rank_counts) / sizeof(rank_counts[0])))

static void barrier(void *arg)
{
    pthread_barrier_wait(arg);
}

static void scenario(struct tcp_rank *me)
{
    me->world.comm = me->comm;
    me->scenario->run(&me->world);
    me->comm = me->world.comm;
    if (me->comm)
        me->comm->error[0] = '\0';
}

START_TEST(tcp_keeps_the_contract)
{
    const struct comm_scenario *s = &comm_scenarios[_i / RANK_COUNTS];
    int size = rank_counts[_i % RANK_COUNTS];
    struct tcp_rank ranks[RANKS_MAX] = {0};
    pthread_barrier_t all;
    pthread_barrier_init(&all, NULL, (unsigned)size);
    for (int r = 0; r < size; r++) {
        ranks[r].body = scenario;
        ranks[r].scenario = s;
        ranks[r].world = (struct comm_world){.barrier = barrier,
                                             .barrier_arg = &all,
                                             .seed = 7,
                                             .operations = size > 4 ? 30 : 100,
                                             .no_reduce = true};
    }
    tcp_start_all(ranks, size);
    tcp_join(ranks, size);
    for (int r = 0; r < size; r++)
        ck_assert_msg(!ranks[r].error.status && !ranks[r].world.text[0], "%s, rank %d of %d: %s%s",
                      s->name, r, size, ranks[r].error.text, ranks[r].world.text);
    pthread_barrier_destroy(&all);
}
END_TEST

/* ------------------------------------------------------- peers that are gone */

/* Two tcp_sums, in the second of which one is missing. */
static void sums_until_failure(struct tcp_rank *me)
{
    int64_t word = 1;
    for (int i = 0; i < 1000; i++)
        if (tcp_run(me->comm, ZERO_COLLECTIVE_SUM, &word, 8, 0))
            return;
}

/* Of three ranks one is a process, and is killed. */
START_TEST(a_killed_rank_is_named_to_all)
{
    int dead = _i ? 0 : 2;
    char sentence[80];
    struct tcp_rank ranks[3] = {0};
    struct job job = tcp_job(dead, 3);
    pid_t other = fork();
    ck_assert_int_ge(other, 0);
    if (other == 0) {
        struct zero_comm *comm;
        struct error error = {0};
        int64_t word = 1;
        if (comm_tcp_create(&job, TCP_PATIENCE, &comm, &error) ||
            tcp_run(comm, ZERO_COLLECTIVE_SUM, &word, 8, 0))
            _exit(1);
        raise(SIGKILL);
    }
    for (int r = 0; r < 3; r++) {
        ranks[r].body = sums_until_failure;
        if (r != dead)
            tcp_start(&ranks[r], r, 3);
    }
    snprintf(sentence, sizeof(sentence),
             "The connection to rank %d was lost before message 2: ", dead);
    for (int r = 0; r < 3; r++)
        if (r != dead) {
            ck_assert_int_eq(pthread_join(ranks[r].thread, NULL), 0);
            tcp_expect_text(&ranks[r], sentence);
        }
    int status;
    waitpid(other, &status, 0);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}
END_TEST

/* A rank whose bytes are written by hand. */
struct hand {
    struct job job;
    int fd;
    struct tcp_rank peer;
};

static void hand_make(struct hand *h, int rank, void (*body)(struct tcp_rank *me))
{
    int fds[2];
    struct error error = {0};
    *h = (struct hand){.job = tcp_job(rank, 2), .peer = {.body = body}};
    tcp_start(&h->peer, 1 - rank, 2);
    ck_assert_msg(!bootstrap_connect(&h->job, TCP_PATIENCE, fds, &error), "%s", error.text);
    h->fd = fds[1 - rank];
}

static void hand_send(struct hand *h, const void *bytes, size_t count)
{
    for (size_t sent = 0; sent < count;) {
        ssize_t n = send(h->fd, (const char *)bytes + sent, count - sent, MSG_NOSIGNAL);
        ck_assert(n > 0 || errno == EAGAIN);
        sent += n > 0 ? (size_t)n : 0;
    }
}

static void hand_receive(struct hand *h, void *bytes, size_t count)
{
    double until = seconds_now() + TCP_PATIENCE;
    for (size_t got = 0; got < count;) {
        ssize_t n = recv(h->fd, (char *)bytes + got, count - got, 0);
        ck_assert(n > 0 || (n < 0 && errno == EAGAIN && seconds_now() < until));
        got += n > 0 ? (size_t)n : 0;
        tcp_nap(n > 0 ? 0 : 0.001);
    }
}

/* The next frame that is no idle word. */
static struct frame hand_frame(struct hand *h)
{
    struct frame f;
    do
        hand_receive(h, &f, sizeof(f));
    while (f.kind == FRAME_WAITS);
    return f;
}

static void hand_end(struct hand *h, const char *sentence)
{
    ck_assert_int_eq(pthread_join(h->peer.thread, NULL), 0);
    close(h->fd);
    tcp_expect_text(&h->peer, sentence);
}

START_TEST(a_connection_that_is_reset_is_named)
{
    struct hand h;
    struct linger at_once = {.l_onoff = 1};
    hand_make(&h, _i, sums_until_failure);
    setsockopt(h.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(h.fd);
    h.fd = dup(0);
    char sentence[100];
    snprintf(sentence, sizeof(sentence),
             "The connection to rank %d was lost before message 1: Connection reset by peer. ", _i);
    hand_end(&h, sentence);
}
END_TEST

static const struct zero_collective_header sum_of_one = {
    .sequence = 1, .kind = ZERO_COLLECTIVE_SUM, .unit = -1, .bytes = 8};

static const struct {
    int rank; /* that sends it */
    struct frame frame;
} nonsense[] = {
    {1, {.kind = 0}},
    {1, {.kind = 99, .order = 7, .bytes = -5}},
    {1, {.kind = FRAME_GO, .order = 1}},
    {1, {.kind = FRAME_WAITS, .rank = 1, .order = 1}},
    {1, {.kind = FRAME_DIFFERS, .rank = 1, .order = 1}},
    {1, {.kind = FRAME_CALL, .rank = 1, .order = 2}},
    {1, {.kind = FRAME_CALL, .rank = 1, .order = ~0ull}},
    {1, {.kind = FRAME_DATA, .rank = 1, .order = 1, .bytes = 8}}, /* before its call */
    {1, {.kind = FRAME_LOST, .rank = 1}},
    {1, {.kind = FRAME_FAILED, .rank = 0}},
    {1, {.kind = FRAME_FAILED, .rank = -1}},
    {0, {.kind = FRAME_CALL, .order = 1}},
    {0, {.kind = FRAME_GO, .order = 2}},
    {0, {.kind = FRAME_DATA, .order = 1, .bytes = 8}}, /* before GO */
    {0, {.kind = FRAME_WAITS, .rank = 2, .order = 1}},
    {0, {.kind = FRAME_DIFFERS, .rank = -1, .order = 1}},
    {0, {.kind = FRAME_FAILED, .rank = 1}},
};
#define NONSENSE ((int)(sizeof(nonsense) / sizeof(nonsense[0])))

START_TEST(nonsense_is_an_error)
{
    struct hand h;
    int rank = nonsense[_i].rank;
    char sentence[100];
    hand_make(&h, rank, sums_until_failure);
    hand_send(&h, &nonsense[_i].frame, sizeof(struct frame));
    shutdown(h.fd, SHUT_WR);
    snprintf(sentence, sizeof(sentence), "Rank %d sent what rank %d cannot make sense of (kind %u,",
             rank, 1 - rank, nonsense[_i].frame.kind);
    hand_end(&h, sentence);
}
END_TEST

/* Data of another size than was called, or a second time. */
START_TEST(data_that_does_not_fit_is_an_error)
{
    struct hand h;
    struct frame f = {.kind = FRAME_CALL, .rank = 1, .order = 1, .header = sum_of_one};
    int64_t word = 1;
    hand_make(&h, 1, sums_until_failure);
    hand_send(&h, &f, sizeof(f));
    f = hand_frame(&h);
    ck_assert_int_eq(f.kind, FRAME_GO);
    f = (struct frame){.kind = FRAME_DATA, .rank = 1, .order = 1, .bytes = _i ? 8 : 16};
    hand_send(&h, &f, sizeof(f));
    hand_send(&h, &word, 8);
    hand_send(&h, &f, sizeof(f));
    shutdown(h.fd, SHUT_WR);
    hand_end(&h, "Rank 1 sent what rank 0 cannot make sense of (kind 3, call 1,");
}
END_TEST

static void one_sum(struct tcp_rank *me)
{
    int64_t word = 2;
    if (!tcp_run(me->comm, ZERO_COLLECTIVE_SUM, &word, 8, 0) && word != 42)
        snprintf(me->comm->error, sizeof(me->comm->error), "the sum is %lld", (long long)word);
}

/* Frames and data may come in any pieces. */
START_TEST(bytes_may_come_one_by_one)
{
    struct hand h;
    struct frame f[2] = {{.kind = FRAME_CALL, .rank = 1, .order = 1, .header = sum_of_one},
                         {.kind = FRAME_DATA, .rank = 1, .order = 1, .bytes = 8}};
    int64_t word = 40;
    hand_make(&h, 1, one_sum);
    for (size_t i = 0; i < sizeof(f[0]); i++, tcp_nap(0.0002))
        hand_send(&h, (char *)&f[0] + i, 1);
    ck_assert_int_eq(hand_frame(&h).kind, FRAME_GO);
    for (size_t i = 0; i < sizeof(f[1]); i++, tcp_nap(0.0002))
        hand_send(&h, (char *)&f[1] + i, 1);
    for (size_t i = 0; i < sizeof(word); i++, tcp_nap(0.0002))
        hand_send(&h, (char *)&word + i, 1);
    ck_assert_int_eq(hand_frame(&h).kind, FRAME_DATA);
    hand_receive(&h, &word, sizeof(word));
    ck_assert_int_eq(word, 42);
    hand_end(&h, "");
    ck_assert_str_eq(h.peer.text, "");
}
END_TEST

/* The others name at their deadline whom rank 0 waits for: it tells them unasked. */
START_TEST(rank_0_says_whom_it_waits_for)
{
    struct hand h;
    struct frame f;
    hand_make(&h, 1, one_sum);
    hand_receive(&h, &f, sizeof(f));
    ck_assert_int_eq(f.kind, FRAME_WAITS);
    ck_assert_int_eq(f.rank, 1);
    ck_assert_uint_eq(f.order, 1);
    shutdown(h.fd, SHUT_WR);
    hand_end(&h, "The connection to rank 1 was lost before message 1: ");
}
END_TEST

/* Gives up while much data is on its way that nobody takes: in time, and no byte of it
 * is read afterwards, for it is not there any more. */
static void give_up_in_the_middle(struct tcp_rank *me)
{
    int64_t bytes = 64 << 20;
    char *data = calloc(2, (size_t)bytes);
    struct zero_collective c = {
        .header = {.sequence = 1, .kind = ZERO_COLLECTIVE_GATHER, .unit = -1, .bytes = bytes},
        .data = data};
    bool done = false;
    int status = me->comm->ops->start(me->comm, &c);
    for (double until = seconds_now() + 0.3; !status && seconds_now() < until;)
        status = me->comm->ops->test(me->comm, &c, &done);
    double begin = seconds_now();
    me->comm->ops->abort(me->comm, 2);
    free(data);
    me->took = seconds_now() - begin;
    if (status || done)
        snprintf(me->comm->error, sizeof(me->comm->error), "the gather ended");
}

/* Also where another process, a fork of this one, has the socket too. */
START_TEST(a_closed_link_is_closed_for_good)
{
    int ends[2];
    char byte;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    struct link link = {.fd = ends[0]};
    int kept = dup(ends[0]);
    ck_assert_int_ge(kept, 0);
    link_close(&link);
    ck_assert_int_eq(recv(ends[1], &byte, 1, MSG_DONTWAIT), 0);
    close(ends[1]);
    close(kept);
}
END_TEST

static void no_standard_error(struct tcp_rank *me)
{
    tcp_sums(me); /* all ranks are there then */
    errno = 0;
    if (fcntl(STDERR_FILENO, F_GETFD) >= 0 || errno != EBADF)
        error_set(&me->error, ZERO_ERR_COMM, "a socket is standard error");
}

/* What a program prints that was started without standard error goes to no other rank. */
START_TEST(sockets_are_not_standard)
{
    struct tcp_rank ranks[3] = {
        {.body = no_standard_error}, {.body = no_standard_error}, {.body = no_standard_error}};
    tcp_job(0, 3); /* keeps a socket of its own, for the ports */
    int saved = dup(STDERR_FILENO);
    ck_assert(saved >= 0 && close(STDERR_FILENO) == 0);
    tcp_start_all(ranks, 3);
    tcp_join(ranks, 3);
    ck_assert_int_eq(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(saved);
    tcp_expect_joined(ranks, 3);
}
END_TEST

START_TEST(giving_up_takes_little_time)
{
    struct hand h;
    struct frame go = {.kind = FRAME_GO, .order = 1};
    hand_make(&h, 0, give_up_in_the_middle);
    ck_assert_int_eq(hand_frame(&h).kind, FRAME_CALL);
    hand_send(&h, &go, sizeof(go));
    hand_end(&h, "This rank (1) gave up before message 1: ");
    ck_assert(h.peer.took > 0.5 && h.peer.took < 5);
}
END_TEST

static void two_gathers(struct tcp_rank *me)
{
    int64_t bytes = 16 << 20;
    char *data = calloc(4, (size_t)bytes);
    struct zero_collective c[2];
    bool done = false;
    for (int i = 0; i < 2; i++) {
        c[i] = (struct zero_collective){.header = {.sequence = (uint64_t)i + 1,
                                                   .kind = ZERO_COLLECTIVE_GATHER,
                                                   .unit = -1,
                                                   .bytes = bytes},
                                        .data = data + 2 * i * bytes};
        me->comm->ops->start(me->comm, &c[i]);
    }
    for (double until = seconds_now() + 0.3; seconds_now() < until;)
        me->comm->ops->test(me->comm, &c[0], &done);
    me->comm->ops->abort(me->comm, 3);
    free(data);
}

/* What is sent halfway is completed where it is taken, and what is not begun is not sent. */
START_TEST(giving_up_ends_between_frames)
{
    struct hand h;
    struct frame go[2] = {{.kind = FRAME_GO, .order = 1}, {.kind = FRAME_GO, .order = 2}}, f;
    hand_make(&h, 0, two_gathers);
    ck_assert_int_eq(hand_frame(&h).kind, FRAME_CALL);
    ck_assert_int_eq(hand_frame(&h).kind, FRAME_CALL);
    hand_send(&h, go, sizeof(go));
    f = hand_frame(&h);
    ck_assert_int_eq(f.kind, FRAME_DATA);
    tcp_nap(0.6);
    char *data = malloc((size_t)f.bytes);
    hand_receive(&h, data, (size_t)f.bytes);
    free(data);
    f = hand_frame(&h);
    ck_assert_int_eq(f.kind, FRAME_FAILED);
    ck_assert_int_eq((int)f.header.sequence, 1);
    shutdown(h.fd, SHUT_WR);
    hand_end(&h, "This rank (1) gave up before message 1: ");
}
END_TEST

/* Stands still from 0.2 s on for as long: what comes in that time is heard at once. */
static void with_a_pause(struct tcp_rank *me, struct zero_collective *c)
{
    bool done = false;
    int status = me->comm->ops->start(me->comm, c);
    for (double until = seconds_now() + 0.2; !status && seconds_now() < until;)
        status = me->comm->ops->test(me->comm, c, &done);
    tcp_nap(0.4);
    while (!status && !done)
        status = me->comm->ops->test(me->comm, c, &done);
    me->comm->sequence = 1;
    if (!status && *(int64_t *)c->data != 42)
        snprintf(me->comm->error, sizeof(me->comm->error), "another result");
}

static void a_sum_with_a_pause(struct tcp_rank *me)
{
    int64_t word = 2;
    struct zero_collective c = {.header = sum_of_one, .data = &word};
    with_a_pause(me, &c);
    if (!me->comm->error[0])
        tcp_run(me->comm, ZERO_COLLECTIVE_SUM, &word, 8, 0);
}

/* The result and the end of rank 0 are heard at once: the result counts. */
START_TEST(rank_0_may_leave_after_the_result)
{
    struct hand h;
    struct frame f = {.kind = FRAME_GO, .order = 1};
    int64_t word;
    hand_make(&h, 0, a_sum_with_a_pause);
    ck_assert_int_eq(hand_frame(&h).kind, FRAME_CALL);
    hand_send(&h, &f, sizeof(f));
    f = hand_frame(&h);
    ck_assert_int_eq(f.kind, FRAME_DATA);
    hand_receive(&h, &word, sizeof(word));
    tcp_nap(0.3);
    word += 40;
    hand_send(&h, &f, sizeof(f));
    hand_send(&h, &word, sizeof(word));
    shutdown(h.fd, SHUT_RDWR);
    hand_end(&h, "The connection to rank 0 was lost before message 2: ");
}
END_TEST

static void a_broadcast_with_a_pause(struct tcp_rank *me)
{
    int64_t word = 0;
    struct zero_collective c = {.header = sum_of_one, .root = 2, .data = &word};
    c.header.kind = ZERO_COLLECTIVE_BROADCAST;
    with_a_pause(me, &c);
    if (!me->comm->error[0])
        tcp_run(me->comm, ZERO_COLLECTIVE_SUM, &word, 8, 0);
}

/* The root of a broadcast has no more to wait for than that rank 0 takes its data. */
START_TEST(a_root_may_leave_after_its_data)
{
    struct tcp_rank ranks[3] = {0};
    struct job job = tcp_job(2, 3);
    struct error error = {0};
    int fds[3];
    int64_t word = 42;
    for (int r = 0; r < 2; r++) {
        ranks[r].body = a_broadcast_with_a_pause;
        tcp_start(&ranks[r], r, 3);
    }
    ck_assert_msg(!bootstrap_connect(&job, TCP_PATIENCE, fds, &error), "%s", error.text);
    struct hand h = {.fd = fds[0]};
    struct frame f = {.kind = FRAME_CALL, .rank = 2, .order = 1, .header = sum_of_one};
    f.header.kind = ZERO_COLLECTIVE_BROADCAST;
    f.header.arguments = 2 * 0x9e3779b97f4a7c15u; /* the root */
    hand_send(&h, &f, sizeof(f));
    f = (struct frame){.kind = FRAME_DATA, .rank = 2, .order = 1, .bytes = 8};
    ck_assert_int_eq(hand_frame(&h).kind, FRAME_GO);
    tcp_nap(0.3);
    hand_send(&h, &f, sizeof(f));
    hand_send(&h, &word, sizeof(word));
    close(h.fd);
    tcp_join(ranks, 2);
    for (int r = 0; r < 2; r++)
        tcp_expect_text(&ranks[r], "The connection to rank 2 was lost before message 2: ");
}
END_TEST

enum { SENT = 256 << 10 };

static void send_and_leave(struct tcp_rank *me)
{
    char *data = malloc(SENT);
    memset(data, 5, SENT);
    tcp_run(me->comm, ZERO_COLLECTIVE_BROADCAST, data, SENT, 1);
    free(data);
    tcp_nap(0.2); /* something comes that it does not read */
}

/* A rank that leaves does not take back what rank 0 has not read yet. */
START_TEST(what_is_sent_arrives)
{
    struct hand h;
    struct frame f[2] = {{.kind = FRAME_GO, .order = 1}, {.kind = FRAME_WAITS, .order = 1}};
    char *data = calloc(1, SENT);
    hand_make(&h, 0, send_and_leave);
    ck_assert_int_eq(hand_frame(&h).kind, FRAME_CALL);
    hand_send(&h, f, sizeof(f[0]));
    tcp_nap(0.1);
    hand_send(&h, f + 1, sizeof(f[1]));
    tcp_nap(0.4);
    ck_assert_int_eq(hand_frame(&h).bytes, SENT);
    hand_receive(&h, data, SENT);
    for (int i = 0; i < SENT; i++)
        ck_assert_int_eq(data[i], 5);
    free(data);
    hand_end(&h, "");
    ck_assert_str_eq(h.peer.text, "");
}
END_TEST

static void late_sum(struct tcp_rank *me)
{
    tcp_nap(0.2);
    sums_until_failure(me);
}

/* More calls than can be under way. */
START_TEST(calls_too_far_ahead_are_an_error)
{
    struct hand h;
    struct frame f[ZERO_COLLECTIVES + 1];
    hand_make(&h, 1, late_sum);
    for (int i = 0; i <= ZERO_COLLECTIVES; i++)
        f[i] = (struct frame){
            .kind = FRAME_CALL, .rank = 1, .order = (uint64_t)i + 1, .header = sum_of_one};
    hand_send(&h, f, sizeof(f));
    shutdown(h.fd, SHUT_WR);
    hand_end(&h, "Rank 1 sent what rank 0 cannot make sense of (kind 1, call 5,");
}
END_TEST

static void another_root(struct tcp_rank *me)
{
    int64_t word = 2;
    if (tcp_run(me->comm, ZERO_COLLECTIVE_BROADCAST, &word, 8, me->job.rank) != ZERO_ERR_MISMATCH)
        snprintf(me->comm->error, sizeof(me->comm->error), "a broadcast from two ranks");
}

START_TEST(a_broadcast_has_one_root)
{
    struct tcp_rank ranks[3] = {0};
    for (int r = 0; r < 3; r++)
        ranks[r].body = another_root;
    tcp_start_all(ranks, 3);
    tcp_join(ranks, 3);
    for (int r = 0; r < 3; r++)
        ck_assert_msg(strstr(ranks[r].text, " called broadcast with other arguments than this "),
                      "%s", ranks[r].text);
}
END_TEST

/* ------------------------------------------------------------------- memory */

START_TEST(no_memory_is_said)
{
    if (!ALLOCATIONS_SEEN) {
        puts("skipped: memory that is refused: needs a malloc of its own");
        return;
    }
    bool refused = true;
    int64_t n = 1;
    for (; refused; n++) {
        struct zero_comm *comm;
        struct error error = {0};
        struct job job = tcp_job(0, 3);
        int ends[2][2], fds[3] = {-1};
        char byte;
        for (int i = 0; i < 2; i++) {
            ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends[i]), 0);
            fds[1 + i] = ends[i][0];
        }
        allocation_refused = n;
        int status = comm_tcp_over(&job, fds, &comm, &error);
        refused = allocation_refused == 0;
        allocation_refused = 0;
        ck_assert_int_eq(status, refused ? ZERO_ERR_MEMORY : ZERO_OK);
        ck_assert_msg(!refused == !error.text[0], "%s", error.text);
        if (!refused)
            comm->ops->destroy(comm);
        for (int i = 0; i < 2; i++) { /* the others hear of it */
            ck_assert_int_eq(recv(ends[i][1], &byte, 1, 0), 0);
            close(ends[i][1]);
        }
    }
    ck_assert_int_gt(n, 8);
    for (n = 1; n <= 4; n++) {
        struct zero_comm *comm;
        struct error error = {0};
        struct job job = tcp_job(0, 3);
        allocation_refused = n;
        ck_assert_int_eq(comm_tcp_create(&job, 1, &comm, &error), ZERO_ERR_MEMORY);
        ck_assert_msg(
            !strncmp(error.text, n == 1 ? "No memory for a comm" : "No memory for messa", 19), "%s",
            error.text);
    }
}
END_TEST

/* A rank that a launcher has started, as tests/slurm.sh does: what it is told, and a sum. */
static int launched_main(void)
{
    struct job job;
    struct error error = {0};
    struct zero_comm *comm = NULL;
    int64_t word = 1;
    int status = job_find(&job, &error);
    if (!status && job.size == 1)
        return puts("alone") < 0;
    if (!status)
        status = job_locate(&job, &error);
    if (!status)
        status = comm_tcp_create(&job, TCP_PATIENCE, &comm, &error);
    if (!status)
        status = tcp_run(comm, ZERO_COLLECTIVE_SUM, &word, 8, 0);
    if (status)
        printf("rank %d: %s\n", job.rank, comm ? comm->error : error.text);
    else
        printf("rank %d of %d, %d of %d on its node: %s, %lld\n", comm->rank, comm->size,
               comm->local_rank, comm->local_size, job.host, (long long)word);
    if (comm)
        comm->ops->destroy(comm);
    return status != ZERO_OK;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "launched"))
        return launched_main();
    Suite *suite = suite_create("tcp");
    TCase *contract = tcase_create("contract"), *peers = tcase_create("peers");
    for (int i = 0; i < comm_scenario_count; i++)
        for (int n = 0; n < RANK_COUNTS; n++)
            if (rank_counts[n] >= comm_scenarios[i].ranks_min)
                tcase_add_loop_test(contract, tcp_keeps_the_contract, i * RANK_COUNTS + n,
                                    i * RANK_COUNTS + n + 1);
    tcase_add_loop_test(peers, a_killed_rank_is_named_to_all, 0, 2);
    tcase_add_loop_test(peers, a_connection_that_is_reset_is_named, 0, 2);
    tcase_add_loop_test(peers, nonsense_is_an_error, 0, NONSENSE);
    tcase_add_loop_test(peers, data_that_does_not_fit_is_an_error, 0, 2);
    tcase_add_test(peers, bytes_may_come_one_by_one);
    tcase_add_test(peers, rank_0_says_whom_it_waits_for);
    tcase_add_test(peers, giving_up_takes_little_time);
    tcase_add_test(peers, a_closed_link_is_closed_for_good);
    tcase_add_test(peers, sockets_are_not_standard);
    tcase_add_test(peers, giving_up_ends_between_frames);
    tcase_add_test(peers, rank_0_may_leave_after_the_result);
    tcase_add_test(peers, a_root_may_leave_after_its_data);
    tcase_add_test(peers, what_is_sent_arrives);
    tcase_add_test(peers, calls_too_far_ahead_are_an_error);
    tcase_add_test(peers, a_broadcast_has_one_root);
    tcase_add_test(peers, no_memory_is_said);
    suite_add_tcase(suite, contract);
    suite_add_tcase(suite, peers);
    return suite_run_all(suite);
}
