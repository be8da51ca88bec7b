// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks that find each other over TCP: they come late, never, twice, or leave; and
 * strangers come to rank 0's door, or have its ports.
 */
#include "src/comm/bootstrap.h"

#include <check.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/clock.h"
#include "tests/support/suite.h"
#include "tests/support/tcp_ranks.h"

/* ------------------------------------------------------------- where rank 0 is */

static void facts(struct tcp_rank *me)
{
    const struct zero_comm *c = me->comm;
    if (c->rank != me->job.rank || c->size != 3 || c->local_rank != me->job.rank / 2 ||
        c->local_size != 2 || c->device_memory)
        snprintf(me->comm->error, sizeof(me->comm->error), "other facts than the job's");
    tcp_sums(me);
}

/* By address of either kind, and by name. */
START_TEST(ranks_find_rank_0)
{
    static const char *const hosts[] = {"127.0.0.1", "::1", "localhost"};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 loopback = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    bool six = fd >= 0 && !bind(fd, (struct sockaddr *)&loopback, sizeof(loopback));
    close(fd);
    if (_i == 1 && !six) {
        puts("skipped: ranks over IPv6: this machine has no ::1");
        return;
    }
    struct tcp_rank ranks[3] = {0};
    for (int r = 0; r < 3; r++) {
        ranks[r].job = tcp_job(r, 3);
        ranks[r].job.local_rank = r / 2;
        ranks[r].job.local_size = 2;
        ranks[r].body = facts;
        strcpy(ranks[r].job.host, hosts[_i]);
    }
    tcp_start_all(ranks, 3);
    tcp_join(ranks, 3);
    tcp_expect_joined(ranks, 3);
}
END_TEST

/* A node that is gone would be noticed after hours, or never where nothing is sent. */
START_TEST(connections_are_kept_alive)
{
    struct tcp_rank peer = {0};
    struct job job = tcp_job(1, 2);
    struct error error = {0};
    int fds[2], on = 0, idle = 0;
    socklen_t size = sizeof(int);
    tcp_start(&peer, 0, 2);
    ck_assert_msg(!bootstrap_connect(&job, TCP_PATIENCE, fds, &error), "%s", error.text);
    ck_assert_int_eq(getsockopt(fds[0], SOL_SOCKET, SO_KEEPALIVE, &on, &size), 0);
    ck_assert_int_eq(getsockopt(fds[0], IPPROTO_TCP, TCP_KEEPIDLE, &idle, &size), 0);
    ck_assert(on && idle == 30);
    close(fds[0]);
    tcp_join(&peer, 1);
}
END_TEST

/* --------------------------------------------- ranks: late, missing, leaving */

START_TEST(a_late_rank_is_waited_for)
{
    struct tcp_rank ranks[3] = {0};
    ranks[_i].late = 0.4;
    for (int r = 0; r < 3; r++)
        ranks[r].body = tcp_sums;
    tcp_start_all(ranks, 3);
    tcp_join(ranks, 3);
    tcp_expect_joined(ranks, 3);
    ck_assert(ranks[(_i + 1) % 3].took > 0.3);
}
END_TEST

static void expect_missing(const struct tcp_rank *ranks, const char *absent)
{
    char sentence[256];
    snprintf(sentence, sizeof(sentence),
             "Of %d ranks these did not connect to rank 0 at 127.0.0.1, port %d, within 1 s: %s. "
             "Look for ",
             ranks[0].job.size, ranks[0].job.port, absent);
    for (int r = 0; r < 2; r++) {
        tcp_expect_error(&ranks[r], ZERO_ERR_DEADLINE, sentence);
        ck_assert(ranks[r].took > 0.9 && ranks[r].took < 8);
    }
}

/* Of four jobs at once: some ranks, many, rank 0, rank 0 where its host has no address. */
START_TEST(who_does_not_come_is_named_to_all)
{
    static const int numbers[] = {0, 1, 0, 1, 1, 1}, sizes[] = {4, 4, 11, 11, 3, 2};
    char sentence[256];
    struct tcp_rank ranks[6] = {0};
    for (int i = 0; i < 6; i++) {
        ranks[i].seconds = 1;
        ranks[i].job = tcp_job(numbers[i], sizes[i]);
        ranks[i].job.port += i / 2 * JOB_PORTS;
    }
    strcpy(ranks[5].job.host, "no-such-host.invalid");
    tcp_start_all(ranks, 6);
    tcp_join(ranks, 6);
    expect_missing(&ranks[0], "2 and 3");
    expect_missing(&ranks[2], "2, 3, 4, 5, 6, 7, 8, 9 and 1 more");
    snprintf(sentence, sizeof(sentence),
             "Rank 0 did not answer rank 1 at 127.0.0.1, ports %d to %d, within 1 s (port ",
             ranks[4].job.port, ranks[4].job.port + JOB_PORTS - 1);
    tcp_expect_error(&ranks[4], ZERO_ERR_DEADLINE, sentence);
    ck_assert_msg(strstr(ranks[4].error.text, ": Connection refused). Look for"), "%s",
                  ranks[4].error.text);
    tcp_expect_error(
        &ranks[5], ZERO_ERR_COMM,
        "The address of rank 0's host 'no-such-host.invalid' was not found within 1 s: ");
    ck_assert(!strstr(ranks[5].error.text, "no memory"));
    ck_assert(ranks[5].took < 5);
}
END_TEST

/* Of a rank that never comes; who came long before rank 0 is there until the end, and hears it. */
START_TEST(who_comes_before_rank_0_waits_for_it)
{
    struct tcp_rank ranks[2] = {{.seconds = 4, .late = 2}, {.seconds = 4}};
    tcp_start(&ranks[0], 0, 3);
    tcp_start(&ranks[1], 1, 3);
    tcp_join(ranks, 2);
    for (int r = 0; r < 2; r++) {
        tcp_expect_error(&ranks[r], ZERO_ERR_DEADLINE,
                         "Of 3 ranks these did not connect to rank 0");
        ck_assert_msg(strstr(ranks[r].error.text, " within 4 s: 2. Look for "), "%s",
                      ranks[r].error.text);
    }
}
END_TEST

/* ------------------------------------------------- others at rank 0's door */

/* A connection to rank 0, by hand. */
static int dial(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    double until = seconds_now() + TCP_PATIENCE;
    for (;;) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_ge(fd, 0);
        if (!connect(fd, (struct sockaddr *)&at, sizeof(at)))
            return fd;
        close(fd);
        ck_assert(seconds_now() < until);
        tcp_nap(0.01);
    }
}

/* A server that is not rank 0. */
static int serve(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    ck_assert(fd >= 0 && !bind(fd, (struct sockaddr *)&at, sizeof(at)) && !listen(fd, 64));
    return fd;
}

/* What rank 0 answers; kind 0: it closes the connection. */
static struct answer hear(int fd)
{
    struct answer answer = {0};
    ssize_t n = recv(fd, &answer, sizeof(answer), MSG_WAITALL);
    if (n != (ssize_t)sizeof(answer))
        return (struct answer){0};
    return answer;
}

static struct answer say(int fd, const void *bytes, size_t count)
{
    ck_assert_int_eq(send(fd, bytes, count, MSG_NOSIGNAL), (ssize_t)count);
    return hear(fd);
}

static struct answer greet(int fd, const struct hello *hello)
{
    return say(fd, hello, sizeof(*hello));
}

START_TEST(strangers_are_turned_away)
{
    struct tcp_rank ranks[3] = {0};
    for (int r = 0; r < 2; r++) {
        ranks[r].body = tcp_sums;
        tcp_start(&ranks[r], r, 3);
    }
    struct job job = tcp_job(2, 3);
    int silent = dial(job.port), half = dial(job.port), fd = dial(job.port);
    struct hello good = hello_make(&job), other = good;
    ck_assert_int_eq(send(half, &good, 20, MSG_NOSIGNAL), 20);
    char request[160] = "GET / HTTP/1.0\r\n\r\n";
    ck_assert_int_eq(say(fd, request, sizeof(request)).kind, 0);
    close(fd);

    strcpy(other.job, "another job");
    ck_assert_int_eq(greet(fd = dial(job.port), &other).kind, ANSWER_OTHER);
    close(fd);
    other = good;
    other.user++;
    ck_assert_int_eq(greet(fd = dial(job.port), &other).kind, ANSWER_OTHER);
    close(fd);
    other = good;
    other.protocol++;
    ck_assert_int_eq(greet(fd = dial(job.port), &other).kind, ANSWER_OTHER);
    close(fd);
    other = good;
    other.bytes++;
    ck_assert_int_eq(greet(fd = dial(job.port), &other).kind, ANSWER_OTHER);
    close(fd);

    ranks[2].body = tcp_sums;
    tcp_start(&ranks[2], 2, 3);
    tcp_join(ranks, 3);
    tcp_expect_joined(ranks, 3);
    close(silent);
    close(half);
}
END_TEST

/* More that say nothing than there are places for them. */
START_TEST(silent_strangers_do_not_fill_the_door)
{
    enum { SILENT = 80 };
    int fds[SILENT];
    struct tcp_rank ranks[2] = {0};
    tcp_start(&ranks[0], 0, 2);
    for (int i = 0; i < SILENT; i++)
        fds[i] = dial(tcp_job(0, 2).port);
    tcp_start(&ranks[1], 1, 2);
    tcp_join(ranks, 2);
    tcp_expect_joined(ranks, 2);
    for (int i = 0; i < SILENT; i++)
        close(fds[i]);
}
END_TEST

/* Who was silent the longest leaves first: a rank has time to say what it is. */
START_TEST(the_oldest_stranger_is_shown_out)
{
    enum { LATER = 5, ALL = 80 };
    int fds[ALL];
    struct tcp_rank rank = {0};
    struct job job = tcp_job(1, 2);
    struct hello hello = hello_make(&job);
    tcp_start(&rank, 0, 2);
    for (int i = 0; i < ALL; i++)
        fds[i] = dial(job.port);
    tcp_nap(0.5); /* to be let in */
    ck_assert_int_eq(greet(fds[ALL - LATER], &hello).kind, ANSWER_WAIT);
    ck_assert_int_eq(hear(fds[ALL - LATER]).kind, ANSWER_GO);
    for (int i = 0; i < ALL; i++)
        close(fds[i]);
    tcp_join(&rank, 1);
    tcp_expect_joined(&rank, 1);
}
END_TEST

START_TEST(turned_away_are_counted)
{
    struct tcp_rank rank = {.seconds = 1};
    tcp_start(&rank, 0, 2);
    for (int i = 0; i < 2; i++) {
        int fd = dial(tcp_job(0, 2).port);
        ck_assert_int_eq(say(fd, "nonsense", 8).kind, 0);
        close(fd);
    }
    tcp_join(&rank, 1);
    tcp_expect_error(&rank, ZERO_ERR_DEADLINE, "Of 2 ranks these did not connect");
    ck_assert_msg(strstr(rank.error.text, "1 (2 other connections were turned away). Look"), "%s",
                  rank.error.text);
}
END_TEST

START_TEST(a_hello_may_come_byte_by_byte)
{
    struct tcp_rank rank = {.body = tcp_sums};
    struct job job = tcp_job(1, 2);
    struct hello hello = hello_make(&job);
    tcp_start(&rank, 0, 2);
    int fd = dial(job.port);
    for (size_t i = 0; i < sizeof(hello); i++) {
        ck_assert_int_eq(send(fd, (char *)&hello + i, 1, MSG_NOSIGNAL), 1);
        tcp_nap(0.001);
    }
    ck_assert_int_eq(hear(fd).kind, ANSWER_WAIT);
    ck_assert_int_eq(hear(fd).kind, ANSWER_GO);
    close(fd);
    tcp_join(&rank, 1);
    ck_assert_msg(!rank.error.status, "%s", rank.error.text);
    ck_assert_msg(strstr(rank.text, "The connection to rank 1 was lost before message 1: it was "
                                    "closed. "),
                  "%s", rank.text);
}
END_TEST

/* Who has lost patience comes again; who has not, has died. */
START_TEST(a_rank_may_come_again)
{
    struct tcp_rank rank = {0};
    struct job job = tcp_job(1, 2);
    struct hello hello = hello_make(&job);
    rank.job = tcp_job(0, 3);
    tcp_start(&rank, 0, 3);
    job = tcp_job(1, 3);
    hello = hello_make(&job);
    int first = dial(job.port);
    ck_assert_int_eq(greet(first, &hello).kind, ANSWER_WAIT);
    if (_i)
        close(first);
    int second = dial(job.port);
    ck_assert_int_eq(greet(second, &hello).kind, ANSWER_WAIT);
    ck_assert_int_eq(_i ? 0 : (int)hear(first).kind, 0);
    hello.rank = 2;
    int third = dial(job.port);
    ck_assert_int_eq(greet(third, &hello).kind, ANSWER_WAIT);
    ck_assert_int_eq(hear(second).kind, ANSWER_GO);
    ck_assert_int_eq(hear(third).kind, ANSWER_GO);
    tcp_join(&rank, 1);
    ck_assert_msg(!rank.error.status, "%s", rank.error.text);
}
END_TEST

/* What it said and its end are there together, when rank 0 finds the time to hear it. */
START_TEST(a_rank_that_left_is_not_told_to_go)
{
    struct tcp_rank rank = {0};
    struct job job = tcp_job(1, 2);
    struct hello hello = hello_make(&job);
    tcp_start(&rank, 0, 2);
    int fd = dial(job.port);
    ck_assert_int_eq(send(fd, &hello, sizeof(hello), MSG_NOSIGNAL | MSG_MORE), sizeof(hello));
    close(fd);
    fd = dial(job.port);
    ck_assert_int_eq(greet(fd, &hello).kind, ANSWER_WAIT);
    ck_assert_int_eq(hear(fd).kind, ANSWER_GO);
    tcp_join(&rank, 1);
    ck_assert_msg(!rank.error.status, "%s", rank.error.text);
}
END_TEST

START_TEST(a_rank_that_ends_is_named_to_all)
{
    struct tcp_rank ranks[2] = {0};
    struct job job = tcp_job(2, 3);
    struct hello hello = hello_make(&job);
    tcp_start(&ranks[0], 0, 3);
    int fd = dial(job.port);
    ck_assert_int_eq(greet(fd, &hello).kind, ANSWER_WAIT);
    close(fd);
    tcp_start(&ranks[1], 1, 3);
    tcp_join(ranks, 2);
    for (int r = 0; r < 2; r++)
        tcp_expect_error(&ranks[r], ZERO_ERR_COMM,
                         "Rank 2 ended while the ranks of this job were connecting. ");
    ck_assert(ranks[0].took < TCP_PATIENCE / 2);
}
END_TEST

/* Where the others are waited for rank 0 closes the connection, or stands still. */
START_TEST(a_rank_0_that_ends_is_named)
{
    struct tcp_rank rank = {.seconds = _i ? 1 : 0};
    struct job job = tcp_job(1, 2);
    int listener = serve(job.port);
    tcp_start(&rank, 1, 2);
    int fd = accept(listener, NULL, NULL);
    struct hello hello;
    ck_assert_int_eq(recv(fd, &hello, sizeof(hello), MSG_WAITALL), sizeof(hello));
    ck_assert(answer_send(fd, ANSWER_WAIT, NULL));
    if (!_i)
        close(fd);
    tcp_join(&rank, 1);
    close(listener);
    tcp_expect_error(&rank, _i ? ZERO_ERR_DEADLINE : ZERO_ERR_COMM, "Rank 0 at 127.0.0.1, port ");
    ck_assert_msg(
        strstr(
            rank.error.text,
            _i ? ", was silent before all ranks had connected (rank 1 was connected for 1 s at "
                 "most). "
               : ", closed the connection before all ranks had connected (rank 1 was connected for "
                 "30 s at most). "),
        "%s", rank.error.text);
}
END_TEST

/* Who comes while the others are told hears it too. */
START_TEST(a_rank_that_is_there_twice_is_named_to_all)
{
    struct tcp_rank ranks[4] = {0};
    ranks[3].late = 0.4;
    for (int r = 0; r < 4; r++)
        ranks[r].job = tcp_job(r == 2 ? 1 : r, 4);
    tcp_start_all(ranks, 4);
    tcp_join(ranks, 4);
    for (int r = 0; r < 4; r++)
        tcp_expect_error(&ranks[r], ZERO_ERR_MISMATCH,
                         "Two processes of this job say that they are rank 1 of 4. Start each rank "
                         "once.");
}
END_TEST

static void alter_version(struct hello *h)
{
    strcpy(h->version, "0.0.1");
}

static void alter_size(struct hello *h)
{
    h->size = 5;
}

static void alter_rank(struct hello *h)
{
    h->rank = 0;
}

static const struct {
    void (*alter)(struct hello *h);
    const char *sentence;
} odd_ranks[] = {
    {alter_version, "Rank 2 runs libzero 0.0.1 and rank 0 runs " ZERO_VERSION ". Start the same "},
    {alter_size, "Rank 2 was started as one of 5 ranks, but rank 0 as one of 3. "},
    {alter_rank, "A second process of this job says that it is rank 0 of 3. "},
};

START_TEST(a_rank_that_cannot_be_is_named_to_all)
{
    struct tcp_rank ranks[2] = {0};
    struct job job = tcp_job(2, 3);
    struct hello hello = hello_make(&job);
    odd_ranks[_i].alter(&hello);
    for (int r = 0; r < 2; r++)
        tcp_start(&ranks[r], r, 3);
    tcp_nap(0.2);
    int fd = dial(job.port);
    struct answer answer = greet(fd, &hello);
    ck_assert_int_eq(answer.kind, ANSWER_FAILED);
    tcp_join(ranks, 2);
    for (int r = 0; r < 2; r++) {
        tcp_expect_error(&ranks[r], ZERO_ERR_MISMATCH, odd_ranks[_i].sentence);
        ck_assert_str_eq(ranks[r].error.text, answer.text);
    }
    close(fd);
}
END_TEST

/* -------------------------------------------------------------------- ports */

struct server {
    pthread_t thread;
    int fd;
    const char *words; /* NULL: it says nothing */
};

static void *server_main(void *arg)
{
    struct server *s = arg;
    for (int fd; (fd = accept(s->fd, NULL, NULL)) >= 0;)
        if (s->words && send(fd, s->words, strlen(s->words), MSG_NOSIGNAL) >= 0)
            close(fd);
    return NULL;
}

/* Ports that other programs have: one closes, one speaks, one is silent. */
START_TEST(the_next_free_port_is_taken)
{
    static const char *const words[] = {"", "220 a mail server is glad to hear from you\r\n", NULL};
    struct server servers[3];
    struct tcp_rank ranks[3] = {0};
    for (int i = 0; i < 3; i++) {
        servers[i] = (struct server){.fd = serve(tcp_job(0, 3).port + i), .words = words[i]};
        ck_assert_int_eq(pthread_create(&servers[i].thread, NULL, server_main, &servers[i]), 0);
    }
    for (int r = 0; r < 3; r++)
        ranks[r].body = tcp_sums;
    tcp_start_all(ranks, 3);
    tcp_join(ranks, 3);
    tcp_expect_joined(ranks, 3);
    for (int i = 0; i < 3; i++) {
        shutdown(servers[i].fd, SHUT_RDWR);
        pthread_join(servers[i].thread, NULL);
        close(servers[i].fd);
    }
}
END_TEST

/* Two jobs that begin at the same port do not mix. */
START_TEST(two_jobs_share_a_port)
{
    struct tcp_rank ranks[4] = {0};
    for (int r = 0; r < 4; r++) {
        ranks[r].body = tcp_sums;
        ranks[r].job = tcp_job(r / 2, 2);
        if (r % 2)
            strcat(ranks[r].job.name, "b");
    }
    tcp_start_all(ranks, 4);
    tcp_join(ranks, 4);
    tcp_expect_joined(ranks, 4);
}
END_TEST

START_TEST(no_free_port_is_said)
{
    int fds[JOB_PORTS];
    char sentence[128];
    struct tcp_rank rank = {0};
    for (int i = 0; i < JOB_PORTS; i++)
        fds[i] = serve(tcp_job(0, 2).port + i);
    tcp_start(&rank, 0, 2);
    tcp_join(&rank, 1);
    snprintf(sentence, sizeof(sentence),
             "Rank 0 cannot listen at the ports %d to %d: Address already in use. ", rank.job.port,
             rank.job.port + JOB_PORTS - 1);
    tcp_expect_error(&rank, ZERO_ERR_COMM, sentence);
    for (int i = 0; i < JOB_PORTS; i++)
        close(fds[i]);
}
END_TEST

/* Fewer files than rank 0 has places for those who come. */
START_TEST(a_low_limit_on_files_is_enough)
{
    struct tcp_rank ranks[2] = {{.seconds = 5}, {.seconds = 5}};
    struct rlimit limit;
    int lowest = dup(0); /* that is free */
    close(lowest);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = (rlim_t)lowest + 12;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    tcp_start_all(ranks, 2);
    tcp_join(ranks, 2);
    tcp_expect_joined(ranks, 2);
}
END_TEST

/* At once, by rank 0 and by another. */
START_TEST(no_file_is_left)
{
    static const char *const sentences[] = {
        "Rank 0 cannot take the connections of 1 ranks: Too many open files. ",
        "Rank 1 cannot reach rank 0: Too many open files. "};
    struct tcp_rank rank = {.seconds = 30, .job = tcp_job(_i, 2)};
    struct rlimit limit, none;
    getrlimit(RLIMIT_NOFILE, &limit);
    none = limit;
    none.rlim_cur = (rlim_t)dup(0); /* the lowest that is free */
    close((int)none.rlim_cur);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    double start = seconds_now();
    tcp_start(&rank, _i, 2);
    tcp_join(&rank, 1);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    tcp_expect_error(&rank, ZERO_ERR_COMM, sentences[_i]);
    ck_assert_double_lt(seconds_now() - start, 25);
}
END_TEST

/* To who is there, and to who comes when that one's connection has given a file back. */
START_TEST(the_limit_on_files_is_said_to_all)
{
    static const char sentence[] =
        "Rank 0 cannot take the connections of 2 ranks: Too many open files. ";
    struct tcp_rank rank = {0};
    struct job job = tcp_job(1, 3), late = tcp_job(2, 3);
    struct hello hello = hello_make(&job), other = hello_make(&late);
    struct rlimit limit;
    struct answer answer;
    tcp_start(&rank, 0, 3);
    int fd = dial(job.port), status;
    ck_assert_int_eq(greet(fd, &hello).kind, ANSWER_WAIT);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = (rlim_t)dup(0); /* the lowest that is free */
    close((int)limit.rlim_cur);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    /* Another process comes: it has a limit of its own. */
    pid_t process = fork();
    ck_assert_int_ge(process, 0);
    if (process == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
        answer = greet(dial(job.port), &other);
        _exit(answer.kind != ANSWER_FAILED || strncmp(answer.text, sentence, strlen(sentence)));
    }
    tcp_join(&rank, 1);
    tcp_expect_error(&rank, ZERO_ERR_COMM, sentence);
    answer = hear(fd);
    ck_assert_int_eq(answer.kind, ANSWER_FAILED);
    ck_assert_msg(strstr(answer.text, sentence) == answer.text, "%s", answer.text);
    waitpid(process, &status, 0);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bootstrap");
    TCase *door = tcase_create("door");
    tcase_set_timeout(door, 60);
    tcase_add_loop_test(door, ranks_find_rank_0, 0, 3);
    tcase_add_test(door, connections_are_kept_alive);
    tcase_add_loop_test(door, a_late_rank_is_waited_for, 0, 2);
    tcase_add_test(door, who_does_not_come_is_named_to_all);
    tcase_add_test(door, who_comes_before_rank_0_waits_for_it);
    tcase_add_test(door, strangers_are_turned_away);
    tcase_add_test(door, silent_strangers_do_not_fill_the_door);
    tcase_add_test(door, the_oldest_stranger_is_shown_out);
    tcase_add_test(door, turned_away_are_counted);
    tcase_add_test(door, a_hello_may_come_byte_by_byte);
    tcase_add_loop_test(door, a_rank_may_come_again, 0, 2);
    tcase_add_test(door, a_rank_that_left_is_not_told_to_go);
    tcase_add_test(door, a_rank_that_ends_is_named_to_all);
    tcase_add_loop_test(door, a_rank_0_that_ends_is_named, 0, suite_short() ? 1 : 2);
    tcase_add_test(door, a_rank_that_is_there_twice_is_named_to_all);
    tcase_add_loop_test(door, a_rank_that_cannot_be_is_named_to_all, 0, 3);
    tcase_add_test(door, the_next_free_port_is_taken);
    tcase_add_test(door, two_jobs_share_a_port);
    tcase_add_test(door, no_free_port_is_said);
    tcase_add_test(door, a_low_limit_on_files_is_enough);
    tcase_add_loop_test(door, no_file_is_left, 0, 2);
    tcase_add_test(door, the_limit_on_files_is_said_to_all);
    suite_add_tcase(suite, door);
    return suite_run_all(suite);
}
